// SPDX-License-Identifier: Apache-2.0
//! The robots' reactions to faults during a drive.

use super::files::WATCHDOG_MS;
use super::stage::{Plan, Stage};
use super::team::{ROBOTS, Team};
use super::truth::{self, Pose, Record};
use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::Serialize;
use std::time::Duration;
use tautline_lab::air::Punctuality;
use tautline_lab::rig::clock::monotonic_ns;
use tautline_lab::rig::processes::{Process, wait_for, word};
use tautline_lab::rig::progress::Progress;
use tautline_lab::setup::ros::Ros;
use tautline_medium::{Outage, StationId};

/// The table that robots drive to: the farthest, so that there is time for a fault.
const TABLE: &str = "5";
/// Position of this table, metres.
const TABLE_AT: [f64; 2] = [0.4, 6.4];
/// Distance from the table within which a robot has reached it, metres.
const AT_TABLE_M: f64 = 0.9;
/// Distance from the dock at which a drive has begun, metres.
const UNDER_WAY_M: f64 = 1.0;
const BEGIN_PATIENCE: Duration = Duration::from_secs(30);
const SERVE_PATIENCE: Duration = Duration::from_secs(60);
/// Duration of an outage.
pub const OUTAGE: Duration = Duration::from_secs(5);
/// Time until a killed program is started again.
const RESTART: Duration = Duration::from_secs(2);
/// Maximum movement of a standing robot during [`STANDING`], metres.
const STANDING_M: f64 = 0.01;
/// Maximum turn of a standing robot during [`STANDING`], radians.
const STANDING_RAD: f64 = 0.03;
/// Time without movement after which a robot counts as standing.
const STANDING: Duration = Duration::from_millis(250);
/// Time in which a robot whose key is revoked must not move again.
const REVOKED: Duration = Duration::from_secs(8);

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// The robot's radio is out for five seconds: the robot stands after the watchdog's time, and
    /// continues when the radio is back.
    Outage,
    /// The robot's daemon is killed, and started again after two seconds: the robot continues,
    /// because it has its own ROS.
    Daemon,
    /// The robot's master is killed, and another started after two seconds: the robot continues.
    Master,
    /// The kitchen revokes the robot's key: the robot stays where it is, and the other robot serves.
    Revoked,
}

/// All faults, in their order.
pub const ALL: [Fault; 4] = [Fault::Outage, Fault::Daemon, Fault::Master, Fault::Revoked];

/// A robot's reaction to a fault.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// ROS of the robots.
    pub team: Team,
    /// The fault.
    pub fault: Fault,
    /// The affected robot.
    pub robot: &'static str,
    /// Seconds from the fault until the robot stopped; `None` if it did not, or should not.
    pub stood_after_s: Option<f64>,
    /// Seconds from the fault's end until the robot moved again, negative before the end; `None` if
    /// it did not move.
    pub moved_after_s: Option<f64>,
    /// Whether the robot reached its table before it stopped; `None` for faults in which it should
    /// stop earlier.
    pub reached_table_first: Option<bool>,
    /// Whether the order was served.
    pub served: bool,
    /// Whether the other robot's order, given after the fault, was served.
    pub other_served: Option<bool>,
    /// Contacts since the fault.
    pub collisions: usize,
    /// Lateness of the radio's emulator.
    pub emulator: Punctuality,
}

impl Fault {
    /// Whether a robot stops in this fault; otherwise it continues to its table.
    fn stops(self) -> bool {
        matches!(self, Self::Outage | Self::Revoked)
    }

