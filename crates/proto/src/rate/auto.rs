// SPDX-License-Identifier: Apache-2.0
//! Finds the rate of whatever is slow on the way to a peer, and keeps its queue short.
//!
//! Every report says how fast packets arrived and how long they waited beyond the fastest of
//! late. The product is what waits on the way, and the rate is corrected so that this comes to
//! half a packet: enough that the way is never idle, and little for the next message to wait
//! for. What is more urgent than the packet before it may be a packet early.
//!
//! What was taken from whom, and what was not:
//! - *BBR* (Cardwell and others, 2016): delivery rate as the measure of the way, pacing, doubling
//!   at the start, a bound on what is under way. Not its gain cycle, which fills a far queue
//!   with a quarter of a round trip eight times a second, nor its maximum filter, which keeps
//!   a rate that is gone for ten round trips.
//! - *LEDBAT* (RFC 6817): one-way instead of round-trip delay, since queues on the way back
//!   are not ours; a base delay of limited age. Not its target of 100 ms.
//! - *Copa* (Arun and Balakrishnan, 2018): the standing queue, from the least delay within a
//!   round trip, against jitter; emptying the queue regularly to see the base anew. Not its
//!   window of packets per acknowledgement: here one report comes for ten packets.
//! - *SCReAM* (RFC 8298): both a window and a rate, and the window holds when reports stop.
//! - *GCC* (Carlucci and others, 2016): a delay signal averaged over groups of packets and kept
//!   apart from loss. Not its fixed thresholds of loss: radios lose 20 % with room to spare.
//!
//! Losses count only where they are more than those of a calm way, as a moment of sending less
//! shows. A local bottleneck shows in how long our own kernel holds packets, which is taken
//! off; there local back-pressure holds packets back first, and this never does.

use super::{Ask, Controller, FULL_PACKET, Release, Report, following};
use crate::time::{Duration, Instant, airtime, smooth};

/// See the module.
#[derive(Debug)]
pub struct Auto {
    phase: Phase,
    /// Packets are let go at this, in bits per second.
    rate: f64,
    /// What the way carries of ours, as far as it is known.
    share: f64,
    /// What it carried in better times.
    best: f64,
    /// When the next packet may leave.
    next: Instant,
    /// A packet waited for us since the last measurement.
    held_back: bool,
    /// The last measurement found that what we let go is what the way got.
    filling: bool,
    mark: Option<Mark>,
    feedback: Feedback,
    /// How often in a row the way had room to spare, and when that was last made use of.
    spare_rounds: u32,
    grown: Instant,
    /// When packets were last seen to wait, or to be lost for want of room.
    filled: Instant,
    jitter: Jitter,
    /// Until then a queue drains for which all was stopped: what is measured says little.
    draining_until: Instant,
    /// When the queue far away was last seen empty.
    emptied: Instant,
    losses: Losses,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing is known: rate and window double until packets wait.
    Start { window: usize },
    /// The rate follows what arrives, and the queue.
    Cruise,
    /// For a moment less is sent, to see what an empty way is like: how fast, and how lossy.
    Dip { from: Instant, until: Instant, again: u32 },
}

/// From where on a measurement runs.
#[derive(Debug, Clone, Copy)]
struct Mark {
    since: Instant,
    arrived: u32,
    sent_bytes: u64,
    sent_packets: u64,
    /// Seconds that packets waited, summed up over them.
    waited: f64,
    least_waited: f64,
    acked: f64,
    lost: f64,
}

/// What share of packets is lost, and what share would be if nothing were in their way.
#[derive(Debug, Default)]
struct Losses {
    /// Of late.
    now: f64,
    /// While less was sent than the way carries.
    calm: f64,
    /// The same when the present dip began.
    before: f64,
    /// Since the present dip began to show: lost, and all.
    dip: (f64, f64),
    /// Until then losses are taken for chance.
    trusted_until: Instant,
}

/// How long packets wait, smoothed as round trips are.
#[derive(Debug, Default)]
struct Jitter {
    mean: Duration,
    deviation: Duration,
}

/// How long it takes to learn what became of a packet.
#[derive(Debug)]
struct Feedback {
    /// Between the last reports, as the peer's clock has it.
    intervals: [Duration; INTERVALS],
    at: usize,
    last_arrived: Option<u32>,
    /// The least round trip of this span and of the one before.
    least: [Duration; 2],
    span_end: Instant,
}

