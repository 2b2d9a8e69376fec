// SPDX-License-Identifier: Apache-2.0
//! Times until messages flow again, from the times of their arrival.

use crate::rig::stats::{Arrival, upper_median};
use serde::Serialize;
use std::collections::BTreeMap;

/// Messages flow while no gap between two of them exceeds this: five periods.
pub const GAP_NS: u64 = 100_000_000;

/// The start of a recovery, and the messages that count.
#[derive(Debug, Clone, Copy)]
pub struct RecoveryStart {
    /// Time at which the cause ended.
    pub ns: u64,
    /// Whether only messages published after that time count. Set where nothing else excludes
    /// messages that were in transit.
    pub only_new: bool,
}

/// Recovery of one direction, ms.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Recovery {
    /// Time until the first message; `None` if there was none.
    pub first_ms: Option<f64>,
    /// Time until the message from which messages flowed; `None` if messages did not flow at the end.
    pub steady_ms: Option<f64>,
}

impl Recovery {
    /// Returns the same recovery, counted from `ms` later.
    pub fn less(self, ms: f64) -> Self {
        let less = |time: Option<f64>| time.map(|time| time - ms);
        Self { first_ms: less(self.first_ms), steady_ms: less(self.steady_ms) }
    }
}

impl RecoveryStart {
    /// Returns the arrival of the first message that counts.
    pub fn first(self, arrivals: &[Arrival]) -> Option<u64> {
        self.counted_messages(arrivals).next()
    }

    fn counted_messages(self, arrivals: &[Arrival]) -> impl Iterator<Item = u64> {
        let counts = move |arrival: &&Arrival| {
            arrival.received_ns >= self.ns && (!self.only_new || arrival.sent_ns >= self.ns)
        };
        arrivals.iter().filter(counts).map(|arrival| arrival.received_ns)
    }

    /// Returns the recovery, if `arrivals` were recorded until `end_ns`.
    pub fn recovery(self, arrivals: &[Arrival], end_ns: u64) -> Recovery {
        let ms = |ns: u64| (ns - self.ns) as f64 / 1e6;
        Recovery {
            first_ms: self.first(arrivals).map(ms),
            steady_ms: flowing_since(self.counted_messages(arrivals), end_ns).map(ms),
        }
    }
}

/// Returns the time since which messages received at these times have flowed; `None` if they do not
/// flow at `end_ns`.
pub fn flowing_since(received: impl Iterator<Item = u64>, end_ns: u64) -> Option<u64> {
    let mut flow: Option<(u64, u64)> = None;
    for now in received {
        let begun = flow.filter(|(_, last)| now.saturating_sub(*last) <= GAP_NS);
        flow = Some((begun.map_or(now, |(since, _)| since), now));
    }
    let (since, last) = flow?;
    (end_ns.saturating_sub(last) <= GAP_NS).then_some(since)
}

/// Figures of the runs of one kind in one direction, ms.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The interruption, and the time from which the recovery counts.
    pub what: String,
    /// Direction: `robot to base`.
    pub direction: &'static str,
    /// Number of runs.
    pub runs: usize,
    /// Number of runs in which a message arrived in time.
    pub recovered: usize,
    /// Median time until the first message; `None` if at least half of the runs had none.
    pub median_ms: Option<f64>,
    /// Largest time until the first message; `None` if a run had none.
    pub max_ms: Option<f64>,
    /// Median time until messages flowed; `None` as with `median_ms`.
    pub steady_median_ms: Option<f64>,
    /// Largest time until messages flowed; `None` as with `max_ms`.
    pub steady_max_ms: Option<f64>,
    /// Target of the median.
    pub target_ms: Option<f64>,
}

impl Row {
    /// Returns the figures of all runs.
    pub fn new(
        what: String,
        direction: &'static str,
        runs: &[Recovery],
        target_ms: Option<f64>,
    ) -> Self {
        let sorted = |of: fn(&Recovery) -> Option<f64>| {
            let mut all: Vec<f64> =
                runs.iter().map(|run| of(run).unwrap_or(f64::INFINITY)).collect();
            all.sort_by(f64::total_cmp);
            all
        };
        let (first, steady) = (sorted(|run| run.first_ms), sorted(|run| run.steady_ms));
        let max = |all: &[f64]| all.last().copied().filter(|ms| ms.is_finite());
        let median = |all: &[f64]| upper_median(all).filter(|ms| ms.is_finite());
        Self {
            what,
            direction,
            runs: runs.len(),
            recovered: first.iter().filter(|ms| ms.is_finite()).count(),
            median_ms: median(&first),
            max_ms: max(&first),
            steady_median_ms: median(&steady),
            steady_max_ms: max(&steady),
            target_ms,
        }
    }
}

