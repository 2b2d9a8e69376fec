// SPDX-License-Identifier: Apache-2.0
//! Processor time of each process and thread of a run, between two times.

use anyhow::Result;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;
use tautline_lab::setup::usage::MachineTicks;

/// Processor time of the processes of a kind.
#[derive(Debug, Clone, Serialize)]
pub struct CpuFigures {
    /// Kind: `sender`, `echoer`, `master`, `daemon`, `emulator`.
    pub kind: &'static str,
    /// Number of processes.
    pub processes: usize,
    /// Processor time of the busiest process, percent of one core.
    pub busiest_percent: f64,
    /// Processor time of one process for each handled message and its echo, microseconds.
    pub us_per_message: Option<f64>,
}

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
    /// Allowed processor time, percent of one core.
    pub allowed_percent: f64,
}

/// Times for which a thread ran and waited to run, nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Times {
    /// Time on a processor.
    run: u64,
    /// Time ready to run, while other programs used the processors.
    wait: u64,
}

/// Times of each thread of a process, by thread id.
type Threads = BTreeMap<u32, Times>;

/// A measurement in progress.
pub struct Watch {
    watched: Vec<Watched>,
    before: Vec<Threads>,
    machine: MachineTicks,
    since: Instant,
}

/// Processor time used during a measurement.
pub struct Used {
    /// Processor time of all cores, percent.
    pub machine_percent: f64,
    /// The process that used most of its allowed processor time.
    pub busiest: Option<Busiest>,
    processes: Vec<(&'static str, f64)>,
    seconds: f64,
}

/// The process that is closest to its limit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Busiest {
    /// Name: `echoer 3`.
    pub name: String,
    /// Processor time, percent of the allowed time.
    pub run_percent: f64,
    /// Time for which its most delayed thread was ready but did not run, percent.
    pub wait_percent: f64,
}

impl Busiest {
    /// Returns the percentage of the time in which the process had work.
    pub fn demand_percent(&self) -> f64 {
        self.run_percent + self.wait_percent
    }
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
            let all: u64 = spent.iter().map(|times| times.run).sum();
            used.processes.push((it.kind, percent(all, seconds)));
            let busy = it.busy(&spent, seconds);
            let is_busier = |most: &Busiest| busy.demand_percent() > most.demand_percent();
            if used.busiest.as_ref().is_none_or(is_busier) {
                used.busiest = Some(busy);
            }
        }
        Ok(used)
    }
}

impl Watched {
    /// Returns how close the process is to its limit. If its threads share no lock, its busiest thread
    /// decides.
    fn busy(&self, threads: &[Times], seconds: f64) -> Busiest {
        let is_one = self.has_one_lock || self.allowed_percent < 100.0;
        let busiest = threads.iter().max_by_key(|it| it.run + it.wait).copied().unwrap_or_default();
        let all: u64 = threads.iter().map(|it| it.run).sum();
        let run = if is_one { all } else { busiest.run };
        let run_percent = 100.0 * percent(run, seconds) / self.allowed_percent;
        let wait_percent = percent(busiest.wait, seconds);
        Busiest { name: self.name.clone(), run_percent, wait_percent }
    }
}

fn percent(ns: u64, seconds: f64) -> f64 {
    ns as f64 / 1e7 / seconds
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

/// Reads the times of each thread of a process; empty if the process has ended.
fn threads(id: u32) -> Threads {
    let folder = Path::new("/proc").join(id.to_string()).join("task");
    let Ok(entries) = std::fs::read_dir(folder) else { return Threads::new() };
    let thread = |entry: std::fs::DirEntry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        // utime and stime of proc_pid_stat(5) miss programs that run for less than a tick at a time.
        Some((number, times(&std::fs::read_to_string(entry.path().join("schedstat")).ok()?)?))
    };
    entries.flatten().filter_map(thread).collect()
}

/// Parses the times on a processor and in a run queue, nanoseconds
/// (Documentation/scheduler/sched-stats.rst).
fn times(schedstat: &str) -> Option<Times> {
    let mut fields = schedstat.split_whitespace().map(str::parse);
    Some(Times { run: fields.next()?.ok()?, wait: fields.next()?.ok()? })
}

/// Returns the times of each thread since `before`; threads that ended since then are not counted.
fn difference(before: &Threads, after: &Threads) -> Vec<Times> {
    let since = |(id, now): (&u32, &Times)| {
        let before = before.get(id).copied().unwrap_or_default();
        Times {
            run: now.run.saturating_sub(before.run),
            wait: now.wait.saturating_sub(before.wait),
        }
    };
    after.iter().map(since).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedstat_begins_with_the_times_on_and_before_a_processor() {
        assert_eq!(times("8213450 1200 42\n"), Some(Times { run: 8_213_450, wait: 1200 }));
        assert_eq!(times(""), None);
    }

    #[test]
    fn a_new_thread_is_counted_from_its_start() {
        let at = |run, wait| Times { run, wait };
        let before = Threads::from([(1, at(5, 1))]);
        let after = Threads::from([(1, at(7, 4)), (2, at(3, 0))]);
        assert_eq!(difference(&before, &after), [at(2, 3), at(3, 0)]);
    }

    #[test]
    fn a_process_with_one_lock_is_limited_as_a_whole() {
        let mut echoer = Watched {
            kind: "echoer",
            name: "echoer 0".into(),
            id: 1,
            has_one_lock: true,
            allowed_percent: 100.0,
        };
        let half = Times { run: 500_000_000, wait: 0 };
        let late = Times { run: 400_000_000, wait: 300_000_000 };
        let busy = echoer.busy(&[half, late], 1.0);
        assert_eq!(
            (busy.run_percent, busy.wait_percent, busy.demand_percent()),
            (90.0, 30.0, 120.0)
        );
        echoer.has_one_lock = false;
        assert_eq!(echoer.busy(&[half, late], 1.0).demand_percent(), 70.0);
    }

    #[test]
    fn figures_are_per_process_of_a_kind() {
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
