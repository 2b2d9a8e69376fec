// SPDX-License-Identifier: Apache-2.0
//! The actor: takes each command and each note to the parts that it concerns. Each part has its own
//! state; an effect on another part is a returned value, or an argument.
//!
//! | part | state |
//! |---|---|
//! | [`Polling`] | when the master is polled, and whether it answers |
//! | [`Registrar`] | our registrations at the master, and the stand-ins for nodes of peers |
//! | [`Subscriptions`] | local topics: which are offered, and the readers of their publishers |
//! | [`Publications`] | topics of peers: local subscribers and their latched messages |
//! | [`Services`] | local services and calls of them; services of peers and their local clients |
//! | [`RobotDescription`] | nodes and parameters: those here for peers, and copies of peers' |

mod context;
mod description;
mod polling;
mod publications;
mod registrar;
mod services;
mod slave_api;
mod subscriptions;

use super::master::Role;
use super::note::{Note, Poll};
use super::order::Order;
use super::polls::TOPIC_OF_ALL_NODES;
use super::registration::{Attempt, RegistrationError};
use super::xmlrpc::CallError;
use crate::{Command, Service, Topic};
use context::Context;
pub(super) use context::Setup;
use description::RobotDescription;
use polling::Polling;
use publications::Publications;
use registrar::{NeededRegistrations, Registrar};
use services::Services;
use slave_api::SlaveApi;
use std::sync::atomic::Ordering;
use std::time::Instant;
use subscriptions::Subscriptions;
use tokio::sync::mpsc;
use tokio::time::sleep_until;

/// Maximum number of notes queued for the actor; beyond it the sending tasks wait.
const NOTE_QUEUE: usize = 1024;

pub(super) struct Actor {
    context: Context,
    polling: Polling,
    registrar: Registrar,
    subscriptions: Subscriptions,
    publications: Publications,
    services: Services,
    description: RobotDescription,
    received: mpsc::Receiver<Note>,
}

impl Actor {
    pub fn new(setup: Setup) -> Self {
        let (notes, received) = mpsc::channel(NOTE_QUEUE);
        Self {
            polling: Polling::new(Instant::now()),
            registrar: Registrar::default(),
            subscriptions: Subscriptions::new(&setup),
            publications: Publications::new(&setup),
            services: Services::new(&setup),
            description: RobotDescription::default(),
            received,
            context: Context::new(setup, notes),
        }
    }

    pub fn notes(&self) -> mpsc::Sender<Note> {
        self.context.notes.clone()
    }

