// SPDX-License-Identifier: Apache-2.0
//! A message to send.

use crate::time::{Duration, Instant};
use bytes::Bytes;

/// A message to send.
#[derive(Debug, Clone)]
pub struct Message {
    /// The payload.
    pub payload: Bytes,
    /// When it was published, at most `now`.
    pub published: Instant,
    /// The publisher within the channel.
    pub source: u32,
    /// The application encoded (compressed) the payload.
    pub encoded: bool,
    /// Age past which the message is worthless, if that is less than the lifespan of its channel.
    pub lifespan: Option<Duration>,
}
