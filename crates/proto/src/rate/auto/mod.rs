// SPDX-License-Identifier: Apache-2.0
//! Finds the rate of whatever is slow on the way to a peer, and keeps its queue short.
//!
//! Every report says how fast packets arrived and how long they waited beyond the fastest of
//! late. The product is what waits on the way, and the rate is corrected so that this comes to
//! half a packet: enough that the way is never idle, and little for the next message to wait
//! for. What is more urgent than others of late may be a packet early, and passes pauses.
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
//! - *CUBIC* (RFC 9438): the plateau near what was last too much (`ceiling`), and by how much to
//!   give way beside one who fills the queue anyway (`rival`).
//! - *SCReAM* (RFC 8298): both a window and a rate, and the window holds when reports stop.
//! - *GCC* (Carlucci and others, 2016): a delay signal averaged over groups of packets and kept
//!   apart from loss. Not its fixed thresholds of loss: radios lose 20 % with room to spare.
//!
//! A wait that does not become shorter when less is sent is not ours, and is taken off: see
//! `foreign`. Losses count only where they are more than those of a calm way, as a moment of
//! sending less shows. A local bottleneck shows in how long our own kernel holds packets, which
//! is taken off; there local back-pressure holds packets back first, and this never does.

mod ceiling;
mod feedback;
mod foreign;
mod losses;
mod measure;
mod rival;

use super::{Ask, Controller, FULL_PACKET, Release, Report, following};
use crate::time::{Duration, Instant, airtime};
use ceiling::{Ceiling, Growth};
use feedback::{Feedback, Jitter};
use foreign::{Foreign, Seen, Verdict, Waits};
use losses::Losses;
use measure::{Mark, Measured};

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
    ceiling: Ceiling,
    /// When the next packet may leave.
    next: Instant,
    /// Until then only what is urgent leaves, and little of it.
    paused_until: Instant,
    urgent_next: Instant,
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
    foreign: Foreign,
    /// Bytes sent of which nothing was known at the last report.
    outstanding: usize,
    /// Sent up to what was known then.
    sent_bytes: u64,
    /// Until then a queue drains for which all was stopped: what is measured says little.
    draining_until: Instant,
    /// How long packets waited when all was stopped for it.
    stopped_at: Duration,
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

