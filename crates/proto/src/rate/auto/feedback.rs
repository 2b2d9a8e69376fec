// SPDX-License-Identifier: Apache-2.0
//! How long it takes to learn what became of a packet, and how much that varies.

use crate::rate::Report;
use crate::time::{Duration, Instant, smooth};

/// Intervals between reports of which the longest counts: where every fifth report is lost,
/// two in a row are among them.
const INTERVALS: usize = 16;
/// A longer interval is a pause of the application.
const LONGEST_INTERVAL: Duration = Duration::from_millis(100);
/// Fewer packets between two reports are no stream of them.
const LEAST_INTERVAL_PACKETS: u64 = 3;
/// The least round trip is that of one to two such spans.
const SPAN: Duration = Duration::from_secs(5);

/// Reports of about a second.
const USUAL: u32 = 64;

/// How long packets wait, smoothed as round trips are.
#[derive(Debug, Default)]
pub(super) struct Jitter {
    mean: Duration,
    deviation: Duration,
    /// The same over about a second.
    usual: Duration,
}

/// How long it takes to learn what became of a packet.
#[derive(Debug)]
pub(super) struct Feedback {
    /// Between the last reports, as the peer's clock has it.
    intervals: [Duration; INTERVALS],
    at: usize,
    last_arrived: Option<u32>,
    /// The least round trip of this span and of the one before.
    least: [Duration; 2],
    span_end: Instant,
}

impl Jitter {
    pub(super) fn add(&mut self, waited: Duration) {
        self.usual = (self.usual * (USUAL - 1) + self.mean.abs_diff(waited)) / USUAL;
        smooth(&mut self.mean, &mut self.deviation, waited);
    }

    pub(super) fn mean(&self) -> Duration {
        self.mean
    }

    /// How much waits vary, over about a second.
    pub(super) fn usual(&self) -> Duration {
        self.usual
    }

    /// More is seen now and then.
    pub(super) fn often(&self) -> Duration {
        self.mean + self.deviation * 2
    }

    /// More is not to be expected.
    pub(super) fn most(&self) -> Duration {
        self.mean + self.deviation * 4
    }
}

impl Feedback {
    pub(super) fn new() -> Self {
        Self {
            intervals: [Duration::ZERO; INTERVALS],
            at: 0,
            last_arrived: None,
            least: [Duration::MAX; 2],
            span_end: Instant::default(),
        }
    }

    pub(super) fn add(&mut self, now: Instant, report: &Report) {
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
    pub(super) fn round_trip(&self) -> Duration {
        let least = self.least[0].min(self.least[1]);
        if least == Duration::MAX { Duration::ZERO } else { least }
    }

    /// At most, as far as it is known.
    pub(super) fn time(&self) -> Duration {
        let interval = self.intervals.iter().max().filter(|it| !it.is_zero());
        interval.map_or(LONGEST_INTERVAL, |interval| *interval + self.round_trip())
    }
}
