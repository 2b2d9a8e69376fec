// SPDX-License-Identifier: Apache-2.0
//! Times until messages flow again after links, daemons, addresses or masters have been away, while
//! two rospy programs send each other 1 KB at 50 Hz.

mod figures;
mod interruption;
mod scene;

use crate::rig::clock::monotonic_ns;
use crate::rig::output::Output;
use crate::rig::processes::{make_folder, wait_for};
use crate::rig::progress::Progress;
use crate::rig::table::{self, bar, left, right};
use crate::rig::verdict::{Bound, Conclusion, Verdict, verdict_lines};
use crate::setup::daemon::DaemonSetup;
use crate::setup::usage::MachineTicks;
use anyhow::{Context, Result, ensure};
use figures::{Recovery, Row};
pub use interruption::Interruption;
use interruption::{Cause, REJOIN_MS, Turn};
use scene::{BASE, LIFESPAN, ROBOT, Scene};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// Name on the command line.
pub const NAME: &str = "recovery";

/// Default number of runs of each interruption.
pub const RUNS: u64 = 10;
/// A run without a message by then has not recovered.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time after the first message for which messages must keep flowing.
const WATCH: Duration = Duration::from_secs(2);
/// Random delay of interruptions and returns, so that they occur at any phase of the periodic work
/// of daemons and kernels: a kernel probes a neighbour once a second.
const PHASE_MS: std::ops::RangeInclusive<u64> = 0..=1000;
/// Time to start masters, daemons and programs until messages flow.
const START_TIME: Duration = Duration::from_secs(5);
/// Directions, each with the side of its subscriber.
const DIRECTIONS: [(&str, usize); 2] = [("robot to base", BASE), ("base to robot", ROBOT)];
const RECOVERED: Bound = Bound::AtLeast(100.0);
const REFERENCES: &str = "Elsewhere, after 5 s and with the Wi-Fi cards' joining again (papers): \
                          Pound 1.3 s at one hop, 1.5 s at two; RT-WMP 0.42-0.54 s\n";

/// Plan of the case.
pub struct Plan<'a> {
    /// Setup of the daemons.
    pub setup: &'a DaemonSetup,
    /// Interruptions to run; all if empty.
    pub only: &'a [Interruption],
    /// Duration of an outage, without its random part.
    pub outage: Duration,
    /// Runs of each interruption.
    pub runs: usize,
}

/// One run.
#[derive(Debug, Serialize)]
struct Run {
    robot_to_base: Recovery,
    base_to_robot: Recovery,
    /// Time without packets of a Wi-Fi card that rejoins, which the recovery times include.
    #[serde(skip_serializing_if = "Option::is_none")]
    rejoin_ms: Option<f64>,
    /// State of the neighbour entries of robot and base station when the outage ended; null without
    /// an entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    neighbours: Option<[Option<String>; 2]>,
}

/// All runs of one interruption.
#[derive(Debug, Serialize)]
struct Series {
    interruption: Interruption,
    machine_busy_percent: f64,
    runs: Vec<Run>,
}

#[derive(Serialize)]
struct Figures<'a> {
    outage_s: f64,
    rows: &'a [Row],
    series: &'a [Series],
}

/// Runs the case.
pub fn run(plan: &Plan, output: &Output) -> Result<Conclusion> {
    let kinds = plan.kinds();
    let progress = Progress::new(plan.stages(&kinds));
    let mut series = Vec::new();
    for &kind in &kinds {
        let folder = output.folder.join(kind.name());
        let tried = plan.repeat(kind, &folder, &progress);
        series.push(tried.with_context(|| format!("{NAME}, {}", kind.name()))?);
    }
    progress.finish();
    let rows: Vec<Row> = series.iter().flat_map(|series| series.rows(plan.outage)).collect();
    let verdicts = verdicts(&rows);
    let words = format!(
        " 1 KB at 50 Hz each way between rospy programs, over two daemons\n{}\n{}{REFERENCES}\n{}",
        table(&rows),
        verdict_lines(&verdicts),
        output.raw_line()
    );
    let figures = Figures { outage_s: plan.outage.as_secs_f64(), rows: &rows, series: &series };
    output.conclude(figures, verdicts, &words)
}

