// SPDX-License-Identifier: Apache-2.0
//! Formulas for the load that a radio and two processors carry, and for the round trip under it.
//!
//! The radio and the processors together are one server. A message of `S` bytes takes it `t(S)`, the
//! longer one of a processor's time `t_cpu(S)` and the radio's time `S/B`, and with `N` pairs it takes
//! `t(S) * slowdown(N)`. A load beyond `C = 1 / (t * slowdown)` leaves a queue that grows until the
//! senders stop; they wait for the echoes for some seconds and then no longer count them.

use super::data::{CUT_OFF_S, Row, SCAN_BYTES, Span};
use serde::Serialize;

/// The thesis's constant: 300 messages of a laser scan per second, bytes per second.
pub const CSLV_BYTES_PER_S: f64 = 300.0 * SCAN_BYTES as f64;
/// Largest number of pairs that [`Formula::most_pairs`] considers.
const MOST_PAIRS: usize = 100_000;

/// How the time of a message grows with the number of pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// Not at all, as CSLV has it.
    Constant,
    /// The capacity falls by the same amount with each doubling: `1 / (1 - k log2 N)`.
    Logarithm,
    /// The time grows with the square root: `1 + k (sqrt N - 1)`.
    Root,
    /// The time grows with each pair by the same amount: `1 + k (N - 1)`.
    Linear,
    /// The time grows by the same factor with each doubling: `N^k`.
    Power,
}

/// Smallest share of its capacity that remains; the logarithm would otherwise reach zero.
const LEAST_SHARE: f64 = 0.02;

impl Shape {
    /// All shapes, the simplest first.
    pub const ALL: [Self; 5] =
        [Self::Constant, Self::Linear, Self::Power, Self::Logarithm, Self::Root];

    /// Returns the factor by which a message takes longer with `pairs` than with one.
    pub fn slowdown(self, k: f64, pairs: usize) -> f64 {
        let pairs = pairs.max(1) as f64;
        match self {
            Self::Constant => 1.0,
            Self::Logarithm => 1.0 / (1.0 - k * pairs.log2()).max(LEAST_SHARE),
            Self::Root => 1.0 + k * (pairs.sqrt() - 1.0),
            Self::Linear => 1.0 + k * (pairs - 1.0),
            Self::Power => pairs.powf(k),
        }
    }

    /// Returns the factor as a formula.
    pub fn words(self) -> &'static str {
        match self {
            Self::Constant => "1 (constant)",
            Self::Logarithm => "1 / (1 - k log2 N)",
            Self::Root => "1 + k (sqrt N - 1)",
            Self::Linear => "1 + k (N - 1)",
            Self::Power => "N^k",
        }
    }
}

/// Figures of one size of messages.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Size {
    /// Bytes of a message.
    pub bytes: usize,
    /// Time that a message takes with one pair, milliseconds; `None` if no row was beyond capacity.
    pub time_ms: Option<f64>,
    /// Round trip without a queue, milliseconds; `None` if every row had one.
    pub base_ms: Option<f64>,
}

/// A fitted formula, see the module.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Formula {
    /// How the time of a message grows with the number of pairs.
    pub shape: Shape,
    /// Parameter of the shape.
    pub k: f64,
    /// Sizes in order, at least one of them with a time.
    pub sizes: Vec<Size>,
    /// Messages per second that the senders' host can publish; `None` if no row reached it.
    pub publish_per_s: Option<f64>,
}

/// What a formula expects of a load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Prediction {
    /// Echoes per second.
    pub echoed_per_s: f64,
    /// Mean round trip of the messages that return in time, milliseconds.
    pub rtt_ms: f64,
    /// Load as a share of the capacity.
    pub load: f64,
}

