// SPDX-License-Identifier: Apache-2.0
//! Standard output: text, tables and JSON.

use super::Failure;
use serde::Serialize;
use std::io::{self, ErrorKind, Write};
use tautline_gateway::plain::plain;

/// Maximum bytes of one cell of a table.
const MAX_CELL: usize = 1000;

/// Writes `text`. If the reader has closed the pipe (`tautline top --json | head`), the program
/// ends successfully.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        done => done.map_err(|e| Failure::new(format!("standard output: {e}"))),
    }
}

pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(Failure::new)?;
    print(&format!("{text}\n"))
}

/// Formats rows under a header in aligned columns, with two spaces before each line; without rows, `none`.
pub fn table<const COLUMNS: usize>(
    header: [&str; COLUMNS],
    rows: impl IntoIterator<Item = [String; COLUMNS]>,
) -> String {
    dyn_table(&header, rows.into_iter().map(Vec::from))
}

/// Like [`table`], for a number of columns that is known only at run time.
pub fn dyn_table(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    // Names of topics and types come from local nodes and may contain any characters.
    let plain_row = |row: Vec<String>| -> Vec<String> {
        row.iter().map(|cell| plain(cell, MAX_CELL)).collect()
    };
    let rows: Vec<_> = rows.map(plain_row).collect();
    if rows.is_empty() {
        return "  none\n".into();
    }
    let mut widths: Vec<usize> = header.iter().map(|name| name.chars().count()).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded = cells.zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
        format!("  {}\n", padded.collect::<Vec<_>>().join("  ").trim_end())
    };
    let mut text = line(&mut header.iter().copied());
    rows.iter().for_each(|row| text.push_str(&line(&mut row.iter().map(String::as_str))));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_local_nodes_cannot_add_lines() {
        let rows = [["/a\u{9b}2J\n\nPeers\n  base  up".into(), "1".into()]];
        let text = table(["TOPIC", "PRIORITY"], rows);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(!text.contains('\u{9b}'));
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["/scan".into(), "200".into()], ["/camera/image".into(), "20".into()]];
        let expected = "  TOPIC          PRIORITY\n  /scan          200\n  /camera/image  20\n";
        assert_eq!(table(["TOPIC", "PRIORITY"], rows), expected);
    }
}
