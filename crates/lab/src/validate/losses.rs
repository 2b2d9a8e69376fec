// SPDX-License-Identifier: Apache-2.0
//! Lossy links: urgent messages with and without redundancy ahead of loss, large messages, and
//! forward error correction over a long delay.

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
use tautline_medium::StationId;

/// Seeds for judging: the design was tuned with others.
const SEEDS: std::ops::Range<u64> = 101..117;
const SECONDS: u64 = 20;
/// Counted span, in ns: the first second does not count.
const COUNTED: std::ops::Range<u64> = 1_000_000_000..SECONDS * 1_000_000_000;
/// Rows: loss of single packets in percent, and target of the laser's p99 in milliseconds.
const SINGLE: [(u64, f64); 3] = [(5, 10.0), (10, 12.0), (20, 20.0)];
/// Losses in bursts of five packets on average, without a target.
const BURSTS: [u64; 2] = [5, 20];
const LASER_TARGET_BULK_PERCENT: f64 = 90.0;
/// The highest priority without redundancy.
const NOT_URGENT: u8 = 139;
const LARGE_BYTES: [u64; 2] = [65_536, 524_288];
const LARGE_LOSSES: [u64; 2] = [10, 20];
/// Percent of the large messages that must arrive within their lifespan of 2 s.
const LARGE_TARGET_PERCENT: f64 = 99.0;
/// Time between two messages of 1000 bytes over the long link, in milliseconds.
const LONG_PERIODS: [u64; 2] = [20, 100];
/// The cases of the long link: parity in percent, and whether lost packets are repaired.
const LONG_CASES: [(Option<u8>, bool); 4] =
    [(None, false), (None, true), (Some(60), false), (Some(60), true)];
/// The case that must reach the targets: at 50 Hz, with parity but without repair.
const LONG_JUDGED: (u64, Option<u8>, bool) = (20, Some(60), false);
const LONG_TARGET_PERCENT: f64 = 99.9;
const LONG_TARGET_OVERHEAD_PERCENT: f64 = 65.0;
const LONG_SECONDS: u64 = 70;
/// Counted span, in ns. Before it, rate control finds the rate; after it, the last messages arrive.
const LONG_COUNTED: std::ops::Range<u64> = 10_000_000_000..60_000_000_000;
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
pub struct LargeMessages {
    bytes: u64,
    loss_percent: u64,
    arrived_percent: f64,
    p99_ms: f64,
}

/// Messages of 1000 bytes over 2 Mbps with a delay of 300 ms in each direction, 10 % of the packets lost.
#[derive(Debug, Clone, Serialize)]
pub struct Long {
    every_ms: u64,
    parity_percent: Option<u8>,
    repair: bool,
    arrived_percent: f64,
    median_ms: f64,
    p99_ms: f64,
    /// Additional bytes sent, percent of the bytes sent without parity and repair.
    overhead_percent: f64,
}

