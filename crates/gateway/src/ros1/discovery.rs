// SPDX-License-Identifier: Apache-2.0
//! What is published on this robot, and of which type. A state machine without
//! I/O: it takes what the master, the probes and the readers found, says what
//! to ask next ([`Discovery::take_work`]), and tells what changed.
//!
//! A topic is offered while at least one publisher of it is alive: connected to
//! us, or answering. The master's word adds publishers; it alone never removes
//! one, since a master that restarted knows nobody.

use super::connection::Description;
use super::master::Snapshot;
use super::turns::{self, Turn};
use crate::{Event, Named, Qos, Selector, Topic};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Topics watched at most; further ones are not offered.
const MAX_TOPICS: usize = 4096;
/// How often a node that the master does not list, or that is doubtful, is asked itself.
const CHECK_PERIOD: Duration = Duration::from_secs(5);
/// Longest pause between two attempts to probe a publisher.
const LAST_RETRY: Duration = Duration::from_secs(30);
/// Checks without an answer after which a node counts as gone; a refused connection counts at once.
const MAX_SILENT_CHECKS: u32 = 3;

/// Something to find out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Work {
    /// Where is `node`, and what does it publish on `topic`?
    Probe {
        topic: String,
        node: String,
        /// Whether that failed before.
        again: bool,
    },
    /// Does `node`, last seen at `uri`, live, and which topics does it publish?
    Check { node: String, uri: String },
}

/// What a probe found.
#[derive(Debug)]
pub(super) enum Probed {
    Publisher {
        uri: String,
        description: Description,
    },
    /// Another Tautline node, or ourselves.
    Foreign,
    Failed {
        reason: String,
    },
}

/// What a check found.
#[derive(Debug)]
pub(super) enum Checked {
    /// It is at `uri` and publishes these topics of these types.
    Publishes { uri: String, topics: BTreeMap<String, String> },
    /// It answers, but not with what it publishes.
    Answers,
    /// Nothing listens there.
    Gone,
    /// No answer.
    Silent,
}

#[derive(Debug)]
enum State {
    /// To be probed when due.
    Unknown,
    Known(Description),
    /// Never to be read or offered.
    Foreign,
}

#[derive(Debug)]
struct Publisher {
    /// Whether the master says so, too.
    listed: bool,
    /// Whether a reader is connected to it.
    live: bool,
    uri: String,
    state: State,
    /// Another process has its name: probed again, and offered as it was meanwhile.
    replaced: bool,
    busy: bool,
    /// When it is to be probed, if it is.
    turn: Turn,
}

impl Publisher {
    fn new(now: Instant) -> Self {
        Self {
            listed: true,
            live: false,
            uri: String::new(),
            state: State::Unknown,
            replaced: false,
            busy: false,
            turn: Turn::new(now),
        }
    }

    /// Whether it is to be probed when its turn comes.
    fn waits(&self) -> bool {
        !self.busy && (self.replaced || matches!(self.state, State::Unknown))
    }

    fn known(&self) -> Option<&Description> {
        if let State::Known(description) = &self.state { Some(description) } else { None }
    }

    /// A probe under way counts until it ends.
    fn stays(&self) -> bool {
        self.listed || self.busy || self.known().is_some()
    }

    /// Probed again, later and later.
    fn doubt(&mut self, now: Instant) {
        self.state = State::Unknown;
        self.turn.failed(now, LAST_RETRY);
    }

    /// Probed again at once.
    fn forget(&mut self, now: Instant) {
        self.state = State::Unknown;
        self.replace(now);
    }

    fn replace(&mut self, now: Instant) {
        self.replaced = true;
        self.live = false;
        self.turn = Turn::new(now);
    }
}

#[derive(Default)]
struct Watched {
    publishers: BTreeMap<String, Publisher>,
    offered: Option<Topic>,
}

/// When a node may be checked again, and how often it was in vain.
struct NodeCheck {
    turn: Turn,
    busy: bool,
}

