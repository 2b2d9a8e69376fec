// SPDX-License-Identifier: Apache-2.0
//! The time until the outcome of a packet is known, and the jitter of the queueing delay.

use crate::rate::controller::Report;
use crate::time::{Duration, Instant, smooth};

/// Number of recent report intervals. The longest of them counts. Where every fifth report is lost, this
/// number includes two consecutive losses.
const INTERVALS: usize = 16;
/// A longer interval is a pause of the application.
const MAX_INTERVAL: Duration = Duration::from_millis(100);
/// An interval with fewer packets does not count: the application was not sending a stream.
const MIN_INTERVAL_PACKETS: u64 = 3;
/// Length of a span. The least round trip is taken over the present span and the previous one.
const SPAN: Duration = Duration::from_secs(5);

/// Number of reports in about a second.
const LONG_TERM_REPORTS: u32 = 64;

/// The queueing delay, smoothed as round trips are.
#[derive(Debug, Default)]
pub(super) struct Jitter {
    mean: Duration,
    deviation: Duration,
    /// The deviation over about a second.
    long_term_deviation: Duration,
}

/// The time until the outcome of a packet is known.
#[derive(Debug)]
pub(super) struct Feedback {
    /// Recent intervals between reports by the peer's clock, as a ring.
    intervals: [Duration; INTERVALS],
    next_interval: usize,
    /// The longest of the intervals. It is stored because it is needed more often than it changes.
    longest: Duration,
    last_arrival: Option<u32>,
    /// The least round trip of this span and of the previous one.
    min_rtt: [Duration; 2],
    span_end: Instant,
    /// The round trip of the last report.
    rtt: Duration,
}

impl Jitter {
    pub(super) fn add(&mut self, queueing_delay: Duration) {
        let deviation = self.mean.abs_diff(queueing_delay);
        self.long_term_deviation =
            (self.long_term_deviation * (LONG_TERM_REPORTS - 1) + deviation) / LONG_TERM_REPORTS;
        smooth(&mut self.mean, &mut self.deviation, queueing_delay);
    }

    pub(super) fn mean(&self) -> Duration {
        self.mean
    }

    pub(super) fn long_term_deviation(&self) -> Duration {
        self.long_term_deviation
    }

    /// A delay that is exceeded only now and then.
    pub(super) fn mean_plus_2_deviations(&self) -> Duration {
        self.mean + self.deviation * 2
    }

    /// A delay that is rarely exceeded.
    pub(super) fn mean_plus_4_deviations(&self) -> Duration {
        self.mean + self.deviation * 4
    }
}

impl Feedback {
    pub(super) fn new() -> Self {
        Self {
            intervals: [Duration::ZERO; INTERVALS],
            next_interval: 0,
            longest: Duration::ZERO,
            last_arrival: None,
            min_rtt: [Duration::MAX; 2],
            span_end: Instant::default(),
            rtt: Duration::ZERO,
        }
    }

    pub(super) fn add(&mut self, now: Instant, report: &Report) {
        if now >= self.span_end {
            self.min_rtt = [Duration::MAX, self.min_rtt[0]];
            self.span_end = now + SPAN;
        }
        self.rtt = report.rtt;
        self.min_rtt[0] = self.min_rtt[0].min(report.rtt);
        let before = self.last_arrival.replace(report.arrival_micros);
        let interval = before.map_or(0, |before| report.arrival_micros.wrapping_sub(before));
        let interval = Duration::from_micros(u64::from(interval));
        if interval <= MAX_INTERVAL && report.acked_packets >= MIN_INTERVAL_PACKETS {
            self.intervals[self.next_interval] = interval;
            self.next_interval = (self.next_interval + 1) % INTERVALS;
            self.longest = self.intervals.iter().copied().max().unwrap_or_default();
        }
    }

    /// The round trip of the last report.
    pub(super) fn rtt(&self) -> Duration {
        self.rtt
    }

    /// The least recent round trip; zero before the first sample.
    pub(super) fn min_rtt(&self) -> Duration {
        let min_rtt = self.min_rtt[0].min(self.min_rtt[1]);
        if min_rtt == Duration::MAX { Duration::ZERO } else { min_rtt }
    }

    /// The longest time from sending a packet until its report, external delay excluded.
    pub(super) fn max_time(&self) -> Duration {
        let interval = if self.longest.is_zero() { MAX_INTERVAL } else { self.longest };
        interval + self.min_rtt()
    }
}
