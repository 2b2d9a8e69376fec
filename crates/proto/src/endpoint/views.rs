// SPDX-License-Identifier: Apache-2.0
//! Snapshots of an endpoint's state, for statistics.

use crate::address::Place;
use crate::clock::ClockView;
use crate::crypto::keys::PublicKey;
use crate::ids::{PeerId, RadioId};
use crate::stats::LinkStats;
use crate::time::Duration;

/// State of a peer.
#[derive(Debug, Clone, Copy)]
pub struct PeerView<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its public key.
    pub key: PublicKey,
    /// Whether a link to it is up.
    pub up: bool,
    /// Whether there ever was a session with it.
    pub met: bool,
    /// How its clock stands to ours, once that is known.
    pub clock: Option<ClockView>,
    /// Messages waiting for it.
    pub queued_messages: usize,
    /// Bytes waiting for it.
    pub queued_bytes: u64,
}

/// State of a link.
#[derive(Debug, Clone, Copy)]
pub struct LinkView<'a> {
    /// Whom it leads to.
    pub peer: PeerId,
    /// By which radio.
    pub radio: RadioId,
    /// Where the peer is, if known.
    pub remote: Option<Place>,
    /// Whether packets come in.
    pub up: bool,
    /// Whether the driver has not taken our packets for too long.
    pub stalled: bool,
    /// Largest datagram payload.
    pub datagram_bytes: usize,
    /// Smoothed round trip time.
    pub rtt: Option<Duration>,
    /// What its peer's reports allow, in bits per second of IP packets, where they are asked.
    pub rate_bps: Option<u64>,
    /// What it lets go now, in bits per second of IP packets, shared with the other links of its
    /// radio: the least of what is configured, what its peer's reports allow, and what its radio
    /// carried when it was last busy (a quarter more for each second since then). It grows with
    /// use. `None`: nothing is known to bound it.
    pub available_bps: Option<u64>,
    /// The signal that governs: what held a packet back last.
    pub signal: &'static str,
    /// Counters.
    pub stats: &'a LinkStats,
}

/// State of a radio.
#[derive(Debug, Clone, Copy)]
pub struct RadioView {
    /// The signal that governs.
    pub signal: &'static str,
    /// Configured rate in bits per second.
    pub configured_bps: Option<u64>,
    /// Rate of IP bytes while there was always something to send, in bits per second.
    pub measured_bps: Option<u64>,
    /// Bytes of IP packets in the kernel.
    pub in_flight_bytes: usize,
    /// Bytes that may be.
    pub in_flight_limit_bytes: usize,
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes of IP packets sent.
    pub sent_bytes: u64,
}
