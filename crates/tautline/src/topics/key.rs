// SPDX-License-Identifier: Apache-2.0
//! The key of a channel among the channels of all peers.

use std::ops::RangeInclusive;
use tautline_proto::{ChannelId, PeerId};

/// A channel of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ChannelKey {
    pub(crate) peer: PeerId,
    pub(crate) channel: ChannelId,
}

impl ChannelKey {
    /// Returns the range of all channels of a peer.
    pub(super) fn all_of(peer: PeerId) -> RangeInclusive<Self> {
        let key = |channel| Self { peer, channel: ChannelId(channel) };
        key(0)..=key(u64::MAX)
    }
}
