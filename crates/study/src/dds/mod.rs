// SPDX-License-Identifier: Apache-2.0
//! The cost of publishing, by size, QoS and middleware: the experiment of "Exploring the
//! Performance of ROS2" (EMSOFT 2016), with the systems that can be installed here and with
//! Tautline.
//!
//! A delay is from the publisher's stamp before `publish` to the start of the callback. All
//! programs, even in different namespaces, share CLOCK_MONOTONIC. So, unlike in the paper, no message
//! needs to be returned.
//!
//! | part | module |
//! |---|---|
//! | computers, masters, daemons of a system | `stage.rs` |
//! | publisher and subscriber programs, and batches of messages | `probe.rs`, `series.rs` |
//! | latency and QoS; cost of a gateway | `latency.rs`; `added.rs` |
//! | where the time goes; first messages | `breakdown.rs`; `first.rs` |
//! | five subscribers; throughput; idle nodes | `fairness.rs`; `throughput.rs`; `footprint.rs` |
//! | systems with several subscribers | `hop.rs` |
//! | tables, pictures, docs | `docs.rs`, `plot/tables_dds.py`, `plot/study_dds.py` |

mod added;
mod breakdown;
mod docs;
mod fairness;
mod first;
mod footprint;
mod hop;
mod latency;
mod outcome;
mod probe;
mod series;
mod stage;
mod system;
mod throughput;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use serde::Serialize;
use series::Cell;
use stage::Place;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use system::System;
use tautline_lab::rig::output::Output;
use tautline_lab::rig::processes::{read_packed, word};
use tautline_lab::rig::progress::Progress;
use tautline_lab::rig::verdict::{Verdict, verdict_lines};
use tautline_lab::setup::daemon::DaemonSetup;
use tautline_lab::setup::ros::ros2_packages;

/// Name on the command line.
const NAME: &str = "dds";
/// Stages are numbered modulo this constant; fewer exist at the same time. Domains and addresses
/// follow from the number.
const STAGES: u8 = 40;

/// The systems that a quick run measures in its slow parts.
const QUICK_SYSTEMS: [System; 5] =
    [System::Rospy, System::Roscpp, System::RclpyUdp, System::Tautline11, System::Tautline22];

/// Arguments of the study.
#[derive(clap::Args)]
pub struct Arguments {
    /// Fewer sizes, messages and repetitions: about three minutes instead of about 25.
    #[arg(long)]
    quick: bool,
    /// Measure only these parts.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
    /// Measure only these systems.
    #[arg(long, value_delimiter = ',')]
    system: Vec<System>,
    /// Measure the delay by size only at these places.
    #[arg(long, value_delimiter = ',')]
    place: Vec<Place>,
    /// Measure the delay by size only with messages of these bytes; sizes that the paper lacks are allowed.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(64..))]
    bytes: Vec<u32>,
    #[command(flatten)]
    common: crate::Common,
    /// Measure nothing: make the tables and pictures in --docs again, from their data.
    #[arg(long, requires = "docs")]
    again: bool,
}

/// A part of the study.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Part {
    /// Delay by size and place.
    Latency,
    /// Delay that a gateway adds to a local hop.
    Added,
    /// Delay by quality of service.
    Qos,
    /// First messages that are lost when a publisher starts.
    First,
    /// Serialization, middleware, deserialization.
    Breakdown,
    /// Five subscribers of one publisher.
    Fairness,
    /// Bytes per second.
    Throughput,
    /// Threads, libraries and memory of idle nodes.
    Footprint,
}

/// The common settings of all parts.
pub struct Context {
    /// The systems that can run here.
    pub systems: Vec<System>,
    /// Whether the run is a quick one with fewer measurements.
    pub quick: bool,
    /// Requested places; empty for all.
    places: Vec<Place>,
    /// Requested sizes in bytes; empty for the usual sizes.
    sizes: Vec<usize>,
    /// Setup of the daemons.
    pub daemons: DaemonSetup,
    /// Display of the steps and the remaining time.
    pub progress: Progress,
    folder: PathBuf,
    number: std::cell::Cell<u8>,
}

impl Context {
    /// Returns the systems of a slow part: all, or few in a quick run.
    pub fn few_in_quick(&self) -> Vec<System> {
        let kept = |it: &System| !self.quick || QUICK_SYSTEMS.contains(it);
        self.systems.iter().copied().filter(kept).collect()
    }

    /// Returns the folder of the raw samples of a part.
    pub fn folder(&self, part: &str) -> PathBuf {
        self.folder.join("raw").join(part)
    }

    /// Returns the number for the next [`stage::Stage`].
    pub fn next_number(&self) -> u8 {
        let number = (self.number.get() + 1) % STAGES;
        self.number.set(number);
        number
    }
}

/// A step of the run, for the progress display: its name and its expected duration.
type Step = (String, Duration);

/// All results.
#[derive(Default, Serialize)]
pub struct Figures {
    mode: &'static str,
    /// Packages of the measured systems.
    packages: Vec<String>,
    /// Systems that could not run here, with reasons.
    skipped: Vec<String>,
    /// Delay by size and place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    latency: Vec<Cell>,
    /// Delay that a gateway adds to a local hop.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    added: Vec<added::Row>,
    /// Delay by quality of service.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    qos: Vec<Cell>,
    /// First messages that are lost when a publisher starts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    first: Vec<first::Row>,
    /// Serialization, middleware, deserialization.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    breakdown: Vec<Cell>,
    /// Five subscribers of one publisher.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fairness: Vec<fairness::Row>,
    /// Bytes per second.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    throughput: Vec<throughput::Row>,
    /// Threads, libraries and memory of idle nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    footprint: Vec<footprint::Row>,
    /// Systems that failed in one of the last five parts.
    failures: Vec<hop::Failure>,
}

