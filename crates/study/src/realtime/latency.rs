// SPDX-License-Identifier: Apache-2.0
//! Scheduling latency: the lateness of a wake-up after a sleep of 1 ms, measured by this program
//! and by cyclictest.

use super::condition::{
    BackgroundLoad, POLICIES, Policy, installed, last_cpu, program, stress_word, value_under_stress,
};
use super::{Context, paper};
use anyhow::{Context as _, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tautline_lab::rig::processes::Process;
use tautline_lab::rig::table::{self, column, or_dash};
use tautline_lab::rig::verdict::{Bound, Verdict};

/// Period of the measured loop, microseconds, as in the paper.
const PERIOD_US: u64 = 1000;
/// SCHED_FIFO priority, as in cyclictest's examples.
const PRIORITY: u8 = 80;
/// Bins of cyclictest's histogram, one for each microsecond; longer latencies are overflows.
const CYCLICTEST_BINS: u64 = 100_000;
/// Largest allowed difference between the medians of the two instruments, microseconds.
const AGREEMENT: Bound = Bound::AtMost(20.0);
/// Time within which a program ends after the measurement.
const PATIENCE: Duration = Duration::from_secs(20);

/// The measuring program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Instrument {
    /// The loop of [`super::sleeper`].
    Ours,
    /// cyclictest of Debian's rt-tests.
    Cyclictest,
}

/// Number of cycles by latency in whole microseconds.
type Histogram = BTreeMap<u64, u64>;

/// Latencies of one instrument under one condition; all rounds together.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub instrument: Instrument,
    pub policy: Policy,
    pub stressed: bool,
    /// Cycles counted.
    pub cycles: u64,
    pub mean_us: Option<f64>,
    pub p50_us: Option<u64>,
    pub p99_us: Option<u64>,
    pub p999_us: Option<u64>,
    pub max_us: Option<u64>,
    /// Percentage of all cores' time used, by round.
    pub busy_percent: Vec<f64>,
    /// Reasons why rounds are void.
    pub void: Vec<String>,
    /// Number of cycles for each latency.
    pub histogram: Histogram,
}

impl Row {
    fn new(instrument: Instrument, policy: Policy, stressed: bool) -> Self {
        Self {
            instrument,
            policy,
            stressed,
            cycles: 0,
            mean_us: None,
            p50_us: None,
            p99_us: None,
            p999_us: None,
            max_us: None,
            busy_percent: Vec::new(),
            void: Vec::new(),
            histogram: Histogram::new(),
        }
    }

    fn add(&mut self, round: &Histogram) {
        for (us, cycles) in round {
            *self.histogram.entry(*us).or_default() += cycles;
        }
        let total: u64 = self.histogram.values().sum();
        let sum: u64 = self.histogram.iter().map(|(us, cycles)| us * cycles).sum();
        self.cycles = total;
        self.mean_us = (total > 0).then(|| sum as f64 / total as f64);
        self.p50_us = percentile(&self.histogram, 0.5);
        self.p99_us = percentile(&self.histogram, 0.99);
        self.p999_us = percentile(&self.histogram, 0.999);
        self.max_us = self.histogram.keys().next_back().copied();
    }
}

/// Returns the smallest latency that at least a fraction `share` of the cycles do not exceed.
fn percentile(histogram: &Histogram, share: f64) -> Option<u64> {
    let total: u64 = histogram.values().sum();
    let rank = (share * total as f64).ceil().max(1.0) as u64;
    let mut below = 0;
    let reached = |(_, cycles): &(&u64, &u64)| {
        below += **cycles;
        below >= rank
    };
    histogram.iter().find(reached).map(|(us, _)| *us)
}

/// Returns the stages of this part for the progress display, each with its expected duration.
pub fn stages(context: &Context<'_>) -> Vec<(String, Duration)> {
    let time = context.seconds(2, 12) + Duration::from_secs(1);
    let of = |what: &str| (format!("latency: {what}"), time * 4);
    (0..context.rounds()).flat_map(|_| [of("idle"), of("stress")]).collect()
}

