// SPDX-License-Identifier: Apache-2.0
//! Discovery of peers on the local network by beacons. A beacon is only a hint: it causes an
//! initiation, and only to a peer that is not up.

use crate::address::Place;
use crate::bucket::{Allowance, Bucket};
use crate::crypto::cookies::mac;
use crate::crypto::keys::KEY;
use crate::crypto::tag::SharedTagKey;
use crate::endpoint::context::Context;
use crate::endpoint::network::Network;
use crate::ids::{PeerId, RadioId};
use crate::stats::RefusedPacket;
use crate::time::Instant;
use crate::wire::beacon::{Beacon, MAX_TAGS, TAG, emit_beacon};

/// Limit of beacons examined. The tag of each peer takes about 1 us, so that with 256 peers the
/// beacons cost at most 4 % of a processor.
const BEACON_LIMIT: Allowance = Allowance { burst: 128, per_second: 128 };
/// Limit of beacons examined for each group of senders. A node sends one per second from each of
/// its addresses, and a machine may run a few nodes.
const SENDER_LIMIT: Allowance = Allowance { burst: 4, per_second: 4 };
/// Number of groups of senders. With groups, one stranger cannot use up the limit for all senders.
const GROUPS: usize = 256;
/// Limit of initiations that beacons cause immediately. Beyond the limit, the peer is sought at its
/// normal interval. Initiations are larger than beacons, and anybody may replay a beacon from a
/// false address. With this limit, at most 4 kB/s go to that address.
const INITIATION_LIMIT: Allowance = Allowance { burst: 16, per_second: 16 };

/// The state of sending and receiving beacons.
#[derive(Debug)]
pub(crate) struct Beacons {
    /// The secret shared with each peer; derived when first needed.
    tag_keys: Vec<SharedTagKey>,
    /// The peer whose tag is first in the next beacon.
    next: usize,
    received: Bucket,
    /// Drawn when the first beacon arrives.
    senders: Option<Senders>,
    initiations: Bucket,
}

impl Beacons {
    pub(crate) fn new() -> Self {
        let (received, initiations) = (Bucket::new(BEACON_LIMIT), Bucket::new(INITIATION_LIMIT));
        Self { tag_keys: Vec::new(), next: 0, received, senders: None, initiations }
    }
}

/// The limits of groups of senders.
#[derive(Debug)]
struct Senders {
    /// Without the secret, nobody can choose an address that falls into the group of another
    /// sender.
    secret: [u8; KEY],
    groups: Vec<Bucket>,
}

impl Senders {
    fn new(secret: [u8; KEY]) -> Self {
        Self { secret, groups: vec![Bucket::new(SENDER_LIMIT); GROUPS] }
    }

    /// Takes a token of the group of `from`; `false` if no token is left.
    fn take(&mut self, now: Instant, from: Place) -> bool {
        let [group, ..] = mac(&self.secret, &[&from.owner()]);
        self.groups[usize::from(group)].take(now)
    }
}

impl Beacons {
    /// A beacon for the local network; `None` without peers. If there are more peers than a beacon has tags,
    /// successive beacons address the peers in turn.
    pub(crate) fn make(&mut self, net: &mut Network) -> Option<Vec<u8>> {
        self.share_secrets(net);
        let (salt, own) = (net.cx.draw_token(), net.cx.public);
        let tag_keys = net.peers.iter().zip(&self.tag_keys).filter(|(peer, _)| !peer.removed);
        let tag_keys: Vec<&SharedTagKey> = tag_keys.map(|(_, shared)| shared).collect();
        let count = tag_keys.len().min(MAX_TAGS);
        let first = self.next.checked_rem(tag_keys.len())?;
        self.next = first + count;
        let in_turn = tag_keys.into_iter().cycle().skip(first).take(count);
        Some(emit_beacon(salt, in_turn.map(|shared| shared.tag(salt, &own))))
    }

    /// Derives the secret shared with each peer that was added since the last call.
    fn share_secrets(&mut self, net: &Network) {
        let new = net.peers.iter().skip(self.tag_keys.len());
        let made = new.map(|peer| SharedTagKey::new(&net.cx.config.key, &peer.session.key));
        self.tag_keys.extend(made);
    }

    /// Replaces the secret shared with the former peer of this id.
    pub(crate) fn renew(&mut self, net: &Network, peer: PeerId) {
        if let Some(shared) = self.tag_keys.get_mut(peer.0 as usize) {
            *shared = SharedTagKey::new(&net.cx.config.key, &net.peers[peer].session.key);
        }
    }

    pub(crate) fn handle(
        &mut self,
        net: &mut Network,
        now: Instant,
        radio: RadioId,
        from: Place,
        beacon: &Beacon<'_>,
    ) -> Result<(), RefusedPacket> {
        if net.peers.iter().all(|peer| peer.up || peer.removed) {
            return Ok(());
        }
        if !self.may_examine(&mut net.cx, now, from) {
            return Err(RefusedPacket::Flood);
        }
        self.share_secrets(net);
        // A beacon without a known tag is normal: other teams have beacons too.
        let Some(peer) = self.sender(net, beacon) else { return Ok(()) };
        let peer = &net.peers[peer];
        let link = peer.links.link_towards(radio, from).ok_or(RefusedPacket::UnknownSession)?;
        // The radios of two peers that have a relay may reach each other now and then. That is no
        // reason to leave the relay.
        if peer.rendezvous.awaits_translator(link) {
            return Ok(());
        }
        net.set_link_radio(link, radio);
        let link = &mut net.peers[link];
        link.try_beacon_address(from);
        link.initiate_now |= self.initiations.take(now);
        Ok(())
    }

    /// Whether the limits allow the computation of tags for a beacon from `from`.
    fn may_examine(&mut self, cx: &mut Context, now: Instant, from: Place) -> bool {
        let senders = self.senders.get_or_insert_with(|| Senders::new(cx.draw_key()));
        // A sender beyond its own limit does not use up the limit for all senders.
        senders.take(now, from) && self.received.take(now)
    }

    /// The peer that sent the beacon, if it is not up.
    fn sender(&self, net: &Network, beacon: &Beacon<'_>) -> Option<PeerId> {
        let tags: Vec<[u8; TAG]> = beacon.tags().collect();
        let mut peers = net.peers.iter().zip(&self.tag_keys);
        let sent = peers.find(|(peer, shared)| {
            !peer.up && !peer.removed && tags.contains(&shared.tag(beacon.salt, &peer.session.key))
        });
        sent.map(|(peer, _)| peer.id)
    }
}
