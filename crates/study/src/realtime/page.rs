// SPDX-License-Identifier: Apache-2.0
//! Pictures of the report, and the page docs/explanation/study-realtime.md: its generated tables,
//! its pictures and its data.

use super::Figures;
use anyhow::Result;
use std::ffi::OsString;
use std::path::Path;
use tautline_lab::rig::output::About;
use tautline_lab::rig::{docs_page, plot};

/// Name of the page, its data and its pictures.
const PAGE: &str = "study-realtime";
/// Keys of the parts in a report.
const PARTS: [&str; 5] = ["latency", "tasks", "periods", "roundtrip", "loss"];

/// Draws a picture of each part in `report`; the names of the files begin with `start`.
pub fn draw(report: &Path, start: &Path) -> Result<()> {
    let arguments: [OsString; 2] = [report.into(), start.into()];
    plot::draw_by(&crate::folder("plot/realtime.py"), &arguments)
}

/// Writes tables, pictures and data into the documentation; parts that were not measured stay as
/// they are.
pub fn write(docs: &Path, report: &Path, figures: &Figures, about: &About) -> Result<()> {
    let machine = about.machine.line(&about.kernel);
    let dated = |table: String| {
        let kind = if figures.quick { "; a quick run" } else { "" };
        format!("{table}\nMeasured {}{kind}. {machine}.\n", about.date)
    };
    let parts: Vec<_> =
        figures.tables().into_iter().map(|(name, table)| (name, dated(table))).collect();
    docs_page::fill(docs, PAGE, &parts)?;
    docs_page::keep(docs, "study-realtime.json.gz", report, &PARTS)?;
    draw(report, &docs.join("explanation").join(format!("{PAGE}-")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_place_for_each_table() {
        let text = concat!(
            include_str!("../../../../docs/explanation/study-realtime.md"),
            include_str!("../../../../docs/explanation/study-realtime-tables.md")
        );
        for name in ["latency", "theory", "tasks", "periods", "roundtrip", "loss"] {
            docs_page::replace(text, name, "").unwrap();
        }
    }
}
