// SPDX-License-Identifier: Apache-2.0
//! How a peer's clock stands to ours: for statistics, and to find a message older than it
//! seems. It makes none younger, so that what must be safe does not rest on it.
//!
//! Every packet tells its sender's clock. The least difference between that and
//! our own at its arrival is the offset of the clocks and the shortest way here;
//! each end tells the other its own. Their sum is the shortest round trip, the
//! offset lies between them, and half the round trip bounds the error (as in NTP,
//! RFC 5905, section 10, with every packet a sample).

use crate::time::{Duration, Instant};
use crate::wire::frame::ClockReport;

/// Least differences are taken over one to two such spans: long enough to find a packet
/// that did not wait, short enough that clocks drift little.
const SPAN: Duration = Duration::from_secs(8);
/// Clocks of one kind differ in rate by less (crystals of 20 to 50 ppm).
const DRIFT_PPM: u32 = 50;
/// Drift is told from offsets so far apart, at least and at most.
const DRIFT_MIN: Duration = Duration::from_secs(60);
const DRIFT_MAX: Duration = Duration::from_secs(600);

/// How a peer's clock stands to ours.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClockView {
    /// The peer's time of day less ours, in microseconds, where both are known.
    pub offset_us: Option<i64>,
    /// The error of that, and of one-way delays, is at most this.
    pub bound: Duration,
    /// How much faster the peer's clock runs than ours, in millionths, once that can be told.
    pub drift_ppm: Option<f64>,
}

/// What is known of one peer's clock. All differences are modulo 2^32 us.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    /// Our clock less the peer's at arrival: the least of this span, and of the one before.
    here: [Option<u32>; 2],
    span_end: Instant,
    /// The same as the peer sees it.
    there: Option<u32>,
    /// The peer's time of day less ours, in microseconds.
    wall: Option<i64>,
    /// When an offset was first noted for the drift, and which; then the one to be next.
    history: [Option<(Instant, u32)>; 2],
}

/// `a` less `b`, where they are less than 35 minutes apart.
fn difference(a: u32, b: u32) -> i64 {
    i64::from(a.wrapping_sub(b) as i32)
}

impl Clock {
    /// A packet that was sent at `time` by the peer's clock has arrived.
    pub(crate) fn on_packet(&mut self, now: Instant, time: u32) {
        if now >= self.span_end {
            let stale = now >= self.span_end + SPAN;
            self.here = [None, if stale { None } else { self.here[0] }];
            self.span_end = now + SPAN;
        }
        let found = now.wire_micros().wrapping_sub(time);
        let least = self.here[0].filter(|least| difference(found, *least) >= 0);
        self.here[0] = Some(least.unwrap_or(found));
    }

    /// The least difference, to be told to the peer.
    pub(crate) fn least(&self) -> Option<u32> {
        let both = self.here[0].zip(self.here[1]);
        let earlier = both.map(|(a, b)| if difference(a, b) < 0 { a } else { b });
        earlier.or(self.here[0]).or(self.here[1])
    }

    /// The peer tells its least difference, and its time of day when its clock was `time`;
    /// `wall` is ours now.
    pub(crate) fn on_report(
        &mut self,
        now: Instant,
        time: u32,
        report: &ClockReport,
        wall: Option<i64>,
    ) {
        self.there = report.least;
        let transit = self.transit(now, time);
        let walls = report.wall.zip(wall).zip(transit);
        self.wall = walls.map(|((theirs, ours), transit)| {
            theirs.saturating_sub(ours).saturating_add(transit.as_micros() as i64)
        });
        let Some((offset, _)) = self.offset() else { return };
        let [first, next] = &mut self.history;
        let since = |slot: &Option<(Instant, u32)>| slot.map(|(at, _)| now.since(at));
        if first.is_none() {
            *first = Some((now, offset));
        } else if since(next).is_none_or(|age| age >= DRIFT_MAX / 2) {
            if next.is_some() {
                *first = *next;
            }
            *next = Some((now, offset));
        }
    }

    /// The peer's clock less ours, and the shortest round trip in microseconds.
    fn offset(&self) -> Option<(u32, u32)> {
        let (here, there) = (self.least()?, self.there?);
        // Less than nothing where drift has overtaken an old least difference.
        let round_trip = difference(here, 0u32.wrapping_sub(there)).max(0) as u32;
        Some((there.wrapping_sub(round_trip / 2), round_trip))
    }

    /// How long a packet of that time was on its way.
    pub(crate) fn transit(&self, now: Instant, time: u32) -> Option<Duration> {
        let (offset, _) = self.offset()?;
        let sent = time.wrapping_sub(offset);
        let micros = difference(now.wire_micros(), sent);
        Some(Duration::from_micros(micros.max(0) as u64))
    }

    /// How much longer than the fastest of late a packet of that time was on its way.
    pub(crate) fn waited(&self, now: Instant, time: u32) -> Option<Duration> {
        let least = self.least()?;
        let micros = difference(now.wire_micros().wrapping_sub(time), least);
        Some(Duration::from_micros(micros.max(0) as u64))
    }

    /// How long a packet of that time was on its way, at least and at most.
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
        let drift_ppm = self.history[0].filter(|(at, _)| now.since(*at) >= DRIFT_MIN);
        let drift_ppm = drift_ppm
            .map(|(at, before)| difference(offset, before) as f64 / now.since(at).as_secs_f64());
        Some(ClockView { offset_us: self.wall, bound, drift_ppm })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Two clocks that started `apart` from each other, the second too fast by `ppm`, and packets
    /// both ways that take 2 ms and sometimes more; every time both tell each other.
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
            // Ours to the peer, then its own to us.
            there.on_packet(their(at + 2 * MS + late), Instant(at).wire_micros());
            at += 50 * MS;
            let (sent, arrived) = (their(at).wire_micros(), Instant(at + 2 * MS + late));
            here.on_packet(arrived, sent);
            let wall = Some(their(at).0 as i64 / 1000 + 5_000_000);
            let report = ClockReport { least: there.least(), wall };
            here.on_report(arrived, sent, &report, Some(arrived.0 as i64 / 1000));
            at += 50 * MS;
        }
        let offset = their(at).0 as i64 - at as i64;
        (Instant(at), here, offset / 1000)
    }

    #[test]
    fn the_offset_is_right_within_its_bound_wherever_the_clocks_stand() {
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
    fn nothing_is_said_before_both_ends_have_told() {
        let mut clock = Clock::default();
        clock.on_packet(Instant(5 * MS), 7);
        assert_eq!(clock.view(Instant(6 * MS)), None);
        assert_eq!(clock.transit(Instant(6 * MS), 7), None);
    }
}
