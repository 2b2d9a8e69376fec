// SPDX-License-Identifier: Apache-2.0
//! A peer with a valid key that turns against the base: what each kind of its packets does to
//! the messages of the others, and to the daemon; and what is left of it once it has gone.
//!
//! The attacker has a processor of its own; all else shares the first one, quiet or not.

mod kinds;
mod peer;
mod scene;
mod toll;

use super::case::{Bound, Verdict};
use super::daemon::DaemonSetup;
use super::flows::Flow;
use super::report::{About, Conclusion, tell, verdict_lines};
use crate::progress::Progress;
use crate::stats::median;
use anyhow::{Context, Result};
use clap::ValueEnum;
pub use kinds::Kind;
use scene::{AFTER, Figures, Scene};
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

/// As on the command line.
pub const NAME: &str = "attack";

/// Packets of the attacker per second.
const RATE_PER_S: u32 = 20_000;
/// Counted time of a phase: 500 scans.
const COUNTED: Duration = Duration::from_secs(10);
/// A quiet phase comes before every so many kinds.
const KINDS_BETWEEN_QUIET: usize = 6;

/// P99 of laser and commands, of its median without an attack in the same run.
const TIMES_QUIET: Bound = Bound::AtMost(1.5);
const RECEIVED: Bound = Bound::AtLeast(100.0);
/// Memory above that of the idle daemon.
const GROWTH_MB: Bound = Bound::AtMost(64.0);
/// The same 10 s after the attacker has gone: what an allocator keeps of a load.
const LEFT_MB: Bound = Bound::AtMost(16.0);
const NOTHING: Bound = Bound::AtMost(0.0);

const START_TIME: Duration = Duration::from_secs(14);
/// A phase beside its counted time and [`AFTER`].
const AROUND: Duration = Duration::from_secs(5);

/// What the base's file lets the attacker do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rights {
    /// Its key and no more.
    Default,
    /// All topics are taken, and its packets for others passed on, below commands and laser.
    Generous,
}

impl Rights {
    const ALL: [Self; 2] = [Self::Default, Self::Generous];

    /// For tables.
    fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Generous => "generous",
        }
    }

    /// What follows its key in the base's file.
    fn lines(self) -> &'static str {
        match self {
            Self::Default => "",
            Self::Generous => ", accept: \"/**\", relay: true, max_priority: 100",
        }
    }
}

#[derive(Serialize)]
struct AttackReport {
    case: &'static str,
    #[serde(flatten)]
    about: About,
    meant_per_s: u32,
    counted_s: f64,
    phases: Vec<Figures>,
    verdicts: Vec<Verdict>,
}

/// Runs the case with these kinds, or all; the report and raw samples go to `folder`.
pub fn run(
    setup: &DaemonSetup,
    kinds: &[Kind],
    folder: &Path,
    as_json: bool,
) -> Result<Conclusion> {
    let kinds = if kinds.is_empty() { Kind::value_variants() } else { kinds };
    let order = order(kinds);
    let progress = Progress::new(stages(&order));
    let mut phases = Vec::new();
    for rights in Rights::ALL {
        progress.next();
        let folder = folder.join(rights.name());
        std::fs::create_dir_all(&folder)?;
        let mut scene = Scene::new(setup, &folder, rights)?;
        for (number, kind) in order.iter().enumerate() {
            progress.next();
            let name = kind.map_or("quiet".into(), Kind::name);
            let figures = scene.phase(number, *kind);
            let figures = figures.with_context(|| format!("{}, {name}", rights.name()))?;
            if let Some(died) = &figures.died {
                progress.say(&format!("{NAME}: {}, {name}: {died}", rights.name()));
            }
            phases.push(figures);
        }
    }
    progress.finish();
    let verdicts = verdicts(&phases);
    let conclusion = Conclusion::of(&verdicts);
    let text = table(&phases) + "\n" + &verdict_lines(&verdicts);
    let (about, counted_s, meant_per_s) = (About::now(), COUNTED.as_secs_f64(), RATE_PER_S);
    let report = AttackReport { case: NAME, about, meant_per_s, counted_s, phases, verdicts };
    let raw = format!("report.json and raw samples are in {}", folder.display());
    let words = format!(
        "\n{NAME}: a peer sends the base {RATE_PER_S} packets/s, beside laser, images and commands \
         over 6 Mbps\n{text}\n{raw}"
    );
    tell(&report, folder, as_json, &words)?;
    Ok(conclusion)
}

/// The phases under the same rights; the last is quiet, too.
fn order(kinds: &[Kind]) -> Vec<Option<Kind>> {
    let between = |kinds: &[Kind]| {
        [&[None][..], &kinds.iter().copied().map(Some).collect::<Vec<_>>()].concat()
    };
    let mut order: Vec<_> = kinds.chunks(KINDS_BETWEEN_QUIET).flat_map(between).collect();
    order.push(None);
    order
}

