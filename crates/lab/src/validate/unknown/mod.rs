// SPDX-License-Identifier: Apache-2.0
//! Rate controllers on links that nobody tuned them for: each link is drawn from a seed. Seeds below
//! 10000 are for tuning. Each other seed is used once, to judge.

mod link;
mod rivals;

use crate::rig::parallel;
use crate::rig::processes::write_packed;
use crate::rig::progress::Progress;
use crate::rig::stats;
use crate::rig::table::{self, Column, left, right};
use crate::rig::{docs_page, plot};
use crate::rivals as published;
use crate::scenario;
use crate::sim;
use crate::validate::{Written, far};
use anyhow::{Context, Result};
pub use link::Family;
use link::{Kind, Link, SECONDS};
use rivals::Summary;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use tautline_proto::rate::Tuning;

/// Time at the start of a run that does not count.
const NEW_NS: u64 = 2_000_000_000;
/// The delay of a message that never arrived, for the percentile.
const NEVER_MS: f64 = 10_000.0;
/// Bulk below this fraction of another controller's is a collapse.
const COLLAPSE: f64 = 0.5;
/// Expected duration of one run, for the progress line.
const EXPECTED: Duration = Duration::from_millis(400);
/// Number of cells listed as the worst.
const WORST: usize = 25;

/// Arguments of the command.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Number of links.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    seeds: u64,
    /// Seed of the first link; the next ones follow. Seeds below 10000 are those with which `auto`
    /// was tuned.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(..1_000_000_000))]
    first: u64,
    /// Run only this controller.
    #[arg(long, value_parser = ["auto"], conflicts_with = "docs")]
    only: Option<String>,
    /// Which links are drawn.
    #[arg(long, value_enum, default_value_t, conflicts_with = "docs")]
    family: Family,
    #[command(flatten)]
    written: Written,
}

/// Figures of a controller on a link.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Run {
    controller: &'static str,
    /// Bulk that arrived, percent of what was offered or of what fits, whichever is less.
    pub(super) bulk_percent: f64,
    laser_mean_ms: f64,
    /// 99th percentile of the laser's delay; a message that never arrived counts as ten seconds.
    pub(super) laser_p99_ms: f64,
    laser_lost_percent: f64,
}

/// Figures of all controllers on a link.
#[derive(Debug, Serialize)]
struct Cell {
    link: Link,
    runs: Vec<Run>,
}

/// All measured figures.
#[derive(Debug, Serialize)]
struct Measured {
    cells: Vec<Cell>,
    /// `auto` against its rivals.
    rivals: Option<Summary>,
}

/// Plays the link of a seed with other constants of `auto`.
pub(super) fn play_auto(seed: u64, tuning: Tuning) -> Result<Run> {
    play(&Link::draw(Family::Links, seed), "auto", tuning)
}

fn play(link: &Link, controller: &'static str, tuning: Tuning) -> Result<Run> {
    let mut scenario = scenario::parse_made("unknown", &link.scenario(controller))?;
    scenario.tautline.tuning = tuning;
    let flows = sim::samples(&scenario, link.seed)?;
    let laser = far::flow(&flows, "laser")?;
    let end = SECONDS * 1_000_000_000;
    let bulk = flows.iter().filter(|(name, _)| name != "laser");
    let bulk: usize = bulk.map(|(_, samples)| samples.arrived_count(NEW_NS..end)).sum();
    let arrived = (bulk as u64 * link.bulk_bytes) as f64;
    let fits = link.fitting_bytes(NEW_NS / 1_000_000).max(1.0);
    let mut delays = laser.delays(NEW_NS..end);
    let mean = delays.iter().sum::<f64>() / delays.len().max(1) as f64;
    let published = laser.published_count(NEW_NS..end);
    let lost = published.saturating_sub(delays.len());
    delays.extend(std::iter::repeat_n(NEVER_MS, lost));
    Ok(Run {
        controller,
        bulk_percent: 100.0 * arrived / fits,
        laser_mean_ms: mean,
        laser_p99_ms: stats::p99(delays),
        laser_lost_percent: 100.0 * lost as f64 / published.max(1) as f64,
    })
}

/// Runs all seeds; exit code 3 if `auto` collapses on a link.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let seeds = arguments.first..arguments.first + arguments.seeds;
    let only = |name: &&str| arguments.only.as_deref().is_none_or(|it| it == *name);
    let controllers: Vec<_> =
        published::product_names().chain(published::NAMES).filter(only).collect();
    let stage = |seed| (format!("link {seed}"), EXPECTED * controllers.len() as u32);
    let progress = Progress::new(seeds.clone().map(stage).collect());
    let cells = parallel::run(&progress, seeds.collect(), |seed| {
        let (link, tuning) = (Link::draw(arguments.family, seed), Tuning::default());
        let runs = controllers.iter().map(|it| play(&link, it, tuning)).collect::<Result<_>>()?;
        Ok(Cell { link, runs })
    })?;
    progress.finish();
    let collapses = cells.iter().filter(|cell| cell.ratio() < COLLAPSE).count();
    let rivals = Summary::new(&cells);
    if let Some(docs) = arguments.written.docs() {
        let summary = rivals.as_ref().context("--docs needs all controllers")?;
        write_docs(docs, &cells, summary)?;
    }
    let text = report_text(&cells) + &rivals.as_ref().map(Summary::to_text).unwrap_or_default();
    super::conclude(&Measured { cells, rivals }, arguments.written.json, &text, collapses == 0)
}

