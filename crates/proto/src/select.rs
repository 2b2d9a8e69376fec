// SPDX-License-Identifier: Apache-2.0
//! Which link carries a peer's next packet: decided when the packet is built.

use crate::class::Class;
use crate::endpoint::{LinkId, PeerId, RadioId};
use crate::link::Link;

/// The first link, in the order of the file, that is up and not stalled; else one on which no
/// packet of the class or a higher one is stuck. One through a relay only while that is `heard`.
/// Policies over several links (stripe, copy, failover by topic) belong here.
pub(crate) fn link_for(
    peer_links: &[LinkId],
    links: &[Link],
    (radio, class): (RadioId, Class),
    heard: impl Fn(PeerId) -> bool,
) -> Option<LinkId> {
    let usable = peer_links.iter().filter(|id| {
        let link = &links[id.0 as usize];
        link.carries_class(class) && link.via.is_none_or(&heard)
    });
    let first = usable.min_by_key(|id| links[id.0 as usize].stalled);
    first.copied().filter(|id| links[id.0 as usize].radio == radio)
}
