// SPDX-License-Identifier: Apache-2.0
//! The robot's file, validated: values that cannot be illegal.
//!
//! YAML text becomes a tree with places (`yaml`), which is held against the
//! option table (`table`, `validate`), checked as a whole (`cross`) and
//! turned into [`Config`] (`assemble`). All that is wrong is reported at once.

mod assemble;
mod cross;
pub mod kind;
mod problem;
pub mod reference;
pub mod schema;
pub mod starter;
mod surroundings;
pub mod table;
pub mod units;
mod validate;
pub mod yaml;

pub use problem::{ConfigError, MAX_PROBLEMS, Position, Problem, Warning, nearest};
pub use surroundings::{SYSTEM_CONTROL_FOLDER, SYSTEM_LOGS_FOLDER, Surroundings};
pub use yaml::{MAX_FILE_BYTES, MAX_NESTING};

use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tautline_gateway::mapping::{NameMap, Pattern, ServiceRule, TopicRule};
use tautline_gateway::networks::Network;
use tautline_gateway::tf;
use tautline_gateway::types::Dialect;
use tautline_gateway::types::compose::Fields;
use tautline_gateway::types::installed::Installed;
use tautline_proto::{Marking, PublicKey, Rate};

/// Most peers of one node.
pub const MAX_PEERS: usize = 256;
/// Most rules under `topics`, and most watchdogs.
pub const MAX_TOPIC_RULES: usize = 1024;

/// A file that can be used.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    /// Its values, every default filled in.
    pub config: Config,
    /// What is allowed but probably not meant, in the file's order.
    pub warnings: Vec<Warning>,
    /// SHA-256 of the text, in hexadecimal digits.
    pub sha256: String,
}

/// Reads and checks `file` in this process's surroundings.
pub fn load(file: &Path) -> Result<Checked, ConfigError> {
    let text = read(file)?;
    parse(&text, &Surroundings::of(file))
        .map_err(|problems| ConfigError::Invalid { file: file.into(), problems })
}

/// The text of `file`, which is UTF-8 and at most [`MAX_FILE_BYTES`] long.
pub fn read(file: &Path) -> Result<String, ConfigError> {
    let unreadable = |cause| ConfigError::Unreadable { file: file.into(), cause };
    let open = std::fs::File::open(file).map_err(unreadable)?;
    let mut bytes = Vec::new();
    // One byte over the limit is enough to refuse the file without reading all of it.
    open.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    text(bytes).map_err(|problems| ConfigError::Invalid { file: file.into(), problems })
}

fn text(bytes: Vec<u8>) -> Result<String, Vec<Problem>> {
    if bytes.len() > MAX_FILE_BYTES {
        return Err(vec![yaml::too_large()]);
    }
    String::from_utf8(bytes).map_err(|e| vec![not_text(e.as_bytes(), e.utf8_error().valid_up_to())])
}

fn not_text(bytes: &[u8], valid: usize) -> Problem {
    let before = String::from_utf8_lossy(&bytes[..valid]);
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|&c| c != '\n').count() + 1;
    Problem {
        at: Position { line, column },
        key: String::new(),
        found: "bytes that are not UTF-8".into(),
        allowed: "UTF-8 text".into(),
    }
}

/// Checks a file's text; the error is every problem in the file's order, at least one.
pub fn parse(text: &str, surroundings: &Surroundings) -> Result<Checked, Vec<Problem>> {
    let mut problems = Vec::new();
    let root = yaml::read(text, &mut problems).map_err(|problem| vec![problem])?;
    let file = validate::section(table::FILE, &root, &mut problems);
    let cross::Findings { problems: more, mut warnings } = cross::check(&file, surroundings);
    problems.extend(more);
    let config = assemble::config(&file, surroundings, &mut problems);
    problems.sort_by_key(|problem| (problem.at.line, problem.at.column));
    warnings.sort_by_key(|warning| (warning.at.line, warning.at.column));
    match config {
        Some(config) if problems.is_empty() => {
            Ok(Checked { config, warnings, sha256: sha256(text) })
        }
        _ => Err(problems),
    }
}

