// SPDX-License-Identifier: Apache-2.0
//! CPU time and memory of daemons, and CPU time of all programs together, between two times.

use super::daemon::{Daemon, NAMES};
use crate::rig::processes::Usage;
use crate::rig::verdict::{IDLE_CPU_PERCENT, IDLE_RESIDENT_MB, Verdict};
use anyhow::{Context, Result};
use serde::Serialize;
use std::time::{Duration, Instant};

/// USER_HZ of proc_stat(5).
const TICK: Duration = Duration::from_millis(10);

/// CPU time and memory of one daemon.
#[derive(Debug, Clone, Serialize)]
pub struct DaemonFigures {
    /// CPU time with master and peer but without messages, percent of one core.
    pub idle_cpu_percent: f64,
    /// CPU time over the counted time, percent of one core.
    pub cpu_percent: f64,
    /// Resident memory before any message.
    pub idle_resident_bytes: u64,
    /// Resident memory at the end of the counted time.
    pub resident_bytes: u64,
}

/// A measurement in progress.
pub struct Watch {
    since: Instant,
    before: Vec<Usage>,
}

/// CPU time and memory of one daemon during a measurement.
pub struct WatchedDaemon {
    /// CPU time, percent of one core.
    pub cpu_percent: f64,
    /// Resident memory at the end.
    pub resident_bytes: u64,
}

impl Watch {
    /// Starts a measurement.
    pub fn start(daemons: &[Daemon]) -> Result<Self> {
        Ok(Self { since: Instant::now(), before: usages(daemons)? })
    }

    /// Ends the measurement; returns one entry per daemon, in the daemons' order.
    pub fn stop(self, daemons: &[Daemon]) -> Result<Vec<WatchedDaemon>> {
        let elapsed = self.since.elapsed();
        let watched = |(before, after): (Usage, Usage)| WatchedDaemon {
            cpu_percent: after.cpu_percent_since(&before, elapsed),
            resident_bytes: after.resident_bytes,
        };
        Ok(self.before.into_iter().zip(usages(daemons)?).map(watched).collect())
    }
}

fn usages(daemons: &[Daemon]) -> Result<Vec<Usage>> {
    daemons.iter().map(|daemon| daemon.process.usage()).collect()
}

/// Measures idle daemons for `time`; returns immediately if there are none.
pub fn watch_idle(daemons: &[Daemon], time: Duration) -> Result<Vec<WatchedDaemon>> {
    let watch = Watch::start(daemons)?;
    if !daemons.is_empty() {
        std::thread::sleep(time);
    }
    watch.stop(daemons)
}

/// Judges idle daemons after watching them for `time`; `when` describes the circumstances.
pub fn judge_idle(daemons: &[Daemon], time: Duration, when: &str) -> Result<Vec<Verdict>> {
    let judge = |(used, computer): (&WatchedDaemon, &str)| {
        let what = format!("daemon idle on {computer}{when}");
        let megabytes = used.resident_bytes as f64 / 1e6;
        [
            IDLE_CPU_PERCENT.judge(what.clone(), Some(used.cpu_percent), "% of a core"),
            IDLE_RESIDENT_MB.judge(what, Some(megabytes), "MB"),
        ]
    };
    Ok(watch_idle(daemons, time)?.iter().zip(NAMES).flat_map(judge).collect())
}

/// Combines the idle and the busy measurement of one daemon.
pub fn figures(idle: &WatchedDaemon, busy: &WatchedDaemon) -> DaemonFigures {
    DaemonFigures {
        idle_cpu_percent: idle.cpu_percent,
        cpu_percent: busy.cpu_percent,
        idle_resident_bytes: idle.resident_bytes,
        resident_bytes: busy.resident_bytes,
    }
}

/// Ticks for which the cores were idle since boot, and when they were read.
///
/// Idle time is measured, whereas the kernel counts user and system time by what runs when a tick
/// comes: programs that run for less than a tick at a time are mostly missed.
#[derive(Clone, Copy)]
pub struct MachineTicks {
    idle: u64,
    cores: u64,
    at: Instant,
}

impl MachineTicks {
    /// Reads the current ticks.
    pub fn now() -> Result<Self> {
        let stat = std::fs::read_to_string("/proc/stat")?;
        Self::parse(&stat, Instant::now())
            .with_context(|| format!("no times of all cores in /proc/stat: {stat:.80}"))
    }

    /// Parses proc_stat(5): user, nice, system, idle and iowait of all cores in the first line, then
    /// a line for each core.
    fn parse(stat: &str, at: Instant) -> Option<Self> {
        let times = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
        let idle =
            times.skip(3).take(2).map(|ticks| ticks.parse::<u64>().ok()).sum::<Option<u64>>()?;
        let cores = stat.lines().skip(1).filter(|line| line.starts_with("cpu")).count() as u64;
        (cores > 0).then_some(Self { idle, cores, at })
    }

    /// Returns the percent of all cores that any program kept busy since `earlier`.
    pub fn busy_percent_since(self, earlier: Self) -> f64 {
        let idle = TICK * u32::try_from(self.idle.saturating_sub(earlier.idle)).unwrap_or(u32::MAX);
        let all = self.at.duration_since(earlier.at) * self.cores as u32;
        let idle_share = idle.as_secs_f64() / all.as_secs_f64().max(1e-9);
        100.0 * (1.0 - idle_share).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_busy_when_neither_idle_nor_waiting_for_disks() {
        let start = Instant::now();
        let before = "cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1 2\ncpu1 1 2\nintr 1";
        let before = MachineTicks::parse(before, start).unwrap();
        let after = "cpu  101 0 50 870 60 0 0 0 0 0\ncpu0 1 2\ncpu1 1 2\nintr 1";
        let after = MachineTicks::parse(after, start + Duration::from_secs(1)).unwrap();
        // Two cores were idle for 0.8 s of 2 s, whatever the ticks of user time are.
        assert!((after.busy_percent_since(before) - 60.0).abs() < 1e-9);
        assert!(MachineTicks::parse("intr 1 2", start).is_none());
    }
}
