// SPDX-License-Identifier: Apache-2.0
//! Messages of peers' topics, on their way to this robot's ROS.

use super::Imports;
use super::arrival::ArrivalChange;
use crate::codec::job::{Incoming, Job, decompressed_size};
use crate::limits::{HELD_BYTES, HISTORY_DEPTH};
use crate::topics::context::Context;
use crate::topics::key::ChannelKey;
use crate::topics::origin::{self, Content};
use tautline_gateway::logs;
use tautline_gateway::{Command, MAX_SOURCES, Origin, Source};
use tautline_proto::Received;

/// Number that stands for all publishers that left before their message arrived. No publisher has
/// this number.
const DEPARTED_PUBLISHERS: u32 = 127;
const _: () = assert!(MAX_SOURCES <= DEPARTED_PUBLISHERS);

/// Limits the depth, so that no gateway keeps more messages of a publisher than are counted for its peer.
fn cap_depth(mut origin: Origin) -> Origin {
    if let Some(kept) = &mut origin.kept {
        kept.depth = kept.depth.min(HISTORY_DEPTH);
    }
    origin
}

impl Imports {
    pub(crate) fn on_message(&mut self, cx: &mut Context<'_>, key: ChannelKey, message: Received) {
        let now = cx.now;
        if !self.publications.is_fed_by(&self.catalog, key) {
            return;
        }
        let Some(remote) = self.catalog.get(key) else { return };
        let is_best_effort = !remote.topic.qos.reliable;
        let (number, origin, revision, payload) =
            match origin::parse(message.source, is_best_effort, message.payload) {
                Some(Content::Message { number, origin, revision, payload }) => {
                    let origin = Origin { age: message.age, ..cap_depth(origin) };
                    (number, origin, revision, payload)
                }
                Some(Content::Presence(presence)) => {
                    return self.catalog.on_presence(cx, key, presence);
                }
                None => return,
            };
        let bytes = match message.encoded {
            true => decompressed_size(&payload, self.max_message),
            false => payload.len(),
        };
        let message = Received { payload, ..message };
        let Some(remote) = self.catalog.get_mut(key) else { return };
        if !cx.check_rate(key, bytes) {
            return remote.over_rate_drops.add(bytes);
        }
        if !remote.check_type(cx, key.peer, &message) {
            return;
        }
        if let Some(kept) = origin.kept
            && !self.catalog.keep(cx, key, (number, revision), kept, bytes)
        {
            return;
        }
        let source = Source::at_peer(key.peer.0, number);
        let Some(remote) = self.catalog.get_mut(key) else { return };
        let change = remote.arrival_change(cx, key.peer, &self.tf_rules);
        let is_large = change.is_some() && ArrivalChange::needs_codec(message.payload.len());
        remote.encoded |= message.encoded || is_large;
        let translator = remote.translation.translator();
        let topic = remote.topic.name.clone();
        let lifespan = origin.lifespan_within(remote.topic.qos.lifespan);
        let expires = lifespan.map(|it| now + it.saturating_sub(message.age));
        let Received { payload, encoded, .. } = message;
        let (checker, arrived) = (remote.type_check.checker(), now);
        let is_decoded = remote.uses_codec();
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
            true => cx.submit_job(Job::Decode(message)),
            false => self.publish_message(cx, message.with_changed_fields()),
        }
    }

    /// Publishes a decompressed or translated message, unless it has expired or its topic is no
    /// longer published.
    pub(crate) fn on_decoded(&mut self, cx: &mut Context<'_>, message: Incoming) {
        let now = cx.now;
        let is_same =
            self.catalog.get(message.key).is_some_and(|it| it.topic.name == message.topic);
        if is_same
            && self.publications.was_fed_by(&self.catalog, message.key)
            && message.expires.is_none_or(|at| now <= at)
        {
            self.publish_message(cx, message);
        }
    }

    fn publish_message(&mut self, cx: &mut Context<'_>, message: Incoming) {
        let now = cx.now;
        let Incoming { key, topic, source, payload, origin, arrived, revision, .. } = message;
        let Some(remote) = self.catalog.get_mut(key) else { return };
        let has_left = origin.kept.is_some() && remote.kept.has_left(source.number, revision);
        let offered = (&remote.offered_name, &remote.topic.type_name, &remote.topic.type_hash);
        let prefix = cx.peers.rights(key.peer).log_prefix(offered.0, offered.1, offered.2);
        let payload = match prefix {
            Some(prefix) => logs::with_prefix(&payload, offered.1, prefix),
            None => Some(payload),
        };
        let Some(payload) = payload else {
            return remote.drop_malformed(cx, key.peer, "the name of the node is missing");
        };
        let Some(payload) = remote.held.hold(payload) else {
            remote.slow_subscriber_drops += 1;
            let peer = cx.peers.name(key.peer);
            let text = format!(
                "{topic}, and perhaps others: messages of '{peer}' are dropped, because more than \
                 {HELD_BYTES} bytes of its messages are queued for slow local subscribers"
            );
            return cx.peer_notice(key.peer, &text);
        };
        self.watchdogs.rearm(cx, &topic);
        let origin = Origin { age: origin.age + now.since(arrived), ..origin };
        // Another publisher may have the number of one that has left.
        let source =
            if has_left { Source { number: DEPARTED_PUBLISHERS, ..source } } else { source };
        let forget =
            has_left.then(|| Command::Forget { topic: topic.clone(), source: Some(source) });
        cx.send_to_gateway(Command::Publish { topic, source, payload, origin });
        if let Some(forget) = forget {
            cx.send_to_gateway(forget);
        }
    }

    /// Handles a message of a peer that cannot be read, or is not of its type.
    pub(crate) fn on_unreadable(
        &mut self,
        cx: &mut Context<'_>,
        key: ChannelKey,
        topic: &str,
        reason: &str,
    ) {
        if let Some(remote) = self.catalog.get_mut(key).filter(|it| it.topic.name == topic) {
            remote.drop_malformed(cx, key.peer, reason);
        }
    }
}
