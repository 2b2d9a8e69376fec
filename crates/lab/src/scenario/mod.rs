// SPDX-License-Identifier: Apache-2.0
//! Scenarios: radios, stations, traffic and events, in one format for virtual time (`sim`) and for
//! real programs (`air`).
//!
//! YAML text becomes a tree with positions (the parser of the robot's file), the tree becomes a
//! [`file::File`] as written (`reader`, `value`), and that becomes a [`Scenario`] whose values are
//! all valid (`check`): names are indices, patterns and counts are expanded, the medium's own types
//! are filled in. All problems are reported together, except those that other problems hide.

mod check;
mod file;
mod forms;
mod reader;
#[cfg(test)]
mod tests;
mod value;

use std::path::{Path, PathBuf};
use tautline::config::{self, ConfigError, Problem, yaml};
pub use tautline_medium::NetworkKind;
use tautline_medium::{Interference, Motion, Nanos, Outage, Trace};
use tautline_proto::{DeliveryOrder, LinkPolicy};

/// Maximum number of stations, after expansion of `count`.
pub const MAX_STATIONS: usize = 256;
/// Maximum number of networks.
pub const MAX_NETWORKS: usize = 16;
/// Maximum number of flows, after expansion of patterns.
pub const MAX_FLOWS: usize = 4096;
/// Maximum number of control loops.
pub const MAX_CONTROL_LOOPS: usize = 256;
/// Maximum number of routes.
pub const MAX_ROUTES: usize = 256;
/// Maximum number of events.
pub const MAX_EVENTS: usize = 1024;
/// Maximum number of waypoints of one station, lines of a trace included.
pub const MAX_WAYPOINTS: usize = 100_000;
/// Maximum size of a trace file, bytes.
pub const MAX_TRACE_BYTES: usize = 8 * 1024 * 1024;

/// A scenario that can be run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scenario {
    /// File name without its extension.
    pub name: String,
    /// Description in one line.
    pub about: String,
    /// Source of the numbers.
    pub source: Option<String>,
    /// Duration of the run.
    pub duration: Nanos,
    /// Networks in the file's order; other fields refer to a network by its index here.
    pub networks: Vec<Network>,
    /// Stations in the file's order; other fields refer to a station by its index here (also the
    /// medium's [`StationId`](tautline_medium::StationId)).
    pub stations: Vec<Station>,
    /// Chains of stations that forward, in both directions. No two chains give a station
    /// different next hops to one destination.
    pub routes: Vec<Vec<usize>>,
    /// Flows, patterns expanded; names are unique.
    pub flows: Vec<Flow>,
    /// Plants and their controllers.
    pub control_loops: Vec<ControlLoop>,
    /// Events in order of time.
    pub events: Vec<Event>,
    /// Settings of every Tautline node.
    pub tautline: Tautline,
    /// Whether plain ROS 1 carries the flows of Tautline, in virtual time; not in files.
    pub is_plain_ros: bool,
    /// Problems of keys that virtual time does not support, in the file's order.
    pub real_time_only: Vec<Problem>,
}

/// A network: radios that can reach each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    /// Name in the file.
    pub name: String,
    /// Kind, with the medium's configuration.
    pub kind: NetworkKind,
}

/// A station: a place with radios.
#[derive(Debug, Clone, PartialEq)]
pub struct Station {
    /// Unique name.
    pub name: String,
    /// Networks of its radios, in the file's order, at least one.
    pub networks: Vec<usize>,
    /// Position over time: at least one waypoint; the origin if the file gives no position.
    pub motion: Motion,
    /// Queue limit of each 802.11 radio, packets.
    pub queue_packets: usize,
}

/// A flow of messages from one station to another.
#[derive(Debug, Clone, PartialEq)]
pub struct Flow {
    /// Unique name.
    pub name: String,
    /// Sender.
    pub from: usize,
    /// Receiver, another station with a path from the sender.
    pub to: usize,
    /// Message size in bytes.
    pub bytes: u64,
    /// Schedule of the messages.
    pub pace: Pace,
    /// Transport.
    pub over: Over,
    /// Priority 0-255, higher first; Tautline only.
    pub priority: u8,
    /// Number of newest messages that are kept; Tautline only.
    pub keep_last: Option<u32>,
    /// Age past which a message is worthless; Tautline only.
    pub lifespan: Option<Nanos>,
    /// Choice among several links; Tautline only.
    pub links: LinkPolicy,
    /// Networks whose links carry the messages, which both stations share; empty for all. Tautline
    /// only.
    pub only_links: Vec<usize>,
    /// Networks whose links carry the messages only while no other can, which both stations share;
    /// Tautline only.
    pub avoid_links: Vec<usize>,
    /// Whether lost fragments are sent again; Tautline only.
    pub repair: bool,
    /// Parity in percent of the packets; Tautline only.
    pub fec: Option<u8>,
    /// Order of delivery; Tautline only.
    pub order: DeliveryOrder,
    /// Congestion control; TCP only.
    pub congestion: Congestion,
    /// DSCP of the packets; UDP and TCP only.
    pub dscp: u8,
    /// Number of messages; `None` for no limit before the end.
    pub count: Option<u64>,
    /// Time of the first message.
    pub start: Nanos,
    /// Whether the receiver sends each message back.
    pub echo: bool,
}

