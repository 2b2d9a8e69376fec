// SPDX-License-Identifier: Apache-2.0
//! The robot's file, validated: its types hold only valid values.
//!
//! YAML text becomes a tree with positions (`yaml`). The tree is checked against the option table
//! (`table`, `validate`), then as a whole (`cross`), and converted to [`Config`] (`assemble`). One
//! run reports all problems.

mod assemble;
mod budget;
pub mod channel;
mod cross;
pub mod kind;
mod launch;
mod problem;
pub mod relay;
pub mod starter;
mod surroundings;
pub mod table;
pub mod units;
mod validate;
pub mod yaml;

pub use budget::Budget;
pub use channel::Channel;
pub use launch::Launch;
pub use problem::{ConfigError, MAX_PROBLEMS, Position, Problem, Warning, nearest};
pub use relay::{MAX_MEMBERS, MAX_TEAMS, TeamConfig};
pub use surroundings::{
    SYSTEM_CONTROL_FOLDER, SYSTEM_LOGS_FOLDER, SYSTEM_STATE_FOLDER, Surroundings,
};
pub use yaml::{MAX_FILE_BYTES, MAX_NESTING};

use crate::treatment::TopicRule;
use crate::treatment::peer_names::NameMap;
use crate::treatment::services::ServiceRule;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tautline_gateway::networks::Network;
use tautline_gateway::pattern::Pattern;
use tautline_gateway::tf;
use tautline_gateway::types::Dialect;
use tautline_gateway::types::compose::Fields;
use tautline_gateway::types::installed::Installed;
use tautline_proto::{DirectPath, Marking, PublicKey, Rate};

/// Maximum number of peers of one node.
pub const MAX_PEERS: usize = 256;
/// Maximum number of rules under `topics`, and of watchdogs.
pub const MAX_TOPIC_RULES: usize = 1024;

/// A valid file.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    /// Values, with all defaults.
    pub config: Config,
    /// Values that are valid but probably not meant, in the file's order.
    pub warnings: Vec<Warning>,
    /// SHA-256 of the text, in hexadecimal digits.
    pub sha256: String,
    /// Where the file gives the channels of radios, by interface.
    pub places_of_channels: Vec<(String, Position)>,
}

impl Checked {
    /// Adds a warning at its place.
    pub fn warn(&mut self, warning: Warning) {
        self.warnings.push(warning);
        self.warnings.sort_by_key(|it| (it.at.line, it.at.column));
    }
}

/// Reads and checks `file` in the surroundings of this process.
pub fn load(file: &Path) -> Result<Checked, ConfigError> {
    load_launched(file, &Launch::default())
}

/// The same for a process that was launched with these names.
pub fn load_launched(file: &Path, launch: &Launch) -> Result<Checked, ConfigError> {
    load_as(file, launch, None)
}

/// The same for a file that a command expects to be of one kind.
pub fn load_as(
    file: &Path,
    launch: &Launch,
    kind: Option<FileKind>,
) -> Result<Checked, ConfigError> {
    let text = read(file)?;
    let invalid = |problems| ConfigError::Invalid { file: file.into(), problems };
    let (checked, section) =
        check(&text, &Surroundings::of(file).launched(launch), kind).map_err(invalid)?;
    match own_key_of_peers(&checked.config, &section) {
        problems if problems.is_empty() => Ok(checked),
        problems => Err(invalid(problems)),
    }
}

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A robot's, for `tautline run`.
    Robot,
    /// A relay's, for `tautline relay`. It has `teams`.
    Relay,
}

/// Finds peers with this node's own key. A key file that cannot be read has errors of its own.
fn own_key_of_peers(config: &Config, file: &validate::Section) -> Vec<Problem> {
    let Security::Keys(path) = &config.security else { return Vec::new() };
    let Ok(own) = crate::keys::load_to_show(path).map(|key| key.public()) else {
        return Vec::new();
    };
    if config.teams.is_some() {
        return relay::own_key_of_members(file, &own);
    }
    let has_own = |peer: &&validate::Named| matches!(peer.section.single("key"), Some((_, kind::Value::Key(key))) if *key == own);
    let problem = |peer: &validate::Named| Problem {
        at: peer.section.place("key"),
        key: format!("peers.{}.key", peer.text),
        found: "this node's own key".into(),
        allowed: format!(
            "the key of '{}', which `tautline keygen --show FILE` prints there",
            peer.text
        ),
    };
    file.named("peers").iter().filter(has_own).map(problem).collect()
}

