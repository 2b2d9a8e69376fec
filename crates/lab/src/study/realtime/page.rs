// SPDX-License-Identifier: Apache-2.0
//! Pictures of the report, and the page docs/explanation/study-realtime.md: its generated tables,
//! its pictures and its data.

use super::Figures;
use crate::rig::output::About;
use crate::rig::plot;
use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value};
use std::ffi::OsString;
use std::path::Path;

/// Name of the page, its data and its pictures.
const PAGE: &str = "study-realtime";
/// Keys of the parts in a report.
const PARTS: [&str; 5] = ["latency", "tasks", "periods", "roundtrip", "loss"];

/// Draws a picture of each part in `report`; the names of the files begin with `start`.
pub fn draw(report: &Path, start: &Path) -> Result<()> {
    let arguments: [OsString; 2] = [report.into(), start.into()];
    plot::draw("realtime.py", &arguments)
}

/// Writes tables, pictures and data into the documentation; parts that were not measured stay as
/// they are.
pub fn write(docs: &Path, report: &Path, figures: &Figures, about: &About) -> Result<()> {
    let page = docs.join("explanation").join(format!("{PAGE}.md"));
    let text = std::fs::read_to_string(&page)
        .with_context(|| format!("--docs: no page {}", page.display()))?;
    let machine = about.machine.line(&about.kernel);
    let dated = |table: String| {
        let kind = if figures.quick { "; a quick run" } else { "" };
        format!("{table}\nMeasured {}{kind}. {machine}.\n", about.date)
    };
    let text = figures
        .tables()
        .into_iter()
        .try_fold(text, |text, (name, table)| replace(&text, name, &dated(table)))?;
    std::fs::write(&page, text).with_context(|| format!("cannot write {}", page.display()))?;
    let data = docs.join("measured").join(format!("{PAGE}.json"));
    let new = serde_json::from_str(&std::fs::read_to_string(report)?)?;
    let merged = merge(std::fs::read_to_string(&data).ok().as_deref(), new)?;
    std::fs::write(&data, format!("{merged:#}\n"))
        .with_context(|| format!("cannot write {}", data.display()))?;
    draw(report, &docs.join("explanation").join(format!("{PAGE}-")))
}

/// Returns the new report with the parts of the old data that it does not have; `measured` says when
/// each part was.
fn merge(old: Option<&str>, mut new: Value) -> Result<Value> {
    let mut dates = Map::new();
    for part in PARTS.iter().filter(|part| new.get(part).is_some()) {
        dates.insert((*part).into(), new["date"].clone());
    }
    let old: Value = old.map(serde_json::from_str).transpose()?.unwrap_or_default();
    for part in PARTS.iter().filter(|part| old.get(part).is_some()) {
        if new.get(part).is_none() {
            new[*part] = old[*part].clone();
            dates.insert((*part).into(), old["measured"][*part].clone());
        }
    }
    new["measured"] = dates.into();
    Ok(new)
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
        let error = replace(page, "y", "").unwrap_err().to_string();
        assert!(error.contains("no place for 'y'"), "{error}");
    }

    #[test]
    fn parts_that_were_not_measured_stay_in_the_data() {
        let new = serde_json::json!({"date": "b", "tasks": [2]});
        let old =
            r#"{"date": "a", "tasks": [1], "loss": [1], "measured": {"tasks": "a", "loss": "a"}}"#;
        let merged = merge(Some(old), new).unwrap();
        assert_eq!((&merged["tasks"], &merged["loss"]), (&[2].into(), &[1].into()));
        assert_eq!(merged["measured"], serde_json::json!({"tasks": "b", "loss": "a"}));
    }

    #[test]
    fn the_page_has_a_place_for_each_table() {
        let page = include_str!("../../../../../docs/explanation/study-realtime.md");
        for name in ["latency", "theory", "tasks", "periods", "roundtrip", "loss"] {
            replace(page, name, "").unwrap();
        }
    }
}
