// SPDX-License-Identifier: Apache-2.0
//! The audit log: who came and went, what was refused, what was changed and by whom, which safe
//! messages were published. JSON, one line per event, in files that rotate or in the journal.
//!
//! ```text
//! data plane ─▶ Recorder (quotas per peer) ─▶ Audit (bounded queue) ─▶ writer thread ─▶ files or journald
//! run.rs: started, stopped ──────────────────▶
//! ```
//!
//! Nobody waits for the disk: an event that finds the queue full is counted, and the count is
//! an event of its own.

mod event;
mod files;
mod journal;
mod recorder;
pub mod reference;
mod time;
mod writer;

pub use event::{
    Actor, EVENTS, Event, EventEntry, Kind, MAX_CHANGES, MAX_TEXT, Misfit, Parting, Session, Text,
};
pub(crate) use recorder::Recorder;
pub use writer::{Audit, AuditError, AuditLog, MAX_QUEUED};
