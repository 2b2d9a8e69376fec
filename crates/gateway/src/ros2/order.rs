// SPDX-License-Identifier: Apache-2.0
//! What the actor gets from other threads.

use crate::{Command, Event};
use std::time::Instant;
use tautline_dds::DiscoveryEvent;

/// An order of the node, or a report of a thread of Cyclone DDS.
pub enum Order {
    Execute(Command),
    /// An event in place of a command that the backlog did not admit.
    Emit(Event),
    Discovered(DiscoveryEvent),
    /// The size of GUIDs in the ROS graph has changed; at most one such order is queued.
    GidSizeChanged,
    /// Nodes of the domain have changed.
    NodesChanged,
    /// The writers of our node have changed.
    WritersChanged,
    /// The messages that the publishers of a topic keep are to be counted at this time.
    Count(String, Instant),
    /// All publishers of a topic that is read have ceased to be alive, or one is again.
    LivelinessChanged(String),
    Stop,
}
