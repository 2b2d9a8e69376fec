// SPDX-License-Identifier: Apache-2.0
//! The highest load that plain ROS 1 and Tautline hold over the same radio.
//!
//! Three families of loads. `robots`: each robot has a scan at 10 Hz and a command at 50 Hz, and both
//! must keep their periods. `text`: many small messages. `scan`: scans alone, where the channel is
//! full of the same bytes whatever carries them, so that little can be gained.
//!
//! A load is held if 95 % of its messages were published, 99 % of their echoes returned, the round
//! trips did not grow during the run, and 95 of 100 round trips of each kind of message ended within
//! one period of its sender. The criterion is the same for all systems. Of several repetitions, more
//! than half must hold it; void runs do not count.

use super::experiment::Experiment;
use super::row::Row;
use super::system::System;
use crate::rig::table::{self, left, or_dash, right};
use crate::rig::verdict::{Bound, Verdict};
use serde::Serialize;

/// Highest load of Tautline, in highest loads of plain ROS 1.
const RATIO: Bound = Bound::AtLeast(1.5);
/// Loads that plain ROS 1 holds and Tautline does not.
const NOT_HELD: Bound = Bound::AtMost(0.0);
/// Families of loads in which a system can gain by order and by packing, not by capacity alone.
const WITH_RATIO: [&str; 2] = ["robots", "text"];

/// The comparison of one family of loads.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// Family: `robots`, `text`, `scan`.
    pub family: &'static str,
    /// Each system with its highest load.
    pub systems: Vec<Highest>,
    /// Highest load of Tautline over the one of the better plain ROS 1; `None` if either holds none.
    pub ratio: Option<f64>,
    /// Whether Tautline held every load of the ladder, so that the ratio is a lower bound.
    pub is_lower_bound: bool,
    /// Loads that plain ROS 1 held and Tautline did not, messages per second.
    pub held_by_ros_1_only: Vec<f64>,
}

/// The highest load of a system, with all lower ones.
#[derive(Debug, Clone, Serialize)]
pub struct Highest {
    /// The system.
    pub system: System,
    /// Messages per second of all senders; 0 if it held none.
    pub per_s: f64,
    /// What limited the first load that it did not hold; `None` if it held all.
    pub limit: Option<String>,
}

/// Returns the comparisons of all families that were measured.
pub fn comparisons(rows: &[Row]) -> Vec<Comparison> {
    let rows: Vec<&Row> =
        rows.iter().filter(|row| row.experiment == Experiment::Tautline.name()).collect();
    let mut families: Vec<&'static str> = rows.iter().map(|row| row.contents).collect();
    families.sort_unstable();
    families.dedup();
    let of = |family| rows.iter().copied().filter(|row| row.contents == family).collect();
    families.into_iter().map(|family| compare(family, of(family))).collect()
}

fn compare(family: &'static str, rows: Vec<&Row>) -> Comparison {
    let mut names: Vec<System> = rows.iter().map(|row| row.system).collect();
    names.sort_unstable();
    names.dedup();
    let rungs_of = |system| rungs(rows.iter().copied().filter(|row| row.system == system));
    let systems: Vec<Highest> =
        names.iter().map(|system| highest(*system, &rungs_of(*system))).collect();
    let best = |ours: bool| {
        let of = systems.iter().filter(|it| it.system.has_daemons() == ours);
        of.map(|it| it.per_s).fold(0.0, f64::max)
    };
    let (own, plain) = (best(true), best(false));
    let ratio = (own > 0.0 && plain > 0.0).then(|| own / plain);
    let our_rungs: Vec<Rung> =
        names.iter().filter(|it| it.has_daemons()).flat_map(|it| rungs_of(*it)).collect();
    let is_lower_bound = !our_rungs.is_empty() && our_rungs.iter().all(|it| it.held == Some(true));
    let is_lost = |rung: &&Rung| rung.per_s <= plain && rung.held == Some(false);
    let held_by_ros_1_only = our_rungs.iter().filter(is_lost).map(|rung| rung.per_s).collect();
    Comparison { family, systems, ratio, is_lower_bound, held_by_ros_1_only }
}

/// One load of one system.
#[derive(Debug, Clone)]
struct Rung {
    per_s: f64,
    /// Whether more than half of the repetitions that count held it; `None` if none counts.
    held: Option<bool>,
    limit: String,
}