/// Measures all conditions.
pub fn measure(context: &mut Context<'_>) -> Result<Vec<Row>> {
    let cycles = context.seconds(2, 12).as_micros() as u64 / PERIOD_US;
    let mut instruments = vec![Instrument::Ours];
    if installed("cyclictest", "rt-tests", "comparison with cyclictest", &mut context.skipped) {
        instruments.push(Instrument::Cyclictest);
    }
    let mut rows = Vec::new();
    for stressed in context.stress_settings() {
        let of_policy = |policy| instruments.iter().map(move |it| Row::new(*it, policy, stressed));
        rows.extend(POLICIES.into_iter().flat_map(of_policy));
    }
    for round in 1..=context.rounds() {
        for stressed in context.stress_settings() {
            context.progress.enter_next();
            for row in rows.iter_mut().filter(|row| row.stressed == stressed) {
                run(row, round, cycles, &context.raw)?;
            }
        }
    }
    Ok(rows)
}

fn run(row: &mut Row, round: u64, cycles: u64, raw: &Path) -> Result<()> {
    let name = format!(
        "latency-{:?}-{}-{}-{round}",
        row.instrument,
        row.policy.name(),
        stress_word(row.stressed)
    )
    .to_lowercase();
    let surroundings = BackgroundLoad::begin(row.stressed, raw)?;
    let found = match row.instrument {
        Instrument::Ours => ours(row.policy, cycles, raw, &name),
        Instrument::Cyclictest => cyclictest(row.policy, cycles, raw, &name),
    }?;
    let end = surroundings.end()?;
    row.busy_percent.push(end.busy_percent);
    match end.void {
        Some(reason) => row.void.push(reason),
        None => row.add(&found),
    }
    Ok(())
}

fn ours(policy: Policy, cycles: u64, raw: &Path, name: &str) -> Result<Histogram> {
    let file = raw.join(format!("{name}.csv"));
    let arguments = [
        "sleeper".into(),
        format!("--period-us={PERIOD_US}"),
        format!("--count={cycles}"),
        format!("--output={}", file.display()),
    ];
    let command = program(policy, PRIORITY, &last_cpu().to_string(), &arguments)?;
    let mut process = Process::start_talking(name, command, raw)?;
    process.await_line("done", Duration::from_micros(cycles * PERIOD_US) + PATIENCE)?;
    let mut histogram = Histogram::new();
    for [due, woke] in read(&file)? {
        *histogram.entry(woke.saturating_sub(due) / 1000).or_default() += 1;
    }
    Ok(histogram)
}

/// Reads `due_ns,woke_ns` of each cycle of a loop.
pub fn read(file: &Path) -> Result<Vec<[u64; 2]>> {
    tautline_lab::rig::stats::rows::<2>(file)
}

fn cyclictest(policy: Policy, cycles: u64, raw: &Path, name: &str) -> Result<Histogram> {
    let file = raw.join(format!("{name}.txt"));
    let mut command = Command::new("cyclictest");
    command.args(["--mlockall", "--threads=1", "--quiet"]);
    command.arg(format!("--interval={PERIOD_US}")).arg(format!("--loops={cycles}"));
    command.arg(format!("--affinity={}", last_cpu()));
    command.arg(format!("--histogram={CYCLICTEST_BINS}"));
    match policy {
        Policy::Fifo => command.arg("--policy=fifo").arg(format!("--priority={PRIORITY}")),
        Policy::Other => command.arg("--policy=other"),
    };
    let text = tautline_lab::rig::processes::run(&mut command)?;
    std::fs::write(&file, &text)?;
    parse(&text).with_context(|| format!("cyclictest's output in {}", file.display()))
}

