// SPDX-License-Identifier: Apache-2.0
//! The computers of one system: namespaces, cable, ROS masters and daemons.

use super::system::{Client, System};
use anyhow::Result;
use serde::Serialize;
use std::path::PathBuf;
use std::process::Command;
use tautline_lab::rig::node_file::NodeFile;
use tautline_lab::rig::output::name_in_reports;
use tautline_lab::rig::processes::{Process, make_folder, run};
use tautline_lab::setup::daemon::{Daemon, DaemonSetup};
use tautline_lab::setup::ros::{Ros, settle};
use tautline_lab::setup::world::{Computer, Pair};

/// Rate of the paper's Ethernet, bits per second.
pub const WIRE_BPS: u64 = 100_000_000;
/// Burst of the token bucket, bytes: two full packets.
const BURST_BYTES: u32 = 3200;
/// Queue of an ordinary Ethernet interface, bytes: 1000 full packets.
const QUEUE_BYTES: u32 = 1_500_000;
const MASTER_PORT: u16 = 11311;
/// First DDS domain; each system has two of its own.
const FIRST_DOMAIN: u16 = 10;
const ZENOH_PORT: u16 = 7447;
const LOOPBACK: &str = "127.0.0.1";
/// Port of the second daemon of a computer.
const SECOND_LISTEN: u16 = 18471;

/// The location of publisher and subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// In one process.
    InProcess,
    /// In two processes of one computer.
    Local,
    /// On two computers joined by 100 Mbit/s.
    Wire,
    /// On two computers joined by a cable without a limit.
    Unlimited,
}

impl Place {
    /// Returns the name in tables.
    pub fn title(self) -> &'static str {
        match self {
            Self::InProcess => "in process",
            Self::Local => "local",
            Self::Wire => "remote, 100 Mbit/s",
            Self::Unlimited => "remote, no limit",
        }
    }

    /// Returns the name in files.
    pub fn name(self) -> String {
        name_in_reports(self)
    }

    fn is_remote(self) -> bool {
        matches!(self, Self::Wire | Self::Unlimited)
    }
}

/// The publishing or receiving side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Publishes.
    From,
    /// Receives.
    To,
}

/// The computers of one system, with the programs that its probes need.
pub struct Stage {
    /// System that runs here.
    pub system: System,
    /// Place of publisher and subscriber.
    pub place: Place,
    /// The daemons, publisher's side first; empty without Tautline.
    pub daemons: Vec<Daemon>,
    /// Folder of logs and samples.
    pub folder: PathBuf,
    /// The side on which zenoh listens; the other connects, and retries with growing pauses.
    pub zenoh_listens: Side,
    topic: &'static str,
    computers: Vec<Computer>,
    masters: Vec<Process>,
    number: u8,
}

impl Stage {
    /// Creates the computers and starts masters and daemons, without waiting for them. `number` is
    /// unique among the stages that exist together.
    pub fn new(
        system: System,
        place: Place,
        number: u8,
        setup: &DaemonSetup,
        folder: PathBuf,
    ) -> Result<Self> {
        Self::with_topic(system, place, number, setup, folder, "priority: 100")
    }

    /// Like [`Self::new`]; `topic` has the options of the topic in the daemons' files.
    pub fn with_topic(
        system: System,
        place: Place,
        number: u8,
        setup: &DaemonSetup,
        folder: PathBuf,
        topic: &'static str,
    ) -> Result<Self> {
        make_folder(&folder)?;
        let computers = computers(place, number)?;
        let (daemons, masters) = (Vec::new(), Vec::new());
        let zenoh_listens = Side::From;
        let mut stage = Self {
            system,
            place,
            daemons,
            folder,
            zenoh_listens,
            topic,
            computers,
            masters,
            number,
        };
        stage.start_masters()?;
        stage.start_daemons(setup)?;
        Ok(stage)
    }

    /// Waits until the daemons are connected to their ROS and to each other.
    pub fn await_ready(&mut self) -> Result<()> {
        self.daemons.iter_mut().try_for_each(Daemon::await_connected)
    }

    /// Returns the computer of a side.
    fn computer(&self, side: Side) -> &Computer {
        let last = self.computers.len() - 1;
        &self.computers[if side == Side::From { 0 } else { last }]
    }

    /// Whether both sides run a separate ROS on one computer.
    fn shares_computer(&self) -> bool {
        self.system.sides().is_some() && self.computers.len() == 1
    }

