// SPDX-License-Identifier: Apache-2.0
//! `tautline-study`: studies of the papers that a team repeats on its own robots: how ROS scales, what a
//! DDS costs, and how well periods and deadlines are kept.
//!
//! Each subject is a module with its `Arguments` and a function `run`, which measures and concludes
//! by [`tautline_lab::rig::output::Output::conclude`].
#![forbid(unsafe_code)]

mod dds;
mod realtime;
mod scaling;

use anyhow::Result;
use clap::Parser;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tautline_lab::rig::enclosure;
use tautline_lab::rig::output::{Output, stamp};
use tautline_lab::rig::processes::make_folder;
use tautline_lab::setup::daemon::{DaemonPath, DaemonSetup};
use tautline_lab::setup::ends;
use tautline_lab::setup::ros::Ros;

/// Repeat a study of ROS, of a DDS or of real time on this machine. Exit codes: 0 all targets
/// reached, 1 could not run, 3 a target was not reached, 4 void (the machine was too busy).
#[derive(Parser)]
#[command(name = "tautline-study", version)]
struct Arguments {
    #[command(subcommand)]
    subject: Subject,
    /// Set on the copy of this program that runs in its own namespaces.
    #[arg(long, hide = true, global = true)]
    inside: bool,
}

/// A study.
#[derive(clap::Subcommand)]
enum Subject {
    /// How many nodes, messages and bytes ROS carries, and what limits it.
    Scaling(Box<scaling::Arguments>),
    /// What publishing costs by size, QoS and middleware.
    Dds(dds::Arguments),
    /// Whether periods and deadlines are kept, with and without load.
    Realtime(realtime::Arguments),
    /// A measured program of the study of real time; started by it.
    #[command(hide = true)]
    RealtimeProgram(realtime::program::Arguments),
    /// A publisher or subscriber of the study of a DDS; started by it.
    #[command(hide = true)]
    DdsEnd(ends::Arguments),
}

impl Subject {
    /// Whether a study starts this program inside the enclosure.
    fn is_started_by_a_study(&self) -> bool {
        matches!(self, Self::RealtimeProgram(_) | Self::DdsEnd(_))
    }
}

/// Arguments of every study.
#[derive(clap::Args)]
struct Common {
    #[command(flatten)]
    tautline: DaemonPath,
    /// Folder in which each invocation creates its own folder, named by date and host.
    #[arg(long, default_value = "target/study")]
    output: PathBuf,
    /// Also write the tables, pictures and data of the documentation into this folder.
    #[arg(long, value_name = "FOLDER")]
    docs: Option<PathBuf>,
    /// Print the report as JSON instead of tables.
    #[arg(long)]
    json: bool,
}

impl Common {
    /// Returns the daemons of a study in ROS 1.
    fn daemons(&self) -> Result<DaemonSetup> {
        Ok(DaemonSetup { program: self.tautline.absolute()?, ros: Ros::One, rate_bps: None })
    }

    /// Creates the folder of a study.
    fn output(&self, case: &'static str) -> Result<Output> {
        let folder = std::path::absolute(self.output.join(stamp()?).join(case))?;
        make_folder(&folder)?;
        Ok(Output { case, folder, as_json: self.json })
    }
}

/// Returns the path of a file or folder of this crate.
fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn main() -> ExitCode {
    let Arguments { subject, inside } = Arguments::parse();
    let outcome = match inside {
        true => run(&subject),
        false => enclosure::run_this_inside(),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("tautline-study: {error:#}");
        ExitCode::FAILURE
    })
}

/// Runs a study, inside the enclosure.
fn run(subject: &Subject) -> Result<ExitCode> {
    if !subject.is_started_by_a_study() {
        enclosure::settle()?;
    }
    match subject {
        Subject::Scaling(arguments) => scaling::run(arguments),
        Subject::Dds(arguments) => dds::run(arguments),
        Subject::Realtime(arguments) => realtime::run(arguments),
        Subject::RealtimeProgram(arguments) => {
            realtime::program::run(arguments).map(|()| ExitCode::SUCCESS)
        }
        Subject::DdsEnd(arguments) => ends::run(arguments).map(|()| ExitCode::SUCCESS),
    }
}
