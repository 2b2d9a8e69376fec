// SPDX-License-Identifier: Apache-2.0
//! Delay that our own packets do not cause: a radio that aggregates frames, cross traffic, a path
//! that became longer. A test distinguishes it from our queue: the sender pauses until all of its
//! own packets have left the path, and measures the delay that remains.

use super::cross_traffic::CrossTraffic;
use crate::rate::FULL_PACKET;
use crate::time::{Duration, Instant, serialization_time};

/// Decay of the peak rate with each sample: by half within seconds.
const PEAK_DECAY: f64 = 1.0 - 1.0 / 256.0;
/// Delay counts as unchanged while at least this fraction of it remains.
const UNCHANGED_FRACTION: f64 = 0.5;
/// The rate counts as reduced below this fraction of the estimate before the delay rose.
const REDUCED_FRACTION: f64 = 0.75;
/// The external delay decays when a report shows less than this fraction of it,
const DECAY_FRACTION: f64 = 0.6;
/// by this part of the difference.
const DECAY_DIVISOR: u32 = 16;
/// A longer external delay shows a sender that fills the queue however others behave.
const CROSS_TRAFFIC_DELAY: Duration = Duration::from_millis(20);
/// Nor does a delay within this multiple of one at which a probe found room.
const NOISE_FACTOR: f64 = 1.5;
/// Two observations of an excess delay are this far apart: a single one may be a scheduling delay.
const EXCESS_SPACING: Duration = Duration::from_millis(100);
const EXCESS_MEMORY: Duration = Duration::from_secs(2);
/// Tests take at most one part in this many of the time.
const TEST_INTERVAL_FACTOR: u32 = 4;
/// The rest after a test, unless the delay suggests that the result has changed.
const MIN_REST: Duration = Duration::from_secs(2);
const MAX_REST: Duration = Duration::from_secs(60);
/// The rest alongside cross traffic, whose queue varies in any case.
const CROSS_TRAFFIC_REST: Duration = Duration::from_secs(8);
/// The longest pause of a test.
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// Pauses of a test, after which it ends without a result.
const MAX_PAUSES: u32 = 4;
/// A shorter delay is not worth a test.
const MIN_TESTED_DELAY: Duration = Duration::from_millis(4);
/// Neither is the serialization time of this many packets: half a packet is the target queue, and
/// one is the packet itself where other packets are short.
const OWN_PACKETS: f64 = 1.5;

/// The delay that remains whatever we send.
#[derive(Debug, Default)]
pub(super) struct ExternalDelay {
    measured: Duration,
    cross_traffic: CrossTraffic,
    /// The longest delay at which a probe found room: it is not that of cross traffic.
    noise: Duration,
    rise: Option<DelayRise>,
    test: Option<DrainTest>,
    excess: Option<Excess>,
    /// End of the last test.
    last_test: Instant,
    /// No other test is due for this time after it.
    rest: Duration,
    /// The highest recent estimate, in bits per second.
    peak: f64,
}

/// The present delay, as the controller measures it.
#[derive(Debug)]
pub(super) struct DelayState {
    /// Queueing delay beyond the known external delay: the lower of the smoothed value and the
    /// last sample.
    pub(super) lower: Duration,
    /// The higher of the two.
    pub(super) higher: Duration,
    /// Delay attributable to our own bytes.
    pub(super) own: Duration,
    /// Bandwidth estimate in bits per second.
    pub(super) estimate: f64,
    /// Time that the bottleneck takes to send all outstanding bytes.
    pub(super) drain_time: Duration,
    /// Time from sending a packet until its report.
    pub(super) feedback_time: Duration,
}

/// The moment at which the queueing delay rose.
#[derive(Debug)]
struct DelayRise {
    since: Instant,
    queueing_delay: Duration,
    /// Bandwidth estimate until then.
    estimate: f64,
}

/// The first observation of a delay that our own bytes cannot explain.
#[derive(Debug, Clone, Copy)]
struct Excess {
    first: Instant,
    delay: Duration,
}

/// A pause in sending, and the delay measured after it.
#[derive(Debug, Clone, Default)]
struct DrainTest {
    /// Start of the first pause, and the last report of a packet sent before.
    begun: Instant,
    last_own: Instant,
    /// Pauses so far.
    pauses: u32,
    /// End of the pause.
    until: Instant,
    /// Duration of the measurement after the pause.
    feedback_time: Duration,
    /// Sum of the delays measured, over `packets`.
    total_delay: Duration,
    packets: u64,
    /// The state before the pause; see [`DelayState`].
    lower: Duration,
    higher: Duration,
    own: Duration,
    /// Bandwidth estimate before the delay rose.
    estimate: f64,
}

