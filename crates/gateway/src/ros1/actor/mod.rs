// SPDX-License-Identifier: Apache-2.0
//! The state of the gateway, and the effect of each command and each note.

mod description;
mod publishing;
mod registrations;
mod services;
mod slave_api;
mod subscribing;

use super::actions::Actions;
use super::byte_budget::ByteBudget;
use super::connection::Identity;
use super::discovery::Discovery;
use super::master::{Master, NodesByName, OwnNode, Role};
use super::mirror::Mirrors;
use super::note::Note;
use super::options::Ros1Options;
use super::order::Order;
use super::polls::{Polls, TOPIC_OF_ALL_NODES};
use super::probes::Prober;
use super::publication::Publication;
use super::registration::Registrations;
use super::stand_ins::StandIns;
use super::subscription::{INCOMPLETE_BYTES, MAX_READERS, Subscription};
use super::xmlrpc::Endpoint;
use crate::deliveries::Deliveries;
use crate::shared::Shared;
use crate::{Command, Event, Events, Selector};
use description::Described;
use services::ServiceState;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::sleep_until;

/// Notes queued for the actor; beyond them the sending tasks wait.
const NOTE_QUEUE: usize = 1024;

/// The constant part of the state.
pub(super) struct Setup {
    pub options: Ros1Options,
    pub master: Endpoint,
    pub own: OwnNode,
    pub tcpros_port: u16,
    pub identity: Identity,
    pub selector: Selector,
    pub events: Arc<dyn Events>,
    pub actions: Arc<Actions>,
    pub shared: Arc<Shared>,
}

pub(super) struct Actor {
    setup: Setup,
    prober: Prober,
    discovery: Discovery,
    subscriptions: BTreeMap<String, Subscription>,
    /// Limits the readers of all subscriptions.
    readers: Arc<Semaphore>,
    incomplete: Arc<ByteBudget>,
    publications: BTreeMap<String, Publication>,
    /// Publications that have ended, with subscribers. rospy does not close a connection whose publisher
    /// left the master, and waits ever longer before it makes a new one.
    ended_publications: BTreeMap<String, Publication>,
    deliveries: Deliveries,
    /// The subscribers when the master first answered, of topics with messages delivered before. Others
    /// have left since, or are new.
    subscribed_at_start: Option<NodesByName>,
    services: ServiceState,
    registrations: Registrations,
    notes: mpsc::Sender<Note>,
    received: mpsc::Receiver<Note>,
    next_serial: u64,
    polls: Polls,
    described: Described,
    stand_ins: StandIns,
    mirrors: Mirrors,
    /// Whether the master answers, as last logged; `None` before the first poll.
    logged_connected: Option<bool>,
    /// Whether another node may have our name: nothing is registered until that is known.
    name_is_doubtful: bool,
}

impl Actor {
    pub fn new(setup: Setup) -> Self {
        let (notes, received) = mpsc::channel(NOTE_QUEUE);
        let master = Arc::new(Master::new(setup.master.clone(), setup.own.clone()));
        Self {
            prober: Prober::new(master, setup.identity.clone(), setup.own.uri.clone()),
            discovery: Discovery::new(&setup.own.name, setup.selector.clone()),
            subscriptions: BTreeMap::new(),
            readers: Arc::new(Semaphore::new(MAX_READERS)),
            incomplete: ByteBudget::new(INCOMPLETE_BYTES, setup.options.max_message),
            publications: BTreeMap::new(),
            ended_publications: BTreeMap::new(),
            deliveries: Deliveries::open(setup.options.deliveries.clone()),
            subscribed_at_start: None,
            services: ServiceState::new(&setup.options, setup.selector.clone()),
            registrations: Registrations::default(),
            notes,
            received,
            next_serial: 0,
            polls: Polls::new(Instant::now()),
            described: Described::default(),
            stand_ins: StandIns::default(),
            mirrors: Mirrors::default(),
            logged_connected: None,
            name_is_doubtful: false,
            setup,
        }
    }

    pub fn notes(&self) -> mpsc::Sender<Note> {
        self.notes.clone()
    }

