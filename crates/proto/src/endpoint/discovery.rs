// SPDX-License-Identifier: Apache-2.0
//! Peers on the local network are found by their beacons. A beacon is a hint and
//! no more: it leads to a call, and only to a peer that is not up.

use crate::address::Place;
use crate::bucket::{Allowance, Bucket};
use crate::crypto::cookies::mac;
use crate::crypto::keys::KEY;
use crate::crypto::tag::Shared;
use crate::endpoint::Endpoint;
use crate::ids::{PeerId, RadioId};
use crate::stats::RefusedPacket;
use crate::time::Instant;
use crate::wire::beacon::{Beacon, MAX_TAGS, TAG, emit_beacon};

/// Beacons looked at: a tag for each peer takes about 1 us, so that with 256 peers
/// they cost at most 4 % of a processor.
const RECEIVED: Allowance = Allowance { burst: 128, per_second: 128 };
/// Beacons of one sender (or of those whose addresses fall together) that are looked at. A node
/// sends one per second from each of its addresses, and a machine may run a few nodes.
const OF_ONE_SENDER: Allowance = Allowance { burst: 4, per_second: 4 };
/// Groups that senders fall into: one stranger alone cannot use up what is looked at.
const GROUPS: usize = 256;
/// Calls that beacons lead to at once; beyond these the peer is called in its turn. They are
/// larger than the beacons, which may be replayed from a false address: at most 4 kB/s go there.
const CALLS: Allowance = Allowance { burst: 16, per_second: 16 };

/// What an endpoint knows of beacons.
#[derive(Debug)]
pub(crate) struct Beacons {
    /// By peer; made when first needed.
    shared: Vec<Shared>,
    /// The peer whose tag is first in the next beacon.
    next: usize,
    received: Bucket,
    /// Made when the first beacon arrives.
    senders: Option<Senders>,
    calls: Bucket,
}

impl Beacons {
    pub(crate) fn new() -> Self {
        let (received, calls) = (Bucket::new(RECEIVED), Bucket::new(CALLS));
        Self { shared: Vec::new(), next: 0, received, senders: None, calls }
    }
}

/// What is looked at of each group of senders.
#[derive(Debug)]
struct Senders {
    /// Makes it impossible to choose an address that falls together with another's.
    secret: [u8; KEY],
    groups: Vec<Bucket>,
}

impl Senders {
    fn new(secret: [u8; KEY]) -> Self {
        Self { secret, groups: vec![Bucket::new(OF_ONE_SENDER); GROUPS] }
    }

    /// Takes a token of the group of `from`; `false` if there is none.
    fn take(&mut self, now: Instant, from: Place) -> bool {
        let [group, ..] = mac(&self.secret, &[&from.owner()]);
        self.groups[usize::from(group)].take(now)
    }
}

impl Endpoint {
    /// A beacon to be sent to everybody on the local network, from the address that this node
    /// receives at; `None` without peers. More peers than one can tell are told in turns.
    pub fn beacon(&mut self) -> Option<Vec<u8>> {
        self.share_secrets();
        let (salt, own) = (self.draw_token(), self.key());
        let here = self.peers.iter().zip(&self.beacons.shared).filter(|(peer, _)| !peer.gone);
        let here: Vec<&Shared> = here.map(|(_, shared)| shared).collect();
        let told = here.len().min(MAX_TAGS);
        let first = self.beacons.next.checked_rem(here.len())?;
        self.beacons.next = first + told;
        let in_turn = here.into_iter().cycle().skip(first).take(told);
        Some(emit_beacon(salt, in_turn.map(|shared| shared.tag(salt, &own))))
    }

    /// A secret with each peer that has been added since.
    fn share_secrets(&mut self) {
        let new = self.peers.iter().skip(self.beacons.shared.len());
        let made = new.map(|peer| Shared::new(&self.config.key, &peer.session.key));
        self.beacons.shared.extend(made);
    }

    /// The secret with the peer that had this one's number is of no use any more.
    pub(crate) fn renew_shared_secret(&mut self, peer: PeerId) {
        let state = &self.peers[peer];
        if let Some(shared) = self.beacons.shared.get_mut(peer.0 as usize) {
            *shared = Shared::new(&self.config.key, &state.session.key);
        }
    }

    pub(crate) fn handle_beacon(
        &mut self,
        now: Instant,
        radio: RadioId,
        from: Place,
        beacon: &Beacon<'_>,
    ) -> Result<(), RefusedPacket> {
        if self.peers.iter().all(|peer| peer.up || peer.gone) {
            return Ok(());
        }
        if !self.may_examine(now, from) {
            return Err(RefusedPacket::Flood);
        }
        self.share_secrets();
        // One of nobody we look for is no fault: other teams have beacons as well.
        let Some(peer) = self.sender_of(beacon) else { return Ok(()) };
        let link = self.link_towards(peer, radio, from).ok_or(RefusedPacket::UnknownSession)?;
        self.set_link_radio(link, radio);
        let link = &mut self.links[link];
        link.try_address(from);
        link.initiate_now |= self.beacons.calls.take(now);
        Ok(())
    }

    /// Whether a beacon may cost the making of tags.
    fn may_examine(&mut self, now: Instant, from: Place) -> bool {
        let senders = match self.beacons.senders.take() {
            Some(senders) => senders,
            None => Senders::new(self.draw_key()),
        };
        // A sender that has used up its own takes nothing of what is left for all.
        self.beacons.senders.insert(senders).take(now, from) && self.beacons.received.take(now)
    }

    /// The peer that sent it, if it is not up.
    fn sender_of(&self, beacon: &Beacon<'_>) -> Option<PeerId> {
        let tags: Vec<[u8; TAG]> = beacon.tags().collect();
        let mut peers = self.peers.iter().zip(&self.beacons.shared);
        let sent = peers.position(|(peer, shared)| {
            !peer.up && !peer.gone && tags.contains(&shared.tag(beacon.salt, &peer.session.key))
        });
        sent.map(|index| PeerId(index as u32))
    }
}
