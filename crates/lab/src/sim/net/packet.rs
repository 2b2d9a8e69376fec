// SPDX-License-Identifier: Apache-2.0
//! Packets of the simulated network, and the events that follow from them.

use crate::sim::tcp::Segment;
use std::net::SocketAddrV4;
use std::rc::Rc;
use tautline_medium::{Nanos, StationId};
use tautline_proto::{Class, Ecn, Event, LinkId};

/// An IP packet.
#[derive(Debug, Clone)]
pub struct Packet {
    /// Station that sent the packet.
    pub sender: StationId,
    /// Restart counter of the sender's node, from 1.
    pub life: u32,
    /// Source address.
    pub from: SocketAddrV4,
    /// Destination address.
    pub to: SocketAddrV4,
    /// Length with headers.
    pub ip_bytes: u32,
    /// DSCP, which selects the access category on radios that have access categories.
    pub dscp: u8,
    /// ECN field that the sender has set.
    pub ecn: Ecn,
    /// Time at which the packet was passed to the first radio.
    pub emitted: Nanos,
    /// Content of the packet.
    pub body: Body,
}

/// The content of a packet.
#[derive(Debug, Clone)]
pub enum Body {
    /// A Tautline datagram.
    Tautline(Vec<u8>),
    /// A part of a plain UDP flow's message.
    Piece(Piece),
    /// A TCP packet.
    Segment(Segment),
}

/// A part of a message over plain UDP.
#[derive(Debug, Clone, Copy)]
pub struct Piece {
    /// Number of the flow.
    pub flow: usize,
    /// Number of the message.
    pub sequence: u64,
    /// Number of all parts.
    pub parts: u32,
    /// Time at which the message was first published.
    pub published: Nanos,
    /// Whether it is an echo on the path back to its publisher.
    pub returning: bool,
}

/// A packet at one hop: the medium's payload.
#[derive(Debug, Clone)]
pub struct Parcel {
    pub(super) packet: Rc<Packet>,
    pub(super) hops: u8,
    /// Whether a queue on the path has marked the packet.
    pub(super) marked: bool,
    pub(super) charged: Option<Charge>,
}

/// The socket to which a packet stays charged until it has been transmitted.
#[derive(Debug, Clone, Copy)]
pub(super) enum Charge {
    Link { host: StationId, link: LinkId, class: Class, life: u32 },
    Flow(usize),
}

/// An occurrence that the applications on the hosts see.
#[derive(Debug)]
pub enum HostEvent {
    /// An event of a host's endpoint.
    Event(StationId, Event),
    /// A part of a plain UDP message reached its host.
    Piece(StationId, Piece),
    /// A TCP packet reached its host.
    Segment(Segment),
    /// A packet of this many IP bytes has left a flow's socket and was transmitted.
    Left(usize, u32),
    /// A packet of this many IP bytes was dropped behind a flow's socket: no route, or a full
    /// queue.
    Dropped(usize, u32),
    /// A datagram reached a host's endpoint this long after it left its sender's. Its consequences
    /// follow. Reported only with a [`Gate`](crate::sim::gate::Gate).
    Datagram(StationId, Nanos),
}

/// A frame that was transmitted more than once.
#[derive(Debug, Clone, Copy)]
pub struct RepeatedFrame {
    /// End of the last attempt.
    pub at: Nanos,
    /// The sender.
    pub station: StationId,
    /// Number of times that it was transmitted.
    pub attempts: u32,
}