/// Before anything is known: four full packets in 10 ms, within which a report is due.
const FIRST_RATE: f64 = 4.8e6;
const FIRST_WINDOW: usize = 4 * FULL_PACKET;
/// What a way beside others may carry of which nothing is known, or nothing of late.
const GUESS: f64 = 2e6;
/// A tenth of what the slowest Wi-Fi carries with several on it.
const LEAST_RATE: f64 = 200e3;
const MOST_RATE: f64 = 1e10;
/// The queue to be kept far away: so that the way is never idle for a late timer.
const TARGET_BYTES: f64 = 0.5 * FULL_PACKET as f64;
const TARGET_TIME: f64 = 0.75e-3;
/// More than so many times the target is not what is kept on purpose.
const CROWD: f64 = 2.0;
/// What is measured while packets wait counts by so much.
const GAIN: f64 = 0.25;
/// A way that carries less than this part of what it did has changed: what is measured counts whole.
const SUDDEN: f64 = 0.7;
/// Without a sight of the empty way for so long, less is sent for a moment.
const DIP_EVERY: Duration = Duration::from_secs(4);
const DIP_SHARE: f64 = 0.8;
/// Dips in a row, each deeper.
const DIPS: u32 = 2;
/// A peer that tells of longer waits is not believed.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Packets that waited longer than this, and two packets' time, stop all others for as long.
const ALARM: Duration = Duration::from_millis(3);
/// The rate of fewer packets tells only for how long: one that lost its turn on a channel looks
/// like a slow link.
const FEWEST: u64 = 3;
/// While all else pauses, what is urgent may have one part in so many of the rate.
const PAUSED_SHARE: u32 = 2;
/// Beyond the window packets leave at one part in so many of the rate.
const BEYOND_SHARE: u32 = 4;
/// A dip is over after so long, however few packets it had.
const LONGEST_DIP: Duration = Duration::from_millis(200);
/// Growth: half a percent, doubled with each round that finds the way empty, up to everything.
const MOST_ROUNDS: u32 = 8;
const UNEVEN_ROUNDS: u32 = 6;
/// Near the ceiling.
const GENTLE: f64 = 0.001;
/// A wait of so many times the usual is a queue's.
const QUEUE: u32 = 2;
/// Packets that wait for less than this part of a packet's time meet none.
const CLEAR: f64 = 0.2;
/// Machines alone make packets wait so long; where waits vary by less, a queue shows at once.
const HITCH: Duration = Duration::from_micros(500);
/// Waits of others of more than this part of a packet's time are more than a channel's turns.
const TURNS: f64 = 0.5;
/// Where no packet has had to wait for so long, what was known of the way is no longer true.
const FORGET: Duration = Duration::from_secs(1);
impl Auto {
    /// Knows nothing yet.
    pub fn new() -> Self {
        Self {
            phase: Phase::Start { window: FIRST_WINDOW },
            rate: FIRST_RATE,
            share: FIRST_RATE,
            best: FIRST_RATE,
            ceiling: Ceiling::default(),
            next: Instant::default(),
            paused_until: Instant::default(),
            urgent_next: Instant::default(),
            held_back: false,
            filling: false,
            mark: None,
            feedback: Feedback::new(),
            spare_rounds: 0,
            grown: Instant::default(),
            filled: Instant::default(),
            jitter: Jitter::default(),
            foreign: Foreign::default(),
            outstanding: 0,
            sent_bytes: 0,
            draining_until: Instant::default(),
            stopped_at: Duration::ZERO,
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
        let carried = (found.rate * self.losses.excess()).min(MOST_RATE);
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
            Phase::Cruise if found.never_empty => self.follow(found.rate, found.waited),
            Phase::Cruise if held_back && self.losses.suspicious(now) => {
                self.dip(now, self.share, 0);
            }
            Phase::Cruise if found.standing > target => {}
            Phase::Cruise if held_back && now.since(self.grown) < self.feedback_time() => {}
            Phase::Cruise if held_back => self.grow(now, found, carried, target),
            Phase::Cruise => self.spare_rounds = 0,
            Phase::Dip { .. } => self.end_dip(now, found, carried, target),
        }
        if self.phase == Phase::Cruise && now.since(self.emptied) > DIP_EVERY {
            self.dip(now, self.share, 0);
        }
        self.watch(now, found, target);
        self.share = self.bounded(self.share);
        let draining = found.since < self.draining_until;
        let lacking = if draining { 0.0 } else { target - found.standing.max(0.0) };
        self.rate = self.corrected(lacking);
    }

    /// Packets wait: what arrives is what the way carries.
    fn follow(&mut self, carried: f64, waited: Duration) {
        // What comes faster than it is sent had waited before, or others made room for it.
        let carried = if self.is_even() { carried.min(self.share.max(self.rate)) } else { carried };
        let sudden = carried < SUDDEN * self.share;
        let gain = if sudden { 1.0 } else { GAIN };
        self.share += gain * (carried - self.share);
        if sudden {
            self.ceiling.forget();
        } else {
            let unusual = waited > self.jitter.mean() * QUEUE;
            self.ceiling.follow(carried, gain, self.share, unusual);
        }
        self.spare_rounds = 0;
    }

    /// Nothing but queues makes packets wait or get lost.
    fn is_even(&self) -> bool {
        !self.losses.are_some() && self.foreign.wait() <= self.packet_time().mul_f64(TURNS)
    }

    /// The way has room to spare: a little of it is tried at first, since it may be chance; then
    /// more and more.
    fn grow(&mut self, now: Instant, found: &Measured, carried: f64, target: f64) {
        self.grown = now;
        if !self.is_even() {
            self.ceiling.forget();
        }
        let time = self.feedback_time();
        if let Some(more) = self.foreign.rival().and_then(|rival| rival.growth(time)) {
            self.share += more;
            return;
        }
        let little = self.packet_time().mul_f64(CLEAR).max(HITCH);
        let clear = found.waited_in_all < little || self.jitter.usual() < HITCH;
        let most = match self.ceiling.growth(self.share, clear) {
            Growth::UpTo(most) => most.min(2.0 * carried),
            Growth::Gently => {
                self.share *= 1.0 + GENTLE;
                (self.spare_rounds, self.filled) = (0, now);
                return;
            }
        };
        // Where waits vary anyway, less is known of what they tell.
        let rounds = if self.foreign.wait().is_zero() { MOST_ROUNDS } else { UNEVEN_ROUNDS };
        if now.since(self.filled) > FORGET {
            self.spare_rounds = rounds;
        }
        let more = (0.005 * f64::from(1 << self.spare_rounds)).min(1.0);
        self.share = self.share.max((self.share * (1.0 + more)).min(most));
        let spare = found.standing < target / 2.0;
        self.spare_rounds = if spare { (self.spare_rounds + 1).min(rounds) } else { 0 };
    }

