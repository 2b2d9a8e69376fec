// SPDX-License-Identifier: Apache-2.0
//! The planner against random fleets in virtual time.

mod golden;

use super::Written;
use crate::rig::parallel;
use crate::rig::progress::Progress;
use crate::rig::stats::{self, Arrival, Samples};
use crate::rig::table::{self, column};
use crate::scenario::{self, NetworkKind, Pace, Scenario};
use crate::sim::{self, TracedRun};
use anyhow::{Context, Result};
use golden::Golden;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tautline::config::Problem;
use tautline_medium::RateControl;
use tautline_plan::{Assessment, Channel, Fleet, Flow};

/// Number of fleets in the golden summary.
const FLEETS: u64 = 200;
/// Seed of the first fleet: the planner was tuned with lower seeds.
const FIRST_SEED: u64 = 2001;

const SECONDS: u64 = 40;
/// Counted span, in ns. Before it, rate control finds the rate; after it, the last messages arrive.
const COUNTED: std::ops::Range<u64> = 3_000_000_000..39_000_000_000;
/// Fleets whose load differs from 1 by at most this are not judged.
const BORDER: f64 = 0.1;
/// A fleet fits if no flow loses more than this fraction of its messages.
const LOST: f64 = 0.005;
const RIGHT_TARGET_PERCENT: f64 = 95.0;
const RATIO_TARGET: f64 = 2.5;
/// Expected duration of one fleet, for the progress line.
const EXPECTED: Duration = Duration::from_millis(300);

/// A flow, planned and measured.
#[derive(Debug, Clone, Serialize)]
struct Row {
    name: String,
    bytes: u64,
    period_ms: f64,
    priority: u8,
    least_ms: f64,
    worst_ms: Option<f64>,
    /// Messages that arrived.
    messages: usize,
    /// Messages that arrived later than the worst case, after however many attempts.
    later: usize,
    lost_percent: f64,
    p50_ms: f64,
    p999_ms: f64,
    /// Longest delay of the messages during which no packet of the sender needed more than `attempts`.
    max_ms: f64,
    attempts: u32,
    /// Messages during which a packet needed more than `attempts`.
    more_attempts: usize,
}

impl Row {
    fn is_late(&self) -> bool {
        self.worst_ms.is_some_and(|worst| self.max_ms > worst)
    }

    /// Returns the planned worst case as a multiple of the measured p99.9.
    fn ratio(&self) -> Option<f64> {
        self.worst_ms.map(|worst| worst / self.p999_ms)
    }
}

fn median_ratio<'a>(rows: impl IntoIterator<Item = &'a Row>) -> f64 {
    stats::middle(&rows.into_iter().filter_map(Row::ratio).collect::<Vec<_>>())
}

/// A fleet, planned and measured.
#[derive(Debug, Clone, Serialize)]
struct Case {
    seed: u64,
    phy_mbps: u64,
    access: &'static str,
    robots: u64,
    load: f64,
    fits: bool,
    did_fit: bool,
    rows: Vec<Row>,
}

impl Case {
    fn is_judged(&self) -> bool {
        (self.load - 1.0).abs() > BORDER
    }
}

/// Arguments of the command.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Number of fleets.
    #[arg(long, default_value_t = FLEETS, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    fleets: u64,
    /// Seed of the first fleet, and of its run; the next ones follow. Seeds below 1000 are those
    /// with which the planner was tuned.
    #[arg(long, default_value_t = FIRST_SEED)]
    first_seed: u64,
    /// Compare the results with this summary; exit code 3 if they differ.
    #[arg(long, value_name = "FILE")]
    expect: Option<PathBuf>,
    #[command(flatten)]
    written: Written,
}