impl Part {
    /// Returns the steps of the part.
    fn steps(self, context: &Context) -> Vec<Step> {
        match self {
            Self::Latency => latency::steps(context),
            Self::Added => added::steps(context),
            Self::Qos => latency::qos_steps(context),
            Self::First => first::steps(context),
            Self::Breakdown => breakdown::steps(context),
            Self::Fairness => fairness::steps(context),
            Self::Throughput => throughput::steps(context),
            Self::Footprint => footprint::steps(context),
        }
    }

    fn run(self, context: &Context, figures: &mut Figures) -> Result<()> {
        let failures = &mut figures.failures;
        match self {
            Self::Latency => figures.latency = latency::run(context)?,
            Self::Added => figures.added = added::run(context)?,
            Self::Qos => figures.qos = latency::run_qos(context)?,
            Self::First => figures.first = first::run(context, failures)?,
            Self::Breakdown => figures.breakdown = breakdown::run(context)?,
            Self::Fairness => figures.fairness = fairness::run(context, failures)?,
            Self::Throughput => figures.throughput = throughput::run(context, failures)?,
            Self::Footprint => figures.footprint = footprint::run(context, failures)?,
        }
        Ok(())
    }
}

/// Runs the study.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    docs::check(arguments.common.docs.as_deref())?;
    if let (true, Some(docs)) = (arguments.again, &arguments.common.docs) {
        docs::write_again(docs, &read_packed(&docs::data(docs))?)?;
        return Ok(ExitCode::SUCCESS);
    }
    stage::hide_shared_memory()?;
    let output = arguments.common.output(NAME)?;
    let mut figures = Figures { mode: mode(arguments.quick), ..Figures::default() };
    let systems = arguments.systems(&mut figures.skipped)?;
    figures.packages = packages();
    let mut context = Context {
        systems,
        quick: arguments.quick,
        places: arguments.place.clone(),
        sizes: arguments.bytes.iter().map(|it| *it as usize).collect(),
        daemons: arguments.common.daemons()?,
        progress: Progress::new(Vec::new()),
        folder: output.folder.clone(),
        number: std::cell::Cell::new(0),
    };
    let parts = arguments.parts();
    let steps = parts.iter().flat_map(|part| part.steps(&context)).collect();
    context.progress = Progress::new(steps);
    for part in parts {
        part.run(&context, &mut figures)?;
    }
    context.progress.finish();
    arguments.report(&output, &figures)
}

fn mode(quick: bool) -> &'static str {
    if quick { "quick" } else { "full" }
}

impl Arguments {
    fn parts(&self) -> Vec<Part> {
        let all = Part::value_variants().iter().copied();
        all.filter(|part| self.only.is_empty() || self.only.contains(part)).collect()
    }

    /// Returns the systems to measure; prints missing programs with the commands that install them.
    fn systems(&self, skipped: &mut Vec<String>) -> Result<Vec<System>> {
        let mut systems = Vec::new();
        for &system in System::value_variants() {
            if !self.system.is_empty() && !self.system.contains(&system) {
                continue;
            }
            match system.missing() {
                None => systems.push(system),
                Some(reason) => {
                    eprintln!("tautline-lab: skips {}: {reason}", system.name());
                    skipped.push(format!("{}: {reason}", system.name()));
                }
            }
        }
        ensure!(!systems.is_empty(), "no system can run here: {}", skipped.join("; "));
        if systems.contains(&System::Roscpp) {
            system::compile()?;
        }
        Ok(systems)
    }

    fn report(&self, output: &Output, figures: &Figures) -> Result<ExitCode> {
        let verdicts: Vec<Verdict> = added::verdicts(&figures.added);
        let tables = docs::tables(&serde_json::to_string(figures)?)?;
        let words = format!(
            " {} run\n{}\n{}\n{}",
            figures.mode,
            docs::page(&tables),
            verdict_lines(&verdicts),
            output.raw_line()
        );
        let conclusion = output.conclude(figures, verdicts, &words)?;
        let report = output.folder.join("report.json");
        docs::draw(&report, &output.folder)?;
        if let Some(docs) = &self.common.docs {
            docs::write(docs, &report, tables, figures)?;
        }
        Ok(conclusion.exit_code())
    }
}

/// Returns the versions of the measured programs.
fn packages() -> Vec<String> {
    let installed = |name: &str| {
        let list = system::tree().join("target/ros2").join(name).join("installed");
        std::fs::read_to_string(list).map(|list| list.trim().to_owned()).ok()
    };
    let ros1 = tautline_lab::rig::processes::run(std::process::Command::new("dpkg-query").args([
        "-W",
        "-f=${Package}==${Version} ",
        "python3-rospy",
        "libroscpp4d",
    ]));
    [ros1.ok().map(|it| it.trim().to_owned()), Some(ros2_packages())]
        .into_iter()
        .chain(["cyclone", "zenoh"].map(installed))
        .flatten()
        .collect()
}

/// Returns the title of a step: the names of the study and the part on the command line, then `what`.
fn step(part: Part, what: &str) -> String {
    format!("{NAME}, {}: {what}", word(part))
}
