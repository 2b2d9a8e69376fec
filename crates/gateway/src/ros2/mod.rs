// SPDX-License-Identifier: Apache-2.0
//! The gateway to ROS 2: a node in a DDS domain of this machine, with topics of any type as CDR.
//!
//! [`Ros2`] owns two threads. One, the actor, holds the state: it processes discovery, and creates
//! and deletes readers and writers. The other writes the messages of peers, so that neither waits
//! for the other. Messages of local publishers pass through neither: threads of Cyclone DDS emit
//! them.
//!
//! | To change | open |
//! |---|---|
//! | the effect of a command or a discovery | `actor/mod.rs`, and the parts alongside it |
//! | endpoints of the domain; what our own ones share | `endpoints.rs`; `endpoint_context.rs` |
//! | which topics are offered and wanted, with which quality of service | `discovery.rs` |
//! | how messages are read; from which publishers | `subscription.rs`; `writers.rs` |
//! | how messages reach local subscribers | `publication.rs`, `readers.rs` |
//! | which peer's message is written next | `outbox.rs` |
//! | how many messages late joiners get | `history.rs` |
//! | our node in the ROS graph: its messages; when they are sent | `graph.rs`; `actor/node_graph.rs` |
//! | nodes of peers in the graph, and nodes here that are reported to peers | `nodes.rs` |
//! | which services are offered | `service_discovery.rs` |
//! | conflicts between local nodes and peers | `conflict.rs` |
//! | how local servers are called; how local clients are served | `calls.rs`; `served.rs` |
//! | how the clients of an action learn that a call failed, or that we restarted | `../goals.rs`, `callers.rs` |
//! | which reply answers which request | `pairing.rs` |
//! | whether publishers are alive | `liveliness.rs` |
//! | nodes that we cannot see | `neighbours/` |
//! | names and QoS policies of ROS 2 and DDS | `names.rs`, `qos.rs` |

mod actor;
mod callers;
mod calls;
mod conflict;
mod definitions;
mod discovery;
mod endpoint_context;
mod endpoints;
pub mod graph;
mod history;
mod liveliness;
mod names;
mod neighbours;
mod nodes;
mod options;
mod order;
mod outbox;
mod pairing;
mod publication;
mod qos;
mod readers;
mod served;
mod service_discovery;
mod source_writers;
mod subscription;
pub mod survey;
mod writers;

use crate::lock::lock;
use crate::rejections::Reason;
use crate::shared::Shared;
use crate::threads;
use crate::{Command, Events, Gateway, GatewayStatus, Origin, Selector, Source};
use actor::{Actor, Setup};
use bytes::Bytes;
use endpoint_context::EndpointContext;
use order::Order;
use outbox::Outbox;
use publication::{Publication, SharedPublications};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use tautline_dds::Participant;

pub use options::{Ros2Options, StartError};
pub use tautline_dds::{DiscoveryRange, MAX_DOMAIN};

/// The gateway to one DDS domain.
pub struct Ros2 {
    orders: Sender<Order>,
    outbound: Sender<Outbound>,
    /// Dropped to stop the thread that looks for hidden neighbours.
    watching: Sender<()>,
    shared: Arc<Shared>,
    publications: SharedPublications,
    location: String,
    threads: Vec<JoinHandle<()>>,
}

struct Outbound {
    publication: Arc<Publication>,
    source: Source,
    /// `None`: forget the messages that are kept of the source.
    message: Option<(Bytes, Origin)>,
}

impl Outbound {
    fn bytes(&self) -> usize {
        self.message.as_ref().map_or(0, |(payload, _)| payload.len())
    }
}

/// Maximum number of messages that are queued in a row before the next message is written.
const QUEUED_AT_ONCE: usize = 1024;

