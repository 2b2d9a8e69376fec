// SPDX-License-Identifier: Apache-2.0
//! Comparison with a peer's clock, for statistics and to detect messages older than they seem. The
//! comparison never makes a message seem younger, so that safety does not depend on it.
//!
//! Every packet that is not relayed carries its sender's clock. The least difference between our
//! clock at arrival and the clock in the packet is the offset of the clocks plus the shortest
//! one-way delay. Each node reports its least difference to the other. The sum of both is the
//! shortest round trip, and half of it bounds the error of the offset (as in NTP, RFC 5905, section
//! 10, with every such packet as a sample).

use crate::time::{Duration, Instant};
use crate::wire::frame::ClockReport;

/// Length of a span. The least difference is taken over the present span and the previous one: long enough to
/// find a packet without queueing, short enough for little drift.
const SPAN: Duration = Duration::from_secs(8);
/// Maximum difference in rate between two clocks (crystals of 20 to 50 ppm).
const DRIFT_PPM: u32 = 50;
/// Least time between two offsets that measure drift.
const DRIFT_MIN: Duration = Duration::from_secs(60);
/// Greatest time between two offsets that measure drift.
const DRIFT_MAX: Duration = Duration::from_secs(600);

/// The comparison with a peer's clock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClockView {
    /// The peer's time of day minus ours, in microseconds, if both are known.
    pub offset_us: Option<i64>,
    /// Bound of the error of the offset and of one-way delays.
    pub bound: Duration,
    /// Rate of the peer's clock relative to ours, in millionths (positive: faster), once measured.
    pub drift_ppm: Option<f64>,
}

/// The least recent difference between our clock at arrival and the peer's in the packet, in
/// microseconds modulo 2^32.
#[derive(Debug, Default)]
pub(crate) struct LeastDifference {
    /// The least difference of this span and of the previous one.
    spans: [Option<u32>; 2],
    span_end: Instant,
}

/// The comparison with one peer's clock. All differences are in microseconds modulo 2^32.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    /// The least difference over the packets of all links.
    local: LeastDifference,
    /// The least difference that the peer reported.
    remote: Option<u32>,
    /// The peer's time of day minus ours, in microseconds.
    wall_offset: Option<i64>,
    /// The offset from which drift is measured, and the later offset that will replace it.
    history: [Option<PastOffset>; 2],
}

/// An offset, and the time of its measurement.
#[derive(Debug, Clone, Copy)]
struct PastOffset {
    at: Instant,
    offset: u32,
}

/// Returns `a` minus `b`, in microseconds. The two times are less than 35 minutes apart.
fn difference(a: u32, b: u32) -> i64 {
    i64::from(a.wrapping_sub(b) as i32)
}

impl LeastDifference {
    /// Records the arrival of a packet that the peer sent at `time` by its clock. Returns its
    /// queueing delay: its time on the path beyond that of the fastest recent packet.
    pub(crate) fn on_packet(&mut self, now: Instant, time: u32) -> Duration {
        if now >= self.span_end {
            let stale = now >= self.span_end + SPAN;
            self.spans = [None, if stale { None } else { self.spans[0] }];
            self.span_end = now + SPAN;
        }
        let found = now.wire_micros().wrapping_sub(time);
        let least = self.spans[0].filter(|least| difference(found, *least) >= 0);
        self.spans[0] = Some(least.unwrap_or(found));
        let micros = difference(found, self.least_difference().unwrap_or(found));
        Duration::from_micros(micros.max(0) as u64)
    }

    fn least_difference(&self) -> Option<u32> {
        let both = self.spans[0].zip(self.spans[1]);
        let earlier = both.map(|(a, b)| if difference(a, b) < 0 { a } else { b });
        earlier.or(self.spans[0]).or(self.spans[1])
    }
}

impl Clock {
    /// Records the arrival of a packet that the peer sent at `time` by its clock.
    pub(crate) fn on_packet(&mut self, now: Instant, time: u32) {
        self.local.on_packet(now, time);
    }

    /// The least recent difference, to be reported to the peer.
    pub(crate) fn least_difference(&self) -> Option<u32> {
        self.local.least_difference()
    }

    /// Applies a report that the peer sent at `time` by its clock. `wall` is our time of day now.
    pub(crate) fn on_report(
        &mut self,
        now: Instant,
        time: u32,
        report: &ClockReport,
        wall: Option<i64>,
    ) {
        self.remote = report.least;
        let transit = self.transit(now, time);
        let walls = report.wall.zip(wall).zip(transit);
        self.wall_offset = walls.map(|((theirs, ours), transit)| {
            theirs.saturating_sub(ours).saturating_add(transit.as_micros() as i64)
        });
        let Some((offset, _)) = self.offset() else { return };
        let [first, next] = &mut self.history;
        let since = |past: &Option<PastOffset>| past.map(|it| now.since(it.at));
        if first.is_none() {
            *first = Some(PastOffset { at: now, offset });
        } else if since(next).is_none_or(|age| age >= DRIFT_MAX / 2) {
            if next.is_some() {
                *first = *next;
            }
            *next = Some(PastOffset { at: now, offset });
        }
    }

