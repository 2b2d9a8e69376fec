// SPDX-License-Identifier: Apache-2.0
//! Messages of peers' topics, on their way to this robot's ROS.

use super::super::Topics;
use super::super::origin::{self, Content};
use super::{ArrivalChange, ChannelKey};
use crate::codec::{Incoming, Job, decompressed_size};
use crate::limits::{HELD_BYTES, HISTORY_DEPTH, LATCHED_BYTES};
use crate::topics::Context;
use tautline_gateway::logs;
use tautline_gateway::{Command, Kept, MAX_SOURCES, Origin, Source};
use tautline_proto::{Duration, Instant, PeerId, Received};

/// Time for which a topic is still read after its last local subscriber has left, if messages are
/// kept: those at hand then serve the next subscriber, and are not sent again.
const UNWANTED_LINGER: Duration = Duration::from_secs(10);

/// The number of publishers that left before their message arrived; no publisher has it.
const LEFT: u32 = 127;
const _: () = assert!(MAX_SOURCES <= LEFT);

impl Topics {
    pub(super) fn remote_message(
        &mut self,
        cx: &mut Context<'_>,
        key: ChannelKey,
        message: Received,
    ) {
        let now = cx.now;
        if !self.is_published(key) {
            return;
        }
        let Some(remote) = self.remote.get(key) else { return };
        let is_best_effort = !remote.topic.qos.reliable;
        let (number, origin, revision, payload) =
            match origin::parse(message.source, is_best_effort, message.payload) {
                Some(Content::Message { number, origin, revision, payload }) => {
                    (number, Origin { age: message.age, ..origin }, revision, payload)
                }
                Some(Content::Presence(presence)) => {
                    let gone = self.remote.get_mut(key).map(|it| it.kept.on_presence(presence));
                    return self.forget_publishers(cx, key, &gone.unwrap_or_default());
                }
                None => return,
            };
        let bytes = match message.encoded {
            true => decompressed_size(&payload, self.max_message),
            false => payload.len(),
        };
        let message = Received { payload, ..message };
        if !cx.within_rate(key, bytes) {
            return self.remote.get_mut(key).into_iter().for_each(|it| it.over_rate.add(bytes));
        }
        if !self.is_of_its_type(cx, key, &message) {
            return;
        }
        if let Some(kept) = origin.kept
            && !self.keep(cx, key, (number, revision), kept, bytes)
        {
            return;
        }
        let source = Source::at_peer(key.peer.0, number);
        let change = self.arrival_change(cx, key);
        let is_large = change.is_some() && ArrivalChange::is_for_codec(message.payload.len());
        let Some(remote) = self.remote.get_mut(key) else { return };
        remote.encoded |= message.encoded || is_large;
        let translator = remote.translation.translator();
        let topic = remote.topic.name.clone();
        let lifespan = origin.lifespan_within(remote.topic.qos.lifespan);
        let expires = lifespan.map(|it| now + it.saturating_sub(message.age));
        let Received { payload, encoded, .. } = message;
        let (checker, arrived) = (remote.checked.checker(), now);
        let is_decoded = remote.encoded || translator.is_some();
        let message = Incoming {
            key,
            topic,
            source,
            payload,
            origin,
            encoded,
            translator,
            checker,
            change,
            expires,
            arrived,
            revision,
        };
        match is_decoded {
            true => cx.codec(Job::Decode(message)),
            false => {
                self.publish_message(cx, message.changed());
            }
        }
    }

    /// Publishes a decompressed or translated message, unless it has expired or its topic is no
    /// longer published.
    pub(crate) fn decoded(&mut self, cx: &mut Context<'_>, message: Incoming) {
        let now = cx.now;
        let is_same = self.remote.get(message.key).is_some_and(|it| it.topic.name == message.topic);
        if is_same && self.is_published(message.key) && message.expires.is_none_or(|at| now <= at) {
            self.publish_message(cx, message);
        }
    }

