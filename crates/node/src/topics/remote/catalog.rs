// SPDX-License-Identifier: Apache-2.0
//! The topics that peers advertise, by number, by local name and by name at the peer. A peer may
//! have thousands, and each advertisement and each withdrawal looks up those of one name.

use super::{Key, RemoteTopic};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use tautline_proto::{ChannelId, PeerId};

const NO_PEER: Key = (PeerId(0), ChannelId(0));

/// All topics of peers. The names of a topic do not change while it is here.
#[derive(Debug, Default)]
pub(in crate::topics) struct Catalog {
    topics: BTreeMap<Key, RemoteTopic>,
    by_name: BTreeSet<(String, Key)>,
    by_offered_name: BTreeSet<(PeerId, String, ChannelId)>,
}

impl Catalog {
    /// Inserts a topic in place of the one with its number.
    pub(super) fn insert(&mut self, key: Key, topic: RemoteTopic) {
        self.remove(key);
        self.by_name.insert((topic.topic.name.clone(), key));
        self.by_offered_name.insert((key.0, topic.offered_name.clone(), key.1));
        self.topics.insert(key, topic);
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<RemoteTopic> {
        let topic = self.topics.remove(&key)?;
        self.by_name.remove(&(topic.topic.name.clone(), key));
        self.by_offered_name.remove(&(key.0, topic.offered_name.clone(), key.1));
        Some(topic)
    }

    pub(in crate::topics) fn get(&self, key: Key) -> Option<&RemoteTopic> {
        self.topics.get(&key)
    }

    /// Returns a topic to be modified; its names must not change.
    pub(in crate::topics) fn get_mut(&mut self, key: Key) -> Option<&mut RemoteTopic> {
        self.topics.get_mut(&key)
    }

    pub(in crate::topics) fn iter(&self) -> impl Iterator<Item = (Key, &RemoteTopic)> {
        self.topics.iter().map(|(key, topic)| (*key, topic))
    }

    #[cfg(test)]
    pub(in crate::topics) fn len(&self) -> usize {
        self.topics.len()
    }

    /// Returns the topics of one peer.
    pub(in crate::topics) fn of_peer(
        &self,
        peer: PeerId,
    ) -> impl Iterator<Item = (Key, &RemoteTopic)> {
        let all = self.topics.range((peer, ChannelId(0))..=(peer, ChannelId(u64::MAX)));
        all.map(|(key, topic)| (*key, topic))
    }

    pub(super) fn of_peer_mut(&mut self, peer: PeerId) -> impl Iterator<Item = &mut RemoteTopic> {
        let all = self.topics.range_mut((peer, ChannelId(0))..=(peer, ChannelId(u64::MAX)));
        all.map(|(_, topic)| topic)
    }

    /// Returns the topics of this local name, of all peers.
    pub(super) fn named(&self, name: &str) -> impl Iterator<Item = (Key, &RemoteTopic)> {
        let from = Bound::Included((name.to_owned(), NO_PEER));
        let keys = self.by_name.range((from, Bound::Unbounded));
        let keys = keys.take_while(move |(other, _)| other == name).map(|(_, key)| *key);
        keys.filter_map(|key| Some((key, self.topics.get(&key)?)))
    }

    /// Returns the topics that a peer advertises under this name; more than one only while numbers
    /// change.
    pub(super) fn offered_as(&self, peer: PeerId, name: &str) -> impl Iterator<Item = Key> {
        let from = Bound::Included((peer, name.to_owned(), ChannelId(0)));
        let keys = self.by_offered_name.range((from, Bound::Unbounded));
        let is_it =
            move |(of, other, _): &&(PeerId, String, ChannelId)| *of == peer && other == name;
        keys.take_while(is_it).map(move |(_, _, channel)| (peer, *channel))
    }
}