    /// Runs until stopped, or until all senders of orders are dropped.
    pub async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        self.add_registration(Role::Subscriber, TOPIC_OF_ALL_NODES);
        let actions = self.setup.actions.clone();
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::Do(command)) => {
                        if let Some(command) = actions.command(command) {
                            self.command(command);
                        }
                    }
                    Some(Order::Own(command)) => self.command(command),
                    Some(Order::Emit(event)) => self.emit(event),
                    Some(Order::Stop) | None => break,
                },
                Some(note) = self.received.recv() => self.note(note),
                () = reached(self.polls.next()) => self.poll(),
                () = reached(actions.next_timeout()) => actions.handle_timeout(),
                () = actions.changed() => {}
            }
        }
        self.unregister_all().await;
    }

    fn serial(&mut self) -> u64 {
        self.next_serial += 1;
        self.next_serial
    }

    fn emit(&self, event: Event) {
        self.setup.events.emit(event);
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Subscribe { topic } => self.subscribe(topic),
            Command::Unsubscribe { topic } => self.unsubscribe(&topic),
            Command::Advertise { topic } => self.advertise(topic),
            Command::Unadvertise { topic } => self.unadvertise(&topic),
            Command::Publish { topic, source, payload, origin } => {
                self.publish(&topic, source, payload, &origin);
            }
            Command::Forget { topic, source } => self.forget(&topic, source),
            Command::Serve { service } => self.serve(service),
            Command::Unserve { service } => self.unserve(&service),
            Command::Answer { call, outcome, .. } => self.answer(call, outcome),
            Command::Call { service, call, request, patience, .. } => {
                self.call(service, call, request, patience);
            }
            Command::Describe { nodes, parameters } => self.set_described(nodes, parameters),
            Command::StandIn { peer, nodes } => self.stand_in(peer, nodes),
            Command::Mirror { peer, prefix, parameters } => {
                self.mirrors.set(peer, prefix, parameters);
            }
            Command::SetParameters { parameters } => self.set_parameters(parameters),
            Command::Reselect => self.reselect(),
        }
    }

    /// Withdraws what may no longer leave the robot; the next poll adds what now may.
    fn reselect(&mut self) {
        self.discovery.reselect();
        self.services.discovery.reselect();
        self.after_discovery();
        self.after_service_discovery();
        self.poll();
    }

    fn note(&mut self, note: Note) {
        match note {
            Note::Polled(result) => self.polled(result),
            Note::Probed { topic, node, result } => {
                self.discovery.on_probed(&topic, &node, result, Instant::now());
                self.after_discovery();
            }
            Note::Checked { node, result } => {
                self.discovery.on_checked(&node, result, Instant::now());
                self.after_discovery();
            }
            Note::Registered { role, name, caller, serial, outcome } => {
                self.registered(role, &name, caller, serial, outcome);
            }
            Note::Parameters(found) => self.parameters_found(found),
            Note::ParametersSet(done) => self.parameters_set(done),
            Note::Mirrored { peer, mirrored } => self.mirrored(peer, mirrored),
            Note::Reader { topic, uri, serial, note } => {
                self.reader_note(&topic, &uri, serial, note);
            }
            Note::Service(note) => self.service_note(note),
            Note::Connected(connection, header) if header.get("service").is_some() => {
                self.add_client(connection, &header);
            }
            Note::Connected(connection, header) => self.add_subscriber(connection, &header),
            Note::SubscriberLeft { topic, id } => self.subscriber_left(&topic, id),
            Note::Identified { topic, id, identity } => self.identified(&topic, id, identity),
            Note::Api(call, reply) => {
                // The caller may have left.
                let _ = reply.send(self.api(call));
            }
        }
    }

    /// Spawns a task whose result is a note.
    fn spawn(&self, task: impl Future<Output = Note> + Send + 'static) {
        let notes = self.notes.clone();
        tokio::spawn(async move {
            // Fails only while the gateway stops.
            let _ = notes.send(task.await).await;
        });
    }
}

/// Waits for a time, or without one forever.
async fn reached(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}
