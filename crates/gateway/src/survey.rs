// SPDX-License-Identifier: Apache-2.0
//! A look at a running ROS graph from outside: its topics and services, and whether nodes other than
//! Tautline's publish or subscribe. The gateways follow the graph all the time; a survey is made once.

use std::collections::{BTreeMap, BTreeSet};

/// What the nodes of a graph do with a topic.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopicUse {
    /// Type in the notation of that ROS; empty if unknown.
    pub type_name: String,
    /// Whether a node publishes it.
    pub published: bool,
    /// Whether a node subscribes to it.
    pub subscribed: bool,
}

/// A ROS graph.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Graph {
    /// Topics by name.
    pub topics: BTreeMap<String, TopicUse>,
    /// Services by name, without those that every node has.
    pub services: BTreeSet<String>,
}

impl Graph {
    /// Whether there is nothing but what belongs to ROS itself.
    pub fn is_empty(&self) -> bool {
        self.topics.keys().all(|name| name.starts_with("/rosout")) && self.services.is_empty()
    }
}
