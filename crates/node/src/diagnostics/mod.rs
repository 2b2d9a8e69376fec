// SPDX-License-Identifier: Apache-2.0
//! What this node tells of itself to its robot's ROS, as arrays of states with a level each: of
//! everything on /diagnostics, once per second, and of its links for programs that adapt to them.
//! Pure: from snapshots to bytes.
//!
//! | To change | open |
//! |---|---|
//! | what is told on /diagnostics, and at which level | `statuses.rs` |
//! | what is told of links | `links.rs` |
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

/// Where ROS's tools look for it.
const TOPIC: &str = "/diagnostics";
/// Snapshots that are kept, one per second: what grows from the oldest to now counts as growing.
const WINDOW: usize = 5;

/// Makes the arrays of /diagnostics.
#[derive(Debug)]
pub(crate) struct Diagnostics {
    arrays: Arrays,
    /// Oldest first.
    earlier: VecDeque<Status>,
}

impl Diagnostics {
    /// `None` for a node that has no ROS, or shall not tell.
    pub(crate) fn new(config: &Config) -> Option<Self> {
        let (dialect, _) = config.ros().filter(|_| config.diagnostics)?;
        let arrays = Arrays::new(TOPIC, dialect)?;
        Some(Self { arrays, earlier: VecDeque::with_capacity(WINDOW) })
    }

    /// As the robot's ROS has it.
    pub(crate) fn topic(&self) -> &Topic {
        &self.arrays.topic
    }

    /// The next array; `stamp` is the time since 1970.
    pub(crate) fn message(
        &mut self,
        status: Status,
        stamp: Duration,
    ) -> Result<Bytes, TranscodeError> {
        let statuses = statuses::of(self.earlier.front(), &status);
        if self.earlier.len() == WINDOW {
            self.earlier.pop_front();
        }
        self.earlier.push_back(status);
        self.arrays.message(&statuses, stamp)
    }

    /// Nobody listens: what happens meanwhile is not told later as if it were new.
    pub(crate) fn rest(&mut self) {
        self.earlier.clear();
    }
}

#[cfg(test)]
mod tests;
