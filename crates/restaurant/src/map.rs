// SPDX-License-Identifier: Apache-2.0
//! The mapping run: somebody in the kitchen drives Kobuki by keyboard while it maps.

use super::stage::{Plan, Stage};
use super::team::ROBOTS;
use super::truth::{self, Pose};
use anyhow::{Result, ensure};
use std::f64::consts::PI;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tautline_lab::rig::progress::Progress;
use tautline_lab::setup::ros::{self, START_PATIENCE};

/// Waypoints of the operator, metres.
const WAYPOINTS: &[[f64; 2]] =
    &[[2.0, 2.4], [1.6, 4.4], [1.6, 7.2], [1.6, 4.4], [1.2, 2.4], [1.6, 0.9]];
const ARRIVED_M: f64 = 0.25;
/// Time between two decisions of the operator.
const LOOK_PERIOD: Duration = Duration::from_millis(200);
/// Angle to the waypoint above which the operator turns the robot on the spot.
const TURN_RAD: f64 = 0.35;
/// Angle above which the operator drives a curve.
const CURVE_RAD: f64 = 0.1;
const PATIENCE: Duration = Duration::from_secs(240);
/// Index of the mapping robot in [`ROBOTS`].
const ROBOT: usize = 0;

/// Maps the restaurant, without the other robot; returns the path of the map's YAML file.
pub fn run(plan: &Plan<'_>, progress: &Progress) -> Result<PathBuf> {
    progress.enter_next();
    let world = &["--at=tetra=-3,-3,0"];
    let mut stage = Stage::new(&Plan { cameras: false, navigate: false, world, ..*plan })?;
    let stem = plan.folder.join("map");
    let name = ROBOTS[ROBOT].to_owned();
    let arguments = [name.clone(), ros::utf8(&stem)?];
    let mut mapper = stage.script(ROBOT + 1, "mapper", "mapper", &arguments)?;
    let mut teleop = stage.in_kitchen("teleop", &[name])?;
    progress.enter_next();
    let begun = Instant::now();
    for waypoint in WAYPOINTS {
        while let Some(key) = key_towards(plan, *waypoint)? {
            ensure!(begun.elapsed() < PATIENCE, "the operator has not arrived at {waypoint:?}");
            teleop.send_line(key)?;
            std::thread::sleep(LOOK_PERIOD);
        }
    }
    teleop.send_line("k")?;
    mapper.end_input();
    mapper.await_line("written", START_PATIENCE)?;
    stage.close()?;
    Ok(stem.with_extension("yaml"))
}

/// Returns the key that a person would press to drive to a waypoint; `None` at the waypoint.
fn key_towards(plan: &Plan<'_>, waypoint: [f64; 2]) -> Result<Option<&'static str>> {
    let pose = truth::pose(plan.folder, ROBOTS[ROBOT])?;
    Ok(pose.map_or(Some("k"), |pose| key(&pose, waypoint)))
}

fn key([x, y, theta]: &Pose, waypoint: [f64; 2]) -> Option<&'static str> {
    let (dx, dy) = (waypoint[0] - x, waypoint[1] - y);
    if dx.hypot(dy) < ARRIVED_M {
        return None;
    }
    let off = (dy.atan2(dx) - theta + PI).rem_euclid(2.0 * PI) - PI;
    Some(match off {
        off if off > TURN_RAD => "j",
        off if off < -TURN_RAD => "l",
        off if off > CURVE_RAD => "u",
        off if off < -CURVE_RAD => "o",
        _ => "i",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operator_turns_towards_the_waypoint() {
        assert_eq!(key(&[0.0, 0.0, 0.0], [2.0, 0.0]), Some("i"));
        assert_eq!(key(&[0.0, 0.0, 0.0], [2.0, 0.4]), Some("u"));
        assert_eq!(key(&[0.0, 0.0, 0.0], [0.0, 2.0]), Some("j"));
        assert_eq!(key(&[0.0, 0.0, PI], [-2.0, 1.0]), Some("l"));
        assert_eq!(key(&[2.0, 0.1, 0.0], [2.0, 0.0]), None);
    }
}
