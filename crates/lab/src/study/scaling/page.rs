// SPDX-License-Identifier: Apache-2.0
//! Pictures of the report, and the page docs/explanation/study-scaling.md: its generated tables, its
//! pictures and its data.

use super::acceptance::Comparison;
use super::row::Row;
use super::tables;
use crate::rig::output::About;
use crate::rig::plot;
use anyhow::{Context, Result, ensure};
use std::ffi::OsString;
use std::path::Path;

/// Name of the page, its data and its pictures.
const PAGE: &str = "study-scaling";

/// Draws a picture of each experiment in `report`; the names of the files begin with `start`.
pub fn draw(report: &Path, start: &Path) -> Result<()> {
    let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join("reference");
    let arguments: [OsString; 3] = [report.into(), reference.into(), start.into()];
    plot::draw("scaling.py", &arguments)
}

/// Writes tables, pictures and data into the documentation.
pub fn write(docs: &Path, report: &Path, rows: &[Row], comparisons: &[Comparison]) -> Result<()> {
    let page = docs.join("explanation").join(format!("{PAGE}.md"));
    let text = std::fs::read_to_string(&page)
        .with_context(|| format!("--docs: no page {}", page.display()))?;
    let mut tables = tables::all(rows, comparisons);
    tables.push(("machine", About::now().line() + "\n"));
    let text = tables.iter().try_fold(text, |text, (name, table)| replace(&text, name, table));
    std::fs::write(&page, text?).with_context(|| format!("cannot write {}", page.display()))?;
    let data = docs.join("measured").join(format!("{PAGE}.json"));
    std::fs::copy(report, &data).with_context(|| format!("cannot write {}", data.display()))?;
    draw(report, &docs.join("explanation").join(format!("{PAGE}-")))
}

/// Replaces what is between `<!-- begin NAME -->` and `<!-- end NAME -->`.
fn replace(text: &str, name: &str, table: &str) -> Result<String> {
    let (begin, end) = (format!("<!-- begin {name} -->\n"), format!("<!-- end {name} -->"));
    let parts = text.split_once(&begin).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(&end)?;
        Some((before, after))
    });
    let (before, after) =
        parts.with_context(|| format!("{PAGE}.md has no place for '{name}': {begin}... {end}"))?;
    ensure!(!table.contains("-->"), "a table of '{name}' would end a comment");
    Ok(format!("{before}{begin}\n{table}\n{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_replaces_what_is_between_its_marks() {
        let page = "a\n<!-- begin x -->\nold\n<!-- end x -->\nb\n";
        let new = replace(page, "x", "| n |\n").unwrap();
        assert_eq!(new, "a\n<!-- begin x -->\n\n| n |\n\n<!-- end x -->\nb\n");
        assert_eq!(replace(&new, "x", "| n |\n").unwrap(), new);
        let error = replace(page, "y", "").unwrap_err().to_string();
        assert!(error.contains("no place for 'y'"), "{error}");
    }

    #[test]
    fn the_page_has_a_place_for_each_table() {
        let page = include_str!("../../../../../docs/explanation/study-scaling.md");
        let names = [
            "machine",
            "frequency",
            "cost",
            "cpu",
            "radio",
            "recorded",
            "vertical",
            "horizontal",
            "tautline",
        ];
        for name in names {
            replace(page, name, "").unwrap();
        }
    }
}