/// Intervals between reports of which the longest counts: where every fifth report is lost,
/// two in a row are among them.
const INTERVALS: usize = 16;
/// A longer interval is a pause of the application.
const LONGEST_INTERVAL: Duration = Duration::from_millis(100);
/// Fewer packets between two reports are no stream of them.
const LEAST_INTERVAL_PACKETS: u64 = 3;
/// The least round trip is that of one to two such spans.
const SPAN: Duration = Duration::from_secs(5);
/// Before anything is known: four full packets in 10 ms, within which a report is due.
const FIRST_RATE: f64 = 4.8e6;
const FIRST_WINDOW: usize = 4 * FULL_PACKET;
/// A tenth of what the slowest Wi-Fi carries with several on it.
const LEAST_RATE: f64 = 200e3;
const MOST_RATE: f64 = 1e10;
/// Packets in a measurement, at least: on a full-duplex way their spacing is exact to a packet.
const LEAST_PACKETS: u64 = 4;
/// The queue to be kept far away: so that the way is never idle for a late timer.
const TARGET_BYTES: f64 = 0.5 * FULL_PACKET as f64;
const TARGET_TIME: f64 = 0.75e-3;
/// What is measured while packets wait counts by so much.
const GAIN: f64 = 0.25;
/// A way that carries less than this part of what it did has changed: what is measured counts whole.
const SUDDEN: f64 = 0.7;
/// Without a sight of the empty way for so long, less is sent for a moment.
const DIP_EVERY: Duration = Duration::from_secs(4);
const DIP_SHARE: f64 = 0.8;
/// Dips in a row, each deeper.
const DIPS: u32 = 2;
/// Packets that waited longer than this, and two packets' time, stop all others for as long.
const ALARM: Duration = Duration::from_millis(4);
/// Losses are averaged over about so many packets.
const LOSS_MEMORY: f64 = 64.0;
/// More losses than this above those of a calm way, and twice their standard deviation, may
/// be those of a full queue that is too short to be seen in delays.
const LOSS_MARGIN: f64 = 0.03;
/// Losses found to be chance are not looked at again for so long.
const LOSS_TRUST: Duration = Duration::from_secs(3);
/// A dip is over after so long, however few packets it had.
const LONGEST_DIP: Duration = Duration::from_millis(200);
/// Growth: half a percent, doubled with each round that finds the way empty, up to everything.
const MOST_ROUNDS: u32 = 8;
/// Where no packet has had to wait for so long, what was known of the way is no longer true.
const FORGET: Duration = Duration::from_secs(1);
/// Packets that tell how lossy a calm way is.
const DIP_PACKETS: f64 = 32.0;

impl Auto {
    /// Knows nothing yet.
    pub fn new() -> Self {
        Self {
            phase: Phase::Start { window: FIRST_WINDOW },
            rate: FIRST_RATE,
            share: FIRST_RATE,
            best: FIRST_RATE,
            next: Instant::default(),
            held_back: false,
            filling: false,
            mark: None,
            feedback: Feedback::new(),
            spare_rounds: 0,
            grown: Instant::default(),
            filled: Instant::default(),
            jitter: Jitter::default(),
            draining_until: Instant::default(),
            emptied: Instant::default(),
            losses: Losses::default(),
        }
    }

    fn is_starting(&self) -> bool {
        matches!(self.phase, Phase::Start { .. })
    }

    fn packet_time(&self) -> Duration {
        airtime(FULL_PACKET, self.rate as u64)
    }

    /// What may be under way: what is sent until its report comes, and two packets.
    fn window(&self) -> usize {
        let time = self.feedback_time().as_secs_f64();
        let window = (self.rate * time / 8.0) as usize + 2 * FULL_PACKET;
        match self.phase {
            Phase::Start { window: most } => window.min(most),
            Phase::Cruise | Phase::Dip { .. } => window,
        }
    }

