// SPDX-License-Identifier: Apache-2.0
//! Records of events, and how they leave the data plane.

use super::event::{Event, Text};
use super::time::rfc3339;
use serde::Serialize;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

/// One line of the log.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Record {
    /// Time of the event.
    #[serde(serialize_with = "as_rfc3339")]
    pub time: SystemTime,
    /// The peer that the event is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<Text>,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
    /// Number of repetitions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub again: Option<u64>,
}

fn as_rfc3339<S: serde::Serializer>(time: &SystemTime, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&rfc3339(*time))
}

impl Record {
    /// Returns a record of an event that happens now.
    pub fn new(peer: Option<&str>, event: Event) -> Self {
        Self { time: SystemTime::now(), peer: peer.map(Text::new), event, again: None }
    }
}

/// A receiver of the records of a node: a log, or a program.
pub trait AuditSink: Send + Sync + 'static {
    /// Takes a record. The data plane calls this: it must not block.
    fn take(&self, record: Record);
}

/// A handle that accepts records from any thread. Without a sink it discards them.
#[derive(Clone, Default)]
pub struct Audit(Option<Arc<dyn AuditSink>>);

impl fmt::Debug for Audit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(if self.0.is_some() { "Audit(on)" } else { "Audit(off)" })
    }
}

impl Audit {
    /// Passes records to this sink.
    pub fn with_sink(sink: Arc<dyn AuditSink>) -> Self {
        Self(Some(sink))
    }

    /// Records an event, about `peer` if given. Never blocks.
    pub fn record(&self, peer: Option<&str>, event: Event) {
        self.take(Record::new(peer, event));
    }

    /// Records that an event was repeated `again` times after it was recorded.
    pub(super) fn repeated(&self, peer: Option<&str>, event: Event, again: u64) {
        self.take(Record { again: Some(again), ..Record::new(peer, event) });
    }

    fn take(&self, record: Record) {
        if let Some(sink) = &self.0 {
            sink.take(record);
        }
    }
}

/// Collects records as lines, for tests.
#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::Mutex;

    /// The lines that a log would have.
    #[derive(Default)]
    pub(crate) struct Lines(Mutex<String>);

    impl Lines {
        /// Returns a handle that accepts records.
        pub(crate) fn audit(self: &Arc<Self>) -> Audit {
            Audit::with_sink(self.clone())
        }

        /// Returns one line of JSON for each record.
        pub(crate) fn json_lines(&self) -> String {
            self.0.lock().unwrap().clone()
        }
    }

    impl AuditSink for Lines {
        fn take(&self, record: Record) {
            let mut lines = self.0.lock().unwrap();
            *lines += &(serde_json::to_string(&record).unwrap() + "\n");
        }
    }
}
