// SPDX-License-Identifier: Apache-2.0
//! The gateways to the robot's own middleware.
//!
//! A [`Gateway`] watches the local middleware (a ROS 1 master or a DDS domain), offers its topics and
//! services, reads the topics that the node subscribes to, and publishes the messages of peers. It
//! handles topics, types and bytes, and knows nothing of links, packets or priorities.
//!
//! Both directions are plain data, so that a gateway can be tested, or replaced by a traffic
//! generator, without a network: [`Command`] is the input through [`Gateway::handle`], [`Event`]
//! the output through [`Events::emit`].
#![forbid(unsafe_code)]
// Without either ROS feature, nothing uses the code that both gateways share.
#![cfg_attr(not(any(feature = "ros1", feature = "ros2")), allow(dead_code))]

pub mod action_names;
mod backlog;
pub mod deliveries;
pub mod description;
mod drops;
pub mod goals;
mod lock;
#[cfg(any(feature = "ros1", feature = "ros2"))]
mod log_limit;
pub mod logs;
pub mod names;
pub mod networks;
pub mod observations;
mod origin;
pub mod pattern;
pub mod plain;
mod qos;
pub mod rejections;
#[cfg(feature = "ros1")]
pub mod ros1;
#[cfg(feature = "ros2")]
pub mod ros2;
#[cfg(any(feature = "ros1", feature = "ros2"))]
mod shared;
pub mod sources;
pub mod state_file;
#[cfg(any(feature = "ros1", feature = "ros2"))]
pub mod survey;
pub mod tf;
pub mod threads;
pub mod types;

use bytes::Bytes;
use description::{Nodes, Parameters};
use rejections::Rejected;
use std::sync::Arc;
use std::time::{Duration, Instant};
use threads::End;

pub use origin::{Kept, MAX_SOURCES, Origin, Source, identity};
pub use qos::{Class, Classes, Liveliness, MIN_LEASE, Qos};

/// Describes a topic, so that another robot can publish it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    /// Name in the local middleware, fully resolved (`/scan`).
    pub name: String,
    /// Type name (`sensor_msgs/LaserScan`).
    pub type_name: String,
    /// Hash of the type: md5 in lower-case hex for ROS 1, `RIHS01_...` for ROS 2.
    pub type_hash: String,
    /// Full definition with all nested types, as in a ROS 1 connection header.
    pub definition: Arc<str>,
    /// Quality of service of the topic's publishers.
    pub qos: Qos,
}

/// Describes a service, so that another robot can serve it. An action consists of three services and
/// two topics, as in ROS 2; the gateway to ROS 1 converts actionlib's five topics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Name in the local middleware, fully resolved (`/add_two_ints`).
    pub name: String,
    /// Type name (`std_srvs/SetBool`; ROS 2: `std_srvs/srv/SetBool`).
    pub type_name: String,
    /// md5 for ROS 1, `RIHS01_...` of the request for ROS 2; empty if unknown.
    pub type_hash: String,
    /// Request, a line `---`, response, then the types that both need, as in a topic's definition;
    /// empty if unknown.
    pub definition: Arc<str>,
}

/// Identifies a pending call of one gateway and service.
pub type CallId = u64;

/// A service's response in the local serialization, or the reason of the failure for a person.
pub type Outcome = Result<Bytes, String>;

