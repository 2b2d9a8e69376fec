// SPDX-License-Identifier: Apache-2.0
//! The topics that peers advertise, indexed by number, by local name and by name at the peer. A peer may have
//! thousands of topics, and each advertisement and withdrawal looks up the topics of one name.

use super::checked::TypeCheck;
use super::held::HeldBytes;
use super::kept::KeptMessages;
use super::topic::RemoteTopic;
use crate::codec::job::Job;
use crate::limits::LATCHED_BYTES;
use crate::topics::context::Context;
use crate::topics::key::ChannelKey;
use crate::topics::message::Change;
use crate::topics::origin::Presence;
use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::ops::Bound;
use tautline_gateway::{Command, Kept, Source};
use tautline_proto::{ChannelId, OfferedTopic, PeerId};

const MIN_KEY: ChannelKey = ChannelKey { peer: PeerId(0), channel: ChannelId(0) };

/// All topics of peers. The names of a topic must not change while it is in the catalog.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    topics: BTreeMap<ChannelKey, RemoteTopic>,
    by_name: BTreeSet<(String, ChannelKey)>,
    by_offered_name: BTreeSet<(PeerId, String, ChannelId)>,
    /// Bytes of each peer's messages that this robot's ROS holds.
    held: BTreeMap<PeerId, HeldBytes>,
}

impl Catalog {
    /// Inserts a topic, in place of the topic that had its number.
    pub(super) fn insert(&mut self, key: ChannelKey, topic: RemoteTopic) {
        self.remove(key);
        self.by_name.insert((topic.topic.name.clone(), key));
        self.by_offered_name.insert((key.peer, topic.offered_name.clone(), key.channel));
        self.topics.insert(key, topic);
    }

