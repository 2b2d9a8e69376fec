// SPDX-License-Identifier: Apache-2.0
//! A topic that a peer advertises.

use super::arrival::{ArrivalChange, stamp_offset_ns};
use super::checked::TypeCheck;
use super::held::HeldBytes;
use super::kept::KeptMessages;
use crate::topics::context::Context;
use crate::topics::rights::{DroppedTraffic, OfferedType, Right, Rights};
use crate::topics::translation::Translation;
use std::sync::Arc;
use tautline_gateway::Topic;
use tautline_gateway::action_names::action_of;
use tautline_gateway::tf::Rules;
use tautline_gateway::tf::fields::{FieldPresence, FrameFields, StampFields};
use tautline_gateway::types::translate::Translator;
use tautline_proto::{Instant, PeerId, Received};

/// A topic that a peer advertises.
#[derive(Debug)]
pub(crate) struct RemoteTopic {
    pub(crate) offered_name: String,
    pub(crate) offered_type: String,
    /// The hash of the offered type at the peer.
    pub(crate) offered_hash: String,
    /// The topic as published here; in the peer's form until the local form is known.
    pub(crate) topic: Topic,
    pub(crate) translation: Translation<Translator>,
    /// Whether the local form is still unknown. A publication that already exists continues.
    pub(crate) awaits_local_form: bool,
    pub(super) type_check: TypeCheck,
    /// Whether a compressed message has arrived. Later messages then pass through the codec, to stay in order.
    pub(crate) encoded: bool,
    /// Whether the peer has withdrawn it. Messages may still be in the codec.
    pub(crate) is_withdrawn: bool,
    /// Messages dropped above the rate, in this session of the peer.
    pub(crate) over_rate_drops: DroppedTraffic,
    /// Time at which the peer began a new session, in which it has not advertised the topic again.
    /// The topic's number may now belong to another topic.
    pub(crate) stale_since: Option<Instant>,
    /// Messages that this robot's ROS keeps for late joiners.
    pub(super) kept: KeptMessages,
    /// Bytes that this robot's ROS holds.
    pub(crate) held: HeldBytes,
    /// Messages dropped because this robot's ROS held too many bytes.
    pub(crate) slow_subscriber_drops: u64,
}

impl RemoteTopic {
    /// Whether the topic is ready to be published.
    pub(super) fn is_usable(&self) -> bool {
        self.translation.is_known() && !self.awaits_local_form
    }

    /// Whether the topic's messages pass through the codec.
    pub(super) fn uses_codec(&self) -> bool {
        self.encoded || self.translation.translator().is_some()
    }

    /// Whether the topic may be published here. The answer is certain only after the local type is known.
    pub(super) fn may_be_published(&self, rights: &Rights) -> bool {
        let Topic { type_name: name, type_hash: hash, .. } = &self.topic;
        let found = OfferedType { offered: &self.offered_type, name, hash, is_foreign: false };
        rights.right_to_publish(&self.offered_name, found) == Right::Granted
    }

    /// Whether a message matches its topic's type. If not, the message is counted and reported.
    /// Messages that the codec gets are checked there.
    pub(super) fn check_type(
        &mut self,
        cx: &mut Context<'_>,
        peer: PeerId,
        message: &Received,
    ) -> bool {
        let needs_codec = message.encoded || self.uses_codec();
        let Some(checker) = self.type_check.checker.as_ref().filter(|_| !needs_codec) else {
            return true;
        };
        let Err(error) = checker.check(&message.payload) else { return true };
        let reason = format!("it does not match {}: {error}", self.topic.type_name);
        self.drop_malformed(cx, peer, &reason);
        false
    }

    /// Counts a message that is not of its type, and reports it unless another one was reported recently.
    pub(super) fn drop_malformed(&mut self, cx: &mut Context<'_>, peer: PeerId, reason: &str) {
        let now = cx.now;
        self.type_check.malformed += 1;
        if self.type_check.report_limiter.allow(now) {
            let (topic, name) = (&self.topic.name, cx.peers.name(peer));
            let text = format!("{topic}: a message of '{name}' is dropped (malformed): {reason}");
            cx.peer_notice(peer, &text);
        }
    }

    /// Returns the change of fields in the topic's messages; `None` if there is none.
    pub(super) fn arrival_change(
        &mut self,
        cx: &mut Context<'_>,
        peer: PeerId,
        rules: &Arc<Rules>,
    ) -> Option<ArrivalChange> {
        let change = ArrivalChange {
            frames: self.frame_restoration(rules),
            stamps: self.stamp_shift(cx, peer),
        };
        (change.frames.is_some() || change.stamps.is_some()).then_some(change)
    }

    fn frame_restoration(&self, rules: &Arc<Rules>) -> Option<(Arc<FrameFields>, Arc<Rules>)> {
        if rules.prefix.is_empty() {
            return None;
        }
        match &self.type_check.fields.frames {
            // Services of an action keep the names of frames, so topics of an action must as well.
            FieldPresence::Present(fields) if action_of(&self.topic.name).is_none() => {
                Some((fields.clone(), rules.clone()))
            }
            FieldPresence::Present(_) | FieldPresence::Absent | FieldPresence::Unknown => None,
        }
    }

    fn stamp_shift(
        &mut self,
        cx: &mut Context<'_>,
        peer: PeerId,
    ) -> Option<(Arc<StampFields>, i64)> {
        let now = cx.now;
        if !cx.peers.rights(peer).moves_stamps() {
            return None;
        }
        let offset_ns = stamp_offset_ns(cx.endpoint.peer(peer).clock);
        match &self.type_check.fields.stamps {
            FieldPresence::Absent => None,
            FieldPresence::Present(fields) => (offset_ns != 0).then(|| (fields.clone(), offset_ns)),
            FieldPresence::Unknown => {
                if self.type_check.stamp_report_limiter.allow(now) {
                    let Topic { name: topic, type_name, .. } = &self.topic;
                    let text = format!(
                        "{topic} of '{}': time stamps are not moved: no definition of {type_name} \
                         is known; install its package",
                        cx.peers.name(peer)
                    );
                    cx.peer_notice(peer, &text);
                }
                None
            }
        }
    }
}
