// SPDX-License-Identifier: Apache-2.0
//! Direct paths to peers behind a relay: the routes to the addresses that a peer names.

use super::Driver;
use super::links::Link;
use super::peers::FileEntry;
use crate::config::PeerConfig;
use crate::{notices, paths};
use std::net::SocketAddr;
use tautline_proto::{LinkId, PeerId};

impl Driver {
    /// Seeks direct paths to the peers for which the file allows it, and to no others.
    pub(super) fn follow_direct_paths(&mut self, peers: &[PeerConfig]) {
        let now = self.now();
        for peer in peers {
            let Some(id) = self.peer_of(peer.key) else { continue };
            if let Some(link) = self.link_back(id) {
                self.endpoint.link_mut(link).set_direct_path(now, peer.direct_path());
            }
            if peer.direct_path().is_none() {
                notices::drop_direct_path(&mut self.shared.notices, &peer.name);
            }
        }
    }

    /// Returns the link of a peer that has no configured address.
    fn link_back(&self, peer: PeerId) -> Option<LinkId> {
        let is_back = |link: &&Link| {
            matches!(link.entry, Some(FileEntry::Back { .. }))
                && self.endpoint.link(link.id).is_some_and(|view| view.peer == peer)
        };
        self.links.iter().find(is_back).map(|link| link.id)
    }

    /// Tries to reach a peer directly at the addresses that it names. Nothing is sent to one without a route,
    /// and to one of this machine, as in another network with the same private addresses.
    pub(super) fn try_addresses(&mut self, link: LinkId, addresses: &[SocketAddr]) {
        for &remote in addresses {
            match paths::route(remote, None, None) {
                Ok(path) if path.local == remote.ip() => {}
                Ok(path) => {
                    let (now, radio) = (self.now(), self.radio(&path.interface));
                    self.endpoint.link_mut(link).try_address(now, radio, remote);
                }
                Err(error) => tracing::debug!(%error, %remote, "no route for a direct path"),
            }
        }
    }
}
