// SPDX-License-Identifier: Apache-2.0
//! The highest load that plain ROS 1 and Tautline carry over the same radio.
//!
//! Three families of loads. `robots`: each robot has a scan and a command, and both must keep their
//! periods. `text`: many small messages. `scan`: scans alone. The families were chosen after
//! early results, and have the same targets.
//!
//! A load is held if 95 % of its messages were published, 99 % of their echoes returned, the round
//! trips did not grow during the run, and 95 of 100 round trips of each kind of message ended
//! within one period of its sender. The criterion is the same for all systems. More than half of
//! the repetitions must hold a load. A void run proves nothing about either system.

use super::experiment::Experiment;
use super::row::Row;
use super::system::System;
use serde::Serialize;
use std::collections::BTreeSet;
use tautline_lab::rig::stats::middle;
use tautline_lab::rig::table::{self, left, or_dash, right};
use tautline_lab::rig::verdict::{Bound, Verdict};

/// Required highest load of Tautline, as a multiple of plain ROS 1's.
const RATIO: Bound = Bound::AtLeast(1.5);
/// Allowed number of loads that plain ROS 1 holds and Tautline does not.
const NOT_HELD: Bound = Bound::AtMost(0.0);

/// The comparison of one family of loads between nodes of one client library.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// Family: `robots`, `text`, `scan`.
    pub family: &'static str,
    /// Client library of the nodes: `rospy`, `roscpp`.
    pub nodes: &'static str,
    /// Each system with its highest load.
    pub systems: Vec<Highest>,
    /// Ratio of the highest loads of Tautline and the better plain ROS 1; `None` if either holds no
    /// load, or if no run shows a load that plain ROS 1 does not hold.
    pub ratio: Option<f64>,
    /// The ratio of each repetition alone.
    pub ratios: Vec<Option<f64>>,
    /// Whether Tautline held every load that was tried, so that the ratio is a lower bound.
    pub is_lower_bound: bool,
    /// Loads that plain ROS 1 held and Tautline did not, messages per second.
    pub held_by_ros_1_only: Vec<f64>,
    /// Loads that plain ROS 1 held and for which all runs of Tautline are void, messages per
    /// second.
    pub not_shown: Vec<f64>,
}

/// The highest load that a system held together with all lower loads.
#[derive(Debug, Clone, Serialize)]
pub struct Highest {
    /// The system.
    pub system: System,
    /// Senders of that load; 0 if the system held no load.
    pub senders: usize,
    /// Messages per second of all senders; 0 if the system held no load.
    pub per_s: f64,
    /// Messages per second of the highest load in each repetition alone.
    pub per_s_by_repetition: Vec<f64>,
    /// Reason why the system did not hold the next higher load; `None` if it held all loads.
    pub limit: Option<String>,
    /// Whether the runs with the next load were void, so the system might have held it.
    pub is_open: bool,
}

/// Returns the comparisons of all families that were measured.
pub fn comparisons(rows: &[Row]) -> Vec<Comparison> {
    let key = |row: &&Row| (row.contents, row.system.client_library().name());
    let rows: Vec<&Row> =
        rows.iter().filter(|row| row.experiment == Experiment::Tautline).collect();
    let keys: BTreeSet<_> = rows.iter().map(key).collect();
    let of = |family| rows.iter().copied().filter(|row| key(row) == family).collect::<Vec<_>>();
    keys.into_iter().map(|family| compare(family, &of(family))).collect()
}

