// SPDX-License-Identifier: Apache-2.0
//! A station's motion from a file: lines of seconds, x, y and optionally z.

use super::super::value::{FromText, Real};
use super::super::{MAX_TRACE_BYTES, MAX_WAYPOINTS};
use std::io::Read;
use std::path::Path;
use tautline::config::yaml::quoted_text;
use tautline_medium::Nanos;

/// Seconds, up to one day as in [`LONGEST`](crate::scenario::value::LONGEST).
type Seconds = Real<0, 86_400>;
type Metres = Real<-100_000, 100_000>;
type Waypoint = (Nanos, [f64; 3]);

const COLUMNS: &str = "lines of seconds,x,y or seconds,x,y,z in metres, with rising seconds";

/// A problem of a trace.
#[derive(Debug)]
pub struct Wrong {
    pub found: String,
    pub allowed: String,
}

/// Reads the waypoints of a trace file.
pub fn read(file: &Path) -> Result<Vec<Waypoint>, Wrong> {
    read_with(file, waypoints)
}

/// Reads a file and parses its text.
pub fn read_with<T>(file: &Path, parse: impl FnOnce(&str) -> Result<T, Wrong>) -> Result<T, Wrong> {
    let wrong = |found: String, allowed: &str| Wrong {
        found: format!("{}: {found}", file.display()),
        allowed: allowed.into(),
    };
    let mut text = String::new();
    // Checked before opening, since opening a named pipe would block.
    let open = std::fs::metadata(file).and_then(|about| match about.is_file() {
        true => {
            std::fs::File::open(file)?.take(MAX_TRACE_BYTES as u64 + 1).read_to_string(&mut text)
        }
        false => Err(std::io::Error::other("not a regular file")),
    });
    open.map_err(|error| wrong(error.to_string(), "a readable text file, relative to this one"))?;
    if text.len() > MAX_TRACE_BYTES {
        return Err(wrong("a larger file".into(), &format!("at most {MAX_TRACE_BYTES} bytes")));
    }
    parse(&text).map_err(|Wrong { found, allowed }| wrong(found, &allowed))
}

/// Parses the waypoints of a trace; skips empty lines, lines that begin with `#`, and a heading.
fn waypoints(text: &str) -> Result<Vec<Waypoint>, Wrong> {
    let mut waypoints: Vec<Waypoint> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        let is_heading = number == 0 && line.starts_with(|c: char| c.is_ascii_alphabetic());
        if line.is_empty() || line.starts_with('#') || is_heading {
            continue;
        }
        let next =
            waypoint(line).filter(|next| waypoints.last().is_none_or(|last| last.0 < next.0));
        let found = || format!("line {}: {}", number + 1, quoted_text(line));
        waypoints.push(next.ok_or_else(|| Wrong { found: found(), allowed: COLUMNS.into() })?);
        if waypoints.len() > MAX_WAYPOINTS {
            let found = format!("more than {MAX_WAYPOINTS} waypoints");
            return Err(Wrong { found, allowed: format!("at most {MAX_WAYPOINTS}") });
        }
    }
    if waypoints.is_empty() {
        return Err(Wrong { found: "no waypoint".into(), allowed: COLUMNS.into() });
    }
    Ok(waypoints)
}

fn waypoint(line: &str) -> Option<Waypoint> {
    let mut columns = line.split(',').map(str::trim);
    let seconds = Seconds::from_text(columns.next()?).ok()?.0;
    let metres: Vec<f64> =
        columns.map(|text| Metres::from_text(text).map(|m| m.0)).collect::<Result<_, _>>().ok()?;
    let place = match metres[..] {
        [x, y] => [x, y, 0.0],
        [x, y, z] => [x, y, z],
        _ => return None,
    };
    Some(((seconds * 1e9).round() as Nanos, place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_has_a_heading_or_not_and_two_or_three_coordinates() {
        let expected = vec![(0, [1.0, 2.0, 0.0]), (1_500_000_000, [1.0, -2.5, 3.0])];
        assert_eq!(waypoints("0,1,2\n1.5,1,-2.5,3\n").unwrap(), expected);
        assert_eq!(waypoints("seconds,x,y\n# here\n\n0, 1, 2\n1.5,1,-2.5,3").unwrap(), expected);
    }

    #[test]
    fn a_wrong_line_is_named() {
        for bad in
            ["0,1,2\n1,2", "0,1,2\n0,1,2", "0,1,2\nx,1,2", "0,1,2\n1,2,3,4,5", "0,1,2\n1,inf,0"]
        {
            let wrong = waypoints(bad).unwrap_err();
            assert!(wrong.found.starts_with("line 2: '"), "{bad}: {}", wrong.found);
        }
        assert_eq!(waypoints("seconds,x,y\n").unwrap_err().found, "no waypoint");
    }
}
