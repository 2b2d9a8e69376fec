// SPDX-License-Identifier: Apache-2.0
//! What is wrong with a robot's file, and where.

use serde::Serialize;
use std::fmt;
use std::path::PathBuf;

/// Problems listed for one file; the rest is only counted.
pub const MAX_PROBLEMS: usize = 100;

/// Edits between a known name and one that may be a slip of it.
const MAX_SLIP: usize = 3;

/// A place in the file, both counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Column in characters.
    pub column: usize,
}

/// The beginning of the file, for what belongs to no line.
pub const TOP: Position = Position { line: 1, column: 1 };

/// One thing that must change before the file can be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Where.
    #[serde(flatten)]
    pub at: Position,
    /// Path of the key (`peers.robot2.mtu`), empty for the whole file.
    pub key: String,
    /// What stands there.
    pub found: String,
    /// What may stand there.
    pub allowed: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_place(f, self.at, &self.key)?;
        write!(f, "found {}; allowed: {}", self.found, self.allowed)
    }
}

/// One thing that is allowed but probably not meant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// Where.
    #[serde(flatten)]
    pub at: Position,
    /// Path of the key, empty for the whole file.
    pub key: String,
    /// What is odd, for a person.
    pub text: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_place(f, self.at, &self.key)?;
        f.write_str(&self.text)
    }
}

fn write_place(f: &mut fmt::Formatter<'_>, at: Position, key: &str) -> fmt::Result {
    write!(f, "{}:{}: ", at.line, at.column)?;
    if key.is_empty() { Ok(()) } else { write!(f, "{key}: ") }
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It could not be read.
    #[error("{}: cannot be read: {cause}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system says.
        cause: std::io::Error,
    },
    /// It was read and is not right.
    #[error("{}", in_lines(file, problems))]
    Invalid {
        /// The file.
        file: PathBuf,
        /// Everything that is wrong, at least one, in the file's order.
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

/// The one of `names` that `found` is probably a slip of.
pub fn nearest<'n>(names: impl IntoIterator<Item = &'n str>, found: &str) -> Option<&'n str> {
    let plain = |name: &str| name.to_lowercase().replace('-', "_");
    let found = plain(found);
    // No need to compare with what is much longer or shorter, which costs the product of both.
    let close = names.into_iter().filter(|name| name.len().abs_diff(found.len()) <= MAX_SLIP);
    let distance = |name: &str| strsim::damerau_levenshtein(&plain(name), &found);
    let (distance, name) = close.map(|name| (distance(name), name)).min()?;
    (distance <= MAX_SLIP.min(name.len() / 2)).then_some(name)
}