/// Reads the text of `file`, which is UTF-8 of at most [`MAX_FILE_BYTES`].
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

/// Checks the text of a file; the error lists every problem in the file's order, at least one.
pub fn parse(text: &str, surroundings: &Surroundings) -> Result<Checked, Vec<Problem>> {
    check(text, surroundings, None).map(|(checked, _)| checked)
}

fn check(
    text: &str,
    surroundings: &Surroundings,
    kind: Option<FileKind>,
) -> Result<(Checked, validate::Section), Vec<Problem>> {
    let mut problems = Vec::new();
    let root = yaml::read(text, &mut problems).map_err(|problem| vec![problem])?;
    let is_relay = relay::is_relay(&root);
    if kind == Some(FileKind::Relay) && !is_relay {
        problems.push(relay::without_teams(&root));
        return Err(problems);
    }
    let (config, mut warnings, file) = match kind {
        Some(FileKind::Robot) if is_relay => return Err(vec![relay::not_of_robot(&root)]),
        _ if is_relay => relay::check(&root, surroundings, &mut problems),
        _ => robot(&root, surroundings, &mut problems),
    };
    problems.sort_by_key(|problem| (problem.at.line, problem.at.column));
    warnings.sort_by_key(|warning| (warning.at.line, warning.at.column));
    match config {
        Some(config) if problems.is_empty() => {
            let places_of_channels = places_of_channels(&file);
            Ok((Checked { config, warnings, sha256: sha256(text), places_of_channels }, file))
        }
        _ => Err(problems),
    }
}

fn robot(
    root: &yaml::Node,
    surroundings: &Surroundings,
    problems: &mut Vec<Problem>,
) -> (Option<Config>, Vec<Warning>, validate::Section) {
    let file = validate::section(table::FILE, root, problems);
    let cross::Findings { problems: more, warnings } = cross::check(&file, surroundings);
    problems.extend(more);
    let config = assemble::config(&file, surroundings, problems);
    (config, warnings, file)
}

/// Returns the radios whose channel the file gives, and where.
fn places_of_channels(file: &validate::Section) -> Vec<(String, Position)> {
    let radios = file.named("radios").iter().filter(|it| it.section.is_given("channel"));
    radios.map(|it| (it.text.clone(), it.section.place("channel"))).collect()
}

fn sha256(text: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Default UDP port of Tautline (unassigned at IANA, outside Linux's ephemeral range).
pub const DEFAULT_PORT: u16 = 18470;

/// The configuration of `tautline run`, with all defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Name of this node, unique in the team.
    pub name: String,
    /// Address and port on which packets are received.
    pub listen: SocketAddr,
    /// Path of the control socket.
    pub control: PathBuf,
    /// Address of the Prometheus metrics; `None` disables them.
    pub metrics: Option<SocketAddr>,
    /// Interfaces on which this node sends beacons.
    pub beacons: Beacons,
    /// Destination of the audit log.
    pub audit: AuditConfig,
    /// Folder of the files that survive a restart.
    pub state: PathBuf,
    /// Authentication of peers.
    pub security: Security,
    /// Whether the node publishes its state on the robot's /diagnostics.
    pub diagnostics: bool,
    /// ROS 1 side; `None` disables it.
    pub ros1: Option<Ros1Config>,
    /// ROS 2 side; set only without a ROS 1 side.
    pub ros2: Option<Ros2Config>,
    /// Radios that differ from the default, by interface.
    pub radios: Vec<RadioConfig>,
    /// DSCP marking of packets; `None` leaves packets unmarked.
    pub marking: Option<Marking>,
    /// Teams of a relay, between whose members packets are forwarded; `None` at a robot.
    pub teams: Option<Vec<TeamConfig>>,
    /// Other nodes.
    pub peers: Vec<PeerConfig>,
    /// Rules for sent topics; the first rule that matches a topic applies.
    pub topics: Vec<TopicRule>,
    /// What the planner assumes of radios, by interface.
    pub channels: Vec<(String, Channel)>,
    /// What the planner assumes of the topics of rules.
    pub expected: Vec<Expected>,
    /// Services of this robot that peers may call; the first rule that matches applies.
    pub services: Vec<ServiceRule>,
    /// Watchdogs of topics from peers, by local name.
    pub watchdogs: Vec<WatchdogConfig>,
    /// Rules for the transforms that are sent: which frames, and under which names.
    pub tf: tf::Rules,
    /// Limits and budgets.
    pub limits: Limits,
    /// Real-time options of the data-plane thread.
    pub realtime: Realtime,
}

/// What the planner assumes of the topics of a rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Expected {
    /// The rule's topics.
    pub pattern: Pattern,
    /// Messages per second of all of them.
    pub rate_hz: Option<f64>,
    /// Bytes of a message.
    pub bytes: Option<u64>,
}

