// SPDX-License-Identifier: Apache-2.0
//! Errors of an endpoint's methods.

/// The error of setting up an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// The name is too long for a packet, or empty.
    #[error("name '{0}' has {len} bytes; 1 to 63 are allowed", len = .0.len())]
    Name(String),
    /// Another peer, or this node, has the name.
    #[error("name '{0}' is taken already")]
    NameTaken(String),
    /// Another peer, or this node, has the key.
    #[error("the key of peer '{0}' is another peer's already, or this node's own")]
    KeyTaken(String),
    /// Two keys have the same short name, as one pair in 16 million does.
    #[error("relays cannot tell the key of peer '{0}' from another's: make a new key for it")]
    ShortNameTaken(String),
    /// The limit of links to one peer is reached.
    #[error("peer '{0}' has 16 links already, which is the most")]
    TooManyLinks(String),
    /// The peer was removed.
    #[error("a link cannot be added: its peer was removed")]
    PeerRemoved,
    /// The datagram size is too small.
    #[error("datagrams of {found} bytes are too small; {allowed} or more are allowed", allowed = crate::config::MIN_DATAGRAM)]
    Datagram {
        /// The requested size.
        found: usize,
    },
}

/// The error of offering a channel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OfferError {
    /// A text is too long.
    #[error("{what} has {found} bytes; at most {allowed} are allowed")]
    TooLong {
        /// The name of the text.
        what: &'static str,
        /// The size found, in bytes.
        found: usize,
        /// The largest size allowed, in bytes.
        allowed: usize,
    },
    /// The limit of channels is reached.
    #[error("{0} channels are offered to this peer already, which is the most")]
    TooMany(usize),
}

/// The error of sending a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The message is larger than this node or the peer allows.
    #[error("message of {found} bytes; at most {allowed} are allowed (limits.max_message)")]
    TooLarge {
        /// The size found, in bytes.
        found: usize,
        /// The largest size allowed, in bytes.
        allowed: usize,
    },
    /// The channel does not exist, or the peer is not subscribed to it.
    #[error("the channel is not wanted by the peer")]
    NotWanted,
}
