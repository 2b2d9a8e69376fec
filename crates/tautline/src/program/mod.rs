// SPDX-License-Identifier: Apache-2.0
//! A node inside a program: the part of the library that most programs need. The program is the
//! node's local participant, in the place of the robot's ROS in the daemon. Both are a
//! [`Gateway`](tautline_gateway::Gateway) to the data plane.
//!
//! ```text
//! Publisher, Receiver, call ─▶ Participant ─ Events ──▶ data plane (thread "node")
//!                              Participant ◀─ Gateway ─ data plane
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `participant` | the operations of the program, and the commands of the data plane |
//! | `announcer` | the thread that notifies the data plane of changes |
//! | `state` | what the program and its peers do |
//! | `published` | a topic of the program, and its publishers |
//! | `topic`, `service` | the handles of a program |
//! | `message`, `request` | what a program gets |
//! | `message_type` | the types that it publishes |
//! | `queue`, `wait` | bounded queues to the program; one wait for several |

mod announcer;
mod error;
mod message;
mod message_type;
mod participant;
mod published;
mod queue;
mod request;
mod service;
mod state;
mod topic;
mod wait;

pub use error::{CallError, CloseError, PublishError, SendError, ServeError};
pub use message::Message;
pub use message_type::MessageType;
pub use queue::{Receiver, RecvError};
pub use request::Request;
pub use topic::Publisher;
pub use wait::{Wait, wait};

use crate::audit::{Audit, Record};
use crate::config::{Config, ConfigError, Surroundings, load, parse};
use crate::data_plane::{DataPlane, Handle};
use crate::driver::Settings;
use crate::error::{AskError, OpenError, RunError, SystemError};
use crate::status::{LinkReport, Status};
use bytes::Bytes;
use participant::{Participant, ProgramGateway};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tautline_gateway::Qos;
use tautline_gateway::names::{NameError, check_name};
use tautline_proto::PublicKey;

/// A subscription to a topic of peers.
pub type Subscription = Receiver<Message>;
/// The calls of peers to a service of this program.
pub type Server = Receiver<Request>;
/// Events of the node: peers that come up or go down, refusals, changes ([`crate::audit::Event`]).
pub type Events = Receiver<Record>;

/// The time for which a node that closes waits for peers to acknowledge its messages.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The name that errors give to text without a file.
const TEXT_SOURCE_NAME: &str = "configuration";

impl Config {
    /// Reads a robot's file ([`load`]).
    pub fn from_file(file: impl AsRef<Path>) -> Result<Self, ConfigError> {
        load(file.as_ref()).map(|checked| checked.config)
    }

    /// Parses text in the format of a robot's file. Relative paths start from the current folder.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let file = PathBuf::from(TEXT_SOURCE_NAME);
        match parse(text, &Surroundings::current(&file)) {
            Ok(checked) => Ok(checked.config),
            Err(problems) => Err(ConfigError::Invalid { file, problems }),
        }
    }
}

/// A running node of this program, with a thread of its own.
///
/// Messages, requests and responses are opaque bytes with the name of a type. All methods may be
/// called from any thread. Dropping the node closes it as [`Node::close`] does, and logs the error.
pub struct Node {
    name: String,
    key: PublicKey,
    participant: Arc<Participant>,
    handle: Handle,
    /// `None` once the node was closed.
    thread: Option<JoinHandle<Result<(), RunError>>>,
}

impl Node {
    /// Opens the sockets and starts the node. The keys `ros1`, `ros2`, `diagnostics`, `control`,
    /// `metrics` and `audit` belong to the daemon `tautline`, and have no effect here.
    pub fn open(config: Config) -> Result<Self, OpenError> {
        let config = config.without_ros();
        let (name, max_message) = (config.name.clone(), config.limits.max_message);
        let mut plane = DataPlane::new(config)?;
        let (key, handle) = (plane.key(), plane.handle().for_program());
        let participant = Participant::new(plane.inlet(), plane.selector(), max_message);
        plane.record_in(Audit::with_sink(participant.clone()));
        let failed = |error| SystemError { what: "starting a thread", error };
        let announced = participant.clone();
        handle.spawn("program", move || announcer::run(&announced)).map_err(failed)?;
        let gateway = Box::new(ProgramGateway(participant.clone()));
        let run = move || plane.run(gateway, &Settings::default());
        let thread = std::thread::Builder::new().name("node".into()).spawn(run).map_err(failed)?;
        Ok(Self { name, key, participant, handle, thread: Some(thread) })
    }