/// The state machine.
pub(super) struct Discovery {
    own_name: String,
    selector: Selector,
    topics: BTreeMap<String, Watched>,
    checks: BTreeMap<String, NodeCheck>,
    /// Nodes to be checked soon.
    doubtful: BTreeSet<String>,
    /// The node checked last in the round of all.
    round_at: String,
    changes: Vec<Event>,
}

impl Discovery {
    pub fn new(own_name: &str, selector: Selector) -> Self {
        Self {
            own_name: own_name.into(),
            selector,
            topics: BTreeMap::new(),
            checks: BTreeMap::new(),
            doubtful: BTreeSet::new(),
            round_at: String::new(),
            changes: Vec::new(),
        }
    }

    /// What is offered under this name.
    pub fn offered(&self, topic: &str) -> Option<&Topic> {
        self.topics.get(topic)?.offered.as_ref()
    }

    /// Where the publishers of `topic` are that publish what is offered.
    pub fn uris(&self, topic: &str) -> BTreeSet<String> {
        let Some(watched) = self.topics.get(topic) else { return BTreeSet::new() };
        let Some(offered) = &watched.offered else { return BTreeSet::new() };
        let fits = |found: &&Publisher| {
            found.known().is_some_and(|it| it.same_type(&offered.type_name, &offered.type_hash))
        };
        watched.publishers.values().filter(fits).map(|found| found.uri.clone()).collect()
    }

