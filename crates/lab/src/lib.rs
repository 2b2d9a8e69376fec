// SPDX-License-Identifier: Apache-2.0
//! Tautline's test bench: real ROS, real daemons and real kernels, measured.
//!
//! Never shipped to robots. The bench uses Tautline only as a program: its configuration file, its
//! command line and its `status --json`. In virtual time, it runs the protocol crate directly. Two
//! cases link a library instead, in separate programs: `five-peers` links the node, and
//! `ros2-gateway` links the ROS 2 gateway.
//!
//! The programs of `crates/study` and `crates/restaurant` use the public modules.
#![forbid(unsafe_code)]

pub mod air;
mod bench;
mod parity;
pub mod rig;
mod rivals;
pub mod scenario;
pub mod setup;
pub mod sim;
mod validate;

use clap::Parser;
use rig::enclosure;
use std::process::ExitCode;

/// Tautline's test bench. Exit codes: 0 all targets reached, 1 could not run, 3 a
/// target was not reached, 4 void (the machine was too busy, or the link or another
/// transport deviates from its known figures).
#[derive(Parser)]
#[command(name = "tautline-lab", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Set on the copy of this program that runs in its own namespaces.
    #[arg(long, hide = true, global = true)]
    inside: bool,
}

#[derive(clap::Subcommand)]
enum Command {
    #[command(flatten)]
    Bench(bench::Command),
    /// Run real programs in network namespaces on a scenario's radios, in real time.
    Air(air::Arguments),
    /// Run a scenario in virtual time.
    Sim(sim::SimArguments),
    /// Search for faults of the protocol: random settings, topologies and faults in virtual
    /// time, then recovery, checked against an independent record.
    Swarm(sim::swarm::Arguments),
    /// Play seeded situations within one ROS graph and across Tautline, and compare what
    /// subscribers and clients see.
    Parity(parity::Arguments),
    /// Compare the radio model, virtual time and rate control with references.
    #[command(subcommand)]
    Validate(validate::Subject),
}

/// Runs the program `tautline-lab`.
pub fn run() -> ExitCode {
    let arguments = Arguments::parse();
    let inside = arguments.inside;
    let settled = enclosure::settle;
    let outcome = match &arguments.command {
        Command::Sim(arguments) => sim::run(arguments),
        Command::Swarm(arguments) => sim::swarm::run(arguments),
        Command::Validate(subject) if subject.is_pure() => validate::run(subject),
        _ if !inside => enclosure::run_this_inside(),
        Command::Bench(command) => bench::run(command),
        Command::Parity(arguments) => parity::run(arguments),
        Command::Air(arguments) => settled().and_then(|()| air::run(arguments)),
        Command::Validate(subject) => settled().and_then(|()| validate::run(subject)),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("tautline-lab: {error:#}");
        ExitCode::FAILURE
    })
}
