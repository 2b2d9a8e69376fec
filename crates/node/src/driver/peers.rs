// SPDX-License-Identifier: Apache-2.0
//! Peers and links according to the current file.

use super::links::{HEADER_V4, Link};
use super::{DATAGRAM_UNKNOWN, Driver};
use crate::config::{self, PeerConfig};
use crate::notices;
use crate::paths::Watched;
use crate::quota::Cause;
use std::collections::BTreeSet;
use tautline_proto::{
    LinkConfig, LinkId, MAX_LINKS_PER_PEER, Notice, PeerId, PublicKey, Rights, SetupError, Transmit,
};

/// The entry of the file that a link represents.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum FileEntry {
    /// A link with an address.
    To(config::LinkConfig),
    /// A link to the address from which the peer initiates the handshake, or of a direct path to a peer
    /// behind a relay.
    Back {
        /// Largest IP packet, if the file limits it.
        mtu: Option<u16>,
    },
    /// A link through a relay.
    Via(PeerId),
}

impl FileEntry {
    /// The largest IP packet of a link without an address, if the file limits it.
    pub(super) fn mtu_back(&self) -> Option<u16> {
        if let Self::Back { mtu } = self { *mtu } else { None }
    }

    /// Whether the link costs money.
    pub(super) fn is_metered(&self) -> bool {
        matches!(self, Self::To(config) if config.metered)
    }

    /// Whether a link can represent the other entry without a new path: only its budget differs.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::To(own), Self::To(other)) => {
                *own == config::LinkConfig { budget: own.budget, ..other.clone() }
            }
            _ => self == other,
        }
    }
}

impl Driver {
    /// Checks whether this node can have these peers.
    pub(super) fn check_peers(&self, peers: &[PeerConfig]) -> Result<(), SetupError> {
        self.check_members(peers)?;
        let count = |it: &PeerConfig| {
            it.links.len() + it.via.len() + usize::from(it.direct_path().is_some())
        };
        let over = peers.iter().find(|it| count(it) > MAX_LINKS_PER_PEER);
        over.map_or(Ok(()), |peer| Err(SetupError::TooManyLinks(peer.name.clone())))
    }

    pub(super) fn peer_of(&self, key: PublicKey) -> Option<PeerId> {
        let endpoint = &self.endpoint;
        endpoint.peers().find(|id| endpoint.peer(*id).key == key)
    }

    /// Removes peers that are not among `peers`, adds missing peers, and gives each peer the links
    /// of the file. The sessions of the remaining peers continue.
    pub(super) fn follow_peers(&mut self, peers: &[PeerConfig]) -> Result<(), SetupError> {
        // Links that are removed take their counters with them.
        self.check_budgets(self.now());
        self.follow_teams();
        let endpoint = &self.endpoint;
        let is_same = |id: PeerId, it: &PeerConfig| {
            it.key == endpoint.peer(id).key && self.is_in_team(id, it)
        };
        let stays = |id: &PeerId| peers.iter().any(|it| is_same(*id, it));
        let gone: Vec<PeerId> = endpoint.peers().filter(|id| !stays(id)).collect();
        gone.into_iter().for_each(|id| self.remove_peer(id));
        self.drop_teams();
        for peer in peers {
            if let Some(id) = self.peer_of(peer.key) {
                self.endpoint.peer_mut(id).rename(&peer.name);
            }
        }
        for peer in peers {
            let id = match self.peer_of(peer.key) {
                Some(id) => id,
                None => self.add_peer(peer)?,
            };
            let max_priority = peer.max_priority;
            self.endpoint.peer_mut(id).set_rights(Rights { relayed: peer.relay, max_priority });
        }
        for peer in peers {
            if let Some(id) = self.peer_of(peer.key) {
                self.follow_links(id, &self.entries(peer))?;
            }
        }
        self.name_relayed_radios();
        self.follow_direct_paths(peers);
        self.drop_notices_of_relays(peers);
        self.check_budgets(self.now());
        self.follow_paths();
        Ok(())
    }

    /// Removes notices that a peer must not send packets of other nodes, where the file allows it.
    fn drop_notices_of_relays(&mut self, peers: &[PeerConfig]) {
        let is_relay = |name: &String| peers.iter().any(|it| it.via.contains(name));
        for PeerConfig { name, .. } in peers.iter().filter(|it| it.relay || is_relay(&it.name)) {
            let notice = Notice::NotRelayed { name: name.clone() };
            let text = notices::text(&notice, self.endpoint.name());
            self.shared.notices.remove(&Cause::Peer(name.clone()), &text);
        }
    }

    fn name_relayed_radios(&mut self) {
        let endpoint = &self.endpoint;
        for link in &self.links {
            if let Some(FileEntry::Via(hop)) = link.entry
                && let Some(view) = endpoint.link(link.id)
            {
                let name = format!("via {}", endpoint.peer(hop).name);
                self.reporter.name_radio(view.radio, &name);
            }
        }
    }

