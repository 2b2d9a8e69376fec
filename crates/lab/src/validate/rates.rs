// SPDX-License-Identifier: Apache-2.0
//! The rate controllers in one table: what each makes of a bottleneck that is not in its own
//! machine, told nothing of it. In virtual time, so that a change of behaviour is a diff.

use crate::progress::Progress;
use crate::scenario;
use crate::sim;
use crate::stats::{self, Samples};
use anyhow::{Context, Result, anyhow};
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

const MBPS: [u64; 6] = [1, 3, 6, 12, 24, 54];
const LOSS_PERCENT: [u64; 4] = [0, 1, 5, 20];
const QUEUE_KB: [u64; 2] = [30, 300];
/// How the radios are paced; `fixed` is told the right rate.
const CONTROLLERS: [&str; 5] = ["auto", "back-pressure", "fixed", "aid", "aimd"];
/// Of virtual time, after a second in which all is still new.
const SECONDS: u64 = 20;
const NEW_NS: u64 = 1_000_000_000;
const BULK_BYTES: u64 = 65_536;
/// Of a full packet of 1500 bytes, what is the message's.
const PAYLOAD_SHARE: f64 = 1425.0 / 1500.0;
/// How long one run takes, for the progress line.
const EXPECTED: Duration = Duration::from_millis(300);

/// One cell of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Case {
    controller: &'static str,
    mbps: u64,
    loss_percent: u64,
    queue_kb: u64,
}

/// What came of it.
#[derive(Debug, Clone, Serialize)]
struct Cell {
    controller: &'static str,
    mbps: u64,
    loss_percent: u64,
    queue_kb: u64,
    /// Payload of both flows that arrived, of what the way can carry of it.
    goodput_percent: f64,
    /// After the first second.
    laser_p99_ms: f64,
    laser_arrived_percent: f64,
}

impl Case {
    fn all() -> impl Iterator<Item = Self> {
        MBPS.into_iter().flat_map(|mbps| {
            QUEUE_KB.into_iter().flat_map(move |queue_kb| {
                LOSS_PERCENT.into_iter().flat_map(move |loss_percent| {
                    let case = move |controller| Self { controller, mbps, loss_percent, queue_kb };
                    CONTROLLERS.into_iter().map(case)
                })
            })
        })
    }

    /// A router with a fast way to it and a slow one from it, a fifth more bulk than fits, and
    /// a laser's scans.
    fn text(self) -> String {
        let Self { controller, mbps, loss_percent, queue_kb } = self;
        let every_us = BULK_BYTES * 8 * 10 / (mbps * 12);
        let rate = if controller == "fixed" { format!("{mbps}Mbps") } else { controller.into() };
        format!(
            "about: A bottleneck beyond a router\n\
             source: made up\n\
             duration: {SECONDS}s\n\
             networks:\n  \
               fast: {{ pipe: {{ rate: 1Gbps, queue: 10MB, delay: 10us }} }}\n  \
               slow: {{ pipe: {{ rate: {mbps}Mbps, queue: {queue_kb}KB, delay: 1ms, loss: {loss_percent}% }} }}\n\
             stations:\n  \
               robot: {{ networks: [fast] }}\n  \
               router: {{ networks: [fast, slow] }}\n  \
               base: {{ networks: [slow] }}\n\
             routes:\n  - [robot, router, base]\n\
             flows:\n  \
               - {{ name: laser, from: robot, to: base, size: 1KB, every: 20ms, priority: 200, keep_last: 10 }}\n  \
               - {{ name: bulk, from: robot, to: base, size: {BULK_BYTES}, every: {every_us}us, priority: 20, keep_last: 10, start: 5ms }}\n\
             tautline: {{ rate: {rate} }}\n"
        )
    }

    fn run(self) -> Result<Cell> {
        let scenario = scenario::parse("rates", &self.text(), Path::new("."));
        let scenario = scenario.map_err(|problems| anyhow!("{problems:?}"))?;
        let flows = sim::samples(&scenario, 1)?;
        let of = |name: &str| flows.iter().find(|(it, _)| it == name).map(|(_, samples)| samples);
        let (laser, bulk) = of("laser").zip(of("bulk")).context("two flows")?;
        let start = laser.sent_ns.first().context("a laser's message")? + NEW_NS;
        let end = start - NEW_NS + SECONDS * NEW_NS;
        let bytes = arrived(laser, start, end) * 1000 + arrived(bulk, start, end) * BULK_BYTES;
        let bits = bytes as f64 * 8.0 / (SECONDS - 1) as f64;
        let kept = 1.0 - self.loss_percent as f64 / 100.0;
        let settled = laser.arrivals.iter().filter(|it| it.sent_ns >= start);
        let delays = settled.map(|it| (it.received_ns - it.sent_ns) as f64 / 1e6).collect();
        Ok(Cell {
            controller: self.controller,
            mbps: self.mbps,
            loss_percent: self.loss_percent,
            queue_kb: self.queue_kb,
            goodput_percent: 100.0 * bits / (self.mbps as f64 * 1e6 * PAYLOAD_SHARE * kept),
            laser_p99_ms: stats::delay(delays).map_or(f64::INFINITY, |delay| delay.p99),
            laser_arrived_percent: 100.0 * laser.arrivals.len() as f64 / laser.sent_ns.len() as f64,
        })
    }
}

