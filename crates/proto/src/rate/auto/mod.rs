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
//!   at the start, a limit on outstanding bytes. Not its gain cycle, which fills the queue with a
//!   quarter of a round trip once in eight round trips. Not its maximum filter, which keeps a past
//!   rate for ten round trips.
//! - *LEDBAT* (RFC 6817): one-way instead of round-trip delay, since queues on the return path are
//!   not ours; a base delay of limited age. Not its target of 100 ms.
//! - *Copa* (Arun and Balakrishnan, 2018): the standing queue, from the least delay within a
//!   round trip, against jitter; regular emptying of the queue to measure the base delay again.
//!   Not its window of packets per acknowledgement: one report here covers ten packets.
//! - *CUBIC* (RFC 9438): the plateau near the last congested rate (`ceiling`), and the factor of
//!   reduction alongside cross traffic (`cross_traffic`).
//! - *SCReAM* (RFC 8298): both a window and a rate; the window holds when reports stop.
//! - *GCC* (Carlucci and others, 2016): a delay signal averaged over groups of packets and kept
//!   apart from loss. Not its fixed thresholds of loss: radios lose 20 % with capacity to spare.
//!
//! Delay that does not fall when the rate does is external and is subtracted (`external_delay`).
//! Losses count only beyond the baseline of the uncongested path, which a dip measures (`losses`).
//! Where delay varies by itself, a probe finds whether more arrives if more is sent (`probe`).
//! A local bottleneck shows in the time for which our own kernel holds packets. Reports exclude
//! that time; local back-pressure then holds packets back first, and this controller never does.

mod burst;
mod ceiling;
mod cross_traffic;
mod external_delay;
mod feedback;
mod losses;
mod measure;
mod probe;

use super::{Controller, FULL_PACKET, PendingPacket, Release, Report, next_send_time};
use crate::time::{Duration, Instant, serialization_time};
use burst::Bursts;
use ceiling::{Ceiling, Growth, LossCeiling};
use cross_traffic::CrossTraffic;
use external_delay::{DelayState, ExternalDelay, Observation, TestResult};
use feedback::{Feedback, Jitter};
use losses::{Losses, MAX_DIP_GAIN};
use measure::{Measurement, Sample};
use probe::{Found, Probe, RateNoise, Schedule};

/// The default controller of a link. Rates are in bits per second of IP packets.
#[derive(Debug)]
pub struct Auto {
    phase: Phase,
    pacing_rate: f64,
    /// The rate that the path is expected to carry for this sender (bandwidth estimate).
    estimate: f64,
    /// The highest delivery rate, corrected by each sample of a full path.
    best_rate: f64,
    ceiling: Ceiling,
    loss_ceiling: LossCeiling,
    /// When the next packet may be sent.
    next_send: Instant,
    /// Until then only urgent packets are sent, at a fraction of the rate.
    paused_until: Instant,
    next_urgent_send: Instant,
    /// This controller held back a packet since the last sample.
    rate_limited: bool,
    /// This controller, not the application, limited the rate of the last sample.
    was_rate_limited: bool,
    measurement: Option<Measurement>,
    feedback: Feedback,
    /// Consecutive growth steps that found spare capacity.
    spare_rounds: u32,
    last_growth: Instant,
    /// When packets were last queued, or lost in a full queue.
    last_congested: Instant,
    jitter: Jitter,
    external: ExternalDelay,
    /// Outstanding bytes at the last report.
    outstanding_bytes: usize,
    /// Bytes sent up to the newest packet of the last report.
    sent_bytes: u64,
    /// A queue drains until then after a pause; samples are not representative.
    draining_until: Instant,
    /// Queueing delay that caused the last pause.
    delay_at_pause: Duration,
    /// When the queue at the bottleneck was last empty.
    last_empty: Instant,
    losses: Losses,
    bursts: Bursts,
    probes: Schedule,
    rate_noise: RateNoise,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// Nothing is known: rate and window double until packets are queued.
    Start { window: usize },
    /// The estimate follows the delivery rate, and the pacing rate corrects the queue.
    Cruise,
    /// The rate is reduced for a moment, to measure delay and loss of the uncongested path.
    Dip {
        /// When reports begin to show the reduced rate.
        from: Instant,
        until: Instant,
        /// Dips directly before this one.
        previous: u32,
        /// The rate as a fraction of the estimate.
        gain: f64,
    },
    /// The rate is raised for a moment, to find whether the delay is that of our own queue.
    Probe(Probe),
}

