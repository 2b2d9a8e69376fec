// SPDX-License-Identifier: Apache-2.0
//! Errors of conversion.

/// Why a message cannot be converted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{problem}", if path.is_empty() { String::new() } else { format!("{path}: ") })]
pub struct TranscodeError {
    /// Where in the message (`poses[3].position`); empty for the whole.
    pub path: String,
    /// The value found, and the values allowed.
    pub problem: String,
}

impl TranscodeError {
    pub(crate) fn new(problem: impl Into<String>) -> Self {
        Self { path: String::new(), problem: problem.into() }
    }

    pub(crate) fn with_outer_field(mut self, outer: &str) -> Self {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{outer}{dot}{}", self.path);
        self
    }
}
