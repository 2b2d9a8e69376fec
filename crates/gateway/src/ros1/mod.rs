// SPDX-License-Identifier: Apache-2.0
//! ROS 1 at either end: a node of the local master that speaks XML-RPC and
//! TCPROS, with topics of any type as bytes.
//!
//! [`Ros1`] owns one thread with a single-threaded runtime. All state is in one
//! task there, the actor; everything that waits (calls, connections) is a task
//! of its own that reports to it by a `Note`. Messages from local publishers do
//! not pass through the actor: their reader emits them.
//!
//! | To change | open |
//! |---|---|
//! | what happens upon a command, a call or a result | `actor/` |
//! | which topics are offered, and when no longer | `discovery.rs` |
//! | how a publisher is found, probed and connected to | `connection.rs`, `inquiry.rs` |
//! | how messages are read | `subscription.rs` |
//! | how messages reach local subscribers, queues, latching | `publication.rs` |
//! | which definitions of local publishers are kept | `definitions.rs` |
//! | which services are offered, and when no longer | `services.rs` |
//! | how services are called and served | `rpc.rs`, `actor/services.rs` |
//! | what other nodes may call | `slave.rs` |
//! | on which addresses nodes reach us; whose connections are taken | `listening.rs`; `door.rs` |
//! | which connection gives way when there are too many | `seats.rs` |
//! | what is asked of the master; which registration comes first | `master.rs`; `turns.rs` |
//! | how names of hosts are looked up | `look_ups.rs` |
//! | how many bytes calls may hold together | `room.rs` |

mod actor;
mod connection;
mod definitions;
mod discovery;
mod door;
#[cfg(fuzzing)]
pub mod fuzzing;
pub mod header;
mod inquiry;
mod listening;
mod look_ups;
mod master;
mod publication;
mod room;
mod rpc;
mod seats;
mod services;
mod slave;
mod subscription;
mod turns;
mod xmlrpc;

use crate::backlog::Backlog;
use crate::drops::Drops;
use crate::networks::Network;
use crate::plain::plain;
use crate::rejections::{Reason, Rejections};
use crate::threads;
use crate::types::installed::Installed;
use crate::{CallId, Command, Events, Gateway, GatewayStatus, Selector};
use actor::{Actor, Note, Setup};
use connection::Identity;
use definitions::Definitions;
use door::Door;
use listening::{Listening, Port};
use std::collections::BTreeMap;
use std::io;
use std::net::Ipv6Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// What may be left when the runtime stops: lookups of names that hang.
const RUNTIME_STOP: Duration = Duration::from_millis(200);
/// Bytes that are kept of a text that others wrote.
const MAX_SHOWN: usize = 240;
/// Connections that the system may hold before they are accepted.
const LISTEN_BACKLOG: i32 = 128;

/// How to take part in a ROS 1 system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ros1Options {
    /// The master, as in `ROS_MASTER_URI`: `http://localhost:11311`.
    pub master_uri: String,
    /// Name or address by which local nodes reach this process, as in `ROS_HOSTNAME` or `ROS_IP`.
    pub host: String,
    /// Computers beside this one and the master's whose nodes may connect.
    pub allow: Vec<Network>,
    /// Our node name at that master (`/tautline`); no other node of it may have the same.
    pub node_name: String,
    /// Name of this Tautline node, told to others in connection headers.
    pub tautline_name: String,
    /// Largest message read from a local publisher, in bytes.
    pub max_message: usize,
    /// Where definitions of services are, which ROS 1 does not tell.
    pub installed: Installed,
}

/// Why the gateway could not start. An absent master is no such reason.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The master's URI cannot be used.
    #[error("ROS master: {0}")]
    MasterUri(String),
    /// The node name is no ROS name.
    #[error("ROS node name: {0}")]
    NodeName(#[from] crate::mapping::NameError),
    /// The host is empty or holds what no host name or address has.
    #[error("ROS host name '{0}'; allowed is a host name or an address, as in ROS_HOSTNAME")]
    Host(String),
    /// No port to listen on.
    #[error("listening for ROS 1 nodes: {0}")]
    Listen(io::Error),
    /// No thread or runtime.
    #[error("starting the ROS 1 thread: {0}")]
    Thread(io::Error),
}

/// The gateway to one ROS 1 master.
pub struct Ros1 {
    orders: UnboundedSender<Order>,
    shared: Arc<Shared>,
    location: String,
    thread: Option<JoinHandle<()>>,
}

/// What reaches the gateway's thread from outside.
enum Order {
    Do(Command),
    /// A call that came when too much waited.
    TooMuch(String, CallId),
    Stop,
}

/// What the gateway's thread and its owner share.
#[derive(Default)]
struct Shared {
    backlog: Backlog,
    health: Mutex<Health>,
    drops: Drops,
    rejections: Rejections,
}

/// State that status tells.
#[derive(Default)]
struct Health {
    connected: bool,
    /// Why the master does not answer.
    master_trouble: String,
    /// Another node goes by our name.
    name_trouble: String,
    /// Our host name does not lead to this machine.
    host_trouble: String,
    /// Topics that are not published, with reasons.
    conflicts: BTreeMap<String, String>,
}

