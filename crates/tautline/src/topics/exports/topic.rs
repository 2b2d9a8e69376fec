// SPDX-License-Identifier: Apache-2.0
//! A topic that local nodes publish: who reads it, and which messages wait or are kept.

use super::frames::Frames;
use super::transforms::Transforms;
use crate::topics::key::ChannelKey;
use crate::topics::message::Outgoing;
use crate::treatment::{Compression, Treatment};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tautline_gateway::{Source, Topic};
use tautline_proto::{ChannelId, Duration, Instant, PeerId};

/// Time within which a publisher repeats all messages that it keeps.
const REPEAT_WINDOW: Duration = Duration::from_millis(100);

/// A topic that local nodes publish.
#[derive(Debug)]
pub(crate) struct LocalTopic {
    pub(crate) topic: Topic,
    pub(crate) treatment: Treatment,
    /// Whether this node itself publishes on it.
    pub(super) is_own: bool,
    /// Whether other nodes on this robot publish on it.
    pub(super) has_other_publishers: bool,
    pub(crate) channels: BTreeMap<PeerId, ChannelId>,
    /// The subscribed peers, with the times of their subscriptions.
    pub(super) subscribers: BTreeMap<PeerId, Instant>,
    /// Time at which the last peer unsubscribed, while the topic is still read.
    pub(super) unwanted_since: Option<Instant>,
    pub(super) last_turn: Option<Instant>,
    pub(crate) rate_limited: u64,
    /// The last messages of each publisher that keeps them for late joiners.
    pub(super) latched: BTreeMap<Source, VecDeque<Outgoing>>,
    /// For each publisher, the newest message to be kept that the rate does not allow yet. The
    /// order is that of the publishers' turns.
    pub(super) held_back: VecDeque<Outgoing>,
    /// The publishers whose last message the rate limit dropped because it was not known to be kept.
    pub(super) skipped_sources: BTreeSet<Source>,
    /// The number of messages that each publisher keeps, where it is known to be above 1.
    pub(super) depths: BTreeMap<Source, u32>,
    /// Number of presence messages sent so far.
    pub(super) revision: u32,
    /// The state of its transforms, if it is a tf topic.
    pub(crate) transforms: Option<Transforms>,
    /// The frames in its messages, if it is not a tf topic.
    pub(super) frames: Frames,
}

impl LocalTopic {
    pub(super) fn new(topic: Topic, treatment: Treatment) -> Self {
        Self {
            transforms: Transforms::of_type(&topic.type_name),
            topic,
            treatment,
            is_own: false,
            has_other_publishers: false,
            channels: BTreeMap::new(),
            subscribers: BTreeMap::new(),
            unwanted_since: None,
            last_turn: None,
            rate_limited: 0,
            latched: BTreeMap::new(),
            held_back: VecDeque::new(),
            skipped_sources: BTreeSet::new(),
            depths: BTreeMap::new(),
            revision: 0,
            frames: Frames::default(),
        }
    }

    pub(super) fn is_of_type(&self, other: &Topic) -> bool {
        (&self.topic.type_name, &self.topic.type_hash) == (&other.type_name, &other.type_hash)
    }

    /// Returns the channels on which the topic is advertised.
    pub(crate) fn keys(&self) -> impl Iterator<Item = ChannelKey> {
        self.channels.iter().map(|(peer, channel)| ChannelKey { peer: *peer, channel: *channel })
    }

    /// Returns the channel on which the topic is advertised to a peer.
    pub(super) fn channel_of(&self, peer: PeerId) -> Option<ChannelKey> {
        Some(ChannelKey { peer, channel: *self.channels.get(&peer)? })
    }

    /// Returns the channels of the peers that are subscribed.
    pub(super) fn subscribed_channels(&self) -> impl Iterator<Item = ChannelKey> {
        self.subscribers.keys().filter_map(|peer| self.channel_of(*peer))
    }

    pub(super) fn is_wanted(&self) -> bool {
        !self.subscribers.is_empty()
    }

    /// Whether the gateway reads the topic.
    pub(super) fn is_read(&self) -> bool {
        self.is_wanted() || self.unwanted_since.is_some()
    }

    /// Notes that a peer subscribes. Returns `false` if it was subscribed already.
    pub(super) fn add_subscriber(&mut self, now: Instant, peer: PeerId) -> bool {
        self.unwanted_since = None;
        let is_new = !self.subscribers.contains_key(&peer);
        if is_new {
            self.subscribers.insert(peer, now);
        }
        is_new
    }

    pub(super) fn remove_subscriber(&mut self, now: Instant, peer: PeerId) {
        if self.subscribers.remove(&peer).is_some() && self.subscribers.is_empty() {
            self.unwanted_since = Some(now);
        }
    }

    /// Delays the next turn while a publisher repeats its kept messages, the newest last: at one
    /// message per `period`, only the newest is sent. Peers may have had it before.
    pub(super) fn await_newest(&mut self, now: Instant, period: Duration) {
        let turn_before = (now + REPEAT_WINDOW).before(period);
        self.last_turn = self.last_turn.max(Some(turn_before));
    }

    /// Returns the time at which the next message may be taken, at one message per `period`; `None`
    /// means now.
    pub(super) fn next_turn(&self, period: Duration) -> Option<Instant> {
        Some(self.last_turn? + period)
    }

    /// Whether a message may be taken now, at one message per `period`. If so, the message takes the turn.
    pub(super) fn take_turn(&mut self, now: Instant, period: Duration) -> bool {
        let Some(last) = self.last_turn else {
            self.last_turn = Some(now);
            return true;
        };
        if now.since(last) < period {
            return false;
        }
        // Counting from the planned time keeps the average at the limit and allows an early message
        // after a late one: jitter does not halve the rate of a publisher exactly at the limit.
        let planned = last + period;
        let resumes = now.since(planned) > period;
        self.last_turn = Some(if resumes { now } else { planned });
        true
    }

    /// Whether the topic's messages pass through the codec.
    pub(super) fn uses_codec(&self) -> bool {
        self.treatment.compression == Compression::Zstd || self.frames.has_large_messages
    }
}
