// SPDX-License-Identifier: Apache-2.0
//! Requests of peers that this robot refuses. The reason is reported at both ends. A request that
//! needs a line in the file waits for this line.

use super::context::Context;
use super::key::ChannelKey;
use super::waiting::{Act, Denied, HERE, THERE, Unusable, Waiting};
use crate::audit::{self, Kind};
use crate::limits::MAX_WAITING_PER_PEER;
use crate::notices;
use std::collections::BTreeSet;
use tautline_gateway::Command;
use tautline_gateway::action_names::action_of;
use tautline_gateway::names::plain_name;
use tautline_proto::{OfferedTopic, PeerId, Role, too_large};

/// Returns the start of a notice that a name of node `of` cannot be used at node `at`.
fn unusable(name: &str, of: &str, at: &str) -> String {
    format!("{name} of '{of}' at '{at}': ")
}

fn described(offered: &OfferedTopic) -> (Kind, audit::Text, audit::Text) {
    let kind = match offered.role {
        Role::Topic => Kind::Topic,
        Role::Answers => Kind::Service,
        Role::Calls => Kind::Call,
    };
    (kind, (&offered.name).into(), (&offered.type_name).into())
}

impl Context<'_> {
    /// Reports at both ends why a peer's topic or service cannot be used here.
    pub(super) fn refuse(&mut self, key: ChannelKey, name: &str, reason: &str) {
        let text = format!("{}{reason}", self.refused_here(key.peer, name));
        self.report_refusal(key, text);
    }

    /// Returns the start of a notice about a topic or service of a peer that cannot be used here.
    pub(super) fn refused_here(&self, peer: PeerId, name: &str) -> String {
        unusable(name, self.peers.name(peer), self.endpoint.name())
    }

    /// Reports at both ends why a request of a peer is refused.
    pub(super) fn report_refusal(&mut self, key: ChannelKey, text: String) {
        self.record_refusal(key, &text);
        self.peer_notice(key.peer, &text);
        self.endpoint.peer_mut(key.peer).refuse(self.now, key.channel, text);
    }

    /// Records that a topic, a service or calls of a peer are refused.
    pub(super) fn record_refusal(&mut self, key: ChannelKey, reason: &str) {
        let Some((offered, ..)) = self.endpoint.peer(key.peer).channel_in(key.channel) else {
            return;
        };
        let (kind, name, r#type) = described(offered);
        let event = audit::Event::Refused { kind, name, r#type, reason: reason.into() };
        self.record_of(key.peer, event);
    }

    /// Records that a peer refuses a topic, a service or calls of this node.
    pub(super) fn record_refusal_by_peer(&mut self, key: ChannelKey, reason: &str) {
        let Some((config, ..)) = self.endpoint.peer(key.peer).channel_out(key.channel) else {
            return;
        };
        let (kind, name, r#type) = described(&config.topic);
        let event = audit::Event::RefusedByPeer { kind, name, r#type, reason: reason.into() };
        self.record_of(key.peer, event);
    }

    /// If a peer has refused a message for its size, larger messages are no longer sent to it in
    /// this session.
    pub(super) fn follow_limit(&mut self, peer: PeerId, reason: &str) {
        let Some(most) = too_large::allowed(reason) else { return };
        self.endpoint.peer_mut(peer).set_largest_message(most);
        self.peers.limited.insert(peer);
        let peer = self.peers.name(peer).to_owned();
        self.gateway(Command::LargestMessage { peer, most: Some(most) });
    }

    /// Removes the size limit of a peer, because its new session begins without one.
    pub(super) fn forget_limit(&mut self, peer: PeerId) {
        if self.peers.limited.remove(&peer) {
            let peer = self.peers.name(peer).to_owned();
            self.gateway(Command::LargestMessage { peer, most: None });
        }
    }

    /// Refuses an advertisement. Both ends get the reason, unless `accept` merely does not include the name.
    pub(super) fn deny(
        &mut self,
        key: ChannelKey,
        act: Act,
        offered: &OfferedTopic,
        denied: &Denied,
    ) {
        let waiting = self.waiting_to(act, key.peer, &offered.name, &offered.type_name);
        match denied {
            Denied::Invalid(reason) => self.refuse(key, &offered.name, reason),
            Denied::Waits => self.wait_for_line(key, waiting),
            Denied::Unusable(reason) => {
                let name = action_of(&offered.name).unwrap_or(&offered.name).to_owned();
                let plain = Some(plain_name(&name)).filter(|plain| *plain != name);
                let proposal = plain.unwrap_or("/ANOTHER_NAME".into());
                let line = format!("remap: {{ {name}: {proposal} }}");
                let unusable = Some(Unusable { problem: reason.clone(), proposal });
                self.wait_for_line(key, Waiting { name, line, unusable, ..waiting });
            }
            // `accept` states which names are accepted, so nothing is reported; `status` lists the others.
            Denied::LeftOut => {
                self.endpoint.peer_mut(key.peer).want(self.now, key.channel, false);
                self.keep_waiting(key, waiting);
            }
        }
    }

    /// Keeps a peer's request on a channel until the file allows it, and reports the missing line
    /// at both ends.
    pub(super) fn wait_for_line(&mut self, key: ChannelKey, waiting: Waiting) {
        let here = self.line_text(key.peer, &waiting, HERE);
        let there = self.line_text(key.peer, &waiting, THERE);
        self.endpoint.peer_mut(key.peer).want(self.now, key.channel, false);
        self.record_refusal(key, &here);
        self.peer_notice(key.peer, &here);
        self.endpoint.peer_mut(key.peer).refuse(self.now, key.channel, there);
        self.keep_waiting(key, waiting);
    }

    /// Reports at both ends that a peer may not set a parameter. The peer may still set others on
    /// the channel.
    pub(super) fn deny_setting(&mut self, key: ChannelKey, name: &str) {
        let waiting = Waiting {
            act: Act::Set,
            name: name.to_owned(),
            type_name: "parameter".into(),
            allowed: None,
            line: format!("set_parameters: {name}"),
            unusable: None,
        };
        let here = self.line_text(key.peer, &waiting, HERE);
        let there = self.line_text(key.peer, &waiting, THERE);
        self.record_refusal(key, &here);
        self.peer_notice(key.peer, &here);
        self.endpoint.peer_mut(key.peer).refuse(self.now, key.channel, there);
        self.keep_waiting(key, waiting);
    }

    fn keep_waiting(&mut self, key: ChannelKey, waiting: Waiting) {
        let of_peer = self.waiting.range(ChannelKey::all_of(key.peer));
        if of_peer.count() < MAX_WAITING_PER_PEER || self.waiting.contains_key(&key) {
            self.waiting.insert(key, waiting);
        }
    }

    /// Returns the text about a missing line. `place` is [`HERE`] or [`THERE`], for readers here or
    /// at the peer.
    fn line_text(&self, peer: PeerId, waiting: &Waiting, place: &str) -> String {
        let Waiting { act, name, type_name, line, unusable, .. } = waiting;
        let (here, peer) = (self.endpoint.name(), self.peers.name(peer));
        let reason = match act {
            Act::Publish => format!(
                "{name} ({type_name}) of '{peer}': '{here}' publishes it only if its file allows it"
            ),
            Act::Serve => format!(
                "service {name} ({type_name}) of '{peer}': '{here}' serves it only if its file \
                 allows it"
            ),
            Act::Set => format!(
                "the parameter {name} of '{here}': '{peer}' may set it only if the file of '{here}' \
                 allows it"
            ),
            Act::Call => format!(
                "{name} of '{here}': '{peer}' may call it only if the file of '{here}' allows it"
            ),
        };
        let reason = match unusable {
            None => reason,
            Some(Unusable { problem, .. }) => {
                format!(
                    "{name} ({type_name}) of '{peer}' needs another name at '{here}': {problem}"
                )
            }
        };
        format!("{reason}{place}{peer}: {line}")
    }

    /// Returns a request of a peer that needs a line under `accept`.
    pub(super) fn waiting_to(
        &self,
        act: Act,
        peer: PeerId,
        name: &str,
        type_name: &str,
    ) -> Waiting {
        Waiting::for_accept(self.peers.rights(peer), act, name, type_name)
    }

    /// Removes notices about missing lines that no request needs any more.
    pub(super) fn drop_notices_of_given_rights(&mut self) {
        if !self.notices.of_peers().any(|text| text.contains(HERE)) {
            return;
        }
        let needed = self.waiting.iter();
        let needed = needed.map(|(key, waiting)| self.line_text(key.peer, waiting, HERE));
        let needed: BTreeSet<String> = needed.map(|text| notices::plain(&text)).collect();
        self.notices.retain_of_peers(|text| !text.contains(HERE) || needed.contains(text));
    }

    /// Removes the notices that a peer's file lacks a line, or that a name cannot be used there.
    /// Called when the peer takes the channel.
    pub(super) fn drop_refusal(&mut self, key: ChannelKey) {
        let Some((config, ..)) = self.endpoint.peer(key.peer).channel_out(key.channel) else {
            return;
        };
        let name = &config.topic.name;
        let (name, here) = (action_of(name).unwrap_or(name), self.endpoint.name());
        let peer = self.peers.name(key.peer);
        let begins = [
            format!("'{peer}' refuses {name} ("),
            format!("'{peer}' refuses service {name} ("),
            format!("'{peer}' refuses {name} of '{peer}'"),
        ];
        let ends = format!("{THERE}{here}: ");
        let unusable = unusable(name, here, peer);
        let is_untrue = |text: &str| {
            begins.iter().any(|it| text.starts_with(it)) && text.contains(&ends)
                || text.contains(&unusable)
        };
        self.notices.retain(&self.peers.cause(key.peer), |text| !is_untrue(text));
    }
}