impl Plan<'_> {
    fn kinds(&self) -> Vec<Interruption> {
        let chosen = |kind: &Interruption| self.only.is_empty() || self.only.contains(kind);
        let all = <Interruption as clap::ValueEnum>::value_variants();
        all.iter().copied().filter(chosen).collect()
    }

    fn stages(&self, kinds: &[Interruption]) -> Vec<(String, Duration)> {
        let mut stages = Vec::new();
        for kind in kinds {
            let words = kind.words(self.outage);
            let stage = |text: String, time| (format!("{NAME}: {words}: {text}"), time);
            stages.push(stage("starting".into(), START_TIME));
            let time = kind.time(self.outage) + WATCH + Duration::from_secs(2);
            let run = |number| stage(format!("run {number} of {}", self.runs), time);
            stages.extend((1..=self.runs).map(run));
        }
        stages
    }

    /// Runs one interruption `runs` times. A scene that did not recover is replaced by a new one.
    fn repeat(&self, kind: Interruption, folder: &Path, progress: &Progress) -> Result<Series> {
        progress.enter_next();
        let mut random = fastrand::Rng::with_seed(1);
        let before = MachineTicks::now()?;
        let (mut scene, mut runs) = (None, Vec::new());
        for number in 1..=self.runs {
            let folder = folder.join(format!("run-{number}"));
            make_folder(&folder)?;
            let mut ready = match scene.take() {
                Some(ready) => ready,
                None => Scene::new(self.setup, kind.circumstances(), &folder.join("start"))?,
            };
            ensure!(ready.await_calm()?, "messages do not flow, although nothing was interrupted");
            progress.enter_next();
            let [phase, more, rejoin] =
                [PHASE_MS, PHASE_MS, REJOIN_MS].map(|ms| Duration::from_millis(random.u64(ms)));
            std::thread::sleep(phase);
            let turn = Turn { number, outage: self.outage + more, rejoin, folder: &folder };
            let run = try_once(&mut ready, kind, &turn)?;
            if run.is_steady() {
                scene = Some(ready);
            } else {
                progress.say(&format!("{NAME}: {}: run {number}: {}", kind.name(), run.words()));
            }
            runs.push(run);
        }
        let machine_busy_percent = MachineTicks::now()?.busy_percent_since(before);
        Ok(Series { interruption: kind, machine_busy_percent, runs })
    }
}

fn try_once(scene: &mut Scene, kind: Interruption, turn: &Turn) -> Result<Run> {
    scene.forget()?;
    let cause = kind.run(scene, turn)?;
    await_first(scene, &cause)?;
    std::thread::sleep(WATCH);
    scene.check_running()?;
    let end_ns = monotonic_ns();
    let mut recoveries = [Recovery::default(); 2];
    for (recovery, (direction, place)) in recoveries.iter_mut().zip(DIRECTIONS) {
        let arrivals = scene.arrivals(place)?;
        if let Some(silent_ns) = cause.silent_ns {
            let silent = silent_ns + LIFESPAN.as_nanos() as u64..cause.since.ns;
            let count = arrivals.iter().filter(|it| silent.contains(&it.received_ns)).count();
            ensure!(count == 0, "{direction}: {count} messages arrived during the interruption");
        }
        *recovery = cause.since.recovery(arrivals, end_ns);
    }
    let [robot_to_base, base_to_robot] = recoveries;
    let rejoin_ms = cause.rejoin.map(|silence| silence.as_secs_f64() * 1000.0);
    Ok(Run { robot_to_base, base_to_robot, rejoin_ms, neighbours: cause.neighbours })
}

/// Waits for a message in each direction, but not longer than the patience.
fn await_first(scene: &mut Scene, cause: &Cause) -> Result<()> {
    let give_up = cause.since.ns + PATIENCE.as_nanos() as u64;
    let patience = Duration::from_nanos(give_up.saturating_sub(monotonic_ns()));
    wait_for(patience, || {
        scene.check_running()?;
        let mut missing = false;
        for (_, place) in DIRECTIONS {
            missing |= cause.since.first(scene.arrivals(place)?).is_none();
        }
        Ok((!missing).then_some(()))
    })?;
    Ok(())
}

impl Run {
    fn directions(&self) -> [Recovery; 2] {
        [self.robot_to_base, self.base_to_robot]
    }

    fn is_steady(&self) -> bool {
        self.directions().iter().all(|recovery| recovery.steady_ms.is_some())
    }