    /// Returns the address and port of a side's ROS 1 master. Plain ROS 1 has one master for both
    /// sides.
    fn master(&self, side: Side) -> (String, u16) {
        match (self.system.sides(), side) {
            (Some(_), Side::To) if self.shares_computer() => (LOOPBACK.into(), MASTER_PORT + 1),
            (None, _) if self.place.is_remote() => {
                (self.computer(Side::From).address.clone(), MASTER_PORT)
            }
            _ => (LOOPBACK.into(), MASTER_PORT),
        }
    }

    /// Returns the DDS domain of a side. With daemons, each side has its own domain.
    fn domain(&self, side: Side) -> u16 {
        let far = self.system.sides().is_some() && side == Side::To;
        FIRST_DOMAIN + 2 * u16::from(self.number) + u16::from(far)
    }

    fn start_masters(&mut self) -> Result<()> {
        let [from, to] = self.system.clients();
        let mut wanted = Vec::new();
        if from.is_ros1() {
            wanted.push(Side::From);
        }
        if to.is_ros1() && self.system.sides().is_some() {
            wanted.push(Side::To);
        }
        for side in wanted {
            let (address, port) = self.master(side);
            let name = format!("master-{}-{port}", self.computer(side).name);
            let mut command = self.computer(side).command("rosmaster");
            settle(&mut command, &name)
                .env("ROS_MASTER_URI", uri(&address, port))
                .env("ROS_IP", &address)
                .args(["--core", "-p", &port.to_string()]);
            let master = Process::start(&name, command, &self.folder)?;
            self.masters.push(master);
        }
        Ok(())
    }

    fn start_daemons(&mut self, setup: &DaemonSetup) -> Result<()> {
        let Some(sides) = self.system.sides() else { return Ok(()) };
        for ((side, far), ros) in
            [(Side::From, Side::To), (Side::To, Side::From)].into_iter().zip(sides)
        {
            let daemon = self.start_daemon(setup, side, far, ros)?;
            self.daemons.push(daemon);
        }
        Ok(())
    }

    fn start_daemon(&self, setup: &DaemonSetup, side: Side, far: Side, ros: Ros) -> Result<Daemon> {
        let (name, peer) = (self.node(side), self.node(far));
        let address = match self.shares_computer() {
            true => format!("{LOOPBACK}:{}", listen(far)),
            false => format!("{}:{}", self.computer(far).address, listen(far)),
        };
        let file = NodeFile {
            name: &name,
            peers: vec![(&peer, format!("address: \"{address}\""))],
            radios: String::new(),
            topics: format!("  /stream: {{ {} }}\n", self.topic),
            rest: format!("listen: \"0.0.0.0:{}\"\n{}", listen(side), self.ros(side, ros)),
        };
        file.write(&self.folder)?;
        setup.run_as(&name, self.computer(side), &self.folder, &self.folder)
    }

    fn ros(&self, side: Side, ros: Ros) -> String {
        match ros {
            Ros::One => {
                let (address, port) = self.master(side);
                format!("ros1: {{ master: \"{}\", host: {address} }}", uri(&address, port))
            }
            Ros::Two => {
                format!("ros1: false\nros2: {{ domain: {}, range: localhost }}", self.domain(side))
            }
        }
    }

    fn node(&self, side: Side) -> String {
        format!("node{}{}", self.number, if side == Side::From { "a" } else { "b" })
    }

    /// Returns a command that runs a client's probe on its side.
    pub fn command(&self, client: Client, side: Side, name: &str) -> Result<Command> {
        let program = client.program()?;
        let mut command = self.computer(side).command(&program[0]);
        let home = format!("{}-{name}", self.node(side));
        settle(&mut command, &home).envs(self.environment(client, side)).args(&program[1..]);
        Ok(command)
    }

    fn environment(&self, client: Client, side: Side) -> Vec<(&'static str, String)> {
        // With a daemon, ROS does not leave the computer.
        let is_remote = self.place.is_remote() && self.system.sides().is_none();
        match client {
            Client::Rospy | Client::Roscpp => {
                let (address, port) = self.master(side);
                let own = if is_remote { &self.computer(side).address } else { LOOPBACK };
                vec![("ROS_MASTER_URI", uri(&address, port)), ("ROS_IP", own.into())]
            }
            Client::Rclpy => vec![
                ("ROS_DOMAIN_ID", self.domain(side).to_string()),
                ("ROS_AUTOMATIC_DISCOVERY_RANGE", range(is_remote).into()),
                ("RMW_IMPLEMENTATION", "rmw_fastrtps_cpp".into()),
                ("FASTDDS_BUILTIN_TRANSPORTS", self.transports().into()),
            ],
            Client::Cyclone => vec![("CYCLONEDDS_URI", self.cyclone_settings())],
            Client::Zenoh => Vec::new(),
        }
    }

