// SPDX-License-Identifier: Apache-2.0
//! Virtual time against real programs: the same scenario through both, flow by flow.

use crate::air::Punctuality;
use crate::rig::progress::Progress;
use crate::rig::stats::{Arrival, Samples, delay};
use crate::rig::table::{self, column};
use crate::scenario::Scenario;
use crate::{air, sim};
use anyhow::Result;
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Number of runs in virtual time; their samples are combined.
const SIM_SEEDS: u64 = 40;
/// Largest relative difference between virtual time and real programs.
const SHARE: f64 = 0.05;
/// Largest difference in milliseconds, where it allows more than [`SHARE`] does.
const MILLISECONDS: f64 = 0.3;
/// Limit of the emulator's CPU time, percent of one core.
const CPU_PERCENT: f64 = 25.0;
/// Largest part of all runs that may be discarded, percent.
const DISCARDED_PERCENT: u64 = 20;

/// Figures of one flow in virtual time and with real programs.
#[derive(Debug, Serialize)]
struct Pair {
    flow: String,
    sim: Figure,
    air: Figure,
    agrees: bool,
}

#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Figure {
    messages: usize,
    delivered_percent: f64,
    mean_ms: f64,
    p99_ms: f64,
}

#[derive(Debug, Serialize)]
struct Agreement {
    scenario: String,
    flows: Vec<Pair>,
    /// Lateness in the runs that count.
    emulator: Vec<Punctuality>,
    /// Lateness in the discarded runs.
    discarded: Vec<Punctuality>,
}

/// A function that runs a scenario; returns the samples by flow, and the lateness in real time.
type Driver = fn(&Scenario, u64) -> Result<(Vec<(String, Samples)>, Option<Punctuality>)>;

const SIM: Driver = |scenario, seed| Ok((sim::samples(scenario, seed)?, None));
const AIR: Driver = |scenario, seed| {
    let (samples, punctuality) = air::samples(scenario, seed)?;
    Ok((samples, Some(punctuality)))
};

/// Samples of several runs by flow, and the lateness of the runs that count and of the others.
#[derive(Default)]
struct Runs {
    flows: Vec<(String, Vec<Samples>)>,
    counted: Vec<Punctuality>,
    discarded: Vec<Punctuality>,
}

impl Runs {
    /// Runs a scenario with either driver until `wanted` runs count, or too many are discarded.
    fn run(driver: Driver, scenario: &Scenario, wanted: u64, progress: &Progress) -> Result<Self> {
        let mut runs = Self::default();
        let (mut seed, mut good) = (0, 0);
        while good < wanted && !runs.too_many_discarded(wanted) {
            seed += 1;
            progress.enter_next();
            let (samples, punctuality) = driver(scenario, seed)?;
            // Decided before any delay is evaluated.
            if let Some(late) = punctuality.clone().filter(|punctuality| !punctuality.counts) {
                runs.discarded.push(late);
                continue;
            }
            good += 1;
            runs.counted.extend(punctuality);
            runs.add(samples);
        }
        Ok(runs)
    }

    fn too_many_discarded(&self, wanted: u64) -> bool {
        let discarded = self.discarded.len() as u64;
        discarded * 100 > DISCARDED_PERCENT * (wanted + discarded)
    }

    fn add(&mut self, samples: Vec<(String, Samples)>) {
        for (number, (name, samples)) in samples.into_iter().enumerate() {
            if number == self.flows.len() {
                self.flows.push((name, Vec::new()));
            }
            self.flows[number].1.push(samples);
        }
    }
}

impl Pair {
    fn figures_of_both(&self, of: fn(&Figure) -> f64, decimals: usize) -> String {
        format!("{:.decimals$} / {:.decimals$}", of(&self.sim), of(&self.air))
    }
}

impl Figure {
    fn from_runs(runs: &[Samples]) -> Self {
        let sent: usize = runs.iter().map(|samples| samples.sent_ns.len()).sum();
        let arrivals = runs.iter().flat_map(|samples| &samples.arrivals);
        let delays: Vec<f64> = arrivals.map(Arrival::delay_ms).collect();
        let delivered_percent = 100.0 * delays.len() as f64 / sent.max(1) as f64;
        let Some(delay) = delay(delays) else {
            return Self { messages: sent, ..Self::default() };
        };
        Self { messages: sent, delivered_percent, mean_ms: delay.mean, p99_ms: delay.p99 }
    }

