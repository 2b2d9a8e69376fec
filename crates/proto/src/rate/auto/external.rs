// SPDX-License-Identifier: Apache-2.0
//! Delay that our own packets do not cause: a radio that aggregates frames, a download, a path that
//! became longer. A drain distinguishes it from our queue: the sender pauses until all of its own
//! packets have left the path, and measures the delay that remains.

use super::backoff::Backoff;
use super::compete::Compete;
use super::tuning::Tuning;
use crate::rate::controller::FULL_PACKET;
use crate::time::{Duration, Instant, serialization_time};

/// The rate counts as reduced below this part of its recent peak.
const REDUCED_RATIO: f64 = 0.75;
/// Factor by which the peak decays with each sample. It halves within seconds.
const PEAK_DECAY: f64 = 1.0 - 1.0 / 256.0;
/// A shorter delay is not worth a drain.
const MIN_DELAY: Duration = Duration::from_millis(4);
/// A delay of this many packets is not worth a drain: half a packet is the target queue, and one packet is
/// the measured packet itself, if the other packets are short.
const MIN_DELAY_PACKETS: f64 = 1.5;
/// The result of a drain counts as unchanged if it is within this part of the delay known before.
const UNCHANGED_RATIO: f64 = 0.5;
/// The external delay decays when a report shows less than this part of it.
const DECAY_BELOW: f64 = 0.6;
/// The external delay decays by the difference divided by this.
const DECAY_DIVISOR: u32 = 16;
/// A queue that marks packets is short. A longer external delay at such a queue may come from a download:
/// CoDel keeps 5 ms (RFC 8289).
const MARKING_DELAY: Duration = MIN_DELAY;
/// Two observations of an excess delay must be this far apart: a single observation may be a
/// scheduling delay.
const EXCESS_SPACING: Duration = Duration::from_millis(100);
/// The first observation of an excess delay is forgotten after this time.
const EXCESS_MEMORY: Duration = Duration::from_secs(2);
/// Time between drains alongside a download. Measuring the download's queue takes up to a second.
const DOWNLOAD_CHECK: Duration = Duration::from_secs(5);
/// The longest pause of a drain.
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// A drain ends without a result after this many pauses.
const MAX_PAUSES: u32 = 4;

/// The delay that remains whatever this node sends.
#[derive(Debug, Default)]
pub(super) struct ExternalDelay {
    measured: Duration,
    /// The highest recent rate that the path carried, in bits per second.
    peak: f64,
    /// The time since which a delay has stayed although the estimate fell.
    persistent_since: Option<Instant>,
    /// Our share alongside a download, in bits per second: a fraction of the earlier estimate.
    floor: f64,
    /// The first observation of a delay that our own bytes cannot explain.
    excess: Option<(Instant, Duration)>,
    drains: Backoff,
    /// When the last drain ended.
    drained_at: Instant,
    /// At a bottleneck that marks packets, the longest delay that does not count as that of a
    /// download.
    marking_delay: Option<Duration>,
}

impl ExternalDelay {
    /// Notes whether the bottleneck marks packets, and whether this node competes there. A download that
    /// obeys marks has a short queue, which is sometimes even shorter.
    pub(super) fn set_marking(&mut self, is_marking: bool, competes: bool) {
        let delay = if competes { MARKING_DELAY / 8 } else { MARKING_DELAY };
        self.marking_delay = is_marking.then_some(delay);
    }

    /// The delay to subtract from all queueing delays: a quarter above the last measurement, since
    /// external delay varies.
    pub(super) fn delay(&self) -> Duration {
        self.measured * 5 / 4
    }

    /// The longest delay that does not count as that of a download.
    pub(super) fn download_delay(&self, tuning: &Tuning) -> Duration {
        self.marking_delay.unwrap_or(Duration::from_secs_f64(tuning.download_delay))
    }

    /// Whether the delay may be that of a sender that fills the queue however others behave.
    pub(super) fn may_be_download(&self, tuning: &Tuning) -> bool {
        self.measured > self.download_delay(tuning)
    }

    /// The least estimate: the rate that is due to this node while others fill the queue.
    pub(super) fn floor(&self, tuning: &Tuning) -> f64 {
        if self.may_be_download(tuning) { self.floor } else { 0.0 }
    }

    /// Records that a queue overflowed while packets arrived at this rate. No higher rate is due to
    /// this node.
    pub(super) fn on_overflow(&mut self, delivered: f64) {
        self.floor = self.floor.min(delivered);
    }

    /// Records that a probe found spare capacity at this delay.
    pub(super) fn on_spare_delay(&mut self, delay: Duration) {
        self.measured = self.measured.max(delay);
    }

