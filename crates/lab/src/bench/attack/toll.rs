// SPDX-License-Identifier: Apache-2.0
//! What a daemon uses of its machine while it is attacked, of which it may die.

use super::super::daemon::Daemon;
use crate::processes::Usage;
use anyhow::{Context, Result, anyhow};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often descriptors and threads are counted.
const SAMPLE_EVERY: Duration = Duration::from_millis(50);
/// Has the kernel begin the largest memory anew (proc_pid_clear_refs(5)).
const RESET_PEAK: &str = "5";

/// What one daemon used.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Toll {
    /// Of one core; `None` of a daemon that has died.
    pub cpu_percent: Option<f64>,
    /// Largest memory in RAM.
    pub peak_bytes: u64,
    /// Most descriptors and threads at once.
    pub descriptors: usize,
    pub threads: usize,
    /// Lines that its log grew by.
    pub log_lines: usize,
}

/// A daemon that is watched.
pub struct Meter {
    since: Instant,
    before: Usage,
    log: PathBuf,
    log_lines: usize,
    stop: Arc<AtomicBool>,
    sampler: JoinHandle<Toll>,
}

impl Meter {
    /// Begins; the daemon's log is in `logs`.
    pub fn start(daemon: &Daemon, name: &str, logs: &Path) -> Result<Self> {
        let log = logs.join(format!("tautline-{name}.log"));
        let folder = PathBuf::from(format!("/proc/{}", daemon.process.id()));
        let reset = folder.join("clear_refs");
        std::fs::write(&reset, RESET_PEAK)
            .with_context(|| format!("cannot write {}", reset.display()))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let sampler = std::thread::spawn(move || sample(&folder, &stopped));
        Ok(Self {
            since: Instant::now(),
            before: daemon.process.usage()?,
            log_lines: lines(&log),
            log,
            stop,
            sampler,
        })
    }

    /// What was used since.
    pub fn stop(self, daemon: &Daemon) -> Result<Toll> {
        let elapsed = self.since.elapsed();
        let cpu = daemon.process.usage().ok().map(|after| {
            100.0 * after.cpu.saturating_sub(self.before.cpu).div_duration_f64(elapsed)
        });
        self.stop.store(true, Ordering::Relaxed);
        let sampled = self.sampler.join().map_err(|_| anyhow!("the sampler panicked"))?;
        let log_lines = lines(&self.log).saturating_sub(self.log_lines);
        Ok(Toll { cpu_percent: cpu, log_lines, ..sampled })
    }
}

/// The largest of each until it is stopped, or the process has ended.
fn sample(folder: &Path, stop: &AtomicBool) -> Toll {
    let mut most = Toll::default();
    while !stop.load(Ordering::Relaxed) {
        let count = |of: &str| std::fs::read_dir(folder.join(of)).map_or(0, Iterator::count);
        let status = std::fs::read_to_string(folder.join("status")).unwrap_or_default();
        most.peak_bytes = most.peak_bytes.max(peak(&status).unwrap_or(0));
        most.descriptors = most.descriptors.max(count("fd"));
        most.threads = most.threads.max(count("task"));
        std::thread::sleep(SAMPLE_EVERY);
    }
    most
}

/// The largest memory so far, of what proc_pid_status(5) says.
fn peak(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes * 1024)
}

fn lines(log: &Path) -> usize {
    std::fs::read(log).map_or(0, |text| text.iter().filter(|byte| **byte == b'\n').count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_read_and_missing_of_a_process_that_has_died() {
        assert_eq!(peak("VmPeak:\t 9 kB\nVmHWM:\t   2048 kB\n"), Some(2 << 20));
        assert_eq!(peak("State:\tZ (zombie)\n"), None);
    }
}
