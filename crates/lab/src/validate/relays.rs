// SPDX-License-Identifier: Apache-2.0
//! Chains of relays against plain IP forwarding, under Pound's load in virtual time.

use crate::rig::parallel;
use crate::rig::progress::Progress;
use crate::rig::stats::{self, Arrival, Delay};
use crate::rig::table::{self, column};
use crate::scenario::{self, Over, Scenario};
use crate::sim;
use anyhow::Result;
use serde::Serialize;
use std::process::ExitCode;
use std::time::Duration;
use tautline_proto::Rate;

/// The chains and their numbers of hops.
const CHAINS: [(&str, usize); 2] = [("pound-2hops", 2), ("relay-3hops", 3)];
/// Rate of the chains' channel.
const CHANNEL_MBPS: f64 = 6.0;
/// Bits of a full packet with the header of its frame, as a configured rate counts it.
const PACKET_BITS: f64 = 1514.0 * 8.0;
/// Expected duration of one chain with one kind of forwarding, for the progress line.
const EXPECTED: Duration = Duration::from_secs(2);

/// Returns the rate of Pound's fixed gap after each full packet, in bits per second. Its program
/// puts 0.93 * 12000 / (rate * 0.7834 / hops) us between two fragments on a channel of `rate` Mbps.
fn pounds_rate_bps(hops: usize) -> u64 {
    let gap_us = 0.93 * 12_000.0 / (CHANNEL_MBPS * 0.7834 / hops as f64);
    (PACKET_BITS * 1e6 / gap_us) as u64
}

/// How messages pass the stations between the two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Forwarding {
    Relays,
    TautlineOverIp,
    PoundsGap,
    PlainUdp,
}

impl Forwarding {
    const ALL: [Self; 4] = [Self::Relays, Self::TautlineOverIp, Self::PoundsGap, Self::PlainUdp];

    fn words(self) -> &'static str {
        match self {
            Self::Relays => "Tautline, forwarded by relays",
            Self::TautlineOverIp => "Tautline over plain IP forwarding",
            Self::PoundsGap => "Tautline over plain IP forwarding, with Pound's gap",
            Self::PlainUdp => "plain UDP over plain IP forwarding",
        }
    }

    fn apply(self, scenario: &mut Scenario, hops: usize) {
        scenario.tautline.relay = self == Self::Relays;
        if self == Self::PoundsGap {
            scenario.tautline.rate = Rate::Fixed(pounds_rate_bps(hops));
        }
        for flow in scenario.flows.iter_mut().filter(|_| self == Self::PlainUdp) {
            flow.over = Over::Udp;
        }
    }
}

/// Figures of one flow over all seeds.
#[derive(Debug, Clone, Serialize)]
struct Outcome {
    delay_ms: Option<Delay>,
    arrived_percent: f64,
}

/// Figures of one chain with one kind of forwarding.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    hops: usize,
    #[serde(rename = "way")]
    forwarding: Forwarding,
    laser: Outcome,
    image: Outcome,
}

/// Runs a scenario with the seeds from 1 on. Messages for which the writer was still blocked at the
/// end count as not arrived.
fn outcome(scenario: &Scenario, seeds: u64) -> Result<[Outcome; 2]> {
    let mut delays = [Vec::new(), Vec::new()];
    for seed in 1..=seeds {
        for (name, samples) in sim::samples(scenario, seed)? {
            let ms = samples.arrivals.iter().map(Arrival::delay_ms);
            delays[usize::from(name != "laser")].extend(ms);
        }
    }
    let due = ["laser", "image"].map(|name| {
        let flow = scenario.flows.iter().find(|flow| flow.name == name);
        flow.and_then(|flow| flow.count).unwrap_or(0) * seeds
    });
    let mut due = due.into_iter();
    Ok(delays.map(|delays| {
        let due = due.next().unwrap_or(0).max(1);
        let arrived_percent = 100.0 * delays.len() as f64 / due as f64;
        Outcome { delay_ms: stats::delay(delays), arrived_percent }
    }))
}

fn combinations() -> impl Iterator<Item = (&'static str, usize, Forwarding)> {
    CHAINS.into_iter().flat_map(|(name, hops)| Forwarding::ALL.map(|it| (name, hops, it)))
}