    /// Whether the outcome meets the specification.
    pub fn is_as_specified(self, outcome: &Outcome) -> bool {
        let stood_in_time = outcome.stood_after_s.is_some_and(|it| it * 1e3 <= STOPPED_MS);
        let moved_soon = outcome.moved_after_s.is_some_and(|it| (0.0..=1.0).contains(&it));
        outcome.collisions == 0
            && match self {
                Self::Outage => stood_in_time && moved_soon && outcome.served,
                Self::Daemon | Self::Master => {
                    outcome.reached_table_first == Some(true) && outcome.served
                }
                Self::Revoked => {
                    stood_in_time
                        && outcome.moved_after_s.is_none()
                        && outcome.other_served == Some(true)
                }
            }
    }
}

/// Maximum time from a fault until the robot counts as standing, ms: the sum of the watchdog's time, one
/// period of the kitchen's `enable` and one of the controller, braking from full speed, and [`STANDING`].
const STOPPED_MS: f64 = WATCHDOG_MS as f64 + 200.0 + 50.0 + 900.0 + 250.0;

/// Runs the faults one after the other, each in a drive of its own.
pub fn run(plan: &Plan<'_>, faults: &[Fault], progress: &Progress) -> Result<Vec<Outcome>> {
    progress.enter_next();
    let mut stage = Stage::new(plan)?;
    let _viewer = stage.viewer(false)?;
    let waiter = stage.waiter()?;
    let mut scene = Scene { stage: &mut stage, plan, waiter };
    // The revoked robot cannot return, so this fault is last.
    let mut faults = faults.to_vec();
    faults.sort_by_key(|fault| *fault == Fault::Revoked);
    let mut outcomes = Vec::new();
    for fault in faults {
        progress.enter_next();
        if let Some(outcome) = scene.run(fault)? {
            outcomes.push(outcome);
        }
    }
    drop(scene);
    stage.close()?;
    Ok(outcomes)
}

struct Scene<'a> {
    stage: &'a mut Stage,
    plan: &'a Plan<'a>,
    waiter: Process,
}

impl Scene<'_> {
    /// Returns the robot that the fault affects.
    fn victim(&self, fault: Fault) -> Option<usize> {
        match fault {
            Fault::Outage | Fault::Daemon => Some(0),
            Fault::Master => self.plan.team.robots().iter().position(|kind| *kind == Ros::One),
            Fault::Revoked => Some(1),
        }
    }

    fn run(&mut self, fault: Fault) -> Result<Option<Outcome>> {
        let Some(robot) = self.victim(fault) else { return Ok(None) };
        let name = ROBOTS[robot];
        let _order = self.start_order(fault, TABLE, robot)?;
        self.await_under_way(name)?;
        self.stage.air.count_from_now();
        let begun = monotonic_ns();
        let over = self.cause_fault(fault, robot)?;
        let (served, other_served) = match fault {
            Fault::Revoked => (false, Some(self.other_serves(fault, 1 - robot)?)),
            _ => (self.await_served(fault, robot), None),
        };
        let records = truth::read(self.plan.folder)?;
        let first = first_stop(&records, name, begun);
        let stood = first.map(|(ns, _)| ns).filter(|_| fault.stops());
        let moved = stood.and_then(|stood| time_of_movement(&records, name, stood));
        let at_table =
            |pose: &Pose| (pose[0] - TABLE_AT[0]).hypot(pose[1] - TABLE_AT[1]) < AT_TABLE_M;
        Ok(Some(Outcome {
            team: self.plan.team,
            fault,
            robot: name,
            stood_after_s: stood.map(|stood| seconds(stood) - seconds(begun)),
            moved_after_s: moved.map(|moved| seconds(moved) - seconds(over)),
            reached_table_first: (!fault.stops())
                .then(|| first.is_some_and(|(_, pose)| at_table(pose))),
            served,
            other_served,
            collisions: truth::collisions(&records, begun).len(),
            emulator: self.stage.punctuality()?,
        }))
    }

    /// Causes the fault, and returns the time of its end.
    fn cause_fault(&mut self, fault: Fault, robot: usize) -> Result<u64> {
        match fault {
            Fault::Outage => {
                let outage = Outage::at(StationId(robot + 1));
                self.stage.air.outage(outage, true);
                std::thread::sleep(OUTAGE);
                self.stage.air.outage(outage, false);
            }
            Fault::Daemon => {
                self.stage.kill_daemon(robot);
                std::thread::sleep(RESTART);
                self.stage.restart_daemon(robot)?;
            }
            Fault::Master => self.stage.replace_master(robot, RESTART)?,
            Fault::Revoked => {
                self.stage.revoke(robot)?;
                std::thread::sleep(REVOKED);
            }
        }
        Ok(monotonic_ns())
    }

    fn start_order(&self, fault: Fault, table: &str, robot: usize) -> Result<Process> {
        let arguments = [prefix(fault, robot), format!("{table}:{}", ROBOTS[robot])];
        self.stage.script(0, &format!("guests-{}", arguments[0]), "guests", &arguments)
    }

    fn other_serves(&mut self, fault: Fault, robot: usize) -> Result<bool> {
        let _order = self.start_order(fault, "6", robot)?;
        Ok(self.await_served(fault, robot))
    }

    fn await_under_way(&mut self, robot: &str) -> Result<()> {
        let begin = truth::pose(self.plan.folder, robot)?.context("the arena has no robots")?;
        let away = wait_for(BEGIN_PATIENCE, || {
            let now = truth::pose(self.plan.folder, robot)?;
            Ok(now.filter(|now| distance(&begin, now) > UNDER_WAY_M))
        })?;
        away.with_context(|| format!("{robot} has not left its dock in {BEGIN_PATIENCE:?}"))?;
        Ok(())
    }

    /// Waits until the fault's order is served and the robot has returned; returns whether this
    /// happened.
    fn await_served(&mut self, fault: Fault, robot: usize) -> bool {
        let name = ROBOTS[robot];
        let served = format!("served {}-1 {name}", prefix(fault, robot));
        self.waiter.await_line(&served, SERVE_PATIENCE).is_ok()
            && self.waiter.await_line(&format!("home {name}"), SERVE_PATIENCE).is_ok()
    }
}

