// SPDX-License-Identifier: Apache-2.0
//! A message from a peer, as a program receives it.

use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tautline_gateway::Source;

/// A message from a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The bytes.
    pub payload: Bytes,
    /// Name of its type.
    pub type_name: Arc<str>,
    /// The publisher.
    pub source: Source,
    /// Time from its publication to its arrival here.
    pub age: Duration,
}
