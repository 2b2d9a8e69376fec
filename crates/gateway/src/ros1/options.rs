// SPDX-License-Identifier: Apache-2.0
//! Settings of the gateway, and why it cannot start.

use crate::names::NameError;
use crate::networks::Network;
use crate::types::installed::InstalledTypes;
use std::io;
use std::path::PathBuf;

/// How to take part in a ROS 1 system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ros1Options {
    /// The master, as in `ROS_MASTER_URI`: `http://localhost:11311`.
    pub master_uri: String,
    /// Name or address by which local nodes reach this process, as in `ROS_HOSTNAME` or `ROS_IP`.
    pub host: String,
    /// Computers whose nodes may connect, besides this one and the master's.
    pub allow: Vec<Network>,
    /// Our node name at that master (`/tautline`), unique there.
    pub node_name: String,
    /// Name of this Tautline node, which connection headers contain.
    pub tautline_name: String,
    /// Largest message read from a local publisher, in bytes.
    pub max_message: usize,
    /// The source of service definitions, which ROS 1 does not transmit.
    pub installed: InstalledTypes,
    /// The file that keeps over restarts which subscribers have which latched messages.
    pub deliveries: Option<PathBuf>,
}

/// Why the gateway could not start. An absent master is no error.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The master's URI cannot be used.
    #[error("ROS master: {0}")]
    MasterUri(String),
    /// The node name is no ROS name.
    #[error("ROS node name: {0}")]
    NodeName(#[from] NameError),
    /// The host is empty or has an invalid character.
    #[error("ROS host name '{0}'; allowed is a host name or an address, as in ROS_HOSTNAME")]
    Host(String),
    /// No port to listen on.
    #[error("listening for ROS 1 nodes: {0}")]
    Listen(io::Error),
    /// No thread or runtime.
    #[error("starting the ROS 1 thread: {0}")]
    Thread(io::Error),
}
