// SPDX-License-Identifier: Apache-2.0
//! The scalability of ROS: senders and echoers on hosts, and their limits.
//!
//! The rig of *Evaluating the Scalability of ROS in Multi-Robot Systems* (I. Jordan, 2017, "the
//! thesis"): a sender publishes numbered messages, an echoer publishes each again at once, and the
//! sender notes the round trip on its own clock. [`trial`] makes one run and its [`row::Row`];
//! [`experiment`] has the experiments, which are lists of runs.

mod acceptance;
mod cgroup;
mod echo;
mod experiment;
mod limit;
mod load;
mod measure;
mod nodes;
mod page;
mod queue;
mod roscpp;
mod row;
mod scene;
mod system;
mod tables;
mod trial;
mod watch;

use acceptance::Comparison;
use anyhow::{Result, ensure};
use clap::ValueEnum;
use experiment::{Experiment, Ladder, OwnLoad};
use load::Recording;
use row::Row;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use system::System;
use tautline_lab::rig::processes::word;
use tautline_lab::rig::table::{self, left, or_dash, right};
use tautline_lab::rig::verdict::verdict_lines;
use trial::Common;

/// Name of the study.
const NAME: &str = "scaling";

/// Arguments of the study.
#[derive(clap::Args)]
pub struct Arguments {
    /// Run only these experiments.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Experiment>,
    /// Run a part that takes about three minutes.
    #[arg(long)]
    quick: bool,
    /// Compare only these systems.
    #[arg(long, value_delimiter = ',')]
    system: Vec<System>,
    /// Counted seconds of each run.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Repetitions of each run, interleaved; by default 1, or 3 for runs that decide about targets.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=20))]
    runs: Option<u64>,
    /// For recorded: a recording to replay, FILE.bag by rospy or FILE.mcap by rclpy.
    #[arg(long, requires = "topic")]
    bag: Option<PathBuf>,
    /// For recorded: topic of the recording.
    #[arg(long, requires = "bag")]
    topic: Option<String>,
    #[command(flatten)]
    own: OwnLoad,
    #[command(flatten)]
    common: crate::Common,
}

/// Figures of the report.
#[derive(Serialize)]
struct Figures<'a> {
    counted_s: f64,
    cores: usize,
    /// Systems that are not installed on this machine.
    not_measured: &'a [String],
    comparisons: &'a [Comparison],
    rows: &'a [Row],
}

/// Runs the study.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let output = arguments.common.output(NAME)?;
    let daemons = arguments.common.daemons()?;
    let time = Duration::from_secs(arguments.seconds);
    let (ladders, not_measured) = arguments.ladders()?;
    let common = Common { daemons: &daemons, time };
    let rows = measure::measure_all(ladders, &common, &output.folder)?;
    let comparisons = acceptance::comparisons(&rows);
    let verdicts = acceptance::verdicts(&comparisons);
    let words = format!(
        "\n{}\n{}{}{}",
        rows_table(&rows),
        acceptance::comparison_table(&comparisons),
        verdict_lines(&verdicts),
        output.raw_line()
    );
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let (counted_s, comparisons) = (time.as_secs_f64(), &comparisons);
    let not_measured = &not_measured;
    let figures = Figures { counted_s, cores, not_measured, comparisons, rows: &rows };
    let conclusion = output.conclude(figures, verdicts, &words)?;
    let report = output.folder.join("report.json");
    page::draw(&report, &output.folder.join(""))?;
    if let Some(docs) = &arguments.common.docs {
        page::write(docs, &report, &rows, comparisons)?;
    }
    Ok(conclusion.exit_code())
}

impl Arguments {
    /// Returns the ladders of all chosen experiments, and the systems that were omitted because a program
    /// is missing.
    fn ladders(&self) -> Result<(Vec<Ladder>, Vec<String>)> {
        let recording = self.recording()?;
        let of = |it: &Experiment| it.ladders(self.quick, recording.as_ref(), &self.own);
        let mut ladders: Vec<Ladder> = self.experiments().iter().flat_map(of).collect();
        ladders.retain(|it| self.system.is_empty() || self.system.contains(&it.system()));
        ensure!(!ladders.is_empty(), "no chosen experiment measures a system of --system");
        if let Some(runs) = self.runs {
            ladders.iter_mut().for_each(|ladder| ladder.repetitions = runs as usize);
        }
        let missing = self.omit_missing(&mut ladders)?;
        Ok((ladders, missing))
    }

    /// Returns the recording to replay.
    fn recording(&self) -> Result<Option<Recording>> {
        let Some((bag, topic)) = self.bag.clone().zip(self.topic.clone()) else { return Ok(None) };
        ensure!(bag.is_file(), "--bag: no file {}", bag.display());
        Ok(Some(Recording { bag: std::path::absolute(bag)?, topic }))
    }

    /// Omits the runs of systems that are not installed; returns what is missing. Fails if the user
    /// asked for such a system, or if no runs are left.
    fn omit_missing(&self, ladders: &mut Vec<Ladder>) -> Result<Vec<String>> {
        let systems: BTreeSet<System> = ladders.iter().map(Ladder::system).collect();
        let mut missing = Vec::new();
        for system in systems {
            let Some(what) = system.missing() else { continue };
            ensure!(!self.system.contains(&system), "--system {}: {what}", system.name());
            eprintln!("not measured: {}: {what}", system.name());
            missing.push(format!("{}: {what}", system.name()));
            ladders.retain(|it| it.system() != system);
        }
        ensure!(!ladders.is_empty(), "no system can be measured; see above");
        Ok(missing)
    }

    fn experiments(&self) -> Vec<Experiment> {
        match (self.only.is_empty(), self.quick) {
            (false, _) => self.only.clone(),
            (true, true) => Experiment::QUICK.into(),
            (true, false) => Experiment::value_variants()
                .iter()
                .copied()
                .filter(|it| *it != Experiment::Own)
                .collect(),
        }
    }
}

fn rows_table(rows: &[Row]) -> String {
    table::format_rows(
        rows,
        &[
            left("experiment", 10, |row: &Row| word(row.experiment)),
            left("system", 15, |row| row.system.name()),
            left("link", 12, |row| word(row.link)),
            left("contents", 8, |row| row.contents.into()),
            right("hosts", 5, |row| row.hosts.to_string()),
            right("senders", 7, |row| row.senders.to_string()),
            right("Hz", 6, |row| row.frequency_hz.to_string()),
            right("CPU %", 5, |row| row.cpu_share_percent.map_or("-".into(), |it| it.to_string())),
            right("published/s", 11, |row| format!("{:.0}", row.published_per_s)),
            right("echoed/s", 9, |row| format!("{:.0}", row.echoed_per_s)),
            right("lost", 6, |row| row.lost.to_string()),
            right("mean ms", 9, |row| or_dash(row.rtt_ms.map(|it| it.mean), 2)),
            right("p50", 9, |row| or_dash(row.rtt_ms.map(|it| it.median), 2)),
            right("p95", 9, |row| or_dash(row.rtt_ms.map(|it| it.p95), 2)),
            right("machine %", 9, |row| or_dash(row.evidence.machine_percent, 0)),
            left("limit", 20, |row| match (&row.void, row.limits.is_empty()) {
                (Some(_), _) => format!("VOID; {}", row.limit_words()),
                (None, false) => row.limit_words(),
                (None, true) => "-".into(),
            }),
        ],
    )
}
