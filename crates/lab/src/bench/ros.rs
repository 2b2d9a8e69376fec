// SPDX-License-Identifier: Apache-2.0
//! Real ROS 1 programs: masters, and the publishers and subscribers under `ros1/`.

use super::flows::Flow;
use super::world::Computer;
use crate::enclosure::SCRATCH;
use crate::processes::Process;
use crate::stats::Samples;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Longest wait for a ROS program to start; a roscore alone takes 3-4 s.
pub const START_PATIENCE: Duration = Duration::from_secs(40);
/// Longest wait for a program that only has to write its samples.
pub const WRITE_PATIENCE: Duration = Duration::from_secs(10);

const MASTER_PORT: u16 = 11311;
/// Debian's own programs first: its Python has ROS, another may not.
const PATH: &str = "/usr/bin:/bin:/usr/sbin:/sbin";

/// Where the rospy programs are.
pub fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("ros1")
}

/// The URI of the master on `computer`.
pub fn master_uri(computer: &Computer) -> String {
    format!("http://{}:{MASTER_PORT}", computer.address)
}

/// A ROS program on one computer.
pub struct RosProgram<'a> {
    /// Where it runs.
    pub computer: &'a Computer,
    /// Where its master is.
    pub master: &'a Computer,
    /// Where its log and its samples go.
    pub folder: &'a Path,
}

impl RosProgram<'_> {
    fn command(&self, program: &str, name: &str) -> Command {
        let home = format!("{SCRATCH}/{name}-home");
        let mut command = self.computer.command(program);
        command
            .env_clear()
            .envs([("PATH", PATH), ("LANG", "C.UTF-8"), ("PYTHONDONTWRITEBYTECODE", "1")])
            .env("HOME", &home)
            .env("ROS_HOME", &home)
            .env("ROS_LOG_DIR", format!("{home}/log"))
            .env("ROS_MASTER_URI", master_uri(self.master))
            .env("ROS_IP", &self.computer.address);
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

    /// Starts one of the programs under `ros1/`.
    pub fn python(&self, name: &str, script: &str, arguments: &[String]) -> Result<Process> {
        let mut command = self.command("/usr/bin/python3", name);
        command.arg(programs().join(script)).args(arguments);
        Process::start_talking(name, command, self.folder)
    }

    /// Starts a publisher that writes what it sent to `NAME.sent.csv`.
    pub fn publisher(&self, flow: Flow) -> Result<Process> {
        let arguments = [
            flow.name().into(),
            text(&sent_file(self.folder, flow))?,
            format!("--period-us={}", flow.period().as_micros()),
            format!("--queue={}", flow.publisher_queue()),
        ];
        self.python(&format!("{}-publisher", flow.name()), "publish.py", &arguments)
    }

    /// Starts a subscriber that writes what arrived to `NAME.received.csv`.
    pub fn subscriber(&self, flow: Flow, nodelay: bool) -> Result<Process> {
        let mut arguments = vec![flow.name().into(), text(&received_file(self.folder, flow))?];
        if nodelay {
            arguments.push("--nodelay".into());
        }
        self.python(&format!("{}-subscriber", flow.name()), "subscribe.py", &arguments)
    }
}

/// Raw samples of both ends of a flow.
pub fn samples(folder: &Path, flow: Flow) -> Result<Samples> {
    Samples::read(&sent_file(folder, flow), &received_file(folder, flow))
}

/// Raw samples of a publisher.
fn sent_file(folder: &Path, flow: Flow) -> PathBuf {
    folder.join(format!("{}.sent.csv", flow.name()))
}

/// Raw samples of a subscriber.
fn received_file(folder: &Path, flow: Flow) -> PathBuf {
    folder.join(format!("{}.received.csv", flow.name()))
}

fn text(path: &Path) -> Result<String> {
    Ok(path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?.to_owned())
}
