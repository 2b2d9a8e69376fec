// SPDX-License-Identifier: Apache-2.0
//! How well a formula predicts rows to which it was not fitted.

use super::data::Row;
use super::fit::fit;
use super::formula::{Formula, Prediction, Shape};
use crate::rig::stats::{middle, percentile};
use anyhow::Result;
use serde::Serialize;
use std::collections::BTreeSet;

/// A formula with its method of fitting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Model {
    /// CSLV with the thesis's constant.
    Cslv,
    /// The formula of that shape, fitted; [`Shape::Constant`] is CSLV with a fitted constant.
    Fitted(Shape),
}

/// The formula that the study reports.
pub const BEST: Model = Model::Fitted(Shape::Root);

impl Model {
    /// Returns the name in tables.
    pub fn words(self) -> String {
        match self {
            Self::Cslv => "CSLV, constant of the thesis".into(),
            Self::Fitted(Shape::Constant) => "CSLV, constant fitted".into(),
            Self::Fitted(shape) => format!("C(N, S), slowdown {}", shape.words()),
        }
    }

    /// Returns the formula for these rows.
    pub fn formula(self, rows: &[Row]) -> Result<Formula> {
        match self {
            Self::Cslv => Ok(Formula::cslv(&fit(rows, Shape::Constant)?)),
            Self::Fitted(shape) => fit(rows, shape),
        }
    }
}

/// A row with the prediction of a formula.
#[derive(Debug, Clone, Serialize)]
pub struct Judged {
    /// The measured row.
    #[serde(flatten)]
    pub row: Row,
    /// The prediction.
    pub predicted: Prediction,
}

impl Judged {
    fn of(formula: &Formula, row: &Row) -> Self {
        Self { row: row.clone(), predicted: formula.predict(row) }
    }

    fn echoed_error(&self) -> f64 {
        error_percent(self.predicted.echoed_per_s, self.row.echoed_per_s)
    }

    /// Returns the error of the round trip, percent.
    pub fn rtt_error(&self) -> f64 {
        error_percent(self.predicted.rtt_ms, self.row.rtt_ms)
    }
}

fn error_percent(predicted: f64, measured: f64) -> f64 {
    100.0 * (predicted / measured - 1.0).abs()
}

/// Predicts rows by a formula.
pub fn predicted(formula: &Formula, rows: &[Row]) -> Vec<Judged> {
    rows.iter().map(|row| Judged::of(formula, row)).collect()
}

/// What the rows of a fold have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fold {
    /// The number of pairs.
    Pairs,
    /// The frequency.
    Frequency,
}

impl Fold {
    fn key(self, row: &Row) -> u64 {
        match self {
            Self::Pairs => row.pairs as u64,
            Self::Frequency => row.frequency_hz.to_bits(),
        }
    }
}

/// Predicts each row by a formula that is fitted to the rows of all other folds. Rows are left out if
/// the others show no limit.
pub fn cross_validated(model: Model, rows: &[Row], fold: Fold) -> Vec<Judged> {
    let keys: BTreeSet<u64> = rows.iter().map(|row| fold.key(row)).collect();
    let one = |key: u64| {
        let others: Vec<Row> = rows.iter().filter(|row| fold.key(row) != key).cloned().collect();
        let formula = model.formula(&others).ok()?;
        let own = rows.iter().filter(|row| fold.key(row) == key);
        Some(own.map(|row| Judged::of(&formula, row)).collect::<Vec<_>>())
    };
    keys.into_iter().filter_map(one).flatten().collect()
}

/// Relative errors, percent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Errors {
    /// Median.
    pub median: f64,
    /// 90th percentile.
    pub p90: f64,
    /// Largest.
    pub worst: f64,
}

impl Errors {
    fn of(errors: Vec<f64>) -> Self {
        Self {
            median: middle(&errors),
            p90: percentile(errors.clone(), 0.9),
            worst: percentile(errors, 1.0),
        }
    }
}

