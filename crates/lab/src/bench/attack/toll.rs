// SPDX-License-Identifier: Apache-2.0
//! Resource use of a daemon under an attack that may kill it.

use crate::rig::processes::{Usage, status_bytes};
use crate::rig::worker::Worker;
use crate::setup::daemon::Daemon;
use anyhow::{Context, Result};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time between two counts of descriptors and threads.
const SAMPLE_EVERY: Duration = Duration::from_millis(50);
/// Peak memory in proc_pid_status(5).
const PEAK: &str = "VmHWM:";
/// Makes the kernel reset the peak memory (proc_pid_clear_refs(5)).
const RESET_PEAK: &str = "5";

/// Resource use of one daemon.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DaemonCost {
    /// CPU time, percent of one core; `None` for a daemon that has died.
    pub cpu_percent: Option<f64>,
    /// Peak resident memory.
    pub peak_bytes: u64,
    /// Largest number of descriptors.
    pub descriptors: usize,
    /// Largest number of threads.
    pub threads: usize,
    /// Lines added to the daemon's log.
    pub log_lines: usize,
}

/// A measurement of a daemon in progress.
pub struct Meter {
    since: Instant,
    before: Usage,
    log: PathBuf,
    log_lines: usize,
    sampler: Worker<DaemonCost>,
}

impl Meter {
    /// Starts a measurement; the daemon's log is in `logs`.
    pub fn start(daemon: &Daemon, name: &str, logs: &Path) -> Result<Self> {
        let log = logs.join(format!("tautline-{name}.log"));
        let folder = PathBuf::from(format!("/proc/{}", daemon.process.id()));
        let reset = folder.join("clear_refs");
        std::fs::write(&reset, RESET_PEAK)
            .with_context(|| format!("cannot write {}", reset.display()))?;
        let sampler = Worker::start(move |stop| Ok(sample(&folder, stop)));
        Ok(Self {
            since: Instant::now(),
            before: daemon.process.usage()?,
            log_lines: lines(&log),
            log,
            sampler,
        })
    }

    /// Ends the measurement; returns the resource use since its start.
    pub fn stop(self, daemon: &Daemon) -> Result<DaemonCost> {
        let elapsed = self.since.elapsed();
        let usage = daemon.process.usage().ok();
        let cpu_percent = usage.map(|after| after.cpu_percent_since(&self.before, elapsed));
        let sampled = self.sampler.stop()?;
        let log_lines = lines(&self.log).saturating_sub(self.log_lines);
        Ok(DaemonCost { cpu_percent, log_lines, ..sampled })
    }
}

/// Returns the largest value of each figure until `stop` is set; a process that has ended adds nothing.
fn sample(folder: &Path, stop: &AtomicBool) -> DaemonCost {
    let mut most = DaemonCost::default();
    while !stop.load(Ordering::Relaxed) {
        let count = |of: &str| std::fs::read_dir(folder.join(of)).map_or(0, Iterator::count);
        let status = std::fs::read_to_string(folder.join("status")).unwrap_or_default();
        most.peak_bytes = most.peak_bytes.max(status_bytes(&status, PEAK).unwrap_or(0));
        most.descriptors = most.descriptors.max(count("fd"));
        most.threads = most.threads.max(count("task"));
        std::thread::sleep(SAMPLE_EVERY);
    }
    most
}

fn lines(log: &Path) -> usize {
    std::fs::read(log).map_or(0, |text| text.iter().filter(|byte| **byte == b'\n').count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_memory_of_an_ended_process_is_missing() {
        assert_eq!(status_bytes("VmPeak:\t 9 kB\nVmHWM:\t   2048 kB\n", PEAK), Some(2 << 20));
        assert_eq!(status_bytes("State:\tZ (zombie)\n", PEAK), None);
    }
}