/// All figures.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    laser: Vec<Laser>,
    large: Vec<LargeMessages>,
    long: Vec<Long>,
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
            pooled.add(far::flow(samples, flow)?, COUNTED);
        }
        Ok(pooled)
    }

    fn add(&mut self, samples: &Samples, counted: std::ops::Range<u64>) {
        self.delays.extend(samples.delays(counted.clone()));
        self.sent += samples.published_count(counted);
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
    let mut scenario = scenario::parse_made("losses", &far::scenario(SECONDS, &slow, &load))?;
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

fn large(bytes: u64, loss_percent: u64) -> Result<LargeMessages> {
    let text = format!(
        "about: LargeMessages messages over a lossy link\n\
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
    let large = Pooled::new(&runs(&scenario::parse_made("losses", &text)?)?, "large")?;
    let arrived_percent = large.arrived_percent();
    Ok(LargeMessages { bytes, loss_percent, arrived_percent, p99_ms: stats::p99(large.delays) })
}

/// Returns the four cases of the long link at one period.
fn long(every_ms: u64) -> Result<Vec<Long>> {
    let text = format!(
        "about: Small messages over a long delay\n\
         source: made up\n\
         duration: {LONG_SECONDS}s\n\
         networks:\n  \
           sky: {{ pipe: {{ rate: 2Mbps, queue: 100KB, loss: 10%, delay: 300ms }} }}\n\
         stations:\n  \
           robot: {{ networks: [sky] }}\n  \
           base: {{ networks: [sky] }}\n\
         flows:\n  \
           - {{ name: small, from: robot, to: base, size: 1KB, every: {every_ms}ms, priority: 100, keep_last: 100 }}\n"
    );
    let plain = scenario::parse_made("losses", &text)?;
    let mut rows: Vec<Long> = Vec::new();
    let mut plain_bytes = None;
    for (parity_percent, repair) in LONG_CASES {
        let mut scenario = plain.clone();
        for flow in &mut scenario.flows {
            (flow.fec, flow.repair) = (parity_percent, repair);
        }
        let (mut pooled, mut bytes) = (Pooled { delays: Vec::new(), sent: 0 }, 0);
        for seed in SEEDS {
            let mut sent = [0; 2];
            let samples = sim::watch(&scenario, seed, LONG_COUNTED.start, |sight| {
                let links = sight.links(StationId(0));
                let total = links.iter().map(|(stats, _)| stats.sent_bytes).sum();
                match sight.at_ns {
                    at if at == LONG_COUNTED.start => sent[0] = total,
                    at if at == LONG_COUNTED.end => sent[1] = total,
                    _ => {}
                }
            })?;
            bytes += sent[1] - sent[0];
            pooled.add(far::flow(&samples, "small")?, LONG_COUNTED);
        }
        let plain_bytes = *plain_bytes.get_or_insert(bytes);
        rows.push(Long {
            every_ms,
            parity_percent,
            repair,
            arrived_percent: pooled.arrived_percent(),
            median_ms: stats::median(pooled.delays.iter().copied()).unwrap_or(f64::INFINITY),
            p99_ms: stats::p99(pooled.delays),
            overhead_percent: 100.0 * (bytes as f64 / plain_bytes as f64 - 1.0),
        });
    }
    Ok(rows)
}

impl Long {
    fn reaches(&self) -> bool {
        (self.every_ms, self.parity_percent, self.repair) != LONG_JUDGED
            || self.arrived_percent >= LONG_TARGET_PERCENT
                && self.overhead_percent <= LONG_TARGET_OVERHEAD_PERCENT
    }
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
    let long_stages = LONG_PERIODS.iter().map(|it| format!("a long delay, every {it} ms"));
    let stages =
        laser_stages.chain(large_stages).chain(long_stages).map(|name| (name, EXPECTED)).collect();
    let progress = Progress::new(stages);
    let figures = Figures {
        laser: parallel::run(&progress, lasers, |(percent, bursts, target)| {
            laser(percent, bursts, target)
        })?,
        large: parallel::run(&progress, larges, |(bytes, percent)| large(bytes, percent))?,
        long: parallel::run(&progress, LONG_PERIODS.to_vec(), long)?.concat(),
    };
    progress.finish();
    let holds = figures.laser.iter().all(Laser::reaches)
        && figures.large.iter().all(|it| it.arrived_percent >= LARGE_TARGET_PERCENT)
        && figures.long.iter().all(Long::reaches);
    super::conclude(&figures, as_json, &report_text(&figures), holds)
}

fn report_text(figures: &Figures) -> String {
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
        column("bytes", |row: &LargeMessages| row.bytes.to_string()),
        column("loss %", |row: &LargeMessages| row.loss_percent.to_string()),
        column("arrived %", |row: &LargeMessages| format!("{:.2}", row.arrived_percent)),
        column("p99 ms", |row: &LargeMessages| format!("{:.0}", row.p99_ms)),
    ];
    let longs = [
        column("every ms", |row: &Long| row.every_ms.to_string()),
        column("parity %", |row: &Long| row.parity_percent.map_or("-".into(), |it| it.to_string())),
        column("repair", |row: &Long| if row.repair { "yes" } else { "no" }.to_owned()),
        column("arrived %", |row: &Long| format!("{:.2}", row.arrived_percent)),
        column("median ms", |row: &Long| format!("{:.0}", row.median_ms)),
        column("p99 ms", |row: &Long| format!("{:.0}", row.p99_ms)),
        column("overhead %", |row: &Long| format!("{:.0}", row.overhead_percent)),
    ];
    format!(
        "A laser of {LASER_BYTES} bytes at 50 Hz alongside bulk data, far link of 6 Mbps, with and without redundancy:\n\n{}\n\
         Messages at 2 Hz with a lifespan of 2 s, 20 Mbps:\n\n{}\n\
         Messages of 1000 bytes over 2 Mbps, 300 ms in each direction, 10 % loss:\n\n{}",
        table::markdown(&figures.laser, &lasers),
        table::markdown(&figures.large, &larges),
        table::markdown(&figures.long, &longs)
    )
}