    /// Takes a sample: the rate that the path carried, the estimate, and the delay beyond the external delay.
    pub(super) fn on_sample(&mut self, now: Instant, rate: f64, estimate: f64, delay: Duration) {
        self.peak = rate.max(self.peak * PEAK_DECAY);
        let packet = serialization_time(FULL_PACKET, self.peak as u64);
        let least = MIN_DELAY.max(packet.mul_f64(MIN_DELAY_PACKETS));
        let stays = delay >= least && estimate < self.peak * REDUCED_RATIO;
        self.persistent_since = stays.then(|| self.persistent_since.unwrap_or(now));
    }

    /// Whether a delay has stayed for several rounds although the estimate fell, and a drain may show
    /// why.
    pub(super) fn has_persistent_delay(
        &self,
        now: Instant,
        delay: Duration,
        feedback_time: Duration,
    ) -> bool {
        let least = delay * 2 + feedback_time * 3;
        self.drains.is_due(now)
            && self.persistent_since.is_some_and(|since| now.since(since) > least)
    }

    /// Whether a drain may show that other senders cause the delay at a bottleneck that marks packets.
    pub(super) fn may_be_cross_traffic(&self, now: Instant, delay: Duration) -> bool {
        delay > MARKING_DELAY && self.drains.is_due(now)
    }

    /// Whether the external delay was measured long ago.
    pub(super) fn is_old(&self, now: Instant) -> bool {
        !self.measured.is_zero() && self.drains.is_due(now)
    }

    /// Whether the download that a drain showed may have ended since.
    pub(super) fn may_have_ended(&self, now: Instant) -> bool {
        now.since(self.drained_at) > DOWNLOAD_CHECK
    }

    /// Takes a report whose packets were queued for `total_delay`, external delay included. `own`: the
    /// longest time for which our outstanding bytes can occupy the path. Returns whether two reports have
    /// shown external delay, so that no drain is needed.
    pub(super) fn on_report(
        &mut self,
        now: Instant,
        total_delay: Duration,
        own: Duration,
        tuning: &Tuning,
    ) -> bool {
        if total_delay < self.measured.mul_f64(DECAY_BELOW) {
            self.measured -= (self.measured - total_delay) / DECAY_DIVISOR;
        }
        let least = self.delay().max(own) + Duration::from_secs_f64(tuning.download_delay);
        let recent = self.excess.filter(|(first, _)| now.since(*first) <= EXCESS_MEMORY);
        let (first, delay) = recent.unwrap_or((now, total_delay));
        let shows = total_delay > least;
        self.excess = shows.then_some((first, delay));
        if shows && now.since(first) >= EXCESS_SPACING {
            (self.measured, self.excess) = (total_delay.min(delay), None);
            return true;
        }
        false
    }

    /// Records the end of a drain. `remaining`: the delay without our own packets, if the drain
    /// showed it.
    pub(super) fn on_drained(
        &mut self,
        now: Instant,
        remaining: Option<Duration>,
        tuning: &Tuning,
    ) {
        self.persistent_since = None;
        let Some(remaining) = remaining else { return self.drains.postpone(now, tuning) };
        let is_news = remaining.mul_f64(UNCHANGED_RATIO) > self.measured;
        let is_gone = remaining < self.measured.mul_f64(UNCHANGED_RATIO);
        self.measured = remaining;
        let due = self.peak * tuning.claim;
        self.floor = if self.may_be_download(tuning) { self.floor.max(due) } else { 0.0 };
        self.drained_at = now;
        if is_news {
            self.drains.succeed(now);
        } else if is_gone {
            self.drains.restart(now, tuning);
        } else {
            self.drains.fail(now, tuning);
        }
    }
}

/// A pause in sending, and the delay measured after it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Drain {
    begun: Instant,
    /// End of the present pause.
    pub(super) until: Instant,
    /// The time of the last report of a packet sent before the first pause.
    last_own: Instant,
    pauses: u32,
    feedback_time: Duration,
    /// Sum of the measured delays of `packets` packets, in seconds.
    seconds: f64,
    packets: f64,
    /// The state before the drain, if it was Compete.
    pub(super) competes: Option<Compete>,
    /// The bottleneck marks packets.
    pub(super) marked: bool,
}

/// What a drain showed.
#[derive(Debug, PartialEq)]
pub(super) enum DrainResult {
    /// Our own packets were still on the path: the drain pauses again.
    Again,
    /// The delay without our own packets; `None` after too many pauses.
    Remaining(Option<Duration>),
}

impl Drain {
    /// Begins a drain of packets that leave the path within `drain_time`.
    pub(super) fn begin(
        now: Instant,
        drain_time: Duration,
        feedback_time: Duration,
        competes: Option<Compete>,
        marked: bool,
    ) -> Self {
        let until = now + (drain_time + feedback_time).min(MAX_PAUSE);
        let (begun, last_own, pauses, seconds, packets) = (now, now, 1, 0.0, 0.0);
        Self { begun, until, last_own, pauses, feedback_time, seconds, packets, competes, marked }
    }

