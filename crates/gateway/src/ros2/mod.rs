// SPDX-License-Identifier: Apache-2.0
//! ROS 2 at either end: a node in a DDS domain of this machine, with topics of any type as CDR.
//!
//! [`Ros2`] owns two threads. One holds all state, the actor: it takes in who comes and goes,
//! and makes and ends readers and writers. The other writes what arrives from peers, so that
//! neither waits for the other. Messages from local publishers pass through neither: Cyclone
//! DDS's threads emit them.
//!
//! | To change | open |
//! |---|---|
//! | what happens upon a command or a discovery | `actor/mod.rs` |
//! | which topics are offered and wanted, with which quality of service | `discovery.rs` |
//! | how messages are read | `subscription.rs` |
//! | how messages reach local subscribers | `publication.rs` |
//! | which peer's message is written next | `outbox.rs` |
//! | how many messages late joiners get | `history.rs` |
//! | how our node shows in the ROS graph | `graph.rs` |
//! | what happens to services | `actor/services.rs` |
//! | who serves what | `servers.rs` |
//! | what local nodes have in the way of what peers have | `conflict.rs` |
//! | how local servers are called; how local clients are served | `calls.rs`; `served.rs` |
//! | which reply answers which request | `pairing.rs` |
//! | what ROS 2 and DDS call things | `names.rs`, `qos.rs` |

mod actor;
mod calls;
mod conflict;
mod discovery;
pub mod graph;
mod history;
pub mod names;
mod outbox;
mod pairing;
mod publication;
mod qos;
mod served;
mod servers;
mod subscription;

use crate::backlog::Backlog;
use crate::drops::Drops;
use crate::rejections::{Reason, Rejections};
use crate::threads;
use crate::types::installed::Installed;
use crate::{CallId, Command, Events, Gateway, GatewayStatus, Selector, Source};
use actor::{Actor, Setup};
use bytes::Bytes;
use outbox::Outbox;
use publication::Publication;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;
use tautline_dds::{Discovery, Participant};

pub use tautline_dds::{MAX_DOMAIN, Range};

/// How to take part in a ROS 2 system.
#[derive(Debug, Clone)]
pub struct Ros2Options {
    /// As in `ROS_DOMAIN_ID`, 0 to [`MAX_DOMAIN`].
    pub domain: u32,
    /// As in `ROS_AUTOMATIC_DISCOVERY_RANGE`.
    pub range: Range,
    /// Our node name with its namespace (`/tautline`).
    pub node_name: String,
    /// This node's name in the team, by which other nodes on this machine know it.
    pub tautline_name: String,
    /// Largest message that is read, in bytes.
    pub max_message: usize,
    /// Where definitions of types are.
    pub installed: Installed,
}

/// Why the gateway cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The node name.
    #[error(transparent)]
    Name(#[from] crate::mapping::NameError),
    /// DDS refuses.
    #[error("joining ROS 2's domain {domain}: {error}")]
    Dds {
        /// Which domain.
        domain: u32,
        /// What was refused.
        error: tautline_dds::DdsError,
    },
    /// No thread.
    #[error("starting the ROS 2 threads: {0}")]
    Thread(io::Error),
}

/// The gateway to one DDS domain.
pub struct Ros2 {
    orders: Sender<Order>,
    outbound: Sender<Outbound>,
    shared: Arc<Shared>,
    location: String,
    threads: Vec<JoinHandle<()>>,
}

/// What reaches the actor from outside.
enum Order {
    Do(Command),
    /// A call that came when too many bytes waited.
    TooMuch {
        service: String,
        call: CallId,
    },
    Discovered(Discovery),
    /// Participants give GUIDs another size in the ROS graph; one such order waits at a time.
    Graph,
    /// Our node has one more writer.
    Redraw,
    Stop,
}

/// A message to be written.
struct Outbound {
    publication: Arc<Publication>,
    source: Source,
    payload: Bytes,
}

/// What the threads and their owner share.
#[derive(Default)]
struct Shared {
    backlog: Backlog,
    publications: RwLock<HashMap<String, Arc<Publication>>>,
    /// Calls by local clients so far.
    calls: AtomicU64,
    health: Mutex<Health>,
    drops: Drops,
    rejections: Rejections,
}

/// State that status tells.
#[derive(Default)]
struct Health {
    /// Trouble with topics, by topic and kind.
    troubles: BTreeMap<(String, &'static str), String>,
}

/// Messages taken from the node before the next one is written.
const TAKEN_AT_ONCE: usize = 1024;
/// Troubles that [`Health`] holds; what comes after is left out of status.
const MAX_TROUBLES: usize = 1024;

impl Shared {
    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publication(&self, topic: &str) -> Option<Arc<Publication>> {
        let all = self.publications.read().unwrap_or_else(PoisonError::into_inner);
        all.get(topic).cloned()
    }

