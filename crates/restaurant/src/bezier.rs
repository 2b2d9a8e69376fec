// SPDX-License-Identifier: Apache-2.0
//! The Bezier path of Park, Delgado and Choi, driven by a controller in the kitchen: odometry and
//! commands cross the radio.

use super::condition::Condition;
use super::stage::{Plan, Stage};
use super::team::{Controller, ROBOTS, Team, Transport};
use super::truth::{self, Record};
use anyhow::{Context, Result};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;
use tautline_lab::air::Punctuality;
use tautline_lab::rig::processes::Process;
use tautline_lab::rig::progress::Progress;
use tautline_lab::rig::stats::worst;
use tautline_lab::setup::ros::{self, START_PATIENCE, WRITE_PATIENCE};

/// The conditions under which robots drive.
pub const CONDITIONS: [Condition; 6] = [
    Condition::Idle,
    Condition::Stress,
    Condition::Cameras,
    Condition::Interference,
    Condition::HiddenStation,
    Condition::Everything,
];
/// Pose at the start of the path in the arena without tables. From here, the path fits into the arena.
const BEGIN: [f64; 3] = [0.6, 2.5, 0.0];
/// Maximum time of one drive; the path takes about 9 s.
const DRIVE_PATIENCE: Duration = Duration::from_secs(40);
/// Duration of the noise, longer than a drive along the path.
const DISTURBANCE: Duration = Duration::from_secs(11);

/// Distance from the path's end at which a robot has arrived, metres.
const ARRIVED_M: f64 = 0.2;

/// Name of the file with the path's points.
pub const PATH: &str = "path.json";

/// One drive along the path.
#[derive(Debug, Serialize)]
pub struct Drive {
    /// ROS of the robots.
    pub team: Team,
    /// The transport of the topics.
    pub transport: Transport,
    /// Location of the controller.
    pub controller: Controller,
    /// Further load during the run.
    pub condition: Condition,
    /// Largest distance from the path, by the robot's odometry, metres; `None` if nothing was driven.
    pub largest_error_m: Option<f64>,
    /// Root mean square of the distance, metres.
    pub rms_error_m: Option<f64>,
    /// Whether the robot stopped near the path's end.
    pub arrived: bool,
    /// Commands sent.
    pub sent: usize,
    /// Delays of the commands from publication to the wheels, ms.
    pub command_ms: Vec<f64>,
    /// Positions by odometry, from the path's start, metres.
    #[serde(skip)]
    pub driven: Vec<[f64; 2]>,
    /// Reason why the robot did not reach the path's end.
    pub trouble: Option<String>,
    /// Lateness of the radio's emulator; `None` if the programs did not start.
    pub emulator: Option<Punctuality>,
}

/// Drives the path with the controller on the robot and in the kitchen, under each condition.
pub fn run(
    plan: &Plan<'_>,
    conditions: &[Condition],
    drives: u32,
    progress: &Progress,
) -> Result<Vec<Drive>> {
    progress.enter_next();
    let stage =
        Stage::new(&Plan { navigate: false, cameras: false, world: &["--empty"], ..*plan })?;
    let _viewer = stage.viewer(false)?;
    let mut course = Course { stage, plan, number: 0 };
    let mut all = Vec::new();
    for &condition in conditions {
        progress.enter_next();
        // The runs alternate because the machine's load may change over time.
        for _ in 0..drives {
            for controller in [Controller::Local, Controller::Kitchen] {
                all.push(course.drive(controller, condition)?);
            }
        }
    }
    course.stage.close()?;
    Ok(all)
}

/// A series of drives on one stage.
struct Course<'a> {
    stage: Stage,
    plan: &'a Plan<'a>,
    number: u32,
}

