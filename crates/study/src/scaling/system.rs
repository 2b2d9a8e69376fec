// SPDX-License-Identifier: Apache-2.0
//! The compared systems: a client library, and the transport of its topics between hosts.

use super::roscpp;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::Command;
use tautline_lab::rig::output::name_in_reports;
use tautline_lab::rig::processes::run;
use tautline_lab::setup::ros::{LOOPBACK, Middleware, Range};

/// A system that connects senders and echoers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum System {
    /// rospy over TCPROS, one master.
    Rospy,
    /// Like rospy, with TCP_NODELAY.
    RospyNodelay,
    /// roscpp over TCPROS, one master.
    Roscpp,
    /// Like roscpp, with TCP_NODELAY.
    RoscppNodelay,
    /// rclpy over Fast DDS.
    Rclpy,
    /// zenoh's Python library.
    Zenoh,
    /// rospy, a master on each host, and Tautline between them.
    Tautline,
    /// roscpp, a master on each host, and Tautline between them.
    TautlineRoscpp,
}

/// A client library of the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Library {
    /// ROS 1 in Python.
    Rospy,
    /// ROS 1 in C++.
    Roscpp,
    /// ROS 2 in Python.
    Rclpy,
    /// zenoh in Python.
    Zenoh,
}

impl Library {
    /// Returns the name on the command line of the nodes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rospy => "rospy",
            Self::Roscpp => "roscpp",
            Self::Rclpy => "rclpy",
            Self::Zenoh => "zenoh",
        }
    }

    /// Whether a lock allows only one running thread per process, so that the process cannot use
    /// more than one core.
    pub fn has_one_lock(self) -> bool {
        self != Self::Roscpp
    }

    /// Whether nodes find each other by a ROS master.
    pub fn has_master(self) -> bool {
        matches!(self, Self::Rospy | Self::Roscpp)
    }
}

impl System {
    /// Returns the name in reports and folders.
    pub fn name(self) -> String {
        name_in_reports(self)
    }

    /// Returns the client library of its nodes.
    pub fn client_library(self) -> Library {
        match self {
            Self::Rospy | Self::RospyNodelay | Self::Tautline => Library::Rospy,
            Self::Roscpp | Self::RoscppNodelay | Self::TautlineRoscpp => Library::Roscpp,
            Self::Rclpy => Library::Rclpy,
            Self::Zenoh => Library::Zenoh,
        }
    }

    /// Whether Tautline's daemons carry the topics.
    pub fn has_daemons(self) -> bool {
        matches!(self, Self::Tautline | Self::TautlineRoscpp)
    }

    /// Whether subscribers ask for TCP_NODELAY. Behind a daemon the connections are local, and
    /// Nagle's algorithm there is not measured.
    pub fn has_nodelay(self) -> bool {
        self.has_daemons() || matches!(self, Self::RospyNodelay | Self::RoscppNodelay)
    }

    /// Returns what is missing on this machine, and how to install it; `None` if the system is
    /// complete.
    pub fn missing(self) -> Option<String> {
        let test = |program: &Path, code: &str, advice: &str| {
            let mut python = Command::new(program);
            // These variables belong to the environment of another Python.
            python.env_remove("LD_LIBRARY_PATH").env_remove("_ROS_WHEELS_BOOTSTRAP_COMPLETE");
            run(python.args(["-c", code])).is_err().then(|| advice.to_owned())
        };
        match self.client_library() {
            Library::Rospy => test(
                Path::new("/usr/bin/python3"),
                "import rospy, std_msgs.msg, sensor_msgs.msg, rosmaster",
                "rospy and its messages are missing; crates/lab/setup.sh installs them",
            ),
            Library::Roscpp => roscpp::echo().err().map(|error| format!("{error:#}")),
            Library::Rclpy => test(
                &installed_python("kilted"),
                "import rclpy, sensor_msgs.msg",
                "rclpy is missing; crates/lab/ros2.sh kilted installs it",
            ),
            Library::Zenoh => test(
                &zenoh_python(),
                "import zenoh",
                "zenoh is missing; crates/lab/ros2.sh zenoh installs it",
            ),
        }
    }

    /// Returns the middleware of its nodes; `master` is the address of the common master.
    pub fn middleware(self, master: &str) -> Middleware<'_> {
        match self.client_library() {
            Library::Rclpy | Library::Zenoh => {
                Middleware::Ros2 { range: Range::Subnet, reliable: true }
            }
            _ if self.has_daemons() => Middleware::Ros1 { master: LOOPBACK, nodelay: true },
            _ => Middleware::Ros1 { master, nodelay: self.has_nodelay() },
        }
    }
}

/// Returns the Python that has zenoh.
pub fn zenoh_python() -> PathBuf {
    installed_python("zenoh")
}

/// Returns the Python of an environment that `crates/lab/ros2.sh` installs.
fn installed_python(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/ros2");
    folder.join(name).join("bin/python")
}

#[cfg(test)]
mod tests {
    use super::super::{experiment::Experiment, scene::Medium};
    use super::*;
    use clap::ValueEnum;
    use tautline_lab::rig::processes::word;

    #[test]
    fn names_in_reports_are_those_of_the_command_line() {
        fn check<T: ValueEnum + Serialize + Copy>() {
            T::value_variants().iter().for_each(|it| assert_eq!(word(*it), name_in_reports(*it)));
        }
        check::<System>();
        check::<Medium>();
        check::<Experiment>();
    }
}
