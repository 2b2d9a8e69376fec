// SPDX-License-Identifier: Apache-2.0
//! Inputs and outputs of the state machines of actions.

use super::messages::Stamp;
use crate::action_names::is_action_status;
use crate::{CallId, Command, Event, Kept, Origin, Source, Topic, identity};
use bytes::Bytes;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Calls made by this module have numbers above this one; calls made by the gateway have lower
/// numbers.
pub const FIRST_CALL: CallId = 1 << 62;

/// The current time by the monotonic clock and by the wall clock.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    pub now: Instant,
    /// The time of day, for the headers of messages.
    pub stamp: Stamp,
}

impl Moment {
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let secs = u32::try_from(since.as_secs()).unwrap_or(u32::MAX);
        Self { now: Instant::now(), stamp: Stamp { secs, nanos: since.subsec_nanos() } }
    }
}

/// A command or event that a state machine requests.
#[derive(Debug)]
pub enum Output {
    /// A command for the gateway.
    Command(Command),
    /// An event for the node.
    Event(Event),
}

#[derive(Debug, Default)]
pub struct Outputs {
    pub pending: Vec<Output>,
    call_count: CallId,
}

impl Outputs {
    pub fn command(&mut self, command: Command) {
        self.pending.push(Output::Command(command));
    }

    pub fn event(&mut self, event: Event) {
        self.pending.push(Output::Event(event));
    }

    pub fn advertise(&mut self, topic: Topic) {
        self.command(Command::Advertise { topic });
    }

    pub fn unadvertise(&mut self, topic: String) {
        self.command(Command::Unadvertise { topic });
    }

    pub fn subscribe(&mut self, topic: String) {
        self.command(Command::Subscribe { topic });
    }

    pub fn unsubscribe(&mut self, topic: String) {
        self.command(Command::Unsubscribe { topic });
    }

    pub fn publish(&mut self, topic: String, payload: Bytes) {
        let (source, origin) = (Source::local(0), Origin::default());
        self.command(Command::Publish { topic, source, payload, origin });
    }

    /// Emits a message of a ROS 2 topic.
    pub fn message(&mut self, topic: String, payload: Bytes) {
        let (source, received) = (Source::local(0), Instant::now());
        // The last status is kept for late joiners; an equal status counts as the same message.
        let kept = is_action_status(&topic).then(|| Kept {
            identity: identity(&payload),
            depth: 1,
            is_repeatable: true,
            ..Kept::default()
        });
        let origin = Origin { kept, ..Origin::default() };
        self.event(Event::Message { topic, source, payload, origin, received });
    }

    pub fn next_call(&mut self) -> CallId {
        self.call_count += 1;
        FIRST_CALL + self.call_count
    }
}