impl Formula {
    /// Returns the formula of the thesis: N * f * S is at most a constant. It says nothing about round
    /// trips without a queue and about slow senders, which are those of another formula.
    pub fn cslv(other: &Self) -> Self {
        let time_ms = Some(1e3 * SCAN_BYTES as f64 / CSLV_BYTES_PER_S);
        let size = Size { bytes: SCAN_BYTES, time_ms, base_ms: Some(other.base_ms(SCAN_BYTES)) };
        let publish_per_s = other.publish_per_s;
        Self { shape: Shape::Constant, k: 0.0, sizes: vec![size], publish_per_s }
    }

    /// Returns the rate at which the radio carries large messages, bytes per second.
    pub fn bytes_per_s(&self) -> f64 {
        let rate = |size: &Size| size.time_ms.map(|ms| 1e3 * size.bytes as f64 / ms);
        self.sizes.iter().filter_map(rate).fold(0.0, f64::max)
    }

    /// Returns the time of a message with one pair, milliseconds: the measured one, or for another
    /// size the longer one of the shortest measured time and of that which the bytes take.
    fn time_ms(&self, bytes: usize) -> f64 {
        let measured = self.sizes.iter().find(|size| size.bytes == bytes);
        measured.and_then(|size| size.time_ms).unwrap_or_else(|| {
            let times = self.sizes.iter().filter_map(|size| size.time_ms);
            let by_bytes = 1e3 * bytes as f64 / self.bytes_per_s();
            if self.sizes.len() < 2 {
                by_bytes
            } else {
                by_bytes.max(times.fold(f64::MAX, f64::min))
            }
        })
    }

    /// Returns the round trip without a queue, milliseconds: that of the nearest measured size.
    fn base_ms(&self, bytes: usize) -> f64 {
        let known = self.sizes.iter().filter_map(|size| Some((size.bytes, size.base_ms?)));
        known.min_by_key(|(size, _)| size.abs_diff(bytes)).map_or(0.0, |(_, ms)| ms)
    }

    /// Returns the capacity, messages per second.
    pub fn capacity(&self, pairs: usize, bytes: usize) -> f64 {
        1e3 / (self.time_ms(bytes) * self.shape.slowdown(self.k, pairs))
    }

    /// Returns what is expected of the load of a row.
    pub fn predict(&self, row: &Row) -> Prediction {
        let capacity = self.capacity(row.pairs, row.message_bytes);
        let offered = row.offered_per_s();
        let published = self.publish_per_s.map_or(offered, |most| offered.min(most));
        let [from, to] = match row.span {
            Span::Messages(messages) => [0.0, messages * row.pairs as f64 / published],
            Span::Seconds { warm_up, counted } => [warm_up, warm_up + counted],
        };
        let load = published / capacity;
        let wait_ms = waiting_ms(load, capacity, published * to);
        let backlog_ms = backlog_ms(load, [from, to]);
        Prediction {
            echoed_per_s: published.min(capacity),
            rtt_ms: self.base_ms(row.message_bytes) + wait_ms + backlog_ms,
            load,
        }
    }

    /// Returns the largest number of pairs whose load is at most that share of the capacity.
    pub fn most_pairs(&self, bytes: usize, frequency_hz: f64, share: f64) -> usize {
        let fits = |pairs: usize| {
            let publish = self.publish_per_s.unwrap_or(f64::MAX);
            let limit = share * self.capacity(pairs, bytes).min(publish);
            pairs as f64 * frequency_hz <= limit
        };
        (1..=MOST_PAIRS).take_while(|pairs| fits(*pairs)).last().unwrap_or(0)
    }
}

/// Returns the mean wait for a server with random arrivals and a constant time of service (M/D/1),
/// milliseconds. A run is finite, so that the wait is no longer than that of a run of this number of
/// messages at a load of exactly 1: 2/3 sqrt(2 n / pi) times of service.
fn waiting_ms(load: f64, capacity: f64, messages: f64) -> f64 {
    let service_ms = 1e3 / capacity;
    let at_one = 2.0 / 3.0 * (2.0 * messages / std::f64::consts::PI).sqrt();
    let steady = if load < 1.0 { load / (2.0 * (1.0 - load)) } else { f64::INFINITY };
    service_ms * steady.min(at_one)
}

