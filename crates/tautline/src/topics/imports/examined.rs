// SPDX-License-Identifier: Apache-2.0
//! Examination of a peer's topic before it is published. It decides whether the definition may be
//! used, and finds the type in this robot's ROS.

use super::catalog::Catalog;
use crate::codec::job::Job;
use crate::topics::context::Context;
use crate::topics::key::ChannelKey;
use std::collections::BTreeMap;
use tautline_proto::PeerId;

/// For each peer, the topic that is being examined. A peer with many topics, or with slow
/// definitions, delays only its own topics.
#[derive(Debug, Default)]
pub(super) struct Examinations {
    topics: BTreeMap<PeerId, ChannelKey>,
}

impl Examinations {
    /// Requests the examination of the peer's next topic, unless one of its topics is being examined.
    pub(super) fn request_next(&mut self, cx: &mut Context<'_>, catalog: &Catalog, peer: PeerId) {
        if self.topics.contains_key(&peer) {
            return;
        }
        let next = catalog.topics_of_peer(peer).find(|(_, remote)| remote.awaits_local_form);
        let Some((key, remote)) = next else { return };
        self.topics.insert(peer, key);
        let topic = remote.topic.clone();
        cx.submit_job(Job::Localize { key, topic });
    }

    /// Notes that the examination of the peer's topic has ended.
    pub(super) fn remove(&mut self, peer: PeerId) {
        self.topics.remove(&peer);
    }

    /// Requests all pending examinations again, because a request may have been lost.
    pub(super) fn retry_all(&mut self, cx: &mut Context<'_>, catalog: &Catalog) {
        for peer in std::mem::take(&mut self.topics).into_keys() {
            self.request_next(cx, catalog, peer);
        }
    }
}
