// SPDX-License-Identifier: Apache-2.0
//! The generated parts of the docs page.

use super::Figures;
use super::tables::{Block, blocks};
use anyhow::Result;
use std::path::Path;
use tautline_lab::rig::docs_page;
use tautline_lab::rig::output::About;
use tautline_lab::rig::processes::write_packed;

const PAGE: &str = "study-dds";
const REPORT: &str = "measured/study-dds.json.gz";

/// Fails early if the page is not there.
pub fn check(docs: Option<&Path>) -> Result<()> {
    docs.map_or(Ok(()), |docs| docs_page::check(docs, PAGE))
}

/// Copies the report, and replaces the tables for which there are results.
pub fn write(docs: &Path, folder: &Path, figures: &Figures) -> Result<()> {
    write_packed(&docs.join(REPORT), &std::fs::read_to_string(folder.join("report.json"))?)?;
    let blocks = blocks(figures)?.into_iter().chain([measured(figures)]);
    let parts: Vec<_> = blocks.map(|it| (it.name, it.markdown)).collect();
    docs_page::fill(docs, PAGE, &parts)
}

/// When, where and with which programs the page was measured.
fn measured(figures: &Figures) -> Block {
    let markdown = format!(
        "{} A {} run with {}.\n",
        About::now().line(),
        figures.mode,
        figures.packages.join(", ")
    );
    Block { name: "machine".into(), title: String::new(), markdown }
}
