// SPDX-License-Identifier: Apache-2.0
//! Pictures of the restaurant, and its page in the documentation: tables, pictures and data.

use super::bezier::Drive;
use super::report::Figures;
use super::team::Team;
use crate::rig::output::About;
use crate::rig::{page, plot};
use crate::setup::ros;
use anyhow::{Context, Result};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Name of the page and its data.
pub const PAGE: &str = "restaurant";
/// Keys of the parts in a report.
const PARTS: [&str; 6] = ["orders", "pages", "bezier", "regulation", "periods", "faults"];

/// Pictures by the name of their file.
const FILM: &str = "restaurant.gif";
const BROWSER: &str = "restaurant-page.png";
const PATHS: &str = "restaurant-paths.png";
const STEPS: &str = "restaurant-steps.png";

/// Draws what was measured into the report's folder. `runs` are the folders of the runs.
pub fn draw(folder: &Path, runs: &[PathBuf], figures: &Figures) -> Result<()> {
    let run = |part: &str| {
        let is_part = |run: &&PathBuf| {
            run.file_name().is_some_and(|it| it.to_string_lossy().starts_with(part))
        };
        runs.iter().find(is_part)
    };
    let file = |name: &str| ros::text(&folder.join(name));
    if let Some(run) = run("orders") {
        let truth = ros::text(&run.join("truth.jsonl"))?;
        plot::draw("restaurant.py", &["film", &truth, &file(FILM)?])?;
    }
    if let Some(run) = run("page") {
        // Without an order, there is no picture.
        let _ = std::fs::copy(run.join("page.png"), folder.join(BROWSER));
    }
    if let Some(run) = run("bezier") {
        let path: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(run.join(super::bezier::PATH))?)?;
        let drives = shown(figures)?;
        let data = json!({ "path": path, "drives": drives });
        std::fs::write(folder.join("drives.json"), format!("{data}\n"))?;
        plot::draw("restaurant.py", &["paths", &file("drives.json")?, &file(PATHS)?])?;
    }
    if !figures.regulation.is_empty() {
        plot::draw("restaurant.py", &["steps", &file("report.json")?, &file(STEPS)?])?;
    }
    Ok(())
}

/// Returns a drive of each kind, of the team that also drove without Tautline if one did.
fn shown(figures: &Figures) -> Result<Vec<serde_json::Value>> {
    let mut teams: Vec<Team> = figures.bezier.iter().map(|it| it.team).collect();
    let transports = |team: Team| {
        figures
            .bezier
            .iter()
            .any(|it| it.team == team && it.transport != figures.bezier[0].transport)
    };
    teams.sort_by_key(|team| !transports(*team));
    let team = teams.first().copied().context("no drives")?;
    let mut kinds = Vec::new();
    let is_new = |drive: &&Drive| {
        let kind = (drive.condition, drive.transport, drive.controller);
        let is_new = drive.team == team && !kinds.contains(&kind);
        kinds.push(kind);
        is_new
    };
    let drives: Vec<&Drive> = figures.bezier.iter().filter(is_new).collect();
    let value = |drive: &&Drive| {
        json!({ "condition": drive.condition, "transport": drive.transport,
            "controller": drive.controller, "poses": drive.driven })
    };
    Ok(drives.iter().map(value).collect())
}

/// Writes tables, pictures and data into the documentation; parts that were not measured stay as they
/// are.
pub fn write(docs: &Path, folder: &Path, figures: &Figures, about: &About) -> Result<()> {
    let dated = |table: String| format!("{table}\n{}\n", about.line());
    let parts: Vec<_> =
        figures.tables().into_iter().map(|(name, table)| (name, dated(table))).collect();
    page::fill(docs, PAGE, &parts)?;
    page::keep(docs, PAGE, &folder.join("report.json"), &PARTS)?;
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
        let text = include_str!("../../../../docs/explanation/restaurant.md");
        for name in ["orders", "bezier", "regulation", "periods", "faults"] {
            page::replace(text, name, "").unwrap();
        }
    }
}
