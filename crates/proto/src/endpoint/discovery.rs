// SPDX-License-Identifier: Apache-2.0
//! Discovery of peers on the local network by beacons. A beacon is only a hint: it causes an
//! initiation, and only to a peer that is not up.

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

/// Beacons examined. The tag of each peer takes about 1 us, so that with 256 peers they cost at
/// most 4 % of a processor.
const RECEIVED: Allowance = Allowance { burst: 128, per_second: 128 };
/// Beacons examined for each group of senders. A node sends one per second from each of its
/// addresses, and a machine may run a few nodes.
const OF_ONE_SENDER: Allowance = Allowance { burst: 4, per_second: 4 };
/// Groups of senders: one stranger cannot use up the limit of all.
const GROUPS: usize = 256;
/// Initiations that beacons cause immediately; beyond these the peer is sought at its interval.
/// Initiations are larger than beacons, which anybody may replay from a false address: at most
/// 4 kB/s go there.
const INITIATIONS: Allowance = Allowance { burst: 16, per_second: 16 };

/// The state of sending and receiving beacons.
#[derive(Debug)]
pub(crate) struct Beacons {
    /// The secret shared with each peer; derived when first needed.
    shared: Vec<Shared>,
    /// The peer whose tag is first in the next beacon.
    next: usize,
    received: Bucket,
    /// Drawn when the first beacon arrives.
    senders: Option<Senders>,
    initiations: Bucket,
}

impl Beacons {
    pub(crate) fn new() -> Self {
        let (received, initiations) = (Bucket::new(RECEIVED), Bucket::new(INITIATIONS));
        Self { shared: Vec::new(), next: 0, received, senders: None, initiations }
    }
}

/// The limits of groups of senders.
#[derive(Debug)]
struct Senders {
    /// Without the secret, nobody can choose an address in the group of another.
    secret: [u8; KEY],
    groups: Vec<Bucket>,
}

impl Senders {
    fn new(secret: [u8; KEY]) -> Self {
        Self { secret, groups: vec![Bucket::new(OF_ONE_SENDER); GROUPS] }
    }

    /// Takes a token of the group of `from`; `false` if it is used up.
    fn take(&mut self, now: Instant, from: Place) -> bool {
        let [group, ..] = mac(&self.secret, &[&from.owner()]);
        self.groups[usize::from(group)].take(now)
    }
}

impl Endpoint {
    /// A beacon for the local network, to be sent from the address at which this node receives;
    /// `None` without peers. With more peers than a beacon has tags, peers are announced to in turn.
    pub fn beacon(&mut self) -> Option<Vec<u8>> {
        self.share_secrets();
        let (salt, own) = (self.draw_token(), self.key());
        let here = self.peers.iter().zip(&self.beacons.shared).filter(|(peer, _)| !peer.removed);
        let here: Vec<&Shared> = here.map(|(_, shared)| shared).collect();
        let count = here.len().min(MAX_TAGS);
        let first = self.beacons.next.checked_rem(here.len())?;
        self.beacons.next = first + count;
        let in_turn = here.into_iter().cycle().skip(first).take(count);
        Some(emit_beacon(salt, in_turn.map(|shared| shared.tag(salt, &own))))
    }

    /// Derives the secret shared with each peer that was added since the last call.
    fn share_secrets(&mut self) {
        let new = self.peers.iter().skip(self.beacons.shared.len());
        let made = new.map(|peer| Shared::new(&self.config.key, &peer.session.key));
        self.beacons.shared.extend(made);
    }

    /// Replaces the secret shared with the former peer of this id.
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
        if self.peers.iter().all(|peer| peer.up || peer.removed) {
            return Ok(());
        }
        if !self.may_examine(now, from) {
            return Err(RefusedPacket::Flood);
        }
        self.share_secrets();
        // A beacon without a known tag is normal: other teams have beacons too.
        let Some(peer) = self.sender_of(beacon) else { return Ok(()) };
        let link = self.link_towards(peer, radio, from).ok_or(RefusedPacket::UnknownSession)?;
        // Radios of two peers with a relay may reach each other now and then.
        if self.awaits_translator(link) {
            return Ok(());
        }
        self.set_link_radio(link, radio);
        let link = &mut self.links[link];
        link.try_beacon_address(from);
        link.initiate_now |= self.beacons.initiations.take(now);
        Ok(())
    }

    /// Whether a beacon may cost the computation of tags.
    fn may_examine(&mut self, now: Instant, from: Place) -> bool {
        let senders = match self.beacons.senders.take() {
            Some(senders) => senders,
            None => Senders::new(self.draw_key()),
        };
        // A sender beyond its own limit does not use up the limit of all.
        self.beacons.senders.insert(senders).take(now, from) && self.beacons.received.take(now)
    }

    /// The peer that sent the beacon, if it is not up.
    fn sender_of(&self, beacon: &Beacon<'_>) -> Option<PeerId> {
        let tags: Vec<[u8; TAG]> = beacon.tags().collect();
        let mut peers = self.peers.iter().zip(&self.beacons.shared);
        let sent = peers.position(|(peer, shared)| {
            !peer.up && !peer.removed && tags.contains(&shared.tag(beacon.salt, &peer.session.key))
        });
        sent.map(|index| PeerId(index as u32))
    }
}