/// A command of the node to a gateway. Every command is idempotent.
#[derive(Debug, Clone)]
pub enum Command {
    /// Read `topic` from local publishers until [`Command::Unsubscribe`].
    Subscribe {
        /// Local name.
        topic: String,
    },
    /// Stop reading `topic`.
    Unsubscribe {
        /// Local name.
        topic: String,
    },
    /// Publish `topic` locally on behalf of peers. A repetition replaces the type.
    Advertise {
        /// The topic under its local name.
        topic: Topic,
    },
    /// Stop publishing `topic`.
    Unadvertise {
        /// Local name.
        topic: String,
    },
    /// Publish one message to the local subscribers of an advertised topic.
    Publish {
        /// Local name.
        topic: String,
        /// The publisher (unique over all peers).
        source: Source,
        /// The serialized message, without any length prefix.
        payload: Bytes,
        /// The publication.
        origin: Origin,
    },
    /// Forget the messages that are kept for late joiners of an advertised topic.
    Forget {
        /// Local name.
        topic: String,
        /// The publisher of these messages; `None` means all.
        source: Option<Source>,
    },
    /// Serve a service locally on behalf of a peer. A repetition replaces the type.
    Serve {
        /// The service under its local name.
        service: Service,
    },
    /// Stop serving a service; pending calls fail.
    Unserve {
        /// Local name.
        service: String,
    },
    /// Call the local server of a service once; [`Event::Answered`] has the outcome.
    Call {
        /// Local name.
        service: String,
        /// Chosen by the node, unique among pending calls.
        call: CallId,
        /// The serialized request, without any length prefix.
        request: Bytes,
        /// The time limit of the call.
        time_limit: Duration,
        /// Number of the peer that calls; limits are per peer.
        peer: u32,
    },
    /// The outcome of an [`Event::Called`]; ignored if the call is no longer pending.
    Answer {
        /// Local name.
        service: String,
        /// The number in the event.
        call: CallId,
        /// The outcome for the caller.
        outcome: Outcome,
    },
    /// Start or stop reporting the nodes and the parameters of this robot.
    Describe {
        /// Whether to emit [`Event::Nodes`].
        nodes: bool,
        /// Whether to emit [`Event::Parameters`].
        parameters: bool,
    },
    /// Show these nodes of a peer to local programs, in place of those shown before.
    ShowNodes {
        /// Number of the peer.
        peer: u32,
        /// Local names, which lie under the peer's prefix.
        nodes: Nodes,
    },
    /// Show these parameters of a peer to local programs, in place of those shown before.
    ShowParameters {
        /// Number of the peer.
        peer: u32,
        /// The peer's prefix, under which all names lie.
        prefix: String,
        /// By local names; `None`: remove all that were shown.
        parameters: Option<Parameters>,
    },
    /// Set parameters that exist on this robot, on behalf of a peer.
    SetParameters {
        /// By their names on this robot.
        parameters: Parameters,
    },
    /// Set the largest message that a peer accepts, on any topic.
    SetMaxMessage {
        /// Name of the peer.
        peer: String,
        /// The limit in bytes; `None` if it is not known.
        most: Option<usize>,
    },
    /// The [`Selector`] has changed: offer what may leave now, and withdraw what may no longer
    /// leave. Other topics and services are not affected.
    Reselect,
}

