// SPDX-License-Identifier: Apache-2.0
//! The check of peers' messages before they are published. A message that cannot be of its topic's
//! type would end the topic's rospy subscribers, also for the messages of other peers.
//!
//! Most messages are checked on the data plane. The time of a check is charged to the peer and is
//! far below the time of receiving the message. Compressed messages are checked by the codec, and
//! translation checks the messages that it reads.

use super::super::Topics;
use super::super::told::Told;
use super::super::unchecked::{Unchecked, doubt};
use super::ChannelKey;
use crate::topics::Context;
use std::sync::Arc;
use tautline_gateway::tf::fields::ArrivalFields;
use tautline_gateway::types::check::{Check, Checker};
use tautline_proto::{OfferedTopic, Received};

/// The check of one topic of a peer.
#[derive(Debug, Clone, Default)]
pub(super) struct Checked {
    checker: Option<Arc<Checker>>,
    /// Which definition is missing for a check that a lying peer cannot evade.
    doubt: Option<&'static str>,
    /// Messages dropped because they are not of their type.
    pub(super) malformed: u64,
    told: Told,
    /// The fields that may change in its messages.
    pub(super) fields: ArrivalFields,
    pub(super) stamps_told: Told,
}

impl Checked {
    pub(super) fn set(&mut self, check: Check<Checker>, fields: ArrivalFields) {
        (self.checker, self.doubt) = (check.checker().cloned(), doubt(&check));
        self.fields = fields;
    }

    pub(super) fn checker(&self) -> Option<Arc<Checker>> {
        self.checker.clone()
    }
}

impl Topics {
    /// Returns the check of a topic that is advertised again under its number.
    pub(super) fn checked_before(&self, key: ChannelKey, offered: &OfferedTopic) -> Checked {
        let known = self.remote.get(key).filter(|it| it.offered_name == offered.name);
        known.map(|it| it.checked.clone()).unwrap_or_default()
    }

    /// Whether a message can be of its topic's type; if not, it is counted and reported. The codec
    /// checks the messages that it is given.
    pub(super) fn is_of_its_type(
        &mut self,
        cx: &mut Context<'_>,
        key: ChannelKey,
        message: &Received,
    ) -> bool {
        let Some(remote) = self.remote.get(key) else { return false };
        let is_for_codec =
            message.encoded || remote.encoded || remote.translation.translator().is_some();
        let Some(checker) = remote.checked.checker.as_ref().filter(|_| !is_for_codec) else {
            return true;
        };
        let Err(error) = checker.check(&message.payload) else { return true };
        let (topic, type_name) = (remote.topic.name.clone(), &remote.topic.type_name);
        let reason = format!("it does not match {type_name}: {error}");
        self.drop_malformed(cx, key, &topic, &reason);
        false
    }

    /// Counts a message that is not of its type, and reports some.
    pub(crate) fn drop_malformed(
        &mut self,
        cx: &mut Context<'_>,
        key: ChannelKey,
        topic: &str,
        reason: &str,
    ) {
        let now = cx.now;
        let remote = self.remote.get_mut(key).filter(|it| it.topic.name == topic);
        let Some(checked) = remote.map(|it| &mut it.checked) else { return };
        checked.malformed += 1;
        if checked.told.is_due(now) {
            let peer = cx.peers.name(key.peer);
            let text = format!("{topic}: a message of '{peer}' is dropped (malformed): {reason}");
            cx.peer_notice(key.peer, &text);
        }
    }

    /// Returns the topics and services whose messages no shared definition checks.
    pub(crate) fn unchecked(&self) -> impl Iterator<Item = Unchecked<'_>> {
        let topics = self.remote.iter().filter(|(key, _)| self.is_published(*key));
        let topics = topics.filter_map(|(key, remote)| {
            let (peer, topic) = (Some(key.peer), &remote.topic);
            let (name, type_name) = (topic.name.as_str(), topic.type_name.as_str());
            Some(Unchecked { peer, name, type_name, doubt: remote.checked.doubt? })
        });
        topics.chain(self.services.unchecked())
    }
}
