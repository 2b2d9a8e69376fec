// SPDX-License-Identifier: Apache-2.0
//! Delivery of messages. A sender queues, fragments, sends and repairs them ([`outbox`]); a receiver
//! reassembles each message and delivers it once ([`inbox`]), in the order of publication if the topic asks
//! for that order ([`ordering`]).

pub(crate) mod definitions;
pub(crate) mod fec;
mod fragment;
pub(crate) mod inbox;
mod ordering;
pub(crate) mod outbox;
mod repair_backoff;
mod repair_budget;
pub(crate) mod traffic;

use std::ops::Range;

/// Identifies a message within one endpoint, in the order of acceptance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct MessageId(pub(crate) u64);

/// The bytes of a message that one frame carries.
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
