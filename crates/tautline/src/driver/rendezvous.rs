// SPDX-License-Identifier: Apache-2.0
//! Direct paths to peers behind a relay: the routes to the addresses that a peer reports as its own.

use super::common::Common;
use super::entry::FileEntry;
use super::link::Link;
use super::links::Links;
use crate::config::PeerConfig;
use crate::notices;
use crate::route::route;
use std::net::SocketAddr;
use tautline_proto::{Endpoint, LinkId, PeerId};

impl Links {
    /// Makes links seek direct paths to those peers for which the file allows it.
    pub(super) fn follow_direct_paths(&self, common: &mut Common, peers: &[PeerConfig]) {
        let now = common.now();
        for peer in peers {
            let Some(id) = common.peer_of(peer.key) else { continue };
            if let Some(link) = self.link_without_address(&common.endpoint, id) {
                common.endpoint.link_mut(link).set_direct_path(now, peer.direct_path());
            }
            if peer.direct_path().is_none() {
                notices::drop_direct_path_notices(&mut common.shared.notices, &peer.name);
            }
        }
    }

    /// Returns the link of a peer that has no configured address.
    fn link_without_address(&self, endpoint: &Endpoint, peer: PeerId) -> Option<LinkId> {
        let is_back = |link: &&Link| {
            matches!(link.entry, Some(FileEntry::WithoutAddress { .. }))
                && endpoint.link(link.id).is_some_and(|view| view.peer == peer)
        };
        self.table.iter().find(is_back).map(|link| link.id)
    }

    /// Tries to reach a peer directly at the addresses that it reports. Skips an address without a
    /// route, and an address of this machine, which the peer may have in another network with the
    /// same private addresses.
    pub(super) fn try_addresses(
        &mut self,
        common: &mut Common,
        link: LinkId,
        addresses: &[SocketAddr],
    ) {
        for &remote in addresses {
            match route(remote, None, None) {
                Ok(path) if path.local == remote.ip() => {}
                Ok(path) => {
                    let now = common.now();
                    let radio = self.radios.get_or_add(common, &path.interface);
                    common.endpoint.link_mut(link).try_address(now, radio, remote);
                }
                Err(error) => tracing::debug!(%error, %remote, "no route for a direct path"),
            }
        }
    }
}
