// SPDX-License-Identifier: Apache-2.0
//! Topics published on this robot, and their types. A state machine without I/O: its inputs are
//! results of the master, of probes and of readers; its outputs are queries
//! ([`Discovery::take_queries`]) and events.
//!
//! A topic is offered while at least one of its publishers is alive: connected to us, or
//! responding. The master's list adds publishers, but does not remove them, since a master that
//! has restarted knows none.

use super::backoff::{self, Backoff};
use super::connection::Description;
use super::master::Snapshot;
use super::probed::{CheckResult, LocatedPublisher, ProbeResult, Query};
use crate::{Event, Qos, ResourceName, Selector, Topic};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Maximum number of tracked topics; further topics are not offered.
const MAX_TOPICS: usize = 4096;
/// Least time between two checks of a node.
const CHECK_PERIOD: Duration = Duration::from_secs(5);
/// Longest pause between two probes of a publisher.
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// Number of checks without a response after which a node counts as gone; one refused connection
/// suffices.
const MAX_SILENT_CHECKS: u32 = 3;

#[derive(Debug)]
enum State {
    Unknown,
    Known(Description),
    /// The publisher of a Tautline node: never read or offered.
    Tautline,
}

#[derive(Debug)]
struct Publisher {
    listed: bool,
    connected: bool,
    uri: String,
    state: State,
    /// Whether another process has its name: it is probed again, and still offered until the result.
    replaced: bool,
    probing: bool,
    backoff: Backoff,
}

impl Publisher {
    fn new(now: Instant) -> Self {
        Self {
            listed: true,
            connected: false,
            uri: String::new(),
            state: State::Unknown,
            replaced: false,
            probing: false,
            backoff: Backoff::new(now),
        }
    }

    /// Whether a probe waits to be started.
    fn is_waiting(&self) -> bool {
        !self.probing && (self.replaced || matches!(self.state, State::Unknown))
    }

    fn description(&self) -> Option<&Description> {
        if let State::Known(description) = &self.state { Some(description) } else { None }
    }

    /// Whether to keep the publisher. A pending probe holds its slot until the probe ends.
    fn is_needed(&self) -> bool {
        self.listed || self.probing || self.description().is_some()
    }

    /// Schedules a probe after a growing pause.
    fn retry(&mut self, now: Instant) {
        self.state = State::Unknown;
        self.backoff.fail(now, MAX_PAUSE);
    }

    /// Schedules an immediate probe.
    fn reset(&mut self, now: Instant) {
        self.state = State::Unknown;
        self.replace(now);
    }

    fn replace(&mut self, now: Instant) {
        self.replaced = true;
        self.connected = false;
        self.backoff = Backoff::new(now);
    }
}

#[derive(Default)]
struct Tracked {
    publishers: BTreeMap<String, Publisher>,
    offered: Option<Topic>,
}

/// The checks of one node; the failures of its backoff are checks without a response.
struct NodeCheck {
    backoff: Backoff,
    pending: bool,
}

pub(super) struct Discovery {
    own_name: String,
    selector: Selector,
    topics: BTreeMap<String, Tracked>,
    checks: BTreeMap<String, NodeCheck>,
    suspects: BTreeSet<String>,
    /// The node that the cycle through all nodes checked last.
    last_checked: String,
    events: Vec<Event>,
}

impl Discovery {
    pub fn new(own_name: &str, selector: Selector) -> Self {
        Self {
            own_name: own_name.into(),
            selector,
            topics: BTreeMap::new(),
            checks: BTreeMap::new(),
            suspects: BTreeSet::new(),
            last_checked: String::new(),
            events: Vec::new(),
        }
    }

    pub fn offered_topic(&self, topic: &str) -> Option<&Topic> {
        self.topics.get(topic)?.offered.as_ref()
    }

    /// The URIs of the publishers of `topic` with the offered type.
    pub fn uris(&self, topic: &str) -> BTreeSet<String> {
        let Some(tracked) = self.topics.get(topic) else { return BTreeSet::new() };
        let Some(offered) = &tracked.offered else { return BTreeSet::new() };
        let fits =
            |found: &&Publisher| found.description().is_some_and(|known| known.is_of(offered));
        tracked.publishers.values().filter(fits).map(|found| found.uri.clone()).collect()
    }

    /// Offers and withdrawals since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// The selector has changed: withdraws topics that may no longer leave the robot.
    pub fn reselect(&mut self) {
        let selector = &self.selector;
        for (name, tracked) in
            self.topics.extract_if(.., |name, _| !selector(ResourceName::Topic(name)))
        {
            if tracked.offered.is_some() {
                self.events.push(Event::Withdrawn { topic: name });
            }
        }
    }

    pub fn on_snapshot(&mut self, snapshot: &Snapshot, now: Instant) {
        self.add_listed(snapshot, now);
        for (name, tracked) in &mut self.topics {
            let listed = snapshot.publishers.get(name);
            for (node, publisher) in &mut tracked.publishers {
                publisher.listed = listed.is_some_and(|nodes| nodes.contains(node));
                let listed_type = snapshot.types.as_ref().and_then(|types| types.get(name));
                let other_type = matches!((listed_type, publisher.description()),
                    (Some(listed), Some(known)) if *listed != known.version.name);
                if !publisher.connected && (!publisher.listed || other_type) {
                    self.suspects.insert(node.clone());
                }
            }
            tracked.publishers.retain(|_, found| found.is_needed());
        }
        self.schedule_next_check();
        self.update_all();
    }

