// SPDX-License-Identifier: Apache-2.0
//! Raw ROS 2 messages of any type over Cyclone DDS: a participant, its discovery, and readers and
//! writers of opaque CDR.
//!
//! Callbacks run on Cyclone DDS's threads. They must not block, and must not write reliably: a full
//! cache would stop the thread that reads acknowledgements.
#![allow(unsafe_code, unsafe_op_in_unsafe_fn)]

mod audience;
mod automatic;
mod burst;
mod endpoint;
mod hooks;
mod local;
mod log;
mod participant;
mod qos;
mod raw;
mod received;

pub use audience::Audience;
pub use endpoint::{MAX_MATCHED, RawReader, RawWriter, SampleInfo, Specification};
pub use local::restrict_to_this_machine;
pub use participant::{Discovery, Endpoint, MAX_DOMAIN, Participant, Range};
pub use qos::{INFINITE, Liveliness, Qos};
pub use raw::SampleId;

/// The identifier of a participant, reader or writer in its domain.
pub type Guid = [u8; 16];

/// An error of Cyclone DDS.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{what}: {reason}")]
pub struct DdsError {
    /// The entity or operation that failed.
    pub what: &'static str,
    /// Cyclone DDS's message.
    pub reason: String,
    /// Whether a sample did not fit within the writer's `max_blocking_time`; a retry may succeed.
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
