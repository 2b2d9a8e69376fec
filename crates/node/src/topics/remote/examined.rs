// SPDX-License-Identifier: Apache-2.0
//! Examination of a peer's topic before it is published: whether its definition may be used, and
//! its type in this robot's ROS.

use super::super::translation::Translation;
use super::super::{Topics, definitions};
use super::{ChannelKey, RemoteTopic};
use crate::codec::Job;
use crate::limits::MAX_ONE_SIDED;
use crate::notices::plain;
use crate::topics::Context;
use std::collections::BTreeSet;
use tautline_gateway::Topic;
use tautline_gateway::types::translate::{LocalForm, Translator};
use tautline_proto::PeerId;

impl Topics {
    /// Requests the examination of the peer's next topic, unless one is under way.
    pub(super) fn examine_next(&mut self, cx: &mut Context<'_>, peer: PeerId) {
        if self.examined.contains_key(&peer) {
            return;
        }
        let next = self.remote.of_peer(peer).find(|(_, remote)| remote.awaits_local_form);
        let Some((key, remote)) = next else { return };
        self.examined.insert(peer, key);
        let topic = remote.topic.clone();
        cx.codec(Job::Localize { key, topic });
    }

    /// Returns the bytes of definitions kept of the peer's other topics.
    pub(super) fn definition_bytes(&self, key: ChannelKey) -> usize {
        let others = self.remote.of_peer(key.peer).filter(|(other, _)| *other != key);
        others.map(|(_, remote)| remote.topic.definition.len()).sum()
    }

    /// Returns the fields of the peer's topics and services that only one ROS has, each once; at
    /// most [`MAX_ONE_SIDED`], since a peer chooses its types.
    pub(crate) fn one_sided_fields(&self, peer: PeerId) -> BTreeSet<&str> {
        let topics = self.remote.of_peer(peer);
        let translators = topics.filter_map(|(_, remote)| remote.translation.known_translator());
        let fields = translators.flat_map(Translator::one_sided);
        let all = fields.chain(self.services.one_sided_fields(peer));
        all.take(MAX_ONE_SIDED).map(String::as_str).collect()
    }

    /// Takes the local form of a peer's topic, requested as `foreign`.
    pub(crate) fn localized(
        &mut self,
        cx: &mut Context<'_>,
        key: ChannelKey,
        foreign: &Topic,
        found: Result<LocalForm, String>,
    ) {
        let is_it =
            |remote: &&mut RemoteTopic| remote.awaits_local_form && remote.topic == *foreign;
        // Otherwise another topic has the number now, and is examined later.
        if let Some(remote) = self.remote.get_mut(key).filter(is_it) {
            remote.awaits_local_form = false;
            self.use_local_form(cx, key, foreign, found);
        }
        self.examined.remove(&key.peer);
        self.examine_next(cx, key.peer);
    }

    fn use_local_form(
        &mut self,
        cx: &mut Context<'_>,
        key: ChannelKey,
        foreign: &Topic,
        found: Result<LocalForm, String>,
    ) {
        let now = cx.now;
        let cause = cx.peers.cause(key.peer);
        let Some(remote) = self.remote.get_mut(key) else { return };
        let LocalForm { mut topic, translator, check, fields, untrusted } = match found {
            Ok(form) => form,
            Err(reason) => {
                remote.translation = Translation::Impossible;
                cx.refuse(key, &foreign.name, &reason);
                if let Some(publication) = self.publications.get_mut(&foreign.name) {
                    publication.from.remove(&key);
                }
                return self.unpublish_if_unused(cx, &foreign.name);
            }
        };
        for field in translator.iter().flat_map(Translator::one_sided) {
            if cx.notices.may_log(now, &cause) {
                let (topic, field) = (plain(&topic.name), plain(field));
                tracing::info!(topic, field, "field left empty or omitted in translation");
            }
        }
        remote.translation = translator.into();
        remote.checked.set(check, fields);
        if let Some(untrusted) = untrusted {
            let peer = cx.peers.name(key.peer);
            let text = format!("{} of '{peer}': {untrusted}, so it is not used", foreign.name);
            cx.peer_notice(key.peer, &text);
        }
        let (name, definition) = (&foreign.name, topic.definition);
        let bytes = self.definition_bytes(key) + self.services.definition_bytes(key);
        topic.definition = definitions::within_budget(cx, key, name, definition, bytes);
        if let Some(remote) = self.remote.get_mut(key) {
            remote.topic = Topic { name: foreign.name.clone(), ..topic };
        }
        self.publish_for(cx, key);
    }
}