/// Runs the validation; exit code 3 if a target is missed, or if the results differ from the expected ones.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let kept = arguments.expect.as_deref().map(Golden::read).transpose()?;
    let first = arguments.first_seed;
    let seeds: Vec<u64> = (first..first + arguments.fleets).collect();
    let progress =
        Progress::new(seeds.iter().map(|seed| (format!("fleet {seed}"), EXPECTED)).collect());
    let cases = parallel::run(&progress, seeds, case)?;
    progress.finish();
    let summary = Summary::from_cases(&cases);
    let golden = Golden::from_cases(&summary, &cases);
    if let Some(docs) = arguments.written.docs() {
        golden.write(&docs.join("measured/plans.json"))?;
    }
    let differences = kept.map(|kept| kept.differences(&golden)).unwrap_or_default();
    if !differences.is_empty() {
        eprint!("not as kept:\n{differences}");
    }
    let holds = summary.holds() && differences.is_empty();
    super::conclude(
        &(&summary, &cases),
        arguments.written.json,
        &report_text(&summary, &cases),
        holds,
    )
}

/// Draws a fleet; returns its scenario, PHY rate in Mbps, channel access and number of robots.
fn draw_fleet(seed: u64) -> Result<(Scenario, u64, &'static str, u64)> {
    let mut draw = fastrand::Rng::with_seed(seed);
    let phy_mbps = [6, 12, 24, 54][draw.usize(..4)];
    let access = ["dcf", "edca"][draw.usize(..2)];
    let robots = draw.u64(1..=(phy_mbps / 4).clamp(3, 10));
    // No two sensors have the same clock: over time, all phases occur.
    let mut drift = draw.clone();
    // The sum of the images' rates decides how full the channel is.
    let share = 0.2 + 0.5 / (1.0 + robots as f64 / phy_mbps as f64);
    let image_bps = phy_mbps as f64 * 1e6 * draw.f64() * share / robots as f64;
    let mut flows = String::new();
    for robot in 1..=robots {
        let starts: [u64; 4] = std::array::from_fn(|_| draw.u64(..50_000));
        let command = ([10, 20, 50][draw.usize(..3)], draw.u64(50..=200));
        let scan = ([10, 20, 40][draw.usize(..3)], draw.u64(1000..=5000));
        let odometry = ([20, 50][draw.usize(..2)], 724);
        let hz = [1, 2, 5, 10, 15][draw.usize(..5)];
        let image = (hz, ((image_bps / 8.0 / hz as f64) as u64).clamp(2_000, 1_000_000));
        let own = format!("robot{robot}");
        let topics = [
            ("command", "base", &*own, command, 220),
            ("scan", &own, "base", scan, 200),
            ("odometry", &own, "base", odometry, 150),
            ("image", &own, "base", image, 20),
        ];
        for ((name, from, to, (hz, bytes), priority), start) in topics.into_iter().zip(starts) {
            let every = 1_000_000 / hz * drift.u64(970..=1030) / 1000;
            let _ = writeln!(
                flows,
                "  - {{ name: {name}_{robot}, from: {from}, to: {to}, size: {bytes}, every: {every}us, \
                 priority: {priority}, start: {start}us }}"
            );
        }
    }
    let text = format!(
        "about: A drawn fleet\nsource: drawn\nduration: {SECONDS}s\n\
         networks:\n  wifi: {{ wifi: {{ phy: ofdm, rate: {phy_mbps}Mbps, access: {access} }} }}\n\
         stations:\n  base: {{ networks: [wifi] }}\n  robot: {{ count: {}, networks: [wifi] }}\n\
         flows:\n{flows}",
        robots.max(2)
    );
    let problems = |problems: Vec<Problem>| anyhow::anyhow!("{text}\n{problems:?}");
    Ok((
        scenario::parse("fleet", &text, Path::new("")).map_err(problems)?,
        phy_mbps,
        access,
        robots,
    ))
}

/// Converts a scenario to the fleet that the planner reads.
fn fleet(scenario: &Scenario) -> Result<Fleet> {
    let kind = &scenario.networks.first().context("no network")?.kind;
    let NetworkKind::Wifi(wifi) = kind else { anyhow::bail!("not an 802.11 channel: {kind:?}") };
    let channel = Channel::Wifi(wifi.clone());
    let flows = scenario.flows.iter().map(|flow| {
        let Pace::Every(period) = flow.pace else { anyhow::bail!("'{}' has no period", flow.name) };
        Ok(Flow {
            from: flow.from,
            to: flow.to,
            bytes: flow.bytes,
            period: Duration::from_nanos(period),
            priority: flow.priority,
            lifespan: flow.lifespan.map(Duration::from_nanos),
        })
    });
    Ok(Fleet { channel, flows: flows.collect::<Result<_>>()? })
}