    /// Runs until stopped, or until all senders of orders are dropped.
    pub async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        self.registrar.add(&mut self.context, Role::Subscriber, TOPIC_OF_ALL_NODES);
        let actions = self.context.setup.actions.clone();
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::Execute(command)) => {
                        if let Some(command) = actions.command(command) {
                            self.command(command);
                        }
                    }
                    Some(Order::ExecuteForAction(command)) => self.command(command),
                    Some(Order::Emit(event)) => self.context.emit(event),
                    Some(Order::Stop) | None => break,
                },
                Some(note) = self.received.recv() => self.note(note),
                () = wait_until(self.polling.next_poll()) => self.context.request_poll(),
                () = wait_until(actions.next_timeout()) => actions.handle_timeout(),
                () = actions.timeout_changed() => {}
            }
            if self.context.take_poll_request() {
                self.polling.start(&self.context, self.registrar.names_to_check());
            }
        }
        self.leave_master().await;
    }

    fn command(&mut self, command: Command) {
        let context = &mut self.context;
        match command {
            Command::Subscribe { topic } => {
                if self.subscriptions.add(context, &topic) {
                    self.registrar.add(context, Role::Subscriber, &topic);
                    context.request_poll();
                }
            }
            Command::Unsubscribe { topic } => {
                if self.subscriptions.remove(&topic) && topic != TOPIC_OF_ALL_NODES {
                    self.registrar.remove(context, Role::Subscriber, &topic);
                }
            }
            Command::Advertise { topic } => self.advertise(topic),
            Command::Unadvertise { topic } => self.unadvertise(&topic),
            Command::Publish { topic, source, payload, origin } => {
                self.publications.publish(context, &topic, source, payload, &origin);
            }
            Command::Forget { topic, source } => self.publications.forget(&topic, source),
            Command::Serve { service } => self.serve(service),
            Command::Unserve { service } => self.unserve(&service),
            Command::Answer { call, outcome, .. } => self.services.answer(context, call, outcome),
            Command::Call { service, call, request, time_limit, .. } => {
                self.services.call(context, service, call, request, time_limit);
            }
            Command::Describe { nodes, parameters } => {
                self.description.set_wanted(nodes, parameters)
            }
            Command::ShowNodes { peer, nodes } => self.registrar.set_stand_ins(peer, nodes),
            Command::ShowParameters { peer, prefix, parameters } => {
                self.description.mirrors.set(peer, prefix, parameters);
            }
            Command::SetParameters { parameters } => self.description.set(context, parameters),
            Command::SetMaxMessage { .. } => {}
            Command::Reselect => {
                // Withdraws what may no longer leave the robot; the next poll adds what now may.
                self.subscriptions.reselect(context);
                self.services.reselect(context);
                context.request_poll();
            }
        }
    }

    fn advertise(&mut self, topic: Topic) {
        if self.publications.update(&topic) {
            return;
        }
        self.unadvertise(&topic.name);
        self.registrar.add(&mut self.context, Role::Publisher, &topic.name);
        self.publications.add(&self.context, topic);
        self.context.request_poll();
    }

    fn unadvertise(&mut self, topic: &str) {
        if self.publications.remove(&self.context, topic) {
            self.registrar.remove(&self.context, Role::Publisher, topic);
        }
    }

    fn serve(&mut self, service: Service) {
        if self.services.serves(&service) {
            return;
        }
        self.unserve(&service.name);
        self.registrar.add(&mut self.context, Role::Service, &service.name);
        self.services.serve(&mut self.context, service);
        self.context.request_poll();
    }

    fn unserve(&mut self, service: &str) {
        let has_ended = self.services.unserve(&self.context, service);
        if has_ended && !self.registrar.is_mark(service) {
            self.registrar.remove(&self.context, Role::Service, service);
        }
    }

    fn note(&mut self, note: Note) {
        let context = &mut self.context;
        match note {
            Note::Polled(result) => self.on_polled(result),
            Note::ProbeResult { topic, node, result } => {
                self.subscriptions.on_probed(context, &topic, &node, result);
            }
            Note::Checked { node, result } => {
                self.subscriptions.on_checked(context, &node, result);
            }
            Note::Registered(attempt, outcome) => self.on_registered(attempt, outcome),
            Note::Parameters(found) => self.description.on_parameters(context, found),
            Note::ParametersSet(done) => self.description.on_set(context, done),
            Note::Mirrored { peer, mirrored } => {
                self.description.on_mirrored(context, peer, mirrored);
            }
            Note::Reader { topic, uri, serial, note } => {
                self.subscriptions.on_reader(context, &topic, (&uri, serial), note);
            }
            Note::Service(note) => self.services.on_note(context, note),
            Note::Connected(connection, header) if header.get("service").is_some() => {
                self.services.add_client(context, connection, &header);
            }
            Note::Connected(connection, header) => {
                self.publications.add_subscriber(context, connection, &header);
            }
            Note::SubscriberLeft { topic, id } => {
                self.publications.on_subscriber_left(context, &topic, id);
            }
            Note::Identified { topic, id, identity } => {
                self.publications.on_identified(&topic, id, identity);
            }
            Note::Api(call, reply) => {
                let mut api = SlaveApi {
                    context,
                    polling: &mut self.polling,
                    registrar: &mut self.registrar,
                    subscriptions: &mut self.subscriptions,
                    publications: &self.publications,
                };
                // The caller may have left.
                let _ = reply.send(api.respond(call));
            }
        }
    }

    /// Compares what the master lists with what each part needs there.
    fn on_polled(&mut self, result: Result<Poll, CallError>) {
        let context = &mut self.context;
        self.polling.end_poll(context, result.as_ref().err());
        if let Ok(Poll { mut snapshot, namesake, lost }) = result {
            let listed = self.registrar.merge(context, &mut snapshot, &lost);
            self.publications.on_snapshot(&snapshot);
            self.registrar.check_name(context, namesake, &snapshot);
            let needed = NeededRegistrations {
                subscriptions: &self.subscriptions,
                publications: &self.publications,
                services: &self.services,
            };
            self.registrar.update(context, &snapshot, &listed, needed);
            self.description.on_snapshot(context, &snapshot);
            self.services.on_snapshot(&snapshot);
            self.subscriptions.on_snapshot(&snapshot);
        }
        self.subscriptions.after_discovery(context);
        self.services.after_discovery(context);
        self.subscriptions.refresh_all(context);
    }

    /// A call that registers has ended.
    fn on_registered(&mut self, attempt: Attempt, outcome: Result<Vec<String>, RegistrationError>) {
        let context = &mut self.context;
        let (role, name) = (attempt.role, attempt.name.clone());
        if !self.registrar.on_registered(context, attempt, &outcome) {
            return;
        }
        match (role, outcome) {
            (Role::Publisher, Ok(_)) => self.publications.clear_conflict(context, &name),
            (Role::Subscriber, Ok(publishers)) => {
                self.subscriptions.set_publishers(context, &name, publishers);
            }
            (Role::Service, Ok(_)) => self.services.clear_refusal(context, &name),
            (_, Err(RegistrationError::Conflict(reason))) => {
                self.publications.refuse(context, &name, reason);
            }
            (_, Err(RegistrationError::ServedLocally(node))) => {
                self.services.refuse(context, &name, &node)
            }
            (_, Err(RegistrationError::NameTaken | RegistrationError::Master(_))) => {}
        }
    }

    async fn leave_master(&mut self) {
        self.subscriptions.end_silently();
        if self.context.setup.shared.connected.load(Ordering::Relaxed) {
            self.registrar.leave(&self.context).await;
            self.description.remove_copies(&self.context).await;
        }
    }
}

/// Waits until `time`, or forever if there is none.
async fn wait_until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}
