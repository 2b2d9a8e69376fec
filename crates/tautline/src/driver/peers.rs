// SPDX-License-Identifier: Apache-2.0
//! Links of peers according to the current file.

use super::common::Common;
use super::entry::FileEntry;
use super::link::{HEADER_V4, Link};
use super::links::Links;
use crate::config::PeerConfig;
use crate::notices;
use crate::paths::Watched;
use crate::quota::Cause;
use std::collections::BTreeSet;
use tautline_proto::{
    LinkConfig, LinkId, MAX_LINKS_PER_PEER, Notice, PeerId, RemovedPeer, SetupError,
};

/// Maximum bytes of a datagram on a path of unknown MTU. Such a datagram fits the minimum MTU of
/// IPv6, 1280 bytes.
const UNKNOWN_MTU_DATAGRAM: usize = 1200;

/// Checks that none of these peers has more links than the protocol allows.
pub(super) fn check_links(peers: &[PeerConfig]) -> Result<(), SetupError> {
    let count =
        |it: &PeerConfig| it.links.len() + it.via.len() + usize::from(it.direct_path().is_some());
    let over = peers.iter().find(|it| count(it) > MAX_LINKS_PER_PEER);
    over.map_or(Ok(()), |peer| Err(SetupError::TooManyLinks(peer.name.clone())))
}

/// Removes the notices that a peer may not relay other nodes' packets, if the file now allows it.
pub(super) fn drop_notices_of_relays(common: &mut Common, peers: &[PeerConfig]) {
    let is_relay = |name: &String| peers.iter().any(|it| it.via.contains(name));
    for PeerConfig { name, .. } in peers.iter().filter(|it| it.relay || is_relay(&it.name)) {
        let notice = Notice::NotRelayed { name: name.clone() };
        let text = notices::sentence(&notice, common.endpoint.name());
        common.shared.notices.remove(&Cause::Peer(name.clone()), &text);
    }
}

impl Links {
    /// Sets the names under which radios of links through relays are reported.
    pub(super) fn name_relayed_radios(&self, common: &mut Common) {
        let endpoint = &common.endpoint;
        for link in &self.table {
            if let Some(FileEntry::ThroughRelay(hop)) = link.entry
                && let Some(view) = endpoint.link(link.id)
            {
                let name = format!("via {}", endpoint.peer(hop).name);
                common.reporter.name_radio(view.radio, &name);
            }
        }
    }

    /// Says goodbye to a removed peer, and closes its links.
    pub(super) fn say_goodbye(&mut self, common: &Common, removed: &RemovedPeer) {
        removed.goodbyes.iter().for_each(|transmit| self.send_last(transmit));
        let left: BTreeSet<LinkId> = common.endpoint.links().collect();
        self.table.iter_mut().filter(|link| !left.contains(&link.id)).for_each(Link::close);
    }

    /// Keeps the links of a peer that are still in the file, and replaces the others.
    pub(super) fn set_peer_links(
        &mut self,
        common: &mut Common,
        peer: PeerId,
        entries: &[FileEntry],
    ) -> Result<(), SetupError> {
        let endpoint = &common.endpoint;
        let is_to_peer = |id| endpoint.link(id).is_some_and(|view| view.peer == peer);
        let own = |link: &&Link| link.entry.is_some() && is_to_peer(link.id);
        let mut spare: Vec<LinkId> = self.table.iter().filter(own).map(|link| link.id).collect();
        let mut kept = Vec::new();
        for entry in entries {
            let entry_of = |id: &LinkId| self.table[id.0 as usize].entry.as_ref();
            let has_entry = |id: &LinkId| entry_of(id).is_some_and(|own| own.is_like(entry));
            kept.push(spare.iter().position(has_entry).map(|place| spare.remove(place)));
        }
        let now = common.now();
        for id in spare {
            self.table[id.0 as usize].close();
            common.endpoint.link_mut(id).remove(now);
        }
        let mut order = Vec::new();
        for (entry, kept) in entries.iter().zip(kept) {
            order.push(match kept {
                Some(id) => {
                    self.table[id.0 as usize].entry = Some(entry.clone());
                    id
                }
                None => self.add(common, peer, entry)?,
            });
        }
        common.endpoint.peer_mut(peer).order_links(&order);
        common.shared.peers.set_links(peer, self.names(common, &order));
        Ok(())
    }

    /// Returns the names and numbers of the links that have an address.
    fn names(&self, common: &Common, links: &[LinkId]) -> Vec<(String, u8)> {
        let named = links.iter().filter_map(|id| match &self.table[id.0 as usize].entry {
            Some(FileEntry::WithAddress(config)) => {
                Some((config.name.clone(), common.endpoint.link(*id)?.number))
            }
            _ => None,
        });
        named.collect()
    }

    fn add(
        &mut self,
        common: &mut Common,
        peer: PeerId,
        entry: &FileEntry,
    ) -> Result<LinkId, SetupError> {
        let now = common.now();
        let mut peer = common.endpoint.peer_mut(peer);
        let id = match entry {
            FileEntry::ThroughRelay(hop) => peer.add_relayed_link(now, *hop)?,
            // The link moves to its own radio as soon as the path to the peer is known.
            FileEntry::WithAddress(_) | FileEntry::WithoutAddress { .. } => {
                let datagram_bytes = UNKNOWN_MTU_DATAGRAM;
                let metered = entry.is_metered();
                let link =
                    LinkConfig { remote: None, datagram_bytes, header_bytes: HEADER_V4, metered };
                peer.add_link(now, self.radios.unknown, link)?
            }
        };
        let mut link = Link { entry: Some(entry.clone()), ..Link::new(id) };
        if let FileEntry::WithAddress(config) = entry {
            self.next_watch += 1;
            (link.watch, link.device) = (Some(self.next_watch), config.interface.clone());
        }
        link.follows_initiator = matches!(entry, FileEntry::WithoutAddress { .. });
        let index = link.index();
        if index == self.table.len() {
            self.table.push(link);
        } else {
            self.table[index] = link;
        }
        Ok(id)
    }

    /// Watches the paths of the current links and no others.
    pub(super) fn follow_paths(&mut self, common: &mut Common) {
        let watched = self.table.iter().filter_map(|link| match (link.watch, &link.entry) {
            (Some(number), Some(FileEntry::WithAddress(config))) => Some((number, config.clone())),
            _ => None,
        });
        let watched: Watched = watched.collect();
        if let Some(paths) = &mut self.paths
            && let Err(error) = paths.set(&watched)
        {
            let text = format!("the paths to peers: starting a thread: {error}");
            common.notice(common.now(), &text);
        }
    }
}