/// The schedule of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// One message per this period.
    Every(Nanos),
    /// The next message as soon as the socket has space.
    Saturate,
}

/// Types of the file that a scenario uses unchanged.
pub use file::{Congestion, Over, PlantModel};

/// A plant and its controller.
#[derive(Debug, Clone, PartialEq)]
pub struct ControlLoop {
    /// Station of the plant, which sends the measurement.
    pub plant: usize,
    /// Station of the controller, which sends the command.
    pub controller: usize,
    /// Period of measurements and of commands.
    pub period: Nanos,
    /// Transport of both.
    pub over: Over,
    /// Priority 0-255, higher first; Tautline only.
    pub priority: u8,
    /// Model of the plant.
    pub model: PlantModel,
}

/// A scheduled event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Start of the event.
    pub at: Nanos,
    /// Kind of the event.
    pub happening: Happening,
}

/// The kind of an event.
#[derive(Debug, Clone, PartialEq)]
pub enum Happening {
    /// A station is cut off from all others, or two stations are cut off from each other.
    Outage {
        /// The stations, and the network if the outage concerns only one. A pair is
        /// [ordered](Outage::ordered).
        outage: Outage,
        /// End of the outage (exclusive).
        until: Nanos,
    },
    /// Interference from sources that are no stations.
    Interference {
        /// The 802.11 network.
        network: usize,
        /// Parameters for the medium.
        interference: Interference,
    },
    /// A pipe's rate, or an 802.11 network's fixed rate, changes.
    Rate {
        /// The network.
        network: usize,
        /// Bits per second; for 802.11 one of the phy's rates.
        bps: u64,
    },
}

/// Settings of every Tautline node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tautline {
    /// In-flight budget of a radio, in full packets.
    pub in_flight: u32,
    /// Pacing of radios.
    pub rate: tautline_proto::Rate,
    /// Whether each radio is instead fixed at the rate of its network, as RCom's; not in files.
    pub fixed_at_network_rate: bool,
    /// Constants of the controller; not in files.
    pub tuning: tautline_proto::rate::Tuning,
    /// Whether packets are marked by their priority.
    pub dscp: bool,
    /// Whether nodes relay along routes instead of IP; if so, there is a route.
    pub relay: bool,
}

impl Scenario {
    /// Returns the same load as plain ROS 1 carries it: over TCP, and over plain IP where Tautline would
    /// relay. Removes control loops, whose messages have no queue.
    pub fn carried_by_plain_ros(self) -> Self {
        let tautline = Tautline { relay: false, ..self.tautline };
        Self { tautline, is_plain_ros: true, control_loops: Vec::new(), ..self }
    }

    /// Returns the stations on the path of a packet, both ends included: along a route that has
    /// both ends, otherwise directly if they share a network.
    pub fn path(&self, from: usize, to: usize) -> Option<Vec<usize>> {
        check::path(&self.routes, &self.stations, from, to)
    }

    /// Returns the first network on which both stations have a radio.
    pub fn common_network(&self, one: usize, other: usize) -> Option<usize> {
        check::common_network(&self.stations, one, other)
    }
}

/// Reads and checks `file` and its traces.
pub fn load(file: &Path) -> Result<Scenario, ConfigError> {
    let text = config::read(file)?;
    let folder = file.parent().map(PathBuf::from).unwrap_or_default();
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    parse(&name, &text, &folder)
        .map_err(|problems| ConfigError::Invalid { file: file.into(), problems })
}

/// Returns the file of the scenario of that name in `scenarios/`.
pub fn file_of(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    folder.join(name).with_extension("yaml")
}

/// Loads the scenario of that name from `scenarios/`.
pub fn named(name: &str) -> Result<Scenario, ConfigError> {
    load(&file_of(name))
}

/// Parses a scenario that this program makes.
pub fn parse_made(name: &str, text: &str) -> anyhow::Result<Scenario> {
    parse(name, text, Path::new(".")).map_err(|problems| anyhow::anyhow!("{problems:?} in\n{text}"))
}

/// Parses a recorded capacity in the format of a pipe's `trace`.
pub fn recording(text: &str) -> anyhow::Result<Trace> {
    check::opportunities(text)
        .map_err(|it| anyhow::anyhow!("found {}; allowed: {}", it.found, it.allowed))
}

/// Like [`load`], for virtual time: keys that only real time supports are problems.
pub fn load_for_virtual_time(file: &Path) -> Result<Scenario, ConfigError> {
    let scenario = load(file)?;
    if scenario.real_time_only.is_empty() {
        return Ok(scenario);
    }
    Err(ConfigError::Invalid { file: file.into(), problems: scenario.real_time_only })
}

/// Parses and checks the text of the scenario `name`; trace paths are relative to `folder`. The
/// error contains all problems in the file's order, at least one.
pub fn parse(name: &str, text: &str, folder: &Path) -> Result<Scenario, Vec<Problem>> {
    let mut problems = Vec::new();
    let result = yaml::read(text, &mut problems)
        .map_err(|problem| vec![problem])
        .and_then(|root| reader::read::<file::File>(&root))
        .and_then(|file| check::scenario(name, &file, folder));
    match result {
        Ok(scenario) if problems.is_empty() => return Ok(scenario),
        Ok(_) => {}
        Err(more) => problems.extend(more),
    }
    problems.sort_by_key(|problem| (problem.at.line, problem.at.column));
    Err(problems)
}
