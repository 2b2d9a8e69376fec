// SPDX-License-Identifier: Apache-2.0
//! Frames with messages, and the links that carry them.

use super::order::SendOrder;
use super::store::Outgoing;
use crate::delivery::Piece;
use crate::delivery::traffic::Traffic;
use crate::path::policy::LinkUse;
use crate::path::redundancy::Redundancy;
use crate::time::Instant;
use crate::wire::frame::Data;
use bytes::Bytes;

/// Messages that a link can carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All, on a link to the neighbour itself.
    All,
    /// All except relayed packets, on a link through a relay. Otherwise packets could be nested within
    /// packets without end.
    Unrelayed,
}

/// Urgency of a packet with messages: that of its first message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Urgency {
    pub(crate) priority: u8,
    /// End of the lifespan.
    pub(crate) expires: Option<Instant>,
}

/// The link that carries a frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Carrier {
    pub(crate) link: u8,
    pub(crate) scope: Scope,
    /// The number of links that carry a message if the message begins now.
    pub(crate) copies: u8,
    /// The copies of an urgent message to be sent, on this link or on another link.
    pub(crate) redundancy: Option<Redundancy>,
}

/// A message that may be sent now.
pub(crate) struct ReadyMessage<'a> {
    pub(crate) order: SendOrder,
    pub(crate) link_use: &'a LinkUse,
    pub(super) message: &'a Outgoing,
    pub(super) repairs: bool,
}

impl ReadyMessage<'_> {
    /// Bytes of the message that a link may send: those of a repair, or those of the link's copy.
    pub(crate) fn bytes_on(&self, link: u8) -> usize {
        let range = match self.message.repairs.first().filter(|_| self.repairs) {
            Some(range) => range,
            None => self.message.unsent_on(link),
        };
        range.len()
    }

    /// Whether the message is a relayed packet. No relay carries such a packet within another one.
    pub(crate) fn is_relayed(&self) -> bool {
        self.message.origin.is_some()
    }

    /// Bytes still to be sent.
    pub(crate) fn remaining_bytes(&self) -> usize {
        self.message.waiting_bytes() as usize
    }

    /// Whether each link sends a copy of its own.
    pub(crate) fn is_copied(&self) -> bool {
        !self.repairs
            && (self.message.copies.is_some() || self.message.first_sent == Instant::NEVER)
    }

    /// A pseudorandom number from 0 to 1, always the same for one message.
    pub(crate) fn draw(&self) -> f64 {
        // Fibonacci hashing (Knuth, volume 3, section 6.4) spreads consecutive ids evenly.
        let hash = self.order.id.0.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (hash >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A frame to be sent.
#[derive(Debug)]
pub(crate) struct FrameToSend {
    pub(crate) data: Data,
    pub(crate) bytes: Bytes,
    pub(crate) piece: Piece,
    pub(crate) repair: bool,
    /// A copy or parity that is sent before a loss is known.
    pub(crate) redundant: bool,
    /// If the frame ends a small urgent message, the bytes of that message, otherwise 0. Copies of it follow
    /// on a lossy link.
    pub(crate) urgent_bytes: u32,
    pub(crate) kind: FrameKind,
}

/// The type of a frame with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameKind {
    Data,
    /// A relayed packet or a fragment of one.
    Relay,
    Parity,
}

impl FrameKind {
    pub(super) fn of_traffic(traffic: Traffic) -> Self {
        match traffic {
            Traffic::Control | Traffic::Topic(_) => Self::Data,
            Traffic::Parity(_) => Self::Parity,
            Traffic::Relayed(_) => Self::Relay,
        }
    }
}

impl FrameToSend {
    pub(crate) fn is_control_repair(&self) -> bool {
        let is_control = Traffic::of_data(self.data.channel) == Traffic::Control;
        self.repair && self.kind == FrameKind::Data && is_control
    }
}