    /// Describes what is wrong with a run that is not steady.
    fn words(&self) -> String {
        let wrong = |(recovery, (direction, _)): (Recovery, (&str, usize))| {
            let what = match recovery {
                Recovery { first_ms: None, .. } => format!("did not recover within {PATIENCE:?}"),
                Recovery { steady_ms: None, .. } => "messages do not flow".into(),
                _ => return None,
            };
            Some(format!("{direction}: {what}"))
        };
        let wrong: Vec<String> =
            self.directions().into_iter().zip(DIRECTIONS).filter_map(wrong).collect();
        wrong.join("; ")
    }
}

impl Series {
    fn rows(&self, outage: Duration) -> Vec<Row> {
        let words = self.interruption.words(outage);
        let mut rows = self.rows_less(words.clone(), |_| 0.0);
        if self.interruption == Interruption::Rejoin {
            let silence = |run: &Run| run.rejoin_ms.unwrap_or_default();
            rows.extend(self.rows_less(format!("{words}, less that"), silence));
        }
        rows
    }

    /// Returns one row per direction, with each run counted from `ms` later.
    fn rows_less(&self, words: String, ms: fn(&Run) -> f64) -> Vec<Row> {
        let row = |(index, (direction, _)): (usize, (&'static str, usize))| {
            let run = |run: &Run| run.directions()[index].less(ms(run));
            let runs: Vec<Recovery> = self.runs.iter().map(run).collect();
            Row::new(words.clone(), direction, &runs, self.interruption.target_ms())
        };
        DIRECTIONS.into_iter().enumerate().map(row).collect()
    }
}

/// Judges the medians against their targets, and whether every run recovered.
fn verdicts(rows: &[Row]) -> Vec<Verdict> {
    let judge = |row: &Row| {
        let what = format!("{}, {}", row.what, row.direction);
        Some(Bound::AtMost(row.target_ms?).judge(what, row.median_ms, "ms"))
    };
    let mut verdicts: Vec<Verdict> = rows.iter().filter_map(judge).collect();
    let sum = |of: fn(&Row) -> usize| rows.iter().map(of).sum::<usize>() as f64;
    let percent = 100.0 * sum(|row| row.recovered) / sum(|row| row.runs);
    verdicts.push(RECOVERED.judge(format!("recovered within {PATIENCE:?}"), Some(percent), "%"));
    verdicts
}

fn table(rows: &[Row]) -> String {
    let rows = table::format_rows(
        rows,
        &[
            left("until the first message, and until they flow", 46, |row: &Row| row.what.clone()),
            left("", 13, |row| row.direction.into()),
            right("recovered", 9, |row| format!("{}/{}", row.recovered, row.runs)),
            bar(),
            right("first ms", 8, |row| table::number(row.median_ms, 0)),
            right("max", 8, |row| table::number(row.max_ms, 0)),
            bar(),
            right("flows ms", 9, |row| table::number(row.steady_median_ms, 0)),
            right("max", 8, |row| table::number(row.steady_max_ms, 0)),
            bar(),
            right("target", 6, |row| table::or_dash(row.target_ms, 0)),
        ],
    );
    format!("{rows}Medians of all runs; NaN: did not recover within {PATIENCE:?}.\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(interruption: Interruption, first: [Option<f64>; 2], rejoin: Option<f64>) -> Series {
        let [robot_to_base, base_to_robot] =
            first.map(|first_ms| Recovery { first_ms, steady_ms: first_ms });
        let run = Run { robot_to_base, base_to_robot, rejoin_ms: rejoin, neighbours: None };
        Series { interruption, machine_busy_percent: 0.0, runs: vec![run] }
    }

    #[test]
    fn a_silent_direction_misses_its_target_and_is_reported() {
        let series = series(Interruption::AddressChange, [Some(20.0), None], None);
        let rows = series.rows(Duration::from_secs(5));
        let reached: Vec<bool> = verdicts(&rows).iter().map(|verdict| verdict.reached).collect();
        assert_eq!(reached, [true, false, false]);
        assert!(table(&rows).contains("NaN"));
        let words = series.runs[0].words();
        assert_eq!(words, "base to robot: did not recover within 30s");
    }

    #[test]
    fn the_silence_after_joining_again_is_in_one_row() {
        let series = series(Interruption::Rejoin, [Some(900.0); 2], Some(650.0));
        let rows = series.rows(Duration::from_secs(5));
        let medians: Vec<Option<f64>> = rows.iter().map(|row| row.median_ms).collect();
        assert_eq!(medians, [900.0, 900.0, 250.0, 250.0].map(Some));
    }
}
