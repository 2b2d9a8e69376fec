// SPDX-License-Identifier: Apache-2.0
//! Rates and losses: each controller behind a bottleneck that is not in its own machine.

use super::{MBPS, parse};
use crate::rig::parallel;
use crate::rig::progress::Progress;
use crate::rig::stats;
use crate::rig::table::{markdown_row, markdown_rule};
use crate::rivals;
use crate::sim;
use crate::validate::far::{self, LASER_BYTES, PAYLOAD_SHARE};
use anyhow::{Context, Result};
use serde::Serialize;
use std::time::Duration;

/// Losses of single packets, in percent.
const SINGLE_LOSSES: [u64; 5] = [0, 1, 5, 10, 20];
/// Losses in bursts, in percent.
const BURST_LOSSES: [u64; 2] = [5, 20];
const QUEUE_KB: [u64; 2] = [30, 300];
/// Seconds of virtual time.
const SECONDS: u64 = 20;
/// The first second, which does not count, in ns.
const NEW_NS: u64 = 1_000_000_000;
const BULK_BYTES: u64 = 65_536;
/// Expected duration of one run, for the progress line.
const EXPECTED: Duration = Duration::from_millis(300);

/// One cell of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Case {
    controller: &'static str,
    mbps: u64,
    loss_percent: u64,
    bursts: bool,
    queue_kb: u64,
}

/// Figures of one cell.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    controller: &'static str,
    mbps: u64,
    loss_percent: u64,
    bursts: bool,
    queue_kb: u64,
    /// Payload of both flows that arrived, percent of the payload that the path can carry.
    goodput_percent: f64,
    /// 99th percentile of the laser's delay after the first second.
    laser_p99_ms: f64,
    laser_arrived_percent: f64,
}

/// Returns the compared rate controls; `fixed` has the right rate configured.
fn controllers() -> impl Iterator<Item = &'static str> {
    rivals::product_names().chain([rivals::AID, rivals::AIMD])
}

impl Case {
    fn every_case() -> impl Iterator<Item = Self> {
        MBPS.into_iter().flat_map(|mbps| {
            QUEUE_KB.into_iter().flat_map(move |queue_kb| {
                let single = SINGLE_LOSSES.into_iter().map(|percent| (percent, false));
                let losses = single.chain(BURST_LOSSES.map(|percent| (percent, true)));
                losses.flat_map(move |(loss_percent, bursts)| {
                    let case =
                        move |controller| Self { controller, mbps, loss_percent, bursts, queue_kb };
                    controllers().map(case)
                })
            })
        })
    }

    /// Returns the scenario: a router between a fast and a slow link, 20 % more bulk than it carries,
    /// and a laser's scans.
    fn scenario_text(self) -> String {
        let Self { controller, mbps, queue_kb, .. } = self;
        let loss = far::loss(self.loss_percent, self.bursts);
        let rate = if controller == "fixed" { format!("{mbps}Mbps") } else { controller.into() };
        let slow = format!("rate: {mbps}Mbps, queue: {queue_kb}KB, loss: {loss}");
        far::scenario(SECONDS, &slow, &far::load(mbps, BULK_BYTES, 0))
            + &format!("tautline: {{ rate: {rate} }}\n")
    }

    fn run(self) -> Result<Cell> {
        let flows = sim::samples(&parse(&self.scenario_text())?, 1)?;
        let (laser, bulk) = (far::flow(&flows, "laser")?, far::flow(&flows, "bulk")?);
        let start = laser.sent_ns.first().context("a laser's message")? + NEW_NS;
        let end = start - NEW_NS + SECONDS * NEW_NS;
        let bytes = laser.arrived_count(start..end) as u64 * LASER_BYTES
            + bulk.arrived_count(start..end) as u64 * BULK_BYTES;
        let bits = bytes as f64 * 8.0 / (SECONDS - 1) as f64;
        let kept = 1.0 - self.loss_percent as f64 / 100.0;
        Ok(Cell {
            controller: self.controller,
            mbps: self.mbps,
            loss_percent: self.loss_percent,
            bursts: self.bursts,
            queue_kb: self.queue_kb,
            goodput_percent: 100.0 * bits / (self.mbps as f64 * 1e6 * PAYLOAD_SHARE * kept),
            laser_p99_ms: stats::p99(laser.delays(start..u64::MAX)),
            laser_arrived_percent: 100.0 * laser.arrivals.len() as f64 / laser.sent_ns.len() as f64,
        })
    }
}