fn compare((family, nodes): (&'static str, &'static str), rows: &[&Row]) -> Comparison {
    let names: BTreeSet<System> = rows.iter().map(|row| row.system).collect();
    let all: Vec<Ladder> = names.into_iter().map(|system| Ladder::new(system, rows)).collect();
    let repetitions: BTreeSet<usize> = rows.iter().map(|row| row.repetition).collect();
    let alone = |repetition: &usize| -> Vec<Ladder> {
        let rows: Vec<&Row> =
            rows.iter().copied().filter(|row| row.repetition == *repetition).collect();
        all.iter().map(|it| Ladder::new(it.system, &rows)).collect()
    };
    let by_repetition: Vec<Vec<Ladder>> = repetitions.iter().map(alone).collect();
    let (held_by_ros_1_only, not_shown) = loads_not_held(&all);
    let own = |it: &&Ladder| it.system.has_daemons();
    Comparison {
        family,
        nodes,
        systems: all.iter().map(|it| it.highest(&by_repetition)).collect(),
        ratio: ratio(&all),
        ratios: by_repetition.iter().map(|it| ratio(it)).collect(),
        is_lower_bound: all.iter().filter(own).all(|it| it.next().is_none()),
        held_by_ros_1_only,
        not_shown,
    }
}

/// The loads of one system, the lowest first.
struct Ladder {
    system: System,
    rungs: Vec<Rung>,
}

/// One load of one system.
#[derive(Debug, Clone)]
struct Rung {
    senders: usize,
    per_s: f64,
    /// Whether the system held the load in more than half of the valid repetitions; `None` if all are void.
    held: Option<bool>,
    limit: String,
}

impl Rung {
    /// Judges the runs with one load.
    fn from_rows(rows: &[&Row]) -> Self {
        let counts: Vec<&Row> = rows.iter().copied().filter(|row| row.void.is_none()).collect();
        let held = counts.iter().filter(|row| row.is_held()).count();
        let reason_of = |rows: &[&Row]| {
            rows.iter().find(|row| !row.is_held()).map(|row| row.reason()).unwrap_or_default()
        };
        let reason = reason_of(if counts.is_empty() { rows } else { &counts });
        Self {
            senders: rows[0].senders,
            per_s: rows[0].offered_per_s,
            held: (!counts.is_empty()).then_some(2 * held > counts.len()),
            limit: reason,
        }
    }
}

impl Ladder {
    fn new(system: System, rows: &[&Row]) -> Self {
        let mut rows: Vec<&Row> = rows.iter().copied().filter(|row| row.system == system).collect();
        rows.sort_by(|one, other| one.offered_per_s.total_cmp(&other.offered_per_s));
        let loads = rows.chunk_by(|one, other| one.offered_per_s == other.offered_per_s);
        Self { system, rungs: loads.map(Rung::from_rows).collect() }
    }

    /// Returns the number of held loads below the first one that was not held.
    fn held(&self) -> usize {
        self.rungs.iter().take_while(|rung| rung.held == Some(true)).count()
    }

    /// Returns the highest load for which all lower loads were held, too.
    fn top(&self) -> Option<&Rung> {
        self.rungs[..self.held()].last()
    }

    fn per_s(&self) -> f64 {
        self.top().map_or(0.0, |rung| rung.per_s)
    }

    /// Returns the first load that was not held; `None` if all tried loads were held.
    fn next(&self) -> Option<&Rung> {
        self.rungs.get(self.held())
    }

    fn highest(&self, by_repetition: &[Vec<Ladder>]) -> Highest {
        let alone = by_repetition.iter().flatten().filter(|it| it.system == self.system);
        Highest {
            system: self.system,
            senders: self.top().map_or(0, |rung| rung.senders),
            per_s: self.per_s(),
            per_s_by_repetition: alone.map(Self::per_s).collect(),
            limit: self.next().map(|rung| rung.limit.clone()),
            is_open: self.next().is_some_and(|rung| rung.held.is_none()),
        }
    }
}

/// Returns the ratio of the highest loads of Tautline and the better plain ROS 1; `None` if either
/// holds no load, or if plain ROS 1 might hold more than was shown.
fn ratio(ladders: &[Ladder]) -> Option<f64> {
    let best = |ours: bool| {
        let of = ladders.iter().filter(|it| it.system.has_daemons() == ours);
        of.map(Ladder::per_s).fold(0.0, f64::max)
    };
    let mut plain = ladders.iter().filter(|it| !it.system.has_daemons());
    let has_limits = plain.all(|it| it.next().is_some_and(|rung| rung.held == Some(false)));
    let (own, plain) = (best(true), best(false));
    (own > 0.0 && plain > 0.0 && has_limits).then(|| own / plain)
}

