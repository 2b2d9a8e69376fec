// SPDX-License-Identifier: Apache-2.0
//! Figures of J. Park, R. Delgado, B. W. Choi, *Real-Time Characteristics of ROS 2.0 in Multiagent
//! Robot Systems: An Empirical Study*, IEEE Access, 2020, section V.
//!
//! The paper's ROS 1 ran on a standard kernel, its ROS 2 on a kernel with PREEMPT_RT.

use super::team::ROBOTS;
use tautline_lab::setup::ros::Ros;

/// Largest jitter of a control node with a period of 50 ms, ms. The indices are the robot
/// (Kobuki2, Tetra DS-IV), the ROS (1, 2) and the load (idle, stress).
const JITTER_MS: [[[f64; 2]; 2]; 2] = [[[4.03, 8.97], [2.57, 2.93]], [[2.56, 57.5], [0.166, 1.39]]];

/// Returns the largest jitter of a robot's control node, ms.
pub fn jitter_ms(robot: &str, ros: Ros, is_stressed: bool) -> f64 {
    let robot = usize::from(robot == ROBOTS[1]);
    JITTER_MS[robot][usize::from(ros == Ros::Two)][usize::from(is_stressed)]
}
