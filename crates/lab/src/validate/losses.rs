// SPDX-License-Identifier: Apache-2.0
//! Lossy links: urgent messages with and without redundancy ahead of loss, and large messages.

use super::far::{self, LASER_BYTES};
use crate::rig::parallel;
use crate::rig::progress::Progress;
use crate::rig::stats::{self, Samples};
use crate::rig::table::{self, column};
use crate::scenario::{self, Scenario};
use crate::sim;
use anyhow::Result;
use serde::Serialize;
use std::process::ExitCode;
use std::time::Duration;

/// Seeds for judging: the design was tuned with others.
const SEEDS: std::ops::Range<u64> = 101..117;
const SECONDS: u64 = 20;
/// The first second does not count.
const COUNTED: std::ops::Range<u64> = 1_000_000_000..SECONDS * 1_000_000_000;
/// Single losses in percent, and the target of the laser's p99 in milliseconds.
const SINGLE: [(u64, f64); 3] = [(5, 10.0), (10, 12.0), (20, 20.0)];
/// Losses in bursts of five packets on average, without a target.
const BURSTS: [u64; 2] = [5, 20];
const LASER_TARGET_BULK_PERCENT: f64 = 90.0;
/// The highest priority without redundancy.
const NOT_URGENT: u8 = 139;
const LARGE_BYTES: [u64; 2] = [65_536, 524_288];
const LARGE_LOSSES: [u64; 2] = [10, 20];
/// Part of the large messages that arrive within their lifespan of 2 s.
const LARGE_TARGET_PERCENT: f64 = 99.0;
/// Expected duration of one row, for the progress line.
const EXPECTED: Duration = Duration::from_secs(4);

/// A laser alongside bulk data on a far link of 6 Mbps.
#[derive(Debug, Clone, Serialize)]
pub struct Laser {
    loss_percent: u64,
    bursts: bool,
    p99_ms: f64,
    p99_without_ms: f64,
    arrived_percent: f64,
    arrived_without_percent: f64,
    /// Bulk messages that arrived, percent of those without redundancy.
    bulk_percent: f64,
    target_ms: Option<f64>,
}

/// Large messages, two per second, over 20 Mbps.
#[derive(Debug, Clone, Serialize)]
pub struct Large {
    bytes: u64,
    loss_percent: u64,
    arrived_percent: f64,
    p99_ms: f64,
}

/// All figures.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    laser: Vec<Laser>,
    large: Vec<Large>,
}

/// The samples of one flow over all seeds.
struct Pooled {
    delays: Vec<f64>,
    sent: usize,
}

impl Pooled {
    fn new(runs: &[Vec<(String, Samples)>], flow: &str) -> Result<Self> {
        let mut pooled = Self { delays: Vec::new(), sent: 0 };
        for samples in runs {
            let samples = far::flow(samples, flow)?;
            pooled.delays.extend(samples.delays(COUNTED));
            pooled.sent += samples.sent_ns.iter().filter(|at| COUNTED.contains(at)).count();
        }
        Ok(pooled)
    }

    fn arrived_percent(&self) -> f64 {
        100.0 * self.delays.len() as f64 / self.sent.max(1) as f64
    }
}

fn runs(scenario: &Scenario) -> Result<Vec<Vec<(String, Samples)>>> {
    SEEDS.map(|seed| sim::samples(scenario, seed)).collect()
}

fn laser_runs(loss: &str, is_urgent: bool) -> Result<[Pooled; 2]> {
    let slow = format!("rate: 6Mbps, queue: 30KB, loss: {loss}");
    let load = far::load(6, LARGE_BYTES[0], 0);
    let mut scenario = scenario::made("losses", &far::scenario(SECONDS, &slow, &load))?;
    for flow in scenario.flows.iter_mut().filter(|flow| flow.name == "laser" && !is_urgent) {
        flow.priority = NOT_URGENT;
    }
    let runs = runs(&scenario)?;
    Ok([Pooled::new(&runs, "laser")?, Pooled::new(&runs, "bulk")?])
}

