// SPDX-License-Identifier: Apache-2.0
//! Polls of the master, and registrations that its list lacks.

use super::Actor;
use crate::Event;
use crate::log_limit::LogLimit;
use crate::ros1::master::{Master, Role, Snapshot};
use crate::ros1::note::{Note, Poll};
use crate::ros1::probes::users_of;
use crate::ros1::registration::{NotRegistered, Registration};
use crate::ros1::shown::shown;
use crate::ros1::stand_ins::{Listed, mark_of, marked_by};
use crate::ros1::xmlrpc::CallError;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// Time limit of the calls that unregister when the gateway stops.
const UNREGISTER_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of the calls after these, which remove copies of parameters. A unit of systemd has ten
/// seconds for its end.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(3);

impl Actor {
    pub(super) fn poll(&mut self) {
        if !self.polls.start(Instant::now()) {
            return;
        }
        let (prober, name_is_doubtful) = (self.prober.clone(), self.name_is_doubtful);
        let held = self.stand_ins.held().clone();
        self.spawn(async move {
            let snapshot = match prober.master.poll().await {
                Ok(snapshot) => snapshot,
                Err(error) => return Note::Polled(Err(error)),
            };
            let mut poll = Poll { snapshot, namesake: None, lost: Vec::new() };
            if name_is_doubtful {
                poll.namesake = Some(prober.namesake().await);
                for name in held {
                    if prober.other_node(&name).await.is_some() {
                        poll.lost.push(name);
                    }
                }
            }
            Note::Polled(Ok(poll))
        });
    }

    pub(super) fn polled(&mut self, result: Result<Poll, CallError>) {
        self.polls.end(Instant::now(), result.is_ok());
        match result {
            Ok(Poll { mut snapshot, namesake, lost }) => {
                self.set_connected(true, String::new());
                self.stand_ins.release(&lost);
                let listed = self.stand_ins.merge(&mut snapshot, &self.setup.own.name);
                if self.subscribed_at_start.is_none() {
                    let known = snapshot.subscribers.iter().filter(|it| self.deliveries.knows(it.0));
                    let known = known.map(|(topic, nodes)| (topic.clone(), nodes.clone()));
                    self.subscribed_at_start = Some(known.collect());
                }
                match namesake {
                    Some(uri) => self.set_namesake(uri),
                    None if self.lacks_registrations(&snapshot) => self.doubt_name(),
                    None => {}
                }
                if !self.name_is_doubtful {
                    self.update_registrations(&snapshot, &listed);
                }
                self.describe(&snapshot);
                self.services.discovery.on_snapshot(&snapshot.services, Instant::now());
                self.discovery.on_snapshot(&snapshot, Instant::now());
            }
            Err(error @ CallError::TooLarge { .. }) => self.set_connected(
                true,
                format!("the ROS master's lists exceed a limit, so its earlier lists stay in use: {error}"),
            ),
            Err(error) => {
                self.set_connected(false, format!("the ROS master does not answer: {error}"));
            }
        }
        self.after_discovery();
        self.after_service_discovery();
        self.refresh_all();
    }

    /// Sets whether the master answers, and logs a change.
    fn set_connected(&mut self, connected: bool, trouble: String) {
        let shared = &self.setup.shared;
        shared.connected.store(connected, Ordering::Relaxed);
        if self.logged_connected.replace(connected) != Some(connected) {
            let uri = &self.setup.master.uri;
            match connected {
                true => tracing::info!("the ROS master at {uri} answers"),
                false => tracing::warn!(
                    "{trouble}; start roscore, or correct ros1.master (ROS_MASTER_URI); the \
                     gateway connects as soon as {uri} answers"
                ),
            }
        }
        shared.troubles.update("", "master", trouble);
    }

