// SPDX-License-Identifier: Apache-2.0
//! Where a message comes from: its publisher, and the policies under which it was published.

use crate::qos::Class;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// The publication of which a message is a copy: the policies of its publisher, and its age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Origin {
    /// How its publisher keeps it for late joiners; `None`: not at all.
    pub kept: Option<Kept>,
    /// Whether its publisher offers best-effort delivery.
    pub best_effort: bool,
    /// The lifespan that its publisher offers. The receiving robot knows it only for kept messages: the
    /// sending robot drops other messages when they expire.
    pub lifespan: Option<Duration>,
    /// Time since its publication.
    pub age: Duration,
}

impl Origin {
    /// The shorter lifespan of its publisher and of its topic.
    pub fn lifespan_within(&self, topic: Option<Duration>) -> Option<Duration> {
        self.lifespan.into_iter().chain(topic).min()
    }

    /// The class of its publisher.
    pub const fn class(&self) -> Class {
        Class { transient_local: self.kept.is_some(), reliable: !self.best_effort }
    }
}

/// A message that its publisher keeps for late joiners.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Kept {
    /// Identifies the publication among those of its topic, also after a restart of this node.
    pub identity: u64,
    /// The number of messages that its publisher keeps, at least 1.
    pub depth: u32,
    /// Whether an earlier message with this identity was certainly the same publication. In ROS 1
    /// this holds only for a message that the publisher already kept when we connected: later
    /// messages may repeat its content.
    pub is_repeatable: bool,
    /// Whether the publisher, or the node that read it, repeats the message for a late joiner. A
    /// volatile subscriber does not get it.
    pub is_history: bool,
    /// Whether only later subscribers get the message. Present subscribers already have it, or may have
    /// later messages of its publisher.
    pub is_for_late_joiners: bool,
}

/// Hashes the properties of a publication to its identity, which is the same after a restart.
pub fn identity(properties: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    properties.hash(&mut hasher);
    hasher.finish()
}

/// Identifies a publisher of one topic, so that the latched messages of each publisher are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Source {
    /// Number of the peer at which it publishes; `None` means this robot.
    pub peer: Option<u32>,
    /// The number of the publisher on that robot. Numbers of ROS publishers are below
    /// [`MAX_SOURCES`], and are reused when a publisher leaves.
    pub number: u32,
}

impl Source {
    /// Returns a publisher on this robot.
    pub const fn local(number: u32) -> Self {
        Self { peer: None, number }
    }

    /// Returns a publisher at a peer.
    pub const fn at_peer(peer: u32, number: u32) -> Self {
        Self { peer: Some(peer), number }
    }
}

/// Maximum number of publishers of one topic that are distinguished on one robot; further publishers
/// share the last number.
pub const MAX_SOURCES: u32 = 64;
