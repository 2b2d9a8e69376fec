// SPDX-License-Identifier: Apache-2.0
//! A peer with a valid key that turns against the base: the effect of each kind of its packets on
//! the messages of the others and on the daemon, and the leftovers after the attacker has left.
//!
//! The attacker has its own processor; everything else shares the first one, in every phase. A
//! phase in which the machine itself had scheduling delays ([`probe`]) is repeated before its
//! delays are evaluated. Deaths, memory growth and leftovers still count.

mod judge;
mod kinds;
mod probe;
mod scene;
mod toll;

use super::flood::ground::COUNTED;
use crate::rig::output::Output;
use crate::rig::output::name_in_reports;
use crate::rig::processes::make_folder;
use crate::rig::progress::Progress;
use crate::rig::table::{self, bar, left, number, right};
use crate::rig::verdict::{Conclusion, verdict_lines};
use crate::setup::daemon::DaemonSetup;
use crate::setup::flows::Flow;
use anyhow::{Context, Result};
use clap::ValueEnum;
use judge::{FLOWS, Quiet, quiet_lines, verdicts};
pub use kinds::Kind;
use probe::LATE_OVER_MS;
use scene::{AFTER, Figures, Scene};
use serde::Serialize;
use std::time::Duration;

/// Name on the command line.
pub const NAME: &str = "attack";

/// Packets of the attacker per second.
const RATE_PER_S: u32 = 20_000;
/// Largest number of attempts at a phase, which is repeated if the machine was late.
const ATTEMPTS: usize = 3;
/// Number of kinds between two baseline phases.
const KINDS_BETWEEN_QUIET: usize = 6;

const START_TIME: Duration = Duration::from_secs(14);
/// Time of a phase in addition to its counted time and [`AFTER`].
const AROUND: Duration = Duration::from_secs(5);

/// Rights of the attacker in the base's file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rights {
    /// The attacker's entry in the base's file has only its key.
    #[default]
    Default,
    /// The base accepts all topics of the attacker and relays its packets, at priorities below commands
    /// and laser.
    Generous,
}

impl Rights {
    const ALL: [Self; 2] = [Self::Default, Self::Generous];

    /// Returns the name in tables.
    fn name(self) -> String {
        name_in_reports(self)
    }

    /// Returns the text that follows the attacker's key in the base's file.
    fn lines(self) -> &'static str {
        match self {
            Self::Default => "",
            Self::Generous => ", accept: \"/**\", relay: true, max_priority: 100",
        }
    }
}

#[derive(Serialize)]
struct AllFigures<'a> {
    meant_per_s: u32,
    counted_s: f64,
    left_after_s: f64,
    machine_late_over_ms: f64,
    quiet: &'a [Quiet],
    /// All phases, including those that were repeated.
    phases: &'a [Figures],
}

/// Runs the case `runs` times with these kinds, or with all.
pub fn run(setup: &DaemonSetup, kinds: &[Kind], runs: u64, output: &Output) -> Result<Conclusion> {
    let kinds = if kinds.is_empty() { Kind::value_variants() } else { kinds };
    let order = order(kinds);
    let progress = Progress::new(stages(&order, runs));
    let mut phases = Vec::new();
    for rights in Rights::ALL {
        progress.enter_next();
        let folder = output.folder.join(rights.name());
        make_folder(&folder)?;
        let mut scene = Scene::new(setup, &folder, rights)?;
        let each = (1..=runs).flat_map(|run| order.iter().map(move |kind| (run, kind)));
        for (run, kind) in each {
            progress.enter_next();
            let name = format!("{}, {}", rights.name(), kind.map_or("quiet".into(), Kind::name));
            let say = |text: &str| progress.say(&format!("{NAME}: {name}: {text}"));
            let made = attempts(|| scene.phase(run, *kind), say);
            phases.extend(made.with_context(|| name.clone())?);
        }
    }
    progress.finish();
    let (quiet, verdicts) = (Quiet::baselines(&phases), verdicts(&phases));
    let words = format!(
        " a peer sends the base {RATE_PER_S} packets/s, alongside laser, images and commands \
         over 6 Mbps\n{}\n{}{}\n{}\n{}",
        table(&phases),
        quiet_lines(&quiet),
        late_line(&phases),
        verdict_lines(&verdicts),
        output.raw_line()
    );
    let figures = AllFigures {
        meant_per_s: RATE_PER_S,
        counted_s: COUNTED.as_secs_f64(),
        left_after_s: AFTER.as_secs_f64(),
        machine_late_over_ms: LATE_OVER_MS,
        quiet: &quiet,
        phases: &phases,
    };
    output.conclude(figures, verdicts, &words)
}

