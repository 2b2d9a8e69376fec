// SPDX-License-Identifier: Apache-2.0
//! Peers that are away for long. Their session may go on later, so that what somebody here reads
//! stays published. Nothing else of them does, and nothing is read for them.

use super::super::Topics;
use super::{Absence, PATIENCE};
use tautline_proto::{Endpoint, Instant, PeerId};

impl Topics {
    /// Gives up peers that have been away for long.
    pub(super) fn give_up_absent(&mut self, now: Instant, endpoint: &mut Endpoint) {
        let mut gone = Vec::new();
        for (peer, absence) in &mut self.absent {
            if matches!(absence, Absence::Since(at) if now.since(*at) > PATIENCE) {
                *absence = Absence::GivenUp;
                gone.push(*peer);
            }
        }
        for peer in gone {
            self.want_nothing(peer);
            self.unpublish_unwanted(now, endpoint, peer);
        }
    }

    pub(super) fn is_given_up(&self, peer: PeerId) -> bool {
        self.absent.get(&peer) == Some(&Absence::GivenUp)
    }

    /// Stops publishing what this peer alone offers and nobody here reads.
    fn unpublish_unwanted(&mut self, now: Instant, endpoint: &mut Endpoint, peer: PeerId) {
        let mut unwanted = Vec::new();
        for (name, publication) in &mut self.publications {
            if !publication.wanted && !self.watchdogs.holds(name) {
                let before = publication.from.len();
                publication.from.retain(|key| key.0 != peer);
                if publication.from.len() < before {
                    unwanted.push(name.clone());
                }
            }
        }
        for name in unwanted {
            self.release(now, endpoint, &name);
        }
    }

    /// A peer that was given up is back in the same session: it wants what it wanted, and has
    /// what it had.
    pub(super) fn resume(&mut self, now: Instant, endpoint: &mut Endpoint, peer: PeerId) {
        let channels = self.local.values().filter_map(|l| l.channels.get(&peer).copied());
        for channel in channels.collect::<Vec<_>>() {
            if endpoint.channel_out(peer, channel).is_some_and(|(_, wanted, _)| wanted) {
                self.remote_wanted(now, endpoint, (peer, channel), true);
            }
        }
        let of_peer = self.remote.iter().filter(|(key, _)| key.0 == peer);
        let known = of_peer.filter(|(_, it)| it.translation.is_known() && !it.asked);
        let keys: Vec<_> = known.map(|(key, _)| *key).collect();
        for key in keys.into_iter().filter(|key| !self.is_published(*key)).collect::<Vec<_>>() {
            self.publish_for(now, endpoint, key);
        }
    }
}