fn sha256(text: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The one UDP port of Tautline (unassigned at IANA, outside Linux's ephemeral range).
pub const DEFAULT_PORT: u16 = 18470;

/// Everything `tautline run` needs, every default filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// This node's name, unique in the team.
    pub name: String,
    /// Where packets are received.
    pub listen: SocketAddr,
    /// Unix socket of the command line.
    pub control: PathBuf,
    /// Where Prometheus may ask for metrics; `None` is nowhere.
    pub metrics: Option<SocketAddr>,
    /// On which interfaces peers are told where this node is.
    pub beacons: Beacons,
    /// Where events are recorded.
    pub audit: AuditConfig,
    /// How peers are known.
    pub security: Security,
    /// Whether the node tells of itself on the robot's /diagnostics.
    pub diagnostics: bool,
    /// The ROS 1 side; `None` switches it off.
    pub ros1: Option<Ros1Config>,
    /// The ROS 2 side; only where there is no ROS 1.
    pub ros2: Option<Ros2Config>,
    /// Radios that differ from the default, by interface.
    pub radios: Vec<RadioConfig>,
    /// How packets are marked; `None` leaves them as they are.
    pub marking: Option<Marking>,
    /// The other nodes.
    pub peers: Vec<PeerConfig>,
    /// What is sent from here; the first rule that matches a topic counts.
    pub topics: Vec<TopicRule>,
    /// Services of this robot that peers may call; the first rule that matches counts.
    pub services: Vec<ServiceRule>,
    /// Topics from peers whose silence is answered, by local name.
    pub watchdogs: Vec<WatchdogConfig>,
    /// What leaves on topics of tf's types, and under which names.
    pub tf: tf::Rules,
    /// Bounds and budgets.
    pub limits: Limits,
    /// Real-time options of the data-plane thread.
    pub realtime: Realtime,
}

/// On which interfaces a node tells its peers where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Beacons {
    /// On none.
    Off,
    /// On all that are up, reach groups and are no loopback.
    Everywhere,
    /// On these, while they are there.
    On(Vec<String>),
}

/// Where events are recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditConfig {
    /// Nowhere.
    Off,
    /// In files that rotate.
    Files {
        /// The current one; older ones have `.1`, `.2` and so on behind it.
        path: PathBuf,
        /// Most bytes of one file.
        size: u64,
        /// Most files.
        files: u32,
    },
    /// In the system's journal.
    Journald,
}

/// How nodes know each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Security {
    /// By keys; the node's own is in this file.
    Keys(PathBuf),
    /// By names: the keys are made of them, and anybody can do that.
    None,
}

/// The ROS 1 side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ros1Config {
    /// `http://host:port`; the file's, else ROS_MASTER_URI, else `http://localhost:11311`.
    pub master: String,
    /// The name or address local nodes reach this one by; the file's, else ROS_HOSTNAME, else ROS_IP, else the machine's name.
    pub host: String,
    /// Computers beside this one and the master's whose nodes may connect.
    pub allow: Vec<Network>,
    /// This node's ROS name (`/tautline`).
    pub node_name: String,
    /// Where types are; the file's folders, else CMAKE_PREFIX_PATH, ROS_PACKAGE_PATH and `/usr`.
    pub installed: Installed,
}

/// The ROS 2 side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ros2Config {
    /// The file's, else ROS_DOMAIN_ID, else 0; at most [`MAX_DOMAIN`].
    pub domain: u32,
    /// Local nodes speak over loopback only.
    pub localhost: bool,
    /// This node's ROS name (`/tautline`).
    pub node_name: String,
    /// Where types are installed; the file's, else AMENT_PREFIX_PATH.
    pub definitions: Vec<PathBuf>,
}

