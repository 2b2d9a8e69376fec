// SPDX-License-Identifier: Apache-2.0
//! Tautline and the kernel's own TCP behind the same far bottleneck, alone and together. They run
//! in real time, because TCP is not modelled and cannot run in virtual time.

mod beside;
mod losses;
mod step;

use crate::air;
use crate::rig::progress::Progress;
use crate::rig::stats::Samples;
use crate::scenario;
use crate::validate::{Written, far};
use anyhow::{Context, Result};
use serde::Serialize;
use std::ops::Range;
use std::process::ExitCode;
use std::time::Duration;

const S: u64 = 1_000_000_000;
/// Largest number of attempts at a run, which is repeated if the emulator was late.
const ATTEMPTS: usize = 3;
/// Time before and after a scenario with TCP only.
const TCP_AROUND: Duration = Duration::from_secs(4);
/// Time before and after a scenario with Tautline's nodes, which need a handshake.
const NODES_AROUND: Duration = Duration::from_secs(11);
/// Fraction of a full packet of 1500 bytes that is message payload.
const TCP_SHARE: f64 = 1448.0 / 1500.0;
/// Kind of build, for the report: nodes of a development build need several times the processor time.
const BUILD: &str = if cfg!(debug_assertions) { "development" } else { "release" };
const TCP_BYTES: u64 = 16_384;

/// All measured figures.
#[derive(Debug, Serialize)]
struct Measured {
    kernel: String,
    build: &'static str,
    /// Runs of each case, whose medians are reported.
    runs: u64,
    losses: Vec<losses::Cell>,
    beside: Vec<beside::Pair>,
    step: step::Step,
}

/// Arguments of the command.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Number of runs of each case; the medians are reported.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    runs: u64,
    #[command(flatten)]
    written: Written,
}

/// Runs everything `runs` times; exit code 4 if the emulator was late in every attempt at some run.
pub fn run(&Arguments { runs, ref written }: &Arguments) -> Result<ExitCode> {
    let once = [losses::stages(), beside::stages(), step::stages()].concat();
    let stages = once.into_iter().flat_map(|it| vec![it; runs as usize]);
    let progress = Progress::new(stages.collect());
    let measured = Measured {
        kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().into(),
        build: BUILD,
        runs,
        losses: losses::run(runs, &progress)?,
        beside: beside::run(runs, &progress)?,
        step: step::run(runs, &progress)?,
    };
    progress.finish();
    let json = serde_json::to_string_pretty(&measured)? + "\n";
    if let Some(folder) = written.docs() {
        std::fs::write(folder.join("explanation/tcp.md"), measured.page())?;
        std::fs::write(folder.join("measured/tcp.json"), &json)?;
    }
    print!("{}", if written.json { json } else { measured.page() });
    Ok(if measured.is_late() { ExitCode::from(4) } else { ExitCode::SUCCESS })
}

impl Measured {
    fn page(&self) -> String {
        let Self { kernel, build, runs, .. } = self;
        let what = match runs {
            1 => "those of one run of each case".to_owned(),
            _ => format!("medians of {runs} runs of each case"),
        };
        let late = match self.is_late() {
            true => format!(
                "*Late*: the emulator was late in all {ATTEMPTS} attempts (the limit is 400 us for 99 % of frames). The figure is that of the attempt with the least lateness.\n\n"
            ),
            false => String::new(),
        };
        format!(
            "# Comparison with kernel TCP\n\n\
             Made by `tautline-lab validate tcp --runs {runs} --docs docs` in real time, by real nodes (a {build} build) and the TCP of this kernel ({kernel}), on a machine shared with others. Figures are {what}; they differ from run to run. \
             A robot sends over a wire of 1 Gbps to a router, and a slow link (a queue of 300 KB, 1 ms) connects the router to the base. Single packets are lost in both directions, acknowledgements included. \
             TCP always has more to send. Tautline, without any configuration of the link, sends 20 % more bulk than the link carries, at priority 20, and a laser's 1 KB every 20 ms at priority 200.\n\n\
             {late}{}\n{}\n{}",
            losses::section(&self.losses),
            beside::section(&self.beside),
            step::section(&self.step)
        )
    }

    fn is_late(&self) -> bool {
        let losses = self.losses.iter().flat_map(|it| &it.emulator);
        let beside = self.beside.iter().flat_map(|it| &it.emulator);
        losses.chain(beside).chain(&self.step.emulator).any(|it| !it.counts)
    }
}

