// SPDX-License-Identifier: Apache-2.0
//! The mapping between local topics and channels of peers: the exchange between gateway and
//! protocol. It does no I/O: work for other parts of the daemon is returned as [`Order`]s.

mod frames;
mod lines;
mod local;
mod origin;
mod own;
mod record;
mod reload;
mod remote;
mod rights;
mod services;
mod shown;
#[cfg(test)]
mod tests;
mod transforms;
mod waiting;
mod watchdogs;

pub(crate) use frames::Renaming;
pub use local::link_policy;
pub(crate) use local::{LocalTopic, SourceChange};

use crate::audit::{Actor, Recorder};
use crate::codec::{Done, Job};
use crate::config::Config;
use crate::notices::Notices;
use crate::quota::Cause;
use crate::status::TopicChange;
use crate::treatment::services::ServiceRule;
use crate::treatment::{TopicRule, Treatment, treatment};
use bytes::Bytes;
use remote::{Absence, Catalog, Held, Publication};
pub(crate) use remote::{ArrivalChange, ChannelKey, IncomingState, Unchecked};
use rights::Rights;
use services::Services;
use shown::Shown;
pub(crate) use shown::may_use_parameters;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use tautline_gateway::pattern::Pattern;
use tautline_gateway::types::Dialect;
use tautline_gateway::{Command, Origin, Source, tf};
use tautline_proto::{Endpoint, Instant, PeerId};
pub(crate) use waiting::Waiting;
use watchdogs::Watchdogs;
pub(crate) use watchdogs::{SafeMessage, safe_message};

/// Maximum changes kept on the running node. A change that a later one of the same pattern replaces
/// does not count.
const MAX_CHANGES: usize = 1024;
/// Rates that a change may set, in hertz; the file has the same limits.
const RATES_HZ: std::ops::RangeInclusive<f64> = 0.001..=100_000.0;

/// Work for another part of the daemon.
#[derive(Debug)]
pub(crate) enum Order {
    Gateway(Command),
    /// A job for the codec; [`Topics::on_codec`] takes the result.
    Codec(Job),
}

/// The translation between a peer's topic or service and this robot's ROS.
#[derive(Debug)]
enum Translation<T> {
    /// Both use the same ROS.
    None,
    /// Requested, no result yet.
    Requested,
    Impossible,
    By(Arc<T>),
}

impl<T> Translation<T> {
    /// Returns the translator, if messages are translated.
    fn translator(&self) -> Option<Arc<T>> {
        match self {
            Self::By(translator) => Some(translator.clone()),
            _ => None,
        }
    }

    /// The same, borrowed.
    fn known_translator(&self) -> Option<&T> {
        match self {
            Self::By(translator) => Some(translator),
            _ => None,
        }
    }

    /// Whether no translation is needed, or the translation is known.
    fn is_known(&self) -> bool {
        matches!(self, Self::None | Self::By(_))
    }
}

/// A message from the gateway to the protocol.
#[derive(Debug, Clone)]
pub(crate) struct Outgoing {
    pub(crate) topic: String,
    pub(crate) source: Source,
    pub(crate) payload: Bytes,
    pub(crate) origin: Origin,
    pub(crate) encoded: bool,
    pub(crate) published: Instant,
}

/// The state of the exchange between gateway and protocol.
#[derive(Debug)]
pub(crate) struct Topics {
    /// The protocol, whose channels carry the topics.
    pub(crate) endpoint: Endpoint,
    rules: Vec<TopicRule>,
    /// Changes on the running node, oldest first; a later one overrides an earlier one.
    changes: Vec<(Pattern, TopicChange)>,
    /// The ROS whose types this robot uses.
    dialect: Option<Dialect>,
    peer_names: Vec<String>,
    /// Names and numbers of the links to each peer.
    link_names: BTreeMap<PeerId, Vec<(String, u8)>>,
    rights: Vec<Rights>,
    /// Requests of peers that the file does not allow.
    waiting: BTreeMap<ChannelKey, Waiting>,
    /// Calls and responses of peers that were dropped above their rate.
    pub(crate) calls_over_rate: u64,
    /// Calls and responses of peers that were dropped because they are not of their type.
    pub(crate) calls_malformed: u64,
    max_message: usize,
    service_rules: Vec<ServiceRule>,
    services: Services,
    pub(crate) local: BTreeMap<String, LocalTopic>,
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
    absent: BTreeMap<PeerId, Absence>,
    /// Topics of returned peers that are still to be published.
    returning: BTreeMap<PeerId, VecDeque<ChannelKey>>,
    pub(crate) watchdogs: Watchdogs,
    orders: VecDeque<Order>,
    /// Which frames are sent on tf topics, and under which names there and in other messages.
    tf_rules: Arc<tf::Rules>,
    /// Lower bound of the time when a message is due that its topic's rate holds back; `None` if
    /// there is none.
    next_held_back: Option<Instant>,
    pub(crate) notices: Notices,
    pub(crate) recorder: Recorder,
}

