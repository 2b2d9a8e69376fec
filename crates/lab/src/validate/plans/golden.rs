// SPDX-License-Identifier: Apache-2.0
//! A short form of the results of a run, kept as a file, and the comparison of another run with it.

use super::{Case, Summary, median_ratio};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::Path;

/// Largest relative difference between figures that count as the same: logarithms differ in their last digits
/// between machines.
const SAME: f64 = 0.01;

/// A short form of the results of a run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Golden {
    summary: Summary,
    pub(super) fleets: Vec<Line>,
}

/// The results of a fleet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) seed: u64,
    load: f64,
    fits: bool,
    did_fit: bool,
    flows: usize,
    late: usize,
    median_ratio: Option<f64>,
}

impl Line {
    pub(super) fn from_case(case: &Case) -> Self {
        let rounded = |value: f64| (value * 1e3).round() / 1e3;
        let ratio = median_ratio(&case.rows);
        Self {
            seed: case.seed,
            load: rounded(case.load),
            fits: case.fits,
            did_fit: case.did_fit,
            flows: case.rows.len(),
            late: case.rows.iter().filter(|row| row.is_late()).count(),
            median_ratio: ratio.is_finite().then(|| rounded(ratio)),
        }
    }

    /// Whether another line is the same except for rounding.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let near = |a: f64, b: f64| (a - b).abs() <= SAME * a.abs().max(b.abs());
        let ratio = match (self.median_ratio, other.median_ratio) {
            (Some(a), Some(b)) => near(a, b),
            (a, b) => a == b,
        };
        let rest = |it: &Self| Self { load: 0.0, median_ratio: None, ..it.clone() };
        ratio && near(self.load, other.load) && rest(self) == rest(other)
    }
}

impl Golden {
    pub(super) fn from_cases(summary: &Summary, cases: &[Case]) -> Self {
        Self { summary: summary.clone(), fleets: cases.iter().map(Line::from_case).collect() }
    }

    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path);
        let text = text.with_context(|| format!("{}: not readable", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{}: no summary", path.display()))
    }

    /// Writes one line per fleet, so that changes are visible.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let lines: Result<Vec<String>, _> = self.fleets.iter().map(serde_json::to_string).collect();
        let summary = serde_json::to_string_pretty(&self.summary)?;
        let lines = lines?.join(",\n    ");
        let text =
            format!("{{\n  \"summary\": {summary},\n  \"fleets\": [\n    {lines}\n  ]\n}}\n");
        std::fs::write(path, text).with_context(|| format!("{}: not writable", path.display()))
    }

    /// Describes the fleets of a run that differ, or that are missing here; empty if all are the same.
    pub(super) fn differences(&self, run: &Self) -> String {
        let mut text = String::new();
        for line in &run.fleets {
            let kept = self.fleets.iter().find(|it| it.seed == line.seed);
            let is_same = kept.is_some_and(|it| it.is_same(line));
            if !is_same {
                let _ = writeln!(text, "seed {}: found {line:?}, kept {kept:?}", line.seed);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/measured/plans.json");

    /// The smallest fleet, which is simulated fast.
    #[test]
    fn results_of_fleets_match_the_stored_results() {
        let kept = Golden::read(Path::new(KEPT)).unwrap();
        let mut small: Vec<&Line> = kept.fleets.iter().collect();
        small.sort_by_key(|it| (it.flows, it.seed));
        for line in &small[..1] {
            let found = Line::from_case(&super::super::case(line.seed).unwrap());
            assert!(line.is_same(&found), "found {found:?}, kept {line:?}");
        }
    }

    #[test]
    fn a_changed_verdict_is_a_difference_but_rounding_is_not() {
        let line = Line {
            seed: 1,
            load: 0.5,
            fits: true,
            did_fit: true,
            flows: 4,
            late: 0,
            median_ratio: Some(2.0),
        };
        assert!(line.is_same(&Line { load: 0.501, median_ratio: Some(2.01), ..line.clone() }));
        assert!(!line.is_same(&Line { did_fit: false, ..line.clone() }));
        assert!(!line.is_same(&Line { median_ratio: Some(2.1), ..line.clone() }));
        assert!(!line.is_same(&Line { median_ratio: None, ..line.clone() }));
    }
}
