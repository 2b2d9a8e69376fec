// SPDX-License-Identifier: Apache-2.0
//! `tautline-lab validate`: radio model, virtual time and rate controllers against references.

mod agreement;
mod constants;
mod cost;
mod dcf;
mod far;
mod links;
mod losses;
mod networks;
mod plans;
mod rates;
mod relays;
mod speed;
mod tcp;
mod traces;
mod unknown;

use anyhow::Result;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Folder of recorded links unless the user states another.
const TRACES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces");

/// What a validation writes.
#[derive(Debug, clap::Args)]
pub struct Written {
    /// Print JSON instead of the tables.
    #[arg(long)]
    json: bool,
    /// Also write the pages, pictures and data of this validation below this folder.
    #[arg(long, value_name = "FOLDER")]
    docs: Option<PathBuf>,
}

impl Written {
    fn docs(&self) -> Option<&Path> {
        self.docs.as_deref()
    }
}

/// Arguments of a validation on recorded links.
#[derive(Debug, clap::Args)]
pub struct OnTraces {
    /// Folder of recorded links in the format of mahimahi, which may be compressed (.gz).
    #[arg(long, value_name = "FOLDER", default_value = TRACES)]
    traces: PathBuf,
    #[command(flatten)]
    written: Written,
}

/// The only output of a validation that has no page of its own.
#[derive(Debug, clap::Args)]
pub struct Printed {
    /// Print JSON instead of the tables.
    #[arg(long)]
    json: bool,
}

/// A validation. Exit code 3 if it fails, 4 if the machine was too busy for a result.
#[derive(Debug, clap::Subcommand)]
pub enum Subject {
    /// Compare saturation throughput and collisions of 1 to 32 stations at 6 and 54 Mbps with a reference.
    Dcf(Written),
    /// Measure the processor time of a packet over one link and over two; needs a release build. Exit
    /// code 3 if the second link costs too much.
    Cost(Printed),
    /// Compare virtual time with real programs on the same scenario.
    Air(agreement::Arguments),
    /// Compare the policies over several links with RCom and with one link; exit code 3 if a target is
    /// missed.
    Links(Written),
    /// Measure urgent and large messages on lossy links; exit code 3 if a target is missed.
    Losses(Printed),
    /// Compare the planner with random fleets in virtual time; exit code 3 if a target is missed.
    Plans(plans::Arguments),
    /// Compare Tautline with plain ROS 1 on a tether, Wi-Fi, a mesh, LTE and satellites, with one load.
    Networks(OnTraces),
    /// Compare chains of relays with plain IP forwarding; exit code 3 if they are not better.
    Relays(relays::Arguments),
    /// Measure the rate controllers behind a far bottleneck; exit code 3 if `auto` misses a target.
    Rates(Written),
    /// Halve and double each constant of `auto`, on links that are drawn from seeds.
    Constants(Written),
    /// Measure Tautline and the kernel's TCP behind a far bottleneck, alone and together, in real time.
    Tcp(tcp::Arguments),
    /// Compare the rate controllers on recorded and generated cellular links with a sender that knows
    /// the capacity in advance; exit code 3 if `auto` misses a target.
    Traces(OnTraces),
    /// Compare the rate controllers on links that are drawn from seeds; exit code 3 if `auto` carries
    /// less than half of what another one does.
    Unknown(unknown::Arguments),
    /// Measure the speed of virtual time; needs a release build.
    Speed(Printed),
}

impl Subject {
    /// Whether the validation needs no namespaces.
    pub fn is_pure(&self) -> bool {
        !matches!(self, Self::Air(_) | Self::Tcp(_))
    }
}

/// Runs a validation.
pub fn run(subject: &Subject) -> Result<ExitCode> {
    match subject {
        Subject::Dcf(written) => dcf::run(written),
        Subject::Rates(written) => rates::run(written),
        Subject::Links(written) => links::run(written),
        Subject::Losses(printed) => losses::run(printed.json),
        Subject::Networks(arguments) => networks::run(arguments),
        Subject::Plans(arguments) => plans::run(arguments),
        Subject::Relays(arguments) => relays::run(arguments),
        Subject::Constants(written) => constants::run(written),
        Subject::Cost(printed) => cost::run(printed.json),
        Subject::Unknown(arguments) => unknown::run(arguments),
        Subject::Traces(arguments) => traces::run(arguments),
        Subject::Speed(printed) => speed::run(printed.json),
        Subject::Tcp(arguments) => tcp::run(arguments),
        Subject::Air(arguments) => agreement::run(arguments),
    }
}

/// Prints figures as JSON or as text; exit code 3 if the validation does not hold.
fn conclude(figures: &impl Serialize, as_json: bool, text: &str, holds: bool) -> Result<ExitCode> {
    match as_json {
        true => println!("{}", serde_json::to_string_pretty(figures)?),
        false => print!("{text}"),
    }
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::from(3) })
}