    /// The peer's clock minus ours, and the shortest round trip, in microseconds.
    fn offset(&self) -> Option<(u32, u32)> {
        let (here, there) = (self.least_difference()?, self.remote?);
        // Negative where drift has overtaken an old least difference.
        let round_trip = difference(here, 0u32.wrapping_sub(there)).max(0) as u32;
        Some((there.wrapping_sub(round_trip / 2), round_trip))
    }

    /// Returns the one-way delay of a packet that the peer sent at `time` by its clock.
    pub(crate) fn transit(&self, now: Instant, time: u32) -> Option<Duration> {
        let (offset, _) = self.offset()?;
        let sent = time.wrapping_sub(offset);
        let micros = difference(now.wire_micros(), sent);
        Some(Duration::from_micros(micros.max(0) as u64))
    }

    /// Returns the lower and upper bound of the one-way delay of a packet that the peer sent at
    /// `time` by its clock.
    pub(crate) fn transit_range(&self, now: Instant, time: u32) -> Option<(Duration, Duration)> {
        let (transit, bound) = (self.transit(now, time)?, self.bound()?);
        Some((transit.saturating_sub(bound), transit + bound))
    }

    fn bound(&self) -> Option<Duration> {
        let (_, round_trip) = self.offset()?;
        let drift = SPAN * 2 * DRIFT_PPM / 1_000_000;
        Some(Duration::from_micros(u64::from(round_trip) / 2) + drift)
    }

    /// See [`ClockView`].
    pub(crate) fn view(&self, now: Instant) -> Option<ClockView> {
        let ((offset, _), bound) = (self.offset()?, self.bound()?);
        let first = self.history[0].filter(|it| now.since(it.at) >= DRIFT_MIN);
        let drift_ppm =
            first.map(|it| difference(offset, it.offset) as f64 / now.since(it.at).as_secs_f64());
        Some(ClockView { offset_us: self.wall_offset, bound, drift_ppm })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Two clocks with an initial difference of `apart`, the second too fast by `ppm`. Packets in
    /// both directions take 2 ms and sometimes 9 ms, and both ends report regularly.
    fn after(seconds: u64, apart: i64, ppm: i64) -> (Instant, Clock, i64) {
        let (mut here, mut there) = (Clock::default(), Clock::default());
        let their = |at: u64| {
            let fast = at as i64 / 1_000_000 * ppm;
            Instant((at as i64 + apart + fast) as u64)
        };
        let start = 10_000_000 * MS;
        let mut at = start;
        while at < start + seconds * 1000 * MS {
            let late = if (at / (100 * MS)).is_multiple_of(3) { 0 } else { 7 * MS };
            // One packet to the peer, then one from it.
            there.on_packet(their(at + 2 * MS + late), Instant(at).wire_micros());
            at += 50 * MS;
            let (sent, arrived) = (their(at).wire_micros(), Instant(at + 2 * MS + late));
            here.on_packet(arrived, sent);
            let wall = Some(their(at).0 as i64 / 1000 + 5_000_000);
            let report = ClockReport { least: there.least_difference(), wall };
            here.on_report(arrived, sent, &report, Some(arrived.0 as i64 / 1000));
            at += 50 * MS;
        }
        let offset = their(at).0 as i64 - at as i64;
        (Instant(at), here, offset / 1000)
    }

    #[test]
    fn the_clock_offset_is_within_its_bound() {
        for apart in [0, 123_456_789, -9_000_000_000_000, 4_000_000_000_000] {
            let (now, clock, offset) = after(30, apart, 0);
            let view = clock.view(now).unwrap();
            let wall = offset + 5_000_000;
            let error = (view.offset_us.unwrap() - wall).unsigned_abs();
            assert!(error <= view.bound.as_micros() as u64, "{error} us, {view:?}");
            assert!(view.bound < Duration::from_millis(4), "{view:?}");
        }
    }

    #[test]
    fn drift_is_found_and_stays_within_the_bound() {
        for ppm in [-40, 0, 25] {
            let (now, clock, offset) = after(700, 77_000_000, ppm);
            let view = clock.view(now).unwrap();
            let error = (view.offset_us.unwrap() - offset - 5_000_000).unsigned_abs();
            assert!(error <= view.bound.as_micros() as u64, "{error} us, {view:?}");
            let found = view.drift_ppm.unwrap();
            assert!((found - ppm as f64).abs() < 3.0, "{found} for {ppm}");
        }
    }

    #[test]
    fn queueing_delay_is_relative_to_the_fastest_recent_packet() {
        let mut least = LeastDifference::default();
        let mut delay = |at: u64, transit: u64| {
            let sent = Instant((100_000 + at) * MS).wire_micros();
            least.on_packet(Instant((100_000 + at + transit) * MS), sent)
        };
        let delays = [delay(0, 25), delay(10, 31), delay(20, 22), delay(30, 25)];
        assert_eq!(delays.map(|it| it.as_micros()), [0, 6000, 0, 3000]);
        assert_eq!(delay(9000, 25).as_micros(), 3000, "the span before counts");
        assert_eq!(delay(60_000, 25), Duration::ZERO, "and no earlier one");
    }

    #[test]
    fn the_offset_needs_reports_of_both_ends() {
        let mut clock = Clock::default();
        clock.on_packet(Instant(5 * MS), 7);
        assert_eq!(clock.view(Instant(6 * MS)), None);
        assert_eq!(clock.transit(Instant(6 * MS), 7), None);
    }
}
