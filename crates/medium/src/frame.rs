// SPDX-License-Identifier: Apache-2.0
//! Frames, and the medium's outputs about them.

use crate::ids::{Nanos, RadioId};

/// An IP packet on one network.
#[derive(Debug, Clone)]
pub struct Frame<P> {
    /// The receiver; `None` for every radio of the network.
    pub to: Option<RadioId>,
    /// Length of the IP packet; the network adds its own headers.
    pub bytes: u32,
    /// Differentiated services code point, 0-63, which selects the access category.
    pub dscp: u8,
    /// The packet is ECN-capable (RFC 3168): a queue may mark it instead of dropping it.
    pub ecn_capable: bool,
    /// Opaque data that the medium returns to the caller.
    pub payload: P,
}

/// The outcome of a sent frame, as its sender knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The frame was transmitted and, if the network acknowledges frames, acknowledged.
    Done,
    /// All attempts failed.
    GivenUp,
}

/// An output of the medium; outputs are in order of time.
#[derive(Debug, Clone)]
pub enum Output<P> {
    /// The sender's radio has finished a frame: a driver would free it now.
    Sent {
        /// Time of the event.
        at: Nanos,
        /// The sending radio.
        radio: RadioId,
        /// Outcome for the sender.
        outcome: Outcome,
        /// Number of times that the frame was transmitted.
        attempts: u32,
        /// Payload given to [`Medium::send`](crate::Medium::send).
        payload: P,
    },
    /// A frame reached a radio.
    Delivered {
        /// Arrival of the last bit.
        at: Nanos,
        /// The radio that sent the frame originally (an access point forwards).
        from: RadioId,
        /// The receiving radio.
        to: RadioId,
        /// Whether a queue marked the frame (CE).
        marked: bool,
        /// Payload given to [`Medium::send`](crate::Medium::send).
        payload: P,
    },
}

impl<P> Output<P> {
    /// Returns the time of the event.
    pub fn at(&self) -> Nanos {
        match self {
            Self::Sent { at, .. } | Self::Delivered { at, .. } => *at,
        }
    }
}

/// A radio's counters since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RadioStats {
    /// Frames queued now, including the one on the air.
    pub waiting: u64,
    /// Time of transmission, including own ACKs.
    pub airtime: Nanos,
    /// Data frames transmitted, repetitions included.
    pub attempts: u64,
    /// Of these, repetitions.
    pub retries: u64,
    /// Attempts without an ACK (collision, weak signal, loss); on a pipe, lost frames.
    pub failed_attempts: u64,
    /// Acknowledged frames.
    pub acknowledged: u64,
    /// Frames abandoned after all attempts.
    pub given_up: u64,
    /// Frames dropped by a full queue or by active queue management.
    pub queue_drops: u64,
    /// Frames that active queue management marked.
    pub marked: u64,
    /// Received frames.
    pub received: u64,
    /// Received IP bytes.
    pub received_bytes: u64,
}

/// The error of a frame that was not accepted.
#[derive(Debug, thiserror::Error)]
#[error("the radio's queue is full")]
pub struct QueueFull<P>(
    /// The frame, unchanged.
    pub Frame<P>,
);
