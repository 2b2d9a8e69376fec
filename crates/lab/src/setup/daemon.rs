// SPDX-License-Identifier: Apache-2.0
//! One `tautline run`, started as a user starts it.

use super::ros::{self, LOOPBACK, Ros};
use super::world::{Computer, Pair, SecondLink};
use crate::rig::node_file::{NodeFile, control};
use crate::rig::processes::{Process, run, wait_for};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Longest wait for two daemons to connect to their masters and to each other.
const MEETING_PATIENCE: Duration = Duration::from_secs(30);
/// Longest wait for a daemon to drain and unregister after SIGTERM.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// Rules of the topics that the robot sends.
const ROBOT_TOPICS: &str = "  /scan: { priority: 200 }
  /camera/image/compressed: { priority: 20, keep_last: 1, lifespan: 500ms }
  /robot/description: { priority: 50 }
  /many/**: { priority: 10 }
";
const BASE_TOPICS: &str = "  /cmd_vel: { priority: 220 }
";

/// Index of the robot's daemon.
pub const ROBOT: usize = 0;
/// Index of the base station's daemon.
pub const BASE: usize = 1;
/// Names of both daemons.
pub const NAMES: [&str; 2] = ["robot", "base"];

/// A running daemon.
pub struct Daemon {
    /// Process of the daemon.
    pub process: Process,
    program: PathBuf,
    control: String,
}

/// Option of all programs that start daemons.
#[derive(Debug, clap::Args)]
pub struct DaemonPath {
    /// Path of the daemon; by default the `tautline` in the folder of this program.
    #[arg(long)]
    tautline: Option<PathBuf>,
}

impl DaemonPath {
    /// Returns the absolute path.
    pub fn absolute(&self) -> Result<PathBuf> {
        let beside = std::env::current_exe()?.with_file_name("tautline");
        Ok(std::path::absolute(self.tautline.as_ref().unwrap_or(&beside))?)
    }
}

/// Setup of the daemons of a trial.
#[derive(Debug, Clone)]
pub struct DaemonSetup {
    /// The `tautline` program.
    pub program: PathBuf,
    /// ROS that the robots run.
    pub ros: Ros,
    /// `rate:` of the radio; `None` relies on local back-pressure.
    pub rate_bps: Option<u64>,
}

impl DaemonSetup {
    /// Starts the daemons of robot and base station, and waits until they are connected.
    pub fn start(&self, pair: &Pair, folder: &Path) -> Result<Vec<Daemon>> {
        let Pair { robot, base, .. } = pair;
        let mut daemons = vec![
            self.start_one(robot, base.entry(), ROBOT_TOPICS, folder)?,
            self.start_one(base, robot.entry(), BASE_TOPICS, folder)?,
        ];
        daemons.iter_mut().try_for_each(Daemon::await_connected)?;
        Ok(daemons)
    }

    /// Like [`Self::start`], with a second link.
    pub fn start_with(
        &self,
        pair: &Pair,
        second: &SecondLink,
        folder: &Path,
    ) -> Result<Vec<Daemon>> {
        let Pair { robot, base, .. } = pair;
        let [at_robot, at_base] = &second.addresses;
        let mut daemons = vec![
            self.start_one(robot, second.entry(base, at_base), ROBOT_TOPICS, folder)?,
            self.start_one(base, second.entry(robot, at_robot), BASE_TOPICS, folder)?,
        ];
        daemons.iter_mut().try_for_each(Daemon::await_connected)?;
        Ok(daemons)
    }

    /// Starts the daemon of a computer, with one peer ([`NodeFile::peers`]) and topic rules.
    pub fn start_one(
        &self,
        computer: &Computer,
        peer: (&str, String),
        topics: &str,
        folder: &Path,
    ) -> Result<Daemon> {
        let file = NodeFile {
            name: &computer.name,
            peers: vec![peer],
            radios: self.radios(computer),
            topics: topics.into(),
            rest: ros_lines(self.ros),
        };
        file.write(folder)?;
        self.run(computer, folder, folder)
    }

    /// Starts the daemon of a computer whose file is in `files`; its log goes to `logs`.
    pub fn run(&self, computer: &Computer, files: &Path, logs: &Path) -> Result<Daemon> {
        self.run_as(&computer.name, computer, files, logs)
    }

    /// Like [`Self::run`], for a node whose name differs from its computer's name.
    pub fn run_as(
        &self,
        node: &str,
        computer: &Computer,
        files: &Path,
        logs: &Path,
    ) -> Result<Daemon> {
        ensure!(
            self.program.is_file(),
            "no daemon at {}: build it with 'cargo build --release -p tautline-cli'",
            self.program.display()
        );
        let mut command = computer.command(&self.program);
        command.arg("run").arg(files.join(format!("{node}.yaml")));
        Ok(Daemon {
            process: Process::start(&format!("tautline-{node}"), command, logs)?,
            program: self.program.clone(),
            control: control(node),
        })
    }

    fn radios(&self, computer: &Computer) -> String {
        let line = |rate| format!("  {}: {{ rate: {}kbps }}\n", computer.interface, rate / 1000);
        self.rate_bps.map(line).unwrap_or_default()
    }
}

/// Returns the lines of a node's file that select a robot's own ROS.
pub fn ros_lines(ros: Ros) -> String {
    match ros {
        Ros::One => {
            let master = ros::master_uri(LOOPBACK);
            format!("ros1: {{ master: \"{master}\", host: {LOOPBACK} }}")
        }
        Ros::Two => {
            format!("ros1: false\nros2: {{ domain: {}, range: localhost }}", ros::DOMAIN)
        }
    }
}

impl Daemon {
    /// Returns the daemon's status (`tautline status --json`).
    pub fn status(&self) -> Result<Value> {
        let mut command = Command::new(&self.program);
        let said = run(command.args(["status", "--json", "--control", &self.control]))?;
        serde_json::from_str(&said).with_context(|| format!("no JSON from status: {said}"))
    }

    /// Makes the daemon take its changed file.
    pub fn reload(&self) -> Result<()> {
        let mut command = Command::new(&self.program);
        run(command.args(["reload", "--control", &self.control])).map(drop)
    }

    /// Waits until the daemon is connected to its ROS and its peer.
    pub fn await_connected(&mut self) -> Result<()> {
        self.await_status(is_connected)
    }

    /// Waits until the daemon's status meets a condition.
    pub fn await_status(&mut self, holds: impl Fn(&Value) -> bool) -> Result<()> {
        let mut status = None;
        let met = wait_for(MEETING_PATIENCE, || {
            self.process.check_running()?;
            let now = status.insert(self.status());
            Ok(now.as_ref().is_ok_and(&holds).then_some(()))
        })?;
        met.with_context(|| {
            format!(
                "the daemon has not connected to its ROS and its peer in {MEETING_PATIENCE:?}; status: {status:?}"
            )
        })
    }

    /// Ends the daemon as an operator does; fails unless it exits cleanly.
    pub fn end(&mut self) -> Result<()> {
        let status = self.process.terminate(END_PATIENCE)?;
        ensure!(status.success(), "the daemon ended with {status} after SIGTERM");
        Ok(())
    }
}

/// Writes the status of each daemon to `NAME.status.json`; returns them. Call it before publishers
/// end, because their topics end with them.
pub fn write_statuses(daemons: &[Daemon], folder: &Path) -> Result<Vec<Value>> {
    let write = |(daemon, name): (&Daemon, &str)| {
        let status = daemon.status()?;
        std::fs::write(folder.join(format!("{name}.status.json")), format!("{status:#}\n"))?;
        Ok(status)
    };
    daemons.iter().zip(NAMES).map(write).collect()
}

/// Returns the most frequent reason for which daemons have dropped messages, and the number of these
/// messages.
pub fn most_dropped(statuses: &[Value]) -> Option<(String, u64)> {
    let topics = statuses.iter().filter_map(|status| status["topics"].as_array()).flatten();
    let reasons = topics.filter_map(|topic| topic["dropped"].as_object()).flatten();
    let mut all: BTreeMap<&String, u64> = BTreeMap::new();
    for (reason, count) in reasons {
        *all.entry(reason).or_default() += count.as_u64().unwrap_or(0);
    }
    let most = all.into_iter().max_by_key(|(_, count)| *count).filter(|(_, count)| *count > 0);
    most.map(|(reason, count)| (reason.clone(), count))
}

fn is_connected(status: &Value) -> bool {
    let all = |list: &str, holds: fn(&Value) -> bool| {
        status[list]
            .as_array()
            .is_some_and(|entries| !entries.is_empty() && entries.iter().all(holds))
    };
    all("gateways", |gateway| gateway["connected"] == true)
        && all("peers", |peer| peer["state"] == "up")
}

/// What a node has sent since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// Packets or messages.
    pub count: u64,
    /// The sum of their bytes.
    pub bytes: u64,
}

/// Returns the packets that this node has sent over all its links, and their IP bytes.
pub fn link_sent(status: &Value) -> Option<Sent> {
    let links = status["links"].as_array()?;
    let sum = |key: &str| links.iter().map(|link| link[key].as_u64()).sum::<Option<u64>>();
    Some(Sent { count: sum("sent_packets")?, bytes: sum("sent_bytes")? })
}

/// Returns the messages of `topic` accepted for sending.
pub fn topic_sent(status: &Value, topic: &str) -> Option<Sent> {
    let entry = outgoing(status, topic)?;
    Some(Sent { count: entry["messages"].as_u64()?, bytes: entry["bytes"].as_u64()? })
}

fn outgoing<'a>(status: &'a Value, topic: &str) -> Option<&'a Value> {
    let mut entries = status["topics"].as_array()?.iter();
    entries.find(|entry| entry["topic"] == topic && entry["direction"] == "out")
}

/// Returns the messages of `topic` that this node cannot account for: accepted for sending, but
/// neither delivered, queued, sent with unknown outcome, nor dropped with a reason.
pub fn unaccounted_messages(status: &Value, topic: &str) -> Option<i64> {
    let entry = outgoing(status, topic)?;
    let number = |key: &str| entry[key].as_i64();
    let dropped: i64 = entry["dropped"].as_object()?.values().filter_map(Value::as_i64).sum();
    Some(number("messages")? - number("delivered")? - number("queued")? - number("sent")? - dropped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn messages_are_accounted_for_with_their_drops() {
        let topic = json!({"topic": "/scan", "direction": "out", "messages": 10, "delivered": 5,
            "queued": 1, "sent": 1, "dropped": {"expired": 2}});
        let status = json!({ "topics": [topic] });
        assert_eq!(unaccounted_messages(&status, "/scan"), Some(1));
        assert_eq!(unaccounted_messages(&status, "/other"), None);
    }

    #[test]
    fn a_daemon_without_its_master_or_peer_is_not_connected() {
        let mut status = json!({"gateways": [{"connected": true}], "peers": [{"state": "up"}]});
        assert!(is_connected(&status));
        status["peers"][0]["state"] = json!("connecting");
        assert!(!is_connected(&status));
        assert!(!is_connected(&json!({"gateways": [], "peers": []})));
    }
}
