// SPDX-License-Identifier: Apache-2.0
//! The table of peers and their links, and the numbers, keys and names that lead to them.
//!
//! Ids are indices. The next peer or link that is added takes the place of a removed one. By then, nothing
//! may refer to the removed one: its timers, events, session numbers and fair-queuing state are forgotten
//! with it. The place of a link is not reused while a packet of the link is still queued at a relay.

use crate::arena::Arena;
use crate::config::LinkConfig;
use crate::crypto::keys::PublicKey;
use crate::delivery::outbox::RelayOrigin;
use crate::endpoint::context::Context;
use crate::endpoint::peer::Peer;
use crate::ids::{LinkId, PeerId, RadioId, TeamId};
use crate::path::link::Link;
use crate::wire::relay::ShortName;
use std::collections::{BTreeSet, HashMap};
use std::ops::{Index, IndexMut};

/// The peer of a link, and the link's number.
#[derive(Debug, Clone, Copy)]
struct Owner {
    peer: PeerId,
    number: u8,
}

pub(crate) struct Peers {
    peers: Arena<PeerId, Peer>,
    /// The owners, by link. `None` for a removed link whose peer is gone as well.
    owners: Vec<Option<Owner>>,
    /// Ids of removed peers that new peers may take.
    vacant: BTreeSet<PeerId>,
    /// Ids of links of removed peers that new links may take.
    vacant_links: BTreeSet<LinkId>,
    by_session: HashMap<u32, PeerId>,
    by_key: HashMap<PublicKey, PeerId>,
    /// A short name is unique in its team.
    by_short_name: HashMap<(Option<TeamId>, ShortName), PeerId>,
}

impl Index<PeerId> for Peers {
    type Output = Peer;

    fn index(&self, id: PeerId) -> &Peer {
        &self.peers[id]
    }
}

impl IndexMut<PeerId> for Peers {
    fn index_mut(&mut self, id: PeerId) -> &mut Peer {
        &mut self.peers[id]
    }
}

/// The table.
impl Peers {
    pub(crate) fn new() -> Self {
        Self {
            peers: Arena::new(),
            owners: Vec::new(),
            vacant: BTreeSet::new(),
            vacant_links: BTreeSet::new(),
            by_session: HashMap::new(),
            by_key: HashMap::new(),
            by_short_name: HashMap::new(),
        }
    }

    /// The ids of all peers, without borrowing the table.
    pub(crate) fn ids(&self) -> impl Iterator<Item = PeerId> + use<> {
        self.peers.ids()
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Peer> {
        self.peers.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> std::slice::IterMut<'_, Peer> {
        self.peers.iter_mut()
    }

    pub(crate) fn position(&self, is_sought: impl FnMut(&Peer) -> bool) -> Option<PeerId> {
        self.peers.position(is_sought)
    }

    /// The ids of all links, including links without a peer. Does not borrow the table.
    pub(crate) fn link_ids(&self) -> impl Iterator<Item = LinkId> + use<> {
        (0..self.owners.len() as u32).map(LinkId)
    }

    /// A link that has a peer.
    pub(crate) fn link(&self, id: LinkId) -> Option<&Link> {
        let Owner { peer, number } = self.owner(id)?;
        Some(self.peers[peer].links.link_at(number))
    }

    pub(crate) fn link_mut(&mut self, id: LinkId) -> Option<&mut Link> {
        let Owner { peer, number } = self.owner(id)?;
        Some(self.peers[peer].links.link_at_mut(number))
    }

    /// The peer of a link.
    pub(crate) fn peer_of_link(&mut self, id: LinkId) -> Option<&mut Peer> {
        let owner = self.owner(id)?;
        Some(&mut self.peers[owner.peer])
    }

    fn owner(&self, id: LinkId) -> Option<Owner> {
        self.owners.get(id.0 as usize).copied().flatten()
    }

    /// All links by ascending id.
    pub(crate) fn links(&self) -> impl Iterator<Item = &Link> {
        let owners = self.owners.iter().flatten();
        owners.map(|owner| self.peers[owner.peer].links.link_at(owner.number))
    }

    /// The first link for which `is_sought` holds.
    pub(crate) fn find_link(&self, is_sought: impl FnMut(&&Link) -> bool) -> Option<LinkId> {
        self.links().find(is_sought).map(|link| link.id)
    }

    /// Whether packets of a peer arrive without a relay.
    pub(crate) fn is_heard(&self, peer: PeerId) -> bool {
        self.peers[peer].links.is_heard()
    }
}

impl Index<LinkId> for Peers {
    type Output = Link;

