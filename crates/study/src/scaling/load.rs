// SPDX-License-Identifier: Apache-2.0
//! The load of a run: senders, echoers, messages and their frequency.

use anyhow::{Context, Result};
use serde::Serialize;
use std::path::PathBuf;

/// Bytes of the smallest text, in ROS 1: a length and the number of the message.
pub const SMALLEST_TEXT: usize = 4 + 15;
/// Bytes of a text with the thesis's payload of 11 bytes, a number and a time.
pub const THESIS_TEXT: usize = 32;
/// Bytes of a command, in ROS 1: as `geometry_msgs/Twist`.
const COMMAND_BYTES: usize = 48;
/// Commands per second of a robot. With [`SCAN_HZ`], one more robot is a small step in load, so the
/// highest load is known to within a seventh.
const COMMAND_HZ: f64 = 25.0;
/// Scans per second of a robot.
const SCAN_HZ: f64 = 5.0;
/// Bytes of a laser scan of 1040 beams, as a PR2 sends it in ROS 1.
pub const SCAN_BYTES: usize = 4227;
/// Bytes of an image of 640x480 with a Bayer pattern, in ROS 1.
pub const IMAGE_BYTES: usize = 640 * 480 + 67;

/// The messages that senders publish.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Contents {
    /// `std_msgs/String`, with its number of bytes in ROS 1.
    Text(usize),
    /// `sensor_msgs/LaserScan` of [`SCAN_BYTES`].
    Scan,
    /// `sensor_msgs/Image` of [`IMAGE_BYTES`].
    Image,
    /// Messages of a recorded topic, in turn.
    Recorded(Recording),
}

/// A topic of a rosbag or MCAP file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recording {
    /// The file.
    pub bag: PathBuf,
    /// The topic.
    pub topic: String,
}

impl Recording {
    /// Whether the file is a ROS 1 bag instead of MCAP.
    pub fn is_rosbag(&self) -> bool {
        self.bag.extension().is_some_and(|extension| extension == "bag")
    }
}

impl Contents {
    /// Returns the name on the command line of the nodes.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "text",
            Self::Scan => "scan",
            Self::Image => "image",
            Self::Recorded(_) => "recorded",
        }
    }

    /// Returns the bytes of a message in ROS 1; `None` if the recording decides.
    pub fn bytes(&self) -> Option<usize> {
        match self {
            Self::Text(bytes) => Some(*bytes),
            Self::Scan => Some(SCAN_BYTES),
            Self::Image => Some(IMAGE_BYTES),
            Self::Recorded(_) => None,
        }
    }

    /// Returns the options of `ros/echo.py`.
    pub fn options(&self) -> Result<Vec<String>> {
        let mut options = vec![format!("--kind={}", self.kind())];
        match self {
            Self::Text(bytes) => options.push(format!("--bytes={bytes}")),
            Self::Recorded(Recording { bag, topic }) => {
                let bag =
                    bag.to_str().with_context(|| format!("{} is not UTF-8", bag.display()))?;
                options.extend([format!("--bag={bag}"), format!("--topic={topic}")]);
            }
            Self::Scan | Self::Image => {}
        }
        Ok(options)
    }
}

/// Assignment of echoers to senders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pairing {
    /// Each sender has its own echoer, as in the thesis's experiments 1 to 8.
    Pairs,
    /// Every echoer answers every sender, as in the thesis's experiment 9.
    EveryToEvery,
}

/// The load of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// Number of senders, and of echoers.
    pub senders: usize,
    /// Assignment of echoers to senders.
    pub pairing: Pairing,
    /// The messages that senders publish.
    pub contents: Contents,
    /// Messages per second of each sender.
    pub hz: f64,
    /// The messages of every second sender and their frequency, if they differ from the others.
    pub companion: Option<(Contents, f64)>,
}

impl Load {
    /// Returns a load of `senders` pairs of a sender and an echoer.
    pub fn pairs(senders: usize, contents: Contents, hz: f64) -> Self {
        Self { senders, pairing: Pairing::Pairs, contents, hz, companion: None }
    }

