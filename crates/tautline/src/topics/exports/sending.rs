// SPDX-License-Identifier: Apache-2.0
//! The messages of a topic, from the rate limit to the channels of peers.
//!
//! ```text
//! forward ─▶ renaming ─▶ small: Renaming::apply ─▶ send
//!                        large: Job::Encode ─▶ codec ─▶ JobResult::Encoded ─▶ on_encoded ─▶ send
//! ```

use super::channel::channel_config;
use super::frames::{FrameLookup, Renaming};
use super::topic::LocalTopic;
use crate::codec::job::{Job, UnencodedMessage};
use crate::quota::Cause;
use crate::topics::context::Context;
use crate::topics::key::ChannelKey;
use crate::topics::limits::MAX_INLINE_REWRITE_BYTES;
use crate::topics::message::Outgoing;
use crate::topics::origin::{self, PRESENCE_SOURCE, Presence};
use std::sync::Arc;
use tautline_gateway::action_names::action_of;
use tautline_gateway::tf::Rules;
use tautline_gateway::{Kept, Source, Topic};
use tautline_proto::{Message, PeerId, SendError};

/// Maximum bytes that are sent again when a publisher turns out to keep more messages. If its
/// messages have more bytes, only the newest one is sent again.
const MAX_REPEATED_BYTES: usize = 64 << 10;

impl LocalTopic {
    /// Advertises the topic to a peer, if the rules send it to that peer.
    pub(super) fn offer(&mut self, cx: &mut Context<'_>, peer: PeerId) {
        if !cx.peers.is_topic_offered_to(peer, &self.topic.name, &self.treatment) {
            return;
        }
        let config = channel_config(&self.topic, &self.treatment, cx.peers.links_to(peer));
        let known = self.channels.get(&peer).copied();
        if let Some(channel) = cx.offer_channel(peer, known, config) {
            self.channels.insert(peer, channel);
        }
    }

    /// Sends a message that passed the rate limit. If the topic uses the codec, the message passes
    /// through it.
    pub(super) fn forward(&mut self, cx: &mut Context<'_>, rules: &Arc<Rules>, message: Outgoing) {
        if !self.is_wanted() && message.origin.kept.is_none() {
            return;
        }
        let compression = self.treatment.compression;
        let renaming = self.renaming(cx, rules);
        // The size matters only if frames are renamed.
        let bytes = if renaming.is_some() { message.payload.len() } else { 0 };
        if self.needs_codec(bytes) {
            return cx.submit_job(Job::Encode(UnencodedMessage { message, renaming, compression }));
        }
        match renaming {
            Some(renaming) => {
                let (message, problem) = renaming.apply(message);
                self.send_renamed(cx, message, problem);
            }
            None => self.send(cx, message),
        }
    }

    /// Queues a message for every subscribed peer.
    pub(super) fn send(&mut self, cx: &mut Context<'_>, message: Outgoing) {
        if !self.is_read() {
            return;
        }
        if let Some(kept) = message.origin.kept {
            let depth = self.allowed_depth(kept.depth);
            self.depths.insert(message.source, depth);
            // DDS sends no history with best effort.
            if !message.origin.best_effort {
                self.keep_latched(message.clone());
            }
        }
        for key in self.subscribed_channels().collect::<Vec<_>>() {
            match message.origin.kept {
                Some(kept) if kept.is_for_late_joiners => self.send_missed(cx, key, &message),
                _ => self.send_to(cx, key, &message),
            }
        }
    }

    pub(super) fn send_to(&self, cx: &mut Context<'_>, key: ChannelKey, message: &Outgoing) {
        if is_pending(cx, key, message.source, message.origin.kept) {
            return;
        }
        let mut origin = message.origin;
        if let Some(kept) = &mut origin.kept {
            kept.depth = self.depth(message.source);
        }
        let has_offered_reliability = !(origin.best_effort && self.topic.qos.reliable);
        let (number, revision) = (message.source.number, self.revision);
        let (source, payload) =
            origin::emit(number, &origin, has_offered_reliability, revision, &message.payload);
        let (encoded, published) = (message.encoded, message.published);
        let lifespan = origin.lifespan;
        let sent = Message { payload, published, source, encoded, lifespan };
        send_payload(cx, key, &message.topic, sent);
    }

    /// Sends a message that was only now recognised as kept. If the peer already got it, this copy is
    /// only for subscribers that join later.
    pub(super) fn send_missed(&self, cx: &mut Context<'_>, key: ChannelKey, message: &Outgoing) {
        let was_sent = !self.skipped_sources.contains(&message.source)
            && self.subscribers.get(&key.peer).is_some_and(|since| *since <= message.published);
        let mut message = message.clone();
        if let Some(kept) = &mut message.origin.kept {
            kept.is_for_late_joiners = was_sent;
        }
        self.send_to(cx, key, &message);
    }

    /// Reports to all subscribed peers which publishers of a topic keep messages.
    fn send_presence(&mut self, cx: &mut Context<'_>) {
        let presence = self.presence();
        for key in self.subscribed_channels().collect::<Vec<_>>() {
            send_presence_to(cx, key, &self.topic.name, presence);
        }
    }

