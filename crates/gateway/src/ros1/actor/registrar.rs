// SPDX-License-Identifier: Apache-2.0
//! Our registrations at the master, under our own name or those of stand-ins.

use super::context::Context;
use super::publications::Publications;
use super::services::Services;
use super::subscriptions::Subscriptions;
use crate::description::Nodes;
use crate::log_limit::LogLimit;
use crate::ros1::master::{Role, Snapshot};
use crate::ros1::note::Note;
use crate::ros1::probes::nodes_to_query;
use crate::ros1::registration::{Attempt, Registration, RegistrationError, Registrations};
use crate::ros1::shown::for_logs;
use crate::ros1::stand_ins::{ListedRegistration, StandIns, mark_of, marked_by};
use std::time::Duration;
use tokio::time::timeout;

/// Time limit of the calls that unregister when the gateway stops.
const UNREGISTER_TIMEOUT: Duration = Duration::from_secs(5);

/// The registrations and their names.
#[derive(Default)]
pub(super) struct Registrar {
    registrations: Registrations,
    stand_ins: StandIns,
    /// Whether another node may have our name: nothing is registered until that is known.
    is_name_disputed: bool,
}

/// The parts that need registrations.
#[derive(Clone, Copy)]
pub(super) struct NeededRegistrations<'a> {
    pub subscriptions: &'a Subscriptions,
    pub publications: &'a Publications,
    pub services: &'a Services,
}

impl Registrar {
    /// Adds a registration for the next poll.
    pub fn add(&mut self, context: &mut Context, role: Role, name: &str) {
        let registration = Registration::new(context.serial());
        self.registrations.in_role(role).insert(name.into(), registration);
    }

    /// Removes a registration, also at the master.
    pub fn remove(&mut self, context: &Context, role: Role, name: &str) {
        let removed = self.registrations.in_role(role).remove(name);
        if let Some(registration) = removed.filter(Registration::may_be_listed) {
            let caller = registration.caller.as_deref().unwrap_or(context.own_name());
            unregister(context, role, name, caller);
        }
    }

    /// Whether the master lists a topic or service for us.
    pub fn is_registered(&self, role: Role, name: &str) -> bool {
        self.registrations.get(role, name).is_some_and(|registration| registration.registered)
    }

    /// Shows the nodes of a peer at this master, from the next poll.
    pub fn set_stand_ins(&mut self, peer: u32, nodes: Nodes) {
        self.stand_ins.set(peer, nodes);
    }

    /// Whether a service is the mark of a stand-in.
    pub fn is_mark(&self, service: &str) -> bool {
        self.stand_ins.is_mark(service)
    }

    /// The names of our stand-ins, to be checked for other nodes; `None` unless our own is in doubt.
    pub fn names_to_check(&self) -> Option<Vec<String>> {
        self.is_name_disputed.then(|| self.stand_ins.held_names().iter().cloned().collect())
    }

    /// Replaces stand-ins in a snapshot by our own node; returns what the master lists for us. The names
    /// in `lost` belong to other nodes now.
    pub fn merge(
        &mut self,
        context: &Context,
        snapshot: &mut Snapshot,
        lost: &[String],
    ) -> Vec<ListedRegistration> {
        self.stand_ins.release(lost);
        self.stand_ins.merge(snapshot, context.own_name())
    }

    /// Decides whether another node may have our name. `namesake` is what the poll found if it looked for
    /// such a node: the URI of that node.
    pub fn check_name(
        &mut self,
        context: &mut Context,
        namesake: Option<Option<String>>,
        snapshot: &Snapshot,
    ) {
        match namesake {
            Some(uri) => self.set_namesake(context, uri),
            None if self.lacks_registrations(context, snapshot) => self.suspect_namesake(context),
            None => {}
        }
    }

    /// Whether the master lists fewer registrations of ours than before. Then it has restarted, or
    /// another node has our name and the master has not told us yet, or cannot.
    fn lacks_registrations(&mut self, context: &Context, snapshot: &Snapshot) -> bool {
        let own_name = context.own_name();
        Role::ALL.into_iter().any(|role| {
            let listed = snapshot.nodes(role);
            let is_listed =
                |name: &String| listed.get(name).is_some_and(|nodes| nodes.contains(own_name));
            let all = self.registrations.in_role(role).iter();
            all.filter(|(_, it)| it.registered).any(|(name, _)| !is_listed(name))
        })
    }

    /// Suspects that another node has our name: registers nothing until the master was asked.
    pub fn suspect_namesake(&mut self, context: &mut Context) {
        self.is_name_disputed = true;
        context.request_poll();
    }

