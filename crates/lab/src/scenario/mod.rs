// SPDX-License-Identifier: Apache-2.0
//! Scenarios: radios, stations, what is sent and what happens; one format for
//! virtual time (`sim`) and for real programs (`air`).
//!
//! YAML text becomes a tree with places (the robot's file's own layer), the tree
//! a [`file::File`] as written (`reader`, `value`), and that a [`Scenario`]
//! whose values cannot be illegal (`check`): names are indices, patterns and
//! counts are expanded, the medium's own types are filled in. All that is wrong
//! is reported at once, as far as one thing can be understood without another.

mod check;
mod file;
mod reader;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
mod value;

use std::path::{Path, PathBuf};
use tautline_medium::{Interference, Motion, Nanos, PipeConfig, WifiConfig};
use tautline_node::config::{self, ConfigError, Problem, yaml};

/// Most stations, counted after `count`.
pub const MAX_STATIONS: usize = 256;
/// Most networks.
pub const MAX_NETWORKS: usize = 16;
/// Most flows, patterns expanded.
pub const MAX_FLOWS: usize = 4096;
/// Most control loops.
pub const MAX_CONTROL_LOOPS: usize = 256;
/// Most routes.
pub const MAX_ROUTES: usize = 256;
/// Most events.
pub const MAX_EVENTS: usize = 1024;
/// Most waypoints of one station, lines of a trace included.
pub const MAX_WAYPOINTS: usize = 100_000;
/// Largest trace file, bytes.
pub const MAX_TRACE_BYTES: usize = 8 * 1024 * 1024;
/// Longest time anything may take, as in the file.
pub const LONGEST: &str = "24h";

/// A scenario that can be run.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// The file's name without its ending.
    pub name: String,
    /// One line that says what this is.
    pub about: String,
    /// Where its numbers come from.
    pub source: Option<String>,
    /// How long it runs.
    pub duration: Nanos,
    /// In the file's order; elsewhere a network is its index here.
    pub networks: Vec<Network>,
    /// In the file's order; elsewhere a station is its index here (and the
    /// medium's [`StationId`](tautline_medium::StationId)).
    pub stations: Vec<Station>,
    /// Chains of stations that forward, both ways. No two disagree.
    pub routes: Vec<Vec<usize>>,
    /// Patterns expanded; names are unique.
    pub flows: Vec<Flow>,
    /// Plants and their controllers.
    pub control_loops: Vec<ControlLoop>,
    /// In order of time.
    pub events: Vec<Event>,
    /// Settings of every Tautline node.
    pub tautline: Tautline,
    /// What there is in it that virtual time has not, in the file's order.
    pub real_time_only: Vec<Problem>,
}

/// Radios that can reach each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    /// As in the file.
    pub name: String,
    /// What it is, in the medium's terms.
    pub kind: NetworkKind,
}

/// What a network is.
#[derive(Debug, Clone, PartialEq)]
pub enum NetworkKind {
    /// An 802.11 channel.
    Wifi(WifiConfig),
    /// A line without contention.
    Pipe(PipeConfig),
}

/// A place with radios.
#[derive(Debug, Clone, PartialEq)]
pub struct Station {
    /// Unique.
    pub name: String,
    /// Networks it has a radio on, in the file's order, at least one.
    pub networks: Vec<usize>,
    /// At least one waypoint; the origin where the file names no place.
    pub motion: Motion,
    /// Packets that may wait at each 802.11 radio.
    pub queue_packets: usize,
}

/// Messages from one station to another.
#[derive(Debug, Clone, PartialEq)]
pub struct Flow {
    /// Unique.
    pub name: String,
    /// Sender.
    pub from: usize,
    /// Receiver, another station that can be reached.
    pub to: usize,
    /// Bytes of a message.
    pub bytes: u64,
    /// When messages are sent.
    pub pace: Pace,
    /// What carries them.
    pub over: Over,
    /// 0-255, higher first; Tautline only.
    pub priority: u8,
    /// Only so many of the newest messages are kept; Tautline only.
    pub keep_last: Option<u32>,
    /// Age past which a message is worthless; Tautline only.
    pub lifespan: Option<Nanos>,
    /// How it finds its rate; TCP only.
    pub congestion: Congestion,
    /// DSCP of the packets; UDP and TCP only.
    pub dscp: u8,
    /// Messages in all; `None`: until the end.
    pub count: Option<u64>,
    /// When the first one is sent.
    pub start: Nanos,
    /// The receiver sends each message back.
    pub echo: bool,
}

/// When messages are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// With this time between two.
    Every(Nanos),
    /// The next as soon as there is room.
    Saturate,
}

/// What carries messages.
pub use file::{Congestion, Over, PlantModel};

/// A plant and its controller.
#[derive(Debug, Clone, PartialEq)]
pub struct ControlLoop {
    /// Sends the measurement.
    pub plant: usize,
    /// Sends the command.
    pub controller: usize,
    /// Time between two of either.
    pub period: Nanos,
    /// What carries both.
    pub over: Over,
    /// 0-255, higher first; Tautline only.
    pub priority: u8,
    /// What is controlled.
    pub model: PlantModel,
}

/// Something that happens.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// When it begins.
    pub at: Nanos,
    /// What.
    pub happening: Happening,
}

/// What happens.
#[derive(Debug, Clone, PartialEq)]
pub enum Happening {
    /// A station is cut off from all others.
    StationOutage {
        /// Which.
        station: usize,
        /// First moment at which it is back.
        until: Nanos,
    },
    /// Two stations are cut off from each other.
    PairOutage {
        /// Which.
        pair: [usize; 2],
        /// First moment at which they are back.
        until: Nanos,
    },
    /// Frames that are no one's.
    Interference {
        /// The 802.11 network.
        network: usize,
        /// In the medium's terms.
        interference: Interference,
    },
    /// A pipe's rate, or an 802.11 network's fixed rate, changes.
    Rate {
        /// Which.
        network: usize,
        /// Bits per second; one of the phy's.
        bps: u64,
    },
}

/// Settings of every Tautline node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tautline {
    /// Full packets that may wait in a radio's queue at once.
    pub in_flight: u32,
    /// How radios are paced.
    pub rate: tautline_proto::Rate,
    /// Packets are marked by their priority.
    pub dscp: bool,
    /// Nodes pass packets on along routes, instead of IP; there is a route.
    pub relay: bool,
}

impl Scenario {
    /// The stations that a packet passes, both ends included: along a route if
    /// one has both, else directly if they share a network.
    pub fn path(&self, from: usize, to: usize) -> Option<Vec<usize>> {
        check::path(&self.routes, &self.stations, from, to)
    }

    /// The first network that both stations have a radio on.
    pub fn common_network(&self, one: usize, other: usize) -> Option<usize> {
        check::common_network(&self.stations, one, other)
    }
}

/// Reads and checks `file`, and the traces it names.
pub fn load(file: &Path) -> Result<Scenario, ConfigError> {
    let text = config::read(file)?;
    let folder = file.parent().map(PathBuf::from).unwrap_or_default();
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    parse(&name, &text, &folder)
        .map_err(|problems| ConfigError::Invalid { file: file.into(), problems })
}

/// As [`load`], for virtual time: what only real time has is a problem.
pub fn load_for_virtual_time(file: &Path) -> Result<Scenario, ConfigError> {
    let scenario = load(file)?;
    if scenario.real_time_only.is_empty() {
        return Ok(scenario);
    }
    Err(ConfigError::Invalid { file: file.into(), problems: scenario.real_time_only })
}

/// Checks the text of the scenario `name`, whose traces are relative to `folder`.
/// The error is every problem in the file's order, at least one.
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
