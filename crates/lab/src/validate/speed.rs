// SPDX-License-Identifier: Apache-2.0
//! Speed of virtual time, and the growth of its cost with the number of packets.

use crate::clock::cpu_of_this_thread;
use crate::progress::Progress;
use crate::scenario::{self, Scenario};
use anyhow::{Result, anyhow};
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Least speed of the paper's main experiment, in multiples of real time.
const POUND_SPEED: f64 = 200.0;
/// Limit of the time for a minute of 100 robots.
const FLEET_S: f64 = 60.0;
/// Robots of the compared fleets; the limit applies to the last one.
const FLEETS: [usize; 3] = [25, 50, 100];
/// Largest cost of a message of the largest fleet, divided by that of the smallest fleet.
const GROWTH: f64 = 1.5;
/// Runs of each scenario; the fastest counts, since the machine slows the others.
const REPEATS: usize = 2;

#[derive(Debug, Clone, Serialize)]
struct Speed {
    scenario: String,
    simulated_s: f64,
    /// Processor time of the single thread.
    taken_s: f64,
    times_real_time: f64,
    /// Messages published.
    messages: u64,
    /// Data frames put on the air; the fleets send more than the channel carries.
    frames: u64,
    us_per_message: f64,
    us_per_frame: f64,
}

fn fleet(robots: usize) -> Result<Scenario> {
    let mut text = format!(
        "about: {robots} robots that each send ten topics of 1 KB at 10 Hz\n\
         duration: 60s\n\
         networks: {{ floor: {{ wifi: {{ rate: 54Mbps }} }} }}\n\
         stations:\n  base: {{ networks: [floor] }}\n  robot: {{ count: {robots}, networks: [floor] }}\n\
         flows:\n"
    );
    for number in 0..10 {
        let _ = writeln!(
            text,
            "  - {{ name: topic{number}, from: robot*, to: base, size: 1KB, every: 100ms, start: {}ms }}",
            number * 10
        );
    }
    let problems = |problems| anyhow!("the fleet's scenario: {problems:?}");
    scenario::parse(&format!("fleet-{robots}"), &text, Path::new(".")).map_err(problems)
}

fn measure(scenario: &Scenario) -> Result<Speed> {
    let mut best: Option<Speed> = None;
    for _ in 0..REPEATS {
        let started = cpu_of_this_thread();
        let crate::sim::Passed { time, messages, frames } = crate::sim::pass(scenario, 1)?;
        let taken_s = (cpu_of_this_thread() - started).as_secs_f64();
        let simulated_s = time.as_secs_f64();
        if best.as_ref().is_none_or(|best| taken_s < best.taken_s) {
            best = Some(Speed {
                scenario: scenario.name.clone(),
                simulated_s,
                taken_s,
                times_real_time: simulated_s / taken_s,
                messages,
                frames,
                us_per_message: taken_s * 1e6 / messages.max(1) as f64,
                us_per_frame: taken_s * 1e6 / frames.max(1) as f64,
            });
        }
    }
    best.ok_or_else(|| anyhow!("nothing was measured"))
}

/// Measures the speed; exit code 3 if it is too low.
pub fn run(as_json: bool) -> Result<ExitCode> {
    let pound = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/pound-1hop.yaml");
    let mut scenarios = vec![scenario::load(&pound)?];
    for robots in FLEETS {
        scenarios.push(fleet(robots)?);
    }
    let stage = |s: &Scenario| (format!("simulating {}", s.name), Duration::from_secs(10));
    let progress = Progress::new(scenarios.iter().map(stage).collect());
    let speeds = scenarios.iter().map(|scenario| {
        progress.next();
        measure(scenario)
    });
    let speeds = speeds.collect::<Result<Vec<_>>>()?;
    progress.finish();
    if as_json {
        println!("{}", serde_json::to_string_pretty(&speeds)?);
    } else {
        print!("{}", table(&speeds));
    }
    Ok(if reached(&speeds) { ExitCode::SUCCESS } else { ExitCode::from(3) })
}

fn reached(speeds: &[Speed]) -> bool {
    let [pound, smallest, .., largest] = speeds else { return false };
    pound.times_real_time >= POUND_SPEED
        && largest.taken_s < FLEET_S
        && largest.us_per_message <= GROWTH * smallest.us_per_message
}

fn table(speeds: &[Speed]) -> String {
    let mut text = String::from(
        "| scenario | simulated s | processor s | times real time | messages | frames | us per message | us per frame |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for speed in speeds {
        let _ = writeln!(
            text,
            "| {} | {:.0} | {:.2} | {:.0} | {} | {} | {:.1} | {:.1} |",
            speed.scenario,
            speed.simulated_s,
            speed.taken_s,
            speed.times_real_time,
            speed.messages,
            speed.frames,
            speed.us_per_message,
            speed.us_per_frame
        );
    }
    let _ = writeln!(
        text,
        "\nwanted: {} times real time for the first, under {FLEET_S} s for the last, whose messages cost at most {GROWTH} times the smallest fleet's",
        POUND_SPEED
    );
    text
}
