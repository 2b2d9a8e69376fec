// SPDX-License-Identifier: Apache-2.0
//! Forged handshake initiations over an interface other than the radio: their effect on a laser
//! alongside images on a link of 6 Mbps, on the daemons, and on a peer that restarts meanwhile.
//!
//! The attacker has its own processor; everything else shares the first one, in every phase.

pub(super) mod attacker;
mod forgery;
pub(super) mod ground;
mod scene;

use super::case::{Bound, Verdict};
use super::daemon::DaemonSetup;
use super::report::{About, Conclusion, tell, verdict_lines};
use crate::progress::Progress;
use crate::stats::median;
use anyhow::Result;
use attacker::RATE_PER_S;
use forgery::Forgery;
use ground::{COUNTED, RECEIVED, TIMES_QUIET};
use scene::{Attack, Figures, Meeting, Restart, Scene};
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;
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
struct FloodReport {
    case: &'static str,
    #[serde(flatten)]
    about: About,
    meant_per_s: u32,
    counted_s: f64,
    phases: Vec<Figures>,
    meetings: Vec<Meeting>,
    verdicts: Vec<Verdict>,
}

/// Runs the case with `rounds` rounds; the report and the raw samples go to `folder`.
pub fn run(setup: &DaemonSetup, rounds: u64, folder: &Path, as_json: bool) -> Result<Conclusion> {
    std::fs::create_dir_all(folder)?;
    let progress = Progress::new(stages(rounds));
    progress.next();
    let mut scene = Scene::new(setup, folder)?;
    let (mut phases, mut meetings) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        for attack in attacks() {
            progress.next();
            phases.push(scene.phase(round, attack)?);
        }
    }
    for restart in restarts() {
        progress.next();
        meetings.push(scene.meetings(rounds, restart)?);
    }
    progress.finish();
    let verdicts = verdicts(&phases);
    let text = table(&phases, &meetings) + "\n" + &verdict_lines(&verdicts);
    let (about, counted_s) = (About::now(), COUNTED.as_secs_f64());
    let conclusion = Conclusion::of(&verdicts);
    let meant_per_s = RATE_PER_S;
    let report =
        FloodReport { case: NAME, about, meant_per_s, counted_s, phases, meetings, verdicts };
    let raw = format!("report.json and raw samples are in {}", folder.display());
    let words = format!(
        "\n{NAME}: {RATE_PER_S} forged handshakes/s to one daemon of two, 6 Mbps between them\n{text}\n{raw}"
    );
    tell(&report, folder, as_json, &words)?;
    Ok(conclusion)
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
    let mut text = format!(
        "{:5} {:18} | {:>6} {:>6} {:>6} {:>6} | {:>8} | {:>6} {:>6} | {:>8} {:>8} {:>6} {:>6} | refused\n",
        "round",
        "phase",
        "laser%",
        "p50",
        "p99",
        "max",
        "image ms",
        "robot%",
        "base%",
        "forged/s",
        "answer/s",
        "bytes%",
        "full%"
    );
    for it in phases {
        let laser = it.laser.delay_ms.map_or([f64::NAN; 3], |d| [d.p50, d.p99, d.max]);
        let image = it.image.delay_ms.map_or(f64::NAN, |d| d.mean);
        let flood = it.flood.as_ref().map_or([0.0; 4], |f| {
            [f.received_per_s, f.answers_per_s, f.answered_bytes_percent, f.overflowed_percent]
        });
        let refused: Vec<String> =
            it.refused.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
        let _ = writeln!(
            text,
            "{:>5} {:18} | {:>6.1} {:>6.2} {:>6.2} {:>6.2} | {:>8.1} | {:>6.1} {:>6.1} | {:>8.0} {:>8.0} {:>6.1} {:>6.2} | {}",
            it.round,
            it.phase,
            it.laser.mdr_percent,
            laser[0],
            laser[1],
            laser[2],
            image,
            it.cpu_percent[0],
            it.cpu_percent[1],
            flood[0],
            flood[1],
            flood[2],
            flood[3],
            refused.join(", ")
        );
    }
    for meeting in meetings {
        let all: Vec<String> = meeting.seconds.iter().map(|s| format!("{s:.2}")).collect();
        let phase = &meeting.phase;
        let _ = writeln!(text, "met again, {phase}: {} s", all.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_stages_as_are_entered() {
        let entered = |rounds: usize| 1 + rounds * attacks().len() + restarts().len();
        assert_eq!(stages(3).len(), entered(3));
    }
}