/// The interfaces on which a node sends beacons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Beacons {
    /// No interface.
    Off,
    /// All interfaces that are up, support multicast and are no loopback.
    Everywhere,
    /// These interfaces, while they exist.
    On(Vec<String>),
}

/// The destination of the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditConfig {
    /// No log.
    Off,
    /// Files that rotate.
    Files {
        /// Path of the current file; older files append `.1`, `.2` and so on.
        path: PathBuf,
        /// Maximum bytes of one file.
        size: u64,
        /// Maximum number of files.
        files: u32,
    },
    /// The system's journal.
    Journald,
}

/// The authentication of nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Security {
    /// By keys. This file holds the node's own key.
    Keys(PathBuf),
    /// By names. Keys derive from names, so anybody can produce them.
    None,
}

/// Configuration of the ROS 1 side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ros1Config {
    /// ROS master as `http://host:port`: from the file, else ROS_MASTER_URI, else
    /// `http://localhost:11311`.
    pub master: String,
    /// Name or address by which local nodes reach this one: from the file, else ROS_HOSTNAME, else
    /// ROS_IP, else the machine's name.
    pub host: String,
    /// Computers whose nodes may connect, in addition to this machine and the master's.
    pub allow: Vec<Network>,
    /// ROS name of this node (`/tautline`).
    pub node_name: String,
    /// Installed types: in the file's folders, else in those of CMAKE_PREFIX_PATH, ROS_PACKAGE_PATH
    /// and `/usr`.
    pub installed: Installed,
}

/// Configuration of the ROS 2 side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ros2Config {
    /// Domain: from the file, else ROS_DOMAIN_ID, else 0; at most [`MAX_DOMAIN`].
    pub domain: u32,
    /// Whether local nodes communicate only over loopback.
    pub localhost: bool,
    /// ROS name of this node (`/tautline`).
    pub node_name: String,
    /// Folders of installed types: from the file, else AMENT_PREFIX_PATH.
    pub definitions: Vec<PathBuf>,
}

impl Config {
    /// Returns the kind of ROS on this robot and its installed types.
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
    /// Rate control.
    pub rate: Rate,
    /// Maximum number of full packets in the kernel.
    pub in_flight: u32,
}

/// Default for the maximum full packets in the kernel: the least that keeps a real MAC busy (one
/// packet reaches 86-88 % of a 6-54 Mbps DCF link, two reach 97 % or more).
pub const DEFAULT_IN_FLIGHT: u32 = 2;

