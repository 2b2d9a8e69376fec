// SPDX-License-Identifier: Apache-2.0
//! What a check finds.

use serde::Serialize;

/// Beginning of the answers of checks that need a valid file.
pub(super) const NO_FILE: &str = "no valid file";

/// How much harm a finding does, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Harm {
    /// Messages do not arrive, or the daemon does not run.
    Stops,
    /// Messages arrive late, or some do not arrive.
    Delays,
    /// Airtime, data or memory is used without need.
    Wastes,
    /// Nothing has to change, or only a person knows whether it should.
    Note,
}

impl Harm {
    /// Returns its name in a column.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stops => "STOPS",
            Self::Delays => "DELAYS",
            Self::Wastes => "WASTES",
            Self::Note => "NOTE",
        }
    }
}

/// Something that should change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check that found it.
    pub check: &'static str,
    /// The harm.
    pub harm: Harm,
    /// The value that was found, and its place.
    pub found: String,
    /// Why it matters.
    pub why: String,
    /// Commands to run, or lines of the robot's file to write, one each.
    pub fix: Vec<String>,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckResult {
    /// The check was made; no findings mean that it passed.
    Completed(Vec<CheckFinding>),
    /// This robot has nothing to check; the text says what is absent.
    DoesNotApply(String),
    /// The check could not be made; the text says why, and what would make it possible.
    Skipped(String),
}

/// A [`Finding`] without the name of its check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckFinding {
    pub(super) harm: Harm,
    pub(super) found: String,
    pub(super) why: String,
    pub(super) fix: Vec<String>,
}

impl CheckFinding {
    pub(super) fn new(harm: Harm, found: impl Into<String>, why: impl Into<String>) -> Self {
        Self { harm, found: found.into(), why: why.into(), fix: Vec::new() }
    }

    /// Adds a command, or a line of the robot's file.
    pub(super) fn fix(mut self, line: impl Into<String>) -> Self {
        self.fix.push(line.into());
        self
    }
}
