// SPDX-License-Identifier: Apache-2.0
//! Services of this robot, and their types. A state machine without I/O, like `discovery.rs`.
//!
//! A service is offered while the master lists it and its server answers probes: no client can find
//! a service that the master does not list. Services of Tautline nodes are never offered.

use super::backoff::{self, Backoff};
use super::connection::TypeVersion;
use super::master::NodesByName;
use super::probed::ProbeResult;
use crate::{ResourceName, Selector};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Maximum number of tracked services; further services are not offered.
const MAX_SERVICES: usize = 4096;
/// Longest pause between two probes of a server that does not answer.
const MAX_PAUSE: Duration = Duration::from_secs(30);

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    Offered(String, TypeVersion),
    Withdrawn(String),
}

struct Tracked {
    /// The server's node, as the master lists it.
    node: String,
    listed: bool,
    offered: Option<TypeVersion>,
    probing: bool,
    /// Whether a probe is scheduled. Otherwise the cycle through all services schedules one,
    /// except for a Tautline node's.
    suspect: bool,
    backoff: Backoff,
    is_tautline: bool,
}

pub(super) struct ServiceDiscovery {
    own_name: String,
    selector: Selector,
    services: BTreeMap<String, Tracked>,
    /// The service that the cycle through all services probed last.
    last_probed: String,
    changes: Vec<Change>,
}

impl ServiceDiscovery {
    pub fn new(own_name: &str, selector: Selector) -> Self {
        let (services, changes) = (BTreeMap::new(), Vec::new());
        Self { own_name: own_name.into(), selector, services, last_probed: String::new(), changes }
    }

    /// The md5 under which a service is offered.
    pub fn md5(&self, service: &str) -> Option<&str> {
        self.services.get(service)?.offered.as_ref().map(|version| version.md5.as_str())
    }

    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// The selector has changed: withdraws services that may no longer leave the robot.
    pub fn reselect(&mut self) {
        let selector = &self.selector;
        let denied = |service: &String, _: &mut Tracked| !selector(ResourceName::Service(service));
        for (service, tracked) in self.services.extract_if(.., denied) {
            if tracked.offered.is_some() {
                self.changes.push(Change::Withdrawn(service));
            }
        }
    }

    pub fn on_snapshot(&mut self, services: &NodesByName, now: Instant) {
        let own_name = &self.own_name;
        let other = |service: &String| {
            services.get(service)?.iter().find(|node| *node != own_name).cloned()
        };
        let changes = &mut self.changes;
        self.services.retain(|service, tracked| {
            tracked.listed = other(service).is_some();
            if !tracked.listed && tracked.offered.take().is_some() {
                changes.push(Change::Withdrawn(service.clone()));
            }
            // A pending probe holds its slot until it ends.
            tracked.listed || tracked.probing
        });
        for service in services.keys() {
            let Some(node) = other(service) else { continue };
            let fits = self.services.len() < MAX_SERVICES;
            match self.services.get_mut(service) {
                Some(known) if known.node == node => {}
                // The server is now another process, possibly with another type.
                Some(known) => {
                    known.node = node;
                    known.is_tautline = false;
                    known.suspect = true;
                    known.backoff = Backoff::new(now);
                }
                None if fits && (self.selector)(ResourceName::Service(service)) => {
                    self.services.insert(service.clone(), Tracked::new(node, now));
                }
                None => {}
            }
        }
        self.schedule_next_probe(now);
    }

    /// Cycles through the offered services, one per snapshot: the master does not notice that a
    /// server died or was replaced.
    fn schedule_next_probe(&mut self, now: Instant) {
        let offered = || self.services.iter().filter(|(_, found)| found.offered.is_some());
        let next = offered().find(|(name, _)| **name > self.last_probed).or(offered().next());
        let Some(name) = next.map(|(name, _)| name.clone()) else { return };
        self.suspect(&name, now);
        self.last_probed = name;
    }

