// SPDX-License-Identifier: Apache-2.0
//! The rate of the slow link falls to an eighth and returns, with Tautline on the link.

use super::{Laser, NODES_AROUND, Punctual, S, lateness_remark, mbps, runs_in_time, scenario_text};
use crate::rig::progress::Progress;
use crate::rig::stats::{Samples, middle, worst};
use crate::validate::far::{LASER_MBPS, PAYLOAD_SHARE, load};
use anyhow::Result;
use serde::Serialize;
use std::time::Duration;

const HIGH_MBPS: u64 = 24;
const LOW_MBPS: u64 = 3;
/// Time at which the rate falls.
const DOWN_S: u64 = 5;
/// Time at which the rate returns.
const UP_S: u64 = 10;
/// End of the run.
const SECONDS: u64 = 15;
const BULK_BYTES: u64 = 16_384;

/// Medians of the runs.
#[derive(Debug, Serialize)]
pub struct Step {
    /// Longest delay of the laser in the second after the rate falls.
    down_ms: f64,
    /// Longest delay of the laser in the second after the rate returns.
    up_ms: f64,
    /// Longest delay of the laser from a second after the rate falls until it returns.
    later_low_ms: f64,
    /// Longest delay of the laser from a second after the rate returns until the end.
    later_high_ms: f64,
    /// Bulk from a second after the rate falls, percent of the bulk that fits alongside the laser.
    low_percent: f64,
    /// Bulk from a second after the rate returns, percent of the bulk that fits alongside the laser.
    high_percent: f64,
    /// Messages of the laser that did not arrive, in all runs.
    laser_lost: usize,
    down_ms_of_runs: Vec<f64>,
    /// Lateness of the emulator by run.
    pub emulator: Vec<Punctual>,
}

fn step_scenario() -> String {
    let flows = load(HIGH_MBPS, BULK_BYTES, 0);
    let scenario = scenario_text(SECONDS, HIGH_MBPS, 0, &flows);
    format!(
        "{scenario}events:\n  \
           - {{ at: {DOWN_S}s, rate: {{ network: slow, to: {LOW_MBPS}Mbps }} }}\n  \
           - {{ at: {UP_S}s, rate: {{ network: slow, to: {HIGH_MBPS}Mbps }} }}\n"
    )
}

/// Returns the stages for the progress line.
pub fn stages() -> Vec<(String, Duration)> {
    vec![("a step".into(), Duration::from_secs(SECONDS) + NODES_AROUND)]
}

/// Runs the step.
pub fn run(runs: u64, progress: &Progress) -> Result<Step> {
    let all = runs_in_time(&step_scenario(), runs, progress)?;
    let lasers = all.iter().map(|run| run.flow("laser")).collect::<Result<Vec<_>>>()?;
    let bulks = all.iter().map(|run| run.flow("bulk")).collect::<Result<Vec<_>>>()?;
    let worst_of = |from: u64, to: u64| {
        let each = lasers.iter().map(move |laser| worst(&laser.delays(from * S..to * S)));
        each.collect::<Vec<f64>>()
    };
    let share = |from: u64, to: u64, rate: u64| {
        let fits = rate as f64 * PAYLOAD_SHARE - LASER_MBPS;
        let percent = |bulk: &&Samples| 100.0 * mbps(bulk, BULK_BYTES, from * S..to * S) / fits;
        middle(&bulks.iter().map(percent).collect::<Vec<_>>())
    };
    let middle = |from: u64, to: u64| middle(&worst_of(from, to));
    Ok(Step {
        down_ms: middle(DOWN_S, DOWN_S + 1),
        up_ms: middle(UP_S, UP_S + 1),
        later_low_ms: middle(DOWN_S + 1, UP_S),
        later_high_ms: middle(UP_S + 1, SECONDS),
        low_percent: share(DOWN_S + 1, UP_S, LOW_MBPS),
        high_percent: share(UP_S + 1, SECONDS, HIGH_MBPS),
        laser_lost: lasers.iter().map(|laser| Laser::new(laser, 0..SECONDS * S).lost).sum(),
        down_ms_of_runs: worst_of(DOWN_S, DOWN_S + 1),
        emulator: all.iter().map(|run| run.emulator).collect(),
    })
}

/// Returns the section of the page.
pub fn section(step: &Step) -> String {
    format!(
        "## A step\n\n\
         Tautline is alone. The rate of the link falls from {HIGH_MBPS} to {LOW_MBPS} Mbps and returns {} s later. Laser: its longest delay in ms in the second after each change, and after that second. Bulk: from a second after each change, as a percentage of the bulk that fits alongside the laser.\n\n\
         | laser after the fall | after the return | later at {LOW_MBPS} Mbps | at {HIGH_MBPS} Mbps | laser lost | bulk at {LOW_MBPS} Mbps | at {HIGH_MBPS} Mbps |\n|---|---|---|---|---|---|---|\n\
         | {:.1}{} | {:.1} | {:.1} | {:.1} | {} | {:.0} % | {:.0} % |\n",
        UP_S - DOWN_S,
        step.down_ms,
        lateness_remark(&step.emulator),
        step.up_ms,
        step.later_low_ms,
        step.later_high_ms,
        step.laser_lost,
        step.low_percent,
        step.high_percent
    )
}

#[cfg(test)]
mod tests {
    use super::step_scenario;
    use crate::scenario;
    use std::path::Path;

    #[test]
    fn every_run_is_a_valid_scenario() {
        let scenario = scenario::parse("tcp", &step_scenario(), Path::new(".")).unwrap();
        assert_eq!(scenario.events.len(), 2);
    }
}