    /// Renumbers a publisher that keeps more messages than was known. Peers did not keep its older messages, so
    /// they get these again, under another publisher number, for subscribers that join later.
    pub(super) fn rename_source(
        &mut self,
        cx: &mut Context<'_>,
        [source, successor]: [Source; 2],
        depth: u32,
    ) {
        self.renumber(source, successor);
        let depth = self.allowed_depth(depth);
        self.depths.insert(successor, depth);
        let mut messages = self.kept_messages_of(successor);
        if messages.iter().map(|it| it.payload.len()).sum::<usize>() > MAX_REPEATED_BYTES {
            messages.drain(..messages.len() - 1);
        }
        let keys: Vec<ChannelKey> = self.subscribed_channels().collect();
        for mut message in messages {
            for key in &keys {
                // If no copy has arrived yet, present subscribers get the first one that arrives.
                let is_pending = is_pending(cx, *key, source, message.origin.kept);
                if let Some(kept) = &mut message.origin.kept {
                    kept.is_for_late_joiners = !is_pending;
                }
                self.send_to(cx, *key, &message);
            }
        }
        self.send_presence(cx);
    }

    pub(super) fn forget_source(&mut self, cx: &mut Context<'_>, source: Source) {
        self.depths.remove(&source);
        self.skipped_sources.remove(&source);
        if self.latched.remove(&source).is_some() {
            self.send_presence(cx);
        }
    }

    /// Returns how frames in messages of a topic get new names; `None` if the frames keep their
    /// names, or if the messages name no frames.
    pub(super) fn renaming(
        &mut self,
        cx: &mut Context<'_>,
        rules: &Arc<Rules>,
    ) -> Option<Renaming> {
        // Services of an action keep the names of frames, so topics of an action must as well.
        if rules.prefix.is_empty() || action_of(&self.topic.name).is_some() {
            return None;
        }
        if !self.treatment.tf_prefix || self.transforms.is_some() {
            return None;
        }
        match self.frames.find_fields(&self.topic) {
            Ok(fields) => Some(Renaming { fields: fields?.clone(), rules: rules.clone() }),
            Err(reason) => {
                let text = format!("{}: {reason}", unrenamed_notice_prefix(cx, &self.topic.name));
                cx.notice(Cause::Here, &text);
                None
            }
        }
    }

    /// Reacts to a possible change of the definition of a topic's type.
    pub(super) fn update_definition(&mut self, cx: &mut Context<'_>, topic: &Topic) {
        if self.topic.definition != topic.definition {
            self.frames.lookup = FrameLookup::NotExamined;
            let untrue = unrenamed_notice_prefix(cx, &topic.name);
            cx.notices.retain(&Cause::Here, |text| !text.starts_with(&untrue));
        }
    }

    /// If a message is kept, marks it as one with new names.
    pub(super) fn mark_renamed(
        &mut self,
        cx: &mut Context<'_>,
        rules: &Arc<Rules>,
        message: &mut Outgoing,
    ) {
        if message.origin.kept.is_none() {
            return;
        }
        let renaming = self.renaming(cx, rules);
        if let (Some(renaming), Some(kept)) = (renaming, &mut message.origin.kept) {
            renaming.renew_identity(kept);
        }
    }

    /// Whether a message with renamed frames and this number of bytes must pass through the codec.
    /// After a large message, all later ones of the topic must.
    pub(super) fn needs_codec(&mut self, bytes: usize) -> bool {
        self.frames.has_large_messages |= bytes > MAX_INLINE_REWRITE_BYTES;
        self.uses_codec()
    }

    /// Sends a message whose frames have their final names.
    pub(super) fn send_renamed(
        &mut self,
        cx: &mut Context<'_>,
        message: Outgoing,
        problem: Option<String>,
    ) {
        let now = cx.now;
        if let Some(problem) = problem
            && self.frames.report_limiter.allow(now)
        {
            let text = format!("{}: {problem}", unrenamed_notice_prefix(cx, &message.topic));
            cx.notice(Cause::Here, &text);
        }
        self.send(cx, message);
    }
}

fn send_payload(cx: &mut Context<'_>, key: ChannelKey, topic: &str, message: Message) {
    match cx.endpoint.peer_mut(key.peer).send(cx.now, key.channel, message) {
        // The peer has just unsubscribed; the event follows.
        Ok(()) | Err(SendError::NotWanted) => {}
        Err(error) => {
            let (here, name) = (cx.endpoint.name(), cx.peers.name(key.peer));
            let text = format!("{topic}: not sent from '{here}' to '{name}': {error}");
            cx.peer_notice(key.peer, &text);
        }
    }
}

pub(super) fn send_presence_to(
    cx: &mut Context<'_>,
    key: ChannelKey,
    topic: &str,
    presence: Presence,
) {
    let now = cx.now;
    let (payload, source, lifespan) = (presence.emit(), PRESENCE_SOURCE, None);
    let message = Message { payload, published: now, source, encoded: false, lifespan };
    send_payload(cx, key, topic, message);
}

/// Whether a message of a publisher repeats one that is still on its way to the peer. After an
/// outage, both would otherwise be sent.
pub(super) fn is_pending(
    cx: &Context<'_>,
    key: ChannelKey,
    source: Source,
    kept: Option<Kept>,
) -> bool {
    kept.filter(|kept| kept.is_repeatable).is_some_and(|kept| {
        let mut pending = cx.endpoint.peer(key.peer).pending(key.channel);
        pending.any(|(number, payload)| {
            origin::is_kept_message(number, payload, source.number, kept.identity)
        })
    })
}

fn unrenamed_notice_prefix(cx: &Context<'_>, topic: &str) -> String {
    let here = cx.endpoint.name();
    format!("{topic} of '{here}': frames in its messages are sent without the prefix of tf")
}