/// Returns the loads that plain ROS 1 held and Tautline did not, and those for which all runs of
/// Tautline are void, messages per second.
fn loads_not_held(ladders: &[Ladder]) -> (Vec<f64>, Vec<f64>) {
    let (own, plain): (Vec<&Ladder>, Vec<&Ladder>) =
        ladders.iter().partition(|it| it.system.has_daemons());
    let mut loads: Vec<f64> = plain
        .iter()
        .flat_map(|it| &it.rungs)
        .filter(|rung| rung.held == Some(true))
        .map(|rung| rung.per_s)
        .collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    let with = |held: Option<bool>| {
        let of = |per_s: &f64| {
            let mut rungs = own.iter().flat_map(|it| &it.rungs);
            rungs.find(|rung| rung.per_s == *per_s).and_then(|rung| rung.held)
        };
        loads.iter().copied().filter(|per_s| of(per_s) == held).collect()
    };
    // With --system, only plain systems may have been measured.
    if own.is_empty() { Default::default() } else { (with(Some(false)), with(None)) }
}

/// Returns the verdicts.
pub fn verdicts(comparisons: &[Comparison]) -> Vec<Verdict> {
    comparisons.iter().flat_map(|it| [verdict_of_loads(it), verdict_of_ratio(it)]).collect()
}

fn verdict_of_loads(it: &Comparison) -> Verdict {
    let lost = it.held_by_ros_1_only.len() + it.not_shown.len();
    let unknown = match it.not_shown.len() {
        0 => String::new(),
        count => format!(" ({count} of them unknown: no run counts)"),
    };
    let what = format!(
        "{} by {}: loads that plain ROS 1 holds and Tautline does not{unknown}",
        it.family, it.nodes
    );
    NOT_HELD.judge(what, Some(lost as f64), "loads")
}

fn verdict_of_ratio(it: &Comparison) -> Verdict {
    let spread = spread(&it.ratios).map_or(String::new(), |words| format!(" ({words})"));
    let what = format!(
        "{} by {}: highest load of Tautline over plain ROS 1's{spread}",
        it.family, it.nodes
    );
    RATIO.judge(what, it.ratio, "times")
}

/// Describes the spread of repetitions; `None` for fewer than two.
fn spread(ratios: &[Option<f64>]) -> Option<String> {
    let known: Vec<f64> = ratios.iter().copied().flatten().collect();
    let (least, most) =
        (known.iter().copied().reduce(f64::min)?, known.iter().copied().reduce(f64::max)?);
    let median = middle(&known);
    let count = known.len();
    (count > 1)
        .then(|| format!("alone, {count} repetitions: {least:.2} to {most:.2}, median {median:.2}"))
}

/// A row of the table: a family, a system and its highest load.
pub type Line = (Comparison, Highest);

/// Returns the rows of the table.
pub fn lines(comparisons: &[Comparison]) -> Vec<Line> {
    let lines = |it: &Comparison| {
        it.systems.iter().map(|highest| (it.clone(), highest.clone())).collect::<Vec<_>>()
    };
    comparisons.iter().flat_map(lines).collect()
}

/// Formats the comparisons for a terminal; empty without any.
pub fn comparison_table(comparisons: &[Comparison]) -> String {
    if comparisons.is_empty() {
        return String::new();
    }
    let columns = [
        left("load", 8, |(it, _): &Line| it.family.into()),
        left("system", 15, |(_, highest)| highest.system.name()),
        right("senders held", 12, |(_, highest)| highest.senders.to_string()),
        right("messages/s", 10, |(_, highest)| format!("{:.0}", highest.per_s)),
        right("alone", 12, |(_, highest)| alone_words(highest)),
        right("Tautline / ROS 1", 16, |(it, highest)| ratio_words(it, highest)),
        left("limit of the next load", 30, |(_, highest)| limit_words(highest)),
    ];
    table::format_rows(&lines(comparisons), &columns) + "\n"
}