    /// Takes a report of `packets`, the newest of which was sent at `sent`.
    pub(super) fn on_report(
        &mut self,
        now: Instant,
        total_delay: Duration,
        packets: u64,
        sent: Instant,
    ) -> Option<DrainResult> {
        if sent < self.begun {
            self.last_own = now;
        }
        if sent < self.until {
            return None;
        }
        self.seconds += total_delay.as_secs_f64() * packets as f64;
        self.packets += packets as f64;
        if sent < self.until + self.feedback_time {
            return None;
        }
        let delay = Duration::from_secs_f64(self.seconds / self.packets.max(1.0));
        if self.last_own < self.until {
            return Some(DrainResult::Remaining(Some(delay)));
        }
        if self.pauses == MAX_PAUSES {
            return Some(DrainResult::Remaining(None));
        }
        self.until = now + (delay + self.feedback_time).min(MAX_PAUSE);
        (self.pauses, self.seconds, self.packets) = (self.pauses + 1, 0.0, 0.0);
        Some(DrainResult::Again)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(ms_since: u64) -> Instant {
        Instant(1_000_000_000) + ms(ms_since)
    }

    /// Drains for 30 ms, and takes a report with the queueing delay `delay` every 10 ms. Up to `last_own_ms`,
    /// the packets were sent before the drain. Later ones were sent 10 ms before their report.
    fn drain(last_own_ms: u64, delay: Duration) -> (Vec<u64>, Option<Duration>) {
        let mut drain = Drain::begin(at(0), ms(10), ms(20), None, false);
        let mut pauses = Vec::new();
        for now in (10..).step_by(10) {
            let sent = if now <= last_own_ms { at(0).before(ms(1)) } else { at(now - 10) };
            match drain.on_report(at(now), delay, 1, sent) {
                None => {}
                Some(DrainResult::Again) => pauses.push(now),
                Some(DrainResult::Remaining(delay)) => return (pauses, delay),
            }
        }
        unreachable!()
    }

    #[test]
    fn a_drain_measures_the_external_delay() {
        assert_eq!(drain(20, ms(7)), (vec![], Some(ms(7))));
    }

    #[test]
    fn a_drain_repeats_while_our_packets_are_on_the_path_and_then_gives_up() {
        let (pauses, delay) = drain(40, ms(7));
        assert_eq!((pauses.len(), delay), (1, Some(ms(7))));
        // Each pause ends before the last of our packets is reported.
        let mut drain = Drain::begin(at(0), ms(10), ms(20), None, false);
        let results: Vec<DrainResult> = (1..100)
            .filter_map(|n| {
                drain.on_report(at(n * 50), ms(7), 1, at(0).before(ms(1)));
                drain.on_report(at(n * 50), ms(7), 1, at(n * 50))
            })
            .collect();
        assert_eq!(
            results[..4],
            [
                DrainResult::Again,
                DrainResult::Again,
                DrainResult::Again,
                DrainResult::Remaining(None)
            ]
        );
    }

    #[test]
    fn our_share_is_a_fraction_of_the_rate_before_a_download() {
        let tuning = Tuning::default();
        let mut external = ExternalDelay::default();
        external.on_sample(at(0), 8e6, 8e6, ms(0));
        external.on_drained(at(1), Some(ms(50)), &tuning);
        assert_eq!(external.floor(&tuning), 2e6);
        external.on_overflow(1e6);
        assert_eq!(external.floor(&tuning), 1e6);
        external.on_drained(at(2), Some(ms(5)), &tuning);
        assert_eq!(external.floor(&tuning), 0.0, "the download is gone");
    }

    #[test]
    fn a_persistent_delay_requires_a_drain_after_several_rounds() {
        let mut external = ExternalDelay::default();
        let mut is_due = |time, estimate, delay| {
            external.on_sample(at(time), estimate, estimate, ms(delay));
            external.has_persistent_delay(at(time), ms(delay), ms(20))
        };
        assert!(!is_due(0, 8e6, 0));
        assert!(!is_due(10, 5e6, 30) && !is_due(100, 5e6, 30));
        assert!(is_due(140, 5e6, 30));
        assert!(!is_due(150, 5e6, 1) && !is_due(160, 5e6, 30), "the delay fell meanwhile");
    }

    #[test]
    fn two_reports_of_a_delay_beyond_our_bytes_indicate_cross_traffic() {
        let tuning = Tuning::default();
        let mut external = ExternalDelay::default();
        assert!(!external.on_report(at(0), ms(100), ms(10), &tuning));
        assert!(!external.on_report(at(50), ms(100), ms(10), &tuning), "too early");
        assert!(external.on_report(at(120), ms(90), ms(10), &tuning));
        assert!(external.may_be_download(&tuning));
        (0..200).for_each(|n| {
            external.on_report(at(200 + n), ms(0), ms(10), &tuning);
        });
        assert!(!external.may_be_download(&tuning), "it decays");
    }
}
