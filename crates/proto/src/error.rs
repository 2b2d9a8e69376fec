// SPDX-License-Identifier: Apache-2.0
//! What can be wrong with a call.

/// Why an endpoint could not be set up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// A name that does not fit a packet.
    #[error("name '{0}' has {len} bytes; 1 to 63 are allowed", len = .0.len())]
    Name(String),
    /// Two peers of one name, or this node's own.
    #[error("name '{0}' is taken already")]
    NameTaken(String),
    /// Two peers of one key, or this node's own.
    #[error("the key of peer '{0}' is another peer's already, or this node's own")]
    KeyTaken(String),
    /// Two keys that relays cannot tell apart, one pair in 16 million.
    #[error("relays cannot tell the key of peer '{0}' from another's: make a new key for it")]
    ShortNameTaken(String),
    /// Too many links to one peer.
    #[error("peer '{0}' has 16 links already, which is the most")]
    TooManyLinks(String),
    /// A datagram too small to carry anything.
    #[error("datagrams of {found} bytes are too small; {allowed} or more are allowed", allowed = crate::config::MIN_DATAGRAM)]
    Datagram {
        /// What was asked for.
        found: usize,
    },
}

/// Why a channel could not be offered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OfferError {
    /// A text that does not fit.
    #[error("{what} has {found} bytes; at most {allowed} are allowed")]
    TooLong {
        /// Which text.
        what: &'static str,
        /// Its length.
        found: usize,
        /// The most.
        allowed: usize,
    },
    /// No channel is free.
    #[error("{0} channels are offered to this peer already, which is the most")]
    TooMany(usize),
}

/// Why a message was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// Larger than either end allows.
    #[error("message of {found} bytes; at most {allowed} are allowed (limits.max_message)")]
    TooLarge {
        /// Its size.
        found: usize,
        /// The most.
        allowed: usize,
    },
    /// The channel does not exist (any more), or the peer does not want it.
    #[error("the channel is not wanted by the peer")]
    NotWanted,
}
