// SPDX-License-Identifier: Apache-2.0
//! Messages of peers' topics, on their way to this robot's ROS.

use super::super::Topics;
use super::ChannelKey;
use crate::codec::{Incoming, Job, decompressed_size};
use crate::limits::{HELD_BYTES, LATCHED_BYTES};
use bytes::Bytes;
use tautline_gateway::{Command, Source};
use tautline_proto::{Instant, Received};

/// Bits of a publisher's number at a peer. They limit the publishers that a peer can name.
const SOURCE_BITS: u32 = 0xff;

impl Topics {
    pub(super) fn remote_message(&mut self, now: Instant, key: ChannelKey, message: Received) {
        if !self.is_published(key) {
            return;
        }
        let bytes = match message.encoded {
            true => decompressed_size(&message.payload, self.max_message),
            false => message.payload.len(),
        };
        let source = Source::at_peer(key.peer.0, message.source & SOURCE_BITS);
        if !self.within_rate(now, key, bytes)
            || !self.is_of_its_type(now, key, &message)
            || !self.may_keep(now, key, source, bytes)
        {
            return;
        }
        let Some(remote) = self.remote.get_mut(key) else { return };
        remote.encoded |= message.encoded;
        let translator = remote.translation.translator();
        if remote.encoded || translator.is_some() {
            let topic = remote.topic.name.clone();
            let lifespan = remote.topic.qos.lifespan;
            let expires = lifespan.map(|it| now + it.saturating_sub(message.age));
            let Received { payload, encoded, .. } = message;
            let checker = remote.checked.checker();
            self.codec(Job::Decode(Incoming {
                key,
                topic,
                source,
                payload,
                encoded,
                translator,
                checker,
                expires,
            }));
        } else {
            self.publish_message(now, key, source, message.payload);
        }
    }

    /// Publishes a decompressed or translated message, unless it has expired or its topic is no
    /// longer published.
    pub(crate) fn decoded(&mut self, now: Instant, message: Incoming) {
        let Incoming { key, topic, source, payload, expires, .. } = message;
        let is_same = self.remote.get(key).is_some_and(|it| it.topic.name == topic);
        if is_same && self.is_published(key) && expires.is_none_or(|at| now <= at) {
            self.publish_message(now, key, source, payload);
        }
    }

    fn publish_message(&mut self, now: Instant, key: ChannelKey, source: Source, payload: Bytes) {
        let Some(remote) = self.remote.get_mut(key) else { return };
        let topic = remote.topic.name.clone();
        let Some(payload) = remote.held.hold(payload) else {
            remote.not_held += 1;
            let peer = self.peer_name(key.peer);
            let text = format!(
                "{topic}, and perhaps others: messages of '{peer}' are dropped, because more than \
                 {HELD_BYTES} bytes of its messages are queued for slow local subscribers"
            );
            return self.peer_notice(now, key.peer, &text);
        };
        self.rearm(now, &topic);
        self.gateway(Command::Publish { topic, source, payload });
    }

    /// Whether a message of a latched topic fits into the bytes kept for its peer; if not, a notice
    /// is added.
    fn may_keep(&mut self, now: Instant, key: ChannelKey, source: Source, bytes: usize) -> bool {
        let Some(remote) = self.remote.get(key) else { return false };
        // Several topics may share the publication; its QoS applies.
        let Some(publication) = self.publications.get(&remote.topic.name) else { return false };
        let qos = publication.topic.qos;
        if !qos.transient_local {
            return true;
        }
        let own = remote.kept.bytes();
        let of_peer = self.remote.of_peer(key.peer);
        let others = of_peer.map(|(_, it)| it.kept.bytes()).sum::<usize>() - own;
        let fits = others + remote.kept.bytes_with(source, bytes, qos.depth) <= LATCHED_BYTES;
        if fits {
            if let Some(remote) = self.remote.get_mut(key) {
                remote.kept.add(source, bytes, qos.depth);
            }
            return true;
        }
        let (name, peer) = (&remote.topic.name, self.peer_name(key.peer));
        let text = format!(
            "{name}: a message of '{peer}' is dropped; allowed: {LATCHED_BYTES} bytes of all latched \
             topics of a peer, kept for late joiners"
        );
        self.peer_notice(now, key.peer, &text);
        false
    }
}