    /// What changed since last asked: offers and withdrawals.
    pub fn take_changes(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.changes)
    }

    /// The selector says something else: forgets what may not leave any more.
    pub fn reselect(&mut self) {
        let (selector, changes) = (&self.selector, &mut self.changes);
        self.topics.retain(|name, watched| {
            let stays = selector(Named::Topic(name));
            if !stays && watched.offered.is_some() {
                changes.push(Event::Withdrawn { topic: name.clone() });
            }
            stays
        });
    }

    /// Takes the master's word.
    pub fn on_snapshot(&mut self, snapshot: &Snapshot, now: Instant) {
        self.add_listed(snapshot, now);
        for (name, watched) in &mut self.topics {
            let listed = snapshot.publishers.get(name);
            for (node, publisher) in &mut watched.publishers {
                publisher.listed = listed.is_some_and(|nodes| nodes.contains(node));
                let listed_type = snapshot.types.as_ref().and_then(|types| types.get(name));
                let other_type = matches!((listed_type, publisher.known()),
                    (Some(listed), Some(known)) if *listed != known.type_name);
                if !publisher.live && (!publisher.listed || other_type) {
                    self.doubtful.insert(node.clone());
                }
            }
            watched.publishers.retain(|_, found| found.stays());
        }
        self.next_in_round();
        self.settle_all();
    }

    fn add_listed(&mut self, snapshot: &Snapshot, now: Instant) {
        for (name, nodes) in &snapshot.publishers {
            let others: Vec<_> = nodes.iter().filter(|node| **node != self.own_name).collect();
            let full = self.topics.len() >= MAX_TOPICS && !self.topics.contains_key(name);
            if others.is_empty() || full || !(self.selector)(Named::Topic(name)) {
                continue;
            }
            let watched = self.topics.entry(name.clone()).or_default();
            for node in others {
                watched.publishers.entry(node.clone()).or_insert_with(|| Publisher::new(now));
            }
        }
    }

    /// One node per snapshot is checked in turn, so that one which died or was
    /// replaced without the master noticing is noticed by us.
    fn next_in_round(&mut self) {
        let publishers = self.topics.values().flat_map(|watched| &watched.publishers);
        let all: BTreeSet<&String> =
            publishers.filter(|(_, found)| found.known().is_some()).map(|(node, _)| node).collect();
        self.checks.retain(|node, check| check.busy || all.contains(node));
        let next = all.iter().find(|node| ***node > self.round_at).or(all.first());
        if let Some(next) = next {
            self.round_at = (*next).clone();
            self.doubtful.insert(self.round_at.clone());
        }
    }

    /// What to find out now; each result comes back by `on_probed` or `on_checked`.
    pub fn take_work(&mut self, now: Instant) -> Vec<Work> {
        let mut work = self.take_probes(now);
        work.extend(self.take_checks(now));
        work
    }

    fn take_probes(&mut self, now: Instant) -> Vec<Work> {
        let all = || {
            self.topics.iter().flat_map(|(topic, watched)| {
                watched.publishers.iter().map(move |(node, it)| ((topic, node), node.as_str(), it))
            })
        };
        let waiting =
            all().filter(|(.., it)| it.waits()).map(|(key, node, it)| (key, node, it.turn));
        let busy = all().filter(|(.., it)| it.busy).map(|(_, node, it)| (node, it.turn));
        let chosen: Vec<(String, String)> = turns::choose_of_nodes(waiting, busy, now)
            .into_iter()
            .map(|(topic, node)| (topic.clone(), node.clone()))
            .collect();
        let probe = |(topic, node): (String, String)| {
            let publisher = self.topics.get_mut(&topic)?.publishers.get_mut(&node)?;
            publisher.busy = true;
            // What is offered stays so while one packet is lost.
            let again = publisher.turn.was_rejected() || publisher.known().is_some();
            Some(Work::Probe { topic, node, again })
        };
        chosen.into_iter().filter_map(probe).collect()
    }

    fn take_checks(&mut self, now: Instant) -> Vec<Work> {
        let turn = |node: &String| self.checks.get(node).map_or(Turn::new(now), |it| it.turn);
        let recent = |node: &String| self.checks.get(node).is_some_and(|it| it.busy);
        let waiting: Vec<(String, Turn)> = std::mem::take(&mut self.doubtful)
            .into_iter()
            .map(|node| (turn(&node), node))
            .filter(|(turn, node)| turn.is_due(now) && !recent(node))
            .map(|(turn, node)| (node, turn))
            .collect();
        let busy = self.checks.values().filter(|it| it.busy).map(|it| it.turn);
        let chosen = turns::choose(waiting.iter().map(|(node, turn)| (node, *turn)), busy, now);
        self.doubtful.extend(waiting.into_iter().map(|(node, _)| node));
        let mut work = Vec::new();
        for node in chosen {
            self.doubtful.remove(&node);
            let Some(uri) = self.uri_of(&node) else { continue };
            let check = self.checks.entry(node.clone());
            let check = check.or_insert(NodeCheck { turn: Turn::new(now), busy: false });
            check.busy = true;
            check.turn.wait_until(now + CHECK_PERIOD);
            work.push(Work::Check { node, uri });
        }
        work
    }

    fn uri_of(&self, node: &str) -> Option<String> {
        let mut found = self.topics.values().filter_map(|watched| watched.publishers.get(node));
        found.find(|publisher| publisher.known().is_some()).map(|found| found.uri.clone())
    }

    /// Takes the result of a probe.
    pub fn on_probed(&mut self, topic: &str, node: &str, found: Probed, now: Instant) {
        let Some(publisher) =
            self.topics.get_mut(topic).and_then(|watched| watched.publishers.get_mut(node))
        else {
            return;
        };
        (publisher.busy, publisher.replaced) = (false, false);
        match found {
            Probed::Publisher { uri, description } => {
                publisher.uri = uri;
                publisher.turn.accepted();
                publisher.state = State::Known(description);
            }
            Probed::Foreign => publisher.state = State::Foreign,
            Probed::Failed { reason } => {
                tracing::debug!(topic, node, reason, "publisher could not be probed");
                publisher.doubt(now);
            }
        }
        self.settle(topic);
    }

    /// Takes the result of a check.
    pub fn on_checked(&mut self, node: &str, found: Checked, now: Instant) {
        let silent = matches!(found, Checked::Silent);
        let mut gone = matches!(found, Checked::Gone);
        if let Some(check) = self.checks.get_mut(node) {
            check.busy = false;
            match silent {
                true => check.turn.count_failure(),
                false => check.turn.accepted(),
            }
            gone |= check.turn.failures() >= MAX_SILENT_CHECKS;
        }
        if matches!(found, Checked::Answers) || (silent && !gone) {
            return;
        }
        for (topic, watched) in &mut self.topics {
            if let Some(publisher) = watched.publishers.get_mut(node) {
                judge(publisher, topic, &found, now);
            }
            watched.publishers.retain(|_, left| left.stays());
        }
        self.settle_all();
    }

    /// Takes what a reader found when it connected.
    pub fn on_connected(&mut self, topic: &str, uri: &str, found: &Description) {
        for publisher in self.publishers_at(topic, uri) {
            publisher.live = true;
            publisher.state = State::Known(found.clone());
        }
        self.settle(topic);
    }

    /// Takes that a reader is connected; it may have been before the publisher was known.
    pub fn on_live(&mut self, topic: &str, uri: &str) {
        for publisher in self.publishers_at(topic, uri) {
            publisher.live = true;
        }
    }

    /// Takes that a reader lost its connection; the node is asked at once whether it lives.
    pub fn on_lost(&mut self, topic: &str, uri: &str) {
        self.on_released(topic, uri);
        let Some(watched) = self.topics.get(topic) else { return };
        for (node, _) in watched.publishers.iter().filter(|(_, found)| found.uri == uri) {
            self.checks.remove(node);
            self.doubtful.insert(node.clone());
        }
    }

    /// Takes that a reader of ours was ended by ourselves.
    pub fn on_released(&mut self, topic: &str, uri: &str) {
        for publisher in self.publishers_at(topic, uri) {
            publisher.live = false;
        }
    }

    fn publishers_at(&mut self, topic: &str, uri: &str) -> impl Iterator<Item = &mut Publisher> {
        let publishers = self.topics.get_mut(topic).map(|watched| watched.publishers.values_mut());
        publishers.into_iter().flatten().filter(move |publisher| publisher.uri == uri)
    }

    fn settle_all(&mut self) {
        let names: Vec<String> = self.topics.keys().cloned().collect();
        for name in names {
            self.settle(&name);
        }
        self.topics.retain(|_, watched| !watched.publishers.is_empty());
    }

    /// Compares what is offered with what is known, and tells the difference.
    fn settle(&mut self, name: &str) {
        let Some(watched) = self.topics.get_mut(name) else { return };
        let known: Vec<&Description> =
            watched.publishers.values().filter_map(Publisher::known).collect();
        let new = elect(name, watched.offered.as_ref(), &known);
        if new == watched.offered {
            return;
        }
        watched.offered = new.clone();
        self.changes.push(match new {
            Some(topic) => Event::Offered(topic),
            None => Event::Withdrawn { topic: name.into() },
        });
    }
}

