// SPDX-License-Identifier: Apache-2.0
//! Safe messages of watchdogs.

use bytes::Bytes;
use tautline_gateway::Topic;
use tautline_gateway::types::compose::{Fields, compose};
use tautline_gateway::types::installed::Installed;
use tautline_gateway::types::trust::certain_schema;

/// A safe message, composed on the thread 'types': definitions come from peers and may be large.
#[derive(Debug)]
pub(crate) struct SafeMessage {
    pub(super) message: Bytes,
    /// The mismatch between the file and the type; then all fields are zero.
    pub(super) problem: Option<String>,
}

/// Composes the safe message, of at most `limit` bytes, for a topic as it is published here. The
/// error is for people.
pub(crate) fn safe_message(
    topic: &Topic,
    fields: &Fields,
    installed: &Installed,
    limit: usize,
) -> Result<SafeMessage, String> {
    let schema = certain_schema(topic, installed)?;
    let zeros = || compose(&schema, &[], limit).map_err(|error| error.to_string());
    let (message, problem) = match compose(&schema, fields, limit) {
        Ok(message) => (message, None),
        Err(problem) => (zeros()?, Some(problem.to_string())),
    };
    Ok(SafeMessage { message: message.into(), problem })
}