impl Cell {
    /// Returns the figures as one line of the documentation's data.
    fn line(&self) -> Value {
        let figures = |run: &Run| {
            let round = |figure: f64| (figure * 10.0).round() / 10.0;
            (run.controller.to_owned(), json!([round(run.bulk_percent), round(run.laser_p99_ms)]))
        };
        let runs: Map<String, Value> = self.runs.iter().map(figures).collect();
        json!({ "seed": self.link.seed, "kind": self.link.kind, "bulk_percent_and_p99_ms": runs })
    }

    fn auto(&self) -> &Run {
        &self.runs[0]
    }

    fn rivals(&self) -> impl Iterator<Item = &Run> {
        // `fixed` knows the link.
        self.runs[1..].iter().filter(|it| it.controller != "fixed")
    }

    /// Bulk of `auto`, as a fraction of the best controller's or of what fits.
    fn ratio(&self) -> f64 {
        let best = self.rivals().map(|it| it.bulk_percent).fold(0.0, f64::max);
        let best = if self.runs.len() > 1 { best } else { 100.0 };
        self.auto().bulk_percent / best.max(1.0)
    }
}

/// A row of the summary: the cells of a kind of link.
struct Row {
    kind: Kind,
    cells: usize,
    collapses: usize,
    bulk: [f64; 3],
    p99: [f64; 3],
    lost: f64,
}

/// Returns the least, the median and the greatest number of a list that is not empty.
fn spread(mut all: Vec<f64>) -> [f64; 3] {
    all.sort_by(f64::total_cmp);
    [all[0], all[all.len() / 2], all[all.len() - 1]]
}

fn rows(cells: &[Cell]) -> Vec<Row> {
    let mut kinds: Vec<Kind> = cells.iter().map(|cell| cell.link.kind).collect();
    kinds.sort();
    kinds.dedup();
    let row = |kind: Kind| {
        let of_kind: Vec<&Cell> = cells.iter().filter(|cell| cell.link.kind == kind).collect();
        let lost = of_kind.iter().map(|it| it.auto().laser_lost_percent);
        Row {
            kind,
            cells: of_kind.len(),
            collapses: of_kind.iter().filter(|it| it.ratio() < COLLAPSE).count(),
            bulk: spread(of_kind.iter().map(|it| it.auto().bulk_percent).collect()),
            p99: spread(of_kind.iter().map(|it| it.auto().laser_p99_ms).collect()),
            lost: lost.fold(0.0, f64::max),
        }
    };
    kinds.into_iter().map(row).collect()
}

fn columns() -> [Column<Row>; 8] {
    [
        left("kind", 12, |row: &Row| format!("{:?}", row.kind)),
        right("links", 5, |row| row.cells.to_string()),
        right("collapses", 9, |row| row.collapses.to_string()),
        right("bulk: least", 12, |row| format!("{:.0} %", row.bulk[0])),
        right("median", 8, |row| format!("{:.0} %", row.bulk[1])),
        right("laser p99", 10, |row| format!("{:.1} ms", row.p99[1])),
        right("worst", 10, |row| format!("{:.0} ms", row.p99[2])),
        right("worst loss", 10, |row| format!("{:.1} %", row.lost)),
    ]
}

/// Writes the summary into the page, the figures of each link into the data, and the picture.
fn write_docs(docs: &Path, cells: &[Cell], summary: &Summary) -> Result<()> {
    let page = table::markdown(&rows(cells), &columns()) + "\n" + &summary.markdown();
    docs_page::fill(docs, "unknown-links", &[("unknown", page)])?;
    let data = docs.join("measured/unknown.json.gz");
    let lines: Vec<String> = cells.iter().map(|cell| cell.line().to_string()).collect();
    write_packed(&data, &format!("[\n{}\n]\n", lines.join(",\n")))?;
    plot::draw("unknown.py", &[data, docs.join("explanation/unknown-links.png")])
}

fn report_text(cells: &[Cell]) -> String {
    let summary = table::format_rows(&rows(cells), &columns());
    let mut worst: Vec<&Cell> = cells.iter().collect();
    worst.sort_by(|one, other| one.ratio().total_cmp(&other.ratio()));
    let line = |cell: &&Cell| {
        let runs = cell.runs.iter().map(|run| {
            format!("{} {:.0} % {:.1} ms", run.controller, run.bulk_percent, run.laser_p99_ms)
        });
        let Link { seed, kind, pipe, load, .. } = &cell.link;
        let runs = runs.collect::<Vec<_>>().join(", ");
        format!("{seed} {kind:?} [{pipe}] load {load:.2}: {runs}\n")
    };
    let worst: String = worst.iter().take(WORST).map(line).collect();
    format!("{summary}\nWorst links:\n{worst}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::processes::read_packed;

    /// Repeats a few links: the data must match the code.
    #[test]
    fn the_data_in_docs_is_current() {
        let data =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/measured/unknown.json.gz");
        let data: Vec<Value> = serde_json::from_str(&read_packed(&data).unwrap()).unwrap();
        for kept in data.iter().take(3) {
            let link = Link::draw(Family::Links, kept["seed"].as_u64().unwrap());
            let auto = play(&link, "auto", Tuning::default()).unwrap();
            let now = Cell { link, runs: vec![auto] }.line();
            let figures = |line: &Value| line["bulk_percent_and_p99_ms"]["auto"].clone();
            let command = "tautline-lab validate unknown --seeds 180 --docs docs";
            assert_eq!(figures(&now), figures(kept), "{}: {command}", kept["seed"]);
        }
    }
}
