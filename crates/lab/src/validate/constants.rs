// SPDX-License-Identifier: Apache-2.0
//! The effect of each constant of `auto`, halved and doubled, on links drawn from seeds.

use super::Written;
use super::unknown::{self, Run};
use crate::rig::docs_page;
use crate::rig::parallel;
use crate::rig::progress::Progress;
use crate::rig::table::{markdown_row, markdown_rule};
use anyhow::Result;
use serde::Serialize;
use std::process::ExitCode;
use std::time::Duration;
use tautline_proto::rate::{Constant, Tuning};

/// Seeds of the links: those with which `auto` was tuned.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=27;
/// Expected duration of all links with one value, for the progress line.
const EXPECTED: Duration = Duration::from_secs(7);
/// Bulk below this percentage of what fits counts as little.
const LITTLE: f64 = 80.0;

/// Figures over all links.
#[derive(Debug, Clone, Copy, Serialize)]
struct Figures {
    /// Mean of the bulk that arrived, percent of what fits.
    bulk_percent: f64,
    /// Geometric mean of the laser's 99th percentile.
    laser_p99_ms: f64,
    /// Links with little bulk.
    little: usize,
}

#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    value: f64,
    halved: Figures,
    doubled: Figures,
}

#[derive(Debug, Serialize)]
struct Measured {
    default: Figures,
    rows: Vec<Row>,
}

fn figures(runs: &[Run]) -> Figures {
    let count = runs.len().max(1) as f64;
    let logs = runs.iter().map(|run| run.laser_p99_ms.max(0.1).ln()).sum::<f64>();
    Figures {
        bulk_percent: runs.iter().map(|run| run.bulk_percent.min(100.0)).sum::<f64>() / count,
        laser_p99_ms: (logs / count).exp(),
        little: runs.iter().filter(|run| run.bulk_percent < LITTLE).count(),
    }
}

/// Returns the variants in order: the default, and each constant halved and doubled.
fn variants() -> Vec<(String, Tuning)> {
    let scaled = |constant: &Constant, factor: f64| {
        let tuning = Tuning::default().with_scaled(constant.name, factor).unwrap_or_default();
        (format!("{} times {factor}", constant.name), tuning)
    };
    let each = Tuning::TABLE.iter().flat_map(|it| [scaled(it, 0.5), scaled(it, 2.0)]);
    std::iter::once(("default".to_owned(), Tuning::default())).chain(each).collect()
}

/// Runs all variants.
pub fn run(written: &Written) -> Result<ExitCode> {
    let variants = variants();
    let progress =
        Progress::new(variants.iter().map(|(name, _)| (name.clone(), EXPECTED)).collect());
    let tunings = variants.into_iter().map(|(_, tuning)| tuning).collect();
    let all = parallel::run(&progress, tunings, |tuning| {
        let runs: Result<Vec<Run>> = SEEDS.map(|seed| unknown::play_auto(seed, tuning)).collect();
        Ok(figures(&runs?))
    })?;
    progress.finish();
    let row = |(constant, pair): (&Constant, &[Figures])| Row {
        name: constant.name,
        value: (constant.get)(&Tuning::default()),
        halved: pair[0],
        doubled: pair[1],
    };
    let rows = Tuning::TABLE.iter().zip(all[1..].chunks(2)).map(row).collect();
    let measured = Measured { default: all[0], rows };
    let text = table(&measured);
    if let Some(folder) = written.docs() {
        docs_page::fill(folder, "rate-control", &[("constants", text.clone())])?;
        let raw = serde_json::to_string_pretty(&measured)? + "\n";
        std::fs::write(folder.join("measured/constants.json"), raw)?;
    }
    super::conclude(&measured, written.json, &text, true)
}

fn table(measured: &Measured) -> String {
    let titles = ["constant", "meaning", "value", "source", "halved", "doubled"].map(String::from);
    let head = markdown_row(titles) + &markdown_rule(6);
    let words =
        |it: &Figures| format!("{:.1} % / {:.1} / {}", it.bulk_percent, it.laser_p99_ms, it.little);
    let rows = Tuning::TABLE.iter().zip(&measured.rows).map(|(constant, row)| {
        let value = format!("{} {}", row.value, constant.unit);
        markdown_row([
            format!("`{}`", row.name),
            constant.meaning.trim().to_owned(),
            value.trim().to_owned(),
            constant.source.to_owned(),
            words(&row.halved),
            words(&row.doubled),
        ])
    });
    format!("{head}{}\nAs they are: {}.\n", rows.collect::<String>(), words(&measured.default))
}