impl Shared {
    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trouble(&self) -> String {
        let health = self.health();
        let mut all = [&health.master_trouble, &health.name_trouble, &health.host_trouble]
            .map(String::clone)
            .to_vec();
        all.extend(health.conflicts.values().cloned());
        drop(health);
        all.retain(|trouble| !trouble.is_empty());
        all.join("; ")
    }
}

impl Ros1 {
    /// Starts. `selector` says what may leave this robot; `events`
    /// is called on the gateway's thread. The master may be absent.
    pub fn start(
        options: Ros1Options,
        selector: Selector,
        events: Arc<dyn Events>,
    ) -> Result<Self, StartError> {
        let master = xmlrpc::Endpoint::parse(&options.master_uri)
            .map_err(|error| StartError::MasterUri(error.to_string()))?;
        crate::mapping::check_name(&options.node_name)?;
        let ports = [Port::reserve()?, Port::reserve()?];
        let [api, tcpros] = ports.each_ref().map(|port| port.number);
        let location = options.master_uri.clone();
        let shared = Arc::new(Shared::default());
        let setup = Setup {
            own_uri: own_uri(&options.host, api)?,
            own_services: own_services(&options.host, tcpros),
            tcpros_port: tcpros,
            identity: Identity {
                node_name: options.node_name.clone(),
                tautline_name: options.tautline_name.clone(),
                definitions: Definitions::new(options.installed.clone()),
            },
            options,
            master,
            selector,
            events,
            shared: shared.clone(),
        };
        let told = setup.events.clone();
        let (orders, received) = unbounded_channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(StartError::Thread)?;
        let work = move || {
            runtime.block_on(run(setup, ports, received));
            runtime.shutdown_timeout(RUNTIME_STOP);
        };
        let ended = move |name: &str, end| told.ended(name, end);
        let thread = threads::spawn("ros1", ended, work).map_err(StartError::Thread)?;
        Ok(Self { orders, shared, location, thread: Some(thread) })
    }

    fn order(&self, order: Order) -> bool {
        self.orders.send(order).is_ok()
    }
}

async fn run(setup: Setup, ports: [Port; 2], orders: UnboundedReceiver<Order>) {
    let names = [&setup.options.host, &setup.master.host, &setup.options.node_name];
    let (names, shared) = (names.map(String::clone), setup.shared.clone());
    let door = Arc::new(Door::new(setup.options.allow.clone()));
    let actor = Actor::new(setup);
    let mut listening = Listening::new(names, ports, door, shared, actor.notes());
    // Nodes come as soon as the master knows of us.
    listening.refresh().await;
    tokio::select! {
        () = actor.run(orders) => {}
        () = listening.keep() => tracing::error!("a listener of the ROS 1 gateway has ended"),
    }
}

impl Gateway for Ros1 {
    fn handle(&self, command: Command) {
        let Command::Publish { topic, payload, .. } = &command else {
            let bound = self.shared.backlog.bound(command);
            self.order(bound.map_or_else(|(name, call)| Order::TooMuch(name, call), Order::Do));
            return;
        };
        let bytes = payload.len();
        if !self.shared.backlog.admit(bytes) {
            self.shared.rejections.add(topic, Reason::GatewayBehind);
        } else if !self.order(Order::Do(command)) {
            self.shared.backlog.release(bytes);
        }
    }

    fn status(&self) -> GatewayStatus {
        // The lock is given back before more is asked.
        let connected = self.shared.health().connected;
        GatewayStatus {
            kind: "ros1",
            location: self.location.clone(),
            connected,
            trouble: self.shared.trouble(),
            slow_subscriber_drops: self.shared.drops.all(),
            rejected: self.shared.rejections.all(),
        }
    }

    fn shutdown(mut self: Box<Self>) {
        self.order(Order::Stop);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the ROS 1 thread had panicked");
        }
    }
}

/// What is kept of a text that others wrote, which may be as long as a header and hold anything,
/// and how it may stand in logs and status.
fn shown(text: &str) -> String {
    plain(text, MAX_SHOWN)
}

/// The URI of our services, as masters and nodes will call it; `host` has passed [`own_uri`].
fn own_services(host: &str, port: u16) -> String {
    match host.parse::<Ipv6Addr>() {
        Ok(_) => format!("rosrpc://[{host}]:{port}"),
        Err(_) => format!("rosrpc://{host}:{port}"),
    }
}

/// The URI of our slave API, as masters and nodes will call it.
fn own_uri(host: &str, port: u16) -> Result<String, StartError> {
    let bracketed =
        if host.parse::<Ipv6Addr>().is_ok() { format!("[{host}]") } else { host.to_owned() };
    let uri = format!("http://{bracketed}:{port}/");
    let wrong = || StartError::Host(host.into());
    let parsed = xmlrpc::Endpoint::parse(&uri).map_err(|_| wrong())?;
    if parsed.host == host && parsed.port == port { Ok(uri) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_become_uris_or_are_refused_by_name() {
        assert_eq!(own_uri("My_robot-1.local", 40).unwrap(), "http://My_robot-1.local:40/");
        assert_eq!(own_uri("robot1", 40).unwrap(), "http://robot1:40/");
        assert_eq!(own_uri("::1", 40).unwrap(), "http://[::1]:40/");
        for wrong in ["", "a b", "robot1/", "robot1:40", "user@robot"] {
            let error = own_uri(wrong, 40).unwrap_err().to_string();
            assert!(error.contains(&format!("'{wrong}'")), "{error}");
        }
    }
}