/// Before the first sample: four full packets in 10 ms, within which a report is due.
const FIRST_RATE: f64 = 4.8e6;
const FIRST_WINDOW: usize = 4 * FULL_PACKET;
/// Upper limit of the estimate alongside cross traffic where no recent measurement exists.
const UNKNOWN_ESTIMATE: f64 = 2e6;
/// A tenth of what the slowest Wi-Fi carries with several stations.
const MIN_RATE: f64 = 200e3;
const MAX_RATE: f64 = 1e10;
/// Target queue at the bottleneck, so that a late timer does not leave it idle.
const TARGET_BYTES: f64 = 0.5 * FULL_PACKET as f64;
const TARGET_TIME: f64 = 0.75e-3;
/// A standing queue beyond twice the target suggests cross traffic.
const CROSS_TRAFFIC_QUEUE: f64 = 2.0;
/// Packets behind a queue of this many times the target are lost because it is full.
const LONG_QUEUE: f64 = 8.0;
/// Weight of a delivery rate that was measured while packets were queued.
const GAIN: f64 = 0.25;
/// A delivery rate below this fraction of the estimate shows that the path has changed: its weight
/// is 1.
const SUDDEN_DROP: f64 = 0.7;
/// The longest time without an empty queue before a dip.
const DIP_INTERVAL: Duration = Duration::from_secs(4);
/// The rate during the measurement of external delay, as a fraction of the estimate.
const TEST_GAIN: f64 = 0.5;
/// After losses of a full queue, the rate goes this much below the one at which packets arrived.
const BELOW_LOSS: f64 = 0.97;
/// Further dips in a row, each deeper.
const MAX_DEEPER_DIPS: u32 = 2;
/// A longer queueing delay that a peer reports is not credible.
const MAX_QUEUEING_DELAY: Duration = Duration::from_secs(10);
/// A queueing delay beyond this, and beyond two packets' serialization time, pauses sending for as
/// long.
const ALARM_DELAY: Duration = Duration::from_millis(3);
/// The delivery rate of fewer packets determines the length of a pause but not the estimate: a
/// packet that lost channel contention looks like a slow link.
const MIN_RATE_PACKETS: u64 = 3;
/// During a pause, urgent packets are sent at the rate divided by this.
const PAUSED_DIVISOR: u32 = 2;
/// Beyond the window, packets are sent at the rate divided by this.
const BEYOND_WINDOW_DIVISOR: u32 = 4;
/// The longest extension of a dip that has too few packets.
const MAX_DIP_EXTENSION: Duration = Duration::from_millis(300);
/// The estimate grows by half a percent, doubled with each round that finds spare capacity: at most
/// by 100 %, or by 32 % where external delay makes the signal noisy.
const MAX_SPARE_ROUNDS: u32 = 8;
const MAX_NOISY_ROUNDS: u32 = 6;
/// Growth near the ceiling.
const GENTLE_GROWTH: f64 = 0.001;
/// A queueing delay of this many times the mean shows a queue.
const QUEUE_FACTOR: u32 = 2;
/// The path is clear while the delay is below this fraction of a packet's serialization time.
const CLEAR_FRACTION: f64 = 0.2;
/// The jitter of schedulers alone. Where the delay varies by less, a queue shows at once.
const SCHEDULING_JITTER: Duration = Duration::from_micros(500);
/// The estimate is limited by its claim alongside cross traffic from this fraction of it.
const NEAR_CLAIM: f64 = 0.95;
/// Delivery rates that differ by this fraction from sample to sample show that packets arrive
/// irregularly.
const NOISE: f64 = 0.05;
/// An external delay beyond this fraction of a packet's serialization time is more than channel
/// contention.
const CONTENTION_FRACTION: f64 = 0.5;
/// After this time without congestion, former limits are no longer valid.
const CONGESTION_MEMORY: Duration = Duration::from_secs(1);

