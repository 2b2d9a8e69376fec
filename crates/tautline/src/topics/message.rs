// SPDX-License-Identifier: Apache-2.0
//! Messages of this robot on their way to peers, and changes of their publishers.

use super::key::ChannelKey;
use bytes::Bytes;
use tautline_gateway::{Origin, Source};
use tautline_proto::Instant;

/// A message from the gateway to the protocol.
#[derive(Debug, Clone)]
pub(crate) struct Outgoing {
    pub(crate) topic: String,
    pub(crate) source: Source,
    pub(crate) payload: Bytes,
    pub(crate) origin: Origin,
    pub(crate) encoded: bool,
    pub(crate) published: Instant,
}

/// A change that follows earlier messages through the codec, to stay in order with them.
#[derive(Debug)]
pub(crate) enum Change {
    Source(SourceChange),
    /// The topic of this name has no publishers any more. The number distinguishes this departure
    /// from others of the topic.
    Withdrawal(String, u64),
    /// A peer has withdrawn its topic.
    PeerWithdrawal(ChannelKey),
    /// The node closes.
    Shutdown,
}

/// The departure of a local publisher, or its new source number.
#[derive(Debug)]
pub(crate) struct SourceChange {
    pub(super) topic: String,
    pub(super) source: Source,
    /// The source of the publisher's later messages, and the number of messages that the publisher keeps;
    /// `None` if it has left.
    pub(super) successor: Option<(Source, u32)>,
}
