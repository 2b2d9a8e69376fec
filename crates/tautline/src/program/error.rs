// SPDX-License-Identifier: Apache-2.0
//! The reasons why an operation of a program fails, one type for each operation.

use crate::error::{RunError, show_as_text};
use std::time::Duration;
use tautline_gateway::names::NameError;

show_as_text!(PublishError, SendError, ServeError, CallError, CloseError);

/// The reason why a topic cannot be published.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// The name is not a valid name of a topic.
    #[error("the topic {0}")]
    Name(#[from] NameError),
    /// The configuration sends this topic to no peer.
    #[error("{0} is sent to no peer: no line under 'topics:' of the configuration matches it")]
    NoRule(String),
    /// This node already publishes the topic with another type, or with another definition of the type.
    #[error("{topic}: found the type {found}; allowed: {known} as this node publishes it already")]
    OtherType {
        /// Name of the topic.
        topic: String,
        /// The type that was given.
        found: String,
        /// The type of the topic's other publishers here.
        known: String,
    },
    /// The topic has the maximum number of publishers on one node.
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
    /// The message is too large for a peer, which has stated its limit when it refused an earlier
    /// message. Other peers get this message.
    #[error(
        "found a message of {bytes} bytes; allowed: {allowed} at '{peer}', {most} here \
         (limits.max_message of each node)"
    )]
    TooLargeAtPeer {
        /// The bytes.
        bytes: usize,
        /// Name of the peer.
        peer: String,
        /// The bytes that the peer allows.
        allowed: usize,
        /// The bytes that this node allows.
        most: usize,
    },
    /// Too many messages wait for the node, and it cannot take this one. Current subscribers do not
    /// get it. A publisher with `transient_local` keeps it for peers that subscribe later.
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
    /// The name is not a valid name of a service.
    #[error("the service {0}")]
    Name(#[from] NameError),
    /// The configuration lets no peer call it.
    #[error("no peer may call {0}: no line under 'services:' of the configuration matches it")]
    NoRule(String),
    /// This program already serves the service.
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
        /// The time for which the call waited for a server.
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
