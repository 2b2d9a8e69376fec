// SPDX-License-Identifier: Apache-2.0
//! Finds the rate of a bottleneck further along the path to a peer, and keeps its queue short.
//!
//! Each report gives the times at which packets arrived, and their queueing delay beyond the
//! fastest recent packet. Delivery rate times queueing delay is the queue at the bottleneck. The
//! pacing rate is corrected so that this queue is half a packet: the bottleneck is never idle, and
//! the next message waits only briefly. An urgent packet may be one packet early, and is sent during
//! pauses.
//!
//! The controller combines parts of published ones:
//! - *BBR* (Cardwell and others, 2016): delivery rate as the measure of the path, pacing, doubling
//!   at the start, a limit on outstanding bytes. Not its gain cycle: once in eight round trips, it
//!   fills the queue with the packets of a quarter of a round trip. Not its maximum filter: it keeps
//!   a past rate for ten round trips.
//! - *LEDBAT* (RFC 6817): one-way instead of round-trip delay, since queues on the return path are
//!   not ours; a base delay of limited age. Not its target of 100 ms.
//! - *Copa* (Arun and Balakrishnan, 2018): the standing queue, from the least delay within a
//!   round trip, against jitter; regular emptying of the queue to measure the base delay again.
//!   Not its window of packets per acknowledgement: one report here covers ten packets.
//! - *CUBIC* (RFC 9438): the window alongside cross traffic.
//! - *SCReAM* (RFC 8298): both a window and a rate; the window holds when reports stop.
//! - *GCC* (Carlucci and others, 2016): a delay signal averaged over groups of packets and kept
//!   apart from loss. Not its fixed thresholds of loss: radios lose 20 % with capacity to spare.
//!
//! A sample of reports is judged by an ordered table of rules (`state`). Three tests show whether sending
//! more delivers more: a dip for losses (`dip`), a probe for the rate (`probe`), and a drain for the delay
//! (`external`). A queue that marks packets (ECN) needs no test (`marks`). All tuned constants are in one
//! table (`tuning`). A local bottleneck shows in the time for which our own kernel holds packets. Reports
//! exclude that time. With a local bottleneck, local back-pressure holds packets back first, and this
//! controller holds back none.

mod apply;
mod backoff;
mod burst;
mod ceiling;
mod compete;
mod dip;
mod external;
mod feedback;
mod limit;
mod losses;
mod marks;
mod probe;
mod sample;
mod state;
mod tuning;

pub use tuning::{Constant, Tuning};

use super::controller::{Controller, FULL_PACKET, PendingPacket, Release, Report, next_send_time};
use crate::time::{Duration, Instant, serialization_time};
use backoff::Backoff;
use burst::Bursts;
use ceiling::Ceiling;
use external::{Drain, DrainResult, ExternalDelay};
use feedback::{Feedback, Jitter};
use limit::Limit;
use losses::Losses;
use marks::Marks;
use probe::{ProbeFinding, RateNoise};
use sample::{Measurement, Sample};
use state::{RuleInput, State, TestResult, Verdict};

/// The default controller of a link. Rates are in bits per second of IP packets.
#[derive(Debug)]
pub struct Auto {
    tuning: Tuning,
    state: State,
    /// The rate that the path is expected to carry for this sender (bandwidth estimate).
    estimate: f64,
    /// Bytes by which the queue at the bottleneck is below its target.
    missing_bytes: f64,
    times: Times,
    /// Whether this controller has held back a packet since the last sample.
    held_back: bool,
    /// Whether this controller limited the rate of the last sample.
    was_limited: bool,
    /// Consecutive growth steps that found spare capacity.
    spare_rounds: u32,
    /// Consecutive probes that found room.
    successful_probes: u32,
    measurement: Option<Measurement>,
    feedback: Feedback,
    jitter: Jitter,
    noise: RateNoise,
    losses: Losses,
    marks: Marks,
    ceiling: Ceiling,
    limit: Limit,
    external: ExternalDelay,
    probes: Backoff,
    bursts: Bursts,
    /// Outstanding bytes at the last report.
    outstanding_bytes: usize,
    /// Bytes sent up to the newest packet of the last report.
    sent_bytes: u64,
    /// Queueing delay that caused the last pause.
    delay_at_pause: Duration,
    /// Whether packets are cut smaller so that urgent packets wait less.
    interleaves: bool,
}

