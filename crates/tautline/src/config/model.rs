// SPDX-License-Identifier: Apache-2.0
//! The values of a valid file, with all defaults.

use super::budget::Budget;
use super::channel::Channel;
use super::table::{Limits, Realtime, WatchdogConfig};
use crate::treatment::TopicRule;
use crate::treatment::peer_names::NameMap;
use crate::treatment::services::ServiceRule;
use std::net::SocketAddr;
use std::path::PathBuf;
use tautline_gateway::networks::Network;
use tautline_gateway::pattern::Pattern;
use tautline_gateway::tf;
use tautline_gateway::types::Dialect;
use tautline_gateway::types::installed::InstalledTypes;
use tautline_proto::{DirectPath, Marking, PublicKey, Rate};

/// Maximum number of peers of one node.
pub const MAX_PEERS: usize = 256;
/// Maximum number of rules under `topics`, and of watchdogs.
pub const MAX_TOPIC_RULES: usize = 1024;

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
    /// Peers. At a relay, these are the members of the teams.
    pub peers: Vec<PeerConfig>,
    /// Rules for sent topics; the first rule that matches a topic applies.
    pub topics: Vec<TopicRule>,
    /// What the planner assumes about radios, by interface.
    pub channels: Vec<(String, Channel)>,
    /// What the planner assumes about the topics that each rule matches.
    pub expected: Vec<TopicExpectation>,
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
    /// What a reload compares and shows.
    pub entries: Entries,
}

/// What the planner assumes about the topics that a rule matches.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicExpectation {
    /// The rule's topics.
    pub pattern: Pattern,
    /// Messages per second of all these topics together.
    pub rate_hz: Option<f64>,
    /// Bytes of a message.
    pub bytes: Option<u64>,
}

/// The interfaces on which a node sends beacons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Beacons {
    /// No interface.
    Off,
    /// All interfaces that are up and support multicast, except loopback.
    Everywhere,
    /// The listed interfaces, as far as they exist.
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
    /// By keys. The path is that of the file with the node's own key.
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
    /// Installed types: from the file's folders, else from those of CMAKE_PREFIX_PATH,
    /// ROS_PACKAGE_PATH and `/usr`.
    pub installed: InstalledTypes,
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
    pub fn ros(&self) -> Option<(Dialect, InstalledTypes)> {
        let ros1 = self.ros1.as_ref().map(|it| (Dialect::Ros1, it.installed.clone()));
        let ros2 = |it: &Ros2Config| (Dialect::Ros2, InstalledTypes::new(it.definitions.clone()));
        ros1.or_else(|| self.ros2.as_ref().map(ros2))
    }

    /// Returns this configuration without its ROS side.
    pub(crate) fn without_ros(self) -> Self {
        Self { ros1: None, ros2: None, ..self }
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
    /// Maximum number of full packets in the kernel at once.
    pub in_flight: u32,
}

/// Default of [`RadioConfig::in_flight`]: the smallest number that keeps a real MAC busy. One
/// packet reaches 86-88 % of a 6-54 Mbps DCF link; two reach 97 % or more.
pub const DEFAULT_IN_FLIGHT: u32 = 2;

/// One peer.
#[derive(Debug, Clone, PartialEq)]
pub struct PeerConfig {
    /// Name of the peer, as in its own file.
    pub name: String,
    /// Public key that the peer must prove.
    pub key: PublicKey,
    /// The team, at a relay.
    pub team: Option<String>,
    /// Paths to the peer. If there are none, the peer initiates the handshake or is reached through relays.
    pub links: Vec<LinkConfig>,
    /// Largest IP packet to a peer that initiates the handshake, in bytes; `None` as in [`LinkConfig`].
    pub mtu: Option<u16>,
    /// Relays that lead to the peer.
    pub via: Vec<String>,
    /// Whether to seek a direct path to a peer behind a relay; `None`: only if an address
    /// translator is detected.
    pub direct: Option<bool>,
    /// Whether this node relays the peer's packets.
    pub relay: bool,
    /// Accepted names of the peer and their names on this robot.
    pub names: NameMap,
    /// Services and actions of this robot that the peer may call.
    pub call: Vec<Pattern>,
    /// Topics, services and actions of this robot that are advertised to the peer; empty means all.
    pub offer: Vec<Pattern>,
    /// The parts of this robot's ROS that the peer sees.
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

/// The parts of this robot's ROS that a peer sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Show {
    /// The nodes.
    pub nodes: bool,
    /// The parameters.
    pub parameters: bool,
    /// The logs of this robot's nodes.
    pub logs: bool,
}

impl Show {
    /// Returns the words for these parts in the file.
    pub fn words(self) -> Vec<&'static str> {
        let all = [(self.nodes, "nodes"), (self.parameters, "parameters"), (self.logs, "logs")];
        all.into_iter().filter(|(shown, _)| *shown).map(|(_, word)| word).collect()
    }
}

impl PeerConfig {
    /// Whether the peer has a link without a configured address. That link takes the address from
    /// which the peer initiates the handshake.
    pub fn is_caller(&self) -> bool {
        self.links.is_empty() && self.via.is_empty()
    }

    /// Returns when to seek a direct path to the peer; `None`: never, because the file forbids it,
    /// gives an address, or names no relay.
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
    /// Largest IP packet, in bytes; `None` means the interface's MTU, at most [`MAX_MTU`].
    pub mtu: Option<u16>,
    /// Whether traffic on the link costs money.
    pub metered: bool,
    /// The data that the link may carry in each period; `None` without a limit. A link with a
    /// budget is metered.
    pub budget: Option<Budget>,
}

/// Largest IP packet on interfaces with a larger MTU (loopback), in bytes: a usual jumbo frame.
pub const MAX_MTU: u16 = 9000;

/// One team of a relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TeamConfig {
    /// Name in the relay's file.
    pub name: String,
    /// Maximum bits per second that are forwarded to all members together; `None` without a limit.
    pub max_rate_bps: Option<u64>,
    /// Maximum bytes of the team's packets that are queued.
    pub queue_bytes: u64,
}

/// All entries of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entries {
    /// The values that only a restart applies.
    pub fixed: Vec<Fixed>,
    /// The entries that a reload applies. Each kind of file always has the same groups.
    pub groups: Vec<Group>,
}

/// A value that only a restart applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fixed {
    /// Path of the key, or words for several keys.
    pub key: String,
    /// The value for people; empty if it is too long for a message.
    pub shown: String,
    /// The value to compare.
    pub compared: String,
}

/// The entries of one type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The type: `peer`, `topic`, or a key of the whole node.
    pub what: &'static str,
    /// Whether the order of the entries matters, because the first match applies.
    pub is_ordered: bool,
    /// The entries, in the file's order.
    pub members: Vec<Member>,
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Name; empty if there is only one entry of the type.
    pub name: String,
    /// Identity. Two entries with the same identity are versions of one entry.
    pub identity: String,
    /// Keys, as in the file, with their values as text.
    pub keys: Vec<(&'static str, String)>,
}
