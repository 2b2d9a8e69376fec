// SPDX-License-Identifier: Apache-2.0
//! Safe messages of watchdogs.

use bytes::Bytes;
use tautline_gateway::Topic;
use tautline_gateway::types::compose::{Fields, compose};
use tautline_gateway::types::installed::InstalledTypes;
use tautline_gateway::types::trust::certain_schema;

/// A safe message. It is composed on the thread 'types', because definitions come from peers and
/// may be large.
#[derive(Debug)]
pub(crate) struct SafeMessage {
    pub(super) message: Bytes,
    /// How the message in the file mismatches the type. All fields are then zero.
    pub(super) problem: Option<String>,
}

/// Composes the safe message of a topic as it is published here. The message has at most `limit`
/// bytes. The error is a message for users.
pub(crate) fn safe_message(
    topic: &Topic,
    fields: &Fields,
    installed: &InstalledTypes,
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