impl Topics {
    /// Creates the exchange; peers are numbered in the order of the file.
    pub(crate) fn new(config: &Config, endpoint: Endpoint) -> Self {
        let ros = config.ros();
        Self {
            endpoint,
            rules: config.topics.clone(),
            changes: Vec::new(),
            dialect: ros.as_ref().map(|(dialect, _)| *dialect),
            link_names: BTreeMap::new(),
            peer_names: config.peers.iter().map(|p| p.name.clone()).collect(),
            rights: config.peers.iter().map(|peer| Rights::new(peer, ros.as_ref())).collect(),
            waiting: BTreeMap::new(),
            calls_over_rate: 0,
            calls_malformed: 0,
            max_message: config.limits.max_message,
            service_rules: config.services.clone(),
            services: Services::default(),
            local: BTreeMap::new(),
            remote: Catalog::default(),
            examined: BTreeMap::new(),
            publications: BTreeMap::new(),
            shown: Shown::default(),
            names: BTreeMap::new(),
            held: BTreeMap::new(),
            absent: BTreeMap::new(),
            returning: BTreeMap::new(),
            watchdogs: Watchdogs::new(&config.watchdogs),
            orders: VecDeque::new(),
            tf_rules: Arc::new(config.tf.clone()),
            next_held_back: None,
            notices: Notices::default(),
            recorder: Recorder::default(),
        }
    }

    pub(crate) fn poll_order(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    /// Returns the time at which [`Topics::handle_timeout`] is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let timers = [self.next_held_back, self.next_call_due(), self.watchdogs.poll_timeout()];
        timers.into_iter().flatten().min()
    }

