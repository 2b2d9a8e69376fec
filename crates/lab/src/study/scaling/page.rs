// SPDX-License-Identifier: Apache-2.0
//! Pictures of the report, and the page docs/explanation/study-scaling.md: its generated tables, its
//! pictures and its data.

use super::acceptance::Comparison;
use super::model;
use super::row::Row;
use super::tables;
use crate::rig::output::About;
use crate::rig::processes::write_packed;
use crate::rig::{docs_page, plot};
use anyhow::Result;
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
    let mut tables = tables::all(rows, comparisons);
    if !rows.is_empty() {
        tables.push(("machine", About::now().line() + "\n"));
        keep(report, docs, PAGE, &["model"])?;
    }
    if let Some(model) = model {
        tables.extend(model.tables());
        keep(report, docs, MODEL, &["rows", "comparisons", "not_measured", "counted_s"])?;
    }
    docs_page::fill(docs, PAGE, &tables)?;
    draw(report, &docs.join("explanation").join(format!("{PAGE}-")))
}

/// Keeps the report as data of the documentation, without some of its parts.
fn keep(report: &Path, docs: &Path, name: &str, without: &[&str]) -> Result<()> {
    let mut value: serde_json::Map<String, Value> =
        serde_json::from_str(&std::fs::read_to_string(report)?)?;
    value.retain(|key, _| !without.contains(&key.as_str()));
    let data = docs.join("measured").join(format!("{name}.json.gz"));
    let text = serde_json::to_string_pretty(&value)? + "\n";
    write_packed(&data, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_place_for_each_table() {
        let text = include_str!("../../../../../docs/explanation/study-scaling.md");
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
            docs_page::replace(text, name, "").unwrap();
        }
    }
}
