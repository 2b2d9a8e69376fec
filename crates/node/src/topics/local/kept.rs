// SPDX-License-Identifier: Apache-2.0
//! The messages of local publishers that peers keep for late joiners, and when a publisher with such
//! messages has left or keeps more than was known.

use super::super::origin::{self, PRESENCE_SOURCE, Presence};
use super::super::{ChannelKey, Outgoing, Topics};
use super::LocalTopic;
use crate::codec::Job;
use crate::topics::Context;
use std::collections::VecDeque;
use tautline_gateway::{Kept, Source};
use tautline_proto::Message;

/// Messages kept of one publisher, if its depth is less: the depth may turn out to be larger.
const MIN_LATCHED: usize = 16;

/// Maximum bytes kept of one publisher for late joiners; a single larger message is kept as well.
const MAX_LATCHED_BYTES: usize = 16 << 20;

/// If a publisher turns out to keep more messages, and these have more bytes, only the newest one is
/// sent again.
const MAX_REPEATED_BYTES: usize = 64 << 10;

/// What has become known about a local publisher. If its topic uses the codec, it follows the messages that
/// the publisher has sent so far through the codec.
#[derive(Debug)]
pub(crate) struct SourceChange {
    pub(super) topic: String,
    pub(super) source: Source,
    /// The source of its later messages, and how many of them it keeps; `None`: it has left.
    pub(super) successor: Option<(Source, u32)>,
}

impl LocalTopic {
    /// Forgets the messages kept for late joiners: the gateway stops reading the topic, and a later
    /// subscription gets them from the publishers again.
    pub(in super::super) fn forget_latched(&mut self) {
        self.latched.clear();
        self.held_back.clear();
        self.left_out.clear();
        self.depths.clear();
        if let Some(transforms) = &mut self.transforms {
            transforms.forget();
        }
    }

    /// Whether messages are kept for late joiners, or wait to be.
    pub(in super::super) fn keeps_messages(&self) -> bool {
        !self.latched.is_empty() || !self.held_back.is_empty()
    }

    /// The number of messages that a publisher keeps.
    pub(super) fn depth(&self, source: Source) -> u32 {
        self.depths.get(&source).copied().unwrap_or(1)
    }

    /// The number of messages that receivers keep of a publisher that keeps `depth`. Under a rate,
    /// those before the last one that passed may be outdated at the publisher.
    pub(super) fn allowed_depth(&self, depth: u32) -> u32 {
        if self.treatment.period().is_some() { 1 } else { depth }
    }

    /// Gives a publisher another number.
    fn rename(&mut self, source: Source, successor: Source) {
        let known: Vec<Outgoing> = self.latched.remove(&source).into_iter().flatten().collect();
        if !known.is_empty() {
            let renamed =
                known.into_iter().map(|message| Outgoing { source: successor, ..message });
            self.latched.entry(successor).or_default().extend(renamed);
        }
        self.depths.remove(&source);
    }

    /// Keeps a message for late joiners, in [`MAX_LATCHED_BYTES`].
    pub(super) fn keep_latched(&mut self, mut message: Outgoing) {
        if let Some(kept) = &mut message.origin.kept {
            kept.is_for_later_ones = false;
        }
        let most = (2 * self.depth(message.source) as usize).max(MIN_LATCHED);
        let kept = self.latched.entry(message.source).or_default();
        kept.push_back(message);
        let bytes =
            |kept: &VecDeque<Outgoing>| kept.iter().map(|it| it.payload.len()).sum::<usize>();
        while kept.len() > 1 && (kept.len() > most || bytes(kept) > MAX_LATCHED_BYTES) {
            kept.pop_front();
        }
    }

    /// Whether a message is a copy of one that is kept already: its publisher was connected again.
    pub(super) fn repeats_kept(&self, message: &Outgoing) -> bool {
        let is_same = |kept: &Outgoing, identity| {
            kept.origin.kept.is_some_and(|kept| kept.identity == identity)
        };
        let kept = message.origin.kept.filter(|kept| kept.is_repeatable);
        kept.is_some_and(|new| {
            let latched = self.latched.get(&message.source).into_iter().flatten();
            let held_back = self.held_back.iter().filter(|it| it.source == message.source);
            latched.chain(held_back).any(|kept| is_same(kept, new.identity))
        })
    }

    /// Returns what a late joiner gets: of each publisher as many messages as it keeps.
    pub(in super::super) fn for_late_joiner(&self) -> Vec<Outgoing> {
        self.latched.keys().flat_map(|source| self.kept_by(*source)).collect()
    }

    /// Returns what a late joiner gets of a publisher.
    fn kept_by(&self, source: Source) -> Vec<Outgoing> {
        let Some(kept) = self.latched.get(&source) else { return Vec::new() };
        let surplus = kept.len().saturating_sub(self.depth(source) as usize);
        let mut messages: Vec<Outgoing> = kept.iter().skip(surplus).cloned().collect();
        for kept in messages.iter_mut().filter_map(|it| it.origin.kept.as_mut()) {
            kept.is_repeatable = true;
            kept.is_history = true;
        }
        messages
    }

    /// Returns the publishers with kept messages.
    pub(in super::super) fn presence(&mut self) -> Presence {
        self.revision += 1;
        let bits = self.latched.keys().map(|source| 1u64.checked_shl(source.number).unwrap_or(0));
        Presence { revision: self.revision, sources: bits.fold(0, |all, bit| all | bit) }
    }
}

