// SPDX-License-Identifier: Apache-2.0
//! The mapping between local topics and channels of peers: the exchange between gateway and
//! protocol. It does no I/O: work for other parts of the daemon is returned as [`Order`]s.

mod context;
mod definitions;
mod exports;
mod key;
mod limits;
mod lines;
mod message;
mod origin;
mod own;
pub(crate) mod parameters;
mod peers;
mod record;
mod refusals;
mod reload;
mod remote;
mod rights;
mod services;
mod shown;
#[cfg(test)]
mod tests;
mod told;
mod translation;
mod unchecked;
mod waiting;
mod watchdogs;

pub(crate) use context::{Context, Order, Shared};
use exports::Exports;
pub(crate) use exports::{LocalTopic, Renaming, link_policy};
pub(crate) use key::ChannelKey;
pub(crate) use message::{Outgoing, SourceChange};

use crate::audit::Actor;
use crate::codec::Done;
use crate::config::Config;
use crate::quota::Cause;
use crate::status::TopicChange;
pub(crate) use remote::{ArrivalChange, IncomingState};
use remote::{Catalog, Held, Publication};
use services::Services;
use shown::Kind;
use shown::Shown;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use tautline_gateway::Event as LocalEvent;
use tautline_gateway::description::{write_nodes, write_parameters};
use tautline_gateway::tf;
use tautline_proto::{Endpoint, Instant, PeerId};
pub(crate) use unchecked::Unchecked;
pub(crate) use waiting::Waiting;
use watchdogs::Watchdogs;
pub(crate) use watchdogs::{SafeMessage, safe_message};

/// The exchange with the protocol, for reports.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exchange<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) topics: &'a Topics,
    pub(crate) shared: &'a Shared,
}

/// The state of the exchange between gateway and protocol.
#[derive(Debug)]
pub(crate) struct Topics {
    max_message: usize,
    services: Services,
    exports: Exports,
    remote: Catalog,
    /// The topic of each peer that is being examined. A peer with many topics, or with slow
    /// definitions, delays only its own.
    examined: BTreeMap<PeerId, ChannelKey>,
    publications: BTreeMap<String, Publication>,
    shown: Shown,
    /// Names under which topics of each peer were published.
    names: BTreeMap<PeerId, BTreeSet<String>>,
    /// Bytes of each peer's messages that this robot's ROS holds.
    held: BTreeMap<PeerId, Held>,
    /// Topics of returned peers that are still to be published.
    returning: BTreeMap<PeerId, VecDeque<ChannelKey>>,
    pub(crate) watchdogs: Watchdogs,
    /// Which frames are sent on tf topics, and under which names there and in other messages.
    tf_rules: Arc<tf::Rules>,
}