/// Returns the mean wait in a queue that grows while the senders publish, milliseconds: of the messages
/// of the span `from..to`, in seconds since the first message. A message sent after `t` seconds returns
/// after `t * load`, and counts if that is before the cut-off.
fn backlog_ms(load: f64, [from, to]: [f64; 2]) -> f64 {
    let last_counted = to.min((to + CUT_OFF_S) / load).max(from);
    1e3 * (load - 1.0).max(0.0) * (from + last_counted) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pairs: usize, frequency_hz: f64) -> Row {
        Row {
            pairs,
            hosts: 2,
            frequency_hz,
            message_bytes: 1000,
            published_per_s: 0.0,
            echoed_per_s: 0.0,
            rtt_ms: 0.0,
            span: Span::Messages(1000.0),
        }
    }

    fn formula() -> Formula {
        let size = Size { bytes: 1000, time_ms: Some(4.0), base_ms: Some(10.0) };
        Formula { shape: Shape::Root, k: 0.5, sizes: vec![size], publish_per_s: None }
    }

    #[test]
    fn every_shape_starts_at_one_and_does_not_fall() {
        for shape in Shape::ALL {
            assert_eq!(shape.slowdown(0.2, 1), 1.0, "{shape:?}");
            let factors: Vec<f64> = (1..200).map(|pairs| shape.slowdown(0.2, pairs)).collect();
            assert!(factors.is_sorted() && factors.iter().all(|it| it.is_finite()), "{shape:?}");
        }
    }

    #[test]
    fn capacity_falls_with_pairs_and_large_messages_are_limited_by_bytes() {
        let small = Size { bytes: 10, time_ms: Some(1.0), base_ms: None };
        let mut formula = formula();
        formula.sizes.insert(0, small);
        assert_eq!(formula.capacity(1, 1000), 250.0);
        assert_eq!(formula.capacity(9, 1000), 125.0);
        assert_eq!(formula.capacity(1, 10_000), 25.0);
        assert_eq!(formula.capacity(1, 20), 1000.0);
    }

    #[test]
    fn below_capacity_the_round_trip_is_the_base_and_a_short_wait() {
        let found = formula().predict(&row(1, 125.0));
        assert_eq!((found.echoed_per_s, found.load), (125.0, 0.5));
        assert!((found.rtt_ms - 12.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn beyond_capacity_the_queue_grows_until_the_senders_stop_counting() {
        // 1000 messages in 2 s at twice the capacity: the last echo would return after 4 s.
        let found = formula().predict(&row(1, 500.0));
        let wait = waiting_ms(2.0, 250.0, 1000.0);
        assert_eq!(found.echoed_per_s, 250.0);
        assert!((found.rtt_ms - (10.0 + wait + 1000.0)).abs() < 1e-9, "{found:?}");
        // At 20 times the capacity, only the first messages return before the cut-off.
        assert!((backlog_ms(20.0, [0.0, 2.0]) - 19.0 * 350.0 / 2.0).abs() < 1e-9);
        // A warm-up that does not count has filled the queue already.
        assert!((backlog_ms(2.0, [2.0, 6.0]) - 3750.0).abs() < 1e-9);
    }

    #[test]
    fn a_slow_publisher_limits_what_is_offered() {
        let formula = Formula { publish_per_s: Some(200.0), ..formula() };
        assert_eq!(formula.predict(&row(1, 500.0)).echoed_per_s, 200.0);
    }

    #[test]
    fn cslv_is_a_constant_product() {
        let cslv = Formula::cslv(&formula());
        assert_eq!(cslv.most_pairs(SCAN_BYTES, 1.0, 1.0), 300);
        assert_eq!(cslv.most_pairs(SCAN_BYTES, 20.0, 1.0), 15);
        assert_eq!(cslv.most_pairs(SCAN_BYTES / 2, 20.0, 1.0), 30);
        assert_eq!(cslv.most_pairs(SCAN_BYTES, 400.0, 1.0), 0);
    }
}