fn stages(order: &[Option<Kind>]) -> Vec<(String, Duration)> {
    let mut stages = Vec::new();
    for rights in Rights::ALL {
        let rights = rights.name();
        stages.push((format!("{NAME}: {rights} rights: masters, daemons"), START_TIME));
        for kind in order {
            let kind = kind.map_or("quiet".into(), Kind::name);
            stages.push((format!("{NAME}: {rights} rights: {kind}"), COUNTED + AFTER + AROUND));
        }
    }
    stages
}

/// The quiet p99 of a flow under the same rights.
fn quiet_p99(phases: &[Figures], rights: Rights, flow: Flow) -> Option<f64> {
    let quiet = phases.iter().filter(|it| it.rights == rights && it.kind.is_none());
    median(quiet.map(|it| it.p99(flow)))
}

fn verdicts(phases: &[Figures]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for it in phases {
        let Some(kind) = it.kind else { continue };
        let name = format!("{} rights, {}", it.rights.name(), kind.name());
        let what = |text: &str| format!("{name}: {text}");
        let died = f64::from(u8::from(it.died.is_some()));
        verdicts.push(NOTHING.judge(what("daemons that died"), Some(died), ""));
        for flow in [Flow::Laser, Flow::Command] {
            let quiet = quiet_p99(phases, it.rights, flow);
            let times = quiet.map(|quiet| it.p99(flow) / quiet);
            let p99 = what(&format!("{} p99", flow.name()));
            verdicts.push(TIMES_QUIET.judge(p99, times, "times the quiet one"));
            let received = what(&format!("{} received", flow.name()));
            verdicts.push(RECEIVED.judge(received, Some(it.received_percent(flow)), "%"));
        }
        verdicts.push(GROWTH_MB.judge(what("memory grown"), Some(it.growth_mb()), "MB"));
        verdicts.push(LEFT_MB.judge(what("memory left"), it.left_mb(), "MB"));
        let left = (it.died.is_none()).then_some(it.left.len() as f64);
        verdicts.push(NOTHING.judge(what("other things left"), left, ""));
    }
    verdicts
}

fn table(phases: &[Figures]) -> String {
    let mut text = format!(
        "{:8} {:12} | {:>6} {:>7} {:>6} | {:>6} {:>7} {:>6} | {:>6} {:>7} {:>7} {:>4} {:>6} | {:>7} {:>6} {:>7} | died, left, refused\n",
        "rights",
        "kind",
        "laser%",
        "p99",
        "times",
        "comm.%",
        "p99",
        "times",
        "CPU%",
        "grown",
        "left MB",
        "fds",
        "lines",
        "pkts/s",
        "full%",
        "answ./s"
    );
    for it in phases {
        let kind = it.kind.map_or("quiet".into(), Kind::name);
        let _ = write!(text, "{:8} {kind:12}", it.rights.name());
        for flow in [Flow::Laser, Flow::Command] {
            let (received, p99) = (it.received_percent(flow), it.p99(flow));
            let times = p99 / quiet_p99(phases, it.rights, flow).unwrap_or(f64::NAN);
            let _ = write!(text, " | {received:>6.1} {p99:>7.2} {times:>6.2}");
        }
        let _ = writeln!(
            text,
            " | {:>6.1} {:>7.1} {:>7.1} {:>4} {:>6} | {:>7.0} {:>6.1} {:>7.0} | {}",
            it.toll.cpu_percent.unwrap_or(f64::NAN),
            it.growth_mb(),
            it.left_mb().unwrap_or(f64::NAN),
            it.toll.descriptors,
            it.toll.log_lines,
            it.received_per_s,
            it.overflowed_percent,
            it.answers_per_s,
            remarks(it)
        );
    }
    text
}

fn remarks(it: &Figures) -> String {
    let mut remarks: Vec<String> = Vec::new();
    if let Some(died) = &it.died {
        let first = died.split(';').next().unwrap_or_default();
        remarks.push(format!("DIED: {first}"));
    }
    if it.kind.is_some() && !it.agreed {
        remarks.push("the base did not agree to what it needs".into());
    }
    remarks.extend(it.left.iter().map(|left| format!("left: {left}")));
    remarks.extend(it.refused.iter().map(|(reason, count)| format!("{reason} {count}")));
    remarks.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_stands_between_quiet_phases() {
        let all = Kind::value_variants();
        let order = order(all);
        assert_eq!((order.first(), order.last()), (Some(&None), Some(&None)));
        assert_eq!(order.iter().flatten().count(), all.len());
        assert_eq!(stages(&order).len(), Rights::ALL.len() * (1 + order.len()));
    }
}