    fn add_listed(&mut self, snapshot: &Snapshot, now: Instant) {
        for (name, nodes) in &snapshot.publishers {
            let others: Vec<_> = nodes.iter().filter(|node| **node != self.own_name).collect();
            let full = self.topics.len() >= MAX_TOPICS && !self.topics.contains_key(name);
            if others.is_empty() || full || !(self.selector)(ResourceName::Topic(name)) {
                continue;
            }
            let tracked = self.topics.entry(name.clone()).or_default();
            for node in others {
                tracked.publishers.entry(node.clone()).or_insert_with(|| Publisher::new(now));
            }
        }
    }

    /// Cycles through all nodes, one per snapshot: the master does not notice that a node died or
    /// was replaced.
    fn schedule_next_check(&mut self) {
        let publishers = self.topics.values().flat_map(|tracked| &tracked.publishers);
        let all: BTreeSet<&String> = publishers
            .filter(|(_, found)| found.description().is_some())
            .map(|(node, _)| node)
            .collect();
        self.checks.retain(|node, check| check.pending || all.contains(node));
        let next = all.iter().find(|node| ***node > self.last_checked).or(all.first());
        if let Some(next) = next {
            self.last_checked = (*next).clone();
            self.suspects.insert(self.last_checked.clone());
        }
    }

    /// Queries to start now; their results are inputs of `on_probed` and `on_checked`.
    pub fn take_queries(&mut self, now: Instant) -> Vec<Query> {
        let mut queries = self.take_probes(now);
        queries.extend(self.take_checks(now));
        queries
    }

    fn take_probes(&mut self, now: Instant) -> Vec<Query> {
        let all = || {
            self.topics.iter().flat_map(|(topic, tracked)| {
                tracked.publishers.iter().map(move |(node, found)| (topic, node, found))
            })
        };
        let waiting = all()
            .filter(|(.., found)| found.is_waiting())
            .map(|(topic, node, found)| ((topic, node), node.as_str(), found.backoff));
        let pending = all()
            .filter(|(.., found)| found.probing)
            .map(|(_, node, found)| (node.as_str(), found.backoff));
        let selected: Vec<(String, String)> = backoff::select_per_node(waiting, pending, now)
            .into_iter()
            .map(|(topic, node)| (topic.clone(), node.clone()))
            .collect();
        let probe = |(topic, node): (String, String)| {
            let publisher = self.topics.get_mut(&topic)?.publishers.get_mut(&node)?;
            publisher.probing = true;
            // One lost packet must not withdraw a known topic.
            let is_retry = publisher.backoff.has_failed() || publisher.description().is_some();
            Some(Query::Probe { topic, node, is_retry })
        };
        selected.into_iter().filter_map(probe).collect()
    }

    fn take_checks(&mut self, now: Instant) -> Vec<Query> {
        // A node with a pending or recent check is no longer suspected.
        self.suspects.retain(|node| {
            let check = self.checks.get(node);
            check.is_none_or(|check| check.backoff.is_due(now) && !check.pending)
        });
        let backoff =
            |node: &String| self.checks.get(node).map_or(Backoff::new(now), |check| check.backoff);
        let waiting = self.suspects.iter().map(|node| (node, backoff(node)));
        let pending = self.checks.values().filter(|check| check.pending);
        let pending = pending.map(|check| check.backoff);
        let mut queries = Vec::new();
        for node in backoff::select(waiting, pending, now) {
            self.suspects.remove(&node);
            let Some(uri) = self.uri_of(&node) else { continue };
            let check = self.checks.entry(node.clone());
            let check = check.or_insert(NodeCheck { backoff: Backoff::new(now), pending: true });
            check.pending = true;
            check.backoff.delay_until(now + CHECK_PERIOD);
            queries.push(Query::Check { node, uri });
        }
        queries
    }

    fn uri_of(&self, node: &str) -> Option<String> {
        let mut found = self.topics.values().filter_map(|tracked| tracked.publishers.get(node));
        found.find(|publisher| publisher.description().is_some()).map(|found| found.uri.clone())
    }

    pub fn on_probed(
        &mut self,
        topic: &str,
        node: &str,
        result: ProbeResult<LocatedPublisher>,
        now: Instant,
    ) {
        let Some(publisher) =
            self.topics.get_mut(topic).and_then(|tracked| tracked.publishers.get_mut(node))
        else {
            return;
        };
        (publisher.probing, publisher.replaced) = (false, false);
        match result {
            ProbeResult::Found(LocatedPublisher { uri, description }) => {
                publisher.uri = uri;
                publisher.backoff.succeed();
                publisher.state = State::Known(description);
            }
            ProbeResult::Tautline => publisher.state = State::Tautline,
            ProbeResult::Ended(reason) => {
                tracing::debug!(topic, node, reason, "publisher has ended");
                publisher.state = State::Unknown;
                publisher.backoff.fail_ended(now, MAX_PAUSE);
            }
            ProbeResult::Failed(reason) => {
                tracing::debug!(topic, node, reason, "publisher could not be probed");
                publisher.retry(now);
            }
        }
        self.update(topic);
    }