    /// Records another node that has our name: a registration of ours would end that node, and vice versa.
    fn set_namesake(&mut self, context: &Context, uri: Option<String>) {
        self.is_name_disputed = uri.is_some();
        let own_name = context.own_name();
        let trouble = uri.map_or_else(String::new, |uri| {
            format!(
                "another node at {} has our name {own_name}; nothing is registered until it leaves",
                for_logs(&uri)
            )
        });
        context.setup.shared.troubles.update("", "name", trouble);
    }

    /// Registers what the master does not list, and unregisters what it lists without need.
    pub fn update(
        &mut self,
        context: &mut Context,
        snapshot: &Snapshot,
        ours: &[ListedRegistration],
        needed: NeededRegistrations<'_>,
    ) {
        if self.is_name_disputed {
            return;
        }
        let own_name = context.own_name().to_owned();
        for ListedRegistration { role, name, caller } in ours {
            let known = self.registrations.get(*role, name);
            // Another name may have taken its place.
            let has_moved = |it: &Registration| it.registered && it.caller.as_ref() != Some(caller);
            if known.is_none_or(has_moved) {
                unregister(context, *role, name, caller);
            }
        }
        self.release_unused(ours);
        self.update_marks(context, ours, needed.services);
        for role in Role::ALL {
            let listed = snapshot.nodes(role);
            for (name, registration) in self.registrations.in_role(role) {
                registration.registered &=
                    listed.get(name).is_some_and(|nodes| nodes.contains(&own_name));
            }
        }
        self.choose_callers(&own_name, needed.services);
        self.set_rivals(&own_name, snapshot);
        context.setup.shared.troubles.report("", "stand-ins", self.stand_ins.trouble());
        for role in [Role::Subscriber, Role::Publisher, Role::Service] {
            for name in self.registrations.names_to_register(role) {
                self.register(context, role, name, (snapshot, needed));
            }
        }
    }

    /// Registers topics and services under the names of their stand-ins, once these have their marks. If
    /// a local node has the name, they are registered under our own.
    fn choose_callers(&mut self, own_name: &str, services: &Services) {
        for role in Role::ALL {
            for name in self.registrations.names(role) {
                if role == Role::Service && self.ended_mark(&name, services).is_some() {
                    continue;
                }
                let node = self.stand_ins.node_of(role, &name);
                let mark = node.map(mark_of).filter(|mark| *mark != name);
                let mark = mark.and_then(|it| self.registrations.get(Role::Service, &it));
                let (awaits_mark, is_shown) =
                    mark.map_or((false, true), |it| (it.is_undecided(), it.registered));
                let caller = node.filter(|_| is_shown).unwrap_or(own_name).to_owned();
                let Some(registration) = self.registrations.in_role(role).get_mut(&name) else {
                    continue;
                };
                registration.awaits_mark = awaits_mark;
                if !awaits_mark && !registration.pending {
                    registration.register_as(&caller);
                }
            }
        }
    }

    /// Adds the marks of new stand-ins, and ends those of stand-ins that are not shown any more, after
    /// all else under their names.
    fn update_marks(
        &mut self,
        context: &mut Context,
        ours: &[ListedRegistration],
        services: &Services,
    ) {
        for name in self.registrations.names(Role::Service) {
            let Some(node) = self.ended_mark(&name, services) else { continue };
            let is_used = ours.iter().any(|it| it.caller == node && it.name != name)
                || self
                    .registrations
                    .any(|it| it.pending && it.next_caller.as_deref() == Some(node));
            if !is_used {
                self.remove(context, Role::Service, &name);
            }
        }
        let is_new = |mark: &&String| self.registrations.get(Role::Service, mark).is_none();
        for mark in self.stand_ins.marks().filter(is_new).cloned().collect::<Vec<_>>() {
            self.add(context, Role::Service, &mark);
        }
    }