/// Accuracy of predictions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Accuracy {
    /// Rows judged.
    pub rows: usize,
    /// Errors of the echoes per second.
    pub echoed: Errors,
    /// Errors of the mean round trip.
    pub rtt: Errors,
    /// Rows that are rightly called acceptable or not by their round trip.
    pub right: usize,
}

/// Returns the accuracy; `None` without rows.
pub fn accuracy(judged: &[Judged]) -> Option<Accuracy> {
    let acceptable =
        |it: &Judged| Row { rtt_ms: it.predicted.rtt_ms, ..it.row.clone() }.is_acceptable();
    (!judged.is_empty()).then(|| Accuracy {
        rows: judged.len(),
        echoed: Errors::of(judged.iter().map(Judged::echoed_error).collect()),
        rtt: Errors::of(judged.iter().map(Judged::rtt_error).collect()),
        right: judged.iter().filter(|it| acceptable(it) == it.row.is_acceptable()).count(),
    })
}

/// Accuracy of one model by one test.
#[derive(Debug, Clone, Serialize)]
pub struct Test {
    /// The model.
    pub model: Model,
    /// What was predicted from what.
    pub test: &'static str,
    /// Accuracy for all rows.
    pub all: Option<Accuracy>,
    /// Accuracy for the rows beyond capacity.
    pub overloaded: Option<Accuracy>,
}

impl Test {
    /// Judges predictions.
    pub fn of(model: Model, test: &'static str, judged: &[Judged]) -> Self {
        let beyond: Vec<_> = judged.iter().filter(|it| it.row.is_overloaded()).cloned().collect();
        Self { model, test, all: accuracy(judged), overloaded: accuracy(&beyond) }
    }

    /// Judges a model by leaving out each number of pairs.
    pub fn by_pairs(model: Model, rows: &[Row]) -> Self {
        Self::of(model, "other numbers of pairs", &cross_validated(model, rows, Fold::Pairs))
    }

    /// Judges a model by leaving out each frequency.
    pub fn by_frequency(model: Model, rows: &[Row]) -> Self {
        Self::of(model, "other frequencies", &cross_validated(model, rows, Fold::Frequency))
    }
}

#[cfg(test)]
mod tests {
    use super::super::data::thesis;
    use super::*;

    /// Largest median error of the formula (issue target), percent.
    const TARGET_PERCENT: f64 = 15.0;

    #[test]
    fn the_formula_explains_the_thesis_better_than_cslv() {
        let [bare, _] = thesis().unwrap();
        let by_pairs = |model| Test::by_pairs(model, &bare.rows);
        let [ours, cslv] = [BEST, Model::Cslv].map(by_pairs);
        let (all, beyond) = (ours.all.unwrap(), ours.overloaded.unwrap());
        assert_eq!(all.rows, bare.rows.len());
        for errors in [all.echoed, all.rtt, beyond.echoed, beyond.rtt] {
            assert!(errors.median < TARGET_PERCENT, "{errors:?}");
        }
        assert!(cslv.all.unwrap().echoed.median > all.echoed.median);
        assert!(cslv.overloaded.unwrap().echoed.median > beyond.echoed.median);
    }

    #[test]
    fn a_fold_is_predicted_without_its_own_rows() {
        let [bare, _] = thesis().unwrap();
        let mut changed = bare.rows.clone();
        for row in changed.iter_mut().filter(|row| row.pairs == 32) {
            row.echoed_per_s /= 3.0;
        }
        let of = |rows: &[Row]| {
            let judged = cross_validated(BEST, rows, Fold::Pairs);
            let own = judged.iter().filter(|it| it.row.pairs == 32);
            own.map(|it| it.predicted.echoed_per_s).collect::<Vec<_>>()
        };
        assert_eq!(of(&bare.rows), of(&changed));
    }

    #[test]
    fn errors_are_relative_to_what_was_measured() {
        assert_eq!(error_percent(125.0, 100.0), 25.0);
        assert_eq!(error_percent(50.0, 100.0), 50.0);
        let errors = Errors::of(vec![1.0, 2.0, 3.0, 100.0]);
        assert_eq!((errors.median, errors.p90, errors.worst), (2.5, 100.0, 100.0));
    }
}
