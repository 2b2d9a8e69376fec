// SPDX-License-Identifier: Apache-2.0
//! The ROS of each computer of the restaurant, and the transport of its topics.

use clap::ValueEnum;
use serde::Serialize;
use tautline_lab::setup::ros::Ros;

/// Name of the kitchen's station in `scenarios/restaurant.yaml`.
pub const KITCHEN: &str = "kitchen";
/// The robots, named as their stations and in `ros/arena.py`.
pub const ROBOTS: [&str; 2] = ["kobuki", "tetra"];

/// The ROS of the two robots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
pub enum Team {
    /// Kobuki runs ROS 1 and Tetra ROS 2.
    #[value(name = "1+2")]
    #[serde(rename = "1+2")]
    Mixed,
    /// Both run ROS 1.
    #[value(name = "1+1")]
    #[serde(rename = "1+1")]
    Ros1,
    /// Both run ROS 2.
    #[value(name = "2+2")]
    #[serde(rename = "2+2")]
    Ros2,
}

impl Team {
    /// Returns the ROS of the robots, in the order of [`ROBOTS`].
    pub fn robots(self) -> [Ros; 2] {
        match self {
            Self::Mixed => [Ros::One, Ros::Two],
            Self::Ros1 => [Ros::One; 2],
            Self::Ros2 => [Ros::Two; 2],
        }
    }

    /// Returns the ROS of the kitchen: the same as Tetra's, so that the kitchen can use the action
    /// of a ROS 2 robot.
    pub fn kitchen(self) -> Ros {
        self.robots()[1]
    }
}

/// The transport of topics between the computers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Each computer has its own master or domain; their daemons carry topics and actions.
    Tautline,
    /// One master in the kitchen, or one domain, for all computers.
    Plain,
}

/// The location of the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Controller {
    /// On the robot itself.
    Local,
    /// In the kitchen.
    Kitchen,
}

impl Controller {
    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "robot",
            Self::Kitchen => "kitchen",
        }
    }

    /// Returns the index of the controller's computer in [`super::stage::Stage::computers`].
    pub fn computer(self) -> usize {
        match self {
            Self::Local => 1,
            Self::Kitchen => 0,
        }
    }
}