/// All times at which something happened or is due.
#[derive(Debug, Default)]
struct Times {
    /// When the next packet may be sent.
    next_send: Instant,
    next_urgent_send: Instant,
    /// Until this time only urgent packets are sent, at a part of the rate.
    paused_until: Instant,
    /// Until this time a queue drains after a pause, and samples are not representative.
    draining_until: Instant,
    last_growth: Instant,
    last_backoff: Instant,
    /// When the queue at the bottleneck was last empty.
    last_empty: Instant,
    /// When packets were last queued, or lost in a full queue.
    last_congested: Instant,
}

const MAX_RATE: f64 = 1e10;
/// A report that the sender asks for arrives after a round trip and at most this time. It covers the sending
/// of the next packets and a late timer.
const REQUESTED_REPORT_DELAY: Duration = Duration::from_millis(20);
const INITIAL_WINDOW: usize = 4 * FULL_PACKET;
/// Target queue in bytes while packets are cut: 0, since an urgent packet would wait for this queue.
const INTERLEAVED_TARGET: f64 = 1.0;
/// The longest time without an empty queue.
const EMPTY_INTERVAL: Duration = Duration::from_secs(4);
/// Maximum credible queueing delay in a peer's report.
const MAX_QUEUEING_DELAY: Duration = Duration::from_secs(10);
/// A delivery rate over fewer packets determines the length of a pause, but does not change the
/// estimate: a packet that lost channel contention looks like a slow link.
const MIN_RATE_PACKETS: u64 = 3;
/// During a pause, urgent packets are sent at the rate divided by this.
const PAUSED_DIVISOR: u32 = 2;
/// Beyond the window, packets are sent at the rate divided by this.
const BEYOND_WINDOW_DIVISOR: u32 = 4;
/// The growth of the estimate doubles at most this many times.
const MAX_SPARE_ROUNDS: u32 = 8;
/// After this time without congestion, former limits are no longer valid.
const CONGESTION_MEMORY: Duration = Duration::from_secs(1);

impl Auto {
    /// A controller without measurements.
    pub fn new(tuning: Tuning) -> Self {
        Self {
            tuning,
            state: State::Startup { window: INITIAL_WINDOW, delivered: 0.0 },
            estimate: tuning.first_rate,
            missing_bytes: 0.0,
            times: Times::default(),
            held_back: false,
            was_limited: false,
            spare_rounds: 0,
            successful_probes: 0,
            measurement: None,
            feedback: Feedback::new(),
            jitter: Jitter::default(),
            noise: RateNoise::default(),
            losses: Losses::default(),
            marks: Marks::default(),
            ceiling: Ceiling::default(),
            limit: Limit::default(),
            external: ExternalDelay::default(),
            probes: Backoff::default(),
            bursts: Bursts::default(),
            outstanding_bytes: 0,
            sent_bytes: 0,
            delay_at_pause: Duration::ZERO,
            interleaves: false,
        }
    }

    fn is_starting(&self) -> bool {
        matches!(self.state, State::Startup { .. })
    }

    /// The rate at which packets are sent. The state determines it; in Track, it brings the queue to its
    /// target within two round trips.
    fn pacing_rate(&self) -> f64 {
        match self.state {
            State::Startup { .. } | State::Compete(_) => self.estimate,
            State::Dip(dip) => self.estimate * dip.gain,
            State::Probe(probe) => self.estimate * probe.gain,
            // Our own packets must not fill the queue again before it is measured.
            State::Drain(_) => self.estimate / 2.0,
            State::Track => {
                let correction =
                    self.missing_bytes * 8.0 / (2.0 * self.feedback_time().as_secs_f64());
                (self.estimate + correction).clamp(self.estimate / 2.0, self.estimate * 1.25)
            }
        }
    }

    fn packet_time(&self) -> Duration {
        serialization_time(FULL_PACKET, self.pacing_rate() as u64)
    }

    /// Time from sending a packet until its report arrives.
    fn feedback_time(&self) -> Duration {
        self.feedback.max_time() + self.external.delay()
    }

