// SPDX-License-Identifier: Apache-2.0
//! What a master of ROS 1 says.

/// The nodes at a master, each with its address (`http://HOST:PORT/`), or why the master gave none.
pub(super) type Nodes = Vec<(String, Result<String, String>)>;

#[cfg(feature = "ros1")]
pub(super) fn nodes_of(master: &str) -> Result<Nodes, String> {
    tautline_gateway::ros1::look::nodes_of(master)
}

#[cfg(not(feature = "ros1"))]
pub(super) fn nodes_of(_: &str) -> Result<Nodes, String> {
    Err("this program was built without ROS 1 (feature ros1)".into())
}