impl Auto {
    /// A controller without measurements.
    pub fn new() -> Self {
        Self {
            phase: Phase::Start { window: FIRST_WINDOW },
            pacing_rate: FIRST_RATE,
            estimate: FIRST_RATE,
            best_rate: FIRST_RATE,
            ceiling: Ceiling::default(),
            loss_ceiling: LossCeiling::default(),
            next_send: Instant::default(),
            paused_until: Instant::default(),
            next_urgent_send: Instant::default(),
            rate_limited: false,
            was_rate_limited: false,
            measurement: None,
            feedback: Feedback::new(),
            spare_rounds: 0,
            last_growth: Instant::default(),
            last_congested: Instant::default(),
            jitter: Jitter::default(),
            external: ExternalDelay::default(),
            outstanding_bytes: 0,
            sent_bytes: 0,
            draining_until: Instant::default(),
            delay_at_pause: Duration::ZERO,
            last_empty: Instant::default(),
            losses: Losses::default(),
            bursts: Bursts::default(),
            probes: Schedule::default(),
            rate_noise: RateNoise::default(),
        }
    }

    fn is_starting(&self) -> bool {
        matches!(self.phase, Phase::Start { .. })
    }

    fn packet_time(&self) -> Duration {
        serialization_time(FULL_PACKET, self.pacing_rate as u64)
    }

    /// Limit of outstanding bytes: the bytes sent until their report arrives, and two packets.
    fn window(&self) -> usize {
        let time = self.feedback_time().as_secs_f64();
        let window = (self.pacing_rate * time / 8.0) as usize + 2 * FULL_PACKET;
        match self.phase {
            Phase::Start { window: max } => window.min(max),
            Phase::Cruise | Phase::Dip { .. } | Phase::Probe(_) => window,
        }
    }

    fn on_sample(&mut self, now: Instant, sample: &Sample) {
        let target = TARGET_BYTES.max(sample.delivery_rate * TARGET_TIME / 8.0);
        if sample.standing_bytes < target / 4.0 {
            self.last_empty = now;
        }
        if sample.standing_bytes > target / 2.0 {
            self.last_congested = now;
        }
        // One or two messages between pauses of the application do not fill the path.
        let fills = self.is_starting()
            || sample.never_empty
            || sample.delivery_rate > self.pacing_rate / 2.0;
        let held_back = std::mem::take(&mut self.rate_limited);
        let rate_limited = held_back && fills;
        self.was_rate_limited = rate_limited;
        if rate_limited && self.phase == Phase::Cruise {
            self.rate_noise.add(sample.delivery_rate / self.estimate);
        }
        // The delay explains the losses of a long queue: they need no test.
        let delivered = if sample.standing_bytes > LONG_QUEUE * target {
            self.losses.delivered(sample.lost / sample.packets.max(1.0))
        } else {
            self.losses.add(sample);
            self.losses.delivery_over_baseline()
        };
        // The delivery rate without the excess losses.
        let capacity = (sample.delivery_rate * delivered).min(MAX_RATE);
        self.best_rate = match sample.never_empty {
            true => self.best_rate + (capacity - self.best_rate) / 8.0,
            false => self.best_rate.max(capacity),
        };
        // Heavy losses are congestion also where an application sends a message now and then.
        let may_lose = rate_limited || held_back && self.losses.are_heavy();
        let loses_too_much = may_lose && self.losses.suggest_congestion(now);
        match self.phase {
            Phase::Start { .. } if sample.standing_bytes > 2.0 * target => {
                self.estimate = capacity;
                self.phase = Phase::Cruise;
                self.probes.on_end(now, &Found::Inconclusive);
            }
            Phase::Start { .. } if loses_too_much => {
                let sent = if fills { sample.delivery_rate } else { self.estimate };
                self.begin_dip(now, sent.min(self.estimate), 0);
            }
            Phase::Start { window } if rate_limited => {
                self.estimate = self.estimate.max(2.0 * capacity);
                self.phase = Phase::Start { window: window.saturating_mul(2) };
            }
            Phase::Start { .. } => {}
            Phase::Cruise if rate_limited && self.may_probe(now, sample, target) => {
                let delay = self.jitter.mean() + self.external.delay();
                let deviation = self.jitter.long_term_deviation();
                let time = self.feedback_time();
                self.phase = Phase::Probe(Probe::begin(now, self.estimate, time, delay, deviation));
            }
            // Only a path that was never idle shows its capacity.
            Phase::Cruise if sample.never_empty => self.follow_delivery_rate(sample, capacity),
            Phase::Cruise if loses_too_much => self.begin_dip(now, self.estimate, 0),
            Phase::Cruise if sample.standing_bytes > target => {}
            Phase::Cruise if rate_limited && now.since(self.last_growth) < self.feedback_time() => {
            }
            Phase::Cruise if rate_limited => self.grow(now, sample, capacity, target),
            Phase::Cruise => self.spare_rounds = 0,
            Phase::Dip { .. } => self.end_dip(now, sample, capacity, target),
            Phase::Probe(probe) => self.advance_probe(now, sample, rate_limited, probe),
        }
        if self.phase == Phase::Cruise && now.since(self.last_empty) > DIP_INTERVAL {
            self.begin_dip(now, self.estimate, 0);
        }
        self.watch_delay(now, sample, target);
        self.estimate = self.clamped(self.estimate);
        let draining = sample.since < self.draining_until;
        let missing_bytes = if draining { 0.0 } else { target - sample.standing_bytes.max(0.0) };
        self.pacing_rate = self.corrected_rate(missing_bytes);
    }