/// Corrects what is known of one publisher of a checked node.
fn judge(publisher: &mut Publisher, topic: &str, found: &Checked, now: Instant) {
    let Checked::Publishes { uri, topics } = found else {
        if !publisher.live && publisher.known().is_some() {
            publisher.doubt(now);
        }
        return;
    };
    let Some(known) = publisher.known() else { return };
    match topics.get(topic) {
        Some(type_name) if *type_name == known.type_name && *uri == publisher.uri => {}
        // Who publishes the same from elsewhere is offered on, lest messages are lost meanwhile.
        Some(type_name) if *type_name == known.type_name => {
            publisher.uri.clone_from(uri);
            publisher.replace(now);
        }
        Some(_) => publisher.forget(now),
        None if publisher.live => {}
        None => publisher.doubt(now),
    }
}

/// What to offer, given its publishers: the type offered so far while someone publishes it.
fn elect(name: &str, so_far: Option<&Topic>, known: &[&Description]) -> Option<Topic> {
    let same = |found: &&&Description| {
        so_far.is_some_and(|topic| found.same_type(&topic.type_name, &topic.type_hash))
    };
    let chosen = known.iter().find(same).or(known.first())?;
    let alike = known.iter().filter(|found| found.same_type(&chosen.type_name, &chosen.md5));
    Some(Topic {
        name: name.into(),
        type_name: chosen.type_name.clone(),
        type_hash: chosen.md5.clone(),
        definition: chosen.definition.clone(),
        qos: Qos {
            transient_local: alike.into_iter().any(|found| found.latching),
            ..Qos::default()
        },
    })
}

#[cfg(test)]
#[path = "discovery_tests.rs"]
mod tests;