/// Returns the phases under the same rights; `None` stands for a baseline phase. The last phase is a
/// baseline.
fn order(kinds: &[Kind]) -> Vec<Option<Kind>> {
    let between = |kinds: &[Kind]| {
        [&[None][..], &kinds.iter().copied().map(Some).collect::<Vec<_>>()].concat()
    };
    let mut order: Vec<_> = kinds.chunks(KINDS_BETWEEN_QUIET).flat_map(between).collect();
    order.push(None);
    order
}

fn stages(order: &[Option<Kind>], runs: u64) -> Vec<(String, Duration)> {
    let mut stages = Vec::new();
    for rights in Rights::ALL {
        let rights = rights.name();
        stages.push((format!("{NAME}: {rights} rights: masters, daemons"), START_TIME));
        for kind in (0..runs).flat_map(|_| order) {
            let kind = kind.map_or("quiet".into(), Kind::name);
            stages.push((format!("{NAME}: {rights} rights: {kind}"), COUNTED + AFTER + AROUND));
        }
    }
    stages
}

/// Runs a phase, and repeats it while the machine was late; only the last attempt is judged.
fn attempts(
    mut phase: impl FnMut() -> Result<Figures>,
    say: impl Fn(&str),
) -> Result<Vec<Figures>> {
    let mut attempts = Vec::new();
    loop {
        let mut figures = phase()?;
        if let Some(died) = &figures.died {
            say(died);
        }
        figures.judged = !figures.machine_was_late() || attempts.len() + 1 == ATTEMPTS;
        let judged = figures.judged;
        attempts.push(figures);
        if judged {
            return Ok(attempts);
        }
        say("repeated, because the machine was late");
    }
}

/// Number of phases, and of phases in which the machine was late.
struct LateCount {
    phases: usize,
    late: usize,
    /// Late phases that are judged, after the last attempt.
    judged: usize,
}

impl LateCount {
    fn from_phases(phases: &[Figures], attacked: bool) -> Self {
        let all = phases.iter().filter(|it| it.kind.is_some() == attacked);
        let late = all.clone().filter(|it| it.machine_was_late());
        let judged = late.clone().filter(|it| it.judged).count();
        Self { phases: all.count(), late: late.count(), judged }
    }
}

/// Reports how often the machine was late, without an attack and with one, because the kernel's
/// work on packets may also make it late.
fn late_line(phases: &[Figures]) -> String {
    let [quiet, attacks] = [false, true].map(|attacked| LateCount::from_phases(phases, attacked));
    format!(
        "the machine was late (p99 over {LATE_OVER_MS} ms) in {} of {} quiet phases and \
         {} of {} under attack; {} were evaluated nevertheless, the others were repeated\n",
        quiet.late,
        quiet.phases,
        attacks.late,
        attacks.phases,
        quiet.judged + attacks.judged
    )
}

/// A row of the table.
struct Row<'a> {
    figures: &'a Figures,
    /// P99 of laser and commands, divided by its median without an attack.
    times_quiet: [f64; 2],
}

impl<'a> Row<'a> {
    fn new(figures: &'a Figures, phases: &[Figures]) -> Self {
        let times_quiet = FLOWS.map(|flow| {
            let quiet = Quiet::new(phases, figures.rights, flow);
            figures.p99(flow) / quiet.map_or(f64::NAN, |quiet| quiet.median_ms)
        });
        Self { figures, times_quiet }
    }
}

