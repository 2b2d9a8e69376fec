// SPDX-License-Identifier: Apache-2.0
//! Forged handshake initiations over an interface other than the radio: their effect on a laser
//! alongside images on a link of 6 Mbps, on the daemons, and on a peer that restarts during the flood.
//!
//! The attacker has its own processor; everything else shares the first one, in every phase.

pub(super) mod attacker;
mod forgery;
pub(super) mod ground;
mod scene;

use crate::rig::output::Output;
use crate::rig::progress::Progress;
use crate::rig::stats::median;
use crate::rig::table::{self, bar, figure, left, number, right};
use crate::rig::verdict::{Bound, Conclusion, Verdict, verdict_lines};
use crate::setup::daemon::DaemonSetup;
use anyhow::Result;
use attacker::RATE_PER_S;
use forgery::Forgery;
use ground::{COUNTED, RECEIVED, TIMES_QUIET};
use scene::{Attack, Figures, FloodFigures, Meeting, Restart, Scene};
use serde::Serialize;
use std::fmt::Write;
use std::time::Duration;

/// Name on the command line.
pub const NAME: &str = "flood";

/// Rate of forged datagrams that the victim's kernel counted, percent of the intended rate.
const RATE_PERCENT: Bound = Bound::AtLeast(95.0);
/// Bytes sent to the attacker, percent of the bytes received from it.
const ANSWERED_PERCENT: Bound = Bound::AtMost(100.0);
const GROWTH_MB: Bound = Bound::AtMost(8.0);

const START_TIME: Duration = Duration::from_secs(8);
/// Time of a phase in addition to its counted time.
const AROUND: Duration = Duration::from_secs(4);
const MEETING_TIME: Duration = Duration::from_secs(6);

#[derive(Serialize)]
struct AllFigures<'a> {
    meant_per_s: u32,
    counted_s: f64,
    phases: &'a [Figures],
    meetings: &'a [Meeting],
}

/// Runs the case with `rounds` rounds.
pub fn run(setup: &DaemonSetup, rounds: u64, output: &Output) -> Result<Conclusion> {
    let progress = Progress::new(stages(rounds));
    progress.enter_next();
    let mut scene = Scene::new(setup, &output.folder)?;
    let (mut phases, mut meetings) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        for attack in attacks() {
            progress.enter_next();
            phases.push(scene.phase(round, attack)?);
        }
    }
    for restart in restarts() {
        progress.enter_next();
        meetings.push(scene.meetings(rounds, restart)?);
    }
    progress.finish();
    let verdicts = verdicts(&phases);
    let words = format!(
        " {RATE_PER_S} forged handshakes/s to one daemon of two, 6 Mbps between them\n{}\n{}\n{}",
        table(&phases, &meetings),
        verdict_lines(&verdicts),
        output.raw_line()
    );
    let figures = AllFigures {
        meant_per_s: RATE_PER_S,
        counted_s: COUNTED.as_secs_f64(),
        phases: &phases,
        meetings: &meetings,
    };
    output.conclude(figures, verdicts, &words)
}

/// Returns the phases of one round in order; `None` is the baseline without an attack.
fn attacks() -> Vec<Option<Attack>> {
    let on = |victim| Forgery::ALL.map(|forgery| Some(Attack { victim, forgery }));
    [&[None][..], &on(ground::BASE), &[None], &on(ground::ROBOT)].concat()
}

/// Returns all restarts; the attacks flood the base.
fn restarts() -> Vec<Restart> {
    let on_base = Forgery::ALL.map(|forgery| Some(Attack { victim: ground::BASE, forgery }));
    let attacks = [&[None][..], &on_base].concat();
    let both =
        |&attack: &Option<Attack>| [ground::ROBOT, ground::BASE].map(|who| Restart { who, attack });
    attacks.iter().flat_map(both).collect()
}

fn stages(rounds: u64) -> Vec<(String, Duration)> {
    let mut stages = vec![(format!("{NAME}: two ROS masters, two daemons"), START_TIME)];
    for round in 1..=rounds {
        for attack in attacks() {
            stages.push((format!("{NAME}: round {round}, {}", name(attack)), COUNTED + AROUND));
        }
    }
    for restart in restarts() {
        stages.push((format!("{NAME}: {}", restart.name()), MEETING_TIME * rounds as u32));
    }
    stages
}

