// SPDX-License-Identifier: Apache-2.0
//! What happened in a run of a situation: events of the agents, and when everything had settled.

use super::situation::Situation;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// One line that an agent prints (`ros/parity/leash.py`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A message was published.
    Sent { publisher: String, n: u32, sum: u32, t: f64 },
    /// A message arrived.
    Got { subscriber: String, publisher: String, n: u32, sum: u32, t: f64 },
    /// A server got a call.
    Served { server: String, call: String, t: f64 },
    /// A client got an answer, or an error.
    Answer { call: String, text: Option<String>, error: Option<String>, t: f64 },
    /// An action server executes a goal.
    Executed { server: String, order: u32, t: f64 },
    /// A client got feedback with this number of entries.
    Feedback { goal: String, length: u32, t: f64 },
    /// A goal ended: status of action_msgs, entries of the result; or an error.
    Result { goal: String, status: Option<i8>, length: Option<u32>, error: Option<String>, t: f64 },
    /// Endpoints connected to each publisher and subscriber.
    Matched { counts: BTreeMap<String, u32> },
    /// An order failed in the agent.
    Trouble { order: String, error: String, t: f64 },
    /// The agent obeys.
    Ready { t: f64 },
    /// An order is done.
    Done { t: f64 },
}

/// A message in a record: number, checksum, and time in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Message {
    /// Number at its publisher.
    pub n: u32,
    /// Sum over its fields.
    pub sum: u32,
    /// Seconds of the machine's clock.
    pub t: f64,
}

/// One side of the comparison: within one ROS graph, or across Tautline.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Run {
    /// Step and event, in the order in which they were read.
    pub events: Vec<(usize, Event)>,
}

impl Run {
    /// Returns the messages of a publisher with the step of each.
    pub fn sent_messages(&self, publisher: &str) -> Vec<(usize, Message)> {
        let message = |(step, event): &(usize, Event)| match event {
            Event::Sent { publisher: by, n, sum, t } if by == publisher => {
                Some((*step, Message { n: *n, sum: *sum, t: *t }))
            }
            _ => None,
        };
        self.events.iter().filter_map(message).collect()
    }

    /// Returns the messages of a publisher that a subscriber got, in order.
    pub fn received_messages(&self, subscriber: &str, publisher: &str) -> Vec<Message> {
        let message = |(_, event): &(usize, Event)| match event {
            Event::Got { subscriber: by, publisher: of, n, sum, t }
                if by == subscriber && of == publisher =>
            {
                Some(Message { n: *n, sum: *sum, t: *t })
            }
            _ => None,
        };
        self.events.iter().filter_map(message).collect()
    }

    /// Returns the publishers of which a subscriber got something.
    pub fn sources(&self, subscriber: &str) -> Vec<&str> {
        let mut all: Vec<&str> = Vec::new();
        for (_, event) in &self.events {
            if let Event::Got { subscriber: by, publisher, .. } = event
                && by == subscriber
                && !all.contains(&publisher.as_str())
            {
                all.push(publisher);
            }
        }
        all
    }
}

/// Both runs of a situation.
#[derive(Debug, Clone, Serialize)]
pub struct Record {
    /// The situation.
    pub situation: Situation,
    /// Within one ROS graph.
    pub plain: Run,
    /// Across Tautline.
    pub tautline: Run,
    /// Steps [`super::situation::Step::Settle`] that ended with everything connected, without a
    /// trouble before them that continues.
    pub calm: Vec<usize>,
    /// Steps that failed across Tautline, with the reason.
    pub failed: Vec<(usize, String)>,
    /// What `tautline status --json` prints of each daemon at the end.
    pub daemons: Vec<Value>,
}

impl Record {
    /// Creates an empty record.
    pub fn new(situation: Situation) -> Self {
        let (plain, tautline, calm, failed, daemons) = Default::default();
        Self { situation, plain, tautline, calm, failed, daemons }
    }
}