/// Returns the state of each neighbour in the output of `ip neigh show`, by address.
pub fn neighbour_states(said: &str) -> BTreeMap<String, String> {
    let entry = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.last()?.to_owned()))
    };
    said.lines().filter_map(entry).collect()
}

/// Whether a table of sockets (/proc/net/udp, udp6) contains one on that local port.
pub fn has_port(table: &str, port: u16) -> bool {
    let ending = format!(":{port:04X}");
    let local = |line: &str| line.split_whitespace().nth(1).map(str::to_owned);
    table.lines().skip(1).filter_map(local).any(|address| address.ends_with(&ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn arrivals(times: &[(u64, u64)]) -> Vec<Arrival> {
        let arrival = |&(sent, received): &(u64, u64)| Arrival::from([0, sent * MS, received * MS]);
        times.iter().map(arrival).collect()
    }

    #[test]
    fn the_first_message_is_after_the_return() {
        let all = arrivals(&[(10, 11), (995, 1050), (1060, 1062)]);
        let since = RecoveryStart { ns: 1000 * MS, only_new: false };
        let recovery = since.recovery(&all, 1100 * MS);
        assert_eq!(recovery, Recovery { first_ms: Some(50.0), steady_ms: Some(50.0) });
        let new = RecoveryStart { only_new: true, ..since };
        assert_eq!(new.recovery(&all, 1100 * MS).first_ms, Some(62.0));
        assert_eq!(since.recovery(&all[..1], 1100 * MS), Recovery::default());
    }

    #[test]
    fn a_single_message_before_a_gap_is_no_flow() {
        let all = arrivals(&[(0, 5), (300, 305), (320, 325)]);
        let since = RecoveryStart { ns: 0, only_new: false };
        assert_eq!(since.recovery(&all, 400 * MS).steady_ms, Some(305.0));
        assert_eq!(since.recovery(&all, 500 * MS).steady_ms, None);
        assert_eq!(since.recovery(&all, 500 * MS).first_ms, Some(5.0));
    }

    #[test]
    fn a_run_without_recovery_is_the_slowest() {
        let run = |first_ms| Recovery { first_ms, steady_ms: None };
        let row = |runs: &[Recovery]| Row::new("x".into(), "robot to base", runs, Some(300.0));
        let most = row(&[run(Some(7.0)), run(None), run(Some(5.0))]);
        assert_eq!((most.recovered, most.median_ms, most.max_ms), (2, Some(7.0), None));
        assert_eq!(most.steady_median_ms, None);
        assert_eq!(row(&[run(None), run(Some(5.0))]).median_ms, None);
        assert_eq!(row(&[]).median_ms, None);
    }

    #[test]
    fn a_truncated_line_is_no_arrival() {
        assert_eq!(Arrival::parse("7,10,20"), Some(Arrival::from([7, 10, 20])));
        assert_eq!(Arrival::parse("7,10,"), None);
        assert_eq!(Arrival::parse("7,10"), None);
    }

    #[test]
    fn a_port_is_found_among_local_ones_only() {
        let table = "  sl  local_address remote_address st\n   \
                     0: 00000000:4826 00000000:0000 07 00000000:00000000\n   \
                     1: 0100007F:0035 0100007F:1234 07 00000000:00000000\n";
        assert!(has_port(table, 18470) && has_port(table, 53));
        assert!(!has_port(table, 0x1234));
    }

    #[test]
    fn neighbours_have_a_state_each() {
        let said = "10.71.0.2 dev veth0 lladdr f2:49:9e:86:2f:7f REACHABLE \n\
                    10.71.0.3 dev veth0 FAILED\n";
        let states = neighbour_states(said);
        assert_eq!(states["10.71.0.2"], "REACHABLE");
        assert_eq!(states["10.71.0.3"], "FAILED");
    }
}