/// Returns the name in tables and folders.
fn name(attack: Option<Attack>) -> String {
    attack.map_or("quiet".into(), |it| format!("{} to {}", it.forgery.name(), it.victim_name()))
}

fn verdicts(phases: &[Figures]) -> Vec<Verdict> {
    let of = |phase: &str, value: fn(&Figures) -> Option<f64>| {
        median(phases.iter().filter(|it| it.phase == phase).filter_map(value))
    };
    let quiet = of(&name(None), Figures::laser_p99);
    let mut verdicts = Vec::new();
    for attack in attacks().into_iter().flatten() {
        let phase = name(Some(attack));
        let what = |text: &str| format!("{phase}: {text}");
        let times = of(&phase, Figures::laser_p99).zip(quiet).map(|(p99, quiet)| p99 / quiet);
        verdicts.push(TIMES_QUIET.judge(what("laser p99"), times, "times the quiet one"));
        let received = of(&phase, |it| Some(it.laser.mdr_percent));
        verdicts.push(RECEIVED.judge(what("laser received"), received, "%"));
        let rate = of(&phase, Figures::rate_percent);
        verdicts.push(RATE_PERCENT.judge(what("forged handshakes"), rate, "% of those meant"));
        let answered = of(&phase, Figures::answered_percent);
        verdicts.push(ANSWERED_PERCENT.judge(what("bytes answered"), answered, "%"));
        let growth = of(&phase, |it| Some(it.growth_mb()));
        verdicts.push(GROWTH_MB.judge(what("memory grown"), growth, "MB"));
    }
    verdicts
}

fn table(phases: &[Figures], meetings: &[Meeting]) -> String {
    let mut text = table::format_rows(
        phases,
        &[
            right("round", 5, |it: &Figures| it.round.to_string()),
            left("phase", 18, |it| it.phase.clone()),
            bar(),
            right("laser%", 6, |it| format!("{:.1}", it.laser.mdr_percent)),
            right("p50", 6, |it| figure(it.laser.delay_ms, |delay| delay.p50, 2)),
            right("p99", 6, |it| figure(it.laser.delay_ms, |delay| delay.p99, 2)),
            right("max", 6, |it| figure(it.laser.delay_ms, |delay| delay.max, 2)),
            bar(),
            right("image ms", 8, |it| figure(it.image.delay_ms, |delay| delay.mean, 1)),
            bar(),
            right("robot%", 6, |it| format!("{:.1}", it.cpu_percent[0])),
            right("base%", 6, |it| format!("{:.1}", it.cpu_percent[1])),
            bar(),
            right("forged/s", 8, |it| it.flood_figure(|flood| flood.received_per_s, 0)),
            right("answer/s", 8, |it| it.flood_figure(|flood| flood.answers_per_s, 0)),
            right("bytes%", 6, |it| it.flood_figure(|flood| flood.answered_bytes_percent, 1)),
            right("full%", 6, |it| it.flood_figure(|flood| flood.overflowed_percent, 2)),
            bar(),
            left("refused", 0, |it| {
                let counts = it.refused.iter().map(|(reason, count)| format!("{reason} {count}"));
                counts.collect::<Vec<_>>().join(", ")
            }),
        ],
    );
    for Meeting { phase, seconds } in meetings {
        let all: Vec<String> = seconds.iter().map(|s| format!("{s:.2}")).collect();
        let _ = writeln!(text, "connected again, {phase}: {} s", all.join(", "));
    }
    text
}

impl Figures {
    /// Formats a figure of the flood; 0 without a flood.
    fn flood_figure(&self, of: fn(&FloodFigures) -> f64, decimals: usize) -> String {
        number(Some(self.flood.as_ref().map_or(0.0, of)), decimals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_stages_matches_the_progress() {
        let entered = |rounds: usize| 1 + rounds * attacks().len() + restarts().len();
        assert_eq!(stages(3).len(), entered(3));
    }
}