    /// Whether a delay that varies keeps the rate low, and a probe is due.
    fn may_probe(&self, now: Instant, sample: &Sample, target: f64) -> bool {
        let is_noisy = self.rate_noise.get() > NOISE;
        let is_claim = |cross: &CrossTraffic| self.estimate > NEAR_CLAIM * cross.max_rate();
        let is_limited = sample.standing_bytes > target / 2.0
            || self.external.cross_traffic().is_some_and(is_claim);
        let is_calm = !self.losses.suggest_congestion(now) && sample.since >= self.draining_until;
        is_noisy && is_limited && is_calm && self.probes.is_due(now)
    }

    fn advance_probe(
        &mut self,
        now: Instant,
        sample: &Sample,
        rate_limited: bool,
        mut probe: Probe,
    ) {
        let found = probe.add(now, sample, rate_limited);
        self.phase = Phase::Cruise;
        match found {
            Found::Nothing => {
                self.phase = Phase::Probe(probe);
                return;
            }
            Found::Capacity { rate, delay } => {
                self.estimate = self.estimate.max(rate);
                self.external.on_capacity(delay.saturating_sub(self.packet_time()));
                self.ceiling.forget();
            }
            Found::Limit | Found::Inconclusive => {}
        }
        self.probes.on_end(now, &found);
    }

    /// Packets are queued, so that the delivery rate is the capacity.
    fn follow_delivery_rate(&mut self, sample: &Sample, mut capacity: f64) {
        // Packets that arrive faster than they were sent had been queued, or cross traffic made
        // room for them.
        if self.is_noise_free() {
            capacity = capacity.min(self.estimate.max(self.pacing_rate));
        }
        let dropped = capacity < SUDDEN_DROP * self.estimate;
        let gain = if dropped { 1.0 } else { GAIN };
        self.estimate += gain * (capacity - self.estimate);
        if dropped {
            self.ceiling.forget();
        } else {
            let unusual = sample.queueing_delay > self.jitter.mean() * QUEUE_FACTOR;
            self.ceiling.follow(capacity, gain, self.estimate, unusual);
        }
        self.spare_rounds = 0;
    }

    /// Whether delay and loss come from our own queue alone.
    fn is_noise_free(&self) -> bool {
        let contention = self.packet_time().mul_f64(CONTENTION_FRACTION);
        !self.losses.is_lossy() && self.external.delay() <= contention
    }

    /// The path has spare capacity: grow a little at first, since a single sample may be chance,
    /// and faster with each further round.
    fn grow(&mut self, now: Instant, sample: &Sample, capacity: f64, target: f64) {
        self.last_growth = now;
        if !self.is_noise_free() {
            self.ceiling.forget();
        }
        let time = self.feedback_time();
        if let Some(more) = self.external.cross_traffic().and_then(|cross| cross.growth(time)) {
            self.estimate += more;
            return;
        }
        let clear_delay = self.packet_time().mul_f64(CLEAR_FRACTION).max(SCHEDULING_JITTER);
        let clear = sample.total_delay < clear_delay
            || self.jitter.long_term_deviation() < SCHEDULING_JITTER;
        let max = match self.ceiling.growth(self.estimate, clear) {
            Growth::UpTo(max) => {
                max.min(2.0 * capacity).min(self.loss_ceiling.max_rate(now, self.estimate))
            }
            Growth::Gently => {
                self.estimate *= 1.0 + GENTLE_GROWTH;
                (self.spare_rounds, self.last_congested) = (0, now);
                return;
            }
        };
        let noisy = !self.external.delay().is_zero();
        let rounds = if noisy { MAX_NOISY_ROUNDS } else { MAX_SPARE_ROUNDS };
        if now.since(self.last_congested) > CONGESTION_MEMORY {
            self.spare_rounds = rounds;
        }
        let more = (0.005 * f64::from(1 << self.spare_rounds)).min(1.0);
        self.estimate = self.estimate.max((self.estimate * (1.0 + more)).min(max));
        let spare = sample.standing_bytes < target / 2.0 && self.estimate < max;
        self.spare_rounds = if spare { (self.spare_rounds + 1).min(rounds) } else { 0 };
    }

