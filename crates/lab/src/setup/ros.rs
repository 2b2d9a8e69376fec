// SPDX-License-Identifier: Apache-2.0
//! Real ROS programs: ROS 1 masters, and the publishers and subscribers of both ROS under `ros/`.

use super::flows::Flow;
use super::world::{Computer, Pair};
use crate::rig::enclosure::SCRATCH;
use crate::rig::processes::Process;
use crate::rig::stats::{Samples, Summary};
use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Longest wait for a ROS program to start; a roscore takes 3-4 s.
pub const START_PATIENCE: Duration = Duration::from_secs(40);
/// Longest wait for a program that only has to write its samples.
pub const WRITE_PATIENCE: Duration = Duration::from_secs(10);

const MASTER_PORT: u16 = 11311;
/// Domain of every ROS 2 program.
pub const DOMAIN: u16 = 7;
/// Address of a robot's own master, because the robot's other address may change.
pub const LOOPBACK: &str = "127.0.0.1";
/// Messages in the history at both ends of ROS 2, as in its default profile.
const DEPTH: u32 = 10;
/// Debian's programs come first: its Python has ROS, another Python may not.
const PATH: &str = "/usr/bin:/bin:/usr/sbin:/sbin";

/// Which ROS all robots of a trial run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Ros {
    /// rospy; plain ROS 1 is TCPROS.
    #[value(name = "1")]
    One,
    /// rclpy; plain ROS 2 is Fast DDS.
    #[value(name = "2")]
    Two,
}

impl Ros {
    /// Returns the version: 1 or 2.
    pub fn number(self) -> u8 {
        match self {
            Ros::One => 1,
            Ros::Two => 2,
        }
    }
}

/// Returns the measured ROS 2 as `name==version` of its packages, or `unknown`, since a report is
/// useful without it.
pub fn ros2_packages() -> String {
    let list = std::fs::read_to_string(ros2_folder().join("installed"));
    list.map_or("unknown".into(), |list| list.trim().to_owned())
}

/// The middleware by which programs discover each other and communicate.
#[derive(Clone, Copy)]
pub enum Middleware<'a> {
    /// ROS 1.
    Ros1 {
        /// Address of the master.
        master: &'a str,
        /// Whether subscribers request TCP_NODELAY.
        nodelay: bool,
    },
    /// ROS 2 on [`DOMAIN`].
    Ros2 {
        /// Discovery range.
        range: Range,
        /// Whether QoS is reliable rather than best effort.
        reliable: bool,
    },
}

/// ROS 2's automatic discovery range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Range {
    /// This computer only.
    Localhost,
    /// Every computer that multicast reaches.
    Subnet,
}

impl<'a> Middleware<'a> {
    /// Returns a robot's own middleware, which does not extend beyond the robot.
    pub fn own(ros: Ros) -> Self {
        match ros {
            // Behind a daemon, the connection of the far subscriber is local. Nagle's algorithm
            // there is not measured.
            Ros::One => Self::Ros1 { master: LOOPBACK, nodelay: true },
            Ros::Two => Self::Ros2 { range: Range::Localhost, reliable: true },
        }
    }

    fn environment(self, computer: &Computer) -> Vec<(&'static str, String)> {
        match self {
            Self::Ros1 { master, .. } => {
                let host = if master == LOOPBACK { LOOPBACK } else { &computer.address };
                vec![("ROS_MASTER_URI", master_uri(master)), ("ROS_IP", host.into())]
            }
            Self::Ros2 { range, .. } => vec![
                ("ROS_DOMAIN_ID", DOMAIN.to_string()),
                ("ROS_AUTOMATIC_DISCOVERY_RANGE", range.name().into()),
                ("RMW_IMPLEMENTATION", "rmw_fastrtps_cpp".into()),
                // All computers share this machine's memory, and shared memory is faster than any
                // link.
                ("FASTDDS_BUILTIN_TRANSPORTS", "UDPv4".into()),
            ],
        }
    }

    /// Returns the option that the programs under `ros/` need for this middleware.
    fn options(self) -> Option<&'static str> {
        match self {
            Self::Ros1 { nodelay, .. } => nodelay.then_some("--nodelay"),
            Self::Ros2 { reliable, .. } => (!reliable).then_some("--best-effort"),
        }
    }

    /// Returns the number of messages kept for a slow connection.
    fn queue(self, flow: Flow) -> u32 {
        match self {
            Self::Ros1 { .. } => flow.publisher_queue(),
            Self::Ros2 { .. } => DEPTH,
        }
    }

    fn module(self) -> &'static str {
        match self {
            Self::Ros1 { .. } => "ros1",
            Self::Ros2 { .. } => "ros2",
        }
    }

    /// Returns the Python interpreter that has this middleware.
    fn interpreter(self) -> Result<PathBuf> {
        match self {
            Self::Ros1 { .. } => Ok("/usr/bin/python3".into()),
            Self::Ros2 { .. } => {
                let python = ros2_folder().join("bin/python");
                ensure!(
                    python.is_file(),
                    "no rclpy at {}: install it with 'crates/lab/ros2.sh kilted'",
                    python.display()
                );
                Ok(python)
            }
        }
    }
}

impl Range {
    fn name(self) -> &'static str {
        match self {
            Range::Localhost => "LOCALHOST",
            Range::Subnet => "SUBNET",
        }
    }
}

/// Returns the folder where `ros2.sh` installs the measured ROS 2.
pub fn ros2_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/ros2/kilted")
}

/// Returns the folder of the programs that run as ROS nodes.
pub fn script_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("ros")
}

/// Returns the URI of the master at that address.
pub fn master_uri(address: &str) -> String {
    format!("http://{address}:{MASTER_PORT}")
}

