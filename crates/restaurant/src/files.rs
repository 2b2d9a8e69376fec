// SPDX-License-Identifier: Apache-2.0
//! The daemons' files, as the owner of the restaurant would write them.

use super::team::{KITCHEN, ROBOTS, Team};
use anyhow::Result;
use std::path::Path;
use tautline_lab::rig::node_file::NodeFile;
use tautline_lab::setup::daemon::ros_lines;
use tautline_lab::setup::ros::{Ros, ros2_folder};
use tautline_lab::setup::world::Computer;

/// Time without the kitchen's `enable` after which a robot stands.
pub const WATCHDOG_MS: u64 = 500;

/// Rules of the topics that a robot sends; `NAME` is the robot's.
const ROBOT_TOPICS: &str = "  /NAME/odom: { priority: 190, keep_last: 1, lifespan: 200ms }
  /NAME/move_base/status: { priority: 170, keep_last: 1 }
  /NAME/amcl_pose: { priority: 150, keep_last: 1 }
  /NAME/plan: { priority: 140, keep_last: 1 }
  /NAME/scan: { priority: 120, keep_last: 1 }
  /NAME/map: { priority: 60 }
  /NAME/plant/y: { priority: 190, keep_last: 1, lifespan: 200ms }
  /NAME/camera/**: { priority: 20, keep_last: 1, lifespan: 500ms }
  /tf: { priority: 130, rate: 10Hz }
  /tf_static: { priority: 130 }
";

/// Rules of the topics that the kitchen sends to the robot `NAME`.
const KITCHEN_TOPICS: &str =
    "  /NAME/cmd_vel: { priority: 220, keep_last: 1, lifespan: 200ms, to: NAME }
  /NAME/plant/u: { priority: 220, keep_last: 1, lifespan: 200ms, to: NAME }
  /NAME/display/**: { priority: 20, keep_last: 1, lifespan: 500ms, to: NAME }
  /NAME/enable: { priority: 210, keep_last: 1, lifespan: 400ms, to: NAME }
  /NAME/move_base_simple/goal: { priority: 200, keep_last: 1, to: NAME }
";

/// Rights that the robot `NAME` gives to the kitchen.
const FROM_KITCHEN: &str = "accept: {
      /NAME/cmd_vel: geometry_msgs/Twist, /NAME/enable: std_msgs/Bool,
      /NAME/move_base_simple/goal: geometry_msgs/PoseStamped,
      /NAME/plant/u: std_msgs/Float64, /NAME/display/**: sensor_msgs/CompressedImage }";

/// Rights that the kitchen gives to the robot `NAME`.
const FROM_ROBOT: &str = "accept: {
      /NAME/odom: nav_msgs/Odometry, /NAME/scan: sensor_msgs/LaserScan, /NAME/plan: nav_msgs/Path,
      /NAME/amcl_pose: geometry_msgs/PoseWithCovarianceStamped, /NAME/map: nav_msgs/OccupancyGrid,
      /NAME/move_base/status: actionlib_msgs/GoalStatusArray, /NAME/plant/y: std_msgs/Float64,
      /NAME/camera/**: sensor_msgs/CompressedImage,
      /NAME/navigate_to_pose: nav2_msgs/NavigateToPose,
      /tf: tf2_msgs/TFMessage, /tf_static: tf2_msgs/TFMessage }";

/// Returns the entry of a peer with `rights` for the robot of that name.
fn peer<'c>(computer: &'c Computer, rights: &str, robot: &str) -> (&'c str, String) {
    let (name, address) = computer.entry();
    (name, format!("{address}, {}", rights.replace("NAME", robot)))
}

/// Writes the files of all three nodes; `computers` are the kitchen and the robots.
pub fn write(team: Team, [kitchen, robots @ ..]: [&Computer; 3], folder: &Path) -> Result<()> {
    for (name, kind) in ROBOTS.into_iter().zip(team.robots()) {
        NodeFile {
            name,
            peers: vec![peer(kitchen, &from_kitchen(kind), name)],
            radios: String::new(),
            topics: ROBOT_TOPICS.replace("NAME", name),
            rest: robot_settings(name, kind),
        }
        .write(folder)?;
    }
    write_kitchen(team, &robots, folder)
}

/// Writes the file of the kitchen, which knows only these robots.
pub fn write_kitchen(team: Team, robots: &[&Computer], folder: &Path) -> Result<()> {
    NodeFile {
        name: KITCHEN,
        peers: robots.iter().map(|robot| peer(robot, FROM_ROBOT, &robot.name)).collect(),
        radios: String::new(),
        topics: robots.iter().map(|robot| KITCHEN_TOPICS.replace("NAME", &robot.name)).collect(),
        rest: ros(team.kitchen()),
    }
    .write(folder)?;
    Ok(())
}

/// Returns the lines that select the ROS of a node. ROS 2 needs the definitions for robots with ROS 1
/// and for watchdogs.
fn ros(kind: Ros) -> String {
    let lines = ros_lines(kind);
    match kind {
        Ros::One => lines,
        Ros::Two => {
            let folder = ros2_folder().display().to_string();
            lines.replace(" }", &format!(", definitions: {folder} }}"))
        }
    }
}

fn from_kitchen(kind: Ros) -> String {
    let call = if kind == Ros::Two { ", call: /NAME/navigate_to_pose" } else { "" };
    format!("{FROM_KITCHEN}{call}")
}

fn robot_settings(name: &str, kind: Ros) -> String {
    let mut rest = ros(kind);
    if kind == Ros::Two {
        rest.push_str(&format!("\nactions: [/{name}/navigate_to_pose]"));
    }
    rest.push_str(&format!(
        "\nwatchdogs:\n  /{name}/enable: {{ after: {WATCHDOG_MS}ms, message: {{ data: false }} }}\n  \
         /{name}/cmd_vel: {{ after: {WATCHDOG_MS}ms }}"
    ));
    rest
}
