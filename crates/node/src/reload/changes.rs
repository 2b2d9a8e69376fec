// SPDX-License-Identifier: Apache-2.0
//! What differs between two files, for a person and as JSON.

use crate::status::TopicChange;
use serde::{Deserialize, Serialize};
use std::fmt;

/// All that differs. Empty where the files mean the same.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Changes {
    /// One for each entry, in the order of the file's sections.
    pub changes: Vec<Change>,
    /// What `tautline set` changed on the running daemon: it stays above the file until the daemon
    /// ends.
    #[serde(default)]
    pub kept: Vec<TopicChange>,
}

/// One entry that was added, removed or changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// What it is: `peer`, `topic`, `service`, `radio`, `watchdog`, or a key of the whole node.
    pub what: String,
    /// Which one; empty where there is only one.
    pub name: String,
    /// What becomes of it.
    pub kind: Kind,
    /// What of a changed one differs.
    pub details: Vec<Detail>,
}

/// What becomes of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// It was not there.
    Added,
    /// It is not there any more.
    Removed,
    /// It was there, and differs.
    Changed,
}

/// One key that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detail {
    /// The key, as in the file.
    pub key: String,
    /// Its value so far.
    pub before: String,
    /// Its value from now on.
    pub after: String,
}

impl Changes {
    /// Whether the files mean the same.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// One short line for each change, for a log.
    pub fn lines(&self) -> Vec<String> {
        self.changes.iter().map(ToString::to_string).collect()
    }
}

/// `topic /scan changed: priority 200 -> 220, rate none -> 5 Hz`.
impl fmt::Display for Change {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.what)?;
        if !self.name.is_empty() {
            write!(out, " {}", self.name)?;
        }
        match self.kind {
            Kind::Added => out.write_str(" added")?,
            Kind::Removed => out.write_str(" removed")?,
            Kind::Changed => out.write_str(" changed")?,
        }
        for (index, Detail { key, before, after }) in self.details.iter().enumerate() {
            let between = if index == 0 { ":" } else { "," };
            write!(out, "{between} {key} {before} -> {after}")?;
        }
        Ok(())
    }
}
