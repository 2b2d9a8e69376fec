// SPDX-License-Identifier: Apache-2.0
//! Two computers, a system between them, and a sender and a receiver that run the cells in
//! sequence.

use crate::realtime::condition::last_cpu;
use anyhow::{Context as _, Result};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tautline_lab::rig::node_file::NodeFile;
use tautline_lab::rig::processes::Process;
use tautline_lab::rig::stats::rows;
use tautline_lab::setup::daemon::{Daemon, DaemonSetup};
use tautline_lab::setup::iperf::Iperf;
use tautline_lab::setup::load::FIRST_PATIENCE;
use tautline_lab::setup::ros::{
    LOOPBACK, Middleware, Range, Ros, RosProgram, START_PATIENCE, WRITE_PATIENCE, master_uri,
    masters, utf8,
};
use tautline_lab::setup::world::{Computer, Link, Pair};

/// Messages kept at both ends, as in the paper.
const DEPTH: u32 = 10;
/// Rules of the daemons; both topics matter equally.
const TOPICS: &str = "  \"/**\": { priority: 200 }\n";
/// SCHED_FIFO priority of a daemon in real time.
const DAEMON_PRIORITY: u8 = 50;
/// Maximum wait for messages in transit after a cell, seconds.
const SETTLE_S: u64 = 6;
/// Maximum time by which a cell may exceed its plan.
const LATENESS: Duration = Duration::from_secs(60);

/// The system that carries the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// rospy at both ends, one master, TCPROS.
    Rospy,
    /// rclpy at both ends over Fast DDS.
    Rclpy,
    /// rospy at both ends with a master each, and two daemons as normal threads.
    Tautline,
    /// Like [`Self::Tautline`], with the daemons under SCHED_FIFO, pinned, and with locked memory.
    TautlineFifo,
}

/// All systems, in the order of the tables.
pub const SYSTEMS: [System; 4] =
    [System::Rospy, System::Rclpy, System::Tautline, System::TautlineFifo];

impl System {
    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rospy => "rospy",
            Self::Rclpy => "rclpy",
            Self::Tautline => "Tautline",
            Self::TautlineFifo => "Tautline, SCHED_FIFO",
        }
    }

    /// Returns the name in one word, for files.
    pub fn word(self) -> &'static str {
        match self {
            Self::TautlineFifo => "tautline-fifo",
            Self::Tautline => "tautline",
            other => other.name(),
        }
    }

    fn middleware(self, pair: &Pair) -> Middleware<'_> {
        match self {
            Self::Rospy => Middleware::Ros1 { master: &pair.robot.address, nodelay: true },
            Self::Rclpy => Middleware::Ros2 { range: Range::Subnet, reliable: true },
            Self::Tautline | Self::TautlineFifo => Middleware::own(Ros::One),
        }
    }
}

/// A size and a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// Characters of a message's text.
    pub bytes: u32,
    /// Messages per second.
    pub rate_hz: u32,
}

impl Cell {
    /// Returns the number of messages that are sent in `time`.
    pub fn count(self, time: Duration) -> u64 {
        (time.as_secs_f64() * f64::from(self.rate_hz)).ceil() as u64
    }
}

/// A sender's report after a cell.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    /// Lateness of the last message.
    pub behind: Duration,
    /// Total time that the sender spent inside `publish`.
    pub in_publish: Duration,
}

/// Raw samples of all cells of a session.
pub struct Samples {
    /// `cell,sequence,sent_ns,replied_ns`.
    pub sent: Vec<[u64; 4]>,
    /// `cell,sequence,received_ns`.
    pub received: Vec<[u64; 3]>,
}

/// The running programs of a session. Fields are dropped in this order.
pub struct Session {
    sender: Process,
    receiver: Process,
    files: [PathBuf; 2],
    _daemons: Vec<Daemon>,
    _masters: Vec<Process>,
    /// The two computers.
    pub pair: Pair,
}

impl Session {
    /// Starts everything and waits until a message, and with `reply` its reply, has arrived.
    pub fn start(
        system: System,
        link: Link,
        reply: bool,
        program: &Path,
        (folder, name): (&Path, &str),
    ) -> Result<Self> {
        let pair = Pair::new(link, 1)?;
        let masters = match system {
            System::Rospy => {
                let middleware = system.middleware(&pair);
                vec![RosProgram { computer: &pair.robot, middleware, folder }.roscore()?]
            }
            System::Rclpy => Vec::new(),
            System::Tautline | System::TautlineFifo => masters(&pair, folder)?,
        };
        let daemons = daemons(system, &pair, program, folder)?;
        let files = ["sent", "received"].map(|end| folder.join(format!("{name}.{end}.csv")));
        let start = |role: &str, computer, file: &Path| {
            let middleware = system.middleware(&pair);
            let ros = if system == System::Rclpy { "ros2" } else { "ros1" };
            let mut arguments =
                vec![ros.into(), role.into(), utf8(file)?, format!("--queue={DEPTH}")];
            arguments.extend(reply.then(|| "--reply".into()));
            let program = RosProgram { computer, middleware, folder };
            program.python(&format!("{name}-{role}"), crate::folder("ros/timed.py"), &arguments)
        };
        let mut receiver = start("receiver", &pair.base, &files[1])?;
        let mut sender = start("sender", &pair.robot, &files[0])?;
        receiver.await_line("ready", START_PATIENCE)?;
        sender.await_line("ready", START_PATIENCE)?;
        if reply { &mut sender } else { &mut receiver }.await_line("first", FIRST_PATIENCE)?;
        Ok(Self { sender, receiver, files, _daemons: daemons, _masters: masters, pair })
    }