    /// Ends the session with a peer that is no longer in the file.
    fn remove_peer(&mut self, id: PeerId) {
        let now = self.now();
        tracing::info!(peer = self.endpoint.peer(id).name, "peer was removed from the file");
        let cx = &mut self.shared.context(now, &mut self.endpoint);
        self.topics.remove_all_of(cx, id);
        let parted = self.endpoint.peer_mut(id).remove(now);
        parted.goodbyes.iter().for_each(|transmit| self.send_last(transmit));
        let left: BTreeSet<LinkId> = self.endpoint.links().collect();
        for index in 0..self.links.len() {
            if !left.contains(&self.links[index].id) {
                self.links[index].close();
            }
        }
        self.news.schedule();
    }

    fn send_last(&mut self, transmit: &Transmit) {
        let Some(id) = transmit.link else { return };
        let Some(link) = self.links.get_mut(id.0 as usize) else { return };
        if let Err(error) = link.send_last(transmit) {
            tracing::debug!(%error, remote = %transmit.remote, "a goodbye was not sent");
        }
    }

    fn entries(&self, peer: &PeerConfig) -> Vec<FileEntry> {
        let mut entries: Vec<FileEntry> = peer.links.iter().cloned().map(FileEntry::To).collect();
        if peer.is_caller() || peer.direct_path().is_some() {
            entries.push(FileEntry::Back { mtu: peer.mtu });
        }
        // The file has been checked: all relays exist.
        let endpoint = &self.endpoint;
        let named = |via: &String| endpoint.peers().find(|id| endpoint.peer(*id).name == *via);
        entries.extend(peer.via.iter().filter_map(named).map(FileEntry::Via));
        entries
    }

    /// Keeps the links of a peer that are still in the file, and replaces the others.
    fn follow_links(&mut self, peer: PeerId, entries: &[FileEntry]) -> Result<(), SetupError> {
        let endpoint = &self.endpoint;
        let is_to_peer = |id| endpoint.link(id).is_some_and(|view| view.peer == peer);
        let own = |link: &&Link| link.entry.is_some() && is_to_peer(link.id);
        let mut spare: Vec<LinkId> = self.links.iter().filter(own).map(|link| link.id).collect();
        let mut kept = Vec::new();
        for entry in entries {
            let entry_of = |id: &LinkId| self.links[id.0 as usize].entry.as_ref();
            let has_entry = |id: &LinkId| entry_of(id).is_some_and(|own| own.is_like(entry));
            kept.push(spare.iter().position(has_entry).map(|place| spare.remove(place)));
        }
        let now = self.now();
        for id in spare {
            self.links[id.0 as usize].close();
            self.endpoint.link_mut(id).remove(now);
        }
        let mut order = Vec::new();
        for (entry, kept) in entries.iter().zip(kept) {
            order.push(match kept {
                Some(id) => {
                    self.links[id.0 as usize].entry = Some(entry.clone());
                    id
                }
                None => self.add_link(peer, entry)?,
            });
        }
        self.endpoint.peer_mut(peer).order_links(&order);
        self.shared.peers.set_links(peer, self.link_names(&order));
        Ok(())
    }

    /// The names of links with an address, and their numbers.
    fn link_names(&self, links: &[LinkId]) -> Vec<(String, u8)> {
        let named = links.iter().filter_map(|id| match &self.links[id.0 as usize].entry {
            Some(FileEntry::To(config)) => {
                Some((config.name.clone(), self.endpoint.link(*id)?.number))
            }
            _ => None,
        });
        named.collect()
    }

    fn add_link(&mut self, peer: PeerId, entry: &FileEntry) -> Result<LinkId, SetupError> {
        let now = self.now();
        let id = match entry {
            FileEntry::Via(hop) => self.endpoint.peer_mut(peer).add_relayed_link(now, *hop)?,
            // The link moves to its own radio as soon as the path to the peer is known.
            FileEntry::To(_) | FileEntry::Back { .. } => {
                let datagram_bytes = DATAGRAM_UNKNOWN;
                let metered = entry.is_metered();
                let link =
                    LinkConfig { remote: None, datagram_bytes, header_bytes: HEADER_V4, metered };
                self.endpoint.peer_mut(peer).add_link(now, self.unknown_radio, link)?
            }
        };
        let mut link = Link { entry: Some(entry.clone()), ..Link::new(id) };
        if let FileEntry::To(config) = entry {
            self.next_watch += 1;
            (link.watch, link.device) = (Some(self.next_watch), config.interface.clone());
        }
        link.follows_initiator = matches!(entry, FileEntry::Back { .. });
        let index = id.0 as usize;
        if index == self.links.len() {
            self.links.push(link);
        } else {
            self.links[index] = link;
        }
        Ok(id)
    }

    /// Watches the paths of the current links and no others.
    pub(super) fn follow_paths(&mut self) {
        let watched = self.links.iter().filter_map(|link| match (link.watch, &link.entry) {
            (Some(number), Some(FileEntry::To(config))) => Some((number, config.clone())),
            _ => None,
        });
        let watched: Watched = watched.collect();
        if let Some(paths) = &mut self.paths
            && let Err(error) = paths.set(&watched)
        {
            let now = self.now();
            let text = format!("the paths to peers: starting a thread: {error}");
            self.shared.notice(now, Cause::Here, &text);
        }
    }
}