/// Messages that arrived within a span.
fn arrived(samples: &Samples, start: u64, end: u64) -> u64 {
    let within = |at: &u64| (start..end).contains(at);
    samples.arrivals.iter().map(|it| it.received_ns).filter(within).count() as u64
}

/// The laser's own packet and two full ones, and 2 ms, in milliseconds.
fn bound_ms(mbps: u64) -> f64 {
    (1080.0 + 3000.0) * 8.0 / (mbps as f64 * 1000.0) + 2.0
}

/// Runs every case; exit code 3 where `auto` misses what it must reach.
pub fn run(as_json: bool, docs: Option<&Path>) -> Result<ExitCode> {
    let cases: Vec<Case> = Case::all().collect();
    let name = |case: &Case| format!("{} at {} Mbps", case.controller, case.mbps);
    let progress = Progress::new(cases.iter().map(|case| (name(case), EXPECTED)).collect());
    let mut cells = Vec::new();
    for case in &cases {
        progress.next();
        cells.push(case.run()?);
    }
    progress.finish();
    if let Some(folder) = docs {
        std::fs::write(folder.join("rates.md"), page(&cells))?;
        let raw = serde_json::to_string_pretty(&cells)?;
        std::fs::write(folder.join("measured/rates.json"), raw + "\n")?;
    }
    match as_json {
        true => println!("{}", serde_json::to_string_pretty(&cells)?),
        false => print!("{}", table(&cells)),
    }
    let missed: Vec<String> = cells.iter().filter_map(missed).collect();
    missed.iter().for_each(|text| eprintln!("not reached: {text}"));
    Ok(if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(3) })
}

/// What `auto` must reach: on a sound way 92 % and the laser in time, on a lossy one 90 %.
fn missed(cell: &Cell) -> Option<String> {
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
            "{} Mbps, {} % loss, {} KB: {:.1} % of {least} %, laser {:.1} ms of {most_ms:.1} ms",
            cell.mbps, cell.loss_percent, cell.queue_kb, cell.goodput_percent, cell.laser_p99_ms
        )
    })
}

fn page(cells: &[Cell]) -> String {
    format!(
        "# The controllers in one table\n\n\
         Made by `tautline-lab validate rates --docs docs`, in virtual time: the same code gives the same figures, and a change of behaviour is a diff here. \
         A robot sends over a fast wire to a router, from which a slow link leads on to the base: {} Mbps, a queue of 30 or 300 KB, losses of single packets in both directions. \
         The load is a laser's 1 KB every 20 ms at priority 200, and a fifth more bulk than fits at priority 20; 20 s, of which the first does not count. \
         `fixed` is told the rate of the link, the others nothing; `aid` and `aimd` are RCom's, as published.\n\n\
         Each cell: payload that arrived, of what the link can carry of it in full packets after losses / 99th percentile of the laser's delay in ms / laser's messages that did not arrive, if any.\n\n{}",
        MBPS.map(|mbps| mbps.to_string()).join(", "),
        table(cells)
    )
}

fn table(cells: &[Cell]) -> String {
    let mut text = String::from("| Mbps | queue | loss |");
    for controller in CONTROLLERS {
        let _ = write!(text, " {controller} |");
    }
    text += "\n|---|---|---|";
    text += &"---|".repeat(CONTROLLERS.len());
    for row in cells.chunks(CONTROLLERS.len()) {
        let _ = write!(
            text,
            "\n| {} | {} KB | {} % |",
            row[0].mbps, row[0].queue_kb, row[0].loss_percent
        );
        for cell in row {
            let _ = write!(text, " {} |", words(cell));
        }
    }
    text + "\n"
}

fn words(cell: &Cell) -> String {
    let missing = 100.0 - cell.laser_arrived_percent;
    let missing = if missing > 0.0 { format!(" / −{missing:.1} %") } else { String::new() };
    format!("{:.0} % / {:.1}{missing}", cell.goodput_percent, cell.laser_p99_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A few cells, anew: the page is what the code does.
    #[test]
    fn the_table_in_docs_is_of_this_code() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rates.md");
        let docs = std::fs::read_to_string(docs).unwrap();
        for (mbps, loss_percent) in [(1, 0), (6, 0), (6, 20), (24, 0)] {
            let queue_kb = 300;
            let start = format!("| {mbps} | {queue_kb} KB | {loss_percent} % | ");
            let row = docs.lines().find_map(|line| line.strip_prefix(&start)).unwrap();
            let mut found = row.split(" | ");
            for controller in ["auto", "back-pressure"] {
                let case = Case { controller, mbps, loss_percent, queue_kb };
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
