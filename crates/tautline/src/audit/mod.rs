// SPDX-License-Identifier: Apache-2.0
//! Events for the audit log: peers that come up or go down, refusals, changes with their authors,
//! and published safe messages.
//!
//! ```text
//! data plane ─▶ Recorder (quotas per peer) ─▶ Audit ─▶ AuditSink: the log of the daemon, or a program
//! ```

mod event;
mod record;
mod recorder;
mod time;

pub use crate::quota::{Allowance, MAX_USERS, STRANGER_BUDGETS};
pub use event::{
    Actor, DownReason, EVENTS, Event, EventEntry, HandshakeFailure, Kind, MAX_CHANGES, MAX_TEXT,
    Session, Text,
};
#[cfg(test)]
pub(crate) use record::tests::Lines;
pub use record::{Audit, AuditSink, Record};
pub(crate) use recorder::Recorder;
pub use recorder::{MAX_MERGED, RECORD_ALLOWANCE};
pub use time::rfc3339;
