// SPDX-License-Identifier: Apache-2.0
//! The mapping between local topics and channels of peers: the exchange between gateway and
//! protocol. It does no I/O: work for other parts of the daemon is returned as [`Order`]s.
//!
//! ```text
//! gateway ─▶ on_local ─▶ exports (topics of this robot)  ─▶ Endpoint
//! Endpoint ─▶ on_remote ─▶ imports (topics of peers)     ─▶ Order ─▶ gateway, codec
//!                          services, shown: both ways
//! ```
//! [`Topics`] passes each event to the part that it concerns. A part has its own state, and gets what
//! all parts share as a [`Context`].

mod context;
mod definitions;
pub(crate) mod exports;
pub(crate) mod imports;
pub(crate) mod key;
mod limits;
mod lines;
pub(crate) mod message;
mod origin;
pub(crate) mod parameters;
mod peers;
mod record;
mod refusals;
mod reload;
mod report_limiter;
mod rights;
mod services;
mod shown;
#[cfg(test)]
mod tests;
mod translation;
mod unchecked;
mod waiting;

pub(crate) use context::{Context, Order, Shared};
pub(crate) use exports::LocalTopic;
pub(crate) use imports::IncomingState;
pub(crate) use key::ChannelKey;
pub(crate) use unchecked::Unchecked;
pub(crate) use waiting::PendingRequest;

use crate::audit::Actor;
use crate::codec::job::JobResult;
use crate::config::{Config, PeerConfig};
use crate::limits::MAX_ONE_SIDED;
use crate::notices;
use crate::status::{TopicChange, WatchdogReport};
use bytes::Bytes;
use exports::Exports;
use imports::Imports;
use message::{Change, Outgoing, SourceChange};
use reload::{Verdicts, configured_peers, verdicts};
use services::Services;
use shown::{Kind, ShownLists};
use std::collections::{BTreeMap, BTreeSet};
use tautline_gateway::description::{write_nodes, write_parameters};
use tautline_gateway::{Command, Event as LocalEvent, MAX_SOURCES, Origin, Source, Topic};
use tautline_proto::{Endpoint, Event, Instant, LinkView, Notice, PeerId, Role};

/// This node as a source. Its number follows those of the publishers in ROS.
const OWN_SOURCE: Source = Source::local(MAX_SOURCES);

/// The exchange and the protocol, read-only, for reports.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exchange<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) topics: &'a Topics,
    pub(crate) shared: &'a Shared,
}

/// The state of the exchange between gateway and protocol.
#[derive(Debug)]
pub(crate) struct Topics {
    exports: Exports,
    imports: Imports,
    services: Services,
    shown: ShownLists,
}