impl Ros2 {
    /// Starts the gateway. `selector` decides what may leave this robot; `events` is called on the
    /// gateway's threads and on those of Cyclone DDS.
    pub fn start(
        options: Ros2Options,
        selector: Selector,
        events: Arc<dyn Events>,
    ) -> Result<Self, StartError> {
        crate::names::check_name(&options.node_name)?;
        let (domain, range) = (options.domain, options.range);
        let range_text = match options.range {
            DiscoveryRange::Loopback => "localhost",
            DiscoveryRange::Machine => "this machine",
        };
        let location = format!("domain {domain}, {range_text}");
        let refused = |error| StartError::Dds { domain, error };
        let user_data = names::participant_user_data(&options.tautline_name);
        let participant =
            Participant::new(domain, options.range, user_data.as_bytes()).map_err(refused)?;
        let shared = Arc::new(Shared { connected: AtomicBool::new(true), ..Shared::default() });
        neighbours::check_own_settings(options.range, &shared);
        let publications = SharedPublications::default();
        let (orders, received) = channel();
        let (outbound, to_write) = channel();
        let endpoints = EndpointContext::new(&options, participant, shared.clone(), events.clone());
        let setup = Setup {
            options,
            endpoints,
            selector,
            publications: publications.clone(),
            orders: orders.clone(),
        };
        let actor = Actor::new(setup).map_err(refused)?;
        let (writer_shared, watcher_shared) = (shared.clone(), shared.clone());
        let (watching, stopped) = channel();
        let watch = move || neighbours::watch(domain, range, &watcher_shared, &stopped);
        let threads = vec![
            spawn("ros2", events.clone(), move || actor.run(&received))?,
            spawn("ros2-near", events.clone(), watch)?,
            spawn("ros2-out", events, move || write(&writer_shared, &to_write))?,
        ];
        Ok(Self { orders, outbound, watching, shared, publications, location, threads })
    }

    fn publish(&self, topic: &str, source: Source, message: Option<(Bytes, Origin)>) {
        let Some(publication) = lock(&self.publications).get(topic).cloned() else { return };
        let message = Outbound { publication, source, message };
        let bytes = message.bytes();
        if self.shared.admit(topic, bytes) && self.outbound.send(message).is_err() {
            self.shared.backlog.release(bytes);
        }
    }

    fn forget_all(&self, topic: &str) {
        let publication = lock(&self.publications).get(topic).cloned();
        if let Some(publication) = publication {
            publication.forget(None);
        }
    }
}

fn spawn(
    name: &str,
    events: Arc<dyn Events>,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, StartError> {
    let ended = move |name: &str, end| events.ended(name, end);
    threads::spawn(name, ended, work).map_err(StartError::Thread)
}

/// Writes messages until the gateway has ended and the queues are empty.
fn write(shared: &Shared, messages: &Receiver<Outbound>) {
    let mut outbox = Outbox::default();
    loop {
        if outbox.is_empty() {
            let Ok(first) = messages.recv() else { return };
            enqueue(shared, &mut outbox, first);
        }
        let more = messages.try_iter().take(QUEUED_AT_ONCE);
        more.for_each(|message| enqueue(shared, &mut outbox, message));
        let Some(next) = outbox.next() else { continue };
        shared.backlog.release(next.bytes());
        match next.message {
            Some((payload, origin)) => next.publication.write(next.source, payload, &origin),
            None => next.publication.forget(Some(next.source)),
        }
    }
}

fn enqueue(shared: &Shared, outbox: &mut Outbox<Outbound>, message: Outbound) {
    let peer = message.source.peer;
    let bytes = message.bytes();
    // A watchdog's safe message follows the commands that arrived before it.
    let is_same = |queued: &Outbound| Arc::ptr_eq(&queued.publication, &message.publication);
    let behind = if peer.is_none() { outbox.peer_of_last_match(is_same) } else { None };
    let pushed = match behind {
        Some(other) => outbox.push(other, bytes, message),
        None => Err(message),
    };
    if let Err(refused) = pushed.or_else(|message| outbox.push(peer, bytes, message)) {
        shared.backlog.release(refused.bytes());
        shared.rejections.add(&refused.publication.topic.name, Reason::GatewayBehind);
    }
}

impl Gateway for Ros2 {
    fn handle(&self, command: Command) {
        let order = match command {
            Command::Publish { topic, source, payload, origin } => {
                return self.publish(&topic, source, Some((payload, origin)));
            }
            Command::Forget { topic, source: Some(source) } => {
                return self.publish(&topic, source, None);
            }
            Command::Forget { topic, source: None } => return self.forget_all(&topic),
            other => {
                let admitted = self.shared.backlog.admit_command(other);
                admitted.map_or_else(|event| Order::Emit(*event), Order::Execute)
            }
        };
        // Fails only after the thread has ended; shutdown logs that.
        let _ = self.orders.send(order);
    }

    fn status(&self) -> GatewayStatus {
        self.shared.status("ros2", &self.location)
    }

    fn shutdown(self: Box<Self>) {
        let Self { orders, outbound, watching, threads, .. } = *self;
        let _ = orders.send(Order::Stop);
        drop((orders, outbound, watching));
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a ROS 2 thread had panicked");
            }
        }
    }
}
