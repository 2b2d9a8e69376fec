// SPDX-License-Identifier: Apache-2.0
//! `diagnostic_msgs/DiagnosticArray`: its topic, type and serialization.

use bytes::Bytes;
use std::time::Duration;
use tautline_gateway::types::Dialect;
use tautline_gateway::types::installed::InstalledTypes;
use tautline_gateway::types::transcode::TranscodeError;
use tautline_gateway::types::translate::{TranslatedTopic, Translator, translate};
use tautline_gateway::{Qos, Topic};

pub(super) const TYPE_NAME: &str = "diagnostic_msgs/DiagnosticArray";
pub(super) const MD5: &str = "60810da900de1dd6ddd437c3503511da";
/// Definition with all nested types, as in a connection header.
pub(super) const DEFINITION: &str = "\
Header header
DiagnosticStatus[] status

================================================================================
MSG: std_msgs/Header
uint32 seq
time stamp
string frame_id

================================================================================
MSG: diagnostic_msgs/DiagnosticStatus
byte OK=0
byte WARN=1
byte ERROR=2
byte STALE=3
byte level
string name
string message
string hardware_id
KeyValue[] values

================================================================================
MSG: diagnostic_msgs/KeyValue
string key
string value
";

/// A topic of `DiagnosticArray`s, in the form of the robot's ROS.
#[derive(Debug)]
pub(super) struct Arrays {
    pub(super) topic: Topic,
    /// Translation to the serialization of ROS 2; `None` on a robot with ROS 1.
    translator: Option<Translator>,
}

impl Arrays {
    pub(super) fn new(name: &str, dialect: Dialect) -> Option<Self> {
        let ros1 = Topic {
            name: name.into(),
            type_name: TYPE_NAME.into(),
            type_hash: MD5.into(),
            definition: DEFINITION.into(),
            qos: Qos::default(),
        };
        if dialect == Dialect::Ros1 {
            return Some(Self { topic: ros1, translator: None });
        }
        let translated = translate(&ros1, dialect, &InstalledTypes::default());
        let TranslatedTopic { topic, translator, .. } =
            translated.map_err(|error| tracing::error!("{name}: {error}")).ok()?;
        Some(Self { topic, translator: Some(translator) })
    }

    /// Serializes an array; `stamp` is the time since 1970.
    pub(super) fn message(
        &self,
        statuses: &[DiagnosticStatus],
        stamp: Duration,
    ) -> Result<Bytes, TranscodeError> {
        let message = serialize_array(statuses, stamp);
        match &self.translator {
            Some(translator) => translator.translate(&message).map(Bytes::from),
            None => Ok(message.into()),
        }
    }
}

/// Severity; the numbers are those of the message definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Ok = 0,
    Warn = 1,
    Error = 2,
}

/// The state of one part of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DiagnosticStatus {
    pub(super) level: Level,
    pub(super) name: String,
    /// One line for people.
    pub(super) message: String,
    pub(super) hardware_id: String,
    pub(super) values: Vec<(String, String)>,
}

fn serialize_array(statuses: &[DiagnosticStatus], stamp: Duration) -> Vec<u8> {
    let mut out = Vec::new();
    // Header: seq, stamp, frame_id.
    put_u32(&mut out, 0);
    put_u32(&mut out, u32::try_from(stamp.as_secs()).unwrap_or(u32::MAX));
    put_u32(&mut out, stamp.subsec_nanos());
    put_string(&mut out, "");
    put_len(&mut out, statuses.len());
    for status in statuses {
        out.push(status.level as u8);
        for part in [&status.name, &status.message, &status.hardware_id] {
            put_string(&mut out, part);
        }
        put_len(&mut out, status.values.len());
        for (key, value) in &status.values {
            put_string(&mut out, key);
            put_string(&mut out, value);
        }
    }
    out
}

fn put_u32(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
}

/// Appends a length, which is limited to far below 4 GiB.
fn put_len(out: &mut Vec<u8>, count: usize) {
    put_u32(out, u32::try_from(count).unwrap_or(u32::MAX));
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    put_len(out, text.len());
    out.extend_from_slice(text.as_bytes());
}
