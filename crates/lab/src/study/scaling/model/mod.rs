// SPDX-License-Identifier: Apache-2.0
//! Formulas for the load that a team carries, fitted to the thesis's data and to the study's own, and
//! experiment 9 in virtual time.

mod data;
mod fit;
mod formula;
mod judge;
mod ninth;
mod single;
mod tables;

use crate::rig::verdict::{Bound, Verdict};
use crate::sim::team::Transport;
use anyhow::{Context, Result};
use data::Rows;
use formula::{Formula, Shape};
use judge::{BEST, Fold, Judged, Model, Test, cross_validated, predicted};
use ninth::{Computers, Point, Prices, Team};
use serde::Serialize;
use single::Pair;
use std::path::{Path, PathBuf};

/// Largest median error of the formula, percent (target of the study).
const TARGET_PERCENT: Bound = Bound::AtMost(15.0);
/// Seeds of the runs in virtual time.
const SEEDS: [u64; 3] = [1, 2, 3];

/// The part of the report about formulas and experiment 9.
#[derive(Serialize)]
pub struct Report {
    /// The report of `study scaling` whose rows are one of the sets.
    measured: String,
    /// Limits of one sender and one echoer in the thesis.
    single: Vec<Pair>,
    /// Costs of messages in experiment 9.
    prices: Prices,
    /// Seeds of experiment 9.
    seeds: Vec<u64>,
    /// What the formulas were fitted to and judged on.
    sets: Vec<Set>,
    /// Rows of the thesis's experiment 7, each predicted from those with other numbers of pairs.
    thesis: Vec<Judged>,
    /// The same by CSLV.
    thesis_by_cslv: Vec<Judged>,
    /// Runs of experiment 9.
    ninth: Vec<Point>,
}

/// A set of rows and how well the formulas predict them.
#[derive(Serialize)]
struct Set {
    name: String,
    rows: usize,
    /// Rows beyond capacity.
    overloaded: usize,
    /// The formula that the study reports, fitted to all rows; `None` if they show no limit.
    formula: Option<Formula>,
    tests: Vec<Test>,
}

impl Set {
    fn new(rows: &Rows, tests: Vec<Test>) -> Self {
        Self {
            name: rows.name.clone(),
            rows: rows.rows.len(),
            overloaded: rows.rows.iter().filter(|row| row.is_overloaded()).count(),
            formula: BEST.formula(&rows.rows).ok(),
            tests,
        }
    }

    /// Judges the formula and both forms of CSLV by leaving out each number of pairs.
    fn by_pairs(rows: &Rows) -> Self {
        let models = [Model::Cslv, Model::Fitted(Shape::Constant), BEST];
        Self::new(rows, models.map(|model| Test::by_pairs(model, &rows.rows)).into())
    }
}

/// Fits and judges the formulas, and runs experiment 9. `measured` is a report of `study scaling`; by
/// default that of the documentation. `quick`: with fewer teams and one seed.
pub fn run(quick: bool, measured: Option<&Path>) -> Result<Report> {
    let kept =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/measured/study-scaling.json.gz");
    let measured: PathBuf = measured.map_or(kept, Path::to_path_buf);
    let own = data::read(&measured)?;
    let name = measured.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let single = single::thesis()?;
    let prices = prices(&single, own.daemon_share)
        .with_context(|| format!("costs of messages from {}", measured.display()))?;
    let seeds = if quick { SEEDS[..1].to_vec() } else { SEEDS.to_vec() };
    let ninth = ninth::climb_all(quick, &prices, &seeds)?;
    let [bare, robots] = data::thesis()?;
    let mut sets = vec![of_bare_computers(&bare), of_robots(&bare, &robots)?];
    sets.extend(own.sets.iter().map(Set::by_pairs));
    sets.extend(of_ninth(&ninth).iter().map(Set::by_pairs));
    Ok(Report {
        measured: name,
        single,
        prices,
        seeds,
        sets,
        thesis: cross_validated(BEST, &bare.rows, Fold::Pairs),
        thesis_by_cslv: cross_validated(Model::Cslv, &bare.rows, Fold::Pairs),
        ninth,
    })
}