    fn trouble(&self) -> String {
        let all: Vec<String> = self.health().troubles.values().cloned().collect();
        all.join("; ")
    }
}

impl Health {
    /// Enters, replaces or (empty) removes one kind of trouble with a topic.
    fn set(&mut self, topic: &str, kind: &'static str, text: String) {
        let key = (topic.to_owned(), kind);
        if text.is_empty() {
            self.troubles.remove(&key);
        } else if self.troubles.len() < MAX_TROUBLES || self.troubles.contains_key(&key) {
            self.troubles.insert(key, text);
        }
    }
}

impl Ros2 {
    /// Starts. `selector` says what may leave this robot; `events` is called
    /// on the gateway's threads and on those of Cyclone DDS.
    pub fn start(
        options: Ros2Options,
        selector: Selector,
        events: Arc<dyn Events>,
    ) -> Result<Self, StartError> {
        crate::mapping::check_name(&options.node_name)?;
        let domain = options.domain;
        let location = format!(
            "domain {domain}, {}",
            match options.range {
                Range::Loopback => "localhost",
                Range::Machine => "this machine",
            }
        );
        let refused = |error| StartError::Dds { domain, error };
        let user_data = names::participant_user_data(&options.tautline_name);
        let participant =
            Participant::new(domain, options.range, user_data.as_bytes()).map_err(refused)?;
        let shared = Arc::<Shared>::default();
        let (orders, received) = channel();
        let (outbound, to_write) = channel();
        let setup = Setup {
            options,
            participant,
            selector,
            events,
            shared: shared.clone(),
            orders: orders.clone(),
        };
        let told = setup.events.clone();
        let actor = Actor::new(setup).map_err(refused)?;
        let writes = shared.clone();
        let threads = vec![
            spawn("ros2", told.clone(), move || actor.run(&received))?,
            spawn("ros2-out", told, move || write(&writes, &to_write))?,
        ];
        Ok(Self { orders, outbound, shared, location, threads })
    }

    fn publish(&self, topic: &str, source: Source, payload: Bytes) {
        let Some(publication) = self.shared.publication(topic) else { return };
        let bytes = payload.len();
        if !self.shared.backlog.admit(bytes) {
            self.shared.rejections.add(topic, Reason::GatewayBehind);
        } else if self.outbound.send(Outbound { publication, source, payload }).is_err() {
            self.shared.backlog.release(bytes);
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

/// Writes what comes, until the gateway has ended and nothing waits.
fn write(shared: &Shared, messages: &Receiver<Outbound>) {
    let mut outbox = Outbox::default();
    loop {
        if outbox.is_empty() {
            let Ok(first) = messages.recv() else { return };
            take_in(shared, &mut outbox, first);
        }
        let more = messages.try_iter().take(TAKEN_AT_ONCE);
        more.for_each(|message| take_in(shared, &mut outbox, message));
        if let Some(Outbound { publication, source, payload }) = outbox.next() {
            shared.backlog.release(payload.len());
            publication.write(source, payload);
        }
    }
}

/// Peers have lower numbers.
const NODE_ITSELF: u32 = u32::MAX >> 8;

fn take_in(shared: &Shared, outbox: &mut Outbox<Outbound>, message: Outbound) {
    // As the node numbers sources.
    let peer = message.source.0 >> 8;
    let bytes = message.payload.len();
    // A watchdog's stop comes after the commands that arrived before it.
    let is_before = |it: &Outbound| Arc::ptr_eq(&it.publication, &message.publication);
    let before = (peer == NODE_ITSELF).then(|| outbox.last_with(is_before)).flatten();
    let pushed = match before {
        Some(before) => outbox.push(before, bytes, message),
        None => Err(message),
    };
    if let Err(refused) = pushed.or_else(|message| outbox.push(peer, bytes, message)) {
        shared.backlog.release(refused.payload.len());
        shared.rejections.add(&refused.publication.topic.name, Reason::GatewayBehind);
    }
}

impl Gateway for Ros2 {
    fn handle(&self, command: Command) {
        let order = match command {
            Command::Publish { topic, source, payload } => {
                return self.publish(&topic, source, payload);
            }
            other => match self.shared.backlog.bound(other) {
                Ok(command) => Order::Do(command),
                Err((service, call)) => Order::TooMuch { service, call },
            },
        };
        // Fails only after the thread has died, which is logged when it is joined.
        let _ = self.orders.send(order);
    }

    fn status(&self) -> GatewayStatus {
        GatewayStatus {
            kind: "ros2",
            location: self.location.clone(),
            connected: true,
            trouble: self.shared.trouble(),
            slow_subscriber_drops: self.shared.drops.all(),
            rejected: self.shared.rejections.all(),
        }
    }

    fn shutdown(self: Box<Self>) {
        let Self { orders, outbound, shared: _, location: _, threads } = *self;
        let _ = orders.send(Order::Stop);
        drop((orders, outbound));
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a ROS 2 thread had panicked");
            }
        }
    }
}
