// SPDX-License-Identifier: Apache-2.0
//! The send order of messages.

use crate::delivery::MessageId;
use crate::time::Instant;
use std::cmp::Reverse;

/// Rank of control messages, above all priorities.
pub(super) const CONTROL_RANK: u16 = 256;
/// Priority of control messages through relays: handshakes and heartbeats precede definitions.
const RELAYED_CONTROL_PRIORITY: u8 = 254;

/// The position of a message in the send order; smaller is earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SendOrder {
    pub(crate) rank: Reverse<u16>,
    pub(super) due: Instant,
    pub(super) id: MessageId,
}

impl SendOrder {
    /// The priority of the message. That of control messages is above nearly all others.
    pub(crate) fn priority(&self) -> u8 {
        u8::try_from(self.rank.0).unwrap_or(RELAYED_CONTROL_PRIORITY)
    }

    /// Whether it is a control message.
    pub(crate) fn is_control(&self) -> bool {
        self.rank.0 == CONTROL_RANK
    }
}