/// Returns the prefix of a fault's order number.
fn prefix(fault: Fault, robot: usize) -> String {
    format!("{}-{}", word(fault), ROBOTS[robot])
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn pose<'r>(record: &'r Record, robot: &str) -> Option<(u64, &'r Pose)> {
    match record {
        Record::Poses { ns, poses, .. } => Some((*ns, poses.get(robot)?)),
        _ => None,
    }
}

fn distance(one: &Pose, other: &Pose) -> f64 {
    (one[0] - other[0]).hypot(one[1] - other[1])
}

/// Returns the first time after `since` at which the robot had stood for [`STANDING`], and its pose then.
fn first_stop<'r>(records: &'r [Record], robot: &str, since: u64) -> Option<(u64, &'r Pose)> {
    let poses: Vec<(u64, &Pose)> =
        records.iter().filter_map(|it| pose(it, robot)).filter(|(ns, _)| *ns >= since).collect();
    let is_still = |(index, (ns, now)): &(usize, &(u64, &Pose))| {
        let before = &poses[..*index];
        let from = before.iter().rev().find(|(then, _)| ns - then >= STANDING.as_nanos() as u64);
        from.is_some_and(|(_, then)| {
            distance(then, now) < STANDING_M && (then[2] - now[2]).abs() < STANDING_RAD
        })
    };
    poses.iter().enumerate().find(is_still).map(|(_, found)| *found)
}

/// Returns when, after `since`, the robot left its position for the first time.
fn time_of_movement(records: &[Record], robot: &str, since: u64) -> Option<u64> {
    let mut poses = records.iter().filter_map(|it| pose(it, robot)).filter(|(ns, _)| *ns >= since);
    let (_, place) = poses.next()?;
    poses.find(|(_, now)| distance(place, now) > STANDING_M).map(|(ns, _)| ns)
}
