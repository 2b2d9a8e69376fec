// SPDX-License-Identifier: Apache-2.0
//! The Bezier path of Park, Delgado and Choi, driven by a controller in the kitchen: odometry comes
//! and commands go over the radio.

use super::condition::Condition;
use super::stage::{Plan, Stage};
use super::team::{ROBOTS, Team, Transport};
use super::truth::{self, Record};
use crate::air::Punctuality;
use crate::rig::processes::Process;
use crate::rig::progress::Progress;
use crate::rig::stats::{percentile, worst};
use crate::setup::ros::{self, START_PATIENCE, WRITE_PATIENCE};
use anyhow::{Context, Result};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// Where the path begins in the arena without tables: on its diagonal, so that it fits.
const BEGIN: [f64; 3] = [0.6, 2.5, 0.0];
/// Longest time of one drive; the path takes about 9 s.
const DRIVE_PATIENCE: Duration = Duration::from_secs(40);
/// As long as a drive.
const DISTURBANCE: Duration = Duration::from_secs(11);
/// The path's points in its own frame, see `ros/restaurant/bezier.py`.
const POINTS: [[f64; 2]; 4] = [[0.0, 0.0], [1.5, 0.0], [0.5, 3.0], [2.0, 3.0]];
const PATH_SAMPLES: usize = 2000;

/// Where the controller is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Controller {
    /// On the robot itself.
    Local,
    /// In the kitchen.
    Kitchen,
}

/// One drive along the path.
#[derive(Debug, Serialize)]
pub struct Drive {
    /// ROS of the robots.
    pub team: Team,
    /// By what topics travelled.
    pub transport: Transport,
    /// Where the controller was.
    pub controller: Controller,
    /// What else ran.
    pub condition: Condition,
    /// Largest distance from the path, by the robot's odometry, metres.
    pub largest_error_m: f64,
    /// Root mean square of it, metres.
    pub rms_error_m: f64,
    /// Commands sent, and those that reached the wheels.
    pub commands: [usize; 2],
    /// From the command's publication to the wheels, ms: median, p99 and maximum of those that
    /// arrived.
    pub command_ms: Option<[f64; 3]>,
    /// Why the path was not driven to its end.
    pub trouble: Option<String>,
    /// Lateness of the radio's emulator.
    pub emulator: Punctuality,
}

/// Drives the path with the controller on the robot and in the kitchen, under each condition.
pub fn run(plan: &Plan<'_>, conditions: &[Condition], progress: &Progress) -> Result<Vec<Drive>> {
    progress.next();
    let stage =
        Stage::new(&Plan { navigate: false, cameras: false, world: &["--empty"], ..*plan })?;
    let _viewer = stage.viewer(false)?;
    let mut course = Course { stage, plan, number: 0 };
    let mut drives = Vec::new();
    for &condition in conditions {
        for controller in [Controller::Local, Controller::Kitchen] {
            progress.next();
            drives.push(course.drive(controller, condition)?);
        }
    }
    course.stage.close()?;
    Ok(drives)
}

struct Course<'a> {
    stage: Stage,
    plan: &'a Plan<'a>,
    number: u32,
}

