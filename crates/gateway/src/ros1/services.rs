// SPDX-License-Identifier: Apache-2.0
//! What is served on this robot, and as which type. A state machine without I/O, as `discovery.rs`.
//!
//! A service is offered while the master lists it and its server answers probes: nobody can find
//! one that the master does not list. Those of Tautline nodes are never offered.

use super::master::NodesByTopic;
use super::rpc::Probed;
use super::turns::{self, Turn};
use crate::{Named, Selector};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Services watched at most; further ones are not offered.
const MAX_SERVICES: usize = 4096;
/// Longest pause between two attempts to probe a server that does not answer.
const LAST_RETRY: Duration = Duration::from_secs(30);

/// A service's type and md5.
pub(super) type Type = (String, String);

/// What there is to tell.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    Offered(String, Type),
    Withdrawn(String),
}

struct Watched {
    /// Who serves, as the master lists it.
    node: String,
    listed: bool,
    offered: Option<Type>,
    busy: bool,
    /// Whether it is to be probed when its turn comes; if not, in the round of all, or never if
    /// it is a Tautline's.
    doubtful: bool,
    turn: Turn,
    foreign: bool,
}

/// The state machine.
pub(super) struct Services {
    own_name: String,
    selector: Selector,
    all: BTreeMap<String, Watched>,
    /// The service probed last in the round of all.
    round_at: String,
    changes: Vec<Change>,
}

impl Services {
    pub fn new(own_name: &str, selector: Selector) -> Self {
        let (all, changes) = (BTreeMap::new(), Vec::new());
        Self { own_name: own_name.into(), selector, all, round_at: String::new(), changes }
    }

    /// The md5 under which a service is offered.
    pub fn md5(&self, service: &str) -> Option<&str> {
        self.all.get(service)?.offered.as_ref().map(|(_, md5)| md5.as_str())
    }

    /// What changed since last asked.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// The selector says something else: forgets what may not leave any more.
    pub fn reselect(&mut self) {
        let (selector, changes) = (&self.selector, &mut self.changes);
        self.all.retain(|service, watched| {
            let stays = selector(Named::Service(service));
            if !stays && watched.offered.is_some() {
                changes.push(Change::Withdrawn(service.clone()));
            }
            stays
        });
    }

    /// Takes the master's word.
    pub fn on_snapshot(&mut self, services: &NodesByTopic, now: Instant) {
        let own_name = &self.own_name;
        let other = |service: &String| {
            services.get(service)?.iter().find(|node| *node != own_name).cloned()
        };
        let changes = &mut self.changes;
        self.all.retain(|service, watched| {
            watched.listed = other(service).is_some();
            if !watched.listed && watched.offered.take().is_some() {
                changes.push(Change::Withdrawn(service.clone()));
            }
            // A probe under way counts until it ends.
            watched.listed || watched.busy
        });
        for service in services.keys() {
            let Some(node) = other(service) else { continue };
            let room = self.all.len() < MAX_SERVICES;
            match self.all.get_mut(service) {
                Some(known) if known.node == node => {}
                // Another process, maybe of another type.
                Some(known) => {
                    known.node = node;
                    (known.foreign, known.doubtful, known.turn) = (false, true, Turn::new(now));
                }
                None if room && (self.selector)(Named::Service(service)) => {
                    self.all.insert(service.clone(), Watched::new(node, now));
                }
                None => {}
            }
        }
        self.next_in_round(now);
    }

    /// One that is offered is probed in turn, so that one which died or was replaced without the
    /// master noticing is noticed by us.
    fn next_in_round(&mut self, now: Instant) {
        let offered = || self.all.iter().filter(|(_, found)| found.offered.is_some());
        let next = offered().find(|(name, _)| **name > self.round_at).or(offered().next());
        let Some(name) = next.map(|(name, _)| name.clone()) else { return };
        self.suspect(&name, now);
        self.round_at = name;
    }

    /// Has a service probed that may have gone.
    pub fn suspect(&mut self, service: &str, now: Instant) {
        if let Some(watched) = self.all.get_mut(service).filter(|it| it.offered.is_some()) {
            watched.doubtful = true;
            watched.turn.wait_until(now);
        }
    }

    /// Whether a probe of `service` may take long: it failed before, or the service is offered,
    /// and one packet that is lost must not end the calls under way.
    pub fn deserves_patience(&self, service: &str) -> bool {
        self.all.get(service).is_some_and(|it| it.turn.was_rejected() || it.offered.is_some())
    }

    /// Services to be probed now; each result comes back by `on_probed`.
    pub fn take_work(&mut self, now: Instant) -> Vec<String> {
        let waits = |it: &Watched| !it.busy && !it.foreign && it.doubtful;
        let all = self.all.iter().filter(|(_, it)| waits(it));
        let waiting = all.map(|(service, it)| (service, it.node.as_str(), it.turn));
        let busy = self.all.values().filter(|it| it.busy);
        let busy = busy.map(|it| (it.node.as_str(), it.turn));
        let chosen = turns::choose_of_nodes(waiting, busy, now);
        let chosen: Vec<String> = chosen.into_iter().cloned().collect();
        for service in &chosen {
            if let Some(watched) = self.all.get_mut(service) {
                (watched.busy, watched.doubtful) = (true, false);
            }
        }
        chosen
    }

