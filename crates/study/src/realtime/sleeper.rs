// SPDX-License-Identifier: Apache-2.0
//! A periodic loop by absolute sleeps, the method of cyclictest (package rt-tests). It measures
//! scheduling latency, and is the plain loop that is compared with the nodes of rospy and rclpy.

use super::periodic::{lock_memory, report_done, sleep_until};
use anyhow::Result;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use tautline_lab::rig::clock::monotonic_ns;
use tautline_lab::rig::stats::write_rows;

/// Time before the first period, nanoseconds.
const COUNTDOWN_NS: u64 = 100_000_000;
/// Uncounted cycles at the start.
const WARM_UP: usize = 20;

/// Arguments of the loop.
#[derive(clap::Args)]
pub struct Arguments {
    #[arg(long)]
    period_us: u64,
    #[arg(long)]
    count: usize,
    #[arg(long)]
    output: PathBuf,
}

/// Runs the loop and writes `due_ns,woke_ns` of each cycle.
pub fn run(arguments: &Arguments) -> Result<()> {
    let total = WARM_UP + arguments.count;
    let mut woke = vec![0; total];
    lock_memory()?;
    let _awake = stay_awake();
    let period_ns = arguments.period_us * 1000;
    let first_ns = monotonic_ns() + COUNTDOWN_NS;
    let due = |cycle: usize| first_ns + cycle as u64 * period_ns;
    for (cycle, woke) in woke.iter_mut().enumerate() {
        sleep_until(due(cycle))?;
        *woke = monotonic_ns();
    }
    let row = |cycle: usize| format!("{},{}", due(cycle), woke[cycle]);
    let rows = std::iter::once("due_ns,woke_ns".into()).chain((WARM_UP..total).map(row));
    write_rows(&arguments.output, rows)?;
    report_done()
}

/// Prevents deep sleep of processors while the file is open, as cyclictest does; a machine without
/// the file has no deep sleep.
fn stay_awake() -> Option<File> {
    let mut file = File::options().write(true).open("/dev/cpu_dma_latency").ok()?;
    file.write_all(&0_i32.to_ne_bytes()).ok()?;
    Some(file)
}