    /// Finds out whether packets wait for others.
    fn seek_others(&mut self, now: Instant, report: &Report, waited: Duration) {
        let sent = report.sent_bytes.saturating_sub(self.sent_bytes) as usize;
        self.sent_bytes = report.sent_bytes;
        let seen = Seen {
            waited,
            packets: report.acked_packets,
            left: now.before(report.ago),
            ours: airtime(self.outstanding + sent, LEAST_RATE as u64),
            guess: self.best.min(GUESS),
        };
        self.outstanding = report.outstanding;
        match self.foreign.add(now, &seen) {
            None => return,
            Some(Verdict::Again(pause)) => return self.pause_for_test(now + pause),
            Some(Verdict::Sighted) if self.is_starting() => {
                (self.phase, self.share) = (Phase::Cruise, 0.0);
            }
            Some(Verdict::Sighted | Verdict::Foreign) => {}
        }
        // What the way carries beside that is not known.
        self.spare_rounds = UNEVEN_ROUNDS;
        self.mark = None;
        self.share = self.bounded(self.share);
        (self.rate, self.filled) = (self.share, now);
    }

    /// What may be sent in place of `share`, beside a rival and at all.
    fn bounded(&self, share: f64) -> f64 {
        let (least, most) = match self.foreign.rival() {
            Some(rival) => (rival.least(), rival.most()),
            None => (LEAST_RATE, MOST_RATE),
        };
        share.max(least).min(most).clamp(LEAST_RATE, MOST_RATE)
    }

    /// Packets that go on waiting although less is sent may wait for something else.
    fn watch(&mut self, now: Instant, found: &Measured, target: f64) {
        if self.phase != Phase::Cruise {
            return;
        }
        if found.standing > CROWD * target {
            self.foreign.trouble(now, found.wait(), self.share);
        } else if found.standing < target {
            self.foreign.calm(self.share);
        }
        let waits = Waits {
            waited: self.jitter.mean().min(found.waited),
            most: self.jitter.mean().max(found.waited),
            ours: found.wait(),
            share: self.share,
            drains: airtime(self.outstanding, self.rate.min(found.rate) as u64),
            time: self.feedback_time(),
        };
        if let Some(pause) = self.foreign.test(now, &waits) {
            self.pause_for_test(now + pause);
        }
    }

    /// What may be beyond the window: where packets get lost, reports do too, and a few more
    /// bring the next.
    fn beyond(&self, now: Instant, under_way: usize) -> Release {
        let next = self.next + self.packet_time() * (BEYOND_SHARE - 1);
        match self.phase {
            Phase::Start { .. } => Release::Drained,
            _ if !self.losses.are_some() || under_way > 2 * self.window() => Release::Drained,
            _ if now < next => Release::At(next),
            _ => Release::Now,
        }
    }

    /// Nobody is to take this pause for an idle way.
    fn pause_for_test(&mut self, end: Instant) {
        self.pause_until(end);
        self.filled = end;
    }

    fn pause_until(&mut self, end: Instant) {
        self.paused_until = self.paused_until.max(end);
        self.next = self.next.max(end);
        self.draining_until = end + self.feedback_time();
    }

