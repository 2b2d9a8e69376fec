// SPDX-License-Identifier: Apache-2.0
//! The mapping between local topics and channels of peers: the exchange between gateway and
//! protocol. It does no I/O: work for other parts of the daemon is returned as [`Order`]s.

mod context;
mod definitions;
mod frames;
mod key;
mod lines;
mod local;
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
mod transforms;
mod translation;
mod unchecked;
mod waiting;
mod watchdogs;

pub(crate) use context::{Context, Order, Shared};
pub(crate) use frames::Renaming;
pub(crate) use key::ChannelKey;
pub(crate) use local::{LocalTopic, SourceChange, link_policy};

use crate::audit::Actor;
use crate::codec::Done;
use crate::config::Config;
use crate::quota::Cause;
use crate::status::TopicChange;
use bytes::Bytes;
pub(crate) use remote::{ArrivalChange, IncomingState};
use remote::{Catalog, Held, Publication};
use services::Services;
use shown::Shown;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use tautline_gateway::mapping::{Pattern, TopicRule, Treatment, treatment};
use tautline_gateway::{Origin, Source, logs, tf};
use tautline_proto::{Duration, Endpoint, Instant, PeerId};
pub(crate) use unchecked::Unchecked;
pub(crate) use waiting::Waiting;
use watchdogs::Watchdogs;
pub(crate) use watchdogs::{SafeMessage, safe_message};

/// Maximum changes kept on the running node. A change that a later one of the same pattern replaces
/// does not count.
const MAX_CHANGES: usize = 1024;
/// Logs queued for a peer, and the age past which they are worthless (that of ROS 2).
const KEPT_LOGS: u16 = 100;
const LOG_LIFESPAN: Duration = Duration::from_secs(10);
/// Logs leave after all else.
const PRIORITY_OF_LOGS: u8 = 0;
/// Rates that a change may set, in hertz; the file has the same limits.
const RATES_HZ: std::ops::RangeInclusive<f64> = 0.001..=100_000.0;

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
    rules: Vec<TopicRule>,
    /// Changes on the running node, oldest first; a later one overrides an earlier one.
    changes: Vec<(Pattern, TopicChange)>,
    max_message: usize,
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
    /// Topics of returned peers that are still to be published.
    returning: BTreeMap<PeerId, VecDeque<ChannelKey>>,
    pub(crate) watchdogs: Watchdogs,
    /// Which frames are sent on tf topics, and under which names there and in other messages.
    tf_rules: Arc<tf::Rules>,
    /// Lower bound of the time when a message is due that its topic's rate holds back; `None` if
    /// there is none.
    next_held_back: Option<Instant>,
}

impl Topics {
    /// Creates the exchange; peers are numbered in the order of the file.
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            rules: config.topics.clone(),
            changes: Vec::new(),
            max_message: config.limits.max_message,
            services: Services::new(&config.services),
            local: BTreeMap::new(),
            remote: Catalog::default(),
            examined: BTreeMap::new(),
            publications: BTreeMap::new(),
            shown: Shown::default(),
            names: BTreeMap::new(),
            held: BTreeMap::new(),
            returning: BTreeMap::new(),
            watchdogs: Watchdogs::new(&config.watchdogs),
            tf_rules: Arc::new(config.tf.clone()),
            next_held_back: None,
        }
    }

    /// Returns the time at which [`Topics::handle_timeout`] is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let timers =
            [self.next_held_back, self.services.poll_timeout(), self.watchdogs.poll_timeout()];
        timers.into_iter().flatten().min()
    }

    /// Does the work that is due at `now`.
    pub(crate) fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        self.send_due(cx);
        self.services.handle_timeout(cx);
        self.run_watchdogs(cx);
    }

    /// Takes the result of a job that was ordered.
    pub(crate) fn on_codec(&mut self, cx: &mut Context<'_>, done: Done) {
        match done {
            Done::Encoded { message, renaming, problem } => {
                self.encoded(cx, message, renaming, problem);
            }
            Done::Changed(change) => self.source_changed(cx, change),
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

    /// Returns the treatment of a topic: the file's rule with the changes since.
    fn treatment_of(&self, cx: &Context<'_>, name: &str) -> Option<Treatment> {
        let ruled = treatment(&self.rules, name).cloned();
        let mut found = ruled.or_else(|| treatment_of_logs(cx, name))?;
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

    /// Calls, responses and requests of peers that were dropped above their rate.
    pub(crate) fn calls_over_rate(&self) -> u64 {
        self.services.over_rate + self.shown.over_rate
    }

    /// Calls and responses of peers that were dropped because they are not of their type.
    pub(crate) fn calls_malformed(&self) -> u64 {
        self.services.malformed()
    }

    /// Returns the changes on the running node, which override the file.
    pub(crate) fn changes(&self) -> Vec<TopicChange> {
        self.changes.iter().map(|(_, change)| change.clone()).collect()
    }

    /// Calls [`Topics::change`] for `by`, and records the outcome.
    pub(crate) fn set(
        &mut self,
        cx: &mut Context<'_>,
        change: TopicChange,
        by: Actor,
    ) -> Result<Vec<String>, String> {
        let words = change.to_string();
        let outcome = self.change(cx, change);
        match &outcome {
            // The pattern is recorded too: it also applies to topics that appear later.
            Ok(topics) => cx.recorder.changed(by, Ok(&[&[words], &topics[..]].concat())),
            Err(reason) => cx.recorder.changed(by, Err(&format!("{words}: {reason}"))),
        }
        outcome
    }

    /// Changes the treatment of the matching topics on the running node; returns their names.
    pub(crate) fn change(
        &mut self,
        cx: &mut Context<'_>,
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
            self.apply_changes(cx, name);
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

    fn apply_changes(&mut self, cx: &mut Context<'_>, name: &str) {
        let now = cx.now;
        let Some(found) = self.treatment_of(cx, name) else { return };
        let Some(mut local) = self.local.remove(name) else { return };
        local.treatment = found;
        // Queued transforms may be due earlier now.
        self.next_held_back = self.next_held_back.map(|_| now);
        for peer in local.channels.keys().copied().collect::<Vec<_>>() {
            self.offer(cx, &mut local, peer);
        }
        self.local.insert(name.to_owned(), local);
    }
}

/// The treatment of the logs of this robot, which need no rule.
fn treatment_of_logs(cx: &Context<'_>, topic: &str) -> Option<Treatment> {
    let shows = |peer: &PeerId| topic == logs::TOPIC && cx.peers.rights(*peer).show.logs;
    let peers = cx.endpoint.peers().filter(shows);
    let to: Vec<String> = peers.map(|peer| cx.peers.name(peer).to_owned()).collect();
    let (keep_last, lifespan) = (Some(KEPT_LOGS), Some(LOG_LIFESPAN));
    (!to.is_empty()).then_some(Treatment {
        priority: PRIORITY_OF_LOGS,
        keep_last,
        lifespan,
        to: Some(to),
        ..Treatment::default()
    })
}