    /// Whether delivery rates differ from sample to sample: the path has jitter.
    fn is_noisy(&self) -> bool {
        self.noise.get() > self.tuning.rate_noise
    }

    /// The weight of a delivery rate far below the estimate. On a path whose capacity varies, a pause is soon
    /// over, and the window bounds what is queued meanwhile. On other paths, such a rate shows that the path
    /// has changed.
    fn drop_gain(&self) -> f64 {
        if self.capacity_varies() { self.tuning.follow_gain } else { 1.0 }
    }

    /// Whether the capacity varies all the time by itself, like that of a cell that serves its modems in
    /// turns. If packets are lost, rates vary for other reasons.
    fn capacity_varies(&self) -> bool {
        self.noise.is_lasting() && !self.losses.is_lossy()
    }

    /// The time for which packets may be outstanding. Where capacity varies, the window keeps the queue short
    /// that builds up in a pause of the path. A report is requested as the window closes.
    fn window_time(&self) -> Duration {
        let usual = self.feedback_time();
        if !self.capacity_varies() {
            return usual;
        }
        usual.min(self.feedback.min_rtt() + self.external.delay() + REQUESTED_REPORT_DELAY)
    }

    /// Limit of outstanding bytes: the bytes sent until their report arrives, and two packets.
    fn window(&self) -> usize {
        let time = self.window_time().as_secs_f64();
        let window = (self.pacing_rate() * time / 8.0) as usize + 2 * FULL_PACKET;
        match self.state {
            State::Startup { window: max, .. } => window.min(max),
            State::Compete(compete) => compete
                .window_bytes(self.feedback.max_time().saturating_sub(self.feedback.min_rtt())),
            // The window must not hold back the packets that show whether there is room.
            State::Probe(_) => 2 * window,
            _ => window,
        }
    }

    /// The lasting part of the delay that a sample shows beyond the external delay.
    fn lasting_delay(&self, sample: &Sample) -> Duration {
        self.jitter.mean().min(sample.queueing_delay)
    }

    /// Target queue in bytes at this rate.
    fn target(&self, rate: f64) -> f64 {
        if self.interleaves {
            return INTERLEAVED_TARGET;
        }
        (self.tuning.target_packets * FULL_PACKET as f64).max(rate * self.tuning.target_time / 8.0)
    }

    /// Takes a sample, decides, and applies the verdict.
    fn on_sample(&mut self, now: Instant, sample: &Sample) {
        let target = self.target(sample.delivery_rate);
        if sample.standing_bytes < target / 4.0 {
            self.times.last_empty = now;
        }
        if sample.standing_bytes > target / 2.0 {
            self.times.last_congested = now;
        }
        // One or two messages between pauses of the application do not fill the path.
        let fills = self.is_starting()
            || self.state.as_compete().is_some()
            || sample.never_empty
            || sample.delivery_rate > self.pacing_rate() / 2.0;
        let limited = std::mem::take(&mut self.held_back) && fills;
        self.was_limited = limited;
        if limited && self.state == State::Track {
            self.noise.add(sample.delivery_rate / self.estimate);
        }
        if limited {
            let overflows = self.is_starting() || sample.standing_bytes > target;
            self.losses.add(sample, overflows, &self.tuning);
        }
        let marked = self.marks.on_sample(now, sample, self.feedback_time());
        let is_marking = self.marks.are_recent(now);
        self.external.set_marking(is_marking, self.state.as_compete().is_some());
        let excess = self.losses.excess(&self.tuning);
        let delivered = excess.map_or(1.0, |excess| self.losses.delivered_fraction(excess.value()));
        let capacity = (sample.delivery_rate * delivered).min(MAX_RATE);
        if self.state == State::Track {
            let delay = self.lasting_delay(sample);
            self.external.on_sample(now, capacity.min(self.estimate), self.estimate, delay);
        }
        let test = self.advance_test(now, sample, limited);
        let view = RuleInput { auto: self, now, sample, target, capacity, limited, marked, test };
        let verdict = state::decide(&view);
        self.apply(now, verdict);
        let draining = sample.since < self.times.draining_until;
        // The queue is emptied now and then, to measure the delay of the empty path again.
        let goal = if now.since(self.times.last_empty) > EMPTY_INTERVAL { 0.0 } else { target };
        self.missing_bytes = if draining { 0.0 } else { goal - sample.standing_bytes.max(0.0) };
        if !limited {
            self.spare_rounds = 0;
        }
    }