    /// The stand-in of a mark, if it is not shown any more.
    fn ended_mark<'a>(&self, service: &'a str, services: &Services) -> Option<&'a str> {
        let is_used = self.stand_ins.is_mark(service) || services.is_served(service);
        marked_by(service).filter(|_| !is_used)
    }

    /// Gives up names under which the master lists nothing.
    fn release_unused(&mut self, ours: &[ListedRegistration]) {
        let is_used = |name: &&String| {
            ours.iter().any(|it| it.caller == **name)
                || self.registrations.any(|it| it.pending || it.caller.as_ref() == Some(*name))
        };
        let held = self.stand_ins.held_names().iter();
        let unused: Vec<String> = held.filter(|name| !is_used(name)).cloned().collect();
        self.stand_ins.release(&unused);
    }

    /// Notes the other nodes that the master lists for our services.
    fn set_rivals(&mut self, own_name: &str, snapshot: &Snapshot) {
        for (name, registration) in self.registrations.in_role(Role::Service) {
            let mut nodes = snapshot.services.get(name).into_iter().flatten();
            registration.set_rival(nodes.find(|node| *node != own_name));
        }
    }

    fn register(
        &mut self,
        context: &Context,
        role: Role,
        name: String,
        (snapshot, needed): (&Snapshot, NeededRegistrations<'_>),
    ) {
        let Some(registration) = self.registrations.in_role(role).get_mut(&name) else { return };
        registration.pending = true;
        let (serial, rival) = (registration.serial, registration.rival.clone());
        let caller =
            registration.next_caller.clone().unwrap_or_else(|| context.own_name().to_owned());
        let is_stand_in = caller != context.own_name();
        // The master would not forget the node of a service that another one has taken over.
        let before = registration.caller.clone().filter(|it| *it != caller);
        let before = before.filter(|_| role == Role::Service);
        let prober = context.prober.clone();
        let published = needed.publications.get(&name).filter(|_| role == Role::Publisher);
        let (type_name, check) = match published {
            Some(found) => {
                let users = match found.conflict_cleared {
                    true => Vec::new(),
                    false => nodes_to_query(snapshot, &found.topic, context.own_name()),
                };
                (found.topic.type_name.clone(), Some((found.topic.clone(), users)))
            }
            None => {
                let offered = needed.subscriptions.offered_topic(&name);
                (offered.map_or("*".into(), |topic| topic.type_name.clone()), None)
            }
        };
        context.spawn(async move {
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
                _ if is_stand_in && prober.may_be_taken(&caller).await => {
                    Err(RegistrationError::NameTaken)
                }
                (Some(conflict), _) => Err(RegistrationError::Conflict(conflict)),
                (None, Some(node)) => Err(RegistrationError::ServedLocally(node)),
                (None, None) => {
                    if let Some(before) = before {
                        // If this fails, the next poll unregisters it.
                        let _ = prober.master.unregister(role, &name, &before).await;
                    }
                    let registered = prober.master.register(role, &name, &type_name, &caller).await;
                    registered.map_err(RegistrationError::Master)
                }
            };
            Note::Registered(Attempt { role, name, caller, serial }, outcome)
        });
    }

    /// Handles the end of a registration call. `false`: nobody waits for its outcome any more.
    pub fn on_registered(
        &mut self,
        context: &mut Context,
        attempt: Attempt,
        outcome: &Result<Vec<String>, RegistrationError>,
    ) -> bool {
        let Attempt { role, name, caller, serial } = attempt;
        if outcome.is_ok() && caller != context.own_name() {
            // The name is held even if the registration is no longer needed: the next poll unregisters
            // it.
            self.stand_ins.hold(&caller);
        }
        let registration = self.registrations.in_role(role).get_mut(&name);
        let registration = registration.filter(|found| found.serial == serial);
        let Some(registration) = registration else { return false };
        registration.on_outcome(outcome);
        let is_mark = role == Role::Service && self.stand_ins.is_mark(&name);
        if let (Some(node), true) = (marked_by(&name), is_mark) {
            self.stand_ins.set_taken(node, matches!(outcome, Err(RegistrationError::NameTaken)));
        }
        match outcome {
            Ok(_) => {
                let before = registration.caller.replace(caller);
                let has_moved = before.is_some() && before != registration.caller;
                // Others may wait for a free slot, or for this mark.
                let mut others = self.registrations.in_role(role).values();
                if has_moved || is_mark || others.any(Registration::is_new) {
                    context.request_poll();
                }
            }
            Err(RegistrationError::Master(error)) => {
                static LIMITS: [LogLimit; 3] = [const { LogLimit::new() }; 3];
                if let Some(left_out) = LIMITS[role as usize].admit() {
                    tracing::warn!(name, %error, left_out, "a registration at the ROS master failed");
                }
            }
            Err(_) => {}
        }
        true
    }

    /// Unregisters all that is registered, within a time limit.
    pub async fn leave(&self, context: &Context) {
        let leave = context.prober.master.leave(self.stand_ins.held_names());
        let trouble = match timeout(UNREGISTER_TIMEOUT, leave).await {
            Ok(Ok(())) => String::new(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("it took more than {} s", UNREGISTER_TIMEOUT.as_secs()),
        };
        if !trouble.is_empty() {
            tracing::warn!("still registered at the ROS master: {trouble}");
        }
    }
}

/// Unregisters in a task. A failed call is repeated after a poll that still lists us.
fn unregister(context: &Context, role: Role, name: &str, caller: &str) {
    let (master, name) = (context.prober.master.clone(), name.to_owned());
    let caller = caller.to_owned();
    tokio::spawn(async move { master.unregister(role, &name, &caller).await.map_err(drop) });
}
