// SPDX-License-Identifier: Apache-2.0
//! Settings of the gateway, and why it cannot start.

use crate::names::NameError;
use crate::types::installed::InstalledTypes;
use std::io;
use std::path::PathBuf;
use tautline_dds::DiscoveryRange;

/// How to take part in a ROS 2 system.
#[derive(Debug, Clone)]
pub struct Ros2Options {
    /// The number of `ROS_DOMAIN_ID`, 0 to [`MAX_DOMAIN`](tautline_dds::MAX_DOMAIN).
    pub domain: u32,
    /// The range of `ROS_AUTOMATIC_DISCOVERY_RANGE`.
    pub range: DiscoveryRange,
    /// Our node name with its namespace (`/tautline`).
    pub node_name: String,
    /// Name of this Tautline node, which other nodes on this machine see.
    pub tautline_name: String,
    /// Largest message that is read, in bytes.
    pub max_message: usize,
    /// The source of type definitions.
    pub installed: InstalledTypes,
    /// The file that keeps over restarts which subscribers have which latched messages.
    pub deliveries: Option<PathBuf>,
    /// The file that keeps over restarts which clients wait for a response about a goal.
    pub goals: Option<PathBuf>,
}

/// Why the gateway cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The node name is invalid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// DDS refuses.
    #[error("joining ROS 2's domain {domain}: {error}")]
    Dds {
        /// The domain.
        domain: u32,
        /// The refusal.
        error: tautline_dds::DdsError,
    },
    /// No thread.
    #[error("starting the ROS 2 threads: {0}")]
    Thread(io::Error),
}
