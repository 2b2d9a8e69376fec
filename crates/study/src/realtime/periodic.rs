// SPDX-License-Identifier: Apache-2.0
//! Shared code of the measured programs: locking memory, absolute sleeps, and the last line of output.

use anyhow::{Context, Result};
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::time::{ClockId, Timespec};
use std::io::Write;

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

/// Reports to the study that the samples are written.
pub fn report_done() -> Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "done")?;
    Ok(out.flush()?)
}
