// SPDX-License-Identifier: Apache-2.0
//! Hosts, the link between them, their ROS masters and their daemons.

use super::system::System;
use super::watch::Watched;
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::path::Path;
use tautline_lab::air::Punctuality;
use tautline_lab::rig::output::name_in_reports;
use tautline_lab::rig::processes::Process;
use tautline_lab::setup::daemon::{self, Daemon, DaemonSetup};
use tautline_lab::setup::ros::RosProgram;
use tautline_lab::setup::world::{Bridge, Computer, Link, Pair};

/// Messages that daemons dropped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// The most frequent reason, as in `tautline status`.
    pub reason: String,
    /// Messages dropped for this reason.
    pub messages: u64,
}

/// Scenario of the radio: one 802.11 channel at 6 Mbps, half duplex.
const RADIO: &str = "half-duplex-6mbps";
/// Rate of the token bucket, the same as the radio's.
const BUCKET_BPS: u64 = 6_000_000;

/// Rules for topics of senders and echoers: small messages, such as commands, precede large ones.
/// No message may be dropped, as in ROS 1 with a queue of 1000.
fn topics(direction: &str) -> String {
    let rule = |kind, priority| {
        format!("  \"/{direction}/{kind}/**\": {{ priority: {priority}, keep_last: 1000 }}\n")
    };
    rule("text", 220) + &rule("scan", 100) + &rule("image", 50) + &rule("recorded", 100)
}

/// The link between the hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Medium {
    /// This machine's kernel without a limit.
    Wired,
    /// The kernel's token bucket, full duplex.
    TokenBucket,
    /// The modelled radio channel, in real time.
    Radio,
}

impl Medium {
    /// Returns the name in reports and folders.
    pub fn name(self) -> String {
        name_in_reports(self)
    }

    /// Returns the bits per second of the cable in each direction; `None` without a limit, and for
    /// a radio.
    pub fn rate_bps(self) -> Option<u64> {
        self.link().rate_bps()
    }

    fn link(self) -> Link {
        match self {
            Self::Wired => Link::UNLIMITED,
            Self::TokenBucket => Link::wire(BUCKET_BPS),
            Self::Radio => Link::Radio(RADIO),
        }
    }
}

/// The hosts of a run and their programs other than the nodes. Fields are dropped in this order.
pub struct Scene {
    daemons: Vec<Daemon>,
    masters: Vec<Process>,
    network: Network,
    system: System,
}

/// Hosts and their links.
enum Network {
    Pair(Pair),
    Switch { hosts: Vec<Computer>, _bridge: Bridge },
}

impl Network {
    fn new(medium: Medium, hosts: usize, seed: u64) -> Result<Self> {
        if hosts == 2 {
            return Ok(Self::Pair(Pair::new(medium.link(), seed)?));
        }
        ensure!(medium == Medium::Wired, "more than two hosts are on a switch without limits");
        let bridge = Bridge::new()?;
        let host = |number: usize| Computer::new(&format!("host{number}"), u8::try_from(number)?);
        let hosts = (1..=hosts).map(host).collect::<Result<Vec<_>>>()?;
        for host in &hosts {
            bridge.plug_in(host)?;
        }
        hosts.iter().try_for_each(Computer::await_running)?;
        Ok(Self::Switch { hosts, _bridge: bridge })
    }

    fn hosts(&self) -> Vec<&Computer> {
        match self {
            Self::Pair(pair) => vec![&pair.robot, &pair.base],
            Self::Switch { hosts, .. } => hosts.iter().collect(),
        }
    }
}

impl Scene {
    /// Creates the hosts and starts the system's masters and daemons.
    pub fn new(
        (system, medium, hosts): (System, Medium, usize),
        daemons: &DaemonSetup,
        folder: &Path,
        seed: u64,
    ) -> Result<Self> {
        let network = Network::new(medium, hosts, seed)?;
        let mut scene = Self { daemons: Vec::new(), masters: Vec::new(), network, system };
        scene.masters = scene.start_masters(folder)?;
        if system.has_daemons() {
            scene.daemons = scene.start_daemons(daemons, folder)?;
        }
        Ok(scene)
    }