impl Config {
    /// Which ROS this robot has, and where its types are installed.
    pub fn ros(&self) -> Option<(Dialect, Installed)> {
        let ros1 = self.ros1.as_ref().map(|it| (Dialect::Ros1, it.installed.clone()));
        let ros2 = |it: &Ros2Config| (Dialect::Ros2, Installed::new(it.definitions.clone()));
        ros1.or_else(|| self.ros2.as_ref().map(ros2))
    }
}

/// The last domain whose UDP ports exist (RTPS 2.5, 9.6.2.3).
pub const MAX_DOMAIN: u32 = 232;

/// One radio: all links that leave by one interface.
#[derive(Debug, Clone, PartialEq)]
pub struct RadioConfig {
    /// Interface name (`wlan0`).
    pub interface: String,
    /// How packets are let go.
    pub rate: Rate,
    /// How many full packets may wait in the kernel at once.
    pub in_flight: u32,
}

/// Full packets that may wait in the kernel, unless the file says otherwise: the
/// least that keeps a real MAC busy (one reaches 86-88 % of a 6-54 Mbps DCF link, two 97 % or more).
pub const DEFAULT_IN_FLIGHT: u32 = 2;

/// One other node.
#[derive(Debug, Clone, PartialEq)]
pub struct PeerConfig {
    /// Its name, as in its own file.
    pub name: String,
    /// Whom it has to be.
    pub key: PublicKey,
    /// Paths to it; empty: it is the one that calls, unless others lead there.
    pub links: Vec<LinkConfig>,
    /// Peers that lead there.
    pub via: Vec<String>,
    /// Whether its packets for others are passed on.
    pub relay: bool,
    /// Names of its topics here.
    pub names: NameMap,
    /// This robot's services and actions that it may call.
    pub call: Vec<Pattern>,
    /// This robot's topics, services and actions that it is offered; empty is all.
    pub offer: Vec<Pattern>,
    /// What is taken of its topics, calls and answers after decompression, in bits per second.
    pub max_rate_bps: u64,
    /// The highest priority that its topics may have where they are passed on.
    pub max_priority: u8,
}

/// What happens when a topic from peers goes silent.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchdogConfig {
    /// Its local name.
    pub topic: String,
    /// Longest time between two messages.
    pub after: Duration,
    /// Fields of the safe message; those left out are zero, false or empty.
    pub message: Fields,
    /// How often it is published while the topic stays silent; `None` is once.
    pub repeat: Option<Duration>,
}

impl PeerConfig {
    /// Whether it has a link without address, which leads to where it calls from.
    pub fn is_caller(&self) -> bool {
        self.links.is_empty() && self.via.is_empty()
    }
}

/// One path to a peer.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkConfig {
    /// Host name or address, as written.
    pub host: String,
    /// UDP port.
    pub port: u16,
    /// Interface to leave by; `None` is the routing table's choice.
    pub interface: Option<String>,
    /// IP packet size; `None` is the interface's, at most [`MAX_DEFAULT_MTU`].
    pub mtu: Option<u16>,
}

/// Interfaces with a larger MTU (loopback) still get packets of this size unless the file says otherwise.
pub const MAX_DEFAULT_MTU: u16 = 1500;

/// Bounds and budgets.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Largest message carried, in bytes.
    pub max_message: usize,
    /// Bytes that may wait for one peer.
    pub queue_bytes: usize,
    /// Time the queue of one peer may take to drain.
    pub queue_time: Duration,
    /// Bytes of incomplete messages from one peer.
    pub reassembly_bytes: usize,
    /// Share of the bytes sent that repairs may add, 0-1.
    pub repair_budget: f64,
}

/// Real-time options of the data-plane thread.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Realtime {
    /// SCHED_FIFO priority 1-99; `None` is the normal scheduler.
    pub priority: Option<u8>,
    /// CPU to stay on.
    pub cpu: Option<u32>,
    /// Lock all memory.
    pub lock_memory: bool,
}
