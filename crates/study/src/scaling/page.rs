// SPDX-License-Identifier: Apache-2.0
//! Pictures of the report, and the page docs/explanation/study-scaling.md: its generated tables, its
//! pictures and its data.

use super::acceptance::Comparison;
use super::row::Row;
use super::tables;
use anyhow::Result;
use std::ffi::OsString;
use std::path::Path;
use tautline_lab::rig::output::About;
use tautline_lab::rig::processes::write_packed;
use tautline_lab::rig::{docs_page, plot};

/// Name of the page, its data and its pictures.
const PAGE: &str = "study-scaling";

/// Draws a picture of each experiment in `report`; the names of the files begin with `start`.
pub fn draw(report: &Path, start: &Path) -> Result<()> {
    let reference = crate::folder("reference");
    let arguments: [OsString; 3] = [report.into(), reference.into(), start.into()];
    plot::draw_by(&crate::folder("plot/scaling.py"), &arguments)
}

/// Writes tables, pictures and data of the runs into the documentation.
pub fn write(docs: &Path, report: &Path, rows: &[Row], comparisons: &[Comparison]) -> Result<()> {
    let mut tables = tables::every_table(rows, comparisons);
    tables.push(("machine".into(), About::now().line() + "\n"));
    docs_page::fill(docs, PAGE, &tables)?;
    let text = std::fs::read_to_string(report)?;
    write_packed(&docs.join("measured").join(format!("{PAGE}.json.gz")), &text)?;
    draw(report, &docs.join("explanation").join(format!("{PAGE}-")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_place_for_each_table() {
        let text = concat!(
            include_str!("../../../../docs/explanation/study-scaling.md"),
            include_str!("../../../../docs/explanation/study-scaling-tables.md")
        );
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
            docs_page::replace(text, name, "").unwrap();
        }
    }
}