fn table(phases: &[Figures]) -> String {
    const LASER: Flow = FLOWS[0];
    const COMMAND: Flow = FLOWS[1];
    let rows: Vec<Row> = phases.iter().map(|it| Row::new(it, phases)).collect();
    table::format_rows(
        &rows,
        &[
            left("rights", 8, |row: &Row| row.figures.rights.name()),
            left("kind", 12, |row| row.figures.kind.map_or("quiet".into(), Kind::name)),
            bar(),
            right("laser", 7, |row| row.figures.received_of_sent(LASER)),
            right("p50", 6, |row| format!("{:.2}", row.figures.p50(LASER))),
            right("p99", 7, |row| format!("{:.2}", row.figures.p99(LASER))),
            right("times", 6, |row| format!("{:.2}", row.times_quiet[0])),
            bar(),
            right("command", 7, |row| row.figures.received_of_sent(COMMAND)),
            right("p50", 6, |row| format!("{:.2}", row.figures.p50(COMMAND))),
            right("p99", 7, |row| format!("{:.2}", row.figures.p99(COMMAND))),
            right("times", 6, |row| format!("{:.2}", row.times_quiet[1])),
            bar(),
            right("late", 6, |row| number(row.figures.machine_late_ms.map(|late| late.p99), 2)),
            right("CPU%", 6, |row| number(row.figures.toll.cpu_percent, 1)),
            right("grown", 7, |row| format!("{:.1}", row.figures.growth_mb())),
            right("left MB", 7, |row| number(row.figures.left_mb(), 1)),
            right("fds", 4, |row| row.figures.toll.descriptors.to_string()),
            right("lines", 6, |row| row.figures.toll.log_lines.to_string()),
            bar(),
            right("pkts/s", 7, |row| format!("{:.0}", row.figures.received_per_s)),
            right("full%", 6, |row| format!("{:.1}", row.figures.overflowed_percent)),
            right("answ./s", 7, |row| format!("{:.0}", row.figures.answers_per_s)),
            bar(),
            left("died, left, refused", 0, |row| remarks(row.figures)),
        ],
    )
}

fn remarks(it: &Figures) -> String {
    let mut remarks: Vec<String> = Vec::new();
    if !it.judged {
        remarks.push("made again".into());
    }
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
    use crate::rig::stats::Lateness;

    #[test]
    fn a_phase_is_repeated_while_the_machine_was_late() {
        let judged = |late_ms: &[Option<f64>]| {
            let mut late_ms = late_ms.iter();
            let phase = || {
                let late = late_ms.next().copied().flatten();
                let machine_late_ms = late.map(|p99| Lateness { p99, max: 9.0 });
                Ok(Figures { machine_late_ms, ..Figures::default() })
            };
            let made = attempts(phase, |_| ()).unwrap();
            (made.iter().map(|it| it.judged).collect::<Vec<_>>(), late_line(&made))
        };
        let late = Some(LATE_OVER_MS + 0.1);
        assert_eq!(judged(&[Some(LATE_OVER_MS)]).0, [true]);
        assert_eq!(judged(&[None]).0, [true]);
        assert_eq!(judged(&[late, Some(0.1)]).0, [false, true]);
        let (all, line) = judged(&[late; 3]);
        assert_eq!(all, [false, false, true]);
        assert!(line.contains("in 3 of 3 quiet phases and 0 of 0 under attack; 1 were"), "{line}");
    }

    #[test]
    fn every_kind_of_attack_is_between_quiet_phases() {
        let all = Kind::value_variants();
        let order = order(all);
        assert_eq!((order.first(), order.last()), (Some(&None), Some(&None)));
        assert_eq!(order.iter().flatten().count(), all.len());
        assert_eq!(stages(&order, 3).len(), Rights::ALL.len() * (1 + 3 * order.len()));
    }
}