    /// Passes a report to the detection of external delay. `total_delay` includes that delay.
    fn detect_external_delay(&mut self, now: Instant, report: &Report, total_delay: Duration) {
        let sent = report.sent_bytes.saturating_sub(self.sent_bytes) as usize;
        self.sent_bytes = report.sent_bytes;
        let seen = Observation {
            total_delay,
            packets: report.acked_packets,
            sent: now.before(report.since_sent),
            own: serialization_time(self.outstanding_bytes + sent, MIN_RATE as u64),
            guess: self.best_rate.min(UNKNOWN_ESTIMATE),
        };
        self.outstanding_bytes = report.outstanding_bytes;
        match self.external.on_report(now, &seen) {
            None => return,
            Some(TestResult::Repeat(pause)) => return self.pause_for_test(now + pause),
            Some(TestResult::Observed) if self.is_starting() => {
                (self.phase, self.estimate) = (Phase::Cruise, 0.0);
            }
            Some(TestResult::Observed | TestResult::External) => {}
        }
        // The capacity alongside the cross traffic is unknown: grow fast from here.
        self.spare_rounds = MAX_NOISY_ROUNDS;
        self.measurement = None;
        self.estimate = self.clamped(self.estimate);
        (self.pacing_rate, self.last_congested) = (self.estimate, now);
    }

    /// `estimate` within the limits alongside cross traffic and the absolute ones.
    fn clamped(&self, estimate: f64) -> f64 {
        let (min, max) = match self.external.cross_traffic() {
            Some(cross) => (cross.min_rate(), cross.max_rate()),
            None => (MIN_RATE, MAX_RATE),
        };
        estimate.max(min).min(max).clamp(MIN_RATE, MAX_RATE)
    }

    /// Tests for external delay where packets stay queued although the rate is reduced.
    fn watch_delay(&mut self, now: Instant, sample: &Sample, target: f64) {
        if self.phase != Phase::Cruise {
            return;
        }
        if sample.standing_bytes > CROSS_TRAFFIC_QUEUE * target {
            self.external.on_delay_rise(now, sample.drain_time(), self.estimate);
        } else if sample.standing_bytes < target {
            self.external.on_low_delay(self.estimate);
        }
        let slowest = self.pacing_rate.min(sample.delivery_rate);
        let state = DelayState {
            lower: self.jitter.mean().min(sample.queueing_delay),
            higher: self.jitter.mean().max(sample.queueing_delay),
            own: sample.drain_time(),
            estimate: self.estimate,
            drain_time: serialization_time(self.outstanding_bytes, slowest as u64),
            feedback_time: self.feedback_time(),
        };
        if let Some(pause) = self.external.begin_test_if_due(now, &state) {
            self.pause_for_test(now + pause);
        }
    }

    /// Decides on a packet beyond the window. A path that loses packets loses reports too; a few
    /// more packets bring the next report.
    fn release_beyond_window(&self, now: Instant, in_flight: usize) -> Release {
        let next = self.next_send + self.packet_time() * (BEYOND_WINDOW_DIVISOR - 1);
        match self.phase {
            Phase::Start { .. } => Release::Drained,
            _ if !self.losses.is_lossy() || in_flight > 2 * self.window() => Release::Drained,
            _ if now < next => Release::At(next),
            _ => Release::Now,
        }
    }

    /// Pauses without letting the pause count as an idle path.
    fn pause_for_test(&mut self, end: Instant) {
        self.pause_until(end);
        self.last_congested = end;
        // Our own packets must not fill the queue again before it is measured.
        self.pacing_rate = self.estimate * TEST_GAIN;
    }

    fn pause_until(&mut self, end: Instant) {
        self.paused_until = self.paused_until.max(end);
        self.next_send = self.next_send.max(end);
        self.draining_until = end + self.feedback_time();
    }

