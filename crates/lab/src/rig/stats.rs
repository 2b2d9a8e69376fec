// SPDX-License-Identifier: Apache-2.0
//! Conversion of raw samples to the figures of a report. Nanoseconds in, milliseconds out.

use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::HashSet;
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

/// One message that reached a callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// The number, from 0.
    pub sequence: u64,
    /// Timestamp of the publisher.
    pub sent_ns: u64,
    /// Time at which the callback received the message.
    pub received_ns: u64,
}

impl Arrival {
    /// Parses `sequence,sent_ns,received_ns`.
    pub fn parse(line: &str) -> Option<Self> {
        row(line).map(Self::from)
    }

    /// Returns the delay in milliseconds.
    pub fn delay_ms(&self) -> f64 {
        ms(self.received_ns.saturating_sub(self.sent_ns))
    }
}

impl From<[u64; 3]> for Arrival {
    fn from([sequence, sent_ns, received_ns]: [u64; 3]) -> Self {
        Self { sequence, sent_ns, received_ns }
    }
}

/// Raw samples of one flow.
#[derive(Debug, Clone, Default)]
pub struct Samples {
    /// Time of sending of each message, by number.
    pub sent_ns: Vec<u64>,
    /// Received messages in order of arrival.
    pub arrivals: Vec<Arrival>,
}

/// Figures of one flow over one transport.
#[derive(Debug, Clone, Serialize, PartialEq)]
pub struct Summary {
    /// Messages published.
    pub sent: usize,
    /// Distinct messages received.
    pub received: usize,
    /// Repeated receptions of a message.
    pub duplicates: usize,
    /// Share of sent messages that were received, percent.
    pub mdr_percent: f64,
    /// Delay from the publisher's timestamp to the subscriber's callback; `None` if nothing
    /// arrived.
    pub delay_ms: Option<Delay>,
    /// Time between arrivals; `None` for fewer than two arrivals.
    pub gap_ms: Option<Gap>,
    /// Scheduling delay of the publisher against its own schedule. A large value shows a machine
    /// that was busy with other work, which makes the other figures unreliable. `None` without a
    /// schedule.
    pub publisher_late_ms: Option<Lateness>,
}

/// Scheduling delay of a publisher in milliseconds, against the earliest start that fits its
/// messages.
#[derive(Debug, Clone, Copy, Serialize, PartialEq)]
pub struct Lateness {
    /// 99th percentile (nearest rank).
    pub p99: f64,
    /// Largest.
    pub max: f64,
}

/// Delays in milliseconds.
#[derive(Debug, Clone, Copy, Serialize, PartialEq)]
pub struct Delay {
    /// Mean.
    pub mean: f64,
    /// Median (nearest rank).
    pub p50: f64,
    /// 99th percentile (nearest rank).
    pub p99: f64,
    /// Largest.
    pub max: f64,
}

/// Times between arrivals in milliseconds: J_d of the Pound paper.
#[derive(Debug, Clone, Copy, Serialize, PartialEq)]
pub struct Gap {
    /// Mean.
    pub mean: f64,
    /// Standard deviation of the population.
    pub std: f64,
}

const NANOSECONDS_PER_MS: f64 = 1e6;

impl Samples {
    /// Returns the number of messages that arrived within a span, in nanoseconds.
    pub fn arrived_count(&self, span: Range<u64>) -> usize {
        self.arrivals.iter().filter(|it| span.contains(&it.received_ns)).count()
    }

    /// Returns the number of messages that were sent within a span, in nanoseconds.
    pub fn published_count(&self, span: Range<u64>) -> usize {
        self.sent_ns.iter().filter(|at| span.contains(at)).count()
    }

    /// Returns the delays, in milliseconds, of messages that were sent within a span and arrived.
    pub fn delays(&self, span: Range<u64>) -> Vec<f64> {
        let within = self.arrivals.iter().filter(|it| span.contains(&it.sent_ns));
        within.map(Arrival::delay_ms).collect()
    }

    /// Reads the files that a publisher and a subscriber wrote.
    pub fn read(sent_file: &Path, received_file: &Path) -> Result<Self> {
        let sent = rows::<2>(sent_file)?;
        let received = rows::<3>(received_file)?;
        Ok(Self {
            sent_ns: sent.into_iter().map(|[_, sent_ns]| sent_ns).collect(),
            arrivals: received.into_iter().map(Arrival::from).collect(),
        })
    }