    fn agrees(&self, other: &Self) -> bool {
        let near = |a: f64, b: f64, least: f64| (a - b).abs() <= (SHARE * a).max(least);
        near(self.delivered_percent, other.delivered_percent, 0.0)
            && near(self.mean_ms, other.mean_ms, MILLISECONDS)
            && near(self.p99_ms, other.p99_ms, MILLISECONDS)
    }
}

/// Arguments of the command.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// A scenario with flows over udp.
    #[arg(default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/plain-udp.yaml"))]
    scenario: PathBuf,
    /// Number of real-time runs that must count; their samples are combined.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=100))]
    runs: u64,
    /// Print JSON instead of the table.
    #[arg(long)]
    json: bool,
}

/// Compares virtual time and real programs. Exit code 3 if they differ or the emulator uses too much CPU
/// time, 4 if the emulator was too late.
pub fn run(&Arguments { scenario: ref file, runs, json }: &Arguments) -> Result<ExitCode> {
    let scenario = crate::scenario::load_for_virtual_time(file)?;
    let time = Duration::from_nanos(scenario.duration) + Duration::from_secs(4);
    let mut stages = vec![("virtual time".to_owned(), Duration::ZERO); SIM_SEEDS as usize];
    stages.extend((1..=runs).map(|run| (format!("real time, run {run} of {runs}"), time)));
    let progress = Progress::new(stages);
    let virtual_time = Runs::run(SIM, &scenario, SIM_SEEDS, &progress)?;
    let real_time = Runs::run(AIR, &scenario, runs, &progress)?;
    progress.finish();
    let void = real_time.too_many_discarded(runs);
    let agreement = Agreement::new(&scenario, &virtual_time, real_time);
    let code = super::conclude(&agreement, json, &agreement.to_text(), agreement.holds())?;
    Ok(if void { ExitCode::from(4) } else { code })
}

impl Agreement {
    fn new(scenario: &Scenario, virtual_time: &Runs, real_time: Runs) -> Self {
        let both = virtual_time.flows.iter().zip(&real_time.flows);
        let flows = both.map(|((flow, sim), (_, air))| {
            let (sim, air) = (Figure::from_runs(sim), Figure::from_runs(air));
            Pair { flow: flow.clone(), sim, air, agrees: sim.agrees(&air) }
        });
        Self {
            scenario: scenario.name.clone(),
            flows: flows.collect(),
            emulator: real_time.counted,
            discarded: real_time.discarded,
        }
    }

    fn holds(&self) -> bool {
        !self.flows.is_empty()
            && self.flows.iter().all(|flow| flow.agrees)
            && self.emulator.iter().all(|run| run.cpu_percent < CPU_PERCENT)
    }

    fn to_text(&self) -> String {
        let mut text = format!(
            "{}: virtual time (sim) and real programs (air); they agree within {:.0} % or {MILLISECONDS} ms\n\n",
            self.scenario,
            100.0 * SHARE
        );
        text += &table::markdown(
            &self.flows,
            &[
                column("flow", |pair: &Pair| pair.flow.clone()),
                column("messages sim / air", |pair| {
                    pair.figures_of_both(|it| it.messages as f64, 0)
                }),
                column("delivered %", |pair| pair.figures_of_both(|it| it.delivered_percent, 1)),
                column("mean ms", |pair| pair.figures_of_both(|it| it.mean_ms, 2)),
                column("p99 ms", |pair| pair.figures_of_both(|it| it.p99_ms, 2)),
                column("", |pair| if pair.agrees { "agrees" } else { "DIFFERS" }.into()),
            ],
        );
        text.push('\n');
        let counted = self.emulator.iter().map(|run| (run, "counts"));
        let discarded = self.discarded.iter().map(|run| (run, "discarded"));
        for (run, fate) in counted.chain(discarded) {
            let _ = writeln!(
                text,
                "run {fate}: {} frames, late by {} us (p50), {} us (p99), {} us (max), {:.1} % of a core",
                run.frames, run.late_p50_us, run.late_p99_us, run.late_max_us, run.cpu_percent
            );
        }
        text
    }
}
