// SPDX-License-Identifier: Apache-2.0
//! The compared systems: client libraries of publisher and subscriber, with or without Tautline
//! between them.

use anyhow::{Result, bail};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::Command;
use tautline_lab::rig::output::name_in_reports;
use tautline_lab::setup::ros::Ros;

/// A client library, with a probe program for it under `ros/dds/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    Rospy,
    Roscpp,
    Rclpy,
    Cyclone,
    Zenoh,
}

/// A system: publisher, middleware and subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// ROS 1 in Python.
    Rospy,
    /// ROS 1 in C++.
    Roscpp,
    /// ROS 2 in Python over Fast DDS with its default transports; on one computer, shared memory
    /// carries the messages.
    RclpyShm,
    /// ROS 2 in Python over Fast DDS with UDP only.
    RclpyUdp,
    /// Cyclone DDS in Python.
    Cyclone,
    /// zenoh in Python, over TCP; on one computer large messages pass through shared memory.
    Zenoh,
    /// rospy to rospy over two daemons, each with its own master.
    #[serde(rename = "tautline-1-1")]
    #[value(name = "tautline-1-1")]
    Tautline11,
    /// rospy to rclpy over two daemons.
    #[serde(rename = "tautline-1-2")]
    #[value(name = "tautline-1-2")]
    Tautline12,
    /// rclpy to rospy over two daemons.
    #[serde(rename = "tautline-2-1")]
    #[value(name = "tautline-2-1")]
    Tautline21,
    /// rclpy to rclpy over two daemons, each in its own domain.
    #[serde(rename = "tautline-2-2")]
    #[value(name = "tautline-2-2")]
    Tautline22,
}

impl System {
    /// Returns the name in reports and on the command line.
    pub fn name(self) -> String {
        name_in_reports(self)
    }

    /// Returns the name in tables for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Rospy => "ROS 1, rospy",
            Self::Roscpp => "ROS 1, roscpp",
            Self::RclpyShm => "ROS 2, rclpy, Fast DDS (shared memory)",
            Self::RclpyUdp => "ROS 2, rclpy, Fast DDS (UDP)",
            Self::Cyclone => "Cyclone DDS, Python",
            Self::Zenoh => "zenoh, Python",
            Self::Tautline11 => "Tautline, ROS 1 to ROS 1",
            Self::Tautline12 => "Tautline, ROS 1 to ROS 2",
            Self::Tautline21 => "Tautline, ROS 2 to ROS 1",
            Self::Tautline22 => "Tautline, ROS 2 to ROS 2",
        }
    }

    /// Returns the ROS on either side of Tautline; `None` without Tautline.
    pub fn sides(self) -> Option<[Ros; 2]> {
        match self {
            Self::Tautline11 => Some([Ros::One, Ros::One]),
            Self::Tautline12 => Some([Ros::One, Ros::Two]),
            Self::Tautline21 => Some([Ros::Two, Ros::One]),
            Self::Tautline22 => Some([Ros::Two, Ros::Two]),
            _ => None,
        }
    }

    /// Returns the client libraries of publisher and subscriber.
    pub fn clients(self) -> [Client; 2] {
        let of = |ros| if ros == Ros::One { Client::Rospy } else { Client::Rclpy };
        match (self, self.sides()) {
            (_, Some(sides)) => sides.map(of),
            (Self::Roscpp, _) => [Client::Roscpp; 2],
            (Self::RclpyShm | Self::RclpyUdp, _) => [Client::Rclpy; 2],
            (Self::Cyclone, _) => [Client::Cyclone; 2],
            (Self::Zenoh, _) => [Client::Zenoh; 2],
            _ => [Client::Rospy; 2],
        }
    }

    /// Whether a link between computers can carry the system's messages; shared memory cannot leave
    /// a computer.
    pub fn is_networked(self) -> bool {
        self != Self::RclpyShm
    }

    /// Whether publisher and subscriber in one process are a separate case. Fast DDS delivers
    /// within a process without a transport, and a daemon is never in the same process.
    pub fn has_in_process(self) -> bool {
        self.sides().is_none() && self != Self::RclpyUdp
    }

    /// Whether both ends are DDS, so that all QoS apply.
    pub fn is_dds(self) -> bool {
        let is = |client| matches!(client, Client::Rclpy | Client::Cyclone);
        self.sides().is_none() && self.clients().into_iter().all(is)
    }

    /// Explains what is missing to run the system; `None` if everything is installed.
    pub fn missing(self) -> Option<String> {
        let reasons = self.clients().map(|client| client.check_installed().err());
        reasons.into_iter().flatten().next().map(|error| format!("{error:#}"))
    }
}