    /// Schedules a probe of an offered service.
    pub fn suspect(&mut self, service: &str, now: Instant) {
        if let Some(tracked) =
            self.services.get_mut(service).filter(|found| found.offered.is_some())
        {
            tracked.suspect = true;
            tracked.backoff.delay_until(now);
        }
    }

    /// Whether a probe of `service` is a retry. A probe of an offered service always counts as one: a
    /// lost packet must not end pending calls.
    pub fn is_retry(&self, service: &str) -> bool {
        let found = self.services.get(service);
        found.is_some_and(|found| found.backoff.has_failed() || found.offered.is_some())
    }

    /// Services to probe now; the results are inputs of `on_probed`.
    pub fn take_probes(&mut self, now: Instant) -> Vec<String> {
        let is_waiting = |it: &Tracked| !it.probing && !it.is_tautline && it.suspect;
        let waiting = self.services.iter().filter(|(_, found)| is_waiting(found));
        let waiting = waiting.map(|(service, it)| (service, it.node.as_str(), it.backoff));
        let pending = self.services.values().filter(|found| found.probing);
        let pending = pending.map(|found| (found.node.as_str(), found.backoff));
        let selected = backoff::select_per_node(waiting, pending, now);
        let selected: Vec<String> = selected.into_iter().cloned().collect();
        for service in &selected {
            if let Some(tracked) = self.services.get_mut(service) {
                (tracked.probing, tracked.suspect) = (true, false);
            }
        }
        selected
    }

    pub fn on_probed(&mut self, service: &str, result: ProbeResult<TypeVersion>, now: Instant) {
        let Some(tracked) = self.services.get_mut(service) else { return };
        tracked.probing = false;
        if !tracked.listed {
            self.services.remove(service);
            return;
        }
        tracked.is_tautline = matches!(result, ProbeResult::Tautline);
        let offered = match result {
            ProbeResult::Found(version) => {
                tracked.backoff.succeed();
                Some(version)
            }
            ProbeResult::Tautline => None,
            ProbeResult::Ended(reason) => {
                tracing::debug!(service, reason, "server has ended");
                tracked.suspect = true;
                tracked.backoff.fail_ended(now, MAX_PAUSE);
                None
            }
            ProbeResult::Failed(reason) => {
                tracing::debug!(service, reason, "server could not be probed");
                tracked.suspect = true;
                tracked.backoff.fail(now, MAX_PAUSE);
                None
            }
        };
        if offered != tracked.offered {
            tracked.offered.clone_from(&offered);
            let name = service.to_owned();
            self.changes.push(match offered {
                Some(known) => Change::Offered(name, known),
                None => Change::Withdrawn(name),
            });
        }
    }
}