    /// Adds a sample to the test in progress. If the test ends, returns what it showed.
    fn advance_test(&mut self, now: Instant, sample: &Sample, limited: bool) -> Option<TestResult> {
        match &mut self.state {
            // A round of Startup also serves as a probe.
            State::Startup { delivered, .. } if limited => {
                let before = std::mem::replace(delivered, sample.delivery_rate);
                if let Some(delay) = probe::spare_delay(sample, before, &self.tuning) {
                    self.external.on_spare_delay(delay);
                }
                None
            }
            State::Dip(dip) => {
                dip.add(now, sample, limited, &mut self.losses, &self.tuning).map(TestResult::Dip)
            }
            State::Probe(probe) => {
                let found = probe.add(now, sample, limited, &self.tuning)?;
                match found {
                    ProbeFinding::SpareCapacity { delay, .. } => {
                        self.probes.succeed(now);
                        self.successful_probes = self.successful_probes.saturating_add(1);
                        self.external.on_spare_delay(delay.saturating_sub(self.packet_time()));
                    }
                    ProbeFinding::Limit => {
                        self.successful_probes = 0;
                        self.probes.fail(now, &self.tuning);
                    }
                    ProbeFinding::Nothing => self.probes.postpone(now, &self.tuning),
                }
                Some(TestResult::Probe(found))
            }
            _ => None,
        }
    }

    /// Lets the estimate grow, because the path has spare capacity: a little at first, since a
    /// single sample may be chance, and faster with each further round.
    fn grow(&mut self, now: Instant, max: f64, is_empty: bool) {
        if now.since(self.times.last_congested) > CONGESTION_MEMORY {
            self.spare_rounds = MAX_SPARE_ROUNDS;
        }
        let max = max.min(self.limit.max_rate(now, self.estimate));
        // A step that is smaller than the difference between two samples shows nothing.
        let is_hidden = is_empty && self.is_noisy() && !self.losses.is_lossy();
        let least = if is_hidden { self.noise.get() } else { 0.0 };
        let more = (self.tuning.first_growth * f64::from(1 << self.spare_rounds)).clamp(least, 1.0);
        self.estimate = self.estimate.max((self.estimate * (1.0 + more)).min(max));
        let spare = is_empty && self.estimate < max;
        self.spare_rounds = if spare { (self.spare_rounds + 1).min(MAX_SPARE_ROUNDS) } else { 0 };
    }

    /// Takes a report during a drain.
    fn advance_drain(&mut self, now: Instant, report: &Report, mut drain: Drain) {
        let total_delay = report.queueing_delay.min(MAX_QUEUEING_DELAY);
        let total_delay = match drain.competes {
            Some(compete) => compete.delay(report.rtt).max(total_delay),
            None => total_delay,
        };
        let sent = now.before(report.since_sent);
        let drained = drain.on_report(now, total_delay, report.acked_packets, sent);
        self.state = State::Drain(drain);
        self.measurement = Some(Measurement::start(now, report));
        match drained {
            None => {}
            Some(DrainResult::Again) => self.pause_until(drain.until),
            Some(DrainResult::Remaining(delay)) => {
                // If this node is alone, only its own packets would be marked: none are left.
                let own = if drain.marked { Duration::ZERO } else { self.packet_time() };
                let delay = delay.map(|it| it.saturating_sub(own));
                self.external.set_marking(drain.marked, drain.competes.is_some());
                self.external.on_drained(now, delay, &self.tuning);
                let is_download = self.external.may_be_download(&self.tuning);
                if let Some(compete) = drain.competes.filter(|_| is_download) {
                    self.state = State::Compete(compete);
                } else if drain.marked && is_download {
                    self.apply(now, Verdict::Compete { arrived: self.estimate, rtt: report.rtt });
                } else {
                    self.apply(now, Verdict::Track { estimate: self.estimate });
                }
            }
        }
    }