/// Lateness of the emulator in a reported run.
#[derive(Debug, Clone, Copy, Serialize)]
struct Punctual {
    attempts: usize,
    late_p99_us: u64,
    counts: bool,
}

/// Samples of one run, by flow.
struct Run {
    flows: Vec<(String, Samples)>,
    emulator: Punctual,
}

/// Runs a scenario until the emulator is in time, or the attempts are used up.
fn run_in_time(text: &str, seed: u64, progress: &Progress) -> Result<Run> {
    let scenario = scenario::parse_made("tcp", text)?;
    progress.enter_next();
    let mut best: Option<Run> = None;
    for attempts in 1..=ATTEMPTS {
        let (flows, air::Punctuality { late_p99_us, counts, .. }) = air::samples(&scenario, seed)?;
        // Decided before the samples are evaluated.
        if best.as_ref().is_none_or(|best| late_p99_us < best.emulator.late_p99_us) {
            best = Some(Run { flows, emulator: Punctual { attempts, late_p99_us, counts } });
        }
        if counts {
            break;
        }
        progress.say(&format!("emulator late: {late_p99_us} us (p99), attempt {attempts}"));
    }
    best.context("no run")
}

impl Run {
    fn flow(&self, name: &str) -> Result<&Samples> {
        far::flow(&self.flows, name)
    }
}

fn scenario_text(seconds: u64, mbps: u64, loss_percent: u64, flows: &str) -> String {
    let slow = format!("rate: {mbps}Mbps, queue: 300KB, loss: {loss_percent}%");
    far::scenario(seconds, &slow, flows)
}

/// Returns a TCP flow that always has more to send.
fn tcp(congestion: &str, start_s: u64) -> String {
    format!(
        "  - {{ name: tcp, from: robot, to: base, size: {TCP_BYTES}, every: saturate, over: tcp, congestion: {congestion}, start: {start_s}s }}\n"
    )
}

/// Returns the payload that arrived within a span, in Mbps.
fn mbps(samples: &Samples, bytes: u64, span: Range<u64>) -> f64 {
    let duration_us = (span.end - span.start) as f64 / 1e3;
    (samples.arrived_count(span) as u64 * bytes * 8) as f64 / duration_us
}

/// The messages of a laser that were sent within a span.
#[derive(Debug, PartialEq)]
struct Laser {
    /// Delays of those that arrived.
    delays_ms: Vec<f64>,
    /// Number of those that did not arrive.
    lost: usize,
}

impl Laser {
    fn new(samples: &Samples, span: Range<u64>) -> Self {
        let sent = samples.published_count(span.clone());
        let delays_ms = samples.delays(span);
        let lost = sent.saturating_sub(delays_ms.len());
        Self { delays_ms, lost }
    }
}

/// Runs a scenario in time with each seed from 1 on.
fn runs_in_time(text: &str, runs: u64, progress: &Progress) -> Result<Vec<Run>> {
    (1..=runs).map(|seed| run_in_time(text, seed, progress)).collect()
}

/// Returns the table's remark where the emulator was late.
fn lateness_remark(emulator: &[Punctual]) -> String {
    match emulator.iter().filter(|it| !it.counts).count() {
        0 => String::new(),
        1 if emulator.len() == 1 => " (late)".into(),
        late => format!(" (late in {late} of {})", emulator.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::stats::Arrival;

    #[test]
    fn rates_and_losses_are_measured_within_the_span() {
        let arrival = |sequence, sent_ns, received_ns| Arrival { sequence, sent_ns, received_ns };
        let samples = Samples {
            sent_ns: vec![0, S, S + 1, 2 * S],
            arrivals: vec![
                arrival(0, 0, S),
                arrival(1, S, S + 4_000_000),
                arrival(3, 2 * S, 3 * S),
            ],
        };
        let second = S..2 * S;
        assert_eq!(mbps(&samples, 125_000, second.clone()), 2.0);
        assert_eq!(Laser::new(&samples, second), Laser { delays_ms: vec![4.0], lost: 1 });
    }

    #[test]
    fn every_run_is_a_valid_scenario() {
        let both = tcp("bbr", 5) + &far::load(6, 16_384, 0);
        for flows in [&both, &tcp("cubic", 0), &far::load(54, 65_536, 0)] {
            let text = scenario_text(10, 6, 20, flows);
            scenario::parse("tcp", &text, ".".as_ref()).unwrap();
        }
    }
}
