// SPDX-License-Identifier: Apache-2.0
//! Problems of a robot's file, with their positions.

use serde::Serialize;
use std::fmt;
use std::path::PathBuf;
use tautline_gateway::plain::plain;

/// Maximum bytes of a key's path in a message.
const MAX_KEY: usize = 1000;

/// Maximum number of problems listed for one file; further problems are counted.
pub const MAX_PROBLEMS: usize = 100;

/// Maximum number of edits by which a misspelling may differ from a known name.
const MAX_EDIT_DISTANCE: usize = 3;

/// A position in the file; line and column count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Position {
    /// Line number.
    pub line: usize,
    /// Column, in characters.
    pub column: usize,
}

/// The start of the file, the position of problems without a line.
pub const FILE_START: Position = Position { line: 1, column: 1 };

/// One error, which prevents the use of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Position.
    #[serde(flatten)]
    pub at: Position,
    /// Path of the key (`peers.robot2.mtu`), empty for the whole file.
    pub key: String,
    /// Value in the file.
    pub found: String,
    /// Allowed values.
    pub allowed: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_place(f, self.at, &self.key)?;
        write_text(f, &format!("found {}; allowed: {}", self.found, self.allowed))
    }
}

/// A value that is valid but probably not meant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// Position.
    #[serde(flatten)]
    pub at: Position,
    /// Path of the key, empty for the whole file.
    pub key: String,
    /// Description for people.
    pub text: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_place(f, self.at, &self.key)?;
        write_text(f, &self.text)
    }
}

fn write_place(f: &mut fmt::Formatter<'_>, at: Position, key: &str) -> fmt::Result {
    write!(f, "{}:{}: ", at.line, at.column)?;
    // A key of the file may contain line breaks.
    let key = plain(key, MAX_KEY);
    if key.is_empty() { Ok(()) } else { write!(f, "{key}: ") }
}

/// Writes a text, any part of which may quote a value of the file. Line breaks in the value add no lines.
fn write_text(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str(&plain(text, usize::MAX))
}

crate::error::show_as_text!(ConfigError);

/// The reason why a file cannot be used.
#[derive(thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("{}: cannot be read: {cause}", file.display())]
    Unreadable {
        /// Path of the file.
        file: PathBuf,
        /// Error of the system.
        cause: std::io::Error,
    },
    /// The file was read and is invalid.
    #[error("{}", in_lines(file, problems))]
    Invalid {
        /// Path of the file.
        file: PathBuf,
        /// All problems, at least one, in the file's order.
        problems: Vec<Problem>,
    },
}

fn in_lines(file: &std::path::Path, problems: &[Problem]) -> String {
    let shown = problems.iter().take(MAX_PROBLEMS);
    let mut lines: Vec<String> = shown.map(|p| format!("{}:{p}", file.display())).collect();
    if let more @ 1.. = problems.len().saturating_sub(MAX_PROBLEMS) {
        lines.push(format!("{}: and {more} more", file.display()));
    }
    lines.join("\n")
}

/// Returns the name of which `found` is probably a misspelling, if there is one among `names`.
pub fn nearest_name<'n>(names: impl IntoIterator<Item = &'n str>, found: &str) -> Option<&'n str> {
    let plain = |name: &str| name.to_lowercase().replace('-', "_");
    let found = plain(found);
    // Names of a very different length are skipped: a comparison costs the product of both lengths.
    let close =
        names.into_iter().filter(|name| name.len().abs_diff(found.len()) <= MAX_EDIT_DISTANCE);
    let distance = |name: &str| strsim::damerau_levenshtein(&plain(name), &found);
    let (distance, name) = close.map(|name| (distance(name), name)).min()?;
    (distance <= MAX_EDIT_DISTANCE.min(name.len() / 2)).then_some(name)
}

#[cfg(test)]
mod tests {
    use crate::config::{Surroundings, parse};

    #[test]
    fn a_key_with_a_line_break_cannot_add_lines() {
        let text = "name: robot\npeers: { ab\n\n  cd: { xyz: 1 } }\n";
        let problems = parse(text, &Surroundings::default()).unwrap_err();
        assert!(problems.iter().any(|it| it.key.contains('\n')), "{problems:?}");
        assert!(problems.iter().all(|it| it.to_string().lines().count() == 1), "{problems:?}");
    }

    #[test]
    fn a_quoted_value_cannot_add_lines() {
        let text = "name: robot\ntf: { frames: [\"a>\\nb\"] }\n";
        let problems = parse(text, &Surroundings::default()).unwrap_err();
        assert!(problems.iter().any(|it| it.allowed.contains('\n')), "{problems:?}");
        assert!(problems.iter().all(|it| it.to_string().lines().count() == 1), "{problems:?}");
    }
}
