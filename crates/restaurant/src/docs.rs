// SPDX-License-Identifier: Apache-2.0
//! Pictures of the restaurant, and its page in the documentation: tables, pictures and data.

use super::report::Figures;
use super::team::Transport;
use super::{Part, Run};
use anyhow::{Context, Result};
use serde_json::json;
use std::path::{Path, PathBuf};
use tautline_lab::rig::output::About;
use tautline_lab::rig::{docs_page, plot};
use tautline_lab::setup::ros;

/// Name of the page and its data.
pub const PAGE: &str = "restaurant";
/// Keys of the parts in a report.
const PARTS: [&str; 6] = ["orders", "pages", "bezier", "regulation", "periods", "faults"];

/// File of the film in which robots serve orders.
const FILM: &str = "restaurant.gif";
/// File of the picture of the page in the browser.
const BROWSER: &str = "restaurant-page.png";
/// File of the picture of the drives along the Bezier path.
const PATHS: &str = "restaurant-paths.png";
/// File of the picture of the control loop's steps.
const STEPS: &str = "restaurant-steps.png";

/// Draws the pictures into the folder of the report; `runs` has the folder of each run.
pub fn draw(folder: &Path, runs: &[(Run, PathBuf)], figures: &Figures) -> Result<()> {
    let script = super::stage::folder("plot/restaurant.py");
    let run = |part| runs.iter().find(|(run, _)| run.0 == part).map(|(_, folder)| folder);
    let file = |name: &str| ros::utf8(&folder.join(name));
    if let Some(run) = run(Part::Orders) {
        let truth = ros::utf8(&run.join("truth.jsonl"))?;
        plot::draw_by(&script, &["film", &truth, &file(FILM)?])?;
    }
    if let Some(run) = run(Part::Page) {
        let picture = run.join("page.png");
        // Without a browser, there is no picture.
        if picture.is_file() {
            std::fs::copy(picture, folder.join(BROWSER))?;
        }
    }
    if let Some(run) = run(Part::Bezier) {
        let path: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(run.join(super::bezier::PATH))?)?;
        let data = json!({ "path": path, "drives": shown(figures) });
        std::fs::write(folder.join("drives.json"), format!("{data}\n"))?;
        plot::draw_by(&script, &["paths", &file("drives.json")?, &file(PATHS)?])?;
    }
    if !figures.regulation.is_empty() {
        plot::draw_by(&script, &["steps", &file("report.json")?, &file(STEPS)?])?;
    }
    Ok(())
}

/// Returns a drive of each kind: from the first team that also drove without Tautline, or else from
/// the first team.
fn shown(figures: &Figures) -> Vec<serde_json::Value> {
    let plain = figures.bezier.iter().find(|it| it.transport == Transport::Plain);
    let team = plain.or(figures.bezier.first()).map(|it| it.team);
    let mut kinds = Vec::new();
    let mut drives = Vec::new();
    for drive in figures.bezier.iter().filter(|it| Some(it.team) == team) {
        let kind = (drive.condition, drive.transport, drive.controller);
        if !kinds.contains(&kind) {
            kinds.push(kind);
            drives.push(json!({ "condition": drive.condition, "transport": drive.transport,
                "controller": drive.controller, "poses": drive.driven }));
        }
    }
    drives
}

/// Writes tables, pictures and data into the documentation; parts that were not measured do not
/// change.
pub fn write(docs: &Path, folder: &Path, figures: &Figures, about: &About) -> Result<()> {
    let dated = |table: String| format!("{table}\n{}\n", about.line());
    let parts: Vec<_> =
        figures.sections().into_iter().map(|it| (it.name, dated(it.table))).collect();
    docs_page::fill(docs, PAGE, &parts)?;
    docs_page::keep(docs, "restaurant.json.gz", &folder.join("report.json"), &PARTS)?;
    for picture in [FILM, BROWSER, PATHS, STEPS] {
        let (from, to) = (folder.join(picture), docs.join("explanation").join(picture));
        if from.is_file() {
            std::fs::copy(&from, &to).with_context(|| format!("cannot write {}", to.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_place_for_each_table() {
        let text = concat!(
            include_str!("../../../docs/explanation/restaurant.md"),
            include_str!("../../../docs/explanation/restaurant-tables.md")
        );
        for name in ["orders", "page", "bezier", "regulation", "periods", "faults"] {
            docs_page::replace(text, name, "").unwrap();
        }
    }
}
