// SPDX-License-Identifier: Apache-2.0
//! Topics that are published on this robot: for peers, or for this node.

use super::catalog::Catalog;
use super::topic::RemoteTopic;
use crate::limits::PUBLISHED_NAMES;
use crate::quota::Cause;
use crate::topics::context::Context;
use crate::topics::key::ChannelKey;
use std::collections::{BTreeMap, BTreeSet};
use tautline_gateway::{Command, Topic};
use tautline_proto::{Instant, PeerId};

/// A topic that is published locally, for peers or for this node.
#[derive(Debug)]
pub(crate) struct Publication {
    pub(crate) topic: Topic,
    pub(crate) channels: BTreeSet<ChannelKey>,
    /// Whether this node itself publishes on it.
    pub(crate) is_own: bool,
    /// Whether it has local subscribers.
    pub(crate) wanted: bool,
    /// Time at which the last local subscriber left, while the topic is still read.
    pub(crate) unwanted_since: Option<Instant>,
}

impl Publication {
    /// Whether the topic is read from the peers.
    pub(super) fn is_read(&self) -> bool {
        self.wanted || self.unwanted_since.is_some()
    }
}

/// All publications, by local name.
#[derive(Debug, Default)]
pub(crate) struct Publications {
    by_name: BTreeMap<String, Publication>,
    /// For each peer, the names under which its topics were published.
    names: BTreeMap<PeerId, BTreeSet<String>>,
}

impl Publications {
    pub(crate) fn get(&self, name: &str) -> Option<&Publication> {
        self.by_name.get(name)
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Publication> {
        self.by_name.get_mut(name)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&String, &mut Publication)> {
        self.by_name.iter_mut()
    }

    pub(super) fn insert(&mut self, publication: Publication) {
        self.by_name.insert(publication.topic.name.clone(), publication);
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.by_name.remove(name);
    }

    /// Notes that a channel of a peer no longer feeds a topic. Returns whether it did before.
    pub(super) fn detach(&mut self, name: &str, key: ChannelKey) -> bool {
        self.by_name.get_mut(name).is_some_and(|it| it.channels.remove(&key))
    }

    /// Whether a topic has local subscribers.
    pub(super) fn is_wanted(&self, name: &str) -> bool {
        self.by_name.get(name).is_some_and(|it| it.wanted)
    }

    pub(super) fn forget_names_of(&mut self, peer: PeerId) {
        self.names.remove(&peer);
    }

    /// Publishes `topic` only here, whatever the file states for its name. Called repeatedly,
    /// because others may take or free the name.
    pub(super) fn publish_own_topic(&mut self, cx: &mut Context<'_>, topic: &Topic) {
        let Some(publication) = self.by_name.get_mut(&topic.name) else {
            let topic = topic.clone();
            let publication = Publication {
                topic: topic.clone(),
                channels: BTreeSet::new(),
                is_own: true,
                wanted: false,
                unwanted_since: None,
            };
            self.by_name.insert(topic.name.clone(), publication);
            return cx.send_to_gateway(Command::Advertise { topic });
        };
        if publication.is_own || !is_same_type(&publication.topic, topic) {
            return;
        }
        publication.is_own = true;
        let combined = topic.qos.combined_with(publication.topic.qos);
        if publication.topic.qos != combined {
            publication.topic.qos = combined;
            let topic = publication.topic.clone();
            cx.send_to_gateway(Command::Advertise { topic });
        }
    }

    /// Whether a topic that this node itself publishes has local subscribers.
    pub(super) fn is_own_topic_wanted(&self, name: &str) -> bool {
        self.by_name.get(name).is_some_and(|it| it.is_own && it.wanted)
    }

    /// Whether a peer may publish a topic under this name. The number of names is limited, because
    /// a ROS master remembers each name and its type for as long as it runs.
    pub(super) fn reserve_name(&mut self, peer: PeerId, name: &str) -> bool {
        let names = self.names.entry(peer).or_default();
        if names.len() < PUBLISHED_NAMES {
            names.insert(name.to_owned());
        }
        names.contains(name)
    }

    /// Whether the peer's channel feeds a topic that is published here.
    pub(super) fn is_fed_by(&self, catalog: &Catalog, key: ChannelKey) -> bool {
        catalog.get(key).is_some_and(|it| it.stale_since.is_none()) && self.was_fed_by(catalog, key)
    }

    /// As [`Self::is_fed_by`], but also true if the channel is of the peer's last session.
    pub(super) fn was_fed_by(&self, catalog: &Catalog, key: ChannelKey) -> bool {
        let remote = catalog.get(key).filter(|it| it.translation.is_known());
        let publication = remote.and_then(|r| self.get(&r.topic.name));
        publication.is_some_and(|p| p.channels.contains(&key))
    }

    /// Returns the channels that currently feed a local publication.
    pub(super) fn feeding_channels(&self, catalog: &Catalog, topic: &str) -> Vec<ChannelKey> {
        let from = self.get(topic).map(|p| p.channels.iter());
        let from = from.into_iter().flatten().copied();
        from.filter(|key| self.is_fed_by(catalog, *key)).collect()
    }

    /// Reports to the gateway whether a publication is alive, if this has changed.
    pub(super) fn update_liveliness(
        &mut self,
        cx: &mut Context<'_>,
        catalog: &Catalog,
        name: &str,
    ) {
        let Some(known) = self.get(name) else { return };
        let leased = known.topic.qos.liveliness.lease.is_some();
        let lost = leased && !known.is_own && !catalog.is_any_alive(cx, &known.channels);
        let Some(known) = self.get_mut(name) else { return };
        if std::mem::replace(&mut known.topic.qos.liveliness.lost, lost) != lost {
            let topic = known.topic.clone();
            cx.send_to_gateway(Command::Advertise { topic });
        }
    }
    /// Refuses a topic of a peer because its name has another type here.
    pub(super) fn refuse_type(
        &mut self,
        cx: &mut Context<'_>,
        key: ChannelKey,
        found: &RemoteTopic,
    ) {
        let Some(first) = self.get(&found.topic.name) else { return };
        let other = first.channels.iter().find(|other| **other != key);
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
        self.detach(&found.topic.name, key);
        cx.endpoint.peer_mut(key.peer).want(cx.now, key.channel, false);
        cx.report_refusal(key, text);
    }

    /// Adds a notice about a topic of peers. Its cause is the first peer whose channel feeds the topic.
    pub(super) fn notice(&self, cx: &mut Context<'_>, topic: &str, text: &str) {
        let now = cx.now;
        let from = self.by_name.get(topic).and_then(|it| it.channels.first());
        let cause = from.map_or(Cause::Here, |key| cx.peers.cause(key.peer));
        cx.notices.add(now, cause, text);
    }
}

/// Whether two topics have the same type. An unknown hash matches any hash.
pub(super) fn is_same_type(one: &Topic, other: &Topic) -> bool {
    let unknown = one.type_hash.is_empty() || other.type_hash.is_empty();
    one.type_name == other.type_name && (unknown || one.type_hash == other.type_hash)
}