    /// Returns the load of `robots` robots. Each has a sender of scans and a sender of commands; a command
    /// goes to its echoer and back, as in a control loop.
    pub fn robots(robots: usize) -> Self {
        let companion = Some((Contents::Text(COMMAND_BYTES), COMMAND_HZ));
        Self { companion, ..Self::pairs(2 * robots, Contents::Scan, SCAN_HZ) }
    }

    /// Returns a sender's messages, and their number per second.
    pub fn flow(&self, sender: usize) -> (&Contents, f64) {
        let own = (&self.contents, self.hz);
        let companion = self.companion.as_ref().filter(|_| sender % 2 == 1);
        companion.map_or(own, |(contents, hz)| (contents, *hz))
    }

    /// Returns the time between two messages of a sender.
    pub fn period_ns(&self, sender: usize) -> u64 {
        (1e9 / self.flow(sender).1).round() as u64
    }

    /// Returns the messages per second of all senders.
    pub fn offered_per_s(&self) -> f64 {
        (0..self.senders).map(|sender| self.flow(sender).1).sum()
    }

    /// Returns the numbers of the echoers that answer sender `number`. They are also the numbers of the
    /// senders that echoer `number` answers.
    pub fn counterparts(&self, number: usize) -> Vec<usize> {
        match self.pairing {
            Pairing::Pairs => vec![number],
            Pairing::EveryToEvery => (0..self.senders).collect(),
        }
    }

    /// Returns the number of echoes that each message causes.
    pub fn echoes(&self) -> usize {
        self.counterparts(0).len()
    }

    /// Returns the time within its period at which a sender begins. The starts are spread over the
    /// period by the golden ratio, which keeps them apart for any number of senders.
    pub fn phase_ns(&self, sender: usize) -> u64 {
        const GOLDEN: f64 = 0.618_033_988_749_895;
        ((sender as f64 * GOLDEN).fract() * self.period_ns(sender) as f64) as u64
    }

    /// Returns the name of the contents, for reports.
    pub fn kind(&self) -> &'static str {
        if self.companion.is_some() { "robots" } else { self.contents.kind() }
    }

    /// Returns the load in one word, for folders.
    pub fn name(&self) -> String {
        let bytes = match self.contents {
            Contents::Text(bytes) => format!("{bytes}B"),
            _ => self.contents.kind().into(),
        };
        let robots = if self.companion.is_some() { "-and-commands" } else { "" };
        format!("{}x-{bytes}-{}Hz{robots}", self.senders, self.hz)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_echoer_answers_every_sender_of_experiment_9() {
        let pairs = Load::pairs(3, Contents::Scan, 20.0);
        assert_eq!((pairs.counterparts(2), pairs.echoes()), (vec![2], 1));
        let all = Load { pairing: Pairing::EveryToEvery, ..pairs };
        assert_eq!((all.counterparts(2), all.echoes()), (vec![0, 1, 2], 3));
    }

    #[test]
    fn a_robot_has_a_scan_and_a_command() {
        let load = Load::robots(2);
        assert_eq!((load.senders, load.offered_per_s()), (4, 60.0));
        assert_eq!((load.flow(0), load.period_ns(0)), ((&Contents::Scan, 5.0), 200_000_000));
        assert_eq!((load.flow(3).1, load.period_ns(3)), (25.0, 40_000_000));
    }

    #[test]
    fn senders_start_at_different_times_within_one_period() {
        let load = Load::pairs(128, Contents::Scan, 10.0);
        let mut phases: Vec<u64> = (0..128).map(|sender| load.phase_ns(sender)).collect();
        phases.sort_unstable();
        assert!(phases.windows(2).all(|two| two[1] - two[0] > 200_000), "{phases:?}");
        assert!(phases.iter().all(|phase| *phase < load.period_ns(0)));
    }
}