    /// Ends a dip that is conclusive, or repeats it deeper.
    fn end_dip(&mut self, now: Instant, sample: &Sample, capacity: f64, target: f64) {
        let Phase::Dip { from, until, previous, .. } = self.phase else { return };
        if now >= from {
            self.losses.add_to_dip(sample);
        } else if previous == 0 {
            self.losses.add_before_dip(sample);
        }
        let conclusive = self.losses.dip_is_conclusive();
        if now < until || !conclusive && now < until + MAX_DIP_EXTENSION {
            return;
        }
        let congested = self.losses.dip_has_losses() && sample.standing_bytes > target / 4.0;
        if congested && previous < MAX_DEEPER_DIPS {
            self.begin_dip(now, capacity.min(self.estimate) * MAX_DIP_GAIN, previous + 1);
        } else if self.losses.dip_was_too_shallow() && previous < MAX_DEEPER_DIPS {
            self.begin_dip(now, self.estimate, previous + 1);
        } else {
            if let Some(delivered) = self.losses.end_dip(now) {
                let delivered = self.estimate * delivered;
                self.estimate = match self.external.cross_traffic_mut() {
                    Some(cross) => cross.on_overflow(self.estimate, delivered),
                    None => {
                        self.loss_ceiling.on_congestion(now, BELOW_LOSS * delivered);
                        BELOW_LOSS * delivered
                    }
                };
            }
            self.phase = Phase::Cruise;
            (self.last_congested, self.spare_rounds) = (now, 0);
        }
    }

    /// The pacing rate that adds `missing_bytes` to the queue, or removes them if negative.
    fn corrected_rate(&self, missing_bytes: f64) -> f64 {
        match self.phase {
            Phase::Start { .. } => self.estimate,
            Phase::Dip { gain, .. } => self.estimate * gain,
            Phase::Probe(_) => self.estimate * probe::GAIN,
            Phase::Cruise => {
                let correction = missing_bytes * 8.0 / (2.0 * self.feedback_time().as_secs_f64());
                (self.estimate + correction).clamp(self.estimate / 2.0, self.estimate * 1.25)
            }
        }
    }

    /// Pauses where the queueing delay is so long that the queue has to drain first.
    /// `delivery_rate` is the one since the last sample, over `packets`.
    fn pause_if_congested(
        &mut self,
        now: Instant,
        report: &Report,
        delivery_rate: Option<f64>,
        packets: u64,
    ) {
        let known = !self.is_starting() && self.was_rate_limited;
        let slower = delivery_rate.filter(|rate| known && *rate < SUDDEN_DROP * self.estimate);
        let delay = report.queueing_delay.as_secs_f64();
        let unusual = report.queueing_delay > self.jitter.mean_plus_2_deviations();
        let is_queue = unusual
            && slower.is_some_and(|rate| rate * delay / 8.0 > 1.5 * significant_queue(rate));
        let expected =
            (self.packet_time() * 2).max(ALARM_DELAY).max(self.jitter.mean_plus_4_deviations());
        self.jitter.add(report.queueing_delay);
        // While a queue drains, only a far longer one requires another pause.
        let draining = now < self.draining_until;
        let is_news = is_queue && report.queueing_delay > self.delay_at_pause * 2;
        if draining && !is_news || !is_queue && report.queueing_delay <= expected {
            return;
        }
        self.delay_at_pause = report.queueing_delay;
        if known {
            self.external.on_delay_rise(now, report.queueing_delay, self.estimate);
        }
        if let Some(rate) = slower.filter(|_| packets >= MIN_RATE_PACKETS) {
            self.estimate = self.clamped(rate);
            self.pacing_rate = self.estimate;
        }
        // The queue is at most the outstanding bytes. On a path that just became slow it is not
        // less either.
        let rate = slower.unwrap_or(self.pacing_rate).max(MIN_RATE);
        let drain_time = serialization_time(report.outstanding_bytes, rate as u64);
        let least = match slower {
            Some(_) => drain_time.saturating_sub(self.feedback_time()),
            None => Duration::ZERO,
        };
        self.pause_until(now + report.queueing_delay.max(least).min(drain_time));
    }