/// Parses cyclictest's histogram: lines of microseconds and cycles, and comments.
fn parse(text: &str) -> Result<Histogram> {
    let mut histogram = Histogram::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# Max Latencies:") {
            let max: u64 = rest.trim().parse().with_context(|| format!("'{line}'"))?;
            // A latency beyond the last bin is only counted as an overflow.
            if max >= CYCLICTEST_BINS {
                histogram.insert(max, 1);
            }
        }
        let mut fields = line.split_whitespace().map(str::parse::<u64>);
        if let (Some(Ok(us)), Some(Ok(cycles @ 1..)), None) =
            (fields.next(), fields.next(), fields.next())
        {
            histogram.insert(us, cycles);
        }
    }
    anyhow::ensure!(!histogram.is_empty(), "no cycles in cyclictest's histogram");
    Ok(histogram)
}

/// Compares our median with that of cyclictest, for SCHED_FIFO without stress; returns no verdict if
/// one of them was not measured.
pub fn verdicts(rows: &[Row]) -> Vec<Verdict> {
    let median = |instrument| {
        let wanted = |row: &&Row| {
            row.instrument == instrument && row.policy == Policy::Fifo && !row.stressed
        };
        rows.iter().find(wanted).and_then(|row| row.p50_us)
    };
    let (Some(ours), Some(other)) = (median(Instrument::Ours), median(Instrument::Cyclictest))
    else {
        return Vec::new();
    };
    let what = "difference of medians from cyclictest's, SCHED_FIFO, idle";
    vec![AGREEMENT.judge(what, Some(ours.abs_diff(other) as f64), "us")]
}

/// Formats the figures next to those of the paper.
pub fn table(rows: &[Row]) -> String {
    table::markdown(
        rows,
        &[
            column("measured by", |row: &Row| match row.instrument {
                Instrument::Ours => "this lab".into(),
                Instrument::Cyclictest => "cyclictest".into(),
            }),
            column("scheduler", |row| format!("SCHED_{}", row.policy.name().to_uppercase())),
            column("load", |row| stress_word(row.stressed).into()),
            column("cycles", |row| row.cycles.to_string()),
            column("median us", |row| whole(row.p50_us)),
            column("mean us", |row| or_dash(row.mean_us, 1)),
            column("p99 us", |row| whole(row.p99_us)),
            column("p99.9 us", |row| whole(row.p999_us)),
            column("max us", |row| whole(row.max_us)),
            column("paper, standard kernel: max us", |row| {
                value_under_stress(&paper::LATENCY_STANDARD_US, row.stressed).to_string()
            }),
            column("paper, PREEMPT_RT: max us", |row| {
                value_under_stress(&paper::LATENCY_PREEMPT_RT_US, row.stressed).to_string()
            }),
            column(
                "",
                |row| if row.void.is_empty() { String::new() } else { "some rounds void".into() },
            ),
        ],
    )
}

fn whole(value: Option<u64>) -> String {
    value.map_or("-".into(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_histogram_of_cyclictest_is_read_with_its_overflow() {
        let text = "# /dev/cpu_dma_latency set to 0us\n# Histogram\n000002 000003\n000003 000000\n000007\t000001\n# Total: 000000004\n# Max Latencies: 00007\n";
        assert_eq!(parse(text).unwrap(), Histogram::from([(2, 3), (7, 1)]));
        let late = parse("000002 000003\n# Max Latencies: 123456\n").unwrap();
        assert_eq!(late, Histogram::from([(2, 3), (123_456, 1)]));
        assert!(parse("# Histogram\n").is_err());
    }

    #[test]
    fn percentiles_are_measured_latencies() {
        let histogram = Histogram::from([(1, 98), (5, 1), (90, 1)]);
        assert_eq!(percentile(&histogram, 0.5), Some(1));
        assert_eq!(percentile(&histogram, 0.99), Some(5));
        assert_eq!(percentile(&histogram, 0.999), Some(90));
        assert_eq!(percentile(&Histogram::new(), 0.5), None);
    }
}
