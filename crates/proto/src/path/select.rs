// SPDX-License-Identifier: Apache-2.0
//! Selects the link of a peer's next packet, at the time when the packet is built.

use crate::arena::Arena;
use crate::class::Class;
use crate::ids::{LinkId, PeerId, RadioId};
use crate::path::link::Link;

/// The first link, in the order of the configuration, that is up and not stalled; otherwise the
/// first on which no packet of the class or a higher one is stuck. A link through a relay counts
/// only while that relay is `heard`. Policies over several links (striping, duplication, failover
/// by topic) belong here.
pub(crate) fn link_for(
    peer_links: &[LinkId],
    links: &Arena<LinkId, Link>,
    (radio, class): (RadioId, Class),
    heard: impl Fn(PeerId) -> bool,
) -> Option<LinkId> {
    let usable = peer_links.iter().filter(|id| {
        let link = &links[**id];
        link.carries_class(class) && link.via.is_none_or(&heard)
    });
    let first = usable.min_by_key(|id| links[**id].stalled);
    first.copied().filter(|id| links[*id].radio == radio)
}
