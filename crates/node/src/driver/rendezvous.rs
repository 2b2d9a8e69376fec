// SPDX-License-Identifier: Apache-2.0
//! Direct paths to peers behind a relay: the routes to the addresses that a peer names.

use super::Driver;
use super::links::Link;
use super::peers::FileEntry;
use crate::config::PeerConfig;
use crate::paths;
use std::net::SocketAddr;
use tautline_proto::{LinkId, PeerId};

impl Driver {
    /// Seeks direct paths to the peers for which the file allows it.
    pub(super) fn follow_direct_paths(&mut self, peers: &[PeerConfig]) {
        let now = self.now();
        for peer in peers {
            let Some((id, when)) = self.peer_of(peer.key).zip(peer.direct_path()) else { continue };
            if let Some(link) = self.link_back(id) {
                self.topics.endpoint.set_direct_path(now, link, when);
            }
        }
    }

    /// Returns the link of a peer that has no configured address.
    fn link_back(&self, peer: PeerId) -> Option<LinkId> {
        let is_back = |link: &&Link| {
            matches!(link.entry, Some(FileEntry::Back { .. }))
                && self.topics.endpoint.link(link.id).peer == peer
        };
        self.links.iter().find(is_back).map(|link| link.id)
    }

    /// Tries to reach a peer directly at the addresses that it names, except where packets would leave by
    /// an interface that costs money: the direct path would not have the limits of its links.
    pub(super) fn try_addresses(&mut self, link: LinkId, addresses: &[SocketAddr]) {
        for &remote in addresses {
            match paths::route(remote, None, None) {
                Ok(path) if self.costs_money(&path.interface) => {
                    let interface = path.interface;
                    tracing::debug!(%remote, interface, "no direct path by a metered interface");
                }
                Ok(path) => {
                    let (now, radio) = (self.now(), self.radio(&path.interface));
                    self.topics.endpoint.try_address(now, link, radio, remote);
                }
                Err(error) => tracing::debug!(%error, %remote, "no route for a direct path"),
            }
        }
    }

    /// Whether a metered link leaves by this interface.
    fn costs_money(&self, interface: &str) -> bool {
        let leaves = |link: &Link| link.path.as_ref().is_some_and(|it| it.interface == interface);
        let is_metered = |link: &Link| link.entry.as_ref().is_some_and(FileEntry::is_metered);
        self.links.iter().any(|link| leaves(link) && is_metered(link))
    }
}