fn case(seed: u64) -> Result<Case> {
    let (scenario, phy_mbps, access, robots) = draw_fleet(seed)?;
    let fleet = fleet(&scenario)?;
    let acknowledgement = acknowledgement(&fleet.channel);
    let plan = Assessment::new(&fleet);
    let TracedRun { samples, repeated } = sim::run_with_trace(&scenario, seed)?;
    let flows = fleet.flows.iter().zip(&plan.flows).zip(&samples);
    let rows: Vec<Row> = flows
        .map(|((flow, forecast), (name, samples))| {
            let delays = samples.delays(COUNTED);
            let late = repeated.iter();
            let late =
                late.filter(|it| it.station.0 == flow.from && it.attempts > forecast.attempts);
            let late: Vec<u64> = late.map(|it| it.at.saturating_sub(acknowledgement)).collect();
            let planned = delays_within_plan(samples, &late);
            let missing =
                |arrived: usize, all: usize| 100.0 * (1.0 - arrived as f64 / all.max(1) as f64);
            Row {
                name: name.clone(),
                bytes: flow.bytes,
                period_ms: flow.period.as_secs_f64() * 1e3,
                priority: flow.priority,
                least_ms: forecast.least.as_secs_f64() * 1e3,
                worst_ms: forecast.worst.map(|it| it.as_secs_f64() * 1e3),
                lost_percent: missing(delays.len(), samples.published_count(COUNTED)),
                max_ms: stats::worst(&planned),
                attempts: forecast.attempts,
                more_attempts: delays.len() - planned.len(),
                messages: delays.len(),
                later: forecast.worst.map_or(0, |worst| {
                    delays.iter().filter(|it| **it > worst.as_secs_f64() * 1e3).count()
                }),
                p50_ms: stats::percentile(delays.clone(), 0.5),
                p999_ms: stats::percentile(delays, 0.999),
            }
        })
        .collect();
    let did_fit = rows.iter().all(|row| row.lost_percent <= LOST * 100.0);
    Ok(Case { seed, phy_mbps, access, robots, load: plan.load, fits: plan.fits(), did_fit, rows })
}

/// Time from the arrival of a packet to the end of its last attempt.
fn acknowledgement(channel: &Channel) -> u64 {
    let Channel::Wifi(wifi) = channel else { return 0 };
    let RateControl::Fixed(bps) = wifi.rate else { return 0 };
    wifi.phy.rate_index(bps).map_or(0, |rate| wifi.phy.sifs() + wifi.phy.ack_airtime(rate))
}

/// Returns the delays of messages during which no packet arrived after too many attempts. `late` has the
/// times at which such packets arrived.
fn delays_within_plan(samples: &Samples, late: &[u64]) -> Vec<f64> {
    let counted = samples.arrivals.iter().filter(|it| COUNTED.contains(&it.sent_ns));
    let planned = counted.filter(|it| {
        let first = late.partition_point(|at| *at < it.sent_ns);
        late.get(first).is_none_or(|at| *at > it.received_ns)
    });
    planned.map(Arrival::delay_ms).collect()
}

/// The judged figures.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Summary {
    fleets: usize,
    judged: usize,
    right: usize,
    right_percent: f64,
    /// Flows in fleets that fit.
    flows: usize,
    /// Flows of these in which a message exceeded the planned worst case.
    late: usize,
    median_ratio: f64,
    /// Messages of these flows.
    messages: usize,
    /// Percent of these messages during which a packet needed more attempts than the plan assumes.
    more_attempts_percent: f64,
    /// Percent of these messages that were later than their worst case, after however many attempts.
    later_percent: f64,
}