    /// Pauses sending if a long queueing delay requires that the queue drains first.
    /// `delivery_rate` is the rate since the last sample, over `packets` packets.
    fn pause_if_congested(
        &mut self,
        now: Instant,
        report: &Report,
        delivery_rate: Option<f64>,
        packets: u64,
    ) {
        let known = !self.is_starting() && self.was_limited;
        let sudden = self.tuning.sudden_drop * self.estimate;
        let slower = delivery_rate.filter(|rate| known && *rate < sudden);
        let delay = report.queueing_delay.as_secs_f64();
        let unusual = report.queueing_delay > self.jitter.mean_plus_2_deviations();
        let is_long = |rate: f64| {
            rate * delay / 8.0
                > 1.5 * (rate * self.tuning.target_time / 8.0).max(FULL_PACKET as f64)
        };
        let is_queue = unusual && slower.is_some_and(is_long);
        let alarm = Duration::from_secs_f64(self.tuning.alarm_delay);
        let expected =
            (self.packet_time() * 2).max(alarm).max(self.jitter.mean_plus_4_deviations());
        self.jitter.add(report.queueing_delay);
        // While a queue drains, only a far longer queue requires another pause.
        let draining = now < self.times.draining_until;
        let is_news = is_queue && report.queueing_delay > self.delay_at_pause * 2;
        let is_expected = draining && !is_news || !is_queue && report.queueing_delay <= expected;
        // Others keep their queue however long this sender pauses.
        if is_expected || self.state.as_compete().is_some() {
            return;
        }
        self.delay_at_pause = report.queueing_delay;
        // The queue is at most the outstanding bytes. On a path that has just become slow, it is no
        // shorter than that either.
        let rate = slower.unwrap_or(self.pacing_rate()).max(self.tuning.min_rate);
        if let Some(rate) = slower.filter(|_| packets >= MIN_RATE_PACKETS) {
            let gain = self.drop_gain();
            self.apply(now, Verdict::Follow { rate, gain, is_unusual: true });
            self.missing_bytes = 0.0;
        }
        let drain_time = serialization_time(report.outstanding_bytes, rate as u64);
        let least = match slower {
            Some(_) => drain_time.saturating_sub(self.feedback_time()),
            None => Duration::ZERO,
        };
        self.pause_until(now + report.queueing_delay.max(least).min(drain_time));
    }

    /// Shortens a pause if the path was slow only for a moment, that is, if the delay that caused the pause
    /// has fallen by half. The pause then lasts only until the outstanding bytes have drained at the
    /// estimate.
    fn shorten_pause(&mut self, now: Instant, report: &Report) {
        let end = now + serialization_time(report.outstanding_bytes, self.estimate as u64);
        if end < self.times.paused_until && report.queueing_delay < self.delay_at_pause / 2 {
            self.times.paused_until = end;
            self.times.next_send = self.times.next_send.min(end);
            self.times.draining_until = end + self.feedback_time();
        }
    }

    fn pause_until(&mut self, end: Instant) {
        self.times.paused_until = self.times.paused_until.max(end);
        self.times.next_send = self.times.next_send.max(end);
        self.times.draining_until = end + self.feedback_time();
    }

    /// Decides on a packet beyond the window. A path that loses packets also loses reports. A few
    /// more packets bring the next report.
    fn release_beyond_window(&self, now: Instant, in_flight: usize) -> Release {
        let next = self.times.next_send + self.packet_time() * (BEYOND_WINDOW_DIVISOR - 1);
        let is_lossy = !self.is_starting() && self.losses.is_lossy();
        if !is_lossy || in_flight > 2 * self.window() {
            Release::Drained
        } else if now < next {
            Release::At(next)
        } else {
            Release::Now
        }
    }

    fn on_held_back(&mut self) {
        self.held_back = true;
        self.bursts.on_held_back();
    }
}

impl Default for Auto {
    fn default() -> Self {
        Self::new(Tuning::default())
    }
}