    /// Returns the value of FASTDDS_BUILTIN_TRANSPORTS. All computers share this machine's memory, so
    /// shared memory would bypass a cable.
    fn transports(&self) -> &'static str {
        if self.system == System::RclpyShm { "DEFAULT" } else { "UDPv4" }
    }

    fn cyclone_settings(&self) -> String {
        let interface = if self.place.is_remote() { &self.computers[0].interface } else { "lo" };
        let addresses: Vec<&str> = match self.place.is_remote() {
            true => self.computers.iter().map(|it| it.address.as_str()).collect(),
            false => vec![LOOPBACK],
        };
        let peers: String =
            addresses.iter().map(|it| format!("<Peer address=\"{it}\"/>")).collect();
        format!(
            "<CycloneDDS><Domain><General><Interfaces><NetworkInterface name=\"{interface}\"/>\
             </Interfaces><AllowMulticast>false</AllowMulticast></General><Discovery>\
             <ParticipantIndex>auto</ParticipantIndex><Peers>{peers}</Peers></Discovery>\
             </Domain></CycloneDDS>"
        )
    }

    /// Returns the options of a zenoh probe: where it listens or connects to.
    pub fn zenoh_options(&self, side: Side) -> Vec<String> {
        if self.place == Place::InProcess {
            return Vec::new();
        }
        let remote = self.place.is_remote();
        let address = if remote { &self.computer(self.zenoh_listens).address } else { LOOPBACK };
        let verb = if side == self.zenoh_listens { "listen" } else { "connect" };
        let endpoint = format!("--{verb}=tcp/{address}:{ZENOH_PORT}");
        // As with Fast DDS, shared memory would bypass a cable.
        let no_memory = remote.then(|| "--no-shared-memory".to_owned());
        [Some(endpoint), no_memory].into_iter().flatten().collect()
    }

    /// Returns a command that runs this program (`tautline-study`) on the publisher's computer.
    pub fn own_command(&self) -> Result<Command> {
        let mut command = self.computer(Side::From).command(std::env::current_exe()?);
        command.arg("--inside");
        Ok(command)
    }

    /// Returns the URI of the ROS 1 master on the publisher's side.
    pub fn master_uri(&self) -> String {
        let (address, port) = self.master(Side::From);
        uri(&address, port)
    }

    /// Returns the process id of the first ROS 1 master.
    pub fn first_master(&self) -> Option<u32> {
        self.masters.first().map(Process::id)
    }

    /// Writes the daemons' statuses to files with this number, for diagnosis.
    pub fn write_statuses(&self, number: usize) {
        for (daemon, side) in self.daemons.iter().zip(["a", "b"]) {
            let status =
                daemon.status().map_or_else(|it| format!("{it:#}"), |it| format!("{it:#}"));
            let file = self.folder.join(format!("status-{number}{side}.json"));
            // The fault is reported elsewhere.
            let _ = std::fs::write(file, status);
        }
    }

    /// Ends the daemons as an operator does.
    pub fn end(mut self) -> Result<()> {
        self.daemons.iter_mut().try_for_each(Daemon::end)
    }
}

/// Creates one computer, or two that are joined by a cable.
fn computers(place: Place, number: u8) -> Result<Vec<Computer>> {
    let names = ["a", "b"].map(|side| format!("pc{number}{side}"));
    if !place.is_remote() {
        return Ok(vec![Computer::new(&names[0], 1)?]);
    }
    let Pair { robot, base, .. } = Pair::joined([&names[0], &names[1]])?;
    let both = vec![robot, base];
    if place == Place::Wire {
        both.iter().try_for_each(limit)?;
    }
    Ok(both)
}

/// Limits what a computer sends to [`WIRE_BPS`].
fn limit(computer: &Computer) -> Result<()> {
    run(Command::new("tc")
        .args(["-n", &computer.name, "qdisc", "add", "dev", &computer.interface, "root", "tbf"])
        .args(["rate", &format!("{WIRE_BPS}bit")])
        .args(["burst", &BURST_BYTES.to_string(), "limit", &QUEUE_BYTES.to_string()]))
    .map(drop)
}

fn uri(address: &str, port: u16) -> String {
    format!("http://{address}:{port}")
}

fn range(is_remote: bool) -> &'static str {
    if is_remote { "SUBNET" } else { "LOCALHOST" }
}

fn listen(side: Side) -> u16 {
    if side == Side::From { SECOND_LISTEN - 1 } else { SECOND_LISTEN }
}

/// Hides the machine's shared memory from the programs of this study, and theirs from the machine.
pub fn hide_shared_memory() -> Result<()> {
    let mut mount = Command::new("mount");
    run(mount.args(["-t", "tmpfs", "tautline-lab", "/dev/shm"])).map(drop)
}
