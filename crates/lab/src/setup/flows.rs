// SPDX-License-Identifier: Apache-2.0
//! The load: three topics, each with one publisher and one subscriber.

use crate::rig::output::name_in_reports;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A topic of the load; `ros/flows.py` makes its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Flow {
    /// `sensor_msgs/LaserScan` of 1 KB at 50 Hz, robot to base.
    Laser,
    /// `sensor_msgs/CompressedImage` of 61 KB at 6.67 Hz, robot to base.
    Image,
    /// `geometry_msgs/Twist` at 50 Hz, base to robot.
    Command,
}

/// All flows, in the order of the tables.
pub const ALL: [Flow; 3] = [Flow::Laser, Flow::Image, Flow::Command];

impl Flow {
    /// Returns the short name, as in reports and files.
    pub fn name(self) -> String {
        name_in_reports(self)
    }

    /// Returns the time between two messages.
    pub fn period(self) -> Duration {
        match self {
            Flow::Laser | Flow::Command => Duration::from_millis(20),
            Flow::Image => Duration::from_millis(150),
        }
    }

    /// Returns the time from the start of the counted time to the first message. It differs between
    /// flows, so that they do not start together.
    pub fn offset(self) -> Duration {
        match self {
            Flow::Laser => Duration::ZERO,
            Flow::Image => Duration::from_millis(5),
            Flow::Command => Duration::from_millis(10),
        }
    }

    /// Returns the number of messages that rospy keeps for a slow connection (`queue_size`).
    pub fn publisher_queue(self) -> u32 {
        match self {
            Flow::Laser | Flow::Command => 100,
            Flow::Image => 10,
        }
    }

    /// Returns the ROS name of the topic.
    pub fn topic(self) -> &'static str {
        match self {
            Flow::Laser => "/scan",
            Flow::Image => "/camera/image/compressed",
            Flow::Command => "/cmd_vel",
        }
    }

    /// Whether the flow is sent by the robot to the base station.
    pub fn is_from_robot(self) -> bool {
        self != Flow::Command
    }

    /// Returns the number of messages in `time`, including the one sent at its start.
    pub fn count(self, time: Duration) -> u64 {
        time.as_micros().div_ceil(self.period().as_micros()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_seconds_hold_a_thousand_scans_and_134_images() {
        let time = Duration::from_secs(20);
        assert_eq!(Flow::Laser.count(time), 1000);
        assert_eq!(Flow::Image.count(time), 134);
    }
}
