// SPDX-License-Identifier: Apache-2.0
//! Rate controllers on links that they have no configuration for: rates and losses, steps, pauses,
//! shared channels, chains of stations. They run in virtual time, so that a change of behaviour is
//! a diff.

mod pauses;
mod sharing;
mod sparse;
mod steps;
mod table;

use crate::rig::parallel;
use crate::rig::processes::{make_folder, write_packed};
use crate::rig::progress::Progress;
use crate::scenario::{self, Scenario};
use crate::validate::{self, Written, relays};
use anyhow::{Result, ensure};
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;

/// Rates of the slow links.
const MBPS: [u64; 6] = [1, 3, 6, 12, 24, 54];
/// Seeds of the chains' samples.
const CHAIN_SEEDS: u64 = 5;

/// All measured figures.
#[derive(Debug, Serialize)]
struct Measured {
    cells: Vec<table::Cell>,
    steps: Vec<steps::Step>,
    pauses: Vec<pauses::Pause>,
    sparse: Vec<sparse::Sparse>,
    sharing: Vec<sharing::Channel>,
    chains: Vec<relays::Row>,
}

/// Runs everything; exit code 3 if `auto` misses a target.
pub fn run(written: &Written) -> Result<ExitCode> {
    let pauses = pauses::Case::every_case();
    let pause_stages = pauses.iter().map(|case| case.stage()).collect();
    let sparse = sparse::Case::every_case();
    let sparse_stages = sparse.iter().map(|case| case.stage()).collect();
    let single = [table::stages(), steps::stages(), pause_stages, sparse_stages];
    let stages = single.into_iter().chain([sharing::stages(), relays::stages()]);
    let progress = Progress::new(stages.flatten().collect());
    let measured = Measured {
        cells: table::run(&progress)?,
        steps: steps::run(&progress)?,
        pauses: parallel::run(&progress, pauses, pauses::Case::run)?,
        sparse: parallel::run(&progress, sparse, sparse::Case::run)?,
        sharing: sharing::run(&progress)?,
        chains: relays::rows(&progress, CHAIN_SEEDS)?,
    };
    progress.finish();
    if let Some(folder) = written.docs() {
        write_docs(&measured, folder)?;
    }
    let missed: Vec<String> = measured.missed_targets().collect();
    let code = validate::conclude(&measured, written.json, &measured.page(), missed.is_empty());
    missed.iter().for_each(|text| eprintln!("not reached: {text}"));
    code
}

impl Measured {
    fn page(&self) -> String {
        format!(
            "# Comparison of rate controllers\n\n\
             Made by `tautline-lab validate rates --docs docs`, in virtual time. The same code gives the same figures, so a change of behaviour appears as a diff of this page.\n\n{}\n{}\n{}\n{}\n{}\n{}",
            table::section(&self.cells),
            steps::section(&self.steps),
            pauses::section(&self.pauses),
            sparse::section(&self.sparse),
            sharing::section(&self.sharing),
            relays::section(&self.chains)
        )
    }

    fn missed_targets(&self) -> impl Iterator<Item = String> {
        let cells = self.cells.iter().filter_map(table::missed_target);
        let steps = self.steps.iter().filter_map(steps::missed_target);
        let pauses = self.pauses.iter().filter_map(pauses::missed_target);
        let sparse = self.sparse.iter().filter_map(sparse::missed_target);
        let chains = relays::missed_target(&self.chains);
        cells
            .chain(steps)
            .chain(pauses)
            .chain(sparse)
            .chain(sharing::missed_targets(&self.sharing))
            .chain(chains)
    }
}

fn write_docs(measured: &Measured, folder: &Path) -> Result<()> {
    let raw = folder.join("measured");
    make_folder(&raw)?;
    let pages = folder.join("explanation");
    ensure!(pages.is_dir(), "{} is not a folder", pages.display());
    std::fs::write(pages.join("rates.md"), measured.page())?;
    let json = serde_json::to_string_pretty(measured)?;
    write_packed(&raw.join("rates.json.gz"), &(json + "\n"))?;
    steps::draw(&measured.steps, &raw.join("steps.csv.gz"), &pages.join("steps.png"))
}

/// Parses a scenario made here.
fn parse(text: &str) -> Result<Scenario> {
    scenario::parse_made("rates", text)
}
