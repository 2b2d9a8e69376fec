// SPDX-License-Identifier: Apache-2.0
//! The packets of a link as their receiver ([`received`]) and their sender ([`sent`]) know them:
//! acknowledgements, round trips, loss detection.

pub(crate) mod ecn;
pub(crate) mod received;
mod reorder;
mod rtt;
pub(crate) mod sent;

/// Maximum number of packets of one link in the sent-packet table, and of packets that a receiver remembers.
/// The sender would repair every packet that the receiver forgets before acknowledging it.
pub(crate) const MAX_SENT_PACKETS: usize = 8192;
