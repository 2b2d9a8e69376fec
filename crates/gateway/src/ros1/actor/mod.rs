// SPDX-License-Identifier: Apache-2.0
//! All state of the gateway, and what happens upon each command and each note.
//!
//! What should be registered is compared with what the master lists at every
//! poll, and the difference is put right; so a master that was absent, died or
//! restarted needs no case of its own.

mod answers;
mod publishing;
mod reading;
mod services;
mod upkeep;

use super::connection::Identity;
use super::discovery::Discovery;
use super::header::Header;
use super::inquiry::{Found, Inquirer};
use super::master::{Master, Snapshot};
use super::publication::Publication;
use super::room::Room;
use super::seats::Seat;
use super::slave::ApiCall;
use super::subscription::{BEGUN_BYTES, MAX_READERS, ReaderNote, Subscription};
use super::xmlrpc::{CallError, Endpoint};
use super::{Order, Ros1Options, Shared};
use crate::backlog::TOO_MUCH;
use crate::{Command, Event, Events, Selector};
use dxr::Value;
use services::{ServiceNote, ServiceState};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::sleep_until;

/// Notes of tasks that wait for the actor; further tasks wait in turn.
const NOTE_QUEUE: usize = 1024;

/// What the actor is made from.
pub(super) struct Setup {
    pub options: Ros1Options,
    pub master: Endpoint,
    pub own_uri: String,
    pub own_services: String,
    pub tcpros_port: u16,
    pub identity: Identity,
    pub selector: Selector,
    pub events: Arc<dyn Events>,
    pub shared: Arc<Shared>,
}

/// What a task tells the actor.
pub(super) enum Note {
    Polled(Result<Poll, CallError>),
    Found(Found),
    Subscribed { topic: String, serial: u64, publishers: Result<Vec<String>, CallError> },
    Advertised { topic: String, serial: u64, outcome: Result<(), NotAdvertised> },
    Reader { topic: String, uri: String, serial: u64, note: ReaderNote },
    Subscriber(Visitor, Header),
    SubscriberLeft { topic: String, id: u64 },
    Service(ServiceNote),
    Api(ApiCall, oneshot::Sender<Value>),
}

/// A TCPROS connection from elsewhere.
pub(super) struct Visitor {
    pub stream: TcpStream,
    pub peer: SocketAddr,
    /// Free again when the connection ends.
    pub seat: Seat,
}

/// What one poll of the master found.
pub(super) struct Poll {
    snapshot: Snapshot,
    /// Whether our name was asked after, and the live node that goes by it.
    name_asked: bool,
    namesake: Option<String>,
}

/// Why a topic was not registered.
pub(super) enum NotAdvertised {
    Conflict(String),
    Master(CallError),
}

/// The state.
pub(super) struct Actor {
    setup: Setup,
    inquirer: Inquirer,
    discovery: Discovery,
    subscriptions: BTreeMap<String, Subscription>,
    /// Places for the readers of all subscriptions.
    readers: Arc<Semaphore>,
    begun: Arc<Room>,
    publications: BTreeMap<String, Publication>,
    services: ServiceState,
    notes: mpsc::Sender<Note>,
    received: mpsc::Receiver<Note>,
    next_serial: u64,
    polling: bool,
    poll_began: Instant,
    poll_again: bool,
    next_poll: Instant,
    /// Whether a master told us that another node took our name.
    name_taken: bool,
}

impl Actor {
    pub fn new(setup: Setup) -> Self {
        let (notes, received) = mpsc::channel(NOTE_QUEUE);
        let node_name = setup.options.node_name.clone();
        let master = Arc::new(Master::new(
            setup.master.clone(),
            &node_name,
            &setup.own_uri,
            &setup.own_services,
        ));
        Self {
            inquirer: Inquirer::new(master, setup.identity.clone(), setup.own_uri.clone()),
            discovery: Discovery::new(&node_name, setup.selector.clone()),
            subscriptions: BTreeMap::new(),
            readers: Arc::new(Semaphore::new(MAX_READERS)),
            begun: Room::new(BEGUN_BYTES, setup.options.max_message),
            publications: BTreeMap::new(),
            services: ServiceState::new(&setup.options, setup.selector.clone()),
            notes,
            received,
            next_serial: 0,
            polling: false,
            poll_began: Instant::now(),
            poll_again: false,
            next_poll: Instant::now(),
            name_taken: false,
            setup,
        }
    }

    /// Where tasks tell what they found.
    pub fn notes(&self) -> mpsc::Sender<Note> {
        self.notes.clone()
    }

    /// Runs until stopped, or until nobody can give orders any more.
    pub async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::Do(command)) => self.command(command),
                    Some(Order::TooMuch(service, call)) => {
                        self.emit(Event::Answered { service, call, outcome: Err(TOO_MUCH.into()) });
                    }
                    Some(Order::Stop) | None => break,
                },
                Some(note) = self.received.recv() => self.note(note),
                () = sleep_until(self.next_poll.into()) => self.poll(),
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
            Command::Publish { topic, source, payload } => self.publish(&topic, source, payload),
            Command::Serve { service } => self.serve(service),
            Command::Unserve { service } => self.unserve(&service),
            Command::Answer { call, outcome, .. } => self.answer(call, outcome),
            Command::Call { service, call, request, patience } => {
                self.call(service, call, request, patience);
            }
            Command::Reselect => self.reselect(),
        }
    }

    /// What may not leave any more is forgotten; what else may is in the master's next word.
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
            Note::Found(Found::Probed { topic, node, found }) => {
                self.discovery.on_probed(&topic, &node, found, Instant::now());
                self.after_discovery();
            }
            Note::Found(Found::Checked { node, found }) => {
                self.discovery.on_checked(&node, found, Instant::now());
                self.after_discovery();
            }
            Note::Subscribed { topic, serial, publishers } => {
                self.subscribed(&topic, serial, publishers);
            }
            Note::Advertised { topic, serial, outcome } => {
                self.advertised(&topic, serial, outcome);
            }
            Note::Reader { topic, uri, serial, note } => self.reader(&topic, &uri, serial, note),
            Note::Service(note) => self.service_note(note),
            Note::Subscriber(visitor, header) if header.get("service").is_some() => {
                self.service_client(visitor, &header);
            }
            Note::Subscriber(visitor, header) => self.subscriber(visitor, &header),
            Note::SubscriberLeft { topic, id } => self.subscriber_left(&topic, id),
            Note::Api(call, reply) => {
                // The caller may have gone.
                let _ = reply.send(self.api(call));
            }
        }
    }

    /// Runs `task` apart; what it gives comes back as a note.
    fn spawn(&self, task: impl Future<Output = Note> + Send + 'static) {
        let notes = self.notes.clone();
        tokio::spawn(async move {
            // Fails only while the gateway stops.
            let _ = notes.send(task.await).await;
        });
    }
}