impl Topics {
    /// Reports to all subscribed peers which publishers of a topic keep messages.
    fn send_presence(&mut self, cx: &mut Context<'_>, topic: &str) {
        let Some(local) = self.local.get_mut(topic) else { return };
        let presence = local.presence();
        for key in local.wanting().collect::<Vec<_>>() {
            self.send_presence_to(cx, key, topic, presence);
        }
    }

    pub(in super::super) fn send_presence_to(
        &mut self,
        cx: &mut Context<'_>,
        key: ChannelKey,
        topic: &str,
        presence: Presence,
    ) {
        let now = cx.now;
        let (payload, source, lifespan) = (presence.emit(), PRESENCE_SOURCE, None);
        let message = Message { payload, published: now, source, encoded: false, lifespan };
        self.send_payload(cx, key, topic, message);
    }

    pub(super) fn source_gone(&mut self, cx: &mut Context<'_>, change: SourceChange) {
        let SourceChange { topic, source, .. } = &change;
        let Some(local) = self.local.get_mut(topic) else { return };
        if local.transforms.is_some() {
            return self.transforms_gone(cx, topic, *source);
        }
        local.held_back.retain(|it| it.source != *source);
        // Its node may be connected again at once, and repeats what it keeps.
        self.forget_source(cx, topic, *source);
        self.after_codec(cx, change);
    }

    /// A publisher keeps more messages than was known.
    pub(super) fn depth_found(&mut self, cx: &mut Context<'_>, change: SourceChange) {
        let Some(local) = self.local.get_mut(&change.topic) else { return };
        let Some((successor, depth)) = change.successor else { return };
        if let Some(transforms) = &mut local.transforms {
            // What is kept are merged messages, which belong to the robot.
            return transforms.rename(change.source, successor);
        }
        for message in local.held_back.iter_mut().filter(|it| it.source == change.source) {
            message.source = successor;
            message.origin.kept.iter_mut().for_each(|kept| kept.depth = depth);
        }
        self.after_codec(cx, change);
    }

    /// Applies a change after the messages that pass through the codec.
    fn after_codec(&mut self, cx: &mut Context<'_>, change: SourceChange) {
        match self.local.get(&change.topic).map(LocalTopic::uses_codec) {
            Some(true) => cx.codec(Job::Change(change)),
            Some(false) => self.source_changed(cx, change),
            None => {}
        }
    }

    pub(in super::super) fn source_changed(&mut self, cx: &mut Context<'_>, change: SourceChange) {
        let SourceChange { topic, source, successor } = change;
        match successor {
            Some((successor, depth)) => self.rename(cx, &topic, [source, successor], depth),
            None => self.forget_source(cx, &topic, source),
        }
    }

    fn forget_source(&mut self, cx: &mut Context<'_>, topic: &str, source: Source) {
        let Some(local) = self.local.get_mut(topic) else { return };
        local.depths.remove(&source);
        local.left_out.remove(&source);
        if local.latched.remove(&source).is_some() {
            self.send_presence(cx, topic);
        }
    }

    /// Peers did not keep the older messages of a publisher that keeps more: they get them again, as
    /// those of another publisher, for subscribers that join later.
    fn rename(
        &mut self,
        cx: &mut Context<'_>,
        topic: &str,
        [source, successor]: [Source; 2],
        depth: u32,
    ) {
        let Some(local) = self.local.get_mut(topic) else { return };
        local.rename(source, successor);
        let depth = local.allowed_depth(depth);
        local.depths.insert(successor, depth);
        let mut messages = local.kept_by(successor);
        if messages.iter().map(|it| it.payload.len()).sum::<usize>() > MAX_REPEATED_BYTES {
            messages.drain(..messages.len() - 1);
        }
        let keys: Vec<ChannelKey> = local.wanting().collect();
        for mut message in messages {
            for key in &keys {
                // Present subscribers get the first copy that arrives, if none has arrived.
                let is_pending = self.is_pending(cx, *key, source, message.origin.kept);
                if let Some(kept) = &mut message.origin.kept {
                    kept.is_for_later_ones = !is_pending;
                }
                self.send_to(cx, *key, &message);
            }
        }
        self.send_presence(cx, topic);
    }

    /// Sends a message that is known to be kept only now. If it was sent to the peer before, its
    /// present subscribers have it.
    pub(super) fn send_missed(
        &mut self,
        cx: &mut Context<'_>,
        key: ChannelKey,
        message: &Outgoing,
    ) {
        let Some(local) = self.local.get(&message.topic) else { return };
        let was_sent = !local.left_out.contains(&message.source)
            && local.wanted_by.get(&key.peer).is_some_and(|since| *since <= message.published);
        let mut message = message.clone();
        if let Some(kept) = &mut message.origin.kept {
            kept.is_for_later_ones = was_sent;
        }
        self.send_to(cx, key, &message);
    }

    /// Whether a message of a publisher repeats one that is still on its way to the peer: after an
    /// outage, both would be sent.
    pub(super) fn is_pending(
        &self,
        cx: &Context<'_>,
        key: ChannelKey,
        source: Source,
        kept: Option<Kept>,
    ) -> bool {
        kept.filter(|kept| kept.is_repeatable).is_some_and(|kept| {
            let mut pending = cx.endpoint.pending(key.peer, key.channel);
            pending.any(|(number, payload)| {
                origin::is_of(number, payload, source.number, kept.identity)
            })
        })
    }
}
