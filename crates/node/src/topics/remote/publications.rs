// SPDX-License-Identifier: Apache-2.0
//! Topics that are published on this robot: for peers, or for this node.

use super::super::Topics;
use super::super::rights::{Right, TypeOf};
use super::super::waiting::Act;
use super::{ChannelKey, RemoteTopic};
use crate::limits::PUBLISHED_NAMES;
use crate::topics::Context;
use std::collections::BTreeSet;
use tautline_gateway::{Command, Topic};
use tautline_proto::{Instant, PeerId};

/// A topic that is published locally, for peers or for this node.
#[derive(Debug)]
pub(crate) struct Publication {
    pub(crate) topic: Topic,
    pub(crate) from: BTreeSet<ChannelKey>,
    /// Whether this node itself publishes on it.
    pub(crate) own: bool,
    /// Whether it has local subscribers.
    pub(crate) wanted: bool,
    /// Time at which the last local subscriber left, while the topic is still read.
    pub(crate) unwanted_since: Option<Instant>,
}

impl Publication {
    /// Whether the topic is read from the peers.
    fn is_read(&self) -> bool {
        self.wanted || self.unwanted_since.is_some()
    }
}

impl Topics {
    pub(crate) fn local_wanted(&mut self, cx: &mut Context<'_>, topic: &str, wanted: bool) {
        let now = cx.now;
        let Some(publication) = self.publications.get_mut(topic) else { return };
        publication.wanted = wanted;
        let lingers = !wanted && publication.topic.qos.transient_local;
        publication.unwanted_since = lingers.then_some(now);
        if lingers {
            return;
        }
        for key in self.offering(topic) {
            cx.endpoint.want(now, key.peer, key.channel, wanted);
        }
    }

    pub(crate) fn local_refused(&mut self, cx: &mut Context<'_>, topic: &str, reason: &str) {
        let now = cx.now;
        let text = format!("{topic} at '{}': {reason}", cx.endpoint.name());
        for key in self.offering(topic) {
            cx.endpoint.refuse(now, key.peer, key.channel, text.clone());
        }
        self.topic_notice(cx, topic, &text);
    }

    /// Returns the channels that currently feed a local publication.
    pub(crate) fn offering(&self, topic: &str) -> Vec<ChannelKey> {
        let from = self.publications.get(topic).map(|p| p.from.iter());
        let from = from.into_iter().flatten().copied();
        from.filter(|key| self.is_published(*key)).collect()
    }

    pub(super) fn is_published(&self, key: ChannelKey) -> bool {
        let usable = |r: &&RemoteTopic| r.stale_since.is_none() && r.translation.is_known();
        let remote = self.remote.get(key).filter(usable);
        let publication = remote.and_then(|r| self.publications.get(&r.topic.name));
        publication.is_some_and(|p| p.from.contains(&key))
    }

    /// Publishes a peer's topic here, or refuses it if its name is published with another type.
    pub(super) fn publish_for(&mut self, cx: &mut Context<'_>, key: ChannelKey) {
        let now = cx.now;
        let Some(mut topic) = self.remote.get(key).map(|r| r.topic.clone()) else { return };
        if !self.may_publish(cx, key) {
            return self.withdraw_without_right(cx, key);
        }
        if !self.may_have_name(key.peer, &topic.name) {
            let reason = format!("{PUBLISHED_NAMES} names of this peer were published already");
            return cx.refuse(key, &topic.name, &reason);
        }
        let known = self.publications.get(&topic.name);
        // A guarded topic keeps its type, so that its readers get the watchdog's safe message.
        let guarded = self.watchdogs.holds(&topic.name);
        let shared =
            |p: &&Publication| guarded || p.own || p.from.iter().any(|other| *other != key);
        if let Some(known) = known.filter(shared) {
            if !is_same_type(&known.topic, &topic) {
                return self.refuse_type(cx, key);
            }
            // One latched publisher suffices to serve late joiners.
            topic.qos = topic.qos.united(known.topic.qos);
            // A known hash or definition stays, whatever another peer advertises.
            if !known.topic.type_hash.is_empty() {
                topic.type_hash = known.topic.type_hash.clone();
                if !known.topic.definition.is_empty() {
                    topic.definition = known.topic.definition.clone();
                }
            }
        }
        let own = known.is_some_and(|p| p.own);
        let mut from = known.map(|p| p.from.clone()).unwrap_or_default();
        from.insert(key);
        topic.qos.liveliness.lost =
            topic.qos.liveliness.lease.is_some() && !own && !self.is_any_alive(cx, &from);
        let wanted = known.is_some_and(|p| p.wanted);
        let unwanted_since = known.and_then(|p| p.unwanted_since);
        let fresh = known.is_none_or(|p| p.topic != topic);
        let publication = Publication { topic: topic.clone(), from, own, wanted, unwanted_since };
        let is_read = publication.is_read();
        self.publications.insert(topic.name.clone(), publication);
        if fresh {
            self.watch(cx, &topic);
            cx.gateway(Command::Advertise { topic });
        }
        cx.endpoint.want(now, key.peer, key.channel, is_read);
    }

