// SPDX-License-Identifier: Apache-2.0
//! Which topics of peers are published here, and read from the peers.
//!
//! A peer that is down for long may continue its session later, so its topics stay published while
//! they have local subscribers. Its other topics are no longer published.

use super::Imports;
use super::publications::{Publication, is_same_type};
use super::topic::RemoteTopic;
use crate::limits::PUBLISHED_NAMES;
use crate::topics::context::Context;
use crate::topics::key::ChannelKey;
use crate::topics::waiting::RequestKind;
use std::collections::{BTreeSet, VecDeque};
use tautline_gateway::Command;
use tautline_proto::{Duration, Instant, PeerId};

/// Maximum number of topics of a returned peer that are published again immediately, and then in
/// each sweep. Nobody read them when the peer was given up, and each takes a call to the ROS master.
const RESUMED_PER_SWEEP: usize = 256;

/// Time for which a topic with kept messages is still read after its last local subscriber has left. The next
/// subscriber then gets the messages that are here, and the peer need not send them again.
const UNSUBSCRIBE_DELAY: Duration = Duration::from_secs(10);

impl Imports {
    /// Handles that local nodes subscribe to a topic, or no longer do.
    pub(crate) fn on_local_wanted(&mut self, cx: &mut Context<'_>, topic: &str, wanted: bool) {
        let now = cx.now;
        let Some(publication) = self.publications.get_mut(topic) else { return };
        publication.wanted = wanted;
        let lingers = !wanted && publication.topic.qos.transient_local;
        publication.unwanted_since = lingers.then_some(now);
        if lingers {
            return;
        }
        for key in self.publications.feeding_channels(&self.catalog, topic) {
            cx.endpoint.peer_mut(key.peer).want(now, key.channel, wanted);
        }
    }

    /// Handles that the local ROS refuses a topic.
    pub(crate) fn on_local_refused(&mut self, cx: &mut Context<'_>, topic: &str, reason: &str) {
        let text = format!("{topic} at '{}': {reason}", cx.endpoint.name());
        for key in self.publications.feeding_channels(&self.catalog, topic) {
            cx.endpoint.peer_mut(key.peer).refuse(cx.now, key.channel, text.clone());
        }
        self.publications.notice(cx, topic, &text);
    }

    /// Publishes a peer's topic here, or refuses it if its name is already published with another type.
    pub(super) fn publish_for(&mut self, cx: &mut Context<'_>, key: ChannelKey) {
        let Some(found) = self.catalog.get(key) else { return };
        let mut topic = found.topic.clone();
        if !found.may_be_published(cx.peers.rights(key.peer)) {
            return self.withdraw_without_right(cx, key);
        }
        if !self.publications.reserve_name(key.peer, &topic.name) {
            let reason = format!("{PUBLISHED_NAMES} names of this peer were published already");
            return cx.refuse(key, &topic.name, &reason);
        }
        let known = self.publications.get(&topic.name);
        // A topic with a watchdog keeps its type, so that its readers get the safe message.
        let guarded = self.watchdogs.must_stay_published(&topic.name);
        let shared =
            |p: &&Publication| guarded || p.is_own || p.channels.iter().any(|other| *other != key);
        if let Some(known) = known.filter(shared) {
            if !is_same_type(&known.topic, &topic) {
                return self.publications.refuse_type(cx, key, found);
            }
            // If one publisher is latched, the topic must serve late joiners.
            topic.qos = topic.qos.combined_with(known.topic.qos);
            // A hash or definition that is known stays, whatever another peer advertises.
            if !known.topic.type_hash.is_empty() {
                topic.type_hash = known.topic.type_hash.clone();
                if !known.topic.definition.is_empty() {
                    topic.definition = known.topic.definition.clone();
                }
            }
        }
        let is_own = known.is_some_and(|p| p.is_own);
        let mut channels = known.map(|p| p.channels.clone()).unwrap_or_default();
        channels.insert(key);
        topic.qos.liveliness.lost = topic.qos.liveliness.lease.is_some()
            && !is_own
            && !self.catalog.is_any_alive(cx, &channels);
        let wanted = known.is_some_and(|p| p.wanted);
        let unwanted_since = known.and_then(|p| p.unwanted_since);
        let fresh = known.is_none_or(|p| p.topic != topic);
        let publication =
            Publication { topic: topic.clone(), channels, is_own, wanted, unwanted_since };
        let is_read = publication.is_read();
        self.publications.insert(publication);
        if fresh {
            self.watchdogs.watch(cx, &topic);
            cx.send_to_gateway(Command::Advertise { topic });
        }
        cx.endpoint.peer_mut(key.peer).want(cx.now, key.channel, is_read);
    }

    /// Gives up a topic that needs a line in this robot's file, and lists it as waiting for the line.
    fn withdraw_without_right(&mut self, cx: &mut Context<'_>, key: ChannelKey) {
        let Some(found) = self.catalog.get(key) else { return };
        let name = found.offered_name.clone();
        let waiting =
            cx.pending_request(RequestKind::Publish, key.peer, &name, &found.offered_type);
        self.on_withdrawn(cx, key);
        cx.wait_for_config_line(key, waiting);
    }