    fn publish_message(&mut self, cx: &mut Context<'_>, message: Incoming) {
        let now = cx.now;
        let Incoming { key, topic, source, payload, origin, arrived, revision, .. } = message;
        let Some(remote) = self.remote.get_mut(key) else { return };
        let has_left = origin.kept.is_some() && remote.kept.has_left(source.number, revision);
        let offered = (&remote.offered_name, &remote.topic.type_name, &remote.topic.type_hash);
        let prefix = cx.peers.rights(key.peer).log_prefix(offered.0, offered.1, offered.2);
        let payload = match prefix {
            Some(prefix) => logs::with_prefix(&payload, offered.1, prefix),
            None => Some(payload),
        };
        let Some(payload) = payload else {
            return self.drop_malformed(cx, key, &topic, "the name of the node is missing");
        };
        let Some(payload) = remote.held.hold(payload) else {
            remote.not_held += 1;
            let peer = cx.peers.name(key.peer);
            let text = format!(
                "{topic}, and perhaps others: messages of '{peer}' are dropped, because more than \
                 {HELD_BYTES} bytes of its messages are queued for slow local subscribers"
            );
            return cx.peer_notice(key.peer, &text);
        };
        self.rearm(cx, &topic);
        let origin = Origin { age: origin.age + now.since(arrived), ..origin };
        // The number of a publisher that has left may be that of another one.
        let source = if has_left { Source { number: LEFT, ..source } } else { source };
        let forget =
            has_left.then(|| Command::Forget { topic: topic.clone(), source: Some(source) });
        cx.gateway(Command::Publish { topic, source, payload, origin });
        if let Some(forget) = forget {
            cx.gateway(forget);
        }
    }

    /// Counts a message that its publisher keeps; `false` if it is kept here already, or does not
    /// fit into the bytes kept for its peer, for which a notice is added.
    fn keep(
        &mut self,
        cx: &mut Context<'_>,
        key: ChannelKey,
        (number, revision): (u32, u32),
        kept: Kept,
        bytes: usize,
    ) -> bool {
        let others: usize = self.remote.of_peer(key.peer).map(|(_, it)| it.kept.bytes()).sum();
        let Some(remote) = self.remote.get_mut(key) else { return false };
        if remote.kept.has(number, &kept) {
            return false;
        }
        if remote.kept.has_left(number, revision) {
            return true;
        }
        let depth = kept.depth.min(HISTORY_DEPTH);
        let others = others - remote.kept.bytes();
        // A copy under another number, which its sender will end.
        let twice = if remote.kept.has_elsewhere(number, kept.identity) { bytes } else { 0 };
        if others + remote.kept.bytes_with(number, bytes, depth) - twice <= LATCHED_BYTES {
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

    /// A peer has a new session, and repeats what its publishers keep now. What they kept before may
    /// be outdated.
    pub(super) fn forget_kept(&mut self, cx: &mut Context<'_>, peer: PeerId) {
        for key in self.remote.of_peer(peer).map(|(key, _)| key).collect::<Vec<_>>() {
            let kept = self.remote.get_mut(key).map(|it| std::mem::take(&mut it.kept));
            self.forget_publishers(cx, key, &kept.map(|it| it.publishers()).unwrap_or_default());
        }
    }

    /// ROS on this robot no longer keeps the messages of these publishers.
    fn forget_publishers(&mut self, cx: &mut Context<'_>, key: ChannelKey, numbers: &[u32]) {
        let Some(topic) = self.remote.get(key).map(|it| it.topic.name.clone()) else { return };
        for number in numbers {
            let source = Some(Source::at_peer(key.peer.0, *number));
            cx.gateway(Command::Forget { topic: topic.clone(), source });
        }
    }

    /// Ends the subscriptions to topics with kept messages that have had no local subscriber for
    /// [`UNWANTED_LINGER`]. The messages may become outdated from now on, and are forgotten.
    pub(super) fn forget_unwanted(&mut self, cx: &mut Context<'_>) {
        let now = cx.now;
        let mut topics = Vec::new();
        for (name, publication) in &mut self.publications {
            let is_over = |since: &mut Instant| now.since(*since) >= UNWANTED_LINGER;
            if publication.unwanted_since.take_if(|since| is_over(since)).is_some() {
                topics.push(name.clone());
            }
        }
        for topic in topics {
            for key in self.offering(&topic) {
                cx.endpoint.want(now, key.peer, key.channel, false);
            }
            for key in self.remote.named(&topic).map(|(key, _)| key).collect::<Vec<_>>() {
                if let Some(remote) = self.remote.get_mut(key) {
                    remote.kept = Default::default();
                }
            }
            cx.gateway(Command::Forget { topic, source: None });
        }
    }
}
