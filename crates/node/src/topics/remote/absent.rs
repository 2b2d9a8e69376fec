// SPDX-License-Identifier: Apache-2.0
//! Peers that are down for long. Their session may continue later, so their topics stay published
//! while somebody here reads them. Their other topics do not, and nothing is read for them.

use super::super::Topics;
use super::RemoteTopic;
use crate::topics::Context;
use std::collections::VecDeque;
use tautline_proto::PeerId;

/// Topics of a returned peer that are published again immediately, and then each second: nobody
/// read them when it disconnected, and each one is a call to the ROS master.
const RESUMED_PER_SWEEP: usize = 256;

impl Topics {
    /// Gives up a peer that has been down for long.
    pub(super) fn give_up(&mut self, cx: &mut Context<'_>, peer: PeerId) {
        self.returning.remove(&peer);
        self.exports.clear_interests(cx, peer);
        self.unpublish_unwanted(cx, peer);
    }

    /// Stops publishing topics that only this peer advertises and nobody here reads.
    fn unpublish_unwanted(&mut self, cx: &mut Context<'_>, peer: PeerId) {
        let mut unwanted = Vec::new();
        for (key, remote) in self.remote.of_peer(peer) {
            let name = &remote.topic.name;
            let publication = self.publications.get_mut(name).filter(|it| !it.wanted);
            let Some(publication) = publication.filter(|_| !self.watchdogs.holds(name)) else {
                continue;
            };
            if publication.from.remove(&key) {
                unwanted.push(name.clone());
            }
        }
        for name in unwanted {
            self.unpublish_if_unused(cx, &name);
        }
    }

    /// Resumes the session of a peer that was given up: its topics are unchanged.
    pub(super) fn resume(&mut self, cx: &mut Context<'_>, peer: PeerId) {
        let of_peer = self.remote.of_peer(peer);
        let known = of_peer.filter(|(_, it)| it.translation.is_known() && !it.awaits_local_form);
        let keys = known.map(|(key, _)| key).filter(|key| !self.is_published(*key)).collect();
        self.returning.insert(peer, keys);
        self.publish_returning(cx, peer);
    }

    /// Publishes again the topics of peers that were given up, a few of each peer at a time.
    pub(super) fn publish_all_returning(&mut self, cx: &mut Context<'_>) {
        for peer in self.returning.keys().copied().collect::<Vec<_>>() {
            self.publish_returning(cx, peer);
        }
    }

    fn publish_returning(&mut self, cx: &mut Context<'_>, peer: PeerId) {
        for _ in 0..RESUMED_PER_SWEEP {
            let Some(key) = self.returning.get_mut(&peer).and_then(VecDeque::pop_front) else {
                self.returning.remove(&peer);
                return;
            };
            let is_known = |it: &RemoteTopic| it.translation.is_known() && !it.awaits_local_form;
            if self.remote.get(key).is_some_and(is_known) && !self.is_published(key) {
                self.publish_for(cx, key);
            }
        }
    }
}
