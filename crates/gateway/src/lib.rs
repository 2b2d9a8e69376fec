// SPDX-License-Identifier: Apache-2.0
//! The robot's own middleware at either end of Tautline.
//!
//! A [`Gateway`] watches the local middleware (a ROS 1 master or a DDS
//! domain), says what is published there, reads the topics it is told to read
//! and publishes what arrives from peers. It knows topics, types and bytes; it
//! knows nothing of peers' links, packets or priorities.
//!
//! The two directions are plain data, so that a gateway can be tested, or
//! replaced by a traffic generator, without a network:
//! [`Command`] goes in through [`Gateway::handle`], [`Event`] comes out through
//! [`Events::emit`].
#![forbid(unsafe_code)]

mod backlog;
mod drops;
pub mod mapping;
pub mod networks;
pub mod observations;
pub mod plain;
pub mod rejections;
#[cfg(feature = "ros1")]
pub mod ros1;
#[cfg(feature = "ros2")]
pub mod ros2;
mod sources;
#[cfg(any(feature = "ros1", feature = "ros2"))]
mod sparing;
pub mod tf;
pub mod threads;
pub mod types;

use bytes::Bytes;
use rejections::Rejected;
use std::sync::Arc;
use std::time::{Duration, Instant};
use threads::End;

/// What is known of a topic and needed to publish it elsewhere.
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
    /// Quality of service asked of publishers of this topic.
    pub qos: Qos,
}

/// Quality of service that publishers offer, in the words of ROS 2; ROS 1 maps onto it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Qos {
    /// `true`: the last messages of each publisher are kept for late joiners
    /// (ROS 1: latched; ROS 2: transient local).
    pub transient_local: bool,
    /// How many of them, at least 1.
    pub depth: u32,
    /// `true`: the publisher offers reliable delivery (always so in ROS 1).
    pub reliable: bool,
    /// Longest time between two messages; `None` promises nothing.
    pub deadline: Option<Duration>,
    /// Age past which a message is worthless; `None` is never.
    pub lifespan: Option<Duration>,
    /// How publishers show that they live.
    pub liveliness: Liveliness,
}

/// How publishers show that they live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Liveliness {
    /// `true`: each topic for itself, by publishing; else all of a process, by its being there.
    pub manual: bool,
    /// Longest time without a sign of life; `None` promises nothing.
    pub lease: Option<Duration>,
}

impl Qos {
    /// What is offered on behalf of two publishers: all that either offers, but of promises on
    /// time only what both keep.
    pub fn united(self, other: Self) -> Self {
        let longest = |a: Option<Duration>, b: Option<Duration>| Some(a?.max(b?));
        Self {
            transient_local: self.transient_local || other.transient_local,
            depth: self.depth.max(other.depth),
            reliable: self.reliable || other.reliable,
            deadline: longest(self.deadline, other.deadline),
            lifespan: longest(self.lifespan, other.lifespan),
            liveliness: Liveliness {
                manual: self.liveliness.manual && other.liveliness.manual,
                lease: longest(self.liveliness.lease, other.liveliness.lease),
            },
        }
    }
}

impl Default for Qos {
    fn default() -> Self {
        Self {
            transient_local: false,
            depth: 1,
            reliable: true,
            deadline: None,
            lifespan: None,
            liveliness: Liveliness::default(),
        }
    }
}

/// Tells publishers of one topic apart, so that each one's latched message is
/// kept. Small, reused when a publisher leaves, below [`MAX_SOURCES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Source(pub u32);

/// Publishers of one topic that are told apart on one robot; more share the last number.
pub const MAX_SOURCES: u32 = 64;

/// What is known of a service and needed to serve it elsewhere. An action of ROS 2 is three of
/// these and two topics; one of ROS 1 is five topics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Name in the local middleware, fully resolved (`/add_two_ints`).
    pub name: String,
    /// Type name (`std_srvs/SetBool`; ROS 2: `std_srvs/srv/SetBool`).
    pub type_name: String,
    /// md5 for ROS 1, `RIHS01_...` of the request for ROS 2; empty where it is not known.
    pub type_hash: String,
    /// Request, a line `---`, response, then what both need as in a topic's definition; empty
    /// where it is not known.
    pub definition: Arc<str>,
}

/// Tells the calls of one gateway and service apart while they are under way.
pub type CallId = u64;

/// A service's response in the local serialization, or why there is none, for a person.
pub type Outcome = Result<Bytes, String>;

