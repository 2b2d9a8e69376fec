// SPDX-License-Identifier: Apache-2.0
//! The measured programs, each a process of its own whose scheduler, processors and memory the
//! study chooses.

use super::{sleeper, tasks};
use anyhow::{Context, Result};
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::time::{ClockId, Timespec};
use std::io::Write;

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

/// Locks all memory of this process, so that no page fault delays it.
pub fn lock_memory() -> Result<()> {
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE)
        .context("cannot lock memory (CAP_IPC_LOCK, or a larger 'ulimit -l')")
}

/// Sleeps until a time of CLOCK_MONOTONIC.
pub fn sleep_until(ns: u64) -> Result<()> {
    let at = Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 };
    loop {
        match rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &at) {
            Err(rustix::io::Errno::INTR) => {}
            outcome => return outcome.context("clock_nanosleep"),
        }
    }
}

/// Tells the study that the samples are written.
pub fn say_done() -> Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "done")?;
    Ok(out.flush()?)
}
