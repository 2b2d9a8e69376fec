// SPDX-License-Identifier: Apache-2.0
//! A pipe's recorded capacity from a file: lines of milliseconds.

use super::trace::{Wrong, read_with};
use std::path::Path;
use tautline::config::yaml::quoted_text;
use tautline_medium::Trace;

const LINES: &str = "lines of milliseconds, whole numbers that never fall, the last one above 0";

/// Reads the opportunities of a trace file.
pub fn read(file: &Path) -> Result<Trace, Wrong> {
    read_with(file, opportunities)
}

/// Parses a trace; skips empty lines and lines that begin with `#`.
pub fn opportunities(text: &str) -> Result<Trace, Wrong> {
    let mut found: Vec<u32> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let last = found.last().copied().unwrap_or(0);
        let next = line.parse().ok().filter(|next| *next >= last);
        let problem = || format!("line {}: {}", number + 1, quoted_text(line));
        found.push(next.ok_or_else(|| Wrong { found: problem(), allowed: LINES.into() })?);
    }
    let nothing = || Wrong { found: "no opportunity after 0".into(), allowed: LINES.into() };
    Trace::new(&found).ok_or_else(nothing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_has_milliseconds_that_never_fall() {
        assert_eq!(
            opportunities("# LTE\n0\n5\n5\n\n7\n").unwrap(),
            Trace::new(&[0, 5, 5, 7]).unwrap()
        );
        for (bad, found) in [
            ("1\n0\n", "line 2: '0'"),
            ("1\n-2\n", "line 2: '-2'"),
            ("1\n2.5\n", "line 2: '2.5'"),
            ("", "no opportunity after 0"),
            ("0\n", "no opportunity after 0"),
        ] {
            assert_eq!(opportunities(bad).unwrap_err().found, found);
        }
    }
}