/// Returns the loads of a system, the lowest first.
fn rungs<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<Rung> {
    let mut rows: Vec<&Row> = rows.collect();
    rows.sort_by(|one, other| one.offered_per_s.total_cmp(&other.offered_per_s));
    let rung = |of: &[&Row]| {
        let counts: Vec<&&Row> = of.iter().filter(|row| row.void.is_none()).collect();
        let held = counts.iter().filter(|row| row.is_held()).count();
        let not_held = of.iter().find(|row| !row.is_held());
        Rung {
            per_s: of[0].offered_per_s,
            held: (!counts.is_empty()).then_some(2 * held > counts.len()),
            limit: not_held.map_or(String::new(), |row| row.reason()),
        }
    };
    rows.chunk_by(|one, other| one.offered_per_s == other.offered_per_s).map(rung).collect()
}

fn highest(system: System, rungs: &[Rung]) -> Highest {
    let held = rungs.iter().take_while(|rung| rung.held == Some(true)).count();
    let per_s = held.checked_sub(1).map_or(0.0, |last| rungs[last].per_s);
    Highest { system, per_s, limit: rungs.get(held).map(|rung| rung.limit.clone()) }
}

/// Returns the verdicts.
pub fn verdicts(comparisons: &[Comparison]) -> Vec<Verdict> {
    let verdicts = |it: &Comparison| {
        let lost = it.held_by_ros_1_only.len() as f64;
        let what = format!("{}: loads that plain ROS 1 holds and Tautline does not", it.family);
        let lost = NOT_HELD.judge(what, Some(lost), "loads");
        let what = format!("{}: highest load of Tautline over plain ROS 1's", it.family);
        let ratio = RATIO.judge(what, it.ratio, "times");
        let ratio = Some(ratio).filter(|_| WITH_RATIO.contains(&it.family));
        [Some(lost), ratio]
    };
    comparisons.iter().flat_map(verdicts).flatten().collect()
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
pub fn text(comparisons: &[Comparison]) -> String {
    if comparisons.is_empty() {
        return String::new();
    }
    let columns = [
        left("load", 8, |(it, _): &Line| it.family.into()),
        left("system", 15, |(_, highest)| highest.system.name().into()),
        right("held, messages/s", 16, |(_, highest)| format!("{:.0}", highest.per_s)),
        right("Tautline / ROS 1", 16, |(it, highest)| {
            or_dash(it.ratio.filter(|_| highest.system.has_daemons()), 2)
        }),
        left("limit of the next load", 30, |(_, highest)| limit_words(highest)),
    ];
    table::text(&lines(comparisons), &columns) + "\n"
}

/// Describes what limited the first load that was not held.
pub fn limit_words(highest: &Highest) -> String {
    highest.limit.clone().unwrap_or_else(|| "none found: every load was held".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rung(per_s: f64, held: Option<bool>) -> Rung {
        Rung { per_s, held, limit: "airtime".into() }
    }

    #[test]
    fn the_highest_load_has_all_lower_ones_below_it() {
        let rungs = [rung(10.0, Some(true)), rung(20.0, Some(false)), rung(30.0, Some(true))];
        let found = highest(System::Rospy, &rungs);
        assert_eq!((found.per_s, found.limit.as_deref()), (10.0, Some("airtime")));
        assert_eq!(highest(System::Rospy, &rungs[1..]).per_s, 0.0);
        assert_eq!(highest(System::Rospy, &rungs[..1]).limit, None);
    }

    #[test]
    fn a_void_rung_is_not_held() {
        assert_eq!(highest(System::Rospy, &[rung(10.0, None), rung(20.0, Some(true))]).per_s, 0.0);
    }

    #[test]
    fn scans_alone_have_no_ratio_to_reach() {
        let comparison = |family| Comparison {
            family,
            systems: Vec::new(),
            ratio: Some(1.1),
            is_lower_bound: false,
            held_by_ros_1_only: vec![40.0],
        };
        let verdicts = verdicts(&[comparison("scan"), comparison("robots")]);
        assert_eq!(verdicts.len(), 3);
        assert!(verdicts.iter().all(|verdict| !verdict.reached));
    }
}
