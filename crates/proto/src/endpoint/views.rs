// SPDX-License-Identifier: Apache-2.0
//! Snapshots of an endpoint's state, for statistics.

use crate::address::Place;
use crate::clock::ClockView;
use crate::crypto::keys::PublicKey;
use crate::ecn::EcnUse;
use crate::endpoint::teams::TeamId;
use crate::ids::{PeerId, RadioId};
use crate::path::mtu::MtuState;
use crate::stats::LinkStats;
use crate::time::Duration;

/// State of a peer.
#[derive(Debug, Clone, Copy)]
pub struct PeerView<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its public key.
    pub key: PublicKey,
    /// Its team, at a relay.
    pub team: Option<TeamId>,
    /// Whether a link to it is up.
    pub up: bool,
    /// Whether there has been a session with it.
    pub met: bool,
    /// The comparison of its clock with ours, once known.
    pub clock: Option<ClockView>,
    /// Messages queued for it.
    pub queued_messages: usize,
    /// Bytes queued for it.
    pub queued_bytes: u64,
}

/// State of a link.
#[derive(Debug, Clone, Copy)]
pub struct LinkView<'a> {
    /// The peer to which it leads.
    pub peer: PeerId,
    /// Its number in packets to the peer, 0 to 15.
    pub number: u8,
    /// The radio that it uses.
    pub radio: RadioId,
    /// The address of the peer, if known.
    pub remote: Option<Place>,
    /// Whether an address translator (NAT) of this node's side is on the path, once known.
    pub is_translated: Option<bool>,
    /// Whether one of the peer's side is on the path, once known.
    pub is_peer_translated: Option<bool>,
    /// Whether packets arrive.
    pub up: bool,
    /// Whether the peer acknowledges nothing, so that it carries only PINGs and handshakes.
    pub silent: bool,
    /// Whether the driver has sent no packet of it for too long.
    pub stalled: bool,
    /// Whether it carries no messages because another link of the peer is better: a relay while a direct
    /// path works, or a direct path on trial.
    pub standby: bool,
    /// Whether it costs money, by the configuration.
    pub metered: bool,
    /// Whether its [allowance](crate::Endpoint::set_allowance) is used up.
    pub spent: bool,
    /// Largest IP packet that the path is known to carry, in bytes; through a relay, the largest
    /// packet.
    pub mtu: usize,
    /// How it is known; without meaning on a link through a relay.
    pub mtu_state: MtuState,
    /// Fraction of its packets that are lost, smoothed over 64 packets.
    pub loss: f64,
    /// Smoothed round trip time.
    pub rtt: Option<Duration>,
    /// The pacing rate that follows from its peer's reports, in bits per second of IP packets;
    /// `None` without a controller that uses them.
    pub rate_bps: Option<u64>,
    /// The available rate in bits per second of IP packets, shared with the other links of its
    /// radio: the least of the configured rate, the pacing rate, and the rate at which its radio was
    /// last busy (a quarter more for each second since then). It grows with use. `None`: no limit is
    /// known.
    pub available_bps: Option<u64>,
    /// The signal that last held back a packet.
    pub signal: &'static str,
    /// Whether its packets are ECN-capable.
    pub ecn: EcnUse,
    /// Counters.
    pub stats: &'a LinkStats,
}

/// State of a radio.
#[derive(Debug, Clone, Copy)]
pub struct RadioView {
    /// The signal that governs the radio.
    pub signal: &'static str,
    /// Configured rate in bits per second.
    pub configured_bps: Option<u64>,
    /// Rate of IP bytes while the queue was never empty, in bits per second.
    pub measured_bps: Option<u64>,
    /// Bytes of IP packets in the kernel.
    pub in_flight_bytes: usize,
    /// The in-flight budget in bytes.
    pub in_flight_limit_bytes: usize,
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes of IP packets sent.
    pub sent_bytes: u64,
}