    /// Computes the figures; `period` is the publisher's period, if it has one.
    pub fn summary(&self, period: Option<Duration>) -> Summary {
        let mut seen = HashSet::new();
        let firsts: Vec<Arrival> =
            self.arrivals.iter().copied().filter(|arrival| seen.insert(arrival.sequence)).collect();
        let delays = firsts.iter().map(Arrival::delay_ms).collect();
        let gaps =
            firsts.windows(2).map(|pair| ms(pair[1].received_ns - pair[0].received_ns)).collect();
        Summary {
            sent: self.sent_ns.len(),
            received: firsts.len(),
            duplicates: self.arrivals.len() - firsts.len(),
            mdr_percent: 100.0 * firsts.len() as f64 / self.sent_ns.len().max(1) as f64,
            delay_ms: delay(delays),
            gap_ms: gap(gaps),
            publisher_late_ms: period.and_then(|period| self.lateness(period)),
        }
    }

    fn lateness(&self, period: Duration) -> Option<Lateness> {
        let period_ns = period.as_nanos() as u64;
        let starts = self
            .sent_ns
            .iter()
            .zip(0..)
            .map(|(sent, k): (&u64, u64)| sent.saturating_sub(k * period_ns));
        let earliest = starts.clone().min()?;
        lateness(starts.map(|start| ms(start - earliest)).collect())
    }
}

/// Returns figures of scheduling delays in milliseconds; `None` if there are none.
pub fn lateness(mut late: Vec<f64>) -> Option<Lateness> {
    late.sort_by(f64::total_cmp);
    let max = *late.last()?;
    Some(Lateness { p99: nearest_rank(&late, 0.99), max })
}

/// Returns the middle value, or the mean of the two middle values; `None` if there are none.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let upper = upper_median(&sorted)?;
    Some((sorted[(sorted.len() - 1) / 2] + upper) / 2.0)
}

/// Returns the [`median`]; NaN if there are no values.
pub fn middle(values: &[f64]) -> f64 {
    median(values.iter().copied()).unwrap_or(f64::NAN)
}

/// Returns the middle value; of an even number of values, the higher one of the two in the middle.
pub fn upper_median<T: Copy>(sorted: &[T]) -> Option<T> {
    sorted.get(sorted.len() / 2).copied()
}

/// Returns the smallest and the largest value; infinities if there are none.
pub fn spread(values: &[f64]) -> [f64; 2] {
    let fold = |start, of: fn(f64, f64) -> f64| values.iter().copied().fold(start, of);
    [fold(f64::INFINITY, f64::min), fold(f64::NEG_INFINITY, f64::max)]
}

fn ms(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / NANOSECONDS_PER_MS
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns figures of delays in milliseconds; `None` if there are none.
pub fn delay(mut delays: Vec<f64>) -> Option<Delay> {
    delays.sort_by(f64::total_cmp);
    let max = *delays.last()?;
    Some(Delay {
        mean: mean(&delays),
        p50: nearest_rank(&delays, 0.50),
        p99: nearest_rank(&delays, 0.99),
        max,
    })
}

/// Returns the 99th percentile of delays (nearest rank); infinity if nothing arrived.
pub fn p99(delays: Vec<f64>) -> f64 {
    percentile(delays, 0.99)
}

/// Returns a percentile of delays (nearest rank), 0 to 1; infinity if nothing arrived.
pub fn percentile(mut delays: Vec<f64>, share: f64) -> f64 {
    delays.sort_by(f64::total_cmp);
    if delays.is_empty() { f64::INFINITY } else { nearest_rank(&delays, share) }
}

/// Returns the longest delay; 0 if there are none.
pub fn worst(delays: &[f64]) -> f64 {
    delays.iter().copied().fold(0.0, f64::max)
}

fn gap(gaps: Vec<f64>) -> Option<Gap> {
    if gaps.is_empty() {
        return None;
    }
    let mean = mean(&gaps);
    let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
    Some(Gap { mean, std: variance.sqrt() })
}

/// Returns the smallest value that at least `share` of all values do not exceed; `sorted` must not
/// be empty.
fn nearest_rank(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// Returns the jitters, in milliseconds, of a periodic program that woke at these times.
pub fn jitters(woke_ns: &[u64], period_ms: u64) -> Vec<f64> {
    let jitter = |pair: &[u64]| (ms(pair[1].saturating_sub(pair[0])) - period_ms as f64).abs();
    woke_ns.windows(2).map(jitter).collect()
}

/// Writes rows of samples to a file.
pub fn write_rows(file: &Path, rows: impl IntoIterator<Item = String>) -> Result<()> {
    let writing = || format!("cannot write {}", file.display());
    let mut out = std::io::BufWriter::new(std::fs::File::create(file).with_context(writing)?);
    for row in rows {
        writeln!(out, "{row}")?;
    }
    out.flush().with_context(writing)
}

/// Reads rows of `N` whole numbers below a header line.
pub fn rows<const N: usize>(file: &Path) -> Result<Vec<[u64; N]>> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("no samples in {}", file.display()))?;
    text.lines()
        .enumerate()
        .skip(1)
        .map(|(index, line)| {
            row(line).with_context(|| {
                format!("{}:{}: '{line}' is not {N} numbers", file.display(), index + 1)
            })
        })
        .collect()
}

