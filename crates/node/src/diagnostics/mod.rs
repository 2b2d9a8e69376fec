// SPDX-License-Identifier: Apache-2.0
//! What this node tells of itself on /diagnostics, as ROS does it: once per second, an array of
//! states with a level each. Pure: from snapshots to bytes.
//!
//! | To change | open |
//! |---|---|
//! | what is told, and at which level | `statuses.rs` |
//! | the message's type and bytes | `array.rs` |

mod array;
mod statuses;

use crate::config::Config;
use crate::status::Status;
use array::{DEFINITION, MD5, TYPE_NAME};
use bytes::Bytes;
use std::collections::VecDeque;
use std::time::Duration;
use tautline_gateway::types::Dialect;
use tautline_gateway::types::installed::Installed;
use tautline_gateway::types::transcode::TranscodeError;
use tautline_gateway::types::translate::{Translator, translate};
use tautline_gateway::{Qos, Topic};

/// Where ROS's tools look for it.
const TOPIC: &str = "/diagnostics";
/// Snapshots that are kept, one per second: what grows from the oldest to now counts as growing.
const WINDOW: usize = 5;

/// Makes the arrays.
#[derive(Debug)]
pub(crate) struct Diagnostics {
    topic: Topic,
    /// Into ROS 2's bytes, where the robot has ROS 2.
    translator: Option<Translator>,
    /// Oldest first.
    earlier: VecDeque<Status>,
}

impl Diagnostics {
    /// `None` for a node that has no ROS, or shall not tell.
    pub(crate) fn new(config: &Config) -> Option<Self> {
        let (dialect, _) = config.ros().filter(|_| config.diagnostics)?;
        let ros1 = Topic {
            name: TOPIC.into(),
            type_name: TYPE_NAME.into(),
            type_hash: MD5.into(),
            definition: DEFINITION.into(),
            qos: Qos::default(),
        };
        let (topic, translator) = match dialect {
            Dialect::Ros1 => (ros1, None),
            Dialect::Ros2 => {
                let translated = translate(&ros1, dialect, &Installed::default());
                let (topic, translator) =
                    translated.map_err(|error| tracing::error!("{TOPIC}: {error}")).ok()?;
                (topic, Some(translator))
            }
        };
        Some(Self { topic, translator, earlier: VecDeque::with_capacity(WINDOW) })
    }

    /// As the robot's ROS has it.
    pub(crate) fn topic(&self) -> &Topic {
        &self.topic
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
        let message = array::serialized(&statuses, stamp);
        match &self.translator {
            Some(translator) => translator.translate(&message).map(Bytes::from),
            None => Ok(message.into()),
        }
    }

    /// Nobody listens: what happens meanwhile is not told later as if it were new.
    pub(crate) fn rest(&mut self) {
        self.earlier.clear();
    }
}

#[cfg(test)]
mod tests;