    fn measure(&mut self, now: Instant, found: &Measured) {
        let target = TARGET_BYTES.max(found.rate * TARGET_TIME / 8.0);
        if found.standing < target / 4.0 {
            self.emptied = now;
        }
        if found.standing > target / 2.0 {
            self.filled = now;
        }
        // A message or two among pauses do not fill the way.
        let fills = self.is_starting() || found.never_empty || found.rate > self.rate / 2.0;
        let held_back = std::mem::take(&mut self.held_back) && fills;
        self.filling = held_back;
        self.losses.add(found);
        // What arrives, made up for what is lost by chance.
        let excess = (1.0 - self.losses.now) / (1.0 - self.losses.calm);
        let carried = found.rate * if self.losses.are_many() { excess } else { 1.0 };
        self.best = match found.never_empty {
            true => self.best + (carried - self.best) / 8.0,
            false => self.best.max(carried),
        };
        match self.phase {
            Phase::Start { .. } if found.standing > 2.0 * target => {
                self.share = carried;
                self.phase = Phase::Cruise;
            }
            Phase::Start { .. } if held_back && self.losses.suspicious(now) => {
                self.dip(now, carried, 0)
            }
            Phase::Start { window } if held_back => {
                self.share = self.share.max(2.0 * carried);
                self.phase = Phase::Start { window: window.saturating_mul(2) };
            }
            Phase::Start { .. } => {}
            // A way that was idle in between would carry more than arrived.
            Phase::Cruise if found.never_empty => {
                let sudden = carried < SUDDEN * self.share;
                let gain = if sudden { 1.0 } else { GAIN };
                self.share += gain * (carried - self.share);
                self.spare_rounds = 0;
            }
            Phase::Cruise if held_back && self.losses.suspicious(now) => {
                self.dip(now, carried.max(self.share / 2.0), 0);
            }
            Phase::Cruise if found.standing > target => {}
            Phase::Cruise if held_back && now.since(self.grown) < self.feedback_time() => {}
            Phase::Cruise if held_back => self.grow(now, carried, found.standing < target / 2.0),
            Phase::Cruise => self.spare_rounds = 0,
            Phase::Dip { .. } => self.end_dip(now, found, carried, target),
        }
        if self.phase == Phase::Cruise && now.since(self.emptied) > DIP_EVERY {
            self.dip(now, self.share, 0);
        }
        self.share = self.share.clamp(LEAST_RATE, MOST_RATE);
        let draining = found.since < self.draining_until;
        let lacking = if draining { 0.0 } else { target - found.standing };
        self.rate = self.corrected(lacking);
    }

    /// The way has room to spare: a little of it is tried at first, since it may be chance; then
    /// more and more.
    fn grow(&mut self, now: Instant, carried: f64, spare: bool) {
        self.grown = now;
        if now.since(self.filled) > FORGET {
            self.spare_rounds = MOST_ROUNDS;
        }
        let more = (0.005 * f64::from(1 << self.spare_rounds)).min(1.0);
        self.share = self.share.max((self.share * (1.0 + more)).min(2.0 * carried));
        self.spare_rounds = if spare { (self.spare_rounds + 1).min(MOST_ROUNDS) } else { 0 };
    }

    /// Ends a dip that told enough.
    fn end_dip(&mut self, now: Instant, found: &Measured, carried: f64, target: f64) {
        let Phase::Dip { from, until, again } = self.phase else { return };
        if now >= from {
            self.losses.add_calm(found);
        }
        let told = self.losses.dip.1 >= self.losses.wanted();
        if now < until || !told && now < until + LONGEST_DIP {
            return;
        }
        // Where packets still wait, it was no calm way.
        if self.losses.dip.0 > 0.0 && found.standing > target / 4.0 && again < DIPS {
            self.dip(now, carried.min(self.share) * DIP_SHARE, again + 1);
        } else {
            self.losses.conclude(now);
            self.phase = Phase::Cruise;
        }
    }

    /// The rate that makes up for so many bytes that the queue lacks.
    fn corrected(&self, lacking: f64) -> f64 {
        match self.phase {
            Phase::Start { .. } => self.share,
            Phase::Dip { .. } => self.share * DIP_SHARE,
            Phase::Cruise => {
                let correction = lacking * 8.0 / (2.0 * self.feedback_time().as_secs_f64());
                (self.share + correction).clamp(self.share / 2.0, self.share * 1.25)
            }
        }
    }

    /// Packets waited so long that more must not join them: what is there drains first.
    /// `arriving`: the rate at which they came since the last measurement.
    fn pause(&mut self, now: Instant, report: &Report, arriving: Option<f64>) {
        let known = !self.is_starting() && self.filling;
        let slower = arriving.filter(|rate| known && *rate < SUDDEN * self.share);
        let waited = report.waited.as_secs_f64();
        let queue = slower.is_some_and(|rate| rate * waited / 8.0 > 1.5 * much(rate));
        let usual = (self.packet_time() * 2).max(ALARM).max(self.jitter.most());
        self.jitter.add(report.waited);
        if now < self.draining_until || !queue && report.waited <= usual {
            return;
        }
        if let Some(arriving) = slower {
            self.share = arriving.max(LEAST_RATE);
            self.rate = self.share;
        }
        // What waits is no more than what is not yet known to have arrived.
        let pause = report.waited.min(airtime(report.outstanding, self.rate as u64));
        self.next = self.next.max(now + pause);
        self.draining_until = now + pause + self.feedback_time();
    }

