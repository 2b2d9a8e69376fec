// SPDX-License-Identifier: Apache-2.0
//! Tables and pictures of a report, and the page docs/explanation/study-dds.md. The tables are made by
//! `plot/tables_dds.py`, the pictures by `plot/study_dds.py`.

use super::Figures;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tautline_lab::rig::output::About;
use tautline_lab::rig::processes::write_packed;
use tautline_lab::rig::{docs_page, plot};

const PAGE: &str = "study-dds";
const DATA: &str = "measured/study-dds.json.gz";

/// A table between the markers of the docs page.
#[derive(Deserialize)]
pub struct Table {
    /// Name in the markers.
    name: String,
    /// Title of the table in the terminal.
    title: String,
    /// The table in Markdown.
    markdown: String,
}

/// Checks that the page exists, so that a missing page is reported before the measurements.
pub fn check(docs: Option<&Path>) -> Result<()> {
    docs.map_or(Ok(()), |docs| docs_page::check(docs, PAGE))
}

/// Returns the tables of a report, given as JSON.
pub fn tables(report: &str) -> Result<Vec<Table>> {
    let mut python = Command::new("/usr/bin/python3");
    python.arg("-B").arg(crate::folder("plot/tables_dds.py")).arg("-").arg(paper());
    python.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = python.spawn().context("cannot start python3")?;
    let mut input = python.stdin.take().context("no input of python3")?;
    // The program reads the whole report before it writes.
    input.write_all(report.as_bytes())?;
    drop(input);
    let output = python.wait_with_output()?;
    ensure!(output.status.success(), "plot/tables_dds.py failed: {}", output.status);
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Returns the text of the tables for the terminal.
pub fn page(tables: &[Table]) -> String {
    tables.iter().map(|it| format!("\n{}\n{}", it.title, it.markdown)).collect()
}

/// Draws the pictures of a report into a folder.
pub fn draw(report: &Path, into: &Path) -> Result<()> {
    plot::draw_by(&crate::folder("plot/study_dds.py"), &[report, &paper(), into])
}

/// Stores the report, and replaces the pictures and the tables that have results.
pub fn write(docs: &Path, report: &Path, tables: Vec<Table>, figures: &Figures) -> Result<()> {
    write_packed(&docs.join(DATA), &std::fs::read_to_string(report)?)?;
    let measured = format!(
        "{} A {} run with {}.\n",
        About::now().line(),
        figures.mode,
        figures.packages.join(", ")
    );
    fill(docs, tables)?;
    docs_page::fill(docs, PAGE, &[("machine", measured)])?;
    draw(report, &docs.join("explanation"))
}

/// Makes tables and pictures of the page again, from `data`: the report that the documentation keeps.
pub fn write_again(docs: &Path, data: &str) -> Result<()> {
    fill(docs, tables(data)?)?;
    draw(&docs.join(DATA), &docs.join("explanation"))
}

/// Returns the path of the data of the documentation.
pub fn data(docs: &Path) -> PathBuf {
    docs.join(DATA)
}

fn fill(docs: &Path, tables: Vec<Table>) -> Result<()> {
    let parts: Vec<_> = tables.into_iter().map(|it| (it.name, it.markdown)).collect();
    docs_page::fill(docs, PAGE, &parts)
}

/// Returns the file of the paper's medians, read from its plots.
fn paper() -> PathBuf {
    crate::folder("reference/emsoft2016_medians.csv")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tautline_lab::rig::processes::read_packed;

    #[test]
    fn the_page_has_the_tables_of_its_data() {
        let docs = crate::folder("../../docs");
        let page = |name: &str| std::fs::read_to_string(docs.join("explanation").join(name));
        let page = page("study-dds.md").unwrap() + &page("study-dds-tables.md").unwrap();
        let tables = tables(&read_packed(&data(&docs)).unwrap()).unwrap();
        assert!(tables.len() > 10);
        for table in tables {
            assert!(page.contains(&table.markdown), "{}: --again --docs docs", table.name);
        }
    }
}
