// SPDX-License-Identifier: Apache-2.0
//! The audit log: peers up and down, refusals, changes and their authors, published safe messages.
//! Each event is one line of JSON, in files that rotate or in the journal.
//!
//! ```text
//! data plane ─▶ Recorder (quotas per peer) ─▶ Audit (bounded queue) ─▶ writer thread ─▶ files or journald
//! run.rs: started, stopped ──────────────────▶
//! ```
//!
//! No thread waits for the disk. If the queue is full, an event is counted, and the count is an
//! event of its own.

mod event;
mod files;
mod journal;
mod recorder;
mod time;
mod writer;

pub use crate::quota::{Allowance, MAX_USERS, STRANGER_BUDGETS};
pub use event::{
    Actor, EVENTS, Event, EventEntry, Kind, MAX_CHANGES, MAX_TEXT, Misfit, Parting, Session, Text,
};
pub(crate) use recorder::Recorder;
pub use recorder::{MAX_MERGED, RECORDED};
pub(crate) use time::rfc3339;
pub use writer::{Audit, AuditError, AuditLog, MAX_QUEUED};
