// SPDX-License-Identifier: Apache-2.0
//! Which link carries a peer's next packet: decided when the packet is built.

use crate::endpoint::{LinkId, RadioId};
use crate::link::Link;

/// The first link, in the order of the file, that is up and not stalled.
/// Policies over several links (stripe, copy, failover by topic) belong here.
pub(crate) fn link_for(peer_links: &[LinkId], links: &[Link], radio: RadioId) -> Option<LinkId> {
    let usable = peer_links.iter().find(|id| links[id.0 as usize].carries_data());
    usable.copied().filter(|id| links[id.0 as usize].radio == radio)
}