impl Topics {
    /// Creates the exchange; peers are numbered in the order of the file.
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            max_message: config.limits.max_message,
            services: Services::new(&config.services),
            exports: Exports::new(config),
            remote: Catalog::default(),
            examined: BTreeMap::new(),
            publications: BTreeMap::new(),
            shown: Shown::default(),
            names: BTreeMap::new(),
            held: BTreeMap::new(),
            returning: BTreeMap::new(),
            watchdogs: Watchdogs::new(&config.watchdogs),
            tf_rules: Arc::new(config.tf.clone()),
        }
    }

    /// Handles an event of the gateway.
    pub(crate) fn on_local(&mut self, cx: &mut Context<'_>, event: LocalEvent) {
        let now = cx.now;
        match event {
            LocalEvent::Offered(topic) => self.exports.offered_by_others(cx, topic),
            LocalEvent::Withdrawn { topic } => self.exports.withdrawn_by_others(cx, topic),
            LocalEvent::SourceGone { topic, source } => {
                self.exports.source_gone(cx, SourceChange { topic, source, successor: None });
            }
            LocalEvent::ServiceOffered(service) => self.services.offered_here(cx, service),
            LocalEvent::ServiceWithdrawn { service } => self.services.withdrawn_here(cx, &service),
            LocalEvent::Called { service, call, request } => {
                self.services.called(cx, service, call, &request);
            }
            LocalEvent::Interrupted { service, call, request } => {
                self.services.interrupted(cx, service, call, &request);
            }
            LocalEvent::Answered { call, outcome, .. } => {
                self.services.answered(cx, call, &outcome)
            }
            LocalEvent::Wanted { topic, wanted } => self.local_wanted(cx, &topic, wanted),
            LocalEvent::Changed { peer, parameters } => self.shown.ask_to_set(cx, peer, parameters),
            LocalEvent::Nodes(nodes) => {
                self.shown.show(cx, Kind::Nodes, write_nodes(&nodes).into())
            }
            LocalEvent::Parameters(parameters) => {
                self.shown.show(cx, Kind::Parameters, write_parameters(&parameters).into());
            }
            LocalEvent::Refused { topic, reason } => self.local_refused(cx, &topic, &reason),
            LocalEvent::Depth { topic, source, successor, depth } => {
                let successor = Some((successor, depth));
                self.exports.depth_found(cx, SourceChange { topic, source, successor });
            }
            LocalEvent::Message { topic, source, payload, origin, .. } => {
                let (encoded, published) = (false, now.before(origin.age));
                let message = Outgoing { topic, source, payload, origin, encoded, published };
                self.exports.message(cx, message);
            }
        }
    }

    /// Returns the time at which [`Topics::handle_timeout`] is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let timers = [
            self.exports.poll_timeout(),
            self.services.poll_timeout(),
            self.watchdogs.poll_timeout(),
        ];
        timers.into_iter().flatten().min()
    }

    /// Does the work that is due at `now`.
    pub(crate) fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        self.exports.send_due(cx);
        self.services.handle_timeout(cx);
        self.run_watchdogs(cx);
    }

    /// Takes the result of a job that was ordered.
    pub(crate) fn on_codec(&mut self, cx: &mut Context<'_>, done: Done) {
        match done {
            Done::Encoded { message, renaming, problem } => {
                self.exports.encoded(cx, message, renaming, problem);
            }
            Done::Changed(change) => self.exports.source_changed(cx, change),
            Done::Decoded(message) => self.decoded(cx, message),
            Done::Unreadable { key, topic, reason } => {
                self.drop_malformed(cx, key, &topic, &reason);
            }
            Done::Localized { key, foreign, found } => self.localized(cx, key, &foreign, *found),
            Done::ServiceLocalized { key, foreign, found } => {
                self.services.localized(cx, key, &foreign, *found);
            }
            Done::Composed { topic, made } => self.composed(cx, &topic, made),
            Done::CallTranslated { service, call, outcome, is_response } => {
                self.services.call_translated(cx, service, call, outcome, is_response);
            }
        }
    }

    /// Adds a notice about a topic of peers; its cause is the first peer that feeds the topic.
    fn topic_notice(&mut self, cx: &mut Context<'_>, topic: &str, text: &str) {
        let now = cx.now;
        let from = self.publications.get(topic).and_then(|it| it.from.first());
        let cause = from.map_or(Cause::Here, |key| cx.peers.cause(key.peer));
        cx.notices.add(now, cause, text);
    }

    /// Returns the topics of this robot that are advertised to peers.
    pub(crate) fn exported(&self) -> &BTreeMap<String, LocalTopic> {
        self.exports.topics()
    }

    /// Returns the changes on the running node, which override the file.
    pub(crate) fn changes(&self) -> Vec<TopicChange> {
        self.exports.changes()
    }

    /// Changes the treatment of the matching topics on the running node for `by`, and records the
    /// outcome. Returns their names.
    pub(crate) fn set(
        &mut self,
        cx: &mut Context<'_>,
        change: TopicChange,
        by: Actor,
    ) -> Result<Vec<String>, String> {
        self.exports.set(cx, change, by)
    }

    /// Calls, responses and requests of peers that were dropped above their rate.
    pub(crate) fn calls_over_rate(&self) -> u64 {
        self.services.over_rate + self.shown.over_rate
    }

    /// Calls and responses of peers that were dropped because they are not of their type.
    pub(crate) fn calls_malformed(&self) -> u64 {
        self.services.malformed()
    }
}
