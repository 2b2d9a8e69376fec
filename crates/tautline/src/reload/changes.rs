// SPDX-License-Identifier: Apache-2.0
//! Differences between two files, for people and as JSON.

use crate::status::TopicChange;
use serde::{Deserialize, Serialize};
use std::fmt;

/// All differences; empty if the files have the same meaning.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Changes {
    /// One change for each entry, in the order of the file's sections.
    pub changes: Vec<Change>,
    /// Changes by `tautline set` on the running daemon. They override the file until the daemon
    /// stops.
    #[serde(default)]
    pub kept: Vec<TopicChange>,
}

/// One entry that was added, removed or changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Type of the entry: `peer`, `topic`, `service`, `radio`, `watchdog`, or a key of the whole
    /// node.
    pub what: String,
    /// Name of the entry; empty if there is only one of its type.
    pub name: String,
    /// Kind of the change.
    pub kind: Kind,
    /// Differences of a changed entry.
    pub details: Vec<Detail>,
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The entry is new.
    Added,
    /// The entry was removed.
    Removed,
    /// The entry has other values.
    Changed,
}

/// One key with another value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detail {
    /// Key, as in the file.
    pub key: String,
    /// Previous value.
    pub before: String,
    /// New value.
    pub after: String,
}

impl Changes {
    /// Whether the files have the same meaning.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Returns one short line for each change, for a log.
    pub fn lines(&self) -> Vec<String> {
        self.changes.iter().map(ToString::to_string).collect()
    }
}

/// Formats a change as `topic /scan changed: priority 200 -> 220, rate none -> 5 Hz`.
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
