// SPDX-License-Identifier: Apache-2.0
//! Messages on their way: queued, fragmented, sent and repaired ([`outbox`]), reassembled and
//! delivered once ([`inbox`]).

pub(crate) mod definitions;
mod fragment;
pub(crate) mod inbox;
pub(crate) mod outbox;
mod repair_backoff;
mod repair_budget;

use std::ops::Range;

/// Identifies a message within one endpoint; drawn in order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct MessageId(pub(crate) u64);

/// A piece of a message in a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) message: MessageId,
    pub(crate) range: Range<u32>,
}

impl Piece {
    pub(crate) fn len(&self) -> u32 {
        self.range.end - self.range.start
    }
}