/// Judges all models on the thesis's experiment 7, by leaving out numbers of pairs and frequencies.
fn of_bare_computers(rows: &Rows) -> Set {
    let shapes = Shape::ALL.map(Model::Fitted);
    let by_pairs = std::iter::once(Model::Cslv).chain(shapes);
    let by_pairs = by_pairs.map(|model| Test::by_pairs(model, &rows.rows));
    let by_frequency = [Model::Cslv, Model::Fitted(Shape::Constant), BEST];
    let by_frequency = by_frequency.map(|model| Test::by_frequency(model, &rows.rows));
    Set::new(rows, by_pairs.chain(by_frequency).collect())
}

/// Judges what was fitted to experiment 7 on experiment 8.
fn of_robots(bare: &Rows, robots: &Rows) -> Result<Set> {
    let mut tests = Vec::new();
    for model in [Model::Cslv, Model::Fitted(Shape::Constant), BEST] {
        let formula = model.formula(&bare.rows)?;
        tests.push(Test::of(model, "from experiment 7", &predicted(&formula, &robots.rows)));
    }
    Ok(Set::new(robots, tests))
}

/// Returns the rows of plain ROS 1 in experiment 9, one set for each kind of computers.
fn of_ninth(points: &[Point]) -> Vec<Rows> {
    let of = |computers: Computers| {
        let own = points.iter().filter(|it| {
            let Team { transport, computers: own, .. } = it.team;
            own == computers && transport == Transport::Tcp
        });
        let name = format!("experiment 9, ROS 1, computers: {}", computers.words());
        Rows { name, rows: own.filter_map(Point::row).collect() }
    };
    vec![of(Computers::Ideal), of(Computers::Thesis)]
}

/// Returns the costs of messages on the thesis's computers: of a small message and a scan over
/// Ethernet, where the processor was the limit.
fn prices(single: &[Pair], daemon_share: Option<f64>) -> Result<Prices> {
    let each_ms = |contents: &str| {
        let own = single.iter().find(|it| {
            (it.link, it.contents, it.cpu_percent) == ("Ethernet", contents, 100)
                && it.limit == single::Limit::Processor
        });
        own.map(|it| it.time_ms() / 2.0)
    };
    Ok(Prices {
        small_ms: each_ms("text").context("the thesis has no limit of small messages")?,
        scan_ms: each_ms("scan").context("the thesis has no limit of scans")?,
        daemon_share: daemon_share.context("no load that both rospy and tautline sustained")?,
    })
}

impl Report {
    /// Returns the tables with their names in the page.
    pub fn tables(&self) -> Vec<(&'static str, String)> {
        tables::all(self)
    }

    /// Returns the tables for a terminal.
    pub fn text(&self) -> String {
        self.tables().iter().map(|(name, table)| format!("\n{name}\n\n{table}")).collect()
    }

    /// Returns the verdicts on the formula's errors for the thesis's vertical scaling.
    pub fn verdicts(&self) -> Vec<Verdict> {
        let own = self.sets[0].tests.iter().find(|test| test.model == BEST);
        let of = |what: &str, found: Option<f64>| {
            TARGET_PERCENT.judge(format!("formula on the thesis's data, {what}"), found, "%")
        };
        let all = own.and_then(|test| test.all);
        let beyond = own.and_then(|test| test.overloaded);
        vec![
            of("echoes/s, all rows", all.map(|it| it.echoed.median)),
            of("round trip, all rows", all.map(|it| it.rtt.median)),
            of("echoes/s, overloaded rows", beyond.map(|it| it.echoed.median)),
            of("round trip, overloaded rows", beyond.map(|it| it.rtt.median)),
        ]
    }
}