/// One peer.
#[derive(Debug, Clone, PartialEq)]
pub struct PeerConfig {
    /// Name of the peer, as in its own file.
    pub name: String,
    /// Public key that the peer must prove.
    pub key: PublicKey,
    /// Its team, at a relay.
    pub team: Option<String>,
    /// Paths to the peer. If empty, the peer initiates the handshake, or relays lead to it.
    pub links: Vec<LinkConfig>,
    /// Largest IP packet to a peer that initiates the handshake; `None` as in [`LinkConfig`].
    pub mtu: Option<u16>,
    /// Relays that lead to the peer.
    pub via: Vec<String>,
    /// Whether to seek a direct path to a peer behind a relay; `None`: if an address translator shows.
    pub direct: Option<bool>,
    /// Whether this node relays the peer's packets.
    pub relay: bool,
    /// Accepted names of the peer and their names on this robot.
    pub names: NameMap,
    /// Services and actions of this robot that the peer may call.
    pub call: Vec<Pattern>,
    /// Topics, services and actions of this robot that are advertised to the peer; empty means all.
    pub offer: Vec<Pattern>,
    /// What of this robot's ROS the peer sees.
    pub show: Show,
    /// Parameters of ROS 1, and nodes of ROS 2, that the peer may set.
    pub set_parameters: Vec<Pattern>,
    /// Maximum accepted rate of the peer's topics, calls and responses after decompression, in bits
    /// per second.
    pub max_rate_bps: u64,
    /// Maximum priority of the peer's topics where they are forwarded.
    pub max_priority: u8,
    /// Whether stamps in the peer's messages are moved onto this robot's clock.
    pub move_stamps: bool,
}

/// What of this robot's ROS a peer sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Show {
    /// Its nodes.
    pub nodes: bool,
    /// Its parameters.
    pub parameters: bool,
    /// The logs of its nodes.
    pub logs: bool,
}

impl Show {
    /// The words of the file.
    pub fn words(self) -> Vec<&'static str> {
        let all = [(self.nodes, "nodes"), (self.parameters, "parameters"), (self.logs, "logs")];
        all.into_iter().filter(|(shown, _)| *shown).map(|(_, word)| word).collect()
    }
}

/// A watchdog: the reaction to a timeout of a topic from peers.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchdogConfig {
    /// Local name of the topic.
    pub topic: String,
    /// Timeout: maximum time between two messages.
    pub after: Duration,
    /// Fields of the safe message; omitted fields are zero, false or empty.
    pub message: Fields,
    /// Interval of the safe message during the timeout; `None` publishes it once.
    pub repeat: Option<Duration>,
}

impl PeerConfig {
    /// Whether the peer has a link without a configured address. That link takes the address from
    /// which the peer initiates the handshake.
    pub fn is_caller(&self) -> bool {
        self.links.is_empty() && self.via.is_empty()
    }

    /// When to seek a direct path to the peer; `None`: never, because the file forbids it, has an address, or
    /// names no relay.
    pub fn direct_path(&self) -> Option<DirectPath> {
        let is_relayed_only = self.links.is_empty() && !self.via.is_empty();
        match self.direct {
            Some(false) => None,
            Some(true) => Some(DirectPath::Always),
            None => Some(DirectPath::IfTranslated),
        }
        .filter(|_| is_relayed_only)
    }
}

/// One path to a peer.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkConfig {
    /// Name, unique among the links of the peer.
    pub name: String,
    /// Host name or address, as in the file.
    pub host: String,
    /// UDP port.
    pub port: u16,
    /// Outgoing interface; `None` leaves the choice to the routing table.
    pub interface: Option<String>,
    /// Largest IP packet; `None` means the interface's MTU, at most [`MAX_MTU`].
    pub mtu: Option<u16>,
    /// Whether it costs money.
    pub metered: bool,
    /// The data that it may carry in each period; `None` without a limit. It is then metered.
    pub budget: Option<Budget>,
}

/// Largest IP packet on interfaces with a larger MTU (loopback), in bytes: a usual jumbo frame.
pub const MAX_MTU: u16 = 9000;

/// Limits and budgets.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Maximum bytes of one message.
    pub max_message: usize,
    /// Maximum bytes queued for one peer.
    pub queue_bytes: usize,
    /// Maximum time to drain the queue of one peer.
    pub queue_time: Duration,
    /// Maximum bytes of incomplete messages from one peer.
    pub reassembly_bytes: usize,
    /// Fraction of the sent bytes that repairs may add, 0-1.
    pub repair_budget: f64,
}

/// Real-time options of the data-plane thread.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Realtime {
    /// SCHED_FIFO priority 1-99; `None` means the normal scheduler.
    pub priority: Option<u8>,
    /// CPU that the thread is bound to.
    pub cpu: Option<u32>,
    /// Whether all memory is locked.
    pub lock_memory: bool,
}