    /// Whether the master lists less of us than before: it has restarted, or another node has our
    /// name, of which the master has not told us yet, or cannot.
    fn lacks_registrations(&mut self, snapshot: &Snapshot) -> bool {
        let own_name = &self.setup.own.name;
        Role::ALL.into_iter().any(|role| {
            let listed = snapshot.nodes(role);
            let is_listed =
                |name: &String| listed.get(name).is_some_and(|nodes| nodes.contains(own_name));
            let all = self.registrations.of(role).iter();
            all.filter(|(_, it)| it.registered).any(|(name, _)| !is_listed(name))
        })
    }

    /// Registers nothing until the master was asked who has our name.
    pub(super) fn doubt_name(&mut self) {
        self.name_is_doubtful = true;
        self.poll();
    }

    /// While another node has our name, a registration would end that node, and vice versa.
    fn set_namesake(&mut self, uri: Option<String>) {
        self.name_is_doubtful = uri.is_some();
        let own_name = &self.setup.own.name;
        let trouble = uri.map_or_else(String::new, |uri| {
            format!(
                "another node at {} has our name {own_name}; nothing is registered until it leaves",
                shown(&uri)
            )
        });
        self.setup.shared.troubles.update("", "name", trouble);
    }

    /// Registers what the master does not list, and unregisters what it lists without need.
    fn update_registrations(&mut self, snapshot: &Snapshot, ours: &[Listed]) {
        let own_name = self.setup.own.name.clone();
        for Listed { role, name, caller } in ours {
            let needed = self.registrations.get(*role, name);
            // Another name may have taken its place.
            let has_moved = |it: &Registration| it.registered && it.caller.as_ref() != Some(caller);
            if needed.is_none_or(has_moved) {
                self.unregister(*role, name, caller);
            }
        }
        self.release_unused(ours);
        self.update_marks(ours);
        for role in Role::ALL {
            let listed = snapshot.nodes(role);
            for (name, registration) in self.registrations.of(role) {
                registration.registered &=
                    listed.get(name).is_some_and(|nodes| nodes.contains(&own_name));
            }
        }
        self.choose_callers();
        self.note_rivals(snapshot);
        self.setup.shared.troubles.report("", "stand-ins", self.stand_ins.trouble());
        for role in [Role::Subscriber, Role::Publisher, Role::Service] {
            for name in self.registrations.due(role) {
                self.register(role, name, snapshot);
            }
        }
    }

    /// Registers topics and services under the names of their stand-ins, once these have their marks. If
    /// a local node has the name, they are registered under our own.
    fn choose_callers(&mut self) {
        let own_name = self.setup.own.name.clone();
        for role in Role::ALL {
            for name in self.registrations.names(role) {
                if role == Role::Service && self.ended_mark(&name).is_some() {
                    continue;
                }
                let node = self.stand_ins.node_of(role, &name);
                let mark = node.map(mark_of).filter(|mark| *mark != name);
                let mark = mark.and_then(|it| self.registrations.get(Role::Service, &it));
                let (waits, is_shown) =
                    mark.map_or((false, true), |it| (it.is_undecided(), it.registered));
                let caller = node.filter(|_| is_shown).unwrap_or(&own_name).to_owned();
                let Some(registration) = self.registrations.of(role).get_mut(&name) else {
                    continue;
                };
                registration.waits = waits;
                if !waits && !registration.pending {
                    registration.register_as(&caller);
                }
            }
        }
    }

    /// Adds the marks of new stand-ins, and ends those of stand-ins that are not shown any more, after
    /// all else under their names.
    fn update_marks(&mut self, ours: &[Listed]) {
        for name in self.registrations.names(Role::Service) {
            let Some(node) = self.ended_mark(&name) else { continue };
            let is_used = ours.iter().any(|it| it.caller == node && it.name != name)
                || self.registrations.any(|it| it.pending && it.chosen.as_deref() == Some(node));
            if !is_used {
                self.remove_registration(Role::Service, &name);
            }
        }
        let is_new = |mark: &&String| self.registrations.get(Role::Service, mark).is_none();
        for mark in self.stand_ins.marks().filter(is_new).cloned().collect::<Vec<_>>() {
            self.add_registration(Role::Service, &mark);
        }
    }