    /// Ends a dip that told enough.
    fn end_dip(&mut self, now: Instant, found: &Measured, carried: f64, target: f64) {
        let Phase::Dip { from, until, again } = self.phase else { return };
        if now >= from {
            self.losses.add_calm(found);
        }
        let told = self.losses.told();
        if now < until || !told && now < until + LONGEST_DIP {
            return;
        }
        let waits = self.losses.any_in_dip() && found.standing > target / 4.0;
        // Where packets still wait, it was no calm way.
        if waits && again < DIPS {
            self.dip(now, carried.min(self.share) * DIP_SHARE, again + 1);
        } else {
            if let Some(arrived) = self.losses.conclude(now) {
                let arrived = self.share * arrived;
                self.share = match self.foreign.rival_mut() {
                    Some(rival) => rival.overflow(self.share, arrived),
                    None => arrived,
                };
            }
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
    /// `arriving`: the rate at which they came since the last measurement; `sure` of enough.
    fn pause(&mut self, now: Instant, report: &Report, arriving: Option<f64>, sure: bool) {
        let known = !self.is_starting() && self.filling;
        let slower = arriving.filter(|rate| known && *rate < SUDDEN * self.share);
        let waited = report.waited.as_secs_f64();
        let unusual = report.waited > self.jitter.often();
        let queue = unusual && slower.is_some_and(|rate| rate * waited / 8.0 > 1.5 * much(rate));
        let usual = (self.packet_time() * 2).max(ALARM).max(self.jitter.most());
        self.jitter.add(report.waited);
        // While a queue drains it is only news that it is far longer than it seemed.
        let draining = now < self.draining_until;
        let news = queue && report.waited > self.stopped_at * 2;
        if draining && !news || !queue && report.waited <= usual {
            return;
        }
        self.stopped_at = report.waited;
        if known {
            self.foreign.trouble(now, report.waited, self.share);
        }
        if let Some(arriving) = slower.filter(|_| sure) {
            self.share = self.bounded(arriving);
            self.rate = self.share;
        }
        // What waits is no more than what is not yet known to have arrived; on a way that just
        // became slow it is no less either.
        let drains =
            airtime(report.outstanding, slower.unwrap_or(self.rate).max(LEAST_RATE) as u64);
        let pause = match slower {
            Some(_) => report.waited.max(drains.saturating_sub(self.feedback_time())).min(drains),
            None => report.waited.min(drains),
        };
        self.pause_until(now + pause);
    }

    /// After trouble that is long over the way is found out anew, from half of what it was.
    fn recover(&mut self, now: Instant, under_way: usize) {
        let alone = self.foreign.rival().is_none();
        let over = alone && under_way == 0 && now.since(self.filled) > FORGET;
        if over && !self.is_starting() && self.share < self.best / 2.0 {
            self.phase = Phase::Start { window: FIRST_WINDOW };
            self.share = self.best / 2.0;
            self.rate = self.share;
            self.next = now;
        }
    }

    /// From when a packet leaves until its report comes.
    fn feedback_time(&self) -> Duration {
        self.feedback.time() + self.foreign.wait()
    }

    fn dip(&mut self, now: Instant, share: f64, again: u32) {
        let time = self.feedback_time();
        self.phase = Phase::Dip { from: now + time, until: now + time * 2, again };
        self.share = share;
        (self.emptied, self.filled) = (now, now);
        self.spare_rounds = 0;
        self.losses.begin_dip(again);
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

impl Controller for Auto {
    fn release(&mut self, now: Instant, ask: Ask, under_way: usize) -> Release {
        self.recover(now, under_way);
        if ask.urgent && now < self.paused_until {
            let due = self.urgent_next.min(self.paused_until);
            return if now < due { Release::At(due) } else { Release::Now };
        }
        let ahead = if ask.urgent { FULL_PACKET } else { 0 };
        if under_way > 0 && under_way + ask.bytes > self.window() + ahead {
            self.held_back = true;
            return self.beyond(now, under_way + ask.bytes);
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
        let took = airtime(bytes, self.rate as u64);
        self.next = following(self.next, now, took, catch_up);
        self.urgent_next = now + took * PAUSED_SHARE;
    }

    fn wants_report(&self, under_way: usize) -> bool {
        self.is_starting() && under_way + FULL_PACKET > self.window()
    }

    fn on_new_session(&mut self) {
        self.sent_bytes = 0;
        self.mark = None;
    }

    fn on_report(&mut self, now: Instant, report: &Report) {
        let waited = report.waited.min(LONGEST_WAIT);
        self.feedback.add(now, report);
        let testing = self.foreign.is_testing();
        self.seek_others(now, report, waited);
        let report = &Report {
            waited: waited.saturating_sub(self.foreign.wait()),
            least_waited: report.least_waited.saturating_sub(self.foreign.wait()),
            ..*report
        };
        // While nothing is sent on purpose, what arrives tells nothing of the way.
        let Some(mut mark) = self.mark.filter(|_| !testing) else {
            self.mark = Some(Mark::at(now, report));
            return;
        };
        mark.add(report, waited);
        let uneven = self.foreign.wait();
        self.pause(now, report, mark.rate(report, uneven), mark.packets(report) >= FEWEST);
        let found = mark.measured(report, self.feedback.round_trip() + uneven * 2);
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