fn row<const N: usize>(line: &str) -> Option<[u64; N]> {
    let values: Vec<u64> = line.split(',').map(str::parse).collect::<Result<_, _>>().ok()?;
    values.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_is_the_deviation_of_an_interval_from_the_period() {
        let ms = 1_000_000;
        assert_eq!(jitters(&[0, 5 * ms, 11 * ms, 15 * ms], 5), [0.0, 1.0, 1.0]);
        assert!(jitters(&[7], 5).is_empty());
    }

    fn samples(sent: u64, arrivals: &[(u64, u64)]) -> Samples {
        let arrival = |&(sequence, received_ms): &(u64, u64)| Arrival {
            sequence,
            sent_ns: sequence * 20_000_000,
            received_ns: received_ms * 1_000_000,
        };
        Samples {
            sent_ns: (0..sent).map(|sequence| sequence * 20_000_000).collect(),
            arrivals: arrivals.iter().map(arrival).collect(),
        }
    }

    #[test]
    fn figures_of_a_small_run() {
        let summary =
            samples(4, &[(0, 2), (1, 22), (3, 72)]).summary(Some(Duration::from_millis(20)));
        assert_eq!((summary.sent, summary.received, summary.mdr_percent), (4, 3, 75.0));
        let delay = summary.delay_ms.unwrap();
        assert_eq!((delay.p50, delay.p99, delay.max), (2.0, 12.0, 12.0));
        assert_eq!(summary.gap_ms.unwrap(), Gap { mean: 35.0, std: 15.0 });
    }

    #[test]
    fn a_message_received_twice_counts_once() {
        let summary =
            samples(2, &[(0, 1), (0, 5), (1, 21)]).summary(Some(Duration::from_millis(20)));
        assert_eq!((summary.received, summary.duplicates), (2, 1));
        assert_eq!(summary.gap_ms.unwrap().mean, 20.0);
    }

    #[test]
    fn lateness_is_relative_to_the_publishers_schedule() {
        let mut samples = samples(3, &[]);
        samples.sent_ns[1] += 7_000_000;
        assert_eq!(samples.lateness(Duration::from_millis(20)).unwrap().max, 7.0);
    }

    #[test]
    fn nothing_received_has_no_delay() {
        let summary = samples(3, &[]).summary(Some(Duration::from_millis(20)));
        assert_eq!((summary.delay_ms, summary.gap_ms, summary.mdr_percent), (None, None, 0.0));
    }

    #[test]
    fn a_median_is_between_the_two_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([2.0, 1.0]), Some(1.5));
        assert_eq!(median([1.0, f64::INFINITY]), Some(f64::INFINITY));
        assert_eq!(median([]), None);
    }

    #[test]
    fn percentiles_are_measured_values() {
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(nearest_rank(&hundred, 0.99), 99.0);
        assert_eq!(nearest_rank(&[7.0], 0.5), 7.0);
    }
}