    fn index(&self, id: LinkId) -> &Link {
        let Owner { peer, number } = self.owners[id.0 as usize].unwrap_or(INVALID_OWNER);
        self.peers[peer].links.link_at(number)
    }
}

impl IndexMut<LinkId> for Peers {
    fn index_mut(&mut self, id: LinkId) -> &mut Link {
        let Owner { peer, number } = self.owners[id.0 as usize].unwrap_or(INVALID_OWNER);
        self.peers[peer].links.link_at_mut(number)
    }
}

/// No peer has this id. Indexing by the id of a removed link therefore panics, as with any other
/// wrong index.
const INVALID_OWNER: Owner = Owner { peer: PeerId(u32::MAX), number: 0 };

/// Session numbers, keys and short names of peers.
impl Peers {
    /// Draws an unused session number at random and assigns it to a peer.
    pub(crate) fn draw_session(&mut self, cx: &mut Context, peer: PeerId) -> u32 {
        loop {
            let session = cx.draw_token() as u32;
            if session != 0 && !self.by_session.contains_key(&session) {
                self.by_session.insert(session, peer);
                return session;
            }
        }
    }

    /// Forgets the session numbers that a peer no longer uses.
    pub(crate) fn release_numbers(&mut self, peer: PeerId) {
        for number in self.peers[peer].session.released_numbers.drain(..) {
            self.by_session.remove(&number);
        }
    }

    pub(crate) fn find_by_session(&self, session: u32) -> Option<PeerId> {
        self.by_session.get(&session).copied()
    }

    pub(crate) fn find_by_key(&self, key: &PublicKey) -> Option<PeerId> {
        self.by_key.get(key).copied()
    }

    pub(crate) fn find_by_short_name(
        &self,
        team: Option<TeamId>,
        name: ShortName,
    ) -> Option<PeerId> {
        self.by_short_name.get(&(team, name)).copied()
    }
}

/// Addition and removal.
impl Peers {
    /// Adds a peer; `true` if it takes the place of a removed one.
    pub(crate) fn add(&mut self, mut peer: Peer) -> (PeerId, bool) {
        let (key, short_name) = (peer.session.key, (peer.team, peer.short_name));
        let vacant = self.vacant.pop_first();
        let id = match vacant {
            Some(id) => {
                peer.channels.next_channel = self.peers[id].channels.next_channel;
                self.peers[id] = peer;
                id
            }
            None => self.peers.push(peer),
        };
        self.peers[id].assign_id(id);
        self.by_key.insert(key, id);
        self.by_short_name.insert(short_name, id);
        (id, vacant.is_some())
    }

    /// Replaces a peer whose links are removed by the empty peer `empty`.
    pub(crate) fn remove(&mut self, id: PeerId, mut empty: Peer) {
        self.by_session.retain(|_, owner| *owner != id);
        let peer = &self.peers[id];
        self.by_key.remove(&peer.session.key);
        self.by_short_name.remove(&(peer.team, peer.short_name));
        for link in peer.links.removed_links() {
            self.owners[link.0 as usize] = None;
            self.vacant_links.insert(*link);
        }
        // Channel numbers continue, so that counters by peer and channel stay distinct.
        (empty.removed, empty.channels.next_channel) = (true, peer.channels.next_channel);
        empty.assign_id(id);
        self.peers[id] = empty;
        self.vacant.insert(id);
    }

    /// Adds a link after the other links of its peer.
    pub(crate) fn add_link(&mut self, peer: PeerId, radio: RadioId, config: LinkConfig) -> LinkId {
        let id = self.take_vacant_link().unwrap_or_else(|| {
            self.owners.push(None);
            LinkId(self.owners.len() as u32 - 1)
        });
        let number = self.peers[peer].links.open((id, peer), radio, config);
        self.owners[id.0 as usize] = Some(Owner { peer, number });
        id
    }

    fn take_vacant_link(&mut self) -> Option<LinkId> {
        let held = |id: LinkId| RelayOrigin::Own(id);
        let has_packets = |id: &LinkId| {
            self.iter().any(|it| it.channels.outbox.queues.relayed_backlog(held(*id)) > 0)
        };
        let id = self.vacant_links.iter().find(|id| !has_packets(id)).copied()?;
        self.vacant_links.remove(&id);
        Some(id)
    }
}