    /// Removes the counters of a removed peer's held bytes.
    pub(super) fn forget_held(&mut self, peer: PeerId) {
        self.held.remove(&peer);
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

    pub(crate) fn topics_of_peer(
        &self,
        peer: PeerId,
    ) -> impl Iterator<Item = (ChannelKey, &RemoteTopic)> {
        let all = self.topics.range(ChannelKey::all_of(peer));
        all.map(|(key, topic)| (*key, topic))
    }

    pub(super) fn topics_of_peer_mut(
        &mut self,
        peer: PeerId,
    ) -> impl Iterator<Item = &mut RemoteTopic> {
        let all = self.topics.range_mut(ChannelKey::all_of(peer));
        all.map(|(_, topic)| topic)
    }

    /// Notes that a peer withdraws its topic. If the topic's messages pass through the codec,
    /// orders a [`Change::PeerWithdrawal`] behind them and returns `true`.
    pub(crate) fn withdraw_after_codec(&mut self, cx: &mut Context<'_>, key: ChannelKey) -> bool {
        let Some(remote) = self.topics.get_mut(&key) else { return false };
        remote.is_withdrawn = true;
        let uses_codec = remote.uses_codec();
        if uses_codec {
            cx.submit_job(Job::Change(Change::PeerWithdrawal(key)));
        }
        uses_codec
    }

    /// Returns the topics of all peers that have this local name.
    pub(super) fn topics_named(
        &self,
        name: &str,
    ) -> impl Iterator<Item = (ChannelKey, &RemoteTopic)> {
        let from = Bound::Included((name.to_owned(), MIN_KEY));
        let keys = self.by_name.range((from, Bound::Unbounded));
        let keys = keys.take_while(move |(other, _)| other == name).map(|(_, key)| *key);
        keys.filter_map(|key| Some((key, self.topics.get(&key)?)))
    }

    /// Returns the total bytes of the definitions of the peer's other topics.
    pub(super) fn definition_bytes(&self, key: ChannelKey) -> usize {
        let others = self.topics_of_peer(key.peer).filter(|(other, _)| *other != key);
        others.map(|(_, remote)| remote.topic.definition.len()).sum()
    }

    /// Returns the check of the earlier topic, if the same topic is advertised again under its number.
    pub(super) fn earlier_check(&self, key: ChannelKey, offered: &OfferedTopic) -> TypeCheck {
        let known = self.get(key).filter(|it| it.offered_name == offered.name);
        known.map(|it| it.type_check.clone()).unwrap_or_default()
    }

    /// Returns the counters of a topic that is advertised again, under this number or another. Its
    /// publication continues, so this robot's ROS still keeps and holds its messages.
    pub(super) fn take_earlier_counters(
        &mut self,
        key: ChannelKey,
        offered_name: &str,
        local_name: Option<&str>,
    ) -> (KeptMessages, HeldBytes, u64) {
        let earlier = iter::once(key).chain(self.offered_as(key.peer, offered_name));
        let is_same = |it: &RemoteTopic| Some(&*it.topic.name) == local_name;
        let earlier = earlier.filter(|other| self.get(*other).is_some_and(is_same)).min();
        match earlier.and_then(|other| self.topics.get_mut(&other)) {
            Some(it) => (std::mem::take(&mut it.kept), it.held.clone(), it.slow_subscriber_drops),
            None => (KeptMessages::default(), self.held.entry(key.peer).or_default().sibling(), 0),
        }
    }

    /// Whether one of these topics has a publisher that is alive, as far as is known.
    pub(super) fn is_any_alive(&self, cx: &Context<'_>, from: &BTreeSet<ChannelKey>) -> bool {
        from.iter().any(|key| {
            let remote = self.get(*key);
            !cx.peers.is_down(key.peer) && remote.is_some_and(|it| !it.topic.qos.liveliness.lost)
        })
    }

    /// Counts a message that its publisher keeps. Returns `false` if it is already kept here, or if
    /// it exceeds the bytes that may be kept of its peer; the second case adds a notice.
    pub(super) fn keep(
        &mut self,
        cx: &mut Context<'_>,
        key: ChannelKey,
        (number, revision): (u32, u32),
        kept: Kept,
        bytes: usize,
    ) -> bool {
        let others: usize = self.topics_of_peer(key.peer).map(|(_, it)| it.kept.bytes()).sum();
        let Some(remote) = self.get_mut(key) else { return false };
        if remote.kept.has(number, &kept) {
            return false;
        }
        if remote.kept.has_left(number, revision) {
            return true;
        }
        let depth = kept.depth;
        let others = others - remote.kept.bytes();
        // The message may also be kept under another number, which the sender is about to end.
        let twice =
            if remote.kept.has_under_other_number(number, kept.identity) { bytes } else { 0 };
        if others + remote.kept.bytes_after_adding(number, bytes, depth) - twice <= LATCHED_BYTES {
            remote.kept.add(number, (kept.identity, bytes), depth, revision);
            return true;
        }
        let (name, peer) = (remote.topic.name.clone(), cx.peers.name(key.peer));
        let text = format!(
            "{name}: a message of '{peer}' is dropped; allowed: {LATCHED_BYTES} bytes of all latched \
             topics of a peer, kept for late joiners"
        );
        cx.peer_notice(key.peer, &text);
        false
    }

    /// Forgets the kept messages of a peer that has a new session. The peer repeats what its
    /// publishers keep now; earlier messages may be outdated.
    pub(super) fn forget_kept(&mut self, cx: &mut Context<'_>, peer: PeerId) {
        for key in self.topics_of_peer(peer).map(|(key, _)| key).collect::<Vec<_>>() {
            let kept = self.get_mut(key).map(|it| std::mem::take(&mut it.kept));
            self.forget_publishers(cx, key, &kept.map(|it| it.publishers()).unwrap_or_default());
        }
    }

    /// Forgets the publishers that the peer no longer has.
    pub(super) fn on_presence(
        &mut self,
        cx: &mut Context<'_>,
        key: ChannelKey,
        presence: Presence,
    ) {
        let gone = self.get_mut(key).map(|it| it.kept.on_presence(presence));
        self.forget_publishers(cx, key, &gone.unwrap_or_default());
    }

    /// Orders this robot's ROS to drop the kept messages of these publishers.
    fn forget_publishers(&mut self, cx: &mut Context<'_>, key: ChannelKey, numbers: &[u32]) {
        let Some(topic) = self.get(key).map(|it| it.topic.name.clone()) else { return };
        for number in numbers {
            let source = Some(Source::at_peer(key.peer.0, *number));
            cx.send_to_gateway(Command::Forget { topic: topic.clone(), source });
        }
    }

    /// Returns the topics that a peer advertises under this name. There is more than one only while
    /// the peer changes numbers.
    pub(super) fn offered_as(&self, peer: PeerId, name: &str) -> impl Iterator<Item = ChannelKey> {
        let from = Bound::Included((peer, name.to_owned(), ChannelId(0)));
        let keys = self.by_offered_name.range((from, Bound::Unbounded));
        let is_it =
            move |(of, other, _): &&(PeerId, String, ChannelId)| *of == peer && other == name;
        keys.take_while(is_it).map(move |(_, _, channel)| ChannelKey { peer, channel: *channel })
    }
}