impl Topics {
    /// Creates the exchange; peers are numbered in the order of the file.
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            exports: Exports::new(config),
            imports: Imports::new(config),
            services: Services::new(&config.services),
            shown: ShownLists::default(),
        }
    }

    /// Handles an event of the gateway.
    pub(crate) fn on_local(&mut self, cx: &mut Context<'_>, event: LocalEvent) {
        let now = cx.now;
        match event {
            LocalEvent::Offered(topic) => self.exports.on_offered_by_others(cx, topic),
            LocalEvent::Withdrawn { topic } => self.exports.on_withdrawn_by_others(cx, topic),
            LocalEvent::SourceGone { topic, source } => {
                self.exports.on_source_gone(cx, SourceChange { topic, source, successor: None });
            }
            LocalEvent::ServiceOffered(service) => self.services.local.on_offered(cx, service),
            LocalEvent::ServiceWithdrawn { service } => {
                self.services.local.on_withdrawn(cx, &service)
            }
            LocalEvent::Called { service, call, request } => {
                self.services.remote.on_call(cx, service, call, &request);
            }
            LocalEvent::Interrupted { service, call, request } => {
                self.services.remote.on_interrupted(cx, service, call, &request);
            }
            LocalEvent::Answered { call, outcome, .. } => {
                self.services.local.on_answer(cx, call, &outcome)
            }
            LocalEvent::Wanted { topic, wanted } => {
                self.imports.on_local_wanted(cx, &topic, wanted)
            }
            LocalEvent::ParametersChanged { peer, parameters } => {
                self.shown.request_parameter_changes(cx, peer, parameters)
            }
            LocalEvent::Nodes(nodes) => {
                self.shown.on_list_changed(cx, Kind::Nodes, write_nodes(&nodes).into())
            }
            LocalEvent::Parameters(parameters) => {
                self.shown.on_list_changed(
                    cx,
                    Kind::Parameters,
                    write_parameters(&parameters).into(),
                );
            }
            LocalEvent::Refused { topic, reason } => {
                self.imports.on_local_refused(cx, &topic, &reason)
            }
            LocalEvent::DepthChanged { topic, source, successor, depth } => {
                let successor = Some((successor, depth));
                self.exports.on_depth_found(cx, SourceChange { topic, source, successor });
            }
            LocalEvent::Message { topic, source, payload, origin, .. } => {
                let (encoded, published) = (false, now.before(origin.age));
                let message = Outgoing { topic, source, payload, origin, encoded, published };
                self.exports.on_message(cx, message);
            }
        }
    }

    /// Handles an event of the protocol.
    pub(crate) fn on_remote(&mut self, cx: &mut Context<'_>, event: Event) {
        match event {
            Event::PeerUp { peer, new_session } => {
                record::peer_up(cx, peer, new_session);
                let was_given_up = cx.peers.mark_up(peer);
                self.imports.update_liveliness_of(cx, peer);
                if new_session {
                    self.new_session(cx, peer);
                } else if was_given_up {
                    self.exports.resume(cx, peer);
                    self.imports.resume(cx, peer);
                }
            }
            Event::PeerDown { peer, said_goodbye } => {
                record::peer_down(cx, peer, said_goodbye);
                cx.peers.mark_down(cx.now, peer);
                self.imports.update_liveliness_of(cx, peer);
            }
            Event::PeerLeft { peer } => self.new_session(cx, peer),
            Event::LinkUp { link } => record::link_changed(cx, link, true),
            Event::LinkDown { link } => record::link_changed(cx, link, false),
            Event::LinkRate { .. } | Event::Candidates { .. } => {}
            Event::LinkMoved { link, to } => {
                if let Some(LinkView { peer, .. }) = cx.endpoint.link(link) {
                    record::peer_moved(cx, peer, to);
                }
            }
            Event::Notice(notice) => self.on_notice(cx, &notice),
            Event::Message { .. }
            | Event::Offered { .. }
            | Event::Withdrawn { .. }
            | Event::Wanted { .. }
            | Event::Refused { .. } => self.on_channel(cx, event),
        }
    }

    /// Handles an event of a channel, which belongs to a service, a list or a topic.
    fn on_channel(&mut self, cx: &mut Context<'_>, event: Event) {
        match event {
            Event::Message { peer, channel, message } => {
                let key = ChannelKey { peer, channel };
                if !self.services.on_message(cx, key, &message.payload)
                    && !self.shown.on_message(cx, key, &message.payload)
                {
                    self.imports.on_message(cx, key, message);
                }
            }
            Event::Offered { peer, channel, topic, definition } => {
                cx.check_priority(peer, &topic);
                let key = ChannelKey { peer, channel };
                cx.pending_requests.remove(&key);
                if topic.role != Role::Topic {
                    let bytes = self.imports.definition_bytes(key);
                    return self.services.on_offered(cx, key, topic, definition, bytes);
                }
                // A new session may give the number of a service to a topic.
                self.services.on_withdrawn(cx, key);
                if !self.shown.on_offered(cx, key, &topic) {
                    let bytes = self.services.remote.definition_bytes(key);
                    self.imports.on_offered(cx, key, topic, definition, bytes);
                }
            }
            Event::Withdrawn { peer, channel } => {
                let key = ChannelKey { peer, channel };
                cx.pending_requests.remove(&key);
                if !self.services.on_withdrawn(cx, key)
                    && !self.shown.on_withdrawn(cx, key)
                    && !self.imports.catalog.withdraw_after_codec(cx, key)
                {
                    self.imports.on_withdrawn(cx, key);
                }
            }
            Event::Wanted { peer, channel, wanted } => {
                let key = ChannelKey { peer, channel };
                if wanted {
                    cx.drop_refusal(key);
                }
                if !self.services.on_wanted(cx, key, wanted)
                    && !self.shown.on_wanted(cx, key, wanted)
                {
                    self.exports.on_wanted(cx, key, wanted);
                }
            }
            Event::Refused { peer, channel, reason } => {
                let key = ChannelKey { peer, channel };
                cx.record_refusal_by_peer(key, &reason);
                cx.apply_size_limit(peer, &reason);
                if !self.services.on_refused(cx, key, &reason)
                    && !self.shown.on_refused(cx, key, &reason)
                {
                    self.exports.on_refused(cx, key, &reason);
                }
            }
            _ => {}
        }
    }

    fn on_notice(&mut self, cx: &mut Context<'_>, notice: &Notice) {
        record::failed_handshake(cx, notice);
        let text = notices::sentence(notice, cx.endpoint.name());
        if let Notice::TooLarge { peer, topic, .. } = notice {
            let mut peers = cx.endpoint.peers();
            if let Some(peer) = peers.find(|it| cx.peers.name(*it) == peer) {
                self.services.remote.on_response_too_large(cx.now, peer, topic, &text);
            }
        }
        cx.notices.add(cx.now, notices::cause(notice), &text);
    }

    fn new_session(&mut self, cx: &mut Context<'_>, peer: PeerId) {
        cx.clear_size_limit(peer);
        self.imports.new_session(cx, peer);
        cx.pending_requests.retain(|key, _| key.peer != peer);
        self.shown.new_session(cx, peer);
        self.exports.unsubscribe_peer(cx, peer);
        self.services.new_session(cx, peer);
    }

    /// Takes the result of a job that was ordered.
    pub(crate) fn on_codec(&mut self, cx: &mut Context<'_>, done: JobResult) {
        match done {
            JobResult::Encoded { message, renaming, problem } => {
                self.exports.on_encoded(cx, message, renaming, problem);
            }
            JobResult::Changed(Change::PeerWithdrawal(key)) => {
                // The peer may have advertised the topic again.
                if self.imports.catalog.get(key).is_some_and(|it| it.is_withdrawn) {
                    self.imports.on_withdrawn(cx, key);
                }
            }
            JobResult::Changed(change) => self.exports.on_change(cx, change),
            JobResult::Decoded(message) => self.imports.on_decoded(cx, message),
            JobResult::Unreadable { key, topic, reason } => {
                self.imports.on_unreadable(cx, key, &topic, &reason);
            }
            JobResult::Localized { key, peer_form, found } => {
                let bytes = self.services.remote.definition_bytes(key);
                self.imports.on_localized(cx, key, &peer_form, *found, bytes);
            }
            JobResult::ServiceLocalized { key, peer_form, found } => {
                self.services.remote.on_localized(cx, key, &peer_form, *found);
            }
            JobResult::Composed { topic, composed } => {
                self.imports.on_composed(cx, &topic, composed)
            }
            JobResult::CallTranslated { service, call, outcome, is_response } => {
                self.services.remote.on_call_translated(cx, service, call, outcome, is_response);
            }
        }
    }

    /// Returns the time at which [`Topics::handle_timeout`] is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let timers = [
            self.exports.poll_timeout(),
            self.services.remote.next_due(),
            self.imports.poll_timeout(),
        ];
        timers.into_iter().flatten().min()
    }

    /// Does the work that is due at `now`.
    pub(crate) fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        self.exports.send_due(cx);
        self.exports.end_departures(cx);
        self.services.local.end_departures(cx);
        self.services.remote.fail_expired(cx);
        self.imports.handle_timeout(cx);
    }

    /// Does the periodic work; to be called once per second.
    pub(crate) fn sweep(&mut self, cx: &mut Context<'_>) {
        cx.drop_resolved_notices();
        self.imports.sweep_stale(cx);
        self.services.sweep(cx);
        self.shown.sweep(cx);
        self.imports.sweep(cx);
        for peer in cx.peers.give_up_absent(cx.now) {
            self.exports.unsubscribe_peer(cx, peer);
            self.imports.give_up(cx, peer);
        }
        self.imports.publish_all_returning(cx);
        self.exports.unsubscribe_unwanted(cx);
        self.imports.forget_unwanted(cx);
        cx.sweep_rates();
        cx.notices.sweep(cx.now);
        cx.recorder.sweep(cx.now);
    }

    /// Publishes `topic` here, and advertises it to peers if a rule of the file names it. Must be
    /// called repeatedly, because others may take or free the name. If others use the name with
    /// another type, their type stays.
    pub(crate) fn publish_own_topic(&mut self, cx: &mut Context<'_>, topic: &Topic) {
        self.publish_own_topic_locally(cx, topic);
        self.exports.publish_own_topic(cx, topic);
    }

    /// Publishes `topic` only here, whatever the file states for its name. Must be called repeatedly as well.
    pub(crate) fn publish_own_topic_locally(&mut self, cx: &mut Context<'_>, topic: &Topic) {
        self.imports.publish_own_topic(cx, topic);
    }

    /// Stops publishing the topic `name` for this node. Other publishers of the name continue.
    pub(crate) fn stop_own_topic(&mut self, cx: &mut Context<'_>, name: &str) {
        self.exports.stop_own_topic(cx, name);
        self.imports.stop_own_topic(cx, name);
    }

    /// Whether the topic has subscribers, here or at a peer.
    pub(crate) fn is_own_topic_wanted(&self, name: &str) -> bool {
        self.imports.is_own_topic_wanted(name) || self.exports.is_own_topic_wanted(name)
    }

    /// Sends a message on the topic to its subscribers.
    pub(crate) fn send_own_message(&mut self, cx: &mut Context<'_>, name: &str, payload: Bytes) {
        let topic = name.to_owned();
        if self.imports.is_own_topic_wanted(name) {
            let (topic, payload, origin) = (topic.clone(), payload.clone(), Origin::default());
            cx.send_to_gateway(Command::Publish { topic, source: OWN_SOURCE, payload, origin });
        }
        if self.exports.is_own_topic_wanted(name) {
            let (source, origin, encoded) = (OWN_SOURCE, Origin::default(), false);
            let published = cx.now;
            let message = Outgoing { topic, source, payload, origin, encoded, published };
            self.exports.on_message(cx, message);
        }
    }

    /// Removes everything that a peer has here, and everything kept for it. The caller then removes
    /// the peer from the endpoint.
    pub(crate) fn remove_peer(&mut self, cx: &mut Context<'_>, peer: PeerId) {
        record::peer_removed(cx, peer);
        cx.clear_size_limit(peer);
        self.services.remove_peer(cx, peer);
        self.shown.remove_peer(cx, peer);
        self.imports.remove_peer(cx, peer);
        self.exports.unsubscribe_peer(cx, peer);
        cx.peers.mark_up(peer);
        cx.pending_requests.retain(|key, _| key.peer != peer);
        self.exports.remove_peer(peer);
    }

    /// Replaces the configuration `old` by `new`. Unchanged parts continue undisturbed; the other parts are
    /// advertised, withdrawn, published or given up. The endpoint must already have the peers of `new`.
    pub(crate) fn reconfigure(&mut self, cx: &mut Context<'_>, old: &Config, new: &Config) {
        let renamed_before = self.exports.renamed_latched_topics(cx);
        self.reconfigure_peers(cx, old, new);
        self.exports.apply_all_rules(cx, &new.topics);
        self.services.apply_rules(cx, &new.services);
        if old.watchdogs != new.watchdogs {
            self.imports.reconfigure_watchdogs(cx, &new.watchdogs);
        }
        self.imports.set_tf(&new.tf);
        self.exports.apply_tf_rules(cx, [&old.tf, &new.tf], &renamed_before);
    }

    /// Applies the names and rights of all peers. An advertisement is examined again if the
    /// decision about it changes. The prefix of another peer can also change the decision.
    fn reconfigure_peers(&mut self, cx: &mut Context<'_>, old: &Config, new: &Config) {
        let known = |peer: &PeerConfig| old.peers.iter().find(|it| it.key == peer.key);
        let all = configured_peers(cx, new);
        let before: BTreeMap<PeerId, Verdicts> = all
            .iter()
            .filter(|(_, peer)| known(peer).is_some())
            .map(|(id, _)| (*id, verdicts(cx, *id)))
            .collect();
        cx.peers.forget_names_of_others(|id| all.contains_key(&id));
        for (id, peer) in &all {
            if known(peer) != Some(*peer) {
                cx.peers.insert_or_update(*id, peer, known(peer), new.ros().as_ref());
                self.shown.apply_rights(cx, *id);
            }
        }
        for (peer, before) in before {
            for (channel, verdict) in verdicts(cx, peer) {
                if before.get(&channel).is_some_and(|before| *before != verdict) {
                    self.examine_again(cx, ChannelKey { peer, channel });
                }
            }
        }
    }

    /// Treats a channel of a peer as newly advertised, because it now stands for another topic
    /// here, or for none.
    fn examine_again(&mut self, cx: &mut Context<'_>, key: ChannelKey) {
        if !self.services.on_withdrawn(cx, key) {
            self.imports.on_withdrawn(cx, key);
        }
        cx.pending_requests.remove(&key);
        if let Some((offered, ..)) = cx.endpoint.peer(key.peer).channel_in(key.channel) {
            let untrue = notices::plain(&cx.refusal_prefix(key.peer, &offered.name));
            cx.notices.retain(&cx.peers.cause(key.peer), |text| !text.starts_with(&untrue));
        }
        cx.endpoint.peer_mut(key.peer).want(cx.now, key.channel, false);
        cx.endpoint.peer_mut(key.peer).repeat_offer(cx.now, key.channel);
    }

    /// Returns the topics of this robot that are advertised to peers.
    pub(crate) fn exported_topics(&self) -> &BTreeMap<String, LocalTopic> {
        self.exports.topics()
    }

    /// Returns the changes on the running node, which override the file.
    pub(crate) fn changes(&self) -> Vec<TopicChange> {
        self.exports.changes()
    }

    /// Changes the treatment of the matching topics on the running node for `by`, and records the
    /// outcome. Returns the names of the topics.
    pub(crate) fn change_treatment(
        &mut self,
        cx: &mut Context<'_>,
        change: TopicChange,
        by: Actor,
    ) -> Result<Vec<String>, String> {
        self.exports.change_treatment(cx, change, by)
    }

    /// Returns the state of a peer's topic.
    pub(crate) fn incoming(&self, key: ChannelKey) -> Option<IncomingState<'_>> {
        self.imports.incoming(key)
    }

    pub(crate) fn watchdog_reports(&self) -> impl Iterator<Item = WatchdogReport> {
        self.imports.watchdog_reports()
    }

    /// Returns the topics and services whose messages no shared definition checks.
    pub(crate) fn unchecked(&self) -> impl Iterator<Item = Unchecked<'_>> {
        self.imports.unchecked().chain(self.services.unchecked())
    }

    /// Returns the fields of the peer's topics and services that only one ROS has, each once. There
    /// are at most [`MAX_ONE_SIDED`], because a peer chooses its types.
    pub(crate) fn one_sided_fields(&self, peer: PeerId) -> BTreeSet<&str> {
        let topics = self.imports.one_sided_fields(peer);
        let both = topics.chain(self.services.remote.one_sided_fields(peer));
        both.take(MAX_ONE_SIDED).map(String::as_str).collect()
    }

    /// Returns the number of calls, responses and requests of peers that were dropped above their rate.
    pub(crate) fn calls_over_rate(&self) -> u64 {
        self.services.over_rate_drops + self.shown.over_rate_drops
    }

    /// Returns the number of calls and responses of peers that were dropped because they are not of
    /// their type.
    pub(crate) fn calls_malformed(&self) -> u64 {
        self.services.malformed()
    }
}