impl Tracked {
    fn new(node: String, now: Instant) -> Self {
        Self {
            node,
            listed: true,
            offered: None,
            probing: false,
            suspect: true,
            backoff: Backoff::new(now),
            is_tautline: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn listing(services: &[(&str, &str)]) -> NodesByName {
        let entry = |(service, node): &(&str, &str)| {
            ((*service).to_owned(), std::iter::once((*node).to_owned()).collect())
        };
        services.iter().map(entry).collect()
    }

    fn version(md5: &str) -> TypeVersion {
        TypeVersion { name: "a/T".into(), md5: md5.into() }
    }

    fn server(md5: &str) -> ProbeResult<TypeVersion> {
        ProbeResult::Found(version(md5))
    }

    fn services() -> (ServiceDiscovery, Instant) {
        let selector = |named: ResourceName<'_>| matches!(named, ResourceName::Service(name) if name != "/private");
        (ServiceDiscovery::new("/us", Arc::new(selector)), Instant::now())
    }

    fn offer_event(md5: &str) -> Vec<Change> {
        vec![Change::Offered("/a".into(), version(md5))]
    }

    #[test]
    fn selected_services_are_offered_while_listed_and_answering() {
        let (mut services, now) = services();
        let all = listing(&[("/a", "/n"), ("/ours", "/us"), ("/private", "/n")]);
        services.on_snapshot(&all, now);
        assert_eq!(services.take_probes(now), ["/a"]);
        assert!(services.take_probes(now).is_empty());
        services.on_probed("/a", server("1"), now);
        assert_eq!(services.take_changes(), offer_event("1"));
        // The cycle reaches the service, whose type has changed.
        services.on_snapshot(&all, now);
        assert_eq!(services.take_probes(now), ["/a"]);
        services.on_probed("/a", server("2"), now);
        assert_eq!((services.take_changes(), services.md5("/a")), (offer_event("2"), Some("2")));
        services.on_snapshot(&all, now);
        services.take_probes(now);
        services.on_probed("/a", ProbeResult::Failed("refused".into()), now);
        assert_eq!(services.take_changes(), [Change::Withdrawn("/a".into())]);
        assert!(services.take_probes(now).is_empty(), "not at once");
        let later = now + MAX_PAUSE;
        assert_eq!(services.take_probes(later), ["/a"]);
        services.on_probed("/a", server("2"), later);
        services.on_snapshot(&listing(&[]), later);
        assert_eq!(services.take_changes().pop(), Some(Change::Withdrawn("/a".into())));
    }

    #[test]
    fn services_of_tautline_nodes_are_not_offered_until_another_node_serves() {
        let (mut services, now) = services();
        services.on_snapshot(&listing(&[("/a", "/tautline2")]), now);
        services.take_probes(now);
        services.on_probed("/a", ProbeResult::Tautline, now);
        let later = now + Duration::from_secs(3600);
        services.on_snapshot(&listing(&[("/a", "/tautline2")]), later);
        assert!(services.take_probes(later).is_empty() && services.take_changes().is_empty());
        services.on_snapshot(&listing(&[("/a", "/n")]), later);
        assert_eq!(services.take_probes(later), ["/a"]);
    }

    #[test]
    fn services_and_pending_probes_are_bounded() {
        let (mut services, now) = services();
        let names: Vec<String> = (0..=MAX_SERVICES).map(|number| format!("/s{number}")).collect();
        let all: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "/n")).collect();
        services.on_snapshot(&listing(&all), now);
        assert_eq!(services.services.len(), MAX_SERVICES);
        let pending = services.take_probes(now).len();
        assert!((1..=backoff::MAX_NEW).contains(&pending), "{pending}");
        assert!(services.take_probes(now).is_empty());
    }

    #[test]
    fn silent_servers_do_not_delay_probes_of_other_servers() {
        let (mut services, now) = services();
        let names: Vec<String> = (0..1000).map(|number| format!("/a{number:03}")).collect();
        let mut all: Vec<(&str, &str)> =
            names.iter().map(|name| (name.as_str(), "/hangs")).collect();
        all.push(("/z", "/n"));
        services.on_snapshot(&listing(&all), now);
        assert!(services.take_probes(now).contains(&"/z".into()), "another node has a slot");
        services.on_probed("/z", server("1"), now);
        // Each service has a server of its own, and all probes have failed before.
        let mut all: Vec<(&str, &str)> =
            names.iter().map(|name| (name.as_str(), name.as_str())).collect();
        services.on_snapshot(&listing(&all), now);
        for _ in 0..1000 {
            for service in services.take_probes(now) {
                services.on_probed(&service, ProbeResult::Failed("late".into()), now);
            }
        }
        let later = now + MAX_PAUSE;
        assert_eq!(services.take_probes(later).len(), backoff::MAX_RETRIES);
        all.push(("/z", "/n"));
        services.on_snapshot(&listing(&all), later);
        assert_eq!(services.take_probes(later), ["/z"]);
    }

    #[test]
    fn short_lived_services_do_not_start_more_probes() {
        let (mut services, now) = services();
        for round in 0..100 {
            let names: Vec<String> = (0..100).map(|n| format!("/s{round}_{n}")).collect();
            let all: Vec<(&str, &str)> =
                names.iter().map(|name| (name.as_str(), name.as_str())).collect();
            services.on_snapshot(&listing(&all), now);
            services.take_probes(now);
        }
        assert_eq!(
            services.services.values().filter(|found| found.probing).count(),
            backoff::MAX_NEW
        );
    }
}
