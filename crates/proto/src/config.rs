// SPDX-License-Identifier: Apache-2.0
//! Configuration of an endpoint, its radios, links and channels.

use crate::class::Marking;
use crate::crypto::keys::SecretKey;
use crate::limits;
use crate::path::policy::LinkUse;
use crate::rate::{CONTROLS, LinkControl, Tuning};
use crate::time::Duration;
use crate::wire::control::OfferedTopic;
use std::net::SocketAddr;
use std::sync::Arc;

/// Configuration of one node.
#[derive(Debug, Clone)]
pub struct Config {
    /// This node's name, 1 to 63 bytes.
    pub name: String,
    /// This node's static key.
    pub key: SecretKey,
    /// Largest message that is sent or accepted, in bytes.
    pub max_message: usize,
    /// Maximum bytes of messages for one peer that are queued, or sent with unknown outcome.
    pub queue_bytes: usize,
    /// Longest time that the queue for one peer may take to drain at the measured rate.
    pub queue_time: Duration,
    /// Maximum bytes of incomplete messages from one peer.
    pub reassembly_bytes: usize,
    /// Budget of repairs, in percent of the bytes that are sent for the first time.
    pub repair_percent: u32,
    /// A link sends a PING when nothing ack-eliciting was sent for this time.
    pub heartbeat: Duration,
    /// A link is down when nothing arrived for this time; `None`: the time is derived from its round trip.
    pub link_timeout: Option<Duration>,
}

impl Config {
    /// The defaults for a node with this name and static key.
    #[must_use]
    pub fn new(name: impl Into<String>, key: SecretKey) -> Self {
        Self {
            name: name.into(),
            key,
            max_message: limits::MESSAGE_BYTES,
            queue_bytes: limits::QUEUE_BYTES,
            queue_time: Duration::from_secs(2),
            reassembly_bytes: limits::REASSEMBLY_BYTES,
            repair_percent: 30,
            heartbeat: HEARTBEAT,
            link_timeout: None,
        }
    }
}

/// Configuration of one radio.
#[derive(Debug, Clone, PartialEq)]
pub struct RadioConfig {
    /// Rate control.
    pub rate: Rate,
    /// In-flight budget: IP bytes in the kernel.
    pub in_flight_bytes: usize,
    /// Mapping of priorities to classes and DSCPs; `None`: one class, packets unmarked.
    pub marking: Option<Marking>,
    /// Constants of [`Rate::AUTO`]. The defaults suit every link; a laboratory varies them.
    pub tuning: Tuning,
}

/// Rate control, in addition to the kernel's back-pressure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// A fixed rate in bits per second, link-layer headers included, over all links of the radio
    /// (Pound).
    Fixed(u64),
    /// A controller for each link: a row of [`CONTROLS`], or a controller of the caller.
    PerLink(&'static LinkControl),
}

impl Rate {
    /// A rate for each link, found from the reports of its peer.
    pub const AUTO: Self = Self::PerLink(&CONTROLS[0]);
    /// Only back-pressure.
    pub const BACK_PRESSURE: Self = Self::PerLink(&CONTROLS[1]);

    /// The configured rate of `Fixed`.
    pub fn fixed_bps(self) -> Option<u64> {
        match self {
            Self::Fixed(bps) => Some(bps),
            Self::PerLink(_) => None,
        }
    }

    /// The word for a `PerLink` control in configuration files; `None` for `Fixed`.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Fixed(_) => None,
            Self::PerLink(control) => Some(control.name),
        }
    }
}

impl Default for Rate {
    fn default() -> Self {
        Self::AUTO
    }
}

impl Default for RadioConfig {
    /// Two full packets in the kernel, automatic rate, packets marked.
    fn default() -> Self {
        Self {
            rate: Rate::AUTO,
            in_flight_bytes: 3000,
            marking: Some(Marking::default()),
            tuning: Tuning::default(),
        }
    }
}

/// Configuration of one link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkConfig {
    /// The peer's address; `None` until the peer initiates a handshake.
    pub remote: Option<SocketAddr>,
    /// Largest datagram payload that the interface sends, in bytes. Probes find out whether the path
    /// carries it.
    pub datagram_bytes: usize,
    /// Bytes that IP and UDP add to each datagram.
    pub header_bytes: usize,
    /// The link costs money: it carries messages only while no other link can, unless their topic names
    /// it.
    pub metered: bool,
}

impl LinkConfig {
    /// Largest IP packet that the interface sends, in bytes.
    pub(crate) fn ip_bytes(&self) -> usize {
        self.datagram_bytes + self.header_bytes
    }
}

/// The rights of a peer beyond its own topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rights {
    /// Whether the peer's packets to other nodes are forwarded.
    pub relayed: bool,
    /// The highest priority that forwarded packets of the peer may have.
    pub max_priority: u8,
}

impl Default for Rights {
    fn default() -> Self {
        Self { relayed: false, max_priority: u8::MAX }
    }
}

/// Configuration of a channel to one peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelConfig {
    /// The topic as advertised to the peer.
    pub topic: OfferedTopic,
    /// The type definition, sent when the peer asks for it.
    pub definition: Arc<str>,
    /// Whether lost fragments are repaired while the message is useful.
    pub repair: bool,
    /// Whether a message is dropped ([`DropReason::Thinned`]) while an earlier message of the same
    /// source is still being sent. Messages then do not queue behind each other, and a link that is
    /// too slow for a steady stream carries every n-th message.
    ///
    /// [`DropReason::Thinned`]: crate::stats::DropReason::Thinned
    pub thin: bool,
    /// How the messages use several links.
    pub links: LinkUse,
    /// Parity that is sent after the frames of the messages, in percent of their number; `None`:
    /// none. With it, a lost frame is repaired only if the parity cannot replace it.
    pub fec: Option<u8>,
}

/// Interval of heartbeats: with its acknowledgement, each costs about 130 bytes of IP, 0.3 % of
/// 1.5 Mbps in each direction.
pub const HEARTBEAT: Duration = Duration::from_millis(250);
/// IP bytes per second that heartbeats and handshakes take on an idle link over IPv4, in both
/// directions together.
pub const HEARTBEAT_BYTES_PER_SECOND: u64 = 985;
/// Interval of heartbeats of a metered link without messages, while a link that costs nothing is
/// heard. Bindings in NATs last 30 s and more (RFC 4787 asks for two minutes).
pub const METERED_HEARTBEAT: Duration = Duration::from_secs(5);
/// IP bytes per second that heartbeats of a metered link take, if the link is metered at both ends.
pub const METERED_HEARTBEAT_BYTES_PER_SECOND: u64 = 50;
/// Age at which keys are renewed (WireGuard, section 6.1). It is far below the limit of
/// ChaCha20-Poly1305 under one key, which is 2^48 packets here.
pub const REKEY_AFTER: Duration = Duration::from_secs(120);
/// Age at which keys are forgotten.
pub const KEY_LIFETIME: Duration = Duration::from_secs(180);
/// Smallest datagram of a link: room for the headers and some bytes of a message.
pub const MIN_DATAGRAM: usize = 256;
/// Maximum number of links to one peer. The link number has 4 bits, and each link costs receive state.
pub const MAX_LINKS_PER_PEER: usize = limits::LINKS;
/// Maximum number of channels offered to one peer. The same number limits the channels accepted from one
/// peer.
pub const MAX_CHANNELS: usize = limits::CHANNELS;