    /// After trouble that is long over the way is found out anew, from half of what it was.
    fn recover(&mut self, now: Instant, under_way: usize) {
        let over = under_way == 0 && now.since(self.filled) > FORGET;
        if over && !self.is_starting() && self.share < self.best / 2.0 {
            self.phase = Phase::Start { window: FIRST_WINDOW };
            self.share = self.best / 2.0;
            self.rate = self.share;
            self.next = now;
        }
    }

    fn dip(&mut self, now: Instant, share: f64, again: u32) {
        let time = self.feedback_time();
        self.phase = Phase::Dip { from: now + time, until: now + time * 2, again };
        self.share = share;
        (self.emptied, self.filled) = (now, now);
        self.spare_rounds = 0;
        self.losses.begin_dip();
    }

    fn feedback_time(&self) -> Duration {
        self.feedback.time().unwrap_or(LONGEST_INTERVAL)
    }
}

impl Jitter {
    fn add(&mut self, waited: Duration) {
        smooth(&mut self.mean, &mut self.deviation, waited);
    }

    /// More is not to be expected.
    fn most(&self) -> Duration {
        self.mean + self.deviation * 4
    }
}

impl Losses {
    fn add(&mut self, found: &Measured) {
        let weight = 1.0 - (-found.known / LOSS_MEMORY).exp();
        self.now += weight * (found.lost / found.known.max(1.0) - self.now);
    }

    /// Whether more is lost than of a calm way, beyond chance.
    fn are_many(&self) -> bool {
        let deviation = (self.calm.max(0.01) * (1.0 - self.calm) / LOSS_MEMORY).sqrt();
        self.now > self.calm + LOSS_MARGIN + 2.0 * deviation
    }

    fn suspicious(&self, now: Instant) -> bool {
        self.are_many() && now >= self.trusted_until
    }

    fn begin_dip(&mut self) {
        (self.before, self.dip) = (self.now, (0.0, 0.0));
    }

    fn add_calm(&mut self, found: &Measured) {
        self.dip = (self.dip.0 + found.lost, self.dip.1 + found.known);
    }

    /// Packets of a dip that tell enough: none, where nothing was lost before it.
    fn wanted(&self) -> f64 {
        if self.before < 0.01 { 0.0 } else { DIP_PACKETS }
    }

    /// The dip is over.
    fn conclude(&mut self, now: Instant) {
        let (lost, all) = self.dip;
        if all > 0.0 {
            // Few packets tell: what is known counts as well.
            self.calm = (self.calm * DIP_PACKETS + lost) / (DIP_PACKETS + all);
        }
        if self.before - self.calm < LOSS_MARGIN * 2.0 {
            self.trusted_until = now + LOSS_TRUST;
        }
        self.now = self.calm;
    }
}

/// More bytes than this far away are more than a packet, and than jitter, at `rate`.
fn much(rate: f64) -> f64 {
    (rate * TARGET_TIME / 8.0).max(FULL_PACKET as f64)
}

impl Default for Auto {
    fn default() -> Self {
        Self::new()
    }
}

/// What a span of reports came to.
#[derive(Debug)]
struct Measured {
    since: Instant,
    /// At which what was sent arrived, in bits per second.
    rate: f64,
    /// Bytes that waited on the way on average, or less where some packets did not wait: then
    /// the others met something else than a queue that stands.
    standing: f64,
    /// Every packet found others before it.
    never_empty: bool,
    /// Packets of which it became known what happened, and those lost of them.
    known: f64,
    lost: f64,
}

impl Mark {
    fn at(since: Instant, report: &Report) -> Self {
        let Report { arrived, sent_bytes, sent_packets, .. } = *report;
        Self {
            since,
            arrived,
            sent_bytes,
            sent_packets,
            waited: 0.0,
            least_waited: f64::INFINITY,
            acked: 0.0,
            lost: 0.0,
        }
    }

    fn add(&mut self, report: &Report) {
        let packets = report.acked_packets as f64;
        self.waited += report.waited.as_secs_f64() * packets;
        if packets > 0.0 {
            self.least_waited = self.least_waited.min(report.least_waited.as_secs_f64());
        }
        self.acked += packets;
        self.lost += report.lost_packets as f64;
    }