    /// Whether a topic may be published here. Its local type is certain only after translation.
    fn may_publish(&self, cx: &Context<'_>, key: ChannelKey) -> bool {
        self.remote.get(key).is_some_and(|remote| {
            let Topic { type_name: name, type_hash: hash, .. } = &remote.topic;
            let found = TypeOf { offered: &remote.offered_type, name, hash, is_foreign: false };
            cx.peers.rights(key.peer).publish(&remote.offered_name, found) == Right::Given
        })
    }

    /// Gives up a topic that this robot publishes only with a line in its file.
    fn withdraw_without_right(&mut self, cx: &mut Context<'_>, key: ChannelKey) {
        let Some(found) = self.remote.get(key) else { return };
        let name = found.offered_name.clone();
        let waiting = cx.waiting_to(Act::Publish, key.peer, &name, &found.offered_type);
        self.remote_withdrawn(cx, key);
        cx.wait_for_line(key, waiting);
    }

    /// Whether a topic of this name is published here, or may be. Names are limited, because a ROS
    /// master keeps each name and its type as long as it runs.
    fn may_have_name(&mut self, peer: PeerId, name: &str) -> bool {
        let names = self.names.entry(peer).or_default();
        if names.len() < PUBLISHED_NAMES {
            names.insert(name.to_owned());
        }
        names.contains(name)
    }

    fn refuse_type(&mut self, cx: &mut Context<'_>, key: ChannelKey) {
        let now = cx.now;
        let Some(found) = self.remote.get(key) else { return };
        let Some(first) = self.publications.get(&found.topic.name) else { return };
        let other = first.from.iter().find(|other| **other != key);
        let text = format!(
            "{} at '{}': '{}' advertises {} ({}), but '{}' has {} ({})",
            found.topic.name,
            cx.endpoint.name(),
            cx.peers.name(key.peer),
            found.topic.type_name,
            found.topic.type_hash,
            other.map_or(cx.endpoint.name(), |other| cx.peers.name(other.peer)),
            first.topic.type_name,
            first.topic.type_hash,
        );
        if let Some(publication) = self.publications.get_mut(&found.topic.name) {
            publication.from.remove(&key);
        }
        cx.endpoint.want(now, key.peer, key.channel, false);
        cx.report_refusal(key, text);
    }

    pub(crate) fn remote_withdrawn(&mut self, cx: &mut Context<'_>, key: ChannelKey) {
        let Some(gone) = self.remote.remove(key) else { return };
        let name = gone.topic.name;
        if let Some(publication) = self.publications.get_mut(&name) {
            publication.from.remove(&key);
            if !self.watchdogs.holds(&name) {
                self.unpublish_if_unused(cx, &name);
            }
            self.update_liveliness(cx, &name);
        }
    }

    /// Stops publishing a topic that has no publisher any more.
    pub(crate) fn unpublish_if_unused(&mut self, cx: &mut Context<'_>, name: &str) {
        let over = |it: &Publication| it.from.is_empty() && !it.own;
        if !self.publications.get(name).is_some_and(over) {
            return;
        }
        self.publications.remove(name);
        cx.gateway(Command::Unadvertise { topic: name.to_owned() });
        // Topics refused because of its type may take the name now.
        let refused = self.remote.named(name).filter(|(_, r)| r.stale_since.is_none());
        let refused: Vec<_> = refused
            .filter(|(key, r)| {
                r.translation.is_known() && !r.awaits_local_form && !cx.peers.is_given_up(key.peer)
            })
            .map(|(key, _)| key)
            .collect();
        for key in refused {
            self.publish_for(cx, key);
        }
    }
}

/// Whether two topics have the same type. An unknown hash matches any hash.
pub(crate) fn is_same_type(one: &Topic, other: &Topic) -> bool {
    let unknown = one.type_hash.is_empty() || other.type_hash.is_empty();
    one.type_name == other.type_name && (unknown || one.type_hash == other.type_hash)
}