fn laser(loss_percent: u64, bursts: bool, target_ms: Option<f64>) -> Result<Laser> {
    let loss = far::loss(loss_percent, bursts);
    let [laser, bulk] = laser_runs(&loss, true)?;
    let [laser_without, bulk_without] = laser_runs(&loss, false)?;
    Ok(Laser {
        loss_percent,
        bursts,
        arrived_percent: laser.arrived_percent(),
        arrived_without_percent: laser_without.arrived_percent(),
        p99_ms: stats::p99(laser.delays),
        p99_without_ms: stats::p99(laser_without.delays),
        bulk_percent: 100.0 * bulk.delays.len() as f64 / bulk_without.delays.len().max(1) as f64,
        target_ms,
    })
}

fn large(bytes: u64, loss_percent: u64) -> Result<Large> {
    let text = format!(
        "about: Large messages over a lossy link\n\
         source: made up\n\
         duration: {SECONDS}s\n\
         networks:\n  \
           slow: {{ pipe: {{ rate: 20Mbps, queue: 100KB, loss: {loss_percent}%, delay: 5ms }} }}\n\
         stations:\n  \
           robot: {{ networks: [slow] }}\n  \
           base: {{ networks: [slow] }}\n\
         flows:\n  \
           - {{ name: large, from: robot, to: base, size: {bytes}, every: 500ms, priority: 20, keep_last: 10, lifespan: 2s }}\n"
    );
    let large = Pooled::new(&runs(&scenario::made("losses", &text)?)?, "large")?;
    let arrived_percent = large.arrived_percent();
    Ok(Large { bytes, loss_percent, arrived_percent, p99_ms: stats::p99(large.delays) })
}

impl Laser {
    fn name(&self) -> String {
        format!("{} %{}", self.loss_percent, if self.bursts { " in bursts of five" } else { "" })
    }

    fn reaches(&self) -> bool {
        self.target_ms.is_none_or(|target| {
            self.p99_ms <= target && self.bulk_percent >= LASER_TARGET_BULK_PERCENT
        })
    }
}

/// Runs all cases; exit code 3 if a target is missed.
pub fn run(as_json: bool) -> Result<ExitCode> {
    let single = SINGLE.map(|(percent, target)| (percent, false, Some(target)));
    let lasers: Vec<_> = single.into_iter().chain(BURSTS.map(|it| (it, true, None))).collect();
    let larges: Vec<_> =
        LARGE_BYTES.into_iter().flat_map(|bytes| LARGE_LOSSES.map(|it| (bytes, it))).collect();
    let laser_stages = lasers.iter().map(|(percent, ..)| format!("laser, {percent} % loss"));
    let large_stages = larges.iter().map(|(bytes, _)| format!("messages of {bytes} bytes"));
    let stages = laser_stages.chain(large_stages).map(|name| (name, EXPECTED)).collect();
    let progress = Progress::new(stages);
    let figures = Figures {
        laser: parallel::run(&progress, lasers, |(percent, bursts, target)| {
            laser(percent, bursts, target)
        })?,
        large: parallel::run(&progress, larges, |(bytes, percent)| large(bytes, percent))?,
    };
    progress.finish();
    let holds = figures.laser.iter().all(Laser::reaches)
        && figures.large.iter().all(|it| it.arrived_percent >= LARGE_TARGET_PERCENT);
    super::conclude(&figures, as_json, &text(&figures), holds)
}

fn text(figures: &Figures) -> String {
    let lasers = [
        column("loss", Laser::name),
        column("p99 ms", |row: &Laser| format!("{:.1}", row.p99_ms)),
        column("without", |row: &Laser| format!("{:.1}", row.p99_without_ms)),
        column("at most", |row: &Laser| table::or_dash(row.target_ms, 0)),
        column("arrived %", |row: &Laser| format!("{:.2}", row.arrived_percent)),
        column("without", |row: &Laser| format!("{:.2}", row.arrived_without_percent)),
        column("bulk %", |row: &Laser| format!("{:.1}", row.bulk_percent)),
    ];
    let larges = [
        column("bytes", |row: &Large| row.bytes.to_string()),
        column("loss %", |row: &Large| row.loss_percent.to_string()),
        column("arrived %", |row: &Large| format!("{:.2}", row.arrived_percent)),
        column("p99 ms", |row: &Large| format!("{:.0}", row.p99_ms)),
    ];
    format!(
        "A laser of {LASER_BYTES} bytes at 50 Hz alongside bulk data, far link of 6 Mbps, with and without redundancy:\n\n{}\n\
         Messages at 2 Hz with a lifespan of 2 s, 20 Mbps:\n\n{}",
        table::markdown(&figures.laser, &lasers),
        table::markdown(&figures.large, &larges)
    )
}
