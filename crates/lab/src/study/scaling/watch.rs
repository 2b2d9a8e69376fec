// SPDX-License-Identifier: Apache-2.0
//! Processor time of each process and thread of a run, between two times.

use super::row::CpuFigures;
use crate::setup::usage::MachineTicks;
use anyhow::Result;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

/// A process of the run.
#[derive(Debug, Clone)]
pub struct Watched {
    /// Kind: `sender`, `echoer`, `master`, `daemon`.
    pub kind: &'static str,
    /// Name in reports: `echoer 3`.
    pub name: String,
    /// Process id.
    pub id: u32,
    /// Whether one thread runs at a time, so that all threads share one core.
    pub has_one_lock: bool,
    /// Processor time that it may have, percent of one core.
    pub allowed_percent: f64,
}

/// Processor time of each thread of a process, nanoseconds.
type Threads = BTreeMap<u32, u64>;

/// A measurement in progress.
pub struct Watch {
    watched: Vec<Watched>,
    before: Vec<Threads>,
    machine: MachineTicks,
    since: Instant,
}

/// What was used during a measurement.
pub struct Used {
    /// Processor time of all cores, percent.
    pub machine_percent: f64,
    /// The busiest process, by its processor time in percent of what it may have.
    pub busiest: Option<(String, f64)>,
    processes: Vec<(&'static str, f64)>,
    seconds: f64,
}

impl Watch {
    /// Starts a measurement of these processes.
    pub fn start(watched: Vec<Watched>) -> Result<Self> {
        let before = watched.iter().map(|it| threads(it.id)).collect();
        Ok(Self { watched, before, machine: MachineTicks::now()?, since: Instant::now() })
    }

    /// Ends the measurement.
    pub fn stop(self) -> Result<Used> {
        let seconds = self.since.elapsed().as_secs_f64();
        let machine_percent = MachineTicks::now()?.busy_percent_since(self.machine);
        let mut used = Used { machine_percent, busiest: None, processes: Vec::new(), seconds };
        for (it, before) in self.watched.iter().zip(&self.before) {
            let spent = difference(before, &threads(it.id));
            let percent = |ns: u64| ns as f64 / 1e7 / seconds;
            let all = percent(spent.iter().sum());
            let one = percent(spent.iter().copied().max().unwrap_or(0));
            used.processes.push((it.kind, all));
            let is_limited = it.has_one_lock || it.allowed_percent < 100.0;
            let share = 100.0 * if is_limited { all } else { one } / it.allowed_percent;
            if used.busiest.as_ref().is_none_or(|(_, most)| share > *most) {
                used.busiest = Some((it.name.clone(), share));
            }
        }
        Ok(used)
    }
}

impl Used {
    /// Returns the figures of each kind; `messages` is the number of messages and their echoes that
    /// one process of a kind handled.
    pub fn figures(&self, messages: impl Fn(&str) -> f64) -> Vec<CpuFigures> {
        let mut kinds: Vec<&'static str> = self.processes.iter().map(|(kind, _)| *kind).collect();
        kinds.dedup();
        let figures = |kind: &'static str| {
            let of: Vec<f64> =
                self.processes.iter().filter(|(it, _)| *it == kind).map(|(_, it)| *it).collect();
            let mean = of.iter().sum::<f64>() / of.len() as f64;
            let handled = messages(kind);
            let us = mean / 100.0 * self.seconds * 1e6 / handled;
            CpuFigures {
                kind,
                processes: of.len(),
                busiest_percent: of.iter().copied().fold(0.0, f64::max),
                us_per_message: (handled > 0.0).then_some(us),
            }
        };
        kinds.into_iter().map(figures).collect()
    }
}

/// Returns the processor time of each thread; none if the process has ended.
fn threads(id: u32) -> Threads {
    let folder = Path::new("/proc").join(id.to_string()).join("task");
    let Ok(entries) = std::fs::read_dir(folder) else { return Threads::new() };
    let thread = |entry: std::fs::DirEntry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        // utime and stime of proc_pid_stat(5) miss programs that run for less than a tick at a time.
        Some((number, on_cpu(&std::fs::read_to_string(entry.path().join("schedstat")).ok()?)?))
    };
    entries.flatten().filter_map(thread).collect()
}

/// Parses the time spent on a processor, nanoseconds (Documentation/scheduler/sched-stats.rst).
fn on_cpu(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().next()?.parse().ok()
}

/// Returns the processor time of each thread since `before`; threads that ended since then are not
/// counted.
fn difference(before: &Threads, after: &Threads) -> Vec<u64> {
    let since = |(id, now): (&u32, &u64)| now - before.get(id).copied().unwrap_or(0).min(*now);
    after.iter().map(since).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_of_schedstat_is_the_time() {
        assert_eq!(on_cpu("8213450 1200 42\n"), Some(8_213_450));
        assert_eq!(on_cpu(""), None);
    }

    #[test]
    fn a_new_thread_counts_from_its_start() {
        let (before, after) = (Threads::from([(1, 5)]), Threads::from([(1, 7), (2, 3)]));
        assert_eq!(difference(&before, &after), [2, 3]);
    }

    #[test]
    fn figures_are_of_one_process_of_a_kind() {
        let used = Used {
            machine_percent: 0.0,
            busiest: None,
            processes: vec![("sender", 20.0), ("sender", 40.0), ("master", 1.0)],
            seconds: 2.0,
        };
        let figures = used.figures(|kind| if kind == "sender" { 100.0 } else { 0.0 });
        assert_eq!((figures.len(), figures[0].processes, figures[0].busiest_percent), (2, 2, 40.0));
        assert_eq!(figures[0].us_per_message, Some(6000.0));
        assert_eq!(figures[1].us_per_message, None);
    }
}
