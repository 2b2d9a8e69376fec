// SPDX-License-Identifier: Apache-2.0
//! Errors of Cyclone DDS.

use crate::log;

/// An error of Cyclone DDS.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{what}: {reason}")]
pub struct DdsError {
    /// The entity or operation that failed.
    pub what: &'static str,
    /// Cyclone DDS's message.
    pub reason: String,
    /// Whether the queue stayed full for the writer's `max_blocking_time`; a retry may succeed.
    pub full: bool,
}

/// The result of a call to Cyclone DDS.
pub type Result<T> = std::result::Result<T, DdsError>;

/// Returns the return value of a call to Cyclone DDS, or its error.
pub fn check(what: &'static str, code: i32) -> Result<i32> {
    if code >= 0 {
        return Ok(code);
    }
    let full = code == cyclors::DDS_RETCODE_TIMEOUT;
    Err(DdsError { what, reason: log::reason(code), full })
}