/// What the node asks of a gateway. Every command is idempotent.
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
    /// Publish `topic` locally on behalf of peers; repeated with another type, the newer holds.
    Advertise {
        /// What to publish, under its local name.
        topic: Topic,
    },
    /// Stop publishing `topic`.
    Unadvertise {
        /// Local name.
        topic: String,
    },
    /// Hand one message to the local subscribers of an advertised topic.
    Publish {
        /// Local name.
        topic: String,
        /// Which publisher it came from (unique over all peers).
        source: Source,
        /// The serialized message, without any length prefix.
        payload: Bytes,
    },
    /// Serve a service locally on behalf of a peer; repeated with another type, the newer holds.
    Serve {
        /// What to serve, under its local name.
        service: Service,
    },
    /// Stop serving it; calls under way fail.
    Unserve {
        /// Local name.
        service: String,
    },
    /// Call the local server of a service once; [`Event::Answered`] says what came of it.
    Call {
        /// Local name.
        service: String,
        /// Drawn by the node, unique while under way.
        call: CallId,
        /// The serialized request, without any length prefix.
        request: Bytes,
        /// After so long there is no answer any more.
        patience: Duration,
    },
    /// The outcome of an [`Event::Called`]; one that is not under way any more is passed over.
    Answer {
        /// Local name.
        service: String,
        /// As in the event.
        call: CallId,
        /// What the caller gets.
        outcome: Outcome,
    },
    /// The [`Selector`] says something else from now on: what may leave and did not is offered,
    /// what may not leave any more is withdrawn. The rest goes on undisturbed.
    Reselect,
}

/// What a gateway tells the node.
#[derive(Debug, Clone)]
pub enum Event {
    /// Someone other than Tautline publishes `topic` here; repeated when its type or QoS changes.
    Offered(Topic),
    /// Nobody publishes the topic here any more.
    Withdrawn {
        /// Local name.
        topic: String,
    },
    /// A message read from a subscribed topic.
    Message {
        /// Local name.
        topic: String,
        /// Which local publisher sent it.
        source: Source,
        /// The serialized message, without any length prefix.
        payload: Bytes,
        /// When its last byte was read.
        received: Instant,
    },
    /// A local publisher told apart by `source` left; its latched messages go with it.
    SourceGone {
        /// Local name.
        topic: String,
        /// The publisher that left.
        source: Source,
    },
    /// Whether anyone on this robot listens to an advertised topic (sent on change).
    Wanted {
        /// Local name.
        topic: String,
        /// `true` from the first subscriber, `false` after the last.
        wanted: bool,
    },
    /// Someone other than Tautline serves this here; repeated when its type changes.
    ServiceOffered(Service),
    /// Nobody serves it here any more.
    ServiceWithdrawn {
        /// Local name.
        service: String,
    },
    /// A local client calls a service that is served on behalf of a peer.
    Called {
        /// Local name.
        service: String,
        /// Drawn by the gateway, unique while under way.
        call: CallId,
        /// The serialized request, without any length prefix.
        request: Bytes,
    },
    /// What came of a [`Command::Call`], exactly once for each.
    Answered {
        /// Local name.
        service: String,
        /// As in the command.
        call: CallId,
        /// The response, or what went wrong.
        outcome: Outcome,
    },
    /// A command could not be carried out, e.g. a local topic of the same name has another type.
    Refused {
        /// Local name.
        topic: String,
        /// For a person: what was found, where, and what is allowed.
        reason: String,
    },
}

/// Something of this robot that may leave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named<'a> {
    /// A topic by its local name.
    Topic(&'a str),
    /// A service by its local name.
    Service(&'a str),
}

/// Says what may leave this robot.
pub type Selector = Arc<dyn Fn(Named<'_>) -> bool + Send + Sync>;

/// Where a gateway delivers its events. Called on the gateway's own thread; must not block.
pub trait Events: Send + Sync + 'static {
    /// Takes one event; what cannot be taken is counted by the receiver, not retried.
    fn emit(&self, event: Event);

    /// A thread of the gateway has ended, which before [`Gateway::shutdown`] is a failure of the
    /// whole.
    fn ended(&self, _thread: &str, _how: End) {}
}

/// State of a gateway, for status and logs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GatewayStatus {
    /// `ros1`, `ros2`, ...
    pub kind: &'static str,
    /// Where the middleware is (`http://localhost:11311`).
    pub location: String,
    /// Whether it answers now.
    pub connected: bool,
    /// Last trouble, for a person; empty when all is well.
    pub trouble: String,
    /// Messages dropped for local subscribers that do not keep up, by local topic.
    pub slow_subscriber_drops: Vec<(String, u64)>,
    /// Messages that were not taken or handed on for other reasons.
    pub rejected: Vec<Rejected>,
}

/// One kind of middleware on this robot.
pub trait Gateway: Send {
    /// Carries out `command`; never blocks on the network.
    fn handle(&self, command: Command);
    /// State right now.
    fn status(&self) -> GatewayStatus;
    /// Unregisters from the middleware and stops; returns within about five seconds.
    fn shutdown(self: Box<Self>);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_publishers_are_offered_as_one_that_every_subscriber_of_theirs_takes() {
        let deadline = Some(Duration::from_secs(1));
        let strong = Qos { transient_local: true, deadline, ..Qos::default() };
        let weak = Qos { reliable: false, depth: 3, ..Qos::default() };
        let both = strong.united(weak);
        assert!(both.transient_local && both.reliable && both.depth == 3);
        assert_eq!(both.deadline, None, "the weak one promises none");
        assert_eq!(strong.united(strong), strong);
    }
}
