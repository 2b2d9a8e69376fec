// SPDX-License-Identifier: Apache-2.0
//! Reports of the node's state to the robot's ROS, as arrays of statuses, each with a level. The
//! whole state is published on /diagnostics once per second, the links on another topic for
//! programs that adapt to them. This module only converts snapshots to bytes, without I/O.
//!
//! | To change | open |
//! |---|---|
//! | contents and levels of /diagnostics | `statuses.rs` |
//! | contents of the link topic | `links.rs` |
//! | the message's type and bytes | `array.rs` |

mod array;
mod links;
mod statuses;

use crate::config::Config;
use crate::status::Status;
use array::Arrays;
use bytes::Bytes;
pub(crate) use links::LinkTopic;
use std::collections::VecDeque;
use std::time::Duration;
use tautline_gateway::Topic;
use tautline_gateway::types::transcode::TranscodeError;

/// The topic that ROS's tools read.
const TOPIC: &str = "/diagnostics";
/// Number of snapshots kept, one per second. A counter is growing if it grew since the oldest
/// snapshot.
const WINDOW: usize = 5;

#[derive(Debug)]
pub(crate) struct Diagnostics {
    arrays: Arrays,
    /// Snapshots, the oldest first.
    earlier: VecDeque<Status>,
}

impl Diagnostics {
    /// Returns `None` for a node without ROS or with `diagnostics: false`.
    pub(crate) fn new(config: &Config) -> Option<Self> {
        let (dialect, _) = config.ros().filter(|_| config.diagnostics)?;
        let arrays = Arrays::new(TOPIC, dialect)?;
        Some(Self { arrays, earlier: VecDeque::with_capacity(WINDOW) })
    }

    /// Returns the topic as the robot's ROS names it.
    pub(crate) fn topic(&self) -> &Topic {
        &self.arrays.topic
    }

    /// Returns the next array; `stamp` is the time since 1970.
    pub(crate) fn message(
        &mut self,
        status: Status,
        stamp: Duration,
    ) -> Result<Bytes, TranscodeError> {
        let statuses = statuses::build(self.earlier.front(), &status);
        if self.earlier.len() == WINDOW {
            self.earlier.pop_front();
        }
        self.earlier.push_back(status);
        self.arrays.message(&statuses, stamp)
    }

    /// Discards the snapshots; called when nobody listens. Changes in the meantime are then not
    /// reported later as new.
    pub(crate) fn forget(&mut self) {
        self.earlier.clear();
    }
}

#[cfg(test)]
mod tests;
