// SPDX-License-Identifier: Apache-2.0
//! Speed of virtual time, and the growth of its cost with the number of packets.

use crate::rig::clock::cpu_of_this_thread;
use crate::rig::progress::Progress;
use crate::rig::table::{self, column};
use crate::scenario::{self, Scenario};
use anyhow::{Result, anyhow};
use serde::Serialize;
use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

/// Least speed of the paper's main experiment, in multiples of real time.
const POUND_SPEED: f64 = 200.0;
/// Longest time that a minute of 100 robots may take, in seconds.
const FLEET_S: f64 = 60.0;
/// Robots of the compared fleets; the limit applies to the last fleet.
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
    scenario::parse_made(&format!("fleet-{robots}"), &text)
}

fn measure(scenario: &Scenario) -> Result<Speed> {
    let mut best: Option<Speed> = None;
    for _ in 0..REPEATS {
        let started = cpu_of_this_thread();
        let crate::sim::RunSize { time, messages, frames } = crate::sim::run_for_size(scenario, 1)?;
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
    let mut scenarios = vec![scenario::named("pound-1hop")?];
    for robots in FLEETS {
        scenarios.push(fleet(robots)?);
    }
    let stage = |s: &Scenario| (format!("simulating {}", s.name), Duration::from_secs(10));
    let progress = Progress::new(scenarios.iter().map(stage).collect());
    let speeds = scenarios.iter().map(|scenario| {
        progress.enter_next();
        measure(scenario)
    });
    let speeds = speeds.collect::<Result<Vec<_>>>()?;
    progress.finish();
    super::conclude(&speeds, as_json, &table(&speeds), all_targets_reached(&speeds))
}

fn all_targets_reached(speeds: &[Speed]) -> bool {
    let [pound, smallest, .., largest] = speeds else { return false };
    pound.times_real_time >= POUND_SPEED
        && largest.taken_s < FLEET_S
        && largest.us_per_message <= GROWTH * smallest.us_per_message
}

fn table(speeds: &[Speed]) -> String {
    let rows = table::markdown(
        speeds,
        &[
            column("scenario", |speed: &Speed| speed.scenario.clone()),
            column("simulated s", |speed| format!("{:.0}", speed.simulated_s)),
            column("processor s", |speed| format!("{:.2}", speed.taken_s)),
            column("times real time", |speed| format!("{:.0}", speed.times_real_time)),
            column("messages", |speed| speed.messages.to_string()),
            column("frames", |speed| speed.frames.to_string()),
            column("us per message", |speed| format!("{:.1}", speed.us_per_message)),
            column("us per frame", |speed| format!("{:.1}", speed.us_per_frame)),
        ],
    );
    format!(
        "{rows}\nwanted: {POUND_SPEED} times real time for the first, under {FLEET_S} s for the last, whose messages cost at most {GROWTH} times the smallest fleet's\n"
    )
}