    /// Restarts from half of the best rate when the path is idle and past congestion has left the
    /// estimate far below that rate.
    fn restart_if_idle(&mut self, now: Instant, in_flight: usize) {
        let alone = self.external.cross_traffic().is_none();
        let idle = in_flight == 0 && now.since(self.last_congested) > CONGESTION_MEMORY;
        if alone && idle && !self.is_starting() && self.estimate < self.best_rate / 2.0 {
            self.phase = Phase::Start { window: FIRST_WINDOW };
            self.estimate = self.best_rate / 2.0;
            self.pacing_rate = self.estimate;
            self.next_send = now;
        }
    }

    fn on_held_back(&mut self) {
        self.rate_limited = true;
        self.bursts.on_held_back();
    }

    /// Time from sending a packet until its report arrives.
    fn feedback_time(&self) -> Duration {
        self.feedback.max_time() + self.external.delay()
    }

    fn begin_dip(&mut self, now: Instant, estimate: f64, previous: u32) {
        let time = self.feedback_time();
        let gain = self.losses.begin_dip(previous);
        self.phase = Phase::Dip { from: now + time, until: now + time * 2, previous, gain };
        self.estimate = estimate;
        (self.last_empty, self.last_congested) = (now, now);
        self.spare_rounds = 0;
    }
}

/// Bytes at the bottleneck beyond which a queue at `rate` is more than one packet and jitter.
fn significant_queue(rate: f64) -> f64 {
    (rate * TARGET_TIME / 8.0).max(FULL_PACKET as f64)
}

impl Default for Auto {
    fn default() -> Self {
        Self::new()
    }
}

impl Controller for Auto {
    fn release(&mut self, now: Instant, packet: PendingPacket, in_flight: usize) -> Release {
        self.restart_if_idle(now, in_flight);
        if in_flight == 0 {
            self.bursts.on_idle();
        } else if now >= self.paused_until && self.bursts.admits(packet.bytes) {
            return Release::Now;
        }
        if packet.urgent && now < self.paused_until {
            let due = self.next_urgent_send.min(self.paused_until);
            return if now < due { Release::At(due) } else { Release::Now };
        }
        let ahead = if packet.urgent { FULL_PACKET } else { 0 };
        if in_flight > 0 && in_flight + packet.bytes > self.window() + ahead {
            self.on_held_back();
            return self.release_beyond_window(now, in_flight + packet.bytes);
        }
        let early = if packet.urgent { self.packet_time() } else { Duration::ZERO };
        let next = self.next_send.before(early);
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
        let gap = serialization_time(bytes, self.pacing_rate as u64);
        self.next_send = next_send_time(self.next_send, now, gap, catch_up);
        self.next_urgent_send = now + gap * PAUSED_DIVISOR;
    }

    fn expected_start(&self, now: Instant, in_flight: usize) -> Instant {
        let is_full = in_flight > 0 && in_flight + FULL_PACKET > self.window();
        let reported = if is_full { now + self.feedback_time() / 2 } else { now };
        self.next_send.max(reported)
    }

    fn wants_report(&self, in_flight: usize) -> bool {
        self.is_starting() && in_flight + FULL_PACKET > self.window()
    }

    fn on_new_session(&mut self) {
        self.sent_bytes = 0;
        self.measurement = None;
    }

    fn on_report(&mut self, now: Instant, report: &Report) {
        let total_delay = report.queueing_delay.min(MAX_QUEUEING_DELAY);
        self.feedback.add(now, report);
        let testing = self.external.is_testing();
        self.detect_external_delay(now, report, total_delay);
        let external = self.external.delay();
        let report = &Report {
            queueing_delay: total_delay.saturating_sub(external),
            min_queueing_delay: report.min_queueing_delay.saturating_sub(external),
            ..*report
        };
        self.bursts.on_report(report, self.losses.baseline());
        // During the pause of a test, the delivery rate says nothing about the path.
        let Some(mut measurement) = self.measurement.filter(|_| !testing) else {
            self.measurement = Some(Measurement::start(now, report));
            return;
        };
        measurement.add(report, total_delay);
        let rate = measurement.delivery_rate(report, external);
        self.pause_if_congested(now, report, rate, measurement.packets(report));
        let sample = measurement.sample(report, self.feedback.min_rtt() + external * 2);
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
        Some(self.pacing_rate as u64)
    }

    fn fills_queue(&self) -> bool {
        self.is_starting() && (self.rate_limited || self.was_rate_limited)
    }
}
