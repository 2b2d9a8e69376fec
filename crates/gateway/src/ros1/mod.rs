// SPDX-License-Identifier: Apache-2.0
//! The gateway to ROS 1: a node of the local master that speaks XML-RPC and TCPROS, with topics of
//! any type as bytes.
//!
//! [`Ros1`] owns one thread with a single-threaded runtime. One task, the actor, holds the state.
//! Calls and connections are tasks of their own, and report to the actor by a `Note`. Messages of
//! local publishers do not pass through the actor: their readers emit them.
//!
//! | To change | open |
//! |---|---|
//! | the effect of a command, a call or a result | `actor/mod.rs`, and the parts alongside it |
//! | which topics are offered | `discovery.rs` |
//! | how a publisher is found, probed and connected to | `probes.rs`, `connection.rs` |
//! | how messages are read | `subscription.rs` |
//! | which messages a publisher repeats, and their age | `latched.rs` |
//! | which publisher of a node a message belongs to | `shared_connection.rs` |
//! | how messages reach local subscribers, latching; the queue of each | `publication.rs`; `subscriber_queue.rs` |
//! | headers of local subscribers and clients, and why they are refused | `handshake.rs` |
//! | what tasks report to the actor | `note.rs` |
//! | which definitions of local publishers are kept | `definitions.rs` |
//! | which services are offered | `service_discovery.rs` |
//! | how services are called and served | `rpc.rs`, `actor/services.rs` |
//! | actions of actionlib in the form of ROS 2 | `actions/` |
//! | nodes and parameters of this robot that are reported to peers | `actor/description.rs` |
//! | nodes of peers at the master; parameters of peers there | `stand_ins.rs`; `mirror.rs` |
//! | what other nodes may call | `slave.rs` |
//! | the addresses of our sockets; admission of connections | `listeners.rs`; `admission.rs` |
//! | which connection is evicted at a limit | `slots.rs` |
//! | when the master is polled; whether it answers | `polls.rs`; `actor/polling.rs` |
//! | a look at a master, for `tautline doctor` | `look.rs` |
//! | calls of the master; registrations and their order | `master.rs`; `actor/registrar.rs`, `registration.rs`, `backoff.rs` |
//! | resolution of host names | `resolver.rs` |
//! | how many bytes calls may hold together | `byte_budget.rs` |

mod actions;
mod actor;
mod admission;
mod backoff;
mod byte_budget;
mod connection;
mod definitions;
mod discovery;
#[cfg(fuzzing)]
pub mod fuzzing;
mod handshake;
pub mod header;
mod latched;
mod listeners;
pub mod look;
mod master;
mod mirror;
mod note;
mod options;
mod order;
mod polls;
mod probed;
mod probes;
mod publication;
mod registration;
mod resolver;
mod rpc;
mod service_discovery;
mod shared_connection;
mod shown;
mod slave;
mod slots;
mod stand_ins;
mod subscriber_queue;
mod subscription;
pub mod survey;
mod xmlrpc;

use crate::shared::Shared;
use crate::threads;
use crate::{Command, Events, Gateway, GatewayStatus, Selector};
use actions::Actions;
use actor::{Actor, Setup};
use admission::Admission;
use connection::Identity;
use definitions::Definitions;
use listeners::{HostNames, Listeners, Port, Ports};
use master::OwnNode;
use order::Order;
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

pub use options::{Ros1Options, StartError};

/// Time limit for the runtime to stop, since lookups of names may still hang.
const RUNTIME_STOP: Duration = Duration::from_millis(200);
/// The gateway to one ROS 1 master.
pub struct Ros1 {
    orders: UnboundedSender<Order>,
    shared: Arc<Shared>,
    location: String,
    thread: Option<JoinHandle<()>>,
}

