// SPDX-License-Identifier: Apache-2.0
//! Targets of cases, and the verdicts on them.

use Bound::{AtLeast, AtMost};
use serde::Serialize;
use std::process::ExitCode;

/// CPU time of a daemon without messages, percent of one core.
pub const IDLE_CPU_PERCENT: Bound = AtMost(1.0);
/// Memory of a daemon without messages, in 10^6 bytes.
pub const IDLE_RESIDENT_MB: Bound = AtMost(30.0);

/// The bound of a target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// Reached at this value or more.
    AtLeast(f64),
    /// Reached at this value or less.
    AtMost(f64),
}

impl Bound {
    /// Whether `found` is within the bound.
    pub fn holds(self, found: f64) -> bool {
        match self {
            AtLeast(limit) => found >= limit,
            AtMost(limit) => found <= limit,
        }
    }

    /// Returns the verdict on `found`.
    pub fn judge(self, what: impl Into<String>, found: Option<f64>, unit: &'static str) -> Verdict {
        let (word, limit) = match self {
            AtLeast(limit) => ("at least", limit),
            AtMost(limit) => ("at most", limit),
        };
        let reached = found.is_some_and(|found| self.holds(found));
        // A ratio can have more digits than are useful.
        let limit = (limit * 100.0).round() / 100.0;
        let target = format!("{word} {limit} {unit}");
        Verdict { what: what.into(), target, found, unit, reached }
    }
}

/// A target and the measured value.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    /// Measure: `laser p99`.
    pub what: String,
    /// Bound: `at most 8 ms`.
    pub target: String,
    /// Measured value; `None` if nothing was measured.
    pub found: Option<f64>,
    /// Unit: `ms`, `%`, ...
    pub unit: &'static str,
    /// Whether the target is reached.
    pub reached: bool,
}

impl Verdict {
    /// Returns the measured value with its unit: `4.90 ms`.
    pub fn found_words(&self) -> String {
        self.found.map_or("not measured".into(), |found| format!("{found:.2} {}", self.unit))
    }
}

/// Returns one line per target: whether it is reached, and the measured value.
pub fn verdict_lines(verdicts: &[Verdict]) -> String {
    let line = |verdict: &Verdict| {
        let word = if verdict.reached { "reached" } else { "NOT reached" };
        format!("{word:12} {}: {} ({})\n", verdict.what, verdict.found_words(), verdict.target)
    };
    verdicts.iter().map(line).collect()
}

/// Conclusion of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Conclusion {
    /// Every target is reached.
    Reached,
    /// Some target is not reached.
    NotReached,
    /// The link or another transport deviates from its known figures, or too many runs were
    /// discarded.
    Void,
}

impl Conclusion {
    /// Returns the conclusion of a run that is not void.
    pub fn new(verdicts: &[Verdict]) -> Self {
        if verdicts.iter().all(|verdict| verdict.reached) {
            Self::Reached
        } else {
            Self::NotReached
        }
    }

    /// Describes the conclusion for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Reached => "all targets reached",
            Self::NotReached => "some target NOT reached",
            Self::Void => "VOID, the figures above say nothing about Tautline",
        }
    }

    /// Returns the exit code.
    pub fn exit_code(self) -> ExitCode {
        ExitCode::from(match self {
            Self::Reached => 0,
            Self::NotReached => 3,
            Self::Void => 4,
        })
    }
}