/// The part of a report that concerns external delay.
#[derive(Debug)]
pub(super) struct Observation {
    /// Average queueing delay, external delay included.
    pub(super) total_delay: Duration,
    pub(super) packets: u64,
    /// When the newest of these packets was sent.
    pub(super) sent: Instant,
    /// The longest time for which our own outstanding bytes can occupy the path.
    pub(super) own: Duration,
    /// Bandwidth estimate in bits per second where no measurement exists.
    pub(super) guess: f64,
}

/// The result of a test or of repeated observation.
#[derive(Debug)]
pub(super) enum TestResult {
    /// A test found external delay.
    External,
    /// Reports alone showed external delay.
    Observed,
    /// Inconclusive: pause again for this time.
    Repeat(Duration),
}

impl ExternalDelay {
    /// The delay to subtract from all queueing delays: a quarter above the last measurement, since
    /// it varies.
    pub(super) fn delay(&self) -> Duration {
        self.measured * 5 / 4
    }

    /// The cross traffic in the bottleneck, if there is any.
    pub(super) fn cross_traffic(&self) -> Option<&CrossTraffic> {
        self.has_cross_traffic().then_some(&self.cross_traffic)
    }

    pub(super) fn cross_traffic_mut(&mut self) -> Option<&mut CrossTraffic> {
        self.has_cross_traffic().then_some(&mut self.cross_traffic)
    }

    fn has_cross_traffic(&self) -> bool {
        self.measured > CROSS_TRAFFIC_DELAY.max(self.noise.mul_f64(NOISE_FACTOR))
    }

    /// A probe found room for more at this delay.
    pub(super) fn on_capacity(&mut self, delay: Duration) {
        self.measured = self.measured.max(delay);
        self.noise = self.noise.max(self.measured);
        self.rise = None;
    }

    /// Records that packets are queued and that the sender goes below `estimate`.
    pub(super) fn on_delay_rise(&mut self, now: Instant, queueing_delay: Duration, estimate: f64) {
        self.rise.get_or_insert(DelayRise { since: now, queueing_delay, estimate });
    }

    /// Records that the queue is at its target at the present `estimate`.
    pub(super) fn on_low_delay(&mut self, estimate: f64) {
        if self.cross_traffic().is_none() {
            self.cross_traffic.on_absence();
        }
        self.rise.take_if(|rise| estimate > rise.estimate * REDUCED_FRACTION);
    }

    /// Serialization time of a full packet at the peak rate.
    fn packet_time(&self) -> Duration {
        serialization_time(FULL_PACKET, self.peak as u64)
    }

    pub(super) fn is_testing(&self) -> bool {
        self.test.is_some()
    }

    /// Begins a test if one is due; returns the time for which nothing may be sent.
    pub(super) fn begin_test_if_due(
        &mut self,
        now: Instant,
        state: &DelayState,
    ) -> Option<Duration> {
        if self.last_test == Instant::default() {
            (self.last_test, self.rest) = (now, MIN_REST);
        }
        let &DelayState { lower, higher, own, estimate, drain_time, feedback_time } = state;
        self.peak = estimate.max(self.peak * PEAK_DECAY);
        let pause = ((self.delay() + lower).max(drain_time) + feedback_time).min(MAX_PAUSE);
        let urgent = self.rise_persists(now, state) || self.rest.is_zero();
        let estimate = self.rise.as_ref().map_or(estimate, |rise| rise.estimate.max(estimate));
        let rest = if urgent { pause * TEST_INTERVAL_FACTOR } else { self.rest };
        let since = now.since(self.last_test);
        let min_delay = MIN_TESTED_DELAY.max(self.packet_time().mul_f64(OWN_PACKETS));
        let is_worthwhile = lower >= min_delay && since >= rest;
        let is_due = self.cross_traffic().is_some() && since >= MAX_REST;
        if !is_worthwhile && !is_due {
            return None;
        }
        self.rise = None;
        let begun = now;
        let test = DrainTest {
            begun,
            feedback_time,
            lower,
            higher,
            own,
            estimate,
            ..DrainTest::default()
        };
        self.begin(now + pause, test);
        Some(pause)
    }

    fn begin(&mut self, until: Instant, test: DrainTest) {
        self.last_test = until;
        let (total_delay, packets, pauses) = (Duration::ZERO, 0, test.pauses + 1);
        self.test = Some(DrainTest { until, total_delay, packets, pauses, ..test });
    }

