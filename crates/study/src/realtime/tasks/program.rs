// SPDX-License-Identifier: Apache-2.0
//! The four tasks as threads, which work until they have used their execution time.

use crate::realtime::paper;
use crate::realtime::periodic::{lock_memory, report_done, sleep_until};
use anyhow::{Context, Result};
use rustix::thread::gettid;
use std::hint::black_box;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use tautline_lab::rig::clock::{cpu_of_this_thread, monotonic_ns};
use tautline_lab::rig::processes::run as run_command;
use tautline_lab::rig::stats::write_rows;
use tautline_lab::rig::worker::join;

/// Time before the first release, for all threads to be ready.
const COUNTDOWN_NS: u64 = 300_000_000;
const NS_PER_MS: u64 = 1_000_000;
/// Period of the slowest task, after which the releases repeat.
pub const HYPERPERIOD_MS: u64 = 80;
/// Hyperperiods in a burst. The tasks need 98.75 % of a core; Linux reserves 5 % of each second for
/// normal threads (sched_rt_runtime_us). With bursts the tasks stay below that limit.
pub const BURST: u64 = 8;
/// Time between the bursts.
const PAUSE_MS: u64 = 480;
/// Rounds of work between two readings of the thread's processor time. They take about 2 us.
const WORK: u64 = 2000;

/// Arguments of the program.
#[derive(clap::Args)]
pub struct Arguments {
    /// First release of each task, milliseconds.
    #[arg(long, value_delimiter = ',')]
    offsets_ms: Vec<u64>,
    /// Number of bursts.
    #[arg(long)]
    bursts: u64,
    /// No pause between bursts.
    #[arg(long)]
    continuous: bool,
    /// Use SCHED_FIFO with the paper's priorities.
    #[arg(long)]
    fifo: bool,
    /// File of the samples: `task,released_ns,started_ns,ended_ns`.
    #[arg(long)]
    output: PathBuf,
}

/// A job of a task, in nanoseconds of CLOCK_MONOTONIC.
struct Job {
    released: u64,
    started: u64,
    ended: u64,
}

/// Returns the duration of `bursts` bursts.
pub fn duration(bursts: u64, continuous: bool) -> Duration {
    Duration::from_millis(COUNTDOWN_NS / NS_PER_MS + bursts * cycle_ms(continuous))
}

fn cycle_ms(continuous: bool) -> u64 {
    BURST * HYPERPERIOD_MS + if continuous { 0 } else { PAUSE_MS }
}

/// Runs the tasks and writes their jobs.
pub fn run(arguments: &Arguments) -> Result<()> {
    lock_memory()?;
    let first_ns = monotonic_ns() + COUNTDOWN_NS;
    let start = |(index, offset_ms): (usize, &u64)| {
        let releases = releases(arguments, index, first_ns + offset_ms * NS_PER_MS);
        let priority = arguments.fifo.then_some(paper::TASK_PRIORITIES[index]);
        let execution = Duration::from_millis(paper::TASK_EXECUTIONS_MS[index]);
        std::thread::spawn(move || task(&releases, execution, priority))
    };
    let threads: Vec<_> = arguments.offsets_ms.iter().enumerate().map(start).collect();
    let mut rows = vec!["task,released_ns,started_ns,ended_ns".to_owned()];
    for (index, thread) in threads.into_iter().enumerate() {
        let row = |job: Job| format!("{index},{},{},{}", job.released, job.started, job.ended);
        rows.extend(join(thread)?.into_iter().map(row));
    }
    write_rows(&arguments.output, rows)?;
    report_done()
}

fn releases(arguments: &Arguments, task: usize, first_ns: u64) -> Vec<u64> {
    let period_ms = paper::TASK_PERIODS_MS[task];
    let in_burst = |burst: u64| {
        let start_ms = burst * cycle_ms(arguments.continuous);
        (0..BURST * HYPERPERIOD_MS / period_ms).map(move |job| start_ms + job * period_ms)
    };
    (0..arguments.bursts).flat_map(in_burst).map(|ms| first_ns + ms * NS_PER_MS).collect()
}

fn task(releases: &[u64], execution: Duration, priority: Option<u8>) -> Result<Vec<Job>> {
    let mut jobs = Vec::with_capacity(releases.len());
    if let Some(priority) = priority {
        let thread = gettid().as_raw_nonzero().to_string();
        let mut chrt = Command::new("chrt");
        run_command(chrt.args(["--fifo", "--pid", &priority.to_string(), &thread]))
            .context("SCHED_FIFO (CAP_SYS_NICE, as root)")?;
    }
    for &released in releases {
        sleep_until(released)?;
        let started = monotonic_ns();
        work(execution);
        jobs.push(Job { released, started, ended: monotonic_ns() });
    }
    Ok(jobs)
}

/// Works until this thread has used the processor time `execution`.
fn work(execution: Duration) {
    let end = cpu_of_this_thread() + execution;
    let mut value = 0_u64;
    while cpu_of_this_thread() < end {
        for round in 0..WORK {
            value = black_box(value.wrapping_mul(31).wrapping_add(round));
        }
    }
}
