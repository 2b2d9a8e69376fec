// SPDX-License-Identifier: Apache-2.0
//! Tautline's test bench: real ROS, real daemons and real kernels, measured.
//!
//! Never shipped to robots. The bench uses Tautline only as a program: its configuration file, its
//! command line and its `status --json`. In virtual time, it runs the protocol crate directly. Two
//! cases link a library instead, each in programs of their own: `five-peers` links the node, and
//! `ros2-gateway` links the ROS 2 gateway.
#![forbid(unsafe_code)]

mod air;
mod bench;
mod parity;
mod restaurant;
mod rig;
mod rivals;
mod scenario;
mod setup;
mod sim;
mod study;
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
    /// Check that the kernel holds frames; started by the tests.
    #[command(hide = true)]
    AirCheck(air::check::Arguments),
    /// Run a scenario in virtual time.
    Sim(sim::SimArguments),
    /// Search for faults of the protocol: random settings, topologies and faults in virtual
    /// time, then recovery, checked against an independent record.
    Swarm(sim::swarm::Arguments),
    /// Play seeded situations within one ROS graph and across Tautline, and compare what
    /// subscribers and clients see.
    Parity(parity::Arguments),
    /// Repeat a study of ROS, of a DDS or of real time on this machine.
    #[command(subcommand)]
    Study(study::Subject),
    /// Two robots, each with its own ROS, serve tables from one kitchen over one radio.
    Restaurant(restaurant::Arguments),
    /// Compare the radio model, virtual time and rate control with references.
    #[command(subcommand)]
    Validate(validate::Subject),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let inside = arguments.inside;
    let settled = enclosure::settle;
    let outcome = match &arguments.command {
        Command::Sim(arguments) => sim::run(arguments),
        Command::Swarm(arguments) => sim::swarm::run(arguments),
        Command::Validate(subject) if subject.is_pure() => validate::run(subject),
        Command::Study(subject) if subject.needs_network() => study::run(subject),
        Command::Restaurant(arguments) if !inside => arguments.start_inside(),
        _ if !inside => enclosure::run_this_inside(),
        Command::Bench(command) => bench::run(command),
        Command::Study(subject) => study::run(subject),
        Command::Parity(arguments) => parity::run(arguments),
        Command::Air(arguments) => settled().and_then(|()| air::run(arguments)),
        Command::Restaurant(arguments) => settled().and_then(|()| restaurant::run(arguments)),
        Command::AirCheck(check) => {
            settled().and_then(|()| check.run()).map(|()| ExitCode::SUCCESS)
        }
        Command::Validate(subject) => settled().and_then(|()| validate::run(subject)),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("tautline-lab: {error:#}");
        ExitCode::FAILURE
    })
}