impl Course<'_> {
    fn drive(&mut self, controller: Controller, condition: Condition) -> Result<Drive> {
        self.number += 1;
        let samples = self.plan.folder.join(format!("drive{}.csv", self.number));
        let name = format!("tracker{}", self.number);
        let computer = match controller {
            Controller::Local => 1,
            Controller::Kitchen => 0,
        };
        let _running = condition.start(&self.stage, self.plan.folder)?;
        self.stage.put(ROBOTS[0], BEGIN)?;
        let arguments = [ROBOTS[0].to_owned(), ros::text(&samples)?];
        let mut tracker = self.stage.script(computer, &name, "tracker", &arguments)?;
        tracker.await_line("ready", START_PATIENCE)?;
        self.stage.air.count_from_now();
        condition.disturb(&self.stage, DISTURBANCE);
        let trouble = follow(&mut tracker).err().map(|error| format!("{error:#}"));
        let emulator = self.stage.punctuality()?;
        tracker.end_input();
        tracker.await_line("written", WRITE_PATIENCE)?;
        self.stage.check()?;
        let records = truth::read(self.plan.folder)?;
        let sent = sent(&samples)?;
        let [begin, end] = [sent.first(), sent.last()].map(|it| it.map_or(0, |(_, ns)| *ns));
        let errors = errors(&records, begin..=end);
        let delays = delays(&records, &sent, begin);
        Ok(Drive {
            team: self.plan.team,
            transport: self.plan.transport,
            controller,
            condition,
            largest_error_m: worst(&errors),
            rms_error_m: (errors.iter().map(|it| it * it).sum::<f64>()
                / errors.len().max(1) as f64)
                .sqrt(),
            commands: [sent.len(), delays.len()],
            command_ms: spread(delays),
            trouble,
            emulator,
        })
    }
}

fn follow(tracker: &mut Process) -> Result<()> {
    tracker.send_line("go")?;
    tracker.await_line("done", DRIVE_PATIENCE).map(drop)
}

/// Returns numbers and times of the commands.
fn sent(samples: &Path) -> Result<Vec<(u64, u64)>> {
    let text = std::fs::read_to_string(samples)
        .with_context(|| format!("no samples in {}", samples.display()))?;
    let line = |line: &str| {
        let (number, ns) = line.split_once(',')?;
        Some((number.parse().ok()?, ns.parse().ok()?))
    };
    let parse = |it| line(it).with_context(|| format!("'{it}' in {}", samples.display()));
    text.lines().skip(1).map(parse).collect()
}

/// Returns the distances from the path, by the odometry, in a range of times.
fn errors(records: &[Record], times: std::ops::RangeInclusive<u64>) -> Vec<f64> {
    let path = path();
    let poses = records.iter().filter_map(|record| match record {
        Record::Poses { ns, odometry, .. } if times.contains(ns) => odometry.get(ROBOTS[0]),
        _ => None,
    });
    let distance = |pose: &truth::Pose| {
        let squares = path.iter().map(|[x, y]| (x - pose[0]).powi(2) + (y - pose[1]).powi(2));
        squares.fold(f64::INFINITY, f64::min).sqrt()
    };
    poses.map(distance).collect()
}

fn path() -> Vec<[f64; 2]> {
    let [p0, p1, p2, p3] = POINTS;
    let at = |index: usize| {
        let t = index as f64 / PATH_SAMPLES as f64;
        let s = 1.0 - t;
        let axis = |axis: usize| {
            s.powi(3) * p0[axis]
                + 3.0 * s * s * t * p1[axis]
                + 3.0 * s * t * t * p2[axis]
                + t.powi(3) * p3[axis]
        };
        [axis(0), axis(1)]
    };
    (0..=PATH_SAMPLES).map(at).collect()
}

/// Returns the delays from command to wheel, ms, of the commands that arrived since `begin`.
fn delays(records: &[Record], sent: &[(u64, u64)], begin: u64) -> Vec<f64> {
    let arrived = records.iter().filter_map(|record| match record {
        Record::Command { ns, command, .. } if *ns >= begin => Some((*command as u64, *ns)),
        _ => None,
    });
    let delay = |(number, ns): (u64, u64)| {
        let (_, sent) = sent.get(usize::try_from(number).ok()?.checked_sub(1)?)?;
        Some(ns.saturating_sub(*sent) as f64 / 1e6)
    };
    arrived.filter_map(delay).collect()
}

/// Returns median, p99 and maximum.
fn spread(delays: Vec<f64>) -> Option<[f64; 3]> {
    let at = |share| percentile(delays.clone(), share);
    (!delays.is_empty()).then(|| [at(0.5), at(0.99), at(1.0)])
}