/// Describes the lowest and highest result of the repetitions.
pub fn alone_words(highest: &Highest) -> String {
    let all = &highest.per_s_by_repetition;
    let (least, most) =
        (all.iter().copied().reduce(f64::min), all.iter().copied().reduce(f64::max));
    match (least, most) {
        (Some(least), Some(most)) if all.len() > 1 => format!("{least:.0} to {most:.0}"),
        _ => "-".into(),
    }
}

/// Describes the ratio in the line of Tautline.
pub fn ratio_words(comparison: &Comparison, highest: &Highest) -> String {
    let words = or_dash(comparison.ratio.filter(|_| highest.system.has_daemons()), 2);
    if comparison.is_lower_bound && words != "-" { format!("at least {words}") } else { words }
}

/// Describes what limited the first load that was not held.
pub fn limit_words(highest: &Highest) -> String {
    highest.limit.clone().unwrap_or_else(|| "none found: every load was held".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ladder(system: System, held: &[Option<bool>]) -> Ladder {
        let rung = |(number, held): (usize, &Option<bool>)| Rung {
            senders: number + 1,
            per_s: 10.0 * (number + 1) as f64,
            held: *held,
            limit: "airtime".into(),
        };
        Ladder { system, rungs: held.iter().enumerate().map(rung).collect() }
    }

    const HELD: Option<bool> = Some(true);
    const NOT: Option<bool> = Some(false);

    #[test]
    fn the_highest_load_requires_all_lower_loads() {
        let found = ladder(System::Rospy, &[HELD, NOT, HELD]).highest(&[]);
        assert_eq!(
            (found.senders, found.per_s, found.limit.as_deref()),
            (1, 10.0, Some("airtime"))
        );
        assert_eq!(ladder(System::Rospy, &[NOT, HELD]).per_s(), 0.0);
        assert_eq!(ladder(System::Rospy, &[HELD]).highest(&[]).limit, None);
    }

    #[test]
    fn a_void_run_of_tautline_is_no_success() {
        let plain = || ladder(System::Rospy, &[HELD, HELD, NOT]);
        let void = ladder(System::Tautline, &[HELD, None, HELD]);
        assert_eq!(void.per_s(), 10.0);
        assert_eq!(loads_not_held(&[plain(), void]), (vec![], vec![20.0]));
        // A missing run is no success either.
        let ended = ladder(System::Tautline, &[NOT]);
        assert_eq!(loads_not_held(&[plain(), ended]), (vec![10.0], vec![20.0]));
    }

    #[test]
    fn a_void_run_of_plain_ros_does_not_raise_the_ratio() {
        let own = || ladder(System::Tautline, &[HELD, HELD, HELD, NOT]);
        assert_eq!(ratio(&[ladder(System::Rospy, &[HELD, HELD, NOT]), own()]), Some(1.5));
        assert_eq!(ratio(&[ladder(System::Rospy, &[HELD, None]), own()]), None);
        assert_eq!(ratio(&[ladder(System::Rospy, &[HELD, HELD]), own()]), None);
        let other = ladder(System::RospyNodelay, &[HELD, None]);
        assert_eq!(ratio(&[ladder(System::Rospy, &[HELD, NOT]), other, own()]), None);
    }

    #[test]
    fn every_family_has_both_targets() {
        let comparison = |family| Comparison {
            family,
            nodes: "rospy",
            systems: Vec::new(),
            ratio: Some(1.1),
            ratios: vec![Some(1.0), None, Some(1.2)],
            is_lower_bound: false,
            held_by_ros_1_only: vec![40.0],
            not_shown: vec![50.0],
        };
        let verdicts = verdicts(&[comparison("scan"), comparison("robots")]);
        assert_eq!(verdicts.len(), 4);
        assert!(verdicts.iter().all(|verdict| !verdict.reached));
        assert_eq!(verdicts[0].found, Some(2.0));
        assert!(verdicts[0].what.contains("1 of them unknown"), "{}", verdicts[0].what);
        assert!(verdicts[1].what.contains("1.00 to 1.20"), "{}", verdicts[1].what);
    }
}
