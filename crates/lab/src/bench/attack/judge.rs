// SPDX-License-Identifier: Apache-2.0
//! Verdicts on phases under attack against baseline phases, whose own spread is reported too.

use super::scene::Figures;
use super::{Kind, Rights};
use crate::bench::flood::ground::{RECEIVED, TIMES_QUIET};
use crate::rig::stats::{median, spread};
use crate::rig::verdict::{Bound, Verdict};
use crate::setup::flows::Flow;
use serde::Serialize;
use std::fmt::Write;

/// Flows whose delays are judged.
pub const FLOWS: [Flow; 2] = [Flow::Laser, Flow::Command];

/// Limit of the memory growth over the idle daemon.
const GROWTH_MB: Bound = Bound::AtMost(64.0);
/// Limit of the memory growth [`AFTER`](super::AFTER) the attacker has left: an allocator keeps some memory
/// after a load.
const LEFT_MB: Bound = Bound::AtMost(16.0);
const NOTHING: Bound = Bound::AtMost(0.0);

/// Baseline: the p99 of a flow without an attack.
#[derive(Debug, PartialEq, Serialize)]
pub struct Quiet {
    rights: Rights,
    flow: Flow,
    pub median_ms: f64,
    least_ms: f64,
    most_ms: f64,
    phases: usize,
    /// Baseline phases that would fail if they were judged like an attack.
    beyond: usize,
}

impl Quiet {
    /// Returns the baseline of the judged phases under these rights; `None` without phases.
    pub fn new(phases: &[Figures], rights: Rights, flow: Flow) -> Option<Self> {
        let quiet = |it: &&Figures| it.judged && it.kind.is_none() && it.rights == rights;
        let p99s: Vec<f64> = phases.iter().filter(quiet).map(|it| it.p99(flow)).collect();
        let median_ms = median(p99s.iter().copied())?;
        let beyond = |p99: &&f64| !TIMES_QUIET.holds(**p99 / median_ms);
        let [least_ms, most_ms] = spread(&p99s);
        Some(Self {
            rights,
            flow,
            median_ms,
            least_ms,
            most_ms,
            phases: p99s.len(),
            beyond: p99s.iter().filter(beyond).count(),
        })
    }

    /// Returns the baselines of both flows under all rights.
    pub fn baselines(phases: &[Figures]) -> Vec<Self> {
        let of = |rights| FLOWS.into_iter().filter_map(move |flow| Self::new(phases, rights, flow));
        Rights::ALL.into_iter().flat_map(of).collect()
    }
}

/// Returns one line per baseline.
pub fn quiet_lines(quiet: &[Quiet]) -> String {
    let mut text = String::new();
    for it in quiet {
        let _ = writeln!(
            text,
            "quiet, {} rights: {} p99 {:.2} ms ({:.2} to {:.2}); {} of {} quiet phases would fail too",
            it.rights.name(),
            it.flow.name(),
            it.median_ms,
            it.least_ms,
            it.most_ms,
            it.beyond,
            it.phases
        );
    }
    text
}

/// Returns the phases of each kind under the same rights, in the order in which the kinds began.
fn by_kind(phases: &[Figures]) -> Vec<(Rights, Kind, Vec<&Figures>)> {
    let mut groups: Vec<(Rights, Kind, Vec<&Figures>)> = Vec::new();
    for it in phases {
        let Some(kind) = it.kind else { continue };
        match groups.iter_mut().find(|(rights, of, _)| (*rights, *of) == (it.rights, kind)) {
            Some((.., group)) => group.push(it),
            None => groups.push((it.rights, kind, vec![it])),
        }
    }
    groups
}

/// Judges every kind. Delays count by the median of the judged phases, received messages by their
/// minimum. Deaths, memory growth and leftovers count in all phases.
pub fn verdicts(phases: &[Figures]) -> Vec<Verdict> {
    let groups = by_kind(phases);
    let of = |(rights, kind, all): &(Rights, Kind, Vec<&Figures>)| {
        let quiet = FLOWS.map(|flow| Some(Quiet::new(phases, *rights, flow)?.median_ms));
        judge(&format!("{} rights, {}", rights.name(), kind.name()), all, quiet)
    };
    groups.iter().flat_map(of).collect()
}

