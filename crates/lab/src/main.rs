// SPDX-License-Identifier: Apache-2.0
//! Tautline's test bench: real ROS, real daemons and real kernels, measured.
//!
//! Never shipped to robots. It knows Tautline only as a program: its file, its
//! command line and its `status --json`.
#![forbid(unsafe_code)]

mod bench;

use clap::Parser;
use std::process::ExitCode;

/// Tautline's test bench. Exit codes: 0 all reached, 1 could not run, 3 a
/// target was not reached, 4 void (the link or the rivals are not as expected).
#[derive(Parser)]
#[command(name = "tautline-lab", version)]
struct Arguments {
    #[command(subcommand)]
    command: bench::Command,
    /// Set on the copy of this program that runs in its own namespaces.
    #[arg(long, hide = true, global = true)]
    inside: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = if arguments.inside {
        bench::run(&arguments.command)
    } else {
        bench::enclosure::run_this_inside()
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("tautline-lab: {error:#}");
        ExitCode::FAILURE
    })
}
