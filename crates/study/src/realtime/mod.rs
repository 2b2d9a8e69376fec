// SPDX-License-Identifier: Apache-2.0
//! Whether periods and deadlines are kept, after the paper in [`paper`]: scheduling latency,
//! response times and periods on one machine, and round trips and losses over a link, each with
//! and without load.

mod condition;
mod exchange;
mod latency;
mod page;
mod paper;
mod periodic;
mod periods;
pub mod program;
mod recurrence;
mod sleeper;
mod tasks;

use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tautline_lab::rig::output::{About, Output};
use tautline_lab::rig::processes::make_folder;
use tautline_lab::rig::progress::Progress;
use tautline_lab::rig::verdict::{Conclusion, Verdict, verdict_lines};

/// Name of the study.
const NAME: &str = "realtime";

/// A part of the study.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Scheduling latency, by the method of cyclictest.
    Latency,
    /// Response times of four periodic tasks.
    Tasks,
    /// Jitter of four nodes with periods, as plain loops and in ROS 1 and ROS 2.
    Periods,
    /// Round trips by size and rate, with and without other traffic.
    Roundtrip,
    /// Losses by size and rate, over a modelled radio and a token bucket.
    Loss,
}

/// Arguments of the study.
#[derive(clap::Args)]
pub struct Arguments {
    /// Run only these parts.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Run short measurements, about three minutes in all.
    #[arg(long)]
    quick: bool,
    /// Measurements of each condition, interleaved; by default 2, with --quick 1.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=20))]
    runs: Option<u64>,
    #[command(flatten)]
    common: crate::Common,
}

/// The common settings of all parts.
pub struct Context<'a> {
    quick: bool,
    runs: Option<u64>,
    /// Folder of raw samples and logs.
    raw: PathBuf,
    /// Program of the daemon.
    tautline: PathBuf,
    progress: &'a Progress,
    /// Whether stress-ng is installed.
    can_stress: bool,
    /// Measurements that were skipped, with reasons.
    skipped: Vec<String>,
}

impl Context<'_> {
    /// Returns the time of a measurement: `quick` seconds with `--quick`, otherwise `full` seconds.
    fn seconds(&self, quick: u64, full: u64) -> Duration {
        Duration::from_secs(if self.quick { quick } else { full })
    }

    fn rounds(&self) -> u64 {
        self.runs.unwrap_or(if self.quick { 1 } else { 2 })
    }

    /// Returns the settings of stress to measure: `false`, and `true` if stress-ng is installed.
    fn stress_settings(&self) -> impl Iterator<Item = bool> + use<> {
        let can_stress = self.can_stress;
        [false, true].into_iter().filter(move |stressed| can_stress || !stressed)
    }
}

/// Figures of the report.
#[derive(Default, Serialize)]
pub struct Figures {
    quick: bool,
    skipped: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    latency: Vec<latency::Row>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tasks: Vec<tasks::Row>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    periods: Vec<periods::Row>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    roundtrip: Vec<exchange::Row>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    loss: Vec<exchange::Row>,
}

impl Figures {
    /// Returns the reasons why runs are void.
    fn void(&self) -> Vec<&str> {
        let latency = self.latency.iter().flat_map(|row| &row.void);
        let tasks = self.tasks.iter().flat_map(|row| &row.void);
        let periods = self.periods.iter().flat_map(|row| &row.void);
        let exchange = self.roundtrip.iter().chain(&self.loss).flat_map(|row| &row.void);
        latency.chain(tasks).chain(periods).chain(exchange).map(String::as_str).collect()
    }

    fn verdicts(&self) -> Vec<Verdict> {
        latency::verdicts(&self.latency)
    }

    /// Returns the tables of the measured parts, by name.
    fn tables(&self) -> Vec<(&'static str, String)> {
        let mut tables = Vec::new();
        if !self.latency.is_empty() {
            tables.push(("latency", latency::table(&self.latency)));
        }
        if !self.tasks.is_empty() {
            tables.push(("theory", tasks::theory()));
            tables.push(("tasks", tasks::table(&self.tasks)));
        }
        if !self.periods.is_empty() {
            tables.push(("periods", periods::table(&self.periods)));
        }
        if !self.roundtrip.is_empty() {
            tables.push(("roundtrip", exchange::roundtrip::table(&self.roundtrip)));
        }
        if !self.loss.is_empty() {
            tables.push(("loss", exchange::loss::table(&self.loss)));
        }
        tables
    }
}

/// Runs the study.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let output = arguments.common.output(NAME)?;
    make_folder(&output.folder.join("raw"))?;
    let (figures, about) = (arguments.measure(&output)?, About::now());
    let verdicts = figures.verdicts();
    let words = report_text(&figures, &verdicts, &about) + &output.raw_line();
    let void = !figures.void().is_empty();
    let conclusion = output.conclude(&figures, verdicts, &words)?;
    let report = output.folder.join("report.json");
    page::draw(&report, &output.folder.join(""))?;
    if let Some(docs) = &arguments.common.docs {
        page::write(docs, &report, &figures, &about)?;
    }
    Ok(if void { Conclusion::Void } else { conclusion }.exit_code())
}

fn report_text(figures: &Figures, verdicts: &[Verdict], about: &About) -> String {
    let machine = about.machine.line(&about.kernel);
    let tables = figures.tables().into_iter().map(|(name, table)| format!("\n{name}\n\n{table}"));
    let notes = figures.skipped.iter().map(|note| format!("{note}\n"));
    let void = figures.void().into_iter().map(|reason| format!("VOID: {reason}\n"));
    let parts: String = tables.chain(notes).chain(void).collect();
    format!("\n{machine}\n{parts}\n{}", verdict_lines(verdicts))
}

impl Arguments {
    fn has(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    fn measure(&self, output: &Output) -> Result<Figures> {
        let progress = Progress::new(Vec::new());
        let mut skipped = Vec::new();
        let can_stress =
            condition::installed("stress-ng", "stress-ng", "runs with stress", &mut skipped);
        let mut context = Context {
            quick: self.quick,
            runs: self.runs,
            raw: output.folder.join("raw"),
            tautline: self.common.tautline.absolute()?,
            progress: &progress,
            can_stress,
            skipped,
        };
        progress.replan(self.stages(&context));
        let mut figures = Figures { quick: self.quick, ..Figures::default() };
        if self.has(Part::Latency) {
            figures.latency = latency::measure(&mut context)?;
        }
        if self.has(Part::Tasks) {
            figures.tasks = tasks::measure(&mut context)?;
        }
        if self.has(Part::Periods) {
            figures.periods = periods::measure(&mut context)?;
        }
        if self.has(Part::Roundtrip) {
            figures.roundtrip = exchange::roundtrip::measure(&context)?;
        }
        if self.has(Part::Loss) {
            figures.loss = exchange::loss::measure(&context)?;
        }
        figures.skipped = context.skipped;
        progress.finish();
        Ok(figures)
    }

    fn stages(&self, context: &Context<'_>) -> Vec<(String, Duration)> {
        let stages = |part: &Part| match part {
            Part::Latency => latency::stages(context),
            Part::Tasks => tasks::stages(context),
            Part::Periods => periods::stages(context),
            Part::Roundtrip => exchange::roundtrip::stages(context),
            Part::Loss => exchange::loss::stages(context),
        };
        let parts = Part::value_variants().iter().filter(|part| self.has(**part));
        parts.flat_map(stages).collect()
    }
}