/// Root of the source tree.
pub fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the folder of the probe programs.
fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("ros/dds")
}

impl Client {
    /// Returns its name for `probe.py`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rospy => "rospy",
            Self::Roscpp => "roscpp",
            Self::Rclpy => "rclpy",
            Self::Cyclone => "cyclone",
            Self::Zenoh => "zenoh",
        }
    }

    /// Whether it needs a ROS 1 master.
    pub fn is_ros1(self) -> bool {
        matches!(self, Self::Rospy | Self::Roscpp)
    }

    /// Returns the program and its first arguments.
    pub fn program(self) -> Result<Vec<PathBuf>> {
        self.check_installed()?;
        let probe = programs().join("probe.py");
        let python = match self {
            Self::Roscpp => return Ok(vec![roscpp(), self.name().into()]),
            Self::Rospy => "/usr/bin/python3".into(),
            Self::Rclpy => environment("kilted"),
            Self::Cyclone => environment("cyclone"),
            Self::Zenoh => environment("zenoh"),
        };
        Ok(vec![python, probe, self.name().into()])
    }

    /// Returns an error if its library is not installed.
    fn check_installed(self) -> Result<()> {
        let (is_here, fix) = match self {
            Self::Rospy => {
                let here = Path::new("/usr/lib/python3/dist-packages/rospy").is_dir();
                (here, "make setup (package python3-rospy)")
            }
            Self::Roscpp => {
                let header = |name| Path::new("/usr/include").join(name).is_file();
                let here = header("ros/ros.h") && header("std_msgs/UInt8MultiArray.h");
                (here, "crates/lab/setup.sh libroscpp-dev libstd-msgs-dev")
            }
            Self::Rclpy => (environment("kilted").is_file(), "crates/lab/ros2.sh kilted"),
            Self::Cyclone => (environment("cyclone").is_file(), "crates/lab/ros2.sh cyclone"),
            Self::Zenoh => (environment("zenoh").is_file(), "crates/lab/ros2.sh zenoh"),
        };
        if !is_here {
            bail!("{} is not installed; it is brought by: {fix}", self.name());
        }
        Ok(())
    }
}

/// Returns the Python of an environment that `ros2.sh` makes.
fn environment(name: &str) -> PathBuf {
    tree().join("target/ros2").join(name).join("bin/python")
}

/// Returns the path of the roscpp probe.
fn roscpp() -> PathBuf {
    tree().join("target/study-dds/roscpp")
}

/// Compiles the roscpp probe if necessary.
pub fn compile() -> Result<()> {
    let (source, program) = (programs().join("roscpp.cpp"), roscpp());
    let changed = |path: &Path| path.metadata().and_then(|it| it.modified()).ok();
    if changed(&program) > changed(&source) {
        return Ok(());
    }
    tautline_lab::rig::processes::make_folder(&tree().join("target/study-dds"))?;
    let flags = tautline_lab::rig::processes::run(
        Command::new("pkg-config").args(["--cflags", "--libs", "roscpp"]),
    )?;
    let mut compiler = Command::new("g++");
    compiler.args(["-O2", "-o"]).arg(&program).arg(&source).args(flags.split_whitespace());
    tautline_lab::rig::processes::run(&mut compiler).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_and_command_line_use_the_same_names() {
        for &system in <System as clap::ValueEnum>::value_variants() {
            assert_eq!(tautline_lab::rig::processes::word(system), system.name());
        }
    }
}
