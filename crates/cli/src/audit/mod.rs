// SPDX-License-Identifier: Apache-2.0
//! The audit log: each event of the node is one line of JSON, in files that rotate or in the journal.
//!
//! ```text
//! data plane ─▶ Audit ─▶ bounded queue ─▶ writer thread ─▶ files or journald
//! run.rs: started, stopped ─▶
//! ```
//!
//! No thread waits for the disk. While the queue is full, further events are only counted, and
//! the count is written later as a separate event.

mod files;
mod journal;
mod writer;

pub use writer::{AuditError, AuditLog, MAX_QUEUED};