    /// Pauses again; `None` after too many pauses, which show nothing.
    fn repeat(
        &mut self,
        now: Instant,
        total_delay: Duration,
        test: DrainTest,
    ) -> Option<TestResult> {
        let pause = (total_delay + test.feedback_time).min(MAX_PAUSE);
        if test.pauses >= MAX_PAUSES {
            self.rest = MIN_REST;
            return None;
        }
        self.begin(now + pause, test);
        Some(TestResult::Repeat(pause))
    }

    /// Whether the delay has persisted although the rate has been reduced for some time.
    fn rise_persists(&self, now: Instant, state: &DelayState) -> bool {
        let Some(rise) = &self.rise else { return false };
        let lasted = now.since(rise.since) > rise.queueing_delay * 2 + state.feedback_time * 3;
        let reduced = state.estimate < rise.estimate * REDUCED_FRACTION;
        let unchanged = state.lower >= rise.queueing_delay.mul_f64(UNCHANGED_FRACTION);
        lasted && reduced && unchanged
    }

    /// The external delay that two observations show without a test: both are longer than our
    /// `own` bytes can take.
    fn observe_excess(
        &mut self,
        now: Instant,
        total_delay: Duration,
        own: Duration,
    ) -> Option<Duration> {
        if self.test.is_some() || total_delay <= self.delay().max(own) + CROSS_TRAFFIC_DELAY {
            self.excess = None;
            return None;
        }
        let recent = self.excess.filter(|excess| now.since(excess.first) <= EXCESS_MEMORY);
        let excess = recent.unwrap_or(Excess { first: now, delay: total_delay });
        self.excess = Some(excess);
        if now.since(excess.first) < EXCESS_SPACING {
            return None;
        }
        self.excess = None;
        Some(total_delay.min(excess.delay))
    }

    /// Takes a report; returns a result if it shows external delay or leaves a test inconclusive.
    pub(super) fn on_report(&mut self, now: Instant, seen: &Observation) -> Option<TestResult> {
        let &Observation { total_delay, packets, sent, own, guess } = seen;
        if total_delay < self.measured.mul_f64(DECAY_FRACTION) {
            self.measured = self.measured - (self.measured - total_delay) / DECAY_DIVISOR;
        }
        if let Some(delay) = self.observe_excess(now, total_delay, own) {
            match &self.rise {
                _ if self.cross_traffic().is_some() => {}
                Some(rise) => self.cross_traffic.on_detected(now, rise.estimate),
                None => self.cross_traffic.on_detected_while_idle(now, guess),
            }
            self.measured = delay;
            return Some(TestResult::Observed);
        }
        let test = self.test.as_mut()?;
        if sent < test.begun {
            test.last_own = now;
        }
        if sent < test.until {
            return None;
        }
        test.total_delay += total_delay * u32::try_from(packets).unwrap_or(u32::MAX);
        test.packets += packets;
        let test = self.test.take_if(|test| sent >= test.until + test.feedback_time)?;
        self.finish_test(now, test)
    }

    fn finish_test(&mut self, now: Instant, test: DrainTest) -> Option<TestResult> {
        let total_delay = test.total_delay / u32::try_from(test.packets).unwrap_or(u32::MAX).max(1);
        if test.last_own >= test.until {
            // Our own packets were still on the path when the pause ended.
            return self.repeat(now, total_delay, test);
        }
        let remaining = total_delay.saturating_sub(self.delay());
        let packet = self.packet_time();
        // Few packets do not show a queue of our own: attribute a third of the delay to it.
        let own = test.own.max(test.lower / 3);
        if test.lower.saturating_sub(remaining) >= own.mul_f64(UNCHANGED_FRACTION) {
            self.rest = (self.rest * 2).clamp(MIN_REST, MAX_REST);
            let delay = total_delay.saturating_sub(packet);
            if delay < self.measured.mul_f64(DECAY_FRACTION) {
                self.measured = delay;
            }
            return None;
        }
        self.rest = Duration::ZERO;
        if remaining > test.higher * 2 {
            // The delay was not fully visible before the pause, or it still grows.
            let visible = DrainTest { lower: remaining, higher: remaining, ..test };
            return self.repeat(now, total_delay, visible);
        }
        self.measured += remaining.saturating_sub(packet);
        self.cross_traffic.on_detected(now, test.estimate);
        if self.cross_traffic().is_some() {
            self.rest = CROSS_TRAFFIC_REST;
        }
        Some(TestResult::External)
    }
}
