// SPDX-License-Identifier: Apache-2.0
//! The audit log: each event of the node is one line of JSON, in files that rotate or in the journal.
//!
//! ```text
//! data plane ─▶ Audit ─▶ bounded queue ─▶ writer thread ─▶ files or journald
//! run.rs: started, stopped ─▶
//! ```
//!
//! No thread waits for the disk. If the queue is full, an event is counted, and the count is an
//! event of its own.

mod files;
mod journal;
mod writer;

pub use writer::{AuditError, AuditLog, MAX_QUEUED};