/// Returns the verdicts on one kind; `quiet` contains the baseline p99 of each flow.
fn judge(name: &str, all: &[&Figures], quiet: [Option<f64>; 2]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let what = |text: &str| format!("{name}: {text}");
    let judged = || all.iter().filter(|it| it.judged);
    let most = |of: fn(&Figures) -> f64| all.iter().map(|it| of(it)).fold(0.0, f64::max);
    let died = most(|it| f64::from(u8::from(it.died.is_some())));
    verdicts.push(NOTHING.judge(what("daemons that died"), Some(died), ""));
    for (flow, quiet) in FLOWS.into_iter().zip(quiet) {
        let p99 = median(judged().map(|it| it.p99(flow)));
        let times = p99.zip(quiet).map(|(p99, quiet)| p99 / quiet);
        let name = what(&format!("{} p99", flow.name()));
        verdicts.push(TIMES_QUIET.judge(name, times, "times the quiet one"));
        let least = judged().map(|it| it.received_percent(flow)).reduce(f64::min);
        let name = what(&format!("{} received", flow.name()));
        verdicts.push(RECEIVED.judge(name, least, "%"));
    }
    verdicts.push(GROWTH_MB.judge(what("memory grown"), Some(most(Figures::growth_mb)), "MB"));
    // The leftovers of a daemon that died are unknown.
    let known = |most: f64| (died == 0.0).then_some(most);
    let left_mb = most(|it| it.left_mb().unwrap_or_default());
    verdicts.push(LEFT_MB.judge(what("memory left"), known(left_mb), "MB"));
    let left = most(|it| it.left.len() as f64);
    verdicts.push(NOTHING.judge(what("other things left"), known(left), ""));
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::stats::{Delay, Summary};

    const RIGHTS: Rights = Rights::Default;

    fn phase(kind: Option<Kind>, p99: f64) -> Figures {
        let summary = Summary {
            sent: 1,
            received: 1,
            duplicates: 0,
            mdr_percent: 100.0,
            delay_ms: Some(Delay { mean: p99, p50: p99, p99, max: p99 }),
            gap_ms: None,
            publisher_late_ms: None,
        };
        Figures {
            rights: RIGHTS,
            judged: true,
            kind,
            after_bytes: Some(0),
            flows: FLOWS.map(|flow| (flow, summary.clone())).into(),
            ..Figures::default()
        }
    }

    fn failed_phases(phases: &[Figures]) -> Vec<String> {
        let failed = verdicts(phases).into_iter().filter(|it| !it.reached);
        failed.map(|it| it.what).collect()
    }

    #[test]
    fn quiet_phases_measure_the_noise() {
        let mut phases: Vec<Figures> =
            [1.0, 2.0, 2.5, 9.0, 100.0].map(|p99| phase(None, p99)).into();
        phases[4].judged = false;
        phases.push(phase(Some(Kind::Pings), 50.0));
        let quiet = Quiet::new(&phases, RIGHTS, Flow::Laser).unwrap();
        assert_eq!((quiet.median_ms, quiet.least_ms, quiet.most_ms), (2.25, 1.0, 9.0));
        assert_eq!((quiet.beyond, quiet.phases), (1, 4));
        assert_eq!(Quiet::new(&phases, Rights::Generous, Flow::Laser), None);
        assert_eq!(quiet_lines(&Quiet::baselines(&phases)).lines().count(), FLOWS.len());
    }

    #[test]
    fn delays_are_judged_by_the_median_of_valid_runs() {
        let pings = |p99| phase(Some(Kind::Pings), p99);
        let mut phases = vec![phase(None, 1.0), pings(1.2), pings(9.0), pings(1.4), pings(80.0)];
        phases[4].judged = false;
        assert_eq!(failed_phases(&phases), [""; 0]);
        phases[1] = pings(9.0);
        let name = |flow: &str| format!("default rights, pings: {flow} p99");
        assert_eq!(failed_phases(&phases), ["laser", "command"].map(name));
    }

    #[test]
    fn crashes_and_memory_growth_are_judged_on_a_late_machine() {
        let mut late = phase(Some(Kind::Pings), 80.0);
        late.judged = false;
        late.toll.peak_bytes = 65_000_000;
        late.after_bytes = Some(17_000_000);
        late.left = vec!["the peer is up".into()];
        let mut phases = vec![phase(None, 1.0), late, phase(Some(Kind::Pings), 1.0)];
        let name = |what: &&str| format!("default rights, pings: {what}");
        let left = ["memory grown", "memory left", "other things left"];
        assert_eq!(failed_phases(&phases), left.each_ref().map(name));
        phases[1].died = Some("killed".into());
        let died = ["daemons that died"].iter().chain(&left).map(name).collect::<Vec<_>>();
        assert_eq!(failed_phases(&phases), died);
    }
}
