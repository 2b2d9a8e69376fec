// SPDX-License-Identifier: Apache-2.0
//! The topics that peers advertise, by number, by local name and by name at the peer. A peer may
//! have thousands, and each advertisement and each withdrawal looks up those of one name.

use super::{ChannelKey, RemoteTopic};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use tautline_proto::{ChannelId, PeerId};

const LEAST_KEY: ChannelKey = ChannelKey { peer: PeerId(0), channel: ChannelId(0) };

/// All topics of peers. The names of a topic do not change while it is here.
#[derive(Debug, Default)]
pub(in crate::topics) struct Catalog {
    topics: BTreeMap<ChannelKey, RemoteTopic>,
    by_name: BTreeSet<(String, ChannelKey)>,
    by_offered_name: BTreeSet<(PeerId, String, ChannelId)>,
}

impl Catalog {
    /// Inserts a topic in place of the one with its number.
    pub(super) fn insert(&mut self, key: ChannelKey, topic: RemoteTopic) {
        self.remove(key);
        self.by_name.insert((topic.topic.name.clone(), key));
        self.by_offered_name.insert((key.peer, topic.offered_name.clone(), key.channel));
        self.topics.insert(key, topic);
    }

    pub(super) fn remove(&mut self, key: ChannelKey) -> Option<RemoteTopic> {
        let topic = self.topics.remove(&key)?;
        self.by_name.remove(&(topic.topic.name.clone(), key));
        self.by_offered_name.remove(&(key.peer, topic.offered_name.clone(), key.channel));
        Some(topic)
    }

    pub(crate) fn get(&self, key: ChannelKey) -> Option<&RemoteTopic> {
        self.topics.get(&key)
    }

    /// Returns a topic to be modified; its names must not change.
    pub(crate) fn get_mut(&mut self, key: ChannelKey) -> Option<&mut RemoteTopic> {
        self.topics.get_mut(&key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ChannelKey, &RemoteTopic)> {
        self.topics.iter().map(|(key, topic)| (*key, topic))
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.topics.len()
    }

    pub(crate) fn of_peer(&self, peer: PeerId) -> impl Iterator<Item = (ChannelKey, &RemoteTopic)> {
        let all = self.topics.range(ChannelKey::all_of(peer));
        all.map(|(key, topic)| (*key, topic))
    }

    pub(super) fn of_peer_mut(&mut self, peer: PeerId) -> impl Iterator<Item = &mut RemoteTopic> {
        let all = self.topics.range_mut(ChannelKey::all_of(peer));
        all.map(|(_, topic)| topic)
    }

    /// Returns the topics of this local name, of all peers.
    pub(super) fn named(&self, name: &str) -> impl Iterator<Item = (ChannelKey, &RemoteTopic)> {
        let from = Bound::Included((name.to_owned(), LEAST_KEY));
        let keys = self.by_name.range((from, Bound::Unbounded));
        let keys = keys.take_while(move |(other, _)| other == name).map(|(_, key)| *key);
        keys.filter_map(|key| Some((key, self.topics.get(&key)?)))
    }

    /// Returns the topics that a peer advertises under this name; more than one only while numbers
    /// change.
    pub(super) fn offered_as(&self, peer: PeerId, name: &str) -> impl Iterator<Item = ChannelKey> {
        let from = Bound::Included((peer, name.to_owned(), ChannelId(0)));
        let keys = self.by_offered_name.range((from, Bound::Unbounded));
        let is_it =
            move |(of, other, _): &&(PeerId, String, ChannelId)| *of == peer && other == name;
        keys.take_while(is_it).map(move |(_, _, channel)| ChannelKey { peer, channel: *channel })
    }
}
