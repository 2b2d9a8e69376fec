// SPDX-License-Identifier: Apache-2.0
//! Requests of peers that this robot refuses. The reason is reported at both ends. A request that a
//! line in the file would allow is kept until the file has the line.

use super::context::Context;
use super::key::ChannelKey;
use super::waiting::{
    ADD_TO_PEER_FILE, ADD_TO_THIS_FILE, Denied, PendingRequest, RequestKind, UnusableName,
};
use crate::audit::{self, Kind};
use crate::limits::MAX_WAITING_PER_PEER;
use crate::notices;
use std::collections::BTreeSet;
use tautline_gateway::Command;
use tautline_gateway::action_names::action_of;
use tautline_gateway::names::plain_name;
use tautline_proto::{OfferedTopic, PeerId, Role, too_large};

/// Returns the start of a notice that a name of node `of` cannot be used at node `at`.
fn unusable_name_prefix(name: &str, of: &str, at: &str) -> String {
    format!("{name} of '{of}' at '{at}': ")
}

fn audit_description(offered: &OfferedTopic) -> (Kind, audit::Text, audit::Text) {
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
        let text = format!("{}{reason}", self.refusal_prefix(key.peer, name));
        self.report_refusal(key, text);
    }

    /// Returns the start of a notice about a topic or service of a peer that cannot be used here.
    pub(super) fn refusal_prefix(&self, peer: PeerId, name: &str) -> String {
        unusable_name_prefix(name, self.peers.name(peer), self.endpoint.name())
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
        let (kind, name, r#type) = audit_description(offered);
        let event = audit::Event::Refused { kind, name, r#type, reason: reason.into() };
        self.record_peer_event(key.peer, event);
    }

    /// Records that a peer refuses a topic, a service or calls of this node.
    pub(super) fn record_refusal_by_peer(&mut self, key: ChannelKey, reason: &str) {
        let Some((config, ..)) = self.endpoint.peer(key.peer).channel_out(key.channel) else {
            return;
        };
        let (kind, name, r#type) = audit_description(&config.topic);
        let event = audit::Event::RefusedByPeer { kind, name, r#type, reason: reason.into() };
        self.record_peer_event(key.peer, event);
    }

    /// If a peer has refused a message for its size, larger messages are no longer sent to it in
    /// this session.
    pub(super) fn apply_size_limit(&mut self, peer: PeerId, reason: &str) {
        let Some(most) = too_large::allowed(reason) else { return };
        self.endpoint.peer_mut(peer).set_largest_message(most);
        self.peers.size_limited.insert(peer);
        let peer = self.peers.name(peer).to_owned();
        self.send_to_gateway(Command::SetMaxMessage { peer, most: Some(most) });
    }

    /// Removes the size limit of a peer, because its new session begins without one.
    pub(super) fn clear_size_limit(&mut self, peer: PeerId) {
        if self.peers.size_limited.remove(&peer) {
            let peer = self.peers.name(peer).to_owned();
            self.send_to_gateway(Command::SetMaxMessage { peer, most: None });
        }
    }

    /// Refuses an advertisement. Both ends get the reason, unless `accept` merely does not include the name.
    pub(super) fn deny(
        &mut self,
        key: ChannelKey,
        kind: RequestKind,
        offered: &OfferedTopic,
        denied: &Denied,
    ) {
        let waiting = self.pending_request(kind, key.peer, &offered.name, &offered.type_name);
        match denied {
            Denied::Invalid(reason) => self.refuse(key, &offered.name, reason),
            Denied::NotConfigured => self.wait_for_config_line(key, waiting),
            Denied::Unusable(reason) => {
                let name = action_of(&offered.name).unwrap_or(&offered.name).to_owned();
                let plain = Some(plain_name(&name)).filter(|plain| *plain != name);
                let proposal = plain.unwrap_or("/ANOTHER_NAME".into());
                let line = format!("remap: {{ {name}: {proposal} }}");
                let unusable = Some(UnusableName { problem: reason.clone(), proposal });
                self.wait_for_config_line(key, PendingRequest { name, line, unusable, ..waiting });
            }
            // `accept` states which names are accepted, so nothing is reported; `status` lists the others.
            Denied::NotListed => {
                self.endpoint.peer_mut(key.peer).want(self.now, key.channel, false);
                self.add_pending_request(key, waiting);
            }
        }
    }

    /// Keeps a peer's request on a channel until the file allows it, and reports the missing line
    /// at both ends.
    pub(super) fn wait_for_config_line(&mut self, key: ChannelKey, waiting: PendingRequest) {
        let here = self.missing_line_text(key.peer, &waiting, ADD_TO_THIS_FILE);
        let there = self.missing_line_text(key.peer, &waiting, ADD_TO_PEER_FILE);
        self.endpoint.peer_mut(key.peer).want(self.now, key.channel, false);
        self.record_refusal(key, &here);
        self.peer_notice(key.peer, &here);
        self.endpoint.peer_mut(key.peer).refuse(self.now, key.channel, there);
        self.add_pending_request(key, waiting);
    }

    /// Reports at both ends that a peer may not set a parameter. The peer may still set others on
    /// the channel.
    pub(super) fn deny_parameter(&mut self, key: ChannelKey, name: &str) {
        let waiting = PendingRequest {
            kind: RequestKind::Set,
            name: name.to_owned(),
            type_name: "parameter".into(),
            allowed: None,
            line: format!("set_parameters: {name}"),
            unusable: None,
        };
        let here = self.missing_line_text(key.peer, &waiting, ADD_TO_THIS_FILE);
        let there = self.missing_line_text(key.peer, &waiting, ADD_TO_PEER_FILE);
        self.record_refusal(key, &here);
        self.peer_notice(key.peer, &here);
        self.endpoint.peer_mut(key.peer).refuse(self.now, key.channel, there);
        self.add_pending_request(key, waiting);
    }

    fn add_pending_request(&mut self, key: ChannelKey, waiting: PendingRequest) {
        let of_peer = self.pending_requests.range(ChannelKey::all_of(key.peer));
        if of_peer.count() < MAX_WAITING_PER_PEER || self.pending_requests.contains_key(&key) {
            self.pending_requests.insert(key, waiting);
        }
    }

    /// Returns the text about a missing line. `place` is [`ADD_TO_THIS_FILE`] for readers here, and
    /// [`ADD_TO_PEER_FILE`] for readers at the peer.
    fn missing_line_text(&self, peer: PeerId, waiting: &PendingRequest, place: &str) -> String {
        let PendingRequest { kind, name, type_name, line, unusable, .. } = waiting;
        let (here, peer) = (self.endpoint.name(), self.peers.name(peer));
        let reason = match kind {
            RequestKind::Publish => format!(
                "{name} ({type_name}) of '{peer}': '{here}' publishes it only if its file allows it"
            ),
            RequestKind::Serve => format!(
                "service {name} ({type_name}) of '{peer}': '{here}' serves it only if its file \
                 allows it"
            ),
            RequestKind::Set => format!(
                "the parameter {name} of '{here}': '{peer}' may set it only if the file of '{here}' \
                 allows it"
            ),
            RequestKind::Call => format!(
                "{name} of '{here}': '{peer}' may call it only if the file of '{here}' allows it"
            ),
        };
        let reason = match unusable {
            None => reason,
            Some(UnusableName { problem, .. }) => {
                format!(
                    "{name} ({type_name}) of '{peer}' needs another name at '{here}': {problem}"
                )
            }
        };
        format!("{reason}{place}{peer}: {line}")
    }

    /// Returns a request of a peer that needs a line under `accept`.
    pub(super) fn pending_request(
        &self,
        kind: RequestKind,
        peer: PeerId,
        name: &str,
        type_name: &str,
    ) -> PendingRequest {
        PendingRequest::for_accept(self.peers.rights(peer), kind, name, type_name)
    }

    /// Removes notices about missing lines that no request needs any more.
    pub(super) fn drop_resolved_notices(&mut self) {
        if !self.notices.peer_notices().any(|text| text.contains(ADD_TO_THIS_FILE)) {
            return;
        }
        let needed = self.pending_requests.iter();
        let needed = needed
            .map(|(key, waiting)| self.missing_line_text(key.peer, waiting, ADD_TO_THIS_FILE));
        let needed: BTreeSet<String> = needed.map(|text| notices::plain(&text)).collect();
        self.notices
            .retain_peer_notices(|text| !text.contains(ADD_TO_THIS_FILE) || needed.contains(text));
    }

    /// Removes the notices that a peer's file lacks a line, or that a name cannot be used there.
    /// Called when the peer subscribes to the channel.
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
        let ends = format!("{ADD_TO_PEER_FILE}{here}: ");
        let unusable = unusable_name_prefix(name, here, peer);
        let is_untrue = |text: &str| {
            begins.iter().any(|it| text.starts_with(it)) && text.contains(&ends)
                || text.contains(&unusable)
        };
        self.notices.retain(&self.peers.cause(key.peer), |text| !is_untrue(text));
    }
}
