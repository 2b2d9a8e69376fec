// SPDX-License-Identifier: Apache-2.0
//! Tables of the page docs/explanation/study-scaling.md.

use super::acceptance::{self, Comparison, Line, limit_words};
use super::experiment::Experiment;
use super::row::Row;
use super::system::System;
use clap::ValueEnum;
use tautline_lab::rig::processes::word;
use tautline_lab::rig::table::{column, markdown, or_dash};
use tautline_lab::rig::verdict::Verdict;

/// Runs that differ only in frequency, lowest first.
type Series<'a> = Vec<&'a Row>;

/// Returns each table with its name in the page.
pub fn every_table(rows: &[Row], comparisons: &[Comparison]) -> Vec<(String, String)> {
    let mut tables = Vec::new();
    for &experiment in Experiment::value_variants() {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.experiment == experiment).collect();
        if rows.is_empty() {
            continue;
        }
        let table = match experiment {
            Experiment::Tautline => comparison(comparisons),
            _ => highest(&rows),
        };
        tables.push((word(experiment), table));
        if experiment == Experiment::Frequency {
            tables.push(("cost".into(), cost(&rows)));
        }
    }
    tables
}

/// Returns the series of an experiment in the order of their first runs.
fn series<'a>(rows: &[&'a Row]) -> Vec<Series<'a>> {
    let key = |row: &Row| {
        (row.system, row.link, row.contents, row.senders, row.hosts, row.cpu_share_percent)
    };
    let mut all: Vec<Series<'a>> = Vec::new();
    for row in rows {
        match all.iter_mut().find(|series| key(series[0]) == key(row)) {
            Some(series) => series.push(row),
            None => all.push(vec![row]),
        }
    }
    for series in &mut all {
        series.sort_by(|one, other| one.frequency_hz.total_cmp(&other.frequency_hz));
    }
    all
}

/// The highest sustained load of a series, and the limit of the next load.
struct Highest<'a> {
    any: &'a Row,
    sustained: Option<&'a Row>,
    next: Option<&'a Row>,
}

impl<'a> Highest<'a> {
    fn from_series(series: &Series<'a>) -> Self {
        // More than half of the repetitions must be sustained.
        let groups = series.chunk_by(|one, other| one.frequency_hz == other.frequency_hz);
        let is_good = |group: &&[&Row]| {
            2 * group.iter().filter(|row| row.is_sustained()).count() > group.len()
        };
        let groups: Vec<&[&Row]> = groups.collect();
        let good = groups.iter().take_while(|group| is_good(group)).count();
        let middle = |group: &[&'a Row]| {
            let mut sorted = group.to_vec();
            sorted.sort_by(|one, other| mean(one).total_cmp(&mean(other)));
            sorted[sorted.len() / 2]
        };
        let sustained = good.checked_sub(1).map(|last| middle(groups[last]));
        let next = groups.get(good);
        let next = next.and_then(|group| group.iter().copied().find(|row| !row.is_sustained()));
        Self { any: series[0], sustained, next }
    }
}

fn mean(row: &Row) -> f64 {
    row.rtt_ms.map_or(f64::INFINITY, |rtt| rtt.mean)
}

fn highest(rows: &[&Row]) -> String {
    let series = series(rows);
    let lines: Vec<Highest> = series.iter().map(Highest::from_series).collect();
    let columns = [
        column("system", |it: &Highest| it.any.system.name()),
        column("link", |it| it.any.link.name().replace('_', " ")),
        column("contents", |it| it.any.contents.into()),
        column("hosts", |it| it.any.hosts.to_string()),
        column("senders", |it| it.any.senders.to_string()),
        column("CPU share", |it| {
            it.any.cpu_share_percent.map_or("all".into(), |share| format!("{share} %"))
        }),
        column("highest sustained, Hz each", |it| {
            it.sustained.map_or("none".into(), |row| row.frequency_hz.to_string())
        }),
        column("mean ms", |it| or_dash(it.sustained.map(mean), 2)),
        column("p99 ms", |it| or_dash(it.sustained.and_then(|row| Some(row.rtt_ms?.p99)), 2)),
        column("next load, Hz", |it| {
            it.next.map_or("-".into(), |row| row.frequency_hz.to_string())
        }),
        column("its mean ms", |it| or_dash(it.next.and_then(|row| Some(row.rtt_ms?.mean)), 1)),
        column("its limit", |it| it.next.map_or("not reached".into(), reason)),
    ];
    markdown(&lines, &columns)
}

fn reason(row: &Row) -> String {
    match &row.void {
        Some(_) => format!("void for the transport: {}", row.limit_words()),
        None => row.limit_words(),
    }
}

/// Processor time for one message and its echo, at the highest frequency that all systems sustained.
fn cost(rows: &[&Row]) -> String {
    let mut systems: Vec<System> = rows.iter().map(|row| row.system).collect();
    systems.sort_unstable();
    systems.dedup();
    let by_all = |hz: f64| {
        systems.iter().all(|system| {
            let mut at = rows.iter().filter(|it| it.system == *system && it.frequency_hz == hz);
            at.any(|row| row.is_sustained())
        })
    };
    let common = rows.iter().map(|row| row.frequency_hz).filter(|hz| by_all(*hz));
    let common = common.fold(0.0, f64::max);
    let lines: Vec<&Row> = systems
        .iter()
        .filter_map(|system| {
            let mut at = rows.iter().filter(|it| it.system == *system && it.frequency_hz == common);
            at.find(|row| row.is_sustained()).copied()
        })
        .collect();
    let columns = [
        column("system", |row: &&Row| row.system.name()),
        column("Hz", |row| row.frequency_hz.to_string()),
        column("sender, us", |row| or_dash(row.us_per_message("sender"), 0)),
        column("echoer, us", |row| or_dash(row.us_per_message("echoer"), 0)),
        column("one daemon, us", |row| or_dash(row.us_per_message("daemon"), 0)),
    ];
    markdown(&lines, &columns)
}

/// The highest loads, and below them the targets.
fn comparison(comparisons: &[Comparison]) -> String {
    let columns = [
        column("load", |(it, _): &Line| it.family.into()),
        column("system", |(_, highest)| highest.system.name()),
        column("senders held", |(_, highest)| highest.senders.to_string()),
        column("messages/s", |(_, highest)| format!("{:.0}", highest.per_s)),
        column("each repetition alone", |(_, highest)| acceptance::alone_words(highest)),
        column("Tautline over plain ROS 1", |(it, highest)| acceptance::ratio_words(it, highest)),
        column("limit of the next load", |(_, highest)| limit_words(highest)),
    ];
    let highest = markdown(&acceptance::lines(comparisons), &columns);
    let targets = [
        column("target", |it: &Verdict| format!("{}: {}", it.what, it.target)),
        column("found", Verdict::found_words),
        column("", |it| if it.reached { "reached" } else { "**not reached**" }.into()),
    ];
    format!("{highest}\n{}", markdown(&acceptance::verdicts(comparisons), &targets))
}