    /// Returns the name of this node.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the public key by which peers know this node.
    pub fn key(&self) -> PublicKey {
        self.key
    }

    /// Publishes a topic, while the publisher exists, to the peers that a line under `topics:` of
    /// the configuration names.
    pub fn publish(
        &self,
        topic: &str,
        message_type: impl Into<MessageType>,
    ) -> Result<Publisher, PublishError> {
        self.publish_with(topic, message_type, Qos::default())
    }

    /// As [`Self::publish`], with other policies. With `transient_local`, the last `depth` messages
    /// are kept for peers that subscribe later.
    pub fn publish_with(
        &self,
        topic: &str,
        message_type: impl Into<MessageType>,
        qos: Qos,
    ) -> Result<Publisher, PublishError> {
        check_name(topic)?;
        Publisher::new(&self.participant, topic, message_type.into(), qos)
    }

    /// Subscribes to a topic of peers, by its name on this node: each line under `accept:` of a peer
    /// names topics, and `prefix:` or `remap:` may rename them. The topic need not exist yet.
    pub fn subscribe(&self, topic: &str) -> Result<Subscription, NameError> {
        check_name(topic)?;
        Ok(topic::subscribe(&self.participant, topic))
    }

    /// Calls a service of a peer, by its name on this node. Waits until a peer serves it and for
    /// the response, together for at most `timeout`. The call reaches the server at most once.
    pub fn call(
        &self,
        service: &str,
        request: impl Into<Bytes>,
        timeout: Duration,
    ) -> Result<Bytes, CallError> {
        self.participant.call(service, request.into(), timeout)
    }

    /// Serves a service to the peers whose `call:` names it. A line under `services:` must match it.
    pub fn serve(&self, service: &str, type_name: &str) -> Result<Server, ServeError> {
        check_name(service)?;
        service::serve(&self.participant, service, type_name)
    }

    /// Returns a receiver of the node's events from now on.
    pub fn events(&self) -> Events {
        self.participant.events()
    }

    /// Returns the state of all links to peers.
    pub fn links(&self) -> Result<Vec<LinkReport>, AskError> {
        Ok(self.status()?.links)
    }

    /// Returns the whole state of the node.
    pub fn status(&self) -> Result<Status, AskError> {
        self.handle.status()
    }

    /// Returns a handle with which the running node is changed and watched.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Waits until the peers that are up have all messages and responses, or these were dropped by the rules
    /// of their topics, but no longer than [`CLOSE_TIMEOUT`]. Then says goodbye to peers and stops the node.
    pub fn close(self) -> Result<(), CloseError> {
        self.close_within(CLOSE_TIMEOUT)
    }

    /// As [`Self::close`], with another time limit. With zero it does not wait.
    pub fn close_within(mut self, timeout: Duration) -> Result<(), CloseError> {
        self.stop(timeout)
    }

    fn stop(&mut self, timeout: Duration) -> Result<(), CloseError> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        self.participant.stop_sending(timeout);
        self.handle.shutdown_within(timeout);
        let panicked = |_| Err(RunError::Thread { thread: "node".into(), how: "panicked" });
        thread.join().unwrap_or_else(panicked)?;
        match self.handle.unsettled() {
            0 => Ok(()),
            messages => Err(CloseError::Unsettled { messages }),
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Err(error) = self.stop(CLOSE_TIMEOUT) {
            tracing::error!(node = self.name, %error, "closed");
        }
    }
}

#[cfg(test)]
mod tests;