    /// Stops publishing a topic that has no publisher any more.
    pub(super) fn unpublish_if_unused(&mut self, cx: &mut Context<'_>, name: &str) {
        let over = |it: &Publication| it.channels.is_empty() && !it.is_own;
        if !self.publications.get(name).is_some_and(over) {
            return;
        }
        self.publications.remove(name);
        cx.send_to_gateway(Command::Unadvertise { topic: name.to_owned() });
        // Topics that were refused because of this topic's type may take the name now.
        let refused = self.catalog.topics_named(name).filter(|(_, r)| r.stale_since.is_none());
        let refused: Vec<_> = refused
            .filter(|(key, r)| r.is_usable() && !cx.peers.is_given_up(key.peer))
            .map(|(key, _)| key)
            .collect();
        for key in refused {
            self.publish_for(cx, key);
        }
    }

    /// Updates the liveliness of the publications of a peer that came up or went down.
    pub(crate) fn update_liveliness_of(&mut self, cx: &mut Context<'_>, peer: PeerId) {
        let leased = self
            .catalog
            .topics_of_peer(peer)
            .filter(|(_, it)| it.topic.qos.liveliness.lease.is_some());
        let names: BTreeSet<String> = leased.map(|(_, it)| it.topic.name.clone()).collect();
        names.iter().for_each(|name| self.publications.update_liveliness(cx, &self.catalog, name));
    }

    /// Ends the subscriptions to topics with kept messages that have had no local subscriber for
    /// [`UNSUBSCRIBE_DELAY`]. From then on their messages may become outdated, so they are forgotten.
    pub(crate) fn forget_unwanted(&mut self, cx: &mut Context<'_>) {
        let now = cx.now;
        let mut topics = Vec::new();
        for (name, publication) in self.publications.iter_mut() {
            let is_over = |since: &mut Instant| now.since(*since) >= UNSUBSCRIBE_DELAY;
            if publication.unwanted_since.take_if(|since| is_over(since)).is_some() {
                topics.push(name.clone());
            }
        }
        for topic in topics {
            for key in self.publications.feeding_channels(&self.catalog, &topic) {
                cx.endpoint.peer_mut(key.peer).want(now, key.channel, false);
            }
            for key in self.catalog.topics_named(&topic).map(|(key, _)| key).collect::<Vec<_>>() {
                if let Some(remote) = self.catalog.get_mut(key) {
                    remote.kept = Default::default();
                }
            }
            cx.send_to_gateway(Command::Forget { topic, source: None });
        }
    }

    /// Gives up a peer that has been down for long.
    pub(crate) fn give_up(&mut self, cx: &mut Context<'_>, peer: PeerId) {
        self.republish_queues.remove(&peer);
        self.unpublish_unwanted(cx, peer);
    }

    /// Stops publishing topics that only this peer advertises and nobody here reads.
    fn unpublish_unwanted(&mut self, cx: &mut Context<'_>, peer: PeerId) {
        let mut unwanted = Vec::new();
        for (key, remote) in self.catalog.topics_of_peer(peer) {
            let name = &remote.topic.name;
            let publication = self.publications.get_mut(name).filter(|it| !it.wanted);
            let Some(publication) =
                publication.filter(|_| !self.watchdogs.must_stay_published(name))
            else {
                continue;
            };
            if publication.channels.remove(&key) {
                unwanted.push(name.clone());
            }
        }
        for name in unwanted {
            self.unpublish_if_unused(cx, &name);
        }
    }

    /// Resumes publishing for a peer that was given up. The session is the same, so its topics are unchanged.
    pub(crate) fn resume(&mut self, cx: &mut Context<'_>, peer: PeerId) {
        let known = self.catalog.topics_of_peer(peer).filter(|(_, it)| it.is_usable());
        let keys = known
            .map(|(key, _)| key)
            .filter(|key| !self.publications.is_fed_by(&self.catalog, *key))
            .collect();
        self.republish_queues.insert(peer, keys);
        self.publish_returning(cx, peer);
    }

    /// Publishes the topics of returned peers again, a few of each peer at a time.
    pub(crate) fn publish_all_returning(&mut self, cx: &mut Context<'_>) {
        for peer in self.republish_queues.keys().copied().collect::<Vec<_>>() {
            self.publish_returning(cx, peer);
        }
    }

    fn publish_returning(&mut self, cx: &mut Context<'_>, peer: PeerId) {
        for _ in 0..RESUMED_PER_SWEEP {
            let Some(key) = self.republish_queues.get_mut(&peer).and_then(VecDeque::pop_front)
            else {
                self.republish_queues.remove(&peer);
                return;
            };
            if self.catalog.get(key).is_some_and(RemoteTopic::is_usable)
                && !self.publications.is_fed_by(&self.catalog, key)
            {
                self.publish_for(cx, key);
            }
        }
    }
}
