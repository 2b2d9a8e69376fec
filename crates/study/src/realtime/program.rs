// SPDX-License-Identifier: Apache-2.0
//! The measured programs, each a separate process whose scheduler, processors and memory the study
//! chooses.

use super::{sleeper, tasks};
use anyhow::Result;

/// Arguments of a measured program.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    program: Program,
}

#[derive(clap::Subcommand)]
enum Program {
    /// Sleep until the beginning of each period, and note when the sleep ended.
    Sleeper(sleeper::Arguments),
    /// Run the four periodic tasks.
    Tasks(tasks::program::Arguments),
}

/// Runs a measured program.
pub fn run(arguments: &Arguments) -> Result<()> {
    match &arguments.program {
        Program::Sleeper(arguments) => sleeper::run(arguments),
        Program::Tasks(arguments) => tasks::program::run(arguments),
    }
}