    /// Takes the result of a probe.
    pub fn on_probed(&mut self, service: &str, found: Probed, now: Instant) {
        let Some(watched) = self.all.get_mut(service) else { return };
        watched.busy = false;
        if !watched.listed {
            self.all.remove(service);
            return;
        }
        watched.foreign = matches!(found, Probed::Foreign);
        let offered = match found {
            Probed::Server { type_name, md5 } => {
                watched.turn.accepted();
                Some((type_name, md5))
            }
            Probed::Foreign => None,
            Probed::Failed { reason } => {
                tracing::debug!(service, reason, "server could not be probed");
                watched.doubtful = true;
                watched.turn.failed(now, LAST_RETRY);
                None
            }
        };
        if offered != watched.offered {
            watched.offered.clone_from(&offered);
            let name = service.to_owned();
            self.changes.push(match offered {
                Some(known) => Change::Offered(name, known),
                None => Change::Withdrawn(name),
            });
        }
    }
}

impl Watched {
    fn new(node: String, now: Instant) -> Self {
        let (offered, turn) = (None, Turn::new(now));
        Self { node, listed: true, offered, busy: false, doubtful: true, turn, foreign: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn listing(services: &[(&str, &str)]) -> NodesByTopic {
        let entry = |(service, node): &(&str, &str)| {
            ((*service).to_owned(), std::iter::once((*node).to_owned()).collect())
        };
        services.iter().map(entry).collect()
    }

    fn server(md5: &str) -> Probed {
        Probed::Server { type_name: "a/T".into(), md5: md5.into() }
    }

    fn services() -> (Services, Instant) {
        let selector = |named: Named<'_>| matches!(named, Named::Service(it) if it != "/private");
        (Services::new("/us", Arc::new(selector)), Instant::now())
    }

    fn offered(md5: &str) -> Vec<Change> {
        vec![Change::Offered("/a".into(), ("a/T".into(), md5.into()))]
    }

    #[test]
    fn selected_services_of_others_are_offered_while_listed_and_answering() {
        let (mut services, now) = services();
        let all = listing(&[("/a", "/n"), ("/ours", "/us"), ("/private", "/n")]);
        services.on_snapshot(&all, now);
        assert_eq!(services.take_work(now), ["/a"]);
        assert!(services.take_work(now).is_empty());
        services.on_probed("/a", server("1"), now);
        assert_eq!(services.take_changes(), offered("1"));
        // In its turn, and of another type now.
        services.on_snapshot(&all, now);
        assert_eq!(services.take_work(now), ["/a"]);
        services.on_probed("/a", server("2"), now);
        assert_eq!((services.take_changes(), services.md5("/a")), (offered("2"), Some("2")));
        services.on_snapshot(&all, now);
        services.take_work(now);
        services.on_probed("/a", Probed::Failed { reason: "refused".into() }, now);
        assert_eq!(services.take_changes(), [Change::Withdrawn("/a".into())]);
        assert!(services.take_work(now).is_empty(), "not at once");
        let later = now + LAST_RETRY;
        assert_eq!(services.take_work(later), ["/a"]);
        services.on_probed("/a", server("2"), later);
        services.on_snapshot(&listing(&[]), later);
        assert_eq!(services.take_changes().pop(), Some(Change::Withdrawn("/a".into())));
    }

    #[test]
    fn another_tautlines_are_not_offered_until_another_node_serves() {
        let (mut services, now) = services();
        services.on_snapshot(&listing(&[("/a", "/tautline2")]), now);
        services.take_work(now);
        services.on_probed("/a", Probed::Foreign, now);
        let later = now + Duration::from_secs(3600);
        services.on_snapshot(&listing(&[("/a", "/tautline2")]), later);
        assert!(services.take_work(later).is_empty() && services.take_changes().is_empty());
        services.on_snapshot(&listing(&[("/a", "/n")]), later);
        assert_eq!(services.take_work(later), ["/a"]);
    }

    #[test]
    fn services_and_probes_under_way_are_bounded() {
        let (mut services, now) = services();
        let names: Vec<String> = (0..=MAX_SERVICES).map(|number| format!("/s{number}")).collect();
        let all: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "/n")).collect();
        services.on_snapshot(&listing(&all), now);
        assert_eq!(services.all.len(), MAX_SERVICES);
        let under_way = services.take_work(now).len();
        assert!((1..=turns::MAX_FIRST).contains(&under_way), "{under_way}");
        assert!(services.take_work(now).is_empty());
    }

    #[test]
    fn servers_that_do_not_answer_hold_up_no_other() {
        let (mut services, now) = services();
        let names: Vec<String> = (0..1000).map(|number| format!("/a{number:03}")).collect();
        let mut all: Vec<(&str, &str)> =
            names.iter().map(|name| (name.as_str(), "/hangs")).collect();
        all.push(("/z", "/n"));
        services.on_snapshot(&listing(&all), now);
        assert!(services.take_work(now).contains(&"/z".into()), "another node's has a place");
        services.on_probed("/z", server("1"), now);
        // Each server of its own, and all of them failed before.
        let mut all: Vec<(&str, &str)> =
            names.iter().map(|name| (name.as_str(), name.as_str())).collect();
        services.on_snapshot(&listing(&all), now);
        for _ in 0..1000 {
            for service in services.take_work(now) {
                services.on_probed(&service, Probed::Failed { reason: "late".into() }, now);
            }
        }
        let later = now + LAST_RETRY;
        assert_eq!(services.take_work(later).len(), turns::MAX_AGAIN);
        all.push(("/z", "/n"));
        services.on_snapshot(&listing(&all), later);
        assert_eq!(services.take_work(later), ["/z"]);
    }

    #[test]
    fn what_comes_and_goes_begins_no_further_probes() {
        let (mut services, now) = services();
        for round in 0..100 {
            let names: Vec<String> = (0..100).map(|n| format!("/s{round}_{n}")).collect();
            let all: Vec<(&str, &str)> =
                names.iter().map(|name| (name.as_str(), name.as_str())).collect();
            services.on_snapshot(&listing(&all), now);
            services.take_work(now);
        }
        assert_eq!(services.all.values().filter(|it| it.busy).count(), turns::MAX_FIRST);
    }
}