    pub fn on_checked(&mut self, node: &str, result: CheckResult, now: Instant) {
        let is_silent = matches!(result, CheckResult::Silent);
        let mut is_gone = matches!(result, CheckResult::Gone);
        if let Some(check) = self.checks.get_mut(node) {
            check.pending = false;
            match is_silent {
                true => check.backoff.count_failure(),
                false => check.backoff.succeed(),
            }
            is_gone |= check.backoff.failures() >= MAX_SILENT_CHECKS;
        }
        if matches!(result, CheckResult::Responds) || (is_silent && !is_gone) {
            return;
        }
        for (topic, tracked) in &mut self.topics {
            if let Some(publisher) = tracked.publishers.get_mut(node) {
                apply_check(publisher, topic, &result, now);
            }
            tracked.publishers.retain(|_, found| found.is_needed());
        }
        self.update_all();
    }

    pub fn on_connected(&mut self, topic: &str, uri: &str, found: &Description) {
        for publisher in self.publishers_at(topic, uri) {
            publisher.connected = true;
            publisher.state = State::Known(found.clone());
        }
        self.update(topic);
    }

    /// Records that a reader is connected; it may have connected before the publisher was known.
    pub fn set_connected(&mut self, topic: &str, uri: &str) {
        for publisher in self.publishers_at(topic, uri) {
            publisher.connected = true;
        }
    }

    /// Records that a reader has lost its connection; schedules an immediate check of its node.
    pub fn on_lost(&mut self, topic: &str, uri: &str) {
        self.on_released(topic, uri);
        let Some(tracked) = self.topics.get(topic) else { return };
        for (node, _) in tracked.publishers.iter().filter(|(_, found)| found.uri == uri) {
            self.checks.remove(node);
            self.suspects.insert(node.clone());
        }
    }

    /// Records that we have ended a reader.
    pub fn on_released(&mut self, topic: &str, uri: &str) {
        for publisher in self.publishers_at(topic, uri) {
            publisher.connected = false;
        }
    }

    fn publishers_at(&mut self, topic: &str, uri: &str) -> impl Iterator<Item = &mut Publisher> {
        let publishers = self.topics.get_mut(topic).map(|tracked| tracked.publishers.values_mut());
        publishers.into_iter().flatten().filter(move |publisher| publisher.uri == uri)
    }

    fn update_all(&mut self) {
        let names: Vec<String> = self.topics.keys().cloned().collect();
        for name in names {
            self.update(&name);
        }
        self.topics.retain(|_, tracked| !tracked.publishers.is_empty());
    }

    /// Offers or withdraws a topic according to its known publishers.
    fn update(&mut self, name: &str) {
        let Some(tracked) = self.topics.get_mut(name) else { return };
        let known: Vec<&Description> =
            tracked.publishers.values().filter_map(Publisher::description).collect();
        let new = select_offer(name, tracked.offered.as_ref(), &known);
        if new == tracked.offered {
            return;
        }
        tracked.offered = new.clone();
        self.events.push(match new {
            Some(topic) => Event::Offered(topic),
            None => Event::Withdrawn { topic: name.into() },
        });
    }
}

/// Updates one publisher of a checked node.
fn apply_check(publisher: &mut Publisher, topic: &str, result: &CheckResult, now: Instant) {
    let CheckResult::Publishes { uri, topics } = result else {
        if !publisher.connected && publisher.description().is_some() {
            publisher.retry(now);
        }
        return;
    };
    let Some(known) = publisher.description() else { return };
    match topics.get(topic) {
        Some(type_name) if *type_name == known.version.name && *uri == publisher.uri => {}
        // The same topic at another address is still offered: no message is lost during the change.
        Some(type_name) if *type_name == known.version.name => {
            publisher.uri.clone_from(uri);
            publisher.replace(now);
        }
        Some(_) => publisher.reset(now),
        None if publisher.connected => {}
        None => publisher.retry(now),
    }
}

/// The topic to offer for these publishers. The current type holds while it has a publisher.
fn select_offer(name: &str, current: Option<&Topic>, known: &[&Description]) -> Option<Topic> {
    let is_current = |found: &&&Description| current.is_some_and(|topic| found.is_of(topic));
    let chosen = known.iter().find(is_current).or(known.first())?;
    let same_type = known.iter().filter(|it| it.version == chosen.version);
    let each: Vec<Qos> =
        same_type.map(|it| Qos { transient_local: it.latching, ..Qos::default() }).collect();
    Some(Topic {
        name: name.into(),
        type_name: chosen.version.name.clone(),
        type_hash: chosen.version.md5.clone(),
        definition: chosen.definition.clone(),
        qos: Qos::combined_offer(&each)?,
    })
}

#[cfg(test)]
#[path = "discovery_tests.rs"]
mod tests;
