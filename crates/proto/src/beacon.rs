// SPDX-License-Identifier: Apache-2.0
//! Peers on the local network are found by their beacons. A beacon is a hint and
//! no more: it leads to a call, and only to a peer that is not up.

use crate::bucket::{Allowance, Bucket};
use crate::crypto::tag::Shared;
use crate::endpoint::{Endpoint, PeerId, RadioId};
use crate::place::Place;
use crate::stats::RefusedPacket;
use crate::time::Instant;
use crate::wire::beacon::{Beacon, MAX_TAGS, TAG, emit_beacon};

/// Beacons looked at: a tag for each peer takes about 1 us, so that with 256 peers
/// they cost at most 2 % of a processor.
const RECEIVED: Allowance = Allowance { burst: 64, per_second: 64 };
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
    calls: Bucket,
}

impl Beacons {
    pub(crate) fn new() -> Self {
        let (received, calls) = (Bucket::new(RECEIVED), Bucket::new(CALLS));
        Self { shared: Vec::new(), next: 0, received, calls }
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
    pub(crate) fn share_secret_anew(&mut self, peer: PeerId) {
        let state = &self.peers[peer.0 as usize];
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
        if !self.beacons.received.take(now) {
            return Err(RefusedPacket::Flood);
        }
        self.share_secrets();
        // One of nobody we look for is no fault: other teams have beacons as well.
        let Some(peer) = self.sender_sought(beacon) else { return Ok(()) };
        let link = self.link_towards(peer, radio, from).ok_or(RefusedPacket::UnknownSession)?;
        self.set_link_radio(link, radio);
        let link = &mut self.links[link.0 as usize];
        link.look_at(from);
        link.call_now |= self.beacons.calls.take(now);
        Ok(())
    }

    /// The peer that sent it, if it is not up.
    fn sender_sought(&self, beacon: &Beacon<'_>) -> Option<PeerId> {
        let tags: Vec<[u8; TAG]> = beacon.tags().collect();
        let mut peers = self.peers.iter().zip(&self.beacons.shared);
        let sent = peers.position(|(peer, shared)| {
            !peer.up && !peer.gone && tags.contains(&shared.tag(beacon.salt, &peer.session.key))
        });
        sent.map(|index| PeerId(index as u32))
    }
}