    /// Returns the host of a sender: they take turns on the first half of the hosts.
    pub fn host_of_sender(&self, number: usize) -> &Computer {
        let hosts = self.network.hosts();
        hosts[number % (hosts.len() / 2)]
    }

    /// Returns the host of an echoer: they take turns on the second half of the hosts.
    pub fn host_of_echoer(&self, number: usize) -> &Computer {
        let hosts = self.network.hosts();
        let half = hosts.len() / 2;
        hosts[half + number % (hosts.len() - half)]
    }

    /// Returns a ROS program of this system on a host.
    pub fn program<'a>(&'a self, computer: &'a Computer, folder: &'a Path) -> RosProgram<'a> {
        RosProgram { computer, middleware: self.system.middleware(self.master()), folder }
    }

    /// Returns the address of the master that all hosts have in common.
    pub fn master(&self) -> &str {
        match &self.network {
            Network::Pair(pair) => &pair.robot.address,
            Network::Switch { hosts, .. } => &hosts[0].address,
        }
    }

    /// Returns the processes of masters and daemons.
    pub fn watched(&self) -> Vec<Watched> {
        let watched = |kind: &'static str, number: usize, process: &Process| Watched {
            kind,
            name: if number == 0 { kind.into() } else { format!("{kind} {}", number + 1) },
            id: process.id(),
            has_one_lock: kind == "master",
            allowed_percent: 100.0,
        };
        let masters = self.masters.iter().enumerate();
        let masters = masters.map(|(number, it)| watched("master", number, it));
        let daemons = self.daemons.iter().enumerate();
        masters.chain(daemons.map(|(number, it)| watched("daemon", number, &it.process))).collect()
    }

    /// Returns the radio channel's busy time and total time, in nanoseconds; `None` for a wire.
    pub fn channel(&self) -> Option<[u64; 2]> {
        match &self.network {
            Network::Pair(pair) => pair.channel(),
            _ => None,
        }
    }

    /// Returns the number of frames that now wait at the radios or are on the air; `None` for a wire.
    pub fn radio_frames(&self) -> Option<u64> {
        match &self.network {
            Network::Pair(pair) => pair.radio_frames(),
            _ => None,
        }
    }

    /// Discards the lateness of the radio's emulator up to now.
    pub fn count_from_now(&self) {
        if let Network::Pair(pair) = &self.network {
            pair.count_from_now();
        }
    }

    /// Returns the lateness of the radio's emulator; `None` for a wire.
    pub fn punctuality(&mut self) -> Result<Option<Punctuality>> {
        match &mut self.network {
            Network::Pair(pair) => pair.punctuality(),
            _ => Ok(None),
        }
    }

    /// Writes the status of each daemon to the folder; returns the most frequent reason for drops, and
    /// the number of messages.
    pub fn write_statuses(&self, folder: &Path) -> Result<Option<Dropped>> {
        let statuses = daemon::write_statuses(&self.daemons, folder)?;
        let dropped = daemon::most_dropped(&statuses);
        Ok(dropped.map(|(reason, messages)| Dropped { reason, messages }))
    }

    fn start_masters(&self, folder: &Path) -> Result<Vec<Process>> {
        if !self.system.client_library().has_master() {
            return Ok(Vec::new());
        }
        let hosts = self.network.hosts();
        let with_master = if self.system.has_daemons() { hosts.len() } else { 1 };
        let start = |host: &&Computer| self.program(host, folder).rosmaster();
        hosts[..with_master].iter().map(start).collect()
    }

    fn start_daemons(&self, setup: &DaemonSetup, folder: &Path) -> Result<Vec<Daemon>> {
        let hosts = self.network.hosts();
        let [senders, echoers] = hosts[..] else {
            anyhow::bail!("Tautline is measured between two hosts; {} were asked for", hosts.len())
        };
        let mut daemons = vec![
            setup.start_one(senders, echoers.entry(), &topics("out"), folder)?,
            setup.start_one(echoers, senders.entry(), &topics("back"), folder)?,
        ];
        let connected = daemons.iter_mut().try_for_each(Daemon::await_connected);
        connected.context("Tautline between the hosts")?;
        Ok(daemons)
    }
}
