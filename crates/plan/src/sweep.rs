// SPDX-License-Identifier: Apache-2.0
//! Delays as a function of the load: a factor on all rates, or the number of robots.

use super::answers::MAX_ROBOTS;
use super::team::{Team, Traffic};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::thread::ScopedJoinHandle;

/// Maximum number of loads at which delays are determined.
const POINTS: u32 = 24;
/// The lowest multiple of all rates on the axis.
const MIN_FACTOR: f64 = 0.1;
/// Minimum end of the axis if the expected rates fit.
const MIN_AXIS_END: f64 = 1.5;
/// Multiple that stands for the expected rates, and the minimum end of the axis if they do not fit.
const EXPECTED_FACTOR: f64 = 1.0;
/// The highest examined multiple of all rates.
const MAX_FACTOR: f64 = 100.0;
/// End of the axis, as a multiple of the load that fits.
const AXIS_MARGIN: f64 = 1.2;
/// Steps of the binary search for a load.
const BISECTION_STEPS: u32 = 24;
/// A load just below the limit, at which delays are finite, as a fraction of the limit.
const JUST_BELOW: f64 = 0.995;

/// The horizontal axis of a sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Axis {
    /// The rates of all topics, as a multiple of the expected ones.
    Load,
    /// The number of robots with the topics of the robot of this name.
    Robots(String),
}

/// Delays at several loads.
#[derive(Debug, Clone, PartialEq)]
pub struct Sweep {
    /// Points from the lowest load.
    pub points: Vec<Point>,
    /// The highest multiple of the rates, or number of robots, that fits; `None` if all examined values
    /// fit.
    pub limit: Option<f64>,
}

/// Delays at one load.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Multiple of the rates, or number of robots.
    pub at: f64,
    /// The topics by name, the highest priority first.
    pub topics: Vec<TopicDelays>,
}

/// The longest delays of all topics with one name, over their senders and receivers.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicDelays {
    /// Name of the topic.
    pub topic: String,
    /// The priority; the highest, if they differ.
    pub priority: u8,
    /// Mean delay, in milliseconds; `None` without a bound.
    pub typical_ms: Option<f64>,
    /// Worst case, in milliseconds; `None` without a bound.
    pub worst_ms: Option<f64>,
}

impl Team {
    /// Determines the delays from a low load to one that does not fit.
    pub fn sweep(&self, axis: &Axis) -> Sweep {
        let at = |it: f64| self.at(axis, it);
        let limit = match axis {
            Axis::Load => highest_factor(&at),
            Axis::Robots(name) => self.max_robots(name),
        };
        let positions = positions(axis, limit);
        // Points beyond the limit take seconds to compute, so that all processors share the points.
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let of_thread = |first: usize| -> Vec<Point> {
            let own = positions.iter().skip(first).step_by(threads);
            own.map(|it| point(*it, &at(*it))).collect()
        };
        let mut points: Vec<Point> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..threads).map(|it| scope.spawn(move || of_thread(it))).collect();
            let joined = all.into_iter().map(ScopedJoinHandle::join);
            joined.flat_map(|it| it.unwrap_or_else(|panic| resume_unwind(panic))).collect()
        });
        points.sort_by(|a, b| a.at.total_cmp(&b.at));
        Sweep { points, limit }
    }

    /// Returns the maximum number of robots like this one; `None` if all tried numbers fit.
    fn max_robots(&self, name: &str) -> Option<f64> {
        let most = if fits(self) { 1 + self.max_additional_robots(name) } else { 0 };
        (most < MAX_ROBOTS).then_some(most as f64)
    }

    /// Returns the team at a multiple of its rates, or with a number of robots.
    fn at(&self, axis: &Axis, position: f64) -> Team {
        let traffic = match axis {
            Axis::Load => {
                let scaled =
                    |it: &Traffic| Traffic { rate_hz: it.rate_hz * position, ..it.clone() };
                self.traffic.iter().map(scaled).collect()
            }
            Axis::Robots(name) => {
                let copies = (1..position as usize).flat_map(|it| self.copy_of(name, it));
                self.traffic.iter().cloned().chain(copies).collect()
            }
        };
        Team { radios: self.radios.clone(), traffic }
    }
}

fn fits(team: &Team) -> bool {
    team.load() < 1.0
}

fn highest_factor(at: &impl Fn(f64) -> Team) -> Option<f64> {
    if fits(&at(MAX_FACTOR)) {
        return None;
    }
    let (mut low, mut high) = (0.0, MAX_FACTOR);
    for _ in 0..BISECTION_STEPS {
        let middle = (low + high) / 2.0;
        if fits(&at(middle)) { low = middle } else { high = middle }
    }
    Some(low)
}

