// SPDX-License-Identifier: Apache-2.0
//! Raw ROS 2 messages of any type over Cyclone DDS: a participant, what it discovers, and
//! readers and writers of opaque CDR.
//!
//! Callbacks run on Cyclone DDS's threads: they must not block, and not write reliably, since
//! a full cache would stop the thread that reads acknowledgements.
#![allow(unsafe_code, unsafe_op_in_unsafe_fn)]

mod endpoint;
mod hooks;
mod local;
mod log;
mod participant;
mod qos;
mod raw;

pub use endpoint::{MAX_MATCHED, RawReader, RawWriter, SampleInfo, Specification};
pub use participant::{Discovery, Endpoint, MAX_DOMAIN, Participant, Range};
pub use qos::{INFINITE, Qos};
pub use raw::SampleId;

/// What names a participant, reader or writer in its domain.
pub type Guid = [u8; 16];

/// What Cyclone DDS refused.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{what}: {reason}")]
pub struct DdsError {
    /// What was to be made or done.
    pub what: &'static str,
    /// In Cyclone DDS's words.
    pub reason: String,
    /// A writer had no room within its `max_blocking_time`; later it may have.
    pub full: bool,
}

type Result<T> = std::result::Result<T, DdsError>;

fn check(what: &'static str, code: i32) -> Result<i32> {
    if code >= 0 {
        return Ok(code);
    }
    let full = code == cyclors::DDS_RETCODE_TIMEOUT;
    Err(DdsError { what, reason: log::reason(code), full })
}
