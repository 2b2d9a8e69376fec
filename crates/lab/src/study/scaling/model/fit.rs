// SPDX-License-Identifier: Apache-2.0
//! Fits a formula to measured rows.

use super::data::Row;
use super::formula::{Formula, Shape, Size};
use crate::rig::stats::{median, middle};
use anyhow::{Result, ensure};
use std::collections::BTreeSet;

/// Values of the shape's parameter that are tried: 0, then this number of values in equal ratios.
const STEPS: i32 = 600;
const SMALLEST_K: f64 = 1e-4;
const LARGEST_K: f64 = 2.0;
/// A row shows the round trip without a queue if its load is at most this share of the capacity.
const UNLOADED: f64 = 0.5;
/// Share of the offered rate below which the senders themselves were too slow.
const PUBLISHED: f64 = 0.9;

/// Fits a formula to rows: the parameter of the shape and the time of a message to the rows beyond
/// capacity (smallest mean of absolute logarithms of the ratio), the round trip without a queue to rows
/// far below it, and the rate of the senders to rows whose senders were late (medians).
pub fn fit(rows: &[Row], shape: Shape) -> Result<Formula> {
    let beyond: Vec<&Row> = rows.iter().filter(|row| row.is_overloaded()).collect();
    ensure!(
        !beyond.is_empty(),
        "no row is beyond capacity (of {}), so that they show no limit; add higher rates or more pairs",
        rows.len()
    );
    let tried = candidates(shape).into_iter().map(|k| (deviation(&beyond, shape, k), k));
    let (_, k) = tried.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or_default();
    let sizes: BTreeSet<usize> = rows.iter().map(|row| row.message_bytes).collect();
    let size = |bytes| Size { bytes, time_ms: time_ms(&beyond, bytes, shape, k), base_ms: None };
    let sizes = sizes.into_iter().map(size).collect();
    let mut formula = Formula { shape, k, sizes, publish_per_s: publish_per_s(rows) };
    let bases: Vec<_> = formula.sizes.iter().map(|size| base_ms(rows, size, &formula)).collect();
    for (size, base_ms) in formula.sizes.iter_mut().zip(bases) {
        size.base_ms = base_ms;
    }
    Ok(formula)
}

fn candidates(shape: Shape) -> Vec<f64> {
    let ratio = (LARGEST_K / SMALLEST_K).powf(1.0 / f64::from(STEPS));
    let more = (0..=STEPS).map(|step| SMALLEST_K * ratio.powi(step));
    let more = more.filter(|_| shape != Shape::Constant);
    std::iter::once(0.0).chain(more).collect()
}

/// Returns the time of a message with one pair that a row beyond capacity shows, milliseconds.
fn shown_ms(row: &Row, shape: Shape, k: f64) -> f64 {
    1e3 / row.echoed_per_s / shape.slowdown(k, row.pairs)
}

fn time_ms(beyond: &[&Row], bytes: usize, shape: Shape, k: f64) -> Option<f64> {
    let rows = beyond.iter().filter(|row| row.message_bytes == bytes);
    median(rows.map(|row| shown_ms(row, shape, k)))
}

/// Returns the mean absolute logarithm of the ratio between shown times and their median.
fn deviation(beyond: &[&Row], shape: Shape, k: f64) -> f64 {
    let one = |row: &&Row| {
        let time_ms = time_ms(beyond, row.message_bytes, shape, k)?;
        Some((shown_ms(row, shape, k) / time_ms).ln().abs())
    };
    beyond.iter().filter_map(one).sum::<f64>() / beyond.len() as f64
}

/// Returns the rate of the senders where they were too slow; `None` if they never were.
fn publish_per_s(rows: &[Row]) -> Option<f64> {
    let late = rows.iter().filter(|row| row.published_per_s < PUBLISHED * row.offered_per_s());
    median(late.map(|row| row.published_per_s))
}

fn base_ms(rows: &[Row], size: &Size, formula: &Formula) -> Option<f64> {
    let own = rows.iter().filter(|row| row.message_bytes == size.bytes);
    let unloaded = own.filter(|row| formula.predict(row).load <= UNLOADED);
    let all: Vec<f64> = unloaded.map(|row| row.rtt_ms).collect();
    (!all.is_empty()).then(|| middle(&all))
}

#[cfg(test)]
mod tests {
    use super::super::data::Span;
    use super::*;

    fn true_formula(shape: Shape, k: f64) -> Formula {
        let size = |bytes, time_ms| Size { bytes, time_ms: Some(time_ms), base_ms: Some(12.0) };
        let sizes = vec![size(11, 0.6), size(4240, 3.2)];
        Formula { shape, k, sizes, publish_per_s: Some(5000.0) }
    }

    /// Rows that a formula predicts, each with an error of up to `noise`.
    fn made(formula: &Formula, noise: f64) -> Vec<Row> {
        let mut random = fastrand::Rng::with_seed(7);
        let mut rows = Vec::new();
        for bytes in [11, 4240] {
            for pairs in [1, 2, 4, 8, 16, 32, 64, 128] {
                for frequency_hz in [1.0, 10.0, 100.0, 300.0, 3000.0] {
                    let mut row = Row {
                        pairs,
                        hosts: 2,
                        frequency_hz,
                        message_bytes: bytes,
                        published_per_s: 0.0,
                        echoed_per_s: 0.0,
                        rtt_ms: 0.0,
                        span: Span::Messages(1195.0),
                    };
                    let found = formula.predict(&row);
                    let mut factor = || 1.0 + noise * (2.0 * random.f64() - 1.0);
                    row.published_per_s = row.offered_per_s().min(5000.0);
                    row.echoed_per_s = found.echoed_per_s * factor();
                    row.rtt_ms = found.rtt_ms * factor();
                    rows.push(row);
                }
            }
        }
        rows
    }

    #[test]
    fn a_fit_recovers_the_parameters_of_noisy_rows() {
        for (shape, k) in [
            (Shape::Root, 0.21),
            (Shape::Logarithm, 0.09),
            (Shape::Linear, 0.03),
            (Shape::Power, 0.2),
            (Shape::Constant, 0.0),
        ] {
            let found = fit(&made(&true_formula(shape, k), 0.08), shape).unwrap();
            assert!((found.k - k).abs() <= 0.1 * k, "{shape:?}: {k} became {}", found.k);
            for (size, time_ms) in found.sizes.iter().zip([0.6, 3.2]) {
                let ratio = size.time_ms.unwrap() / time_ms;
                assert!((ratio - 1.0).abs() < 0.06, "{shape:?}: {size:?}");
                assert!((size.base_ms.unwrap() / 12.0 - 1.0).abs() < 0.08, "{size:?}");
            }
            assert_eq!(found.publish_per_s, Some(5000.0));
        }
    }

    #[test]
    fn rows_below_capacity_are_refused_since_they_show_no_limit() {
        let rows = made(&true_formula(Shape::Root, 0.2), 0.0);
        let below: Vec<Row> = rows.into_iter().filter(|row| !row.is_overloaded()).collect();
        let problem = fit(&below, Shape::Root).unwrap_err().to_string();
        assert!(problem.starts_with("no row is beyond capacity"), "{problem}");
    }
}