/// Returns the stages for the progress line.
pub fn stages() -> Vec<(String, Duration)> {
    combinations()
        .map(|(name, _, forwarding)| (format!("{name}, {}", forwarding.words()), EXPECTED))
        .collect()
}

/// Runs every chain with every kind of forwarding.
pub fn rows(progress: &Progress, seeds: u64) -> Result<Vec<Row>> {
    parallel::run(progress, combinations().collect(), |(name, hops, forwarding)| {
        let mut scenario = scenario::named(name)?;
        forwarding.apply(&mut scenario, hops);
        let [laser, image] = outcome(&scenario, seeds)?;
        Ok(Row { hops, forwarding, laser, image })
    })
}

/// Arguments of the command.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Number of seeds, from 1 on; their samples are combined.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Print JSON instead of the table.
    #[arg(long)]
    json: bool,
}

/// Runs the comparison; exit code 3 if relays are not better for the laser's p99.
pub fn run(&Arguments { seeds, json: as_json }: &Arguments) -> Result<ExitCode> {
    let progress = Progress::new(stages());
    let rows = rows(&progress, seeds)?;
    progress.finish();
    super::conclude(&rows, as_json, &table(&rows), all_targets_reached(&rows))
}

/// Returns the figures that miss the targets of `auto` over two hops of plain IP: the laser within
/// 6.9 ms on average and 20 ms at the 99th percentile, no later than with Pound's gap, and 99.5 %
/// of the images.
pub fn missed_target(rows: &[Row]) -> Option<String> {
    let of = |it| rows.iter().find(|row| row.hops == 2 && row.forwarding == it);
    let (auto, pound) = of(Forwarding::TautlineOverIp).zip(of(Forwarding::PoundsGap))?;
    let (delay, pounds) = auto.laser.delay_ms.zip(pound.laser.delay_ms)?;
    let images = auto.image.arrived_percent;
    let in_time = delay.mean <= pounds.mean.min(6.9) && delay.p99 <= pounds.p99.min(20.0);
    (!in_time || images < 99.5).then(|| {
        format!(
            "two hops: laser {:.1} ms of 6.9 ms, p99 {:.1} ms of 20 ms (Pound's gap: {:.1} and {:.1} ms), images {images:.1} % of 99.5 %",
            delay.mean, delay.p99, pounds.mean, pounds.p99
        )
    })
}

/// Returns the section of the page on rates.
pub fn section(rows: &[Row]) -> String {
    format!(
        "## Chains of stations\n\n\
         Pound's load is a laser's 1 KB every 20 ms and images of 64 KiB every 300 ms. The first chain has two hops, and all stations hear each other ([pound-2hops](../../scenarios/pound-2hops.yaml)). The second has three hops, and stations two hops apart are hidden from each other ([relay-3hops](../../scenarios/relay-3hops.yaml)). The samples of several seeds are combined.\n\n{}",
        table(rows)
    )
}

fn all_targets_reached(rows: &[Row]) -> bool {
    let p99 = |hops, it| {
        let row = rows.iter().find(|row| row.hops == hops && row.forwarding == it);
        row.and_then(|row| row.laser.delay_ms).map_or(f64::INFINITY, |delay| delay.p99)
    };
    CHAINS
        .iter()
        .all(|(_, hops)| p99(*hops, Forwarding::Relays) < p99(*hops, Forwarding::TautlineOverIp))
}

fn table(rows: &[Row]) -> String {
    table::markdown(
        rows,
        &[
            column("hops", |row: &Row| row.hops.to_string()),
            column("way", |row| row.forwarding.words().into()),
            column("laser arrived %", |row| format!("{:.1}", row.laser.arrived_percent)),
            column("laser mean ms", |row| row.laser.ms(|delay| delay.mean)),
            column("laser p99 ms", |row| row.laser.ms(|delay| delay.p99)),
            column("images arrived %", |row| format!("{:.1}", row.image.arrived_percent)),
            column("image mean ms", |row| row.image.ms(|delay| delay.mean)),
        ],
    )
}

impl Outcome {
    fn ms(&self, of: fn(Delay) -> f64) -> String {
        self.delay_ms.map_or("–".into(), |delay| format!("{:.1}", of(delay)))
    }
}
