// SPDX-License-Identifier: Apache-2.0
//! Chains of relays against plain IP forwarding, under Pound's load in virtual time.

use crate::progress::Progress;
use crate::scenario::{self, Over, Scenario};
use crate::sim;
use crate::stats::{self, Delay};
use anyhow::Result;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// The chains, and how many hops each has.
const CHAINS: [(&str, usize); 2] = [("pound-2hops", 2), ("relay-3hops", 3)];
/// How long one seed of a chain takes by any of the ways, for the progress line.
const EXPECTED: Duration = Duration::from_secs(2);

/// How messages pass the stations between the ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Way {
    Relays,
    TautlineOverIp,
    PlainUdp,
}

impl Way {
    const ALL: [Self; 3] = [Self::Relays, Self::TautlineOverIp, Self::PlainUdp];

    fn words(self) -> &'static str {
        match self {
            Self::Relays => "Tautline, passed on by relays",
            Self::TautlineOverIp => "Tautline over plain IP forwarding",
            Self::PlainUdp => "plain UDP over plain IP forwarding",
        }
    }

    fn apply(self, scenario: &mut Scenario) {
        scenario.tautline.relay = self == Self::Relays;
        for flow in scenario.flows.iter_mut().filter(|_| self == Self::PlainUdp) {
            flow.over = Over::Udp;
        }
    }
}

/// What came of one flow, all seeds together.
#[derive(Debug, Clone, Serialize)]
struct Outcome {
    delay_ms: Option<Delay>,
    arrived_percent: f64,
}

#[derive(Debug, Clone, Serialize)]
struct Row {
    hops: usize,
    way: Way,
    laser: Outcome,
    image: Outcome,
}

/// Runs a scenario with the seeds from 1 on. What the writer was still held up for counts as
/// not arrived.
fn outcome(scenario: &Scenario, seeds: u64) -> Result<[Outcome; 2]> {
    let mut delays = [Vec::new(), Vec::new()];
    for seed in 1..=seeds {
        for (name, samples) in sim::samples(scenario, seed)? {
            let arrived = samples.arrivals.iter();
            let ms = arrived.map(|a| a.received_ns.saturating_sub(a.sent_ns) as f64 / 1e6);
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

/// Runs the comparison; exit code 3 if relays are not better for the laser's p99.
pub fn run(seeds: u64, as_json: bool) -> Result<ExitCode> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let stages = CHAINS.iter().flat_map(|(name, _)| Way::ALL.map(|way| (name, way)));
    let stages = stages.map(|(name, way)| (format!("{name}, {}", way.words()), EXPECTED));
    let progress = Progress::new(stages.collect());
    let mut rows = Vec::new();
    for (name, hops) in CHAINS {
        for way in Way::ALL {
            progress.next();
            let mut scenario = scenario::load(&folder.join(name).with_extension("yaml"))?;
            way.apply(&mut scenario);
            let [laser, image] = outcome(&scenario, seeds)?;
            rows.push(Row { hops, way, laser, image });
        }
    }
    progress.finish();
    if as_json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
    } else {
        print!("{}", table(&rows));
    }
    Ok(if reached(&rows) { ExitCode::SUCCESS } else { ExitCode::from(3) })
}

fn reached(rows: &[Row]) -> bool {
    let p99 = |hops, way| {
        let row = rows.iter().find(|row| row.hops == hops && row.way == way);
        row.and_then(|row| row.laser.delay_ms).map_or(f64::INFINITY, |delay| delay.p99)
    };
    CHAINS.iter().all(|(_, hops)| p99(*hops, Way::Relays) < p99(*hops, Way::TautlineOverIp))
}

fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "| hops | way | laser arrived % | laser mean ms | laser p99 ms | images arrived % | image mean ms |\n\
         |---|---|---|---|---|---|---|\n",
    );
    let ms = |value: Option<f64>| value.map_or("–".into(), |ms| format!("{ms:.1}"));
    for Row { hops, way, laser, image } in rows {
        let _ = writeln!(
            text,
            "| {hops} | {} | {:.1} | {} | {} | {:.1} | {} |",
            way.words(),
            laser.arrived_percent,
            ms(laser.delay_ms.map(|delay| delay.mean)),
            ms(laser.delay_ms.map(|delay| delay.p99)),
            image.arrived_percent,
            ms(image.delay_ms.map(|delay| delay.mean)),
        );
    }
    text
}
