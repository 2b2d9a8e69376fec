// SPDX-License-Identifier: Apache-2.0
//! Settings of an endpoint, its radios, peers, links and channels.

use crate::class::Marking;
use crate::crypto::keys::SecretKey;
use crate::limits;
use crate::time::Duration;
use crate::wire::control::OfferedTopic;
use std::net::SocketAddr;
use std::sync::Arc;

/// Settings of one node.
#[derive(Debug, Clone)]
pub struct Config {
    /// This node's name, 1 to 63 bytes.
    pub name: String,
    /// What it proves itself with.
    pub key: SecretKey,
    /// Largest message sent or taken, in bytes.
    pub max_message: usize,
    /// Bytes of messages that may be held for one peer, sent ones whose outcome is unknown included.
    pub queue_bytes: usize,
    /// Time the messages waiting for one peer may take to drain at the measured rate.
    pub queue_time: Duration,
    /// Bytes of incomplete messages held from one peer.
    pub reassembly_bytes: usize,
    /// Repairs may add this share of the bytes first sent, in percent.
    pub repair_percent: u32,
    /// A link on which nothing was sent for so long sends a ping.
    pub heartbeat: Duration,
    /// A link on which nothing arrived for so long is down; `None` follows its round trip.
    pub link_timeout: Option<Duration>,
}

impl Config {
    /// The defaults for a node of this name, which proves itself with `key`.
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

/// Settings of one radio.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RadioConfig {
    /// By what packets are let go.
    pub rate: Rate,
    /// Bytes of IP packets that may be in the kernel at once.
    pub in_flight_bytes: usize,
    /// How packets are marked; `None` leaves them as they are, all of one class.
    pub marking: Option<Marking>,
}

/// By what packets are let go, beside the kernel's back-pressure, which always holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rate {
    /// By what the peers report: the rate is found for each link.
    #[default]
    Auto,
    /// So many bits per second of the lower layer's bytes, over all links of the radio (Pound).
    Fixed(u64),
    /// By back-pressure alone.
    BackPressure,
    /// By losses, as RCom's better controller.
    Aid,
    /// By losses, as RCom's other one.
    Aimd,
}

impl Rate {
    /// The configured one.
    pub fn fixed_bps(self) -> Option<u64> {
        match self {
            Self::Fixed(bps) => Some(bps),
            Self::Auto | Self::BackPressure | Self::Aid | Self::Aimd => None,
        }
    }
}

impl Default for RadioConfig {
    /// Two full packets in the kernel, the rate found, packets marked.
    fn default() -> Self {
        Self { rate: Rate::Auto, in_flight_bytes: 3000, marking: Some(Marking::default()) }
    }
}

/// Settings of one link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkConfig {
    /// Where the peer receives; `None` until it calls.
    pub remote: Option<SocketAddr>,
    /// Largest datagram payload, in bytes.
    pub datagram_bytes: usize,
    /// Bytes that IP and UDP add to each datagram.
    pub header_bytes: usize,
}

/// A topic as offered to one peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelConfig {
    /// What the peer is told.
    pub topic: OfferedTopic,
    /// The type's definition, sent when the peer asks for it.
    pub definition: Arc<str>,
    /// Whether lost pieces are sent again while the message is useful.
    pub repair: bool,
    /// Whether a message is given up ([`DropReason::Thinned`]) where one before it, of the same
    /// source, is still being sent: those that go never wait behind each other, and a link that
    /// is too slow for all of a steady stream carries every n-th.
    ///
    /// [`DropReason::Thinned`]: crate::stats::DropReason::Thinned
    pub thin: bool,
}

/// Time between heartbeats: with its acknowledgement one costs about 130 bytes of IP,
/// in each direction 0.3 % of 1.5 Mbps.
pub const HEARTBEAT: Duration = Duration::from_millis(250);
/// Keys are made anew after so long (WireGuard, section 6.1), far below what
/// ChaCha20-Poly1305 allows under one key: 2^48 packets here.
pub const REKEY_AFTER: Duration = Duration::from_secs(120);
/// Keys are forgotten after so long.
pub const KEY_LIFETIME: Duration = Duration::from_secs(180);
/// Smallest datagram a link may have: room for the headers and some bytes of a message.
pub const MIN_DATAGRAM: usize = 256;
/// Links of one peer (the number travels in one byte, and each costs receive state).
pub const MAX_LINKS_PER_PEER: usize = limits::LINKS;
/// Channels offered to one peer, and taken from one.
pub const MAX_CHANNELS: usize = limits::CHANNELS;