/// Returns the points of the axis in order. For the load, one of them is just below the limit.
fn positions(axis: &Axis, limit: Option<f64>) -> Vec<f64> {
    let mut all: Vec<f64> = match axis {
        Axis::Load => {
            let end = match limit {
                Some(limit) if limit < EXPECTED_FACTOR => {
                    (limit * AXIS_MARGIN).max(EXPECTED_FACTOR)
                }
                Some(limit) => (limit * AXIS_MARGIN).max(MIN_AXIS_END),
                None => MIN_AXIS_END,
            };
            let step = (end - MIN_FACTOR) / f64::from(POINTS - 1);
            let regular = (0..POINTS).map(|it| MIN_FACTOR + step * f64::from(it));
            regular.chain(limit.map(|it| it * JUST_BELOW)).collect()
        }
        Axis::Robots(_) => {
            let limit = limit.map_or(MAX_ROBOTS, |it| it as usize);
            let end = ((limit as f64 * AXIS_MARGIN) as usize).max(limit + 1).max(2);
            let step = end.div_ceil(POINTS as usize).max(1);
            let regular = (1..=end).step_by(step).map(|it| it as f64);
            regular.chain([limit as f64]).filter(|it| *it > 0.0).collect()
        }
    };
    all.sort_by(f64::total_cmp);
    all.dedup();
    all
}

fn point(at: f64, team: &Team) -> Point {
    let mut by_name: BTreeMap<String, TopicDelays> = BTreeMap::new();
    let longer = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a.max(b));
    for it in team.delays() {
        let Traffic { topic, priority, .. } = it.traffic;
        let (typical_ms, worst_ms) = (it.typical_ms, it.worst_ms);
        let new = TopicDelays { topic: topic.clone(), priority, typical_ms, worst_ms };
        let known = by_name.entry(topic).or_insert(new);
        known.priority = known.priority.max(priority);
        known.typical_ms = longer(known.typical_ms, typical_ms);
        known.worst_ms = longer(known.worst_ms, worst_ms);
    }
    let mut topics: Vec<TopicDelays> = by_name.into_values().collect();
    topics.sort_by_key(|it| Reverse(it.priority));
    Point { at, topics }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Links, Radio};
    use tautline::config::channel;

    fn traffic(from: &str, topic: &str, rate_hz: f64, bytes: u64, priority: u8) -> Traffic {
        let [from, to, topic] = [from, "base", topic].map(str::to_owned);
        let (via, lifespan, links) = (vec![], None, Links::single_radio());
        Traffic { from, to, via, topic, rate_hz, bytes, priority, lifespan, links }
    }

    fn radios() -> Vec<Radio> {
        let channel = channel::parse("line:2Mbps,shared").unwrap();
        vec![Radio { name: "wlan0".into(), channel }]
    }

    /// On a line of 2 Mbps, messages with headers take 0.4 Mbps.
    fn team() -> Team {
        let traffic = vec![traffic("robot", "/scan", 36.0, 1300, 200)];
        Team { radios: radios(), traffic }
    }

    #[test]
    fn the_sweep_goes_past_the_load_that_fits() {
        let sweep = team().sweep(&Axis::Load);
        let limit = sweep.limit.unwrap();
        assert!((4.0..5.0).contains(&limit), "{limit}");
        let last = sweep.points.last().unwrap();
        assert!((last.at / limit - AXIS_MARGIN).abs() < 1e-6);
        assert_eq!(last.topics[0].worst_ms, None, "no bound beyond the limit");
        let worst: Vec<f64> = sweep.points.iter().filter_map(|it| it.topics[0].worst_ms).collect();
        assert!(worst.len() > 15 && worst.is_sorted(), "{worst:?}");
        for it in sweep.points.iter().flat_map(|it| &it.topics) {
            assert!(it.worst_ms.is_none_or(|worst| it.typical_ms <= Some(worst)));
        }
    }

    #[test]
    fn robots_are_added_until_one_does_not_fit() {
        let sweep = team().sweep(&Axis::Robots("robot".into()));
        assert_eq!(sweep.limit, Some(4.0));
        let numbers: Vec<f64> = sweep.points.iter().map(|it| it.at).collect();
        assert_eq!(numbers, [1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!(sweep.points.iter().all(|it| it.topics.len() == 1), "by name");
    }

    #[test]
    fn topics_of_one_name_are_merged_with_the_longest_delays() {
        let traffic = vec![
            traffic("a", "/image", 1.0, 40_000, 20),
            traffic("b", "/image", 1.0, 4_000, 20),
            traffic("a", "/scan", 10.0, 1000, 200),
        ];
        let both = Team { radios: radios(), traffic };
        let point = point(1.0, &both);
        let names: Vec<&str> = point.topics.iter().map(|it| &*it.topic).collect();
        assert_eq!(names, ["/scan", "/image"]);
        let longest = both.delays().iter().filter_map(|it| it.worst_ms).fold(0.0, f64::max);
        assert_eq!(point.topics[1].worst_ms, Some(longest));
    }
}