    /// Runs a cell, whose number identifies its messages, and waits for messages in transit.
    pub fn run(&mut self, number: usize, cell: Cell, time: Duration) -> Result<Sent> {
        let period_ns = 1_000_000_000 / u64::from(cell.rate_hz);
        let count = cell.count(time);
        self.sender.send_line(&format!("cell {number} {} {period_ns} {count}", cell.bytes))?;
        let said = self.sender.await_line("done", time + LATENESS)?;
        let numbers: Vec<i64> = said.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [behind, in_publish] = numbers[..] else {
            anyhow::bail!("the sender said 'done {said}', wanted two numbers")
        };
        let mut ends = [&mut self.receiver, &mut self.sender];
        for end in &mut ends {
            end.send_line(&format!("settle {SETTLE_S}"))?;
        }
        for end in ends {
            end.await_line("settled", Duration::from_secs(SETTLE_S) + WRITE_PATIENCE)?;
        }
        let duration = |ns: i64| Duration::from_nanos(ns.max(0) as u64);
        Ok(Sent { behind: duration(behind), in_publish: duration(in_publish) })
    }

    /// Ends the programs and reads their samples.
    pub fn end(mut self) -> Result<Samples> {
        for end in [&mut self.sender, &mut self.receiver] {
            end.send_line("write")?;
            end.await_line("written", WRITE_PATIENCE)?;
        }
        Ok(Samples { sent: rows(&self.files[0])?, received: rows(&self.files[1])? })
    }
}

fn daemons(system: System, pair: &Pair, program: &Path, folder: &Path) -> Result<Vec<Daemon>> {
    let real_time = match system {
        System::Rospy | System::Rclpy => return Ok(Vec::new()),
        System::Tautline => false,
        System::TautlineFifo => true,
    };
    let setup = DaemonSetup { program: program.into(), ros: Ros::One, rate_bps: None };
    let start = |computer: &Computer, peer: &Computer, cpu: usize| {
        let ros = format!("ros1: {{ master: \"{}\", host: {LOOPBACK} }}", master_uri(LOOPBACK));
        let thread =
            format!("realtime: {{ priority: {DAEMON_PRIORITY}, cpu: {cpu}, lock_memory: true }}");
        let file = NodeFile {
            name: &computer.name,
            peers: vec![peer.entry()],
            radios: String::new(),
            topics: TOPICS.into(),
            rest: if real_time { format!("{ros}\n{thread}") } else { ros },
        };
        file.write(folder)?;
        setup.run(computer, folder, folder)
    };
    let mut daemons =
        vec![start(&pair.robot, &pair.base, last_cpu())?, start(&pair.base, &pair.robot, 0)?];
    daemons.iter_mut().try_for_each(Daemon::await_connected)?;
    Ok(daemons)
}

/// UDP traffic of iperf3 from the robot to its base.
pub struct Traffic {
    _iperf: Iperf,
    interface: String,
    before: u64,
    since: std::time::Instant,
}

impl Traffic {
    /// Starts traffic of `mbps`.
    pub fn start(pair: &Pair, mbps: u32, folder: &Path) -> Result<Self> {
        let iperf = Iperf::start(&pair.robot, &pair.base, &format!("{mbps}M"), folder)?;
        std::thread::sleep(Duration::from_secs(1));
        Ok(Self {
            _iperf: iperf,
            interface: pair.robot.interface.clone(),
            before: sent_bytes(&pair.robot)?,
            since: std::time::Instant::now(),
        })
    }

    /// Ends the traffic; returns the rate at which the robot's interface sent it, in Mbps. `others` is
    /// the number of bytes that other programs sent meanwhile.
    pub fn end(self, pair: &Pair, others: u64) -> Result<f64> {
        debug_assert_eq!(self.interface, pair.robot.interface);
        let bytes = sent_bytes(&pair.robot)?.saturating_sub(self.before + others);
        Ok(bytes as f64 * 8.0 / 1e6 / self.since.elapsed().as_secs_f64())
    }
}

fn sent_bytes(computer: &Computer) -> Result<u64> {
    let said =
        computer.ip(&["-json", "-statistics", "link", "show", "dev", &computer.interface])?;
    let links: serde_json::Value = serde_json::from_str(&said)?;
    links[0]["stats64"]["tx"]["bytes"].as_u64().with_context(|| format!("no counter in {said}"))
}