    /// The stand-in of a mark, if it is not shown any more.
    fn ended_mark<'a>(&self, service: &'a str) -> Option<&'a str> {
        marked_by(service).filter(|_| !self.stand_ins.is_mark(service) && !self.is_served(service))
    }

    /// Gives up names under which the master lists nothing.
    fn release_unused(&mut self, ours: &[Listed]) {
        let is_used = |name: &&String| {
            ours.iter().any(|it| it.caller == **name)
                || self.registrations.any(|it| it.pending || it.caller.as_ref() == Some(*name))
        };
        let held = self.stand_ins.held().iter();
        let unused: Vec<String> = held.filter(|name| !is_used(name)).cloned().collect();
        self.stand_ins.release(&unused);
    }

    /// Adds a registration for the next poll.
    pub(super) fn add_registration(&mut self, role: Role, name: &str) {
        let serial = self.serial();
        self.registrations.of(role).insert(name.into(), Registration::new(serial));
    }

    /// Removes a registration, also at the master.
    pub(super) fn remove_registration(&mut self, role: Role, name: &str) {
        let removed = self.registrations.of(role).remove(name);
        if let Some(registration) = removed.filter(Registration::may_be_listed) {
            let caller = registration.caller.as_ref().unwrap_or(&self.setup.own.name);
            self.unregister(role, name, caller);
        }
    }

    fn register(&mut self, role: Role, name: String, snapshot: &Snapshot) {
        let Some(registration) = self.registrations.of(role).get_mut(&name) else { return };
        registration.pending = true;
        let (serial, rival) = (registration.serial, registration.rival.clone());
        let caller = registration.chosen.clone().unwrap_or_else(|| self.setup.own.name.clone());
        let is_stand_in = caller != self.setup.own.name;
        // The master would not forget the node of a service that another one has taken over.
        let before = registration.caller.clone().filter(|it| *it != caller);
        let before = before.filter(|_| role == Role::Service);
        let prober = self.prober.clone();
        let published = self.publications.get(&name).filter(|_| role == Role::Publisher);
        let (type_name, check) = match published {
            Some(found) => {
                let users = match found.cleared {
                    true => Vec::new(),
                    false => users_of(snapshot, &found.topic, &self.setup.own.name),
                };
                (found.topic.type_name.clone(), Some((found.topic.clone(), users)))
            }
            None => {
                let offered = self.discovery.offered(&name);
                (offered.map_or("*".into(), |topic| topic.type_name.clone()), None)
            }
        };
        self.spawn(async move {
            let conflict = match check {
                Some((topic, users)) => prober.conflict(&topic, users).await,
                None => None,
            };
            let rival = match rival {
                Some(node) if !prober.has_server_ended(&name).await => Some(node),
                _ => None,
            };
            let outcome = match (conflict, rival) {
                // The master would end a local node of this name.
                _ if is_stand_in && prober.may_be_taken(&caller).await => Err(NotRegistered::Taken),
                (Some(conflict), _) => Err(NotRegistered::Conflict(conflict)),
                (None, Some(node)) => Err(NotRegistered::Served(node)),
                (None, None) => {
                    if let Some(before) = before {
                        // If it fails, the next poll does it.
                        let _ = prober.master.unregister(role, &name, &before).await;
                    }
                    let registered = prober.master.register(role, &name, &type_name, &caller).await;
                    registered.map_err(NotRegistered::Master)
                }
            };
            Note::Registered { role, name, caller, serial, outcome }
        });
    }

    pub(super) fn registered(
        &mut self,
        role: Role,
        name: &str,
        caller: String,
        serial: u64,
        outcome: Result<Vec<String>, NotRegistered>,
    ) {
        if outcome.is_ok() && caller != self.setup.own.name {
            // Also for what is not needed any more: the next poll unregisters it.
            self.stand_ins.hold(&caller);
        }
        let registration = self.registrations.of(role).get_mut(name);
        let registration = registration.filter(|found| found.serial == serial);
        let Some(registration) = registration else { return };
        registration.finish(&outcome);
        let is_mark = role == Role::Service && self.stand_ins.is_mark(name);
        if let (Some(node), true) = (marked_by(name), is_mark) {
            self.stand_ins.set_taken(node, matches!(outcome, Err(NotRegistered::Taken)));
        }
        let mut has_moved = false;
        if outcome.is_ok() {
            let before = registration.caller.replace(caller);
            has_moved = before.is_some() && before != registration.caller;
        }
        match outcome {
            Ok(publishers) => {
                match role {
                    Role::Publisher => self.set_publishable(name),
                    Role::Subscriber => self.set_publishers(name, publishers),
                    Role::Service => self.set_servable(name),
                }
                // More may wait than were registered at once, also for a mark.
                if has_moved
                    || is_mark
                    || self.registrations.of(role).values().any(Registration::is_new)
                {
                    self.poll();
                }
            }
            Err(NotRegistered::Conflict(reason)) => self.refuse_publication(name, reason),
            Err(NotRegistered::Served(node)) => self.refuse_service(name, &node),
            Err(NotRegistered::Taken) => {}
            Err(NotRegistered::Master(error)) => {
                static LIMITS: [LogLimit; 3] = [const { LogLimit::new() }; 3];
                if let Some(left_out) = LIMITS[role as usize].next() {
                    tracing::warn!(name, %error, left_out, "a registration at the ROS master failed");
                }
            }
        }
    }

    fn set_publishable(&mut self, topic: &str) {
        if let Some(publication) = self.publications.get_mut(topic) {
            publication.cleared = true;
            publication.conflict = None;
        }
        self.setup.shared.troubles.clear(topic, "conflict");
    }

    fn refuse_publication(&mut self, topic: &str, reason: String) {
        let Some(publication) = self.publications.get_mut(topic) else { return };
        if publication.conflict.as_ref() != Some(&reason) {
            publication.conflict = Some(reason.clone());
            self.setup.shared.troubles.set(topic, "conflict", reason.clone());
            self.emit(Event::Refused { topic: topic.into(), reason });
        }
    }

    fn set_publishers(&mut self, topic: &str, uris: Vec<String>) {
        if let Some(subscription) = self.subscriptions.get_mut(topic) {
            subscription.set_listed(uris);
            self.refresh(topic);
        }
    }

    /// A failed call is repeated after a poll that still lists us.
    pub(super) fn unregister(&self, role: Role, name: &str, caller: &str) {
        let (master, name) = (self.prober.master.clone(), name.to_owned());
        let caller = caller.to_owned();
        tokio::spawn(async move { master.unregister(role, &name, &caller).await.map_err(drop) });
    }

    pub(super) async fn unregister_all(&mut self) {
        self.subscriptions.values_mut().for_each(|subscription| subscription.end_silently());
        if !self.setup.shared.connected.load(Ordering::Relaxed) {
            return;
        }
        let leave = self.prober.master.leave(self.stand_ins.held());
        let trouble = match timeout(UNREGISTER_TIMEOUT, leave).await {
            Ok(Ok(())) => String::new(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("it took more than {} s", UNREGISTER_TIMEOUT.as_secs()),
        };
        if !trouble.is_empty() {
            tracing::warn!("still registered at the ROS master: {trouble}");
        }
        // Its connection is its own: the other one is closed to all further calls.
        let master = Arc::new(Master::new(self.setup.master.clone(), self.setup.own.clone()));
        if timeout(REMOVE_TIMEOUT, self.mirrors.remove_all(&master)).await.is_err() {
            let seconds = REMOVE_TIMEOUT.as_secs();
            tracing::warn!(
                "copies of parameters of peers are still at the ROS master: their removal took \
                 more than {seconds} s"
            );
        }
    }
}