/// A report of a gateway to the node.
#[derive(Debug, Clone)]
pub enum Event {
    /// A local node publishes `topic`; repeated when its type or QoS changes.
    Offered(Topic),
    /// The topic has no local publisher any more.
    Withdrawn {
        /// Local name.
        topic: String,
    },
    /// A message read from a subscribed topic.
    Message {
        /// Local name.
        topic: String,
        /// The local publisher.
        source: Source,
        /// The serialized message, without any length prefix.
        payload: Bytes,
        /// The publication.
        origin: Origin,
        /// The time at which its last byte was read.
        received: Instant,
    },
    /// A local publisher has left; its latched messages are no longer valid.
    SourceGone {
        /// Local name.
        topic: String,
        /// The publisher that left.
        source: Source,
    },
    /// The number of messages that a local publisher keeps for late joiners has become known. Its
    /// later messages have a new source, so that receivers keep them apart from those before.
    DepthChanged {
        /// Local name.
        topic: String,
        /// The source of its messages so far.
        source: Source,
        /// The source of its later messages.
        successor: Source,
        /// The number, at least 1.
        depth: u32,
    },
    /// Whether an advertised topic has local subscribers (sent on change).
    Wanted {
        /// Local name.
        topic: String,
        /// `true` from the first subscriber, `false` after the last.
        wanted: bool,
    },
    /// A local node serves this service; repeated when its type changes.
    ServiceOffered(Service),
    /// The service has no local server any more.
    ServiceWithdrawn {
        /// Local name.
        service: String,
    },
    /// A local client calls a service that is served on behalf of a peer.
    Called {
        /// Local name.
        service: String,
        /// Chosen by the gateway, unique among pending calls.
        call: CallId,
        /// The serialized request, without any length prefix.
        request: Bytes,
    },
    /// A local client waits for a response about a goal, but its call cannot be sent. Either the client
    /// called before this node restarted, so the call may have reached the peer, or the request is too
    /// large.
    Interrupted {
        /// Local name.
        service: String,
        /// Number for the [`Command::Answer`], as in [`Event::Called`].
        call: CallId,
        /// The request as it is kept ([`goals::kept_request`]).
        request: Bytes,
    },
    /// The outcome of a [`Command::Call`], exactly once for each.
    Answered {
        /// Local name.
        service: String,
        /// The number in the command.
        call: CallId,
        /// The response, or the reason of the failure.
        outcome: Outcome,
    },
    /// The nodes of this robot without those of Tautline; repeated when they change.
    Nodes(Nodes),
    /// The parameters of this robot; repeated when they change.
    Parameters(Parameters),
    /// A local program has changed parameters of a peer that are shown here. They are put back if
    /// the peer does not show the new values soon.
    ParametersChanged {
        /// Number of the peer.
        peer: u32,
        /// By local names, with their new values.
        parameters: Parameters,
    },
    /// A command was refused, e.g. because a local topic of the same name has another type.
    Refused {
        /// Local name.
        topic: String,
        /// For a person: what was found, where, and what is allowed.
        reason: String,
    },
}

/// A topic or service of this robot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceName<'a> {
    /// A topic by its local name.
    Topic(&'a str),
    /// A service by its local name.
    Service(&'a str),
}

/// Decides whether a topic or service may leave this robot.
pub type Selector = Arc<dyn Fn(ResourceName<'_>) -> bool + Send + Sync>;

/// The receiver of a gateway's events. Called on the gateway's threads; must not block.
pub trait Events: Send + Sync + 'static {
    /// Receives one event. The receiver counts events that it cannot accept; there is no retry.
    fn emit(&self, event: Event);

    /// A thread of the gateway has ended. Before [`Gateway::shutdown`] that is a failure of the
    /// gateway.
    fn ended(&self, _thread: &str, _how: End) {}
}

/// State of a gateway, for status and logs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GatewayStatus {
    /// `ros1`, `ros2`, ...
    pub kind: &'static str,
    /// The address of the middleware (`http://localhost:11311`).
    pub location: String,
    /// Whether the middleware responds.
    pub connected: bool,
    /// Current troubles, for a person; empty if there are none.
    pub trouble: String,
    /// Messages dropped because a local subscriber is too slow, by local topic.
    pub slow_subscriber_drops: Vec<(String, u64)>,
    /// Messages rejected for other reasons.
    pub rejected: Vec<Rejected>,
}

/// One kind of middleware on this robot.
pub trait Gateway: Send {
    /// Executes `command`; never blocks on the network.
    fn handle(&self, command: Command);
    /// The current state.
    fn status(&self) -> GatewayStatus;
    /// Unregisters from the middleware and stops; returns within about five seconds.
    fn shutdown(self: Box<Self>);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_combined_offer_of_publishers_suits_each_of_their_subscribers() {
        let deadline = Some(Duration::from_secs(1));
        let strong = Qos { transient_local: true, deadline, ..Qos::default() };
        let weak = Qos { reliable: false, depth: 3, ..Qos::default() };
        let both = strong.combined_with(weak);
        assert!(both.transient_local && both.reliable && both.depth == 3);
        assert_eq!(both.deadline, None, "the weak one promises none");
        assert_eq!(strong.combined_with(strong), strong);
    }
}
