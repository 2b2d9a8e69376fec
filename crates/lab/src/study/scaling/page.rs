// SPDX-License-Identifier: Apache-2.0
//! Pictures of the report, and the page docs/explanation/study-scaling.md: its generated tables, its
//! pictures and its data.

use super::acceptance::Comparison;
use super::model;
use super::row::Row;
use super::tables;
use crate::rig::output::About;
use crate::rig::plot;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::ffi::OsString;
use std::path::Path;

/// Name of the page, its data and its pictures.
const PAGE: &str = "study-scaling";
/// Name of the data of the formulas and of experiment 9 in virtual time.
const MODEL: &str = "study-scaling-model";

/// Draws a picture of each experiment in `report`; the names of the files begin with `start`.
pub fn draw(report: &Path, start: &Path) -> Result<()> {
    let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join("reference");
    let arguments: [OsString; 3] = [report.into(), reference.into(), start.into()];
    plot::draw("scaling.py", &arguments)
}

/// Writes tables, pictures and data into the documentation: of the runs, of the model, or of both.
pub fn write(
    docs: &Path,
    report: &Path,
    rows: &[Row],
    comparisons: &[Comparison],
    model: Option<&model::Report>,
) -> Result<()> {
    let page = docs.join("explanation").join(format!("{PAGE}.md"));
    let text = std::fs::read_to_string(&page)
        .with_context(|| format!("--docs: no page {}", page.display()))?;
    let mut tables = tables::all(rows, comparisons);
    if !rows.is_empty() {
        tables.push(("machine", About::now().line() + "\n"));
        keep(report, docs, PAGE, &["model"])?;
    }
    if let Some(model) = model {
        tables.extend(model.tables());
        keep(report, docs, MODEL, &["rows", "comparisons", "not_measured", "counted_s"])?;
    }
    let text = tables.iter().try_fold(text, |text, (name, table)| replace(&text, name, table));
    std::fs::write(&page, text?).with_context(|| format!("cannot write {}", page.display()))?;
    draw(report, &docs.join("explanation").join(format!("{PAGE}-")))
}

/// Keeps the report as data of the documentation, without some of its parts.
fn keep(report: &Path, docs: &Path, name: &str, without: &[&str]) -> Result<()> {
    let mut value: serde_json::Map<String, Value> =
        serde_json::from_str(&std::fs::read_to_string(report)?)?;
    value.retain(|key, _| !without.contains(&key.as_str()));
    let data = docs.join("measured").join(format!("{name}.json"));
    let text = serde_json::to_string_pretty(&value)? + "\n";
    std::fs::write(&data, text).with_context(|| format!("cannot write {}", data.display()))
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
            "limits",
            "formulas",
            "parameters",
            "pairs",
            "worst",
            "ninth",
            "at-the-limit",
        ];
        for name in names {
            replace(page, name, "").unwrap();
        }
    }
}