impl Controller for Auto {
    fn release(&mut self, now: Instant, packet: PendingPacket, in_flight: usize) -> Release {
        if in_flight == 0 {
            self.bursts.on_idle();
        } else if now >= self.times.paused_until && self.bursts.admits(packet.bytes) {
            return Release::Now;
        }
        if packet.urgent && now < self.times.paused_until {
            let due = self.times.next_urgent_send.min(self.times.paused_until);
            return if now < due { Release::At(due) } else { Release::Now };
        }
        let ahead = if packet.urgent { FULL_PACKET } else { 0 };
        if in_flight > 0 && in_flight + packet.bytes > self.window() + ahead {
            self.on_held_back();
            return self.release_beyond_window(now, in_flight + packet.bytes);
        }
        let early = if packet.urgent { self.packet_time() } else { Duration::ZERO };
        let next = self.times.next_send.before(early);
        if now < next {
            self.on_held_back();
            return Release::At(next);
        }
        Release::Now
    }

    fn on_sent(&mut self, now: Instant, bytes: usize, _in_flight: usize) {
        if self.bursts.on_sent(bytes) {
            return;
        }
        let catch_up = self.packet_time().max(Duration::from_millis(1));
        let gap = serialization_time(bytes, self.pacing_rate() as u64);
        self.times.next_send = next_send_time(self.times.next_send, now, gap, catch_up);
        self.times.next_urgent_send = now + gap * PAUSED_DIVISOR;
    }

    fn expected_start(&self, now: Instant, in_flight: usize) -> Instant {
        let is_full = in_flight > 0 && in_flight + FULL_PACKET > self.window();
        let reported = if is_full { now + self.feedback_time() / 2 } else { now };
        self.times.next_send.max(reported)
    }

    fn wants_report(&self, in_flight: usize) -> bool {
        let asks = self.is_starting() || self.capacity_varies();
        asks && in_flight + FULL_PACKET > self.window()
    }

    fn on_interruption(&mut self) {
        self.measurement = None;
        self.bursts.on_interruption();
    }

    fn on_new_session(&mut self) {
        self.sent_bytes = 0;
        self.on_interruption();
    }

    fn on_report(&mut self, now: Instant, report: &Report) {
        let total_delay = report.queueing_delay.min(MAX_QUEUEING_DELAY);
        self.feedback.add(now, report);
        let sent = report.sent_bytes.saturating_sub(self.sent_bytes) as usize;
        let own_bytes = self.outstanding_bytes.saturating_add(sent);
        (self.sent_bytes, self.outstanding_bytes) = (report.sent_bytes, report.outstanding_bytes);
        // During the pause of a drain, the delivery rate says nothing about the path.
        if let State::Drain(drain) = self.state {
            return self.advance_drain(now, report, drain);
        }
        let own = serialization_time(own_bytes, self.tuning.min_rate as u64);
        if self.external.on_report(now, total_delay, own, &self.tuning) {
            self.measurement = None;
        }
        let external = self.external.delay();
        let report = &Report {
            queueing_delay: total_delay.saturating_sub(external),
            min_queueing_delay: report.min_queueing_delay.saturating_sub(external),
            ..*report
        };
        self.bursts.on_report(report, self.losses.baseline(), &self.tuning);
        let Some(mut measurement) = self.measurement else {
            self.measurement = Some(Measurement::start(now, report));
            return;
        };
        measurement.add(report, total_delay);
        self.shorten_pause(now, report);
        let rate = measurement.delivery_rate(report, external);
        self.pause_if_congested(now, report, rate, measurement.packets(report));
        let sample = measurement.sample(now, report, self.feedback.min_rtt() + external * 2);
        self.measurement =
            Some(if sample.is_some() { Measurement::start(now, report) } else { measurement });
        if let Some(sample) = sample {
            self.on_sample(now, &sample);
        }
    }

    fn signal(&self) -> &'static str {
        "reports"
    }

    fn limit_bytes(&self) -> usize {
        self.window()
    }

    fn rate_bps(&self) -> Option<u64> {
        Some(self.pacing_rate() as u64)
    }

    fn is_in_burst(&self) -> bool {
        self.bursts.is_open()
    }

    fn is_steady(&self) -> bool {
        !self.is_starting() && !self.is_noisy()
    }

    fn set_interleaving(&mut self, is_on: bool) {
        self.interleaves = is_on;
    }

    fn fills_queue(&self) -> bool {
        self.is_starting() && (self.held_back || self.was_limited)
    }
}
