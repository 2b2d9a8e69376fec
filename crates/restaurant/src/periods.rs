// SPDX-License-Identifier: Apache-2.0
//! Measures how well the robots' controllers keep their period of 50 ms while the robots serve,
//! after Park, Delgado and Choi (2020), section V.

use super::paper;
use super::stage::{Plan, Stage};
use super::team::{ROBOTS, Team};
use anyhow::Result;
use serde::Serialize;
use std::ops::Range;
use std::time::Duration;
use tautline_lab::air::Punctuality;
use tautline_lab::rig::clock::monotonic_ns;
use tautline_lab::rig::processes::Process;
use tautline_lab::rig::progress::Progress;
use tautline_lab::rig::stats::{Delay, delay, jitters, rows};
use tautline_lab::setup::ros::Ros;
use tautline_lab::setup::stress;

/// Period of the controllers, see `ros/controller.py`.
const PERIOD_MS: u64 = 50;
/// Duration of the measurement in each condition.
pub const WINDOW: Duration = Duration::from_secs(12);
/// Time from the start of a load to the measurement.
pub const WARM_UP: Duration = Duration::from_secs(2);
/// More orders than the robots serve during a measurement.
const ORDERS: u32 = 60;

/// Jitter of one robot's controller in one condition: deviations of the activation interval from
/// the period.
#[derive(Debug, Serialize)]
pub struct Jitter {
    /// ROS of the robots.
    pub team: Team,
    /// The robot.
    pub robot: &'static str,
    /// Number of its ROS.
    pub ros: u8,
    /// Whether controller and driver ran under SCHED_FIFO.
    pub is_fifo: bool,
    /// Whether stress-ng ran.
    pub is_stressed: bool,
    /// Number of periods.
    pub periods: usize,
    /// Mean, ms.
    pub mean_ms: f64,
    /// 99th percentile, ms.
    pub p99_ms: f64,
    /// Largest, ms.
    pub max_ms: f64,
    /// Largest jitter in the paper, ms.
    pub paper_max_ms: f64,
    /// Lateness of the radio's emulator.
    pub emulator: Punctuality,
}

/// A condition, with its start and end, ns.
struct Window {
    is_fifo: bool,
    is_stressed: bool,
    times: Range<u64>,
    emulator: Punctuality,
}

/// Measures both robots, with and without SCHED_FIFO and stress-ng, in one run. If SCHED_FIFO is not
/// possible, the reason is added to `notes`.
pub fn run(plan: &Plan<'_>, notes: &mut Vec<String>, progress: &Progress) -> Result<Vec<Jitter>> {
    progress.enter_next();
    let mut stage = Stage::new(plan)?;
    let _viewer = stage.viewer(false)?;
    let _waiter = stage.waiter()?;
    let _guests = stage.guests(ORDERS, plan.seed)?;
    let mut windows = Vec::new();
    for is_fifo in [false, true] {
        progress.enter_next();
        if is_fifo && let Err(error) = stage.prioritize_control() {
            notes.push(format!("skipped: periods under SCHED_FIFO: {error}"));
            continue;
        }
        for is_stressed in [false, true] {
            let mut load = is_stressed.then(|| stress::start(plan.folder)).transpose()?;
            std::thread::sleep(WARM_UP);
            stage.air.count_from_now();
            let begun = monotonic_ns();
            std::thread::sleep(WINDOW);
            let (times, emulator) = (begun..monotonic_ns(), stage.punctuality()?);
            windows.push(Window { is_fifo, is_stressed, times, emulator });
            load.as_mut().map_or(Ok(()), Process::check_running)?;
            stage.check()?;
        }
    }
    stage.close()?;
    let robots = ROBOTS.into_iter().zip(plan.team.robots());
    let of_robot = |(robot, ros)| windows.iter().map(move |it| jitter(plan, robot, ros, it));
    robots.flat_map(of_robot).collect()
}

fn jitter(plan: &Plan<'_>, robot: &'static str, ros: Ros, window: &Window) -> Result<Jitter> {
    let woke = rows::<1>(&plan.folder.join(format!("{robot}.periods.csv")))?;
    let woke: Vec<u64> =
        woke.into_iter().flatten().filter(|ns| window.times.contains(ns)).collect();
    let jitters = jitters(&woke, PERIOD_MS);
    let periods = jitters.len();
    let figures = delay(jitters);
    let of = |figure: fn(Delay) -> f64| figures.map_or(f64::NAN, figure);
    Ok(Jitter {
        team: plan.team,
        robot,
        ros: ros.number(),
        is_fifo: window.is_fifo,
        is_stressed: window.is_stressed,
        periods,
        mean_ms: of(|it| it.mean),
        p99_ms: of(|it| it.p99),
        max_ms: of(|it| it.max),
        paper_max_ms: paper::jitter_ms(robot, ros, window.is_stressed),
        emulator: window.emulator.clone(),
    })
}