    /// Does the work that is due at `now`.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.send_due(now);
        self.fail_late_calls(now);
        self.run_watchdogs(now);
    }

    /// Takes the result of a job that was ordered.
    pub(crate) fn on_codec(&mut self, now: Instant, done: Done) {
        match done {
            Done::Encoded { message, renaming, problem } => {
                self.encoded(now, message, renaming, problem);
            }
            Done::Changed(change) => self.source_changed(now, change),
            Done::Decoded(message) => self.decoded(now, message),
            Done::Unreadable { key, topic, reason } => {
                self.drop_malformed(now, key, &topic, &reason);
            }
            Done::Localized { key, foreign, found } => self.localized(now, key, &foreign, *found),
            Done::ServiceLocalized { key, foreign, found } => {
                self.service_localized(now, key, &foreign, *found);
            }
            Done::Composed { topic, made } => self.composed(now, &topic, made),
            Done::CallTranslated { service, call, outcome, is_response } => {
                self.call_translated(now, service, call, outcome, is_response);
            }
        }
    }

    fn peer_name(&self, peer: PeerId) -> &str {
        &self.peer_names[peer.0 as usize]
    }

    /// Sets the names and numbers of the links to a peer.
    pub(crate) fn set_link_names(&mut self, peer: PeerId, names: Vec<(String, u8)>) {
        self.link_names.insert(peer, names);
    }

    /// The name of the link of this number.
    pub(crate) fn link_name(&self, peer: PeerId, number: u8) -> Option<&str> {
        let named = self.links_of(peer).iter().find(|(_, it)| *it == number);
        named.map(|(name, _)| name.as_str())
    }

    pub(crate) fn links_of(&self, peer: PeerId) -> &[(String, u8)] {
        self.link_names.get(&peer).map_or(&[], Vec::as_slice)
    }

    /// Returns the cause of all events that this peer triggers.
    fn cause(&self, peer: PeerId) -> Cause {
        Cause::Peer(self.peer_name(peer).to_owned())
    }

    pub(crate) fn notice(&mut self, now: Instant, cause: Cause, text: &str) {
        self.notices.add(now, cause, text);
    }

    /// Adds a notice about a peer.
    pub(crate) fn peer_notice(&mut self, now: Instant, peer: PeerId, text: &str) {
        self.notices.add(now, self.cause(peer), text);
    }

    /// Adds a notice about a topic of peers; its cause is the first peer that feeds the topic.
    fn topic_notice(&mut self, now: Instant, topic: &str, text: &str) {
        let from = self.publications.get(topic).and_then(|it| it.from.first());
        let cause = from.map_or(Cause::Here, |key| self.cause(key.peer));
        self.notices.add(now, cause, text);
    }

    fn gateway(&mut self, command: Command) {
        self.orders.push_back(Order::Gateway(command));
    }

    fn codec(&mut self, job: Job) {
        self.orders.push_back(Order::Codec(job));
    }

    /// Returns the treatment of a topic: the file's rule with the changes since.
    fn treatment_of(&self, name: &str) -> Option<Treatment> {
        let ruled = treatment(&self.rules, name).cloned();
        let mut found = ruled.or_else(|| self.treatment_of_logs(name))?;
        for (_, change) in self.changes.iter().filter(|(p, _)| p.matches(name)) {
            found.priority = change.priority.unwrap_or(found.priority);
            match change.rate_hz {
                Some(0.0) => found.rate_hz = None,
                Some(hz) => found.rate_hz = Some(hz),
                None => {}
            }
        }
        Some(found)
    }

    /// Returns the changes on the running node, which override the file.
    pub(crate) fn changes(&self) -> Vec<TopicChange> {
        self.changes.iter().map(|(_, change)| change.clone()).collect()
    }

    /// Calls [`Topics::change`] for `by`, and records the outcome.
    pub(crate) fn set(
        &mut self,
        now: Instant,
        change: TopicChange,
        by: Actor,
    ) -> Result<Vec<String>, String> {
        let words = change.to_string();
        let outcome = self.change(now, change);
        match &outcome {
            // The pattern is recorded too: it also applies to topics that appear later.
            Ok(topics) => self.recorder.changed(by, Ok(&[&[words], &topics[..]].concat())),
            Err(reason) => self.recorder.changed(by, Err(&format!("{words}: {reason}"))),
        }
        outcome
    }

    /// Changes the treatment of the matching topics on the running node; returns their names.
    pub(crate) fn change(
        &mut self,
        now: Instant,
        change: TopicChange,
    ) -> Result<Vec<String>, String> {
        let pattern = Pattern::new(&change.topic).map_err(|e| format!("topic {e}"))?;
        if let Some(hz) = change.rate_hz.filter(|hz| *hz != 0.0)
            && !RATES_HZ.contains(&hz)
        {
            let (least, most) = (RATES_HZ.start(), RATES_HZ.end());
            return Err(format!(
                "rate: found {hz}; allowed: 0 (no limit), or {least} to {most} Hz"
            ));
        }
        let names = self.matching(&pattern)?;
        self.remember(pattern, change)?;
        for name in &names {
            self.apply_changes(now, name);
        }
        Ok(names)
    }

    /// Returns the topics sent from here that match `pattern`, at least one.
    fn matching(&self, pattern: &Pattern) -> Result<Vec<String>, String> {
        let known = self.local.keys();
        let names: Vec<_> = known.filter(|n| pattern.matches(n)).cloned().collect();
        if !names.is_empty() {
            return Ok(names);
        }
        if self.local.is_empty() {
            return Err("this node sends no topics".into());
        }
        let known: Vec<_> = self.local.keys().map(String::as_str).collect();
        let (pattern, known) = (pattern.as_str(), known.join(", "));
        Err(format!("no topic sent by this node matches '{pattern}'; its topics are: {known}"))
    }

    /// Adds a change, and removes the parts of earlier changes that it replaces.
    fn remember(&mut self, pattern: Pattern, change: TopicChange) -> Result<(), String> {
        for (_, before) in self.changes.iter_mut().filter(|(p, _)| *p == pattern) {
            before.priority = before.priority.filter(|_| change.priority.is_none());
            before.rate_hz = before.rate_hz.filter(|_| change.rate_hz.is_none());
        }
        self.changes.retain(|(_, c)| c.priority.is_some() || c.rate_hz.is_some());
        if self.changes.len() >= MAX_CHANGES {
            return Err(format!(
                "{MAX_CHANGES} patterns were changed already, which is the maximum; change one of \
                 them again, or change the file"
            ));
        }
        self.changes.push((pattern, change));
        Ok(())
    }

    fn apply_changes(&mut self, now: Instant, name: &str) {
        let Some(found) = self.treatment_of(name) else { return };
        let Some(mut local) = self.local.remove(name) else { return };
        local.treatment = found;
        // Queued transforms may be due earlier now.
        self.next_held_back = self.next_held_back.map(|_| now);
        for peer in local.channels.keys().copied().collect::<Vec<_>>() {
            self.offer(now, &mut local, peer);
        }
        self.local.insert(name.to_owned(), local);
    }
}