impl Summary {
    fn from_cases(cases: &[Case]) -> Self {
        let judged: Vec<&Case> = cases.iter().filter(|it| it.is_judged()).collect();
        let right = judged.iter().filter(|it| it.fits == it.did_fit).count();
        let fitting = judged.iter().filter(|it| it.fits);
        let rows: Vec<&Row> = fitting.flat_map(|it| &it.rows).collect();
        let sum = |of: fn(&Row) -> usize| rows.iter().map(|it| of(it)).sum::<usize>();
        let messages = sum(|it| it.messages);
        let percent = |part: usize| part as f64 / messages as f64 * 100.0;
        Self {
            fleets: cases.len(),
            judged: judged.len(),
            right,
            right_percent: right as f64 / judged.len() as f64 * 100.0,
            flows: rows.len(),
            late: rows.iter().filter(|it| it.is_late()).count(),
            median_ratio: median_ratio(rows.iter().copied()),
            messages,
            more_attempts_percent: percent(sum(|it| it.more_attempts)),
            later_percent: percent(sum(|it| it.later)),
        }
    }

    fn holds(&self) -> bool {
        self.late == 0
            && self.median_ratio <= RATIO_TARGET
            && self.right_percent >= RIGHT_TARGET_PERCENT
    }
}

fn report_text(summary: &Summary, cases: &[Case]) -> String {
    let table = table::format_rows(
        cases,
        &[
            column("seed", |it: &Case| it.seed.to_string()),
            column("Mbps", |it| it.phy_mbps.to_string()),
            column("access", |it| it.access.to_string()),
            column("robots", |it| it.robots.to_string()),
            column("load", |it| format!("{:.2}", it.load)),
            column("fits", |it| it.fits.to_string()),
            column("did fit", |it| it.did_fit.to_string()),
            column("lost %", |it| {
                format!(
                    "{:.2}",
                    stats::worst(&it.rows.iter().map(|it| it.lost_percent).collect::<Vec<_>>())
                )
            }),
            column("late", |it| it.rows.iter().filter(|row| row.is_late()).count().to_string()),
            column("ratio", |it| format!("{:.2}", median_ratio(&it.rows))),
        ],
    );
    let by_topic = table::format_rows(
        &TOPICS.map(|topic| ByTopic::from_cases(topic, cases)),
        &[
            column("topic", |it: &ByTopic| it.topic.to_string()),
            column("flows", |it| it.flows.to_string()),
            column("late", |it| it.late.to_string()),
            column("ratio", |it| format!("{:.2}", it.median_ratio)),
        ],
    );
    format!(
        "{table}\n{by_topic}\n\
         {} of {} fleets away from the border right ({:.1} %, target {RIGHT_TARGET_PERCENT} %)\n\
         {} of {} flows with a message later than planned (target 0)\n\
         worst case / p99.9, median: {:.2} (target {RATIO_TARGET})\n\
         {:.3} % of {} messages had a packet with more attempts than planned; {:.4} % of all messages, these \
         included, were later than planned\n",
        summary.right,
        summary.judged,
        summary.right_percent,
        summary.late,
        summary.flows,
        summary.median_ratio,
        summary.more_attempts_percent,
        summary.messages,
        summary.later_percent,
    )
}

/// The topics of each robot.
const TOPICS: [&str; 4] = ["command", "scan", "odometry", "image"];

/// The flows of one topic in all fleets that are judged and fit.
struct ByTopic {
    topic: &'static str,
    flows: usize,
    late: usize,
    median_ratio: f64,
}

impl ByTopic {
    fn from_cases(topic: &'static str, cases: &[Case]) -> Self {
        let rows = cases.iter().filter(|it| it.is_judged() && it.fits).flat_map(|it| &it.rows);
        let rows: Vec<&Row> = rows.filter(|it| it.name.starts_with(topic)).collect();
        Self {
            topic,
            flows: rows.len(),
            late: rows.iter().filter(|it| it.is_late()).count(),
            median_ratio: median_ratio(rows.iter().copied()),
        }
    }
}