impl Course<'_> {
    fn drive(&mut self, controller: Controller, condition: Condition) -> Result<Drive> {
        self.number += 1;
        let mut drive = Drive {
            team: self.plan.team,
            transport: self.plan.transport,
            controller,
            condition,
            largest_error_m: None,
            rms_error_m: None,
            arrived: false,
            sent: 0,
            command_ms: Vec::new(),
            driven: Vec::new(),
            trouble: None,
            emulator: None,
        };
        let trouble = self.plan.failure(self.track(&mut drive))?;
        drive.trouble = drive.trouble.or(trouble);
        Ok(drive)
    }

    /// Makes a drive, and fills in its results.
    fn track(&mut self, drive: &mut Drive) -> Result<()> {
        let samples = self.plan.folder.join(format!("drive{}.csv", self.number));
        let name = format!("tracker{}", self.number);
        let mut running = drive.condition.start(&self.stage, self.plan.folder)?;
        self.stage.put(ROBOTS[0], BEGIN)?;
        let path_file = self.plan.folder.join(PATH);
        let arguments = [ROBOTS[0].to_owned(), ros::utf8(&samples)?, ros::utf8(&path_file)?];
        let mut tracker =
            self.stage.script(drive.controller.computer(), &name, "tracker", &arguments)?;
        tracker.await_line("ready", START_PATIENCE)?;
        self.stage.air.count_from_now();
        drive.condition.disturb(&self.stage, DISTURBANCE);
        drive.trouble = follow(&mut tracker).err().map(|error| error.to_string());
        drive.emulator = Some(self.stage.punctuality()?);
        running.check()?;
        tracker.end_input();
        tracker.await_line("written", WRITE_PATIENCE)?;
        self.stage.check()?;
        drive.judge(&truth::read(self.plan.folder)?, &sent(&samples)?, &path(&path_file)?);
        Ok(())
    }
}

impl Drive {
    /// Computes the results of the drive from the simulator's record, the numbers and times of the sent
    /// commands, and the points of the path.
    fn judge(&mut self, records: &[Record], sent: &[(u64, u64)], path: &[[f64; 2]]) {
        let (Some((_, begin)), Some((_, end))) = (sent.first(), sent.last()) else { return };
        self.sent = sent.len();
        self.command_ms = delays(records, sent, *begin);
        self.driven = driven(records, *begin..=*end);
        let errors = errors(&self.driven, path);
        let squares = errors.iter().map(|it| it * it).sum::<f64>();
        if let (Some(last), Some(goal)) = (self.driven.last(), path.last()) {
            self.largest_error_m = Some(worst(&errors));
            self.rms_error_m = Some((squares / errors.len() as f64).sqrt());
            self.arrived = (last[0] - goal[0]).hypot(last[1] - goal[1]) < ARRIVED_M;
        }
    }
}

fn follow(tracker: &mut Process) -> Result<()> {
    tracker.send_line("go")?;
    tracker.await_line("done", DRIVE_PATIENCE).map(drop)
}

/// Reads the numbers and times, in nanoseconds, of the sent commands.
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

/// Returns the positions by odometry in a range of times.
fn driven(records: &[Record], times: std::ops::RangeInclusive<u64>) -> Vec<[f64; 2]> {
    let poses = records.iter().filter_map(|record| match record {
        Record::Poses { ns, odometry, .. } if times.contains(ns) => odometry.get(ROBOTS[0]),
        _ => None,
    });
    poses.map(|[x, y, _]| [*x, *y]).collect()
}

/// Returns the distance of each position from the path.
fn errors(driven: &[[f64; 2]], path: &[[f64; 2]]) -> Vec<f64> {
    let distance = |place: &[f64; 2]| {
        let squares = path.iter().map(|[x, y]| (x - place[0]).powi(2) + (y - place[1]).powi(2));
        squares.fold(f64::INFINITY, f64::min).sqrt()
    };
    driven.iter().map(distance).collect()
}

/// Reads the path that the tracker wrote.
fn path(file: &Path) -> Result<Vec<[f64; 2]>> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("no path in {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("no points in {}", file.display()))
}

/// Returns the delays from command to wheel, ms, of the commands that arrived since `begin`.
fn delays(records: &[Record], sent: &[(u64, u64)], begin: u64) -> Vec<f64> {
    let arrived = records.iter().filter_map(|record| match record {
        Record::Command { ns, command, .. } if *ns >= begin => Some((*command as u64, *ns)),
        _ => None,
    });
    let delay = |(number, ns): (u64, u64)| {
        let (_, sent) = sent.get(usize::try_from(number).ok()?.checked_sub(1)?)?;
        // Round to microseconds.
        Some((ns.saturating_sub(*sent) as f64 / 1e3).round() / 1e3)
    };
    arrived.filter_map(delay).collect()
}