    /// At which what was sent arrived so far, in bits per second.
    fn rate(&self, report: &Report) -> Option<f64> {
        let span = report.arrived.wrapping_sub(self.arrived) as i32;
        let bytes = report.sent_bytes.checked_sub(self.sent_bytes)?;
        (span > 0 && bytes > 0).then(|| bytes as f64 * 8e6 / f64::from(span))
    }

    /// `None` while it is too short.
    fn measured(&self, report: &Report, least: Duration) -> Option<Measured> {
        let packets = report.sent_packets.saturating_sub(self.sent_packets);
        let span = u128::from(report.arrived.wrapping_sub(self.arrived));
        if packets < LEAST_PACKETS || span < least.as_micros() || self.acked == 0.0 {
            return None;
        }
        let bytes = report.sent_bytes.saturating_sub(self.sent_bytes) as f64;
        let rate = self.rate(report)?;
        let packet = bytes / packets as f64;
        let backlog = rate * self.waited / self.acked / 8.0 - packet;
        Some(Measured {
            since: self.since,
            rate,
            standing: backlog.min(2.0 * rate * self.least_waited / 8.0),
            never_empty: rate * self.least_waited / 8.0 > packet,
            known: self.acked + self.lost,
            lost: self.lost,
        })
    }
}

impl Feedback {
    fn new() -> Self {
        Self {
            intervals: [Duration::ZERO; INTERVALS],
            at: 0,
            last_arrived: None,
            least: [Duration::MAX; 2],
            span_end: Instant::default(),
        }
    }

    fn add(&mut self, now: Instant, report: &Report) {
        if now >= self.span_end {
            self.least = [Duration::MAX, self.least[0]];
            self.span_end = now + SPAN;
        }
        self.least[0] = self.least[0].min(report.rtt);
        let before = self.last_arrived.replace(report.arrived);
        let interval = before.map_or(0, |before| report.arrived.wrapping_sub(before));
        let interval = Duration::from_micros(u64::from(interval));
        if interval <= LONGEST_INTERVAL && report.acked_packets >= LEAST_INTERVAL_PACKETS {
            self.intervals[self.at] = interval;
            self.at = (self.at + 1) % INTERVALS;
        }
    }

    /// The least of late; nothing before the first.
    fn round_trip(&self) -> Duration {
        let least = self.least[0].min(self.least[1]);
        if least == Duration::MAX { Duration::ZERO } else { least }
    }

    fn time(&self) -> Option<Duration> {
        let interval = self.intervals.iter().max().filter(|it| !it.is_zero())?;
        Some(*interval + self.round_trip())
    }
}

impl Controller for Auto {
    fn release(&mut self, now: Instant, ask: Ask, under_way: usize) -> Release {
        self.recover(now, under_way);
        let ahead = if ask.urgent { FULL_PACKET } else { 0 };
        if under_way > 0 && under_way + ask.bytes > self.window() + ahead {
            self.held_back = true;
            return Release::Drained;
        }
        let next = if ask.urgent { self.next.before(self.packet_time()) } else { self.next };
        if now < next {
            self.held_back = true;
            return Release::At(next);
        }
        Release::Now
    }

    fn on_sent(&mut self, now: Instant, bytes: usize, _under_way: usize) {
        let catch_up = self.packet_time().max(Duration::from_millis(1));
        self.next = following(self.next, now, airtime(bytes, self.rate as u64), catch_up);
    }

    fn wants_report(&self, under_way: usize) -> bool {
        self.is_starting() && under_way + FULL_PACKET > self.window()
    }

    fn on_new_session(&mut self) {
        self.mark = None;
    }

    fn on_report(&mut self, now: Instant, report: &Report) {
        self.feedback.add(now, report);
        let Some(mut mark) = self.mark else {
            self.mark = Some(Mark::at(now, report));
            return;
        };
        mark.add(report);
        self.pause(now, report, mark.rate(report));
        let found = mark.measured(report, self.feedback.round_trip());
        self.mark = Some(if found.is_some() { Mark::at(now, report) } else { mark });
        if let Some(found) = found {
            self.measure(now, &found);
        }
    }

    fn signal(&self) -> &'static str {
        "reports"
    }

    fn limit_bytes(&self) -> usize {
        self.window()
    }

    fn rate_bps(&self) -> Option<u64> {
        Some(self.rate as u64)
    }
}