/// Returns the laser's limit in ms: the time of its own packet and of two full packets, plus 2 ms.
fn bound_ms(mbps: u64) -> f64 {
    (1080.0 + 3000.0) * 8.0 / (mbps as f64 * 1000.0) + 2.0
}

/// Returns one stage per cell for the progress line.
pub fn stages() -> Vec<(String, Duration)> {
    let name = |case: Case| format!("{} at {} Mbps", case.controller, case.mbps);
    Case::every_case().map(|case| (name(case), EXPECTED)).collect()
}

/// Runs every case.
pub fn run(progress: &Progress) -> Result<Vec<Cell>> {
    parallel::run(progress, Case::every_case().collect(), Case::run)
}

/// Returns the figures that miss the targets of `auto`: without loss 92 % and the laser in time,
/// with loss 90 %.
pub fn missed_target(cell: &Cell) -> Option<String> {
    if cell.controller != "auto" {
        return None;
    }
    let (least, most_ms) = match cell.loss_percent {
        0 => (92.0, bound_ms(cell.mbps)),
        _ => (90.0, f64::INFINITY),
    };
    let reached = cell.goodput_percent >= least && cell.laser_p99_ms <= most_ms;
    (!reached).then(|| {
        format!(
            "{} Mbps, loss {}, {} KB: {:.1} % of {least} %, laser {:.1} ms of {most_ms:.1} ms",
            cell.mbps,
            cell.loss(),
            cell.queue_kb,
            cell.goodput_percent,
            cell.laser_p99_ms
        )
    })
}

/// Returns the section of the page.
pub fn section(cells: &[Cell]) -> String {
    format!(
        "## Rates and losses\n\n\
         A robot sends over a fast wire to a router, and a slow link connects the router to the base. The link has {} Mbps, a queue of 30 or 300 KB, and losses of single packets or in bursts (of five packets on average) in both directions. \
         The load is a laser's 1 KB every 20 ms at priority 200, and 20 % more bulk than the link carries, at priority 20. A run lasts 20 s; its first second does not count. \
         `fixed` has the rate of the link configured; the others have no configuration. `aid` and `aimd` are RCom's controllers, as published; the laboratory alone has them.\n\n\
         Each cell has the payload that arrived, as a percentage of the payload that the link can carry in full packets after losses / the 99th percentile of the laser's delay in ms / the percentage of the laser's messages that did not arrive, if any.\n\n{}",
        MBPS.map(|mbps| mbps.to_string()).join(", "),
        table(cells)
    )
}

pub fn table(cells: &[Cell]) -> String {
    let titles = ["Mbps", "queue", "loss"].into_iter().chain(controllers()).map(String::from);
    let row = |row: &[Cell]| {
        let Cell { mbps, queue_kb, .. } = row[0];
        let first = [mbps.to_string(), format!("{queue_kb} KB"), row[0].loss()];
        markdown_row(first.into_iter().chain(row.iter().map(words)))
    };
    let columns = controllers().count();
    let rows = cells.chunks(columns).map(row);
    markdown_row(titles) + &markdown_rule(3 + columns) + &rows.collect::<String>()
}

impl Cell {
    fn loss(&self) -> String {
        let bursts = if self.bursts { " in bursts" } else { "" };
        format!("{} %{bursts}", self.loss_percent)
    }
}

fn words(cell: &Cell) -> String {
    let missing = 100.0 - cell.laser_arrived_percent;
    let missing = if missing > 0.0 { format!(" / −{missing:.1} %") } else { String::new() };
    format!("{:.0} % / {:.1}{missing}", cell.goodput_percent, cell.laser_p99_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Repeats a few cells: the page must match the code.
    #[test]
    fn the_table_in_docs_is_current() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/explanation/rates.md");
        let docs = std::fs::read_to_string(docs).unwrap();
        for (mbps, loss_percent) in [(1, 0), (3, 0), (6, 0), (6, 20), (24, 0)] {
            let queue_kb = 300;
            let start = format!("| {mbps} | {queue_kb} KB | {loss_percent} % | ");
            let row = docs.lines().find_map(|line| line.strip_prefix(&start)).unwrap();
            let mut found = row.split(" | ");
            for controller in ["auto", "back-pressure"] {
                let bursts = false;
                let case = Case { controller, mbps, loss_percent, bursts, queue_kb };
                let now = words(&case.run().unwrap());
                assert_eq!(
                    found.next(),
                    Some(&*now),
                    "{case:?}: tautline-lab validate rates --docs docs"
                );
            }
        }
    }
}
