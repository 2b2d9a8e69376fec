// SPDX-License-Identifier: Apache-2.0
//! The generated parts of the docs page, between `<!-- begin NAME -->` and `<!-- end NAME -->`.

use super::Figures;
use super::tables::{Block, blocks};
use crate::rig::output::About;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};

const PAGE: &str = "explanation/study-dds.md";
const REPORT: &str = "measured/study-dds.json";

fn page(docs: &Path) -> PathBuf {
    docs.join(PAGE)
}

/// Fails early if the page is not there.
pub fn check(docs: Option<&Path>) -> Result<()> {
    let Some(docs) = docs else { return Ok(()) };
    ensure!(page(docs).is_file(), "--docs {}: there is no {PAGE} in it", docs.display());
    Ok(())
}

/// Copies the report, and replaces the tables for which there are results.
pub fn write(docs: &Path, folder: &Path, figures: &Figures) -> Result<()> {
    std::fs::copy(folder.join("report.json"), docs.join(REPORT))
        .with_context(|| format!("cannot write {REPORT}"))?;
    let file = page(docs);
    let text = std::fs::read_to_string(&file)?;
    let blocks = blocks(figures)?;
    let text = blocks.iter().chain([&measured(figures)]).try_fold(text, replace)?;
    std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
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

/// Replaces the text between the markers of a block.
fn replace(text: String, block: &Block) -> Result<String> {
    let [begin, end] = ["begin", "end"].map(|it| format!("<!-- {it} {} -->", block.name));
    let missing = |marker: &str| format!("{PAGE} has no marker '{marker}'");
    let (before, rest) = text.split_once(&begin).with_context(|| missing(&begin))?;
    let (_, after) = rest.split_once(&end).with_context(|| missing(&end))?;
    Ok(format!("{before}{begin}\n{}{end}{after}", block.markdown))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(name: &str) -> Block {
        Block { name: name.into(), title: String::new(), markdown: "| new |\n".into() }
    }

    #[test]
    fn only_the_text_between_the_markers_of_a_block_is_replaced() {
        let text = "a\n<!-- begin qos -->\nold\n<!-- end qos -->\nb\n";
        let wanted = "a\n<!-- begin qos -->\n| new |\n<!-- end qos -->\nb\n";
        assert_eq!(replace(text.into(), &block("qos")).unwrap(), wanted);
        assert!(replace(text.into(), &block("other")).is_err());
    }
}