impl Ros1 {
    /// Starts the gateway. `selector` decides what may leave this robot; `events` is called on the
    /// gateway's thread. The master may be absent.
    pub fn start(
        options: Ros1Options,
        selector: Selector,
        events: Arc<dyn Events>,
    ) -> Result<Self, StartError> {
        let master = xmlrpc::Endpoint::parse(&options.master_uri)
            .map_err(|error| StartError::MasterUri(error.to_string()))?;
        crate::names::check_name(&options.node_name)?;
        let ports = Ports { api: Port::reserve()?, tcpros: Port::reserve()? };
        let location = options.master_uri.clone();
        let shared = Arc::new(Shared::default());
        let (orders, received) = unbounded_channel();
        let actions = Actions::new(
            &options.tautline_name,
            options.installed.clone(),
            selector,
            events,
            orders.downgrade(),
            shared.clone(),
        );
        let setup = Setup {
            own: OwnNode {
                name: options.node_name.clone(),
                uri: own_uri(&options.host, ports.api.number)?,
                service_uri: format!(
                    "rosrpc://{}:{}",
                    bracketed(&options.host),
                    ports.tcpros.number
                ),
            },
            tcpros_port: ports.tcpros.number,
            identity: Identity {
                node_name: options.node_name.clone(),
                tautline_name: options.tautline_name.clone(),
                definitions: Definitions::new(options.installed.clone()),
            },
            options,
            master,
            selector: actions.selector(),
            events: actions.clone(),
            actions,
            shared: shared.clone(),
        };
        let observer = setup.events.clone();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(StartError::Thread)?;
        let work = move || {
            runtime.block_on(run(setup, ports, received));
            runtime.shutdown_timeout(RUNTIME_STOP);
        };
        let ended = move |name: &str, end| observer.ended(name, end);
        let thread = threads::spawn("ros1", ended, work).map_err(StartError::Thread)?;
        Ok(Self { orders, shared, location, thread: Some(thread) })
    }

    fn order(&self, order: Order) -> bool {
        self.orders.send(order).is_ok()
    }
}

async fn run(setup: Setup, ports: Ports, orders: UnboundedReceiver<Order>) {
    let names = HostNames {
        host: setup.options.host.clone(),
        master_host: setup.master.host.clone(),
        node_name: setup.own.name.clone(),
    };
    let admission = Admission::new(setup.options.allow.clone());
    let shared = setup.shared.clone();
    let actor = Actor::new(setup);
    let mut listeners = Listeners::new(names, ports, admission, shared, actor.notes());
    // Nodes connect as soon as the master lists us.
    listeners.refresh().await;
    tokio::select! {
        () = actor.run(orders) => {}
        () = listeners.run() => tracing::error!("a listener of the ROS 1 gateway has ended"),
    }
}

impl Gateway for Ros1 {
    fn handle(&self, command: Command) {
        let Command::Publish { topic, payload, .. } = &command else {
            let admitted = self.shared.backlog.admit_command(command);
            self.order(admitted.map_or_else(|event| Order::Emit(*event), Order::Execute));
            return;
        };
        let bytes = payload.len();
        if self.shared.admit(topic, bytes) && !self.order(Order::Execute(command)) {
            self.shared.backlog.release(bytes);
        }
    }

    fn status(&self) -> GatewayStatus {
        self.shared.status("ros1", &self.location)
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

/// A host in the form of URIs: an IPv6 address has brackets.
fn bracketed(host: &str) -> String {
    if host.parse::<Ipv6Addr>().is_ok() { format!("[{host}]") } else { host.to_owned() }
}

fn own_uri(host: &str, port: u16) -> Result<String, StartError> {
    let uri = format!("http://{}:{port}/", bracketed(host));
    let invalid = || StartError::Host(host.into());
    let parsed = xmlrpc::Endpoint::parse(&uri).map_err(|_| invalid())?;
    if parsed.host == host && parsed.port == port { Ok(uri) } else { Err(invalid()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_hosts_are_refused_by_name() {
        assert_eq!(own_uri("My_robot-1.local", 40).unwrap(), "http://My_robot-1.local:40/");
        assert_eq!(own_uri("robot1", 40).unwrap(), "http://robot1:40/");
        assert_eq!(own_uri("::1", 40).unwrap(), "http://[::1]:40/");
        for wrong in ["", "a b", "robot1/", "robot1:40", "user@robot"] {
            let error = own_uri(wrong, 40).unwrap_err().to_string();
            assert!(error.contains(&format!("'{wrong}'")), "{error}");
        }
    }
}
