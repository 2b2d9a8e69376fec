// SPDX-License-Identifier: Apache-2.0
//! The reasons why an operation of a program fails, one type for each operation.

use crate::error::{RunError, show_as_text};
use std::time::Duration;
use tautline_gateway::names::NameError;

show_as_text!(PublishError, SendError, ServeError, CallError, CloseError);

/// The reason why a topic cannot be published.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// The name is no name of a topic.
    #[error("the topic {0}")]
    Name(#[from] NameError),
    /// The configuration does not send it.
    #[error("{0} is sent to no peer: no line under 'topics:' of the configuration matches it")]
    NoRule(String),
    /// This node publishes the topic with another type, or another definition of the type.
    #[error("{topic}: found the type {found}; allowed: {known} as this node publishes it already")]
    OtherType {
        /// Name of the topic.
        topic: String,
        /// The type that was given.
        found: String,
        /// The type of the topic's other publishers here.
        known: String,
    },
    /// The topic has as many publishers here as a node tells apart.
    #[error("{0} has {most} publishers on this node already", most = tautline_gateway::MAX_SOURCES)]
    TooMany(String),
}

/// The reason why a message was not sent.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The message is too large for this node.
    #[error("found a message of {bytes} bytes; allowed: {most} (limits.max_message)")]
    TooLarge {
        /// The bytes.
        bytes: usize,
        /// The allowed bytes.
        most: usize,
    },
    /// More messages wait for the node than it can take. Peers that subscribe now do not get the
    /// message; a publisher with `transient_local` keeps it for those that subscribe later.
    #[error("too many messages wait for the node: peers that subscribe now do not get this one")]
    Full,
    /// The node has stopped.
    #[error("the node has stopped")]
    Stopped,
}

/// The reason why a node did not close in order.
#[derive(thiserror::Error)]
pub enum CloseError {
    /// The node had stopped before.
    #[error(transparent)]
    Stopped(#[from] RunError),
    /// Peers did not acknowledge messages or responses in time, or are not connected.
    #[error("{messages} messages may not have arrived at their peers")]
    Unsettled {
        /// The number of messages and responses, for each peer.
        messages: u64,
    },
}

/// The reason why a service cannot be served.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServeError {
    /// The name is no name of a service.
    #[error("the service {0}")]
    Name(#[from] NameError),
    /// The configuration lets no peer call it.
    #[error("no peer may call {0}: no line under 'services:' of the configuration matches it")]
    NoRule(String),
    /// This node serves it already.
    #[error("this node serves {0} already")]
    Taken(String),
}

/// The reason why a call has no response.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// No peer serves the service, or this node's configuration does not accept it.
    #[error(
        "no peer served {service} within {timeout:?}: this node needs 'accept: [{service}]' under \
         peers.NAME, and the server 'services: {{ {service}: {{}} }}' and 'call: [{service}]' under \
         peers.NAME; the status of both names the missing line"
    )]
    NotServed {
        /// Name of the service.
        service: String,
        /// The time that the call waited for it.
        timeout: Duration,
    },
    /// The server, the peer or this node refused the call or could not complete it.
    #[error("{0}")]
    Failed(String),
    /// No response arrived in time. The server may have been called.
    #[error("no response of {service} within {timeout:?}")]
    TimedOut {
        /// Name of the service.
        service: String,
        /// The time limit.
        timeout: Duration,
    },
    /// The node has stopped. The server may have been called.
    #[error("the node has stopped")]
    Stopped,
}