/// Gives a ROS program an environment that no setting of this machine affects, and a home of its
/// own.
pub fn settle<'c>(command: &'c mut Command, name: &str) -> &'c mut Command {
    let home = format!("{SCRATCH}/{name}-home");
    command
        .env_clear()
        .envs([("PATH", PATH), ("LANG", "C.UTF-8"), ("PYTHONDONTWRITEBYTECODE", "1")])
        .env("HOME", &home)
        .env("ROS_HOME", &home)
        .env("ROS_LOG_DIR", format!("{home}/log"))
}

/// A ROS program on one computer.
pub struct RosProgram<'a> {
    /// Computer that runs the program.
    pub computer: &'a Computer,
    /// Middleware of the program.
    pub middleware: Middleware<'a>,
    /// Folder of its log and its samples.
    pub folder: &'a Path,
}

impl<'a> RosProgram<'a> {
    /// Returns a program of ROS 1 on a computer with its own master.
    pub fn own(computer: &'a Computer, folder: &'a Path) -> Self {
        Self { computer, middleware: Middleware::own(Ros::One), folder }
    }

    fn command(&self, program: impl AsRef<OsStr>, name: &str) -> Command {
        let mut command = self.computer.command(program);
        settle(&mut command, name).envs(self.middleware.environment(self.computer));
        command
    }

    /// Starts a ROS master.
    pub fn roscore(&self) -> Result<Process> {
        let name = format!("roscore-{}", self.computer.name);
        let port = MASTER_PORT.to_string();
        let mut command = self.command("roscore", &name);
        command.args(["-p", &port]);
        Process::start(&name, command, self.folder)
    }

    /// Starts only the `rosmaster` of a roscore, which responds as the master. A roscore that is
    /// killed leaves its `rosmaster` running.
    pub fn rosmaster(&self) -> Result<Process> {
        let name = format!("rosmaster-{}", self.computer.name);
        let mut command = self.command("rosmaster", &name);
        command.args(["--core", "-p", &MASTER_PORT.to_string()]);
        Process::start(&name, command, self.folder)
    }

    /// Starts one of the programs under `ros/`, or one at an absolute path.
    pub fn python(
        &self,
        name: &str,
        script: impl AsRef<Path>,
        arguments: &[String],
    ) -> Result<Process> {
        let mut command = self.command(self.middleware.interpreter()?, name);
        command.arg(script_folder().join(script)).args(arguments);
        Process::start_talking(name, command, self.folder)
    }

    /// Starts a compiled ROS program, which communicates in lines.
    pub fn compiled(&self, name: &str, program: &Path, arguments: &[String]) -> Result<Process> {
        let mut command = self.command(program, name);
        command.args(arguments);
        Process::start_talking(name, command, self.folder)
    }

    /// Returns the registrations at the master, each as `KIND NAME NODE`.
    pub fn registrations(&self) -> Result<BTreeSet<String>> {
        let name = format!("registered-{}", self.computer.name);
        let mut listing = self.python(&name, "registered.py", &[])?;
        let mut entries = BTreeSet::new();
        loop {
            match listing.await_line("", START_PATIENCE)? {
                line if line == "end" => return Ok(entries),
                line => entries.insert(line),
            };
        }
    }

    /// Starts a publisher that writes its sent messages to `NAME.sent.csv`.
    pub fn publisher(&self, flow: Flow) -> Result<Process> {
        let mut arguments = self.arguments(flow, &sent_file(self.folder, flow))?;
        arguments.push(format!("--period-us={}", flow.period().as_micros()));
        self.python(&format!("{}-publisher", flow.name()), "publish.py", &arguments)
    }

    /// Starts a subscriber that writes its received messages to `NAME.received.csv`.
    pub fn subscriber(&self, flow: Flow) -> Result<Process> {
        let arguments = self.arguments(flow, &received_file(self.folder, flow))?;
        self.python(&format!("{}-subscriber", flow.name()), "subscribe.py", &arguments)
    }

    fn arguments(&self, flow: Flow, output: &Path) -> Result<Vec<String>> {
        let mut arguments = vec![
            self.middleware.module().into(),
            flow.name(),
            utf8(output)?,
            format!("--queue={}", self.middleware.queue(flow)),
        ];
        arguments.extend(self.middleware.options().map(String::from));
        Ok(arguments)
    }
}

/// Starts one master on the robot and one on the base station.
pub fn masters(pair: &Pair, folder: &Path) -> Result<Vec<Process>> {
    [&pair.robot, &pair.base].map(|it| RosProgram::own(it, folder).roscore()).into_iter().collect()
}

/// Reads the raw samples of both ends of a flow.
pub fn samples(folder: &Path, flow: Flow) -> Result<Samples> {
    Samples::read(&sent_file(folder, flow), &received_file(folder, flow))
}

/// Returns the figures of flows, from the raw samples of their ends.
pub fn summaries(folder: &Path, flows: &[Flow]) -> Result<BTreeMap<Flow, Summary>> {
    let summary = |&flow: &Flow| {
        samples(folder, flow).map(|samples| (flow, samples.summary(Some(flow.period()))))
    };
    flows.iter().map(summary).collect()
}

/// Returns the file of a publisher's raw samples.
fn sent_file(folder: &Path, flow: Flow) -> PathBuf {
    folder.join(format!("{}.sent.csv", flow.name()))
}

/// Returns the file of a subscriber's raw samples.
fn received_file(folder: &Path, flow: Flow) -> PathBuf {
    folder.join(format!("{}.received.csv", flow.name()))
}

/// Returns a path as the programs under `ros/` take it.
pub fn utf8(path: &Path) -> Result<String> {
    Ok(path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?.to_owned())
}
