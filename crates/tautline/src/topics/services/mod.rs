// SPDX-License-Identifier: Apache-2.0
//! Services across the radio: which peer serves which service, and the calls under way.
//!
//! A service has one channel of responses, from the robot with its server, and one channel of calls
//! from each robot that may call it. Each call is a message. It is passed to the server once, even
//! if its packets are repeated. Its caller stops waiting at the timeout of the service. Calls of an
//! action have rules of their own (`pending.rs`).

mod calls;
mod channel;
mod local;
mod pending;
mod remote;
mod wire;

use super::context::Context;
use super::key::ChannelKey;
use super::unchecked::Unchecked;
use crate::treatment::services::ServiceRule;
use bytes::Bytes;
use local::LocalServices;
use remote::RemoteServices;
use std::sync::Arc;
use tautline_proto::{OfferedTopic, PeerId, Role};

/// The services of this robot and of its peers.
#[derive(Debug)]
pub(super) struct Services {
    pub(super) local: LocalServices,
    pub(super) remote: RemoteServices,
    /// Number of calls and responses of peers that were dropped above their rate.
    pub(super) over_rate_drops: u64,
}

impl Services {
    pub(super) fn new(rules: &[ServiceRule]) -> Self {
        let rules: Arc<[ServiceRule]> = rules.into();
        let (local, remote) = (LocalServices::new(rules.clone()), RemoteServices::new(rules));
        Self { local, remote, over_rate_drops: 0 }
    }

    /// Advertises the services of this robot by the new rules.
    pub(super) fn apply_rules(&mut self, cx: &mut Context<'_>, rules: &[ServiceRule]) {
        let rules: Arc<[ServiceRule]> = rules.into();
        self.remote.apply_rules(rules.clone());
        self.local.apply_rules(cx, rules);
    }

    /// Handles a peer's advertisement of a service, or of calls to our services. `definition_bytes`
    /// is the number of bytes of definitions that are kept of the peer's topics.
    pub(super) fn on_offered(
        &mut self,
        cx: &mut Context<'_>,
        key: ChannelKey,
        offered: OfferedTopic,
        definition: Arc<str>,
        definition_bytes: usize,
    ) {
        match offered.role {
            Role::Calls => self.local.on_calls_offered(cx, key, &offered.name),
            _ => self.remote.on_offered(cx, key, offered, definition, definition_bytes),
        }
    }

    /// Removes a channel of a service. Returns whether the channel belonged to a service.
    pub(super) fn on_withdrawn(&mut self, cx: &mut Context<'_>, key: ChannelKey) -> bool {
        self.local.remove_caller(key) || self.remote.remove(cx, key)
    }

    /// Handles a peer's subscription to a channel, or its end. If the peer subscribes to calls,
    /// queued calls are sent. Returns whether the channel belongs to a service.
    pub(super) fn on_wanted(
        &mut self,
        cx: &mut Context<'_>,
        key: ChannelKey,
        wanted: bool,
    ) -> bool {
        self.remote.on_wanted(cx, key, wanted) || self.local.is_response_channel(key)
    }

    /// Handles that a peer refuses a channel. If it takes no calls, callers get the reason
    /// immediately. Returns whether the channel belongs to a service.
    pub(super) fn on_refused(
        &mut self,
        cx: &mut Context<'_>,
        channel: ChannelKey,
        reason: &str,
    ) -> bool {
        let reason = format!("'{}' refuses {reason}", cx.peers.name(channel.peer));
        let is_of_service =
            self.remote.on_refused(cx, channel, &reason) || self.local.is_response_channel(channel);
        if is_of_service {
            cx.peer_notice(channel.peer, &reason);
        }
        is_of_service
    }

    /// Handles a message if it belongs to a service: a call for a local server, or a response.
    /// Returns whether it does.
    pub(super) fn on_message(
        &mut self,
        cx: &mut Context<'_>,
        key: ChannelKey,
        payload: &Bytes,
    ) -> bool {
        let called = self.local.service_called_on(key).cloned();
        if called.is_none() && !self.remote.is_response_channel(key) {
            return false;
        }
        if !cx.check_rate(key, payload.len()) {
            self.over_rate_drops += 1;
            return true;
        }
        match (called, wire::parse(payload)) {
            (None, _) => self.remote.handle_response(cx, key, payload),
            (Some(service), Some(parsed)) => {
                self.local.call_server(cx, key.peer, service, parsed);
            }
            (Some(service), None) => {
                let text = format!("a call of {service} is malformed");
                cx.peer_notice(key.peer, &text);
            }
        }
        true
    }

    /// Ends the calls to and from a peer that has started a new session.
    pub(super) fn new_session(&mut self, cx: &mut Context<'_>, peer: PeerId) {
        self.local.end_calls_of(peer);
        self.remote.new_session(cx, peer);
    }

    /// Removes the services that a peer serves, and the peer's calls.
    pub(super) fn remove_peer(&mut self, cx: &mut Context<'_>, peer: PeerId) {
        self.remote.remove_peer(cx, peer);
        self.local.remove_peer(peer);
    }

    pub(super) fn sweep(&mut self, cx: &mut Context<'_>) {
        self.local.sweep(cx.now);
        self.remote.sweep(cx);
    }

    /// Returns the number of calls and responses of peers that were dropped because they are not of
    /// their type.
    pub(super) fn malformed(&self) -> u64 {
        self.local.malformed + self.remote.malformed
    }

    /// Returns the services whose calls or responses no shared definition checks.
    pub(super) fn unchecked(&self) -> impl Iterator<Item = Unchecked<'_>> {
        self.local.unchecked().chain(self.remote.unchecked())
    }
}
