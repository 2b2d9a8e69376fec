// SPDX-License-Identifier: Apache-2.0
//! The bytes of actionlib's messages, and of the messages of ROS 2's actions that no `.action` file
//! determines.

use crate::types::action::{UUID_BYTES, Uuid};
use crate::types::transcode::cursor::{Layout, Reader, Writer};
use crate::types::transcode::{TranscodeError, cdr_reader, cdr_writer};
use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// Maximum number of goals read from one status array; further goals are ignored.
pub(super) const MAX_LISTED: usize = 1024;
/// Longest id of a goal of ROS 1, in bytes.
pub(super) const MAX_ID_BYTES: usize = 1024;
/// Maximum bytes of a message written here, without its goal, result or feedback.
const MAX_WRITTEN_BYTES: usize = 4 << 20;

/// A time: seconds and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Stamp {
    pub secs: u32,
    pub nanos: u32,
}

impl Stamp {
    /// In a cancel request: no time.
    pub const ZERO: Self = Self { secs: 0, nanos: 0 };

    fn bytes(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.secs.to_le_bytes());
        bytes[4..].copy_from_slice(&self.nanos.to_le_bytes());
        bytes
    }
}

/// States of a goal in ROS 1 (actionlib_msgs/GoalStatus).
pub(super) mod ros1 {
    pub const PENDING: u8 = 0;
    pub const ACTIVE: u8 = 1;
    pub const PREEMPTED: u8 = 2;
    pub const SUCCEEDED: u8 = 3;
    pub const ABORTED: u8 = 4;
    pub const REJECTED: u8 = 5;
    pub const PREEMPTING: u8 = 6;
    pub const RECALLING: u8 = 7;
    pub const RECALLED: u8 = 8;
}

/// States of a goal in ROS 2 (action_msgs/GoalStatus).
pub(super) mod ros2 {
    pub const UNKNOWN: u8 = 0;
    pub const ACCEPTED: u8 = 1;
    pub const EXECUTING: u8 = 2;
    pub const CANCELING: u8 = 3;
    pub const SUCCEEDED: u8 = 4;
    pub const CANCELED: u8 = 5;
    pub const ABORTED: u8 = 6;
}

/// Codes of a response to a cancel request in ROS 2 (action_msgs/CancelGoal).
pub(super) mod cancel {
    pub const ACCEPTED: u8 = 0;
    pub const REJECTED: u8 = 1;
    pub const UNKNOWN_GOAL: u8 = 2;
    pub const GOAL_TERMINATED: u8 = 3;
}

/// Converts a goal's state to ROS 2, which has no state for a rejected goal.
pub(super) fn to_ros2(status: u8) -> u8 {
    match status {
        ros1::PENDING => ros2::ACCEPTED,
        ros1::ACTIVE => ros2::EXECUTING,
        ros1::PREEMPTING | ros1::RECALLING => ros2::CANCELING,
        ros1::SUCCEEDED => ros2::SUCCEEDED,
        ros1::PREEMPTED | ros1::RECALLED => ros2::CANCELED,
        _ => ros2::ABORTED,
    }
}

/// Whether a goal of ROS 1 has ended.
pub(super) fn is_terminal(status: u8) -> bool {
    !matches!(status, ros1::PENDING | ros1::ACTIVE | ros1::PREEMPTING | ros1::RECALLING)
}

/// The ROS 1 id of a goal from ROS 2: its UUID in the 36 characters of RFC 9562.
pub(super) fn goal_id(uuid: Uuid) -> String {
    let mut id = String::new();
    for (index, byte) in uuid.iter().enumerate() {
        let dash = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
        let _ = write!(id, "{dash}{byte:02x}");
    }
    id
}

/// Converts an id of ROS 1 to a UUID of ROS 2: the UUID from which the id was made, else a hash of
/// `robot` and the id (ids are unique at one master only).
pub(super) fn goal_id_to_uuid(robot: &str, id: &str) -> Uuid {
    let mut uuid = Uuid::default();
    let digits: Vec<u8> = id.bytes().filter(|byte| *byte != b'-').collect();
    for (byte, pair) in uuid.iter_mut().zip(digits.chunks(2)) {
        let text = std::str::from_utf8(pair).unwrap_or_default();
        *byte = u8::from_str_radix(text, 16).unwrap_or_default();
    }
    if goal_id(uuid) == id {
        return uuid;
    }
    let hash = Sha256::new().chain_update(robot).chain_update([0]).chain_update(id).finalize();
    uuid.copy_from_slice(&hash[..UUID_BYTES]);
    // Version 8, variant 10: an application's own rule made the UUID (RFC 9562, 5.8).
    uuid[6] = 0x80 | uuid[6] & 0x0f;
    uuid[8] = 0x80 | uuid[8] & 0x3f;
    uuid
}

/// The id and time of a goal in ROS 1.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct GoalId {
    pub stamp: Stamp,
    pub id: String,
}

/// The state of a goal in ROS 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GoalStatus {
    pub goal: GoalId,
    pub status: u8,
    pub text: String,
}

/// The state of a goal in ROS 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GoalState {
    pub uuid: Uuid,
    pub stamp: Stamp,
    pub status: u8,
}

fn word(reader: &mut Reader<'_>) -> Result<u32, TranscodeError> {
    let bytes = reader.numbers(4, 1)?;
    Ok(<[u8; 4]>::try_from(&*bytes).map_or(0, u32::from_le_bytes))
}

fn octet(reader: &mut Reader<'_>) -> Result<u8, TranscodeError> {
    Ok(reader.numbers(1, 1)?.first().copied().unwrap_or_default())
}

fn stamp(reader: &mut Reader<'_>) -> Result<Stamp, TranscodeError> {
    Ok(Stamp { secs: word(reader)?, nanos: word(reader)? })
}

fn uuid(reader: &mut Reader<'_>) -> Result<Uuid, TranscodeError> {
    let bytes = reader.numbers(1, UUID_BYTES)?;
    Ok(Uuid::try_from(&*bytes).unwrap_or_default())
}

fn read_goal_id(reader: &mut Reader<'_>) -> Result<GoalId, TranscodeError> {
    let stamp = stamp(reader)?;
    let id = reader.string()?;
    if id.len() > MAX_ID_BYTES {
        let found = id.len();
        let problem = format!("a goal id of {found} bytes; allowed: {MAX_ID_BYTES}");
        return Err(TranscodeError::new(problem));
    }
    Ok(GoalId { stamp, id: String::from_utf8_lossy(id).into() })
}

fn goal_status(reader: &mut Reader<'_>) -> Result<GoalStatus, TranscodeError> {
    let goal = read_goal_id(reader)?;
    let status = octet(reader)?;
    let text = String::from_utf8_lossy(reader.string()?).into_owned();
    Ok(GoalStatus { goal, status, text })
}

fn header(reader: &mut Reader<'_>) -> Result<(), TranscodeError> {
    reader.numbers(4, 3)?;
    reader.string().map(|_| ())
}

/// A cancel message of ROS 1.
pub(super) fn read_cancel(message: &[u8]) -> Result<GoalId, TranscodeError> {
    read_goal_id(&mut Reader::new(message, Layout::ROS1))
}

/// A goal message of ROS 1: its id, and the goal.
pub(super) fn read_goal(message: &[u8]) -> Result<(GoalId, &[u8]), TranscodeError> {
    let mut reader = Reader::new(message, Layout::ROS1);
    header(&mut reader)?;
    let id = read_goal_id(&mut reader)?;
    Ok((id, &message[message.len() - reader.remaining_bytes()..]))
}

/// A result or feedback message of ROS 1: the goal's state, and the result or feedback.
pub(super) fn read_report(message: &[u8]) -> Result<(GoalStatus, &[u8]), TranscodeError> {
    let mut reader = Reader::new(message, Layout::ROS1);
    header(&mut reader)?;
    let status = goal_status(&mut reader)?;
    Ok((status, &message[message.len() - reader.remaining_bytes()..]))
}

/// A status message of ROS 1.
pub(super) fn read_statuses(message: &[u8]) -> Result<Vec<GoalStatus>, TranscodeError> {
    let mut reader = Reader::new(message, Layout::ROS1);
    header(&mut reader)?;
    let count = reader.length()?.min(MAX_LISTED);
    (0..count).map(|_| goal_status(&mut reader)).collect()
}

/// Writes a message of ROS 1. It is empty if it would be too long, which cannot happen with texts
/// within their limits.
fn write_ros1(part: &[u8], write: impl Fn(&mut Writer) -> Result<(), TranscodeError>) -> Bytes {
    let mut writer = Writer::new(&[], Layout::ROS1, MAX_WRITTEN_BYTES);
    let mut message = match write(&mut writer) {
        Ok(()) => writer.finish(),
        Err(_) => Vec::new(),
    };
    message.extend_from_slice(part);
    message.into()
}

fn put_header(writer: &mut Writer, seq: u32, stamp: Stamp) -> Result<(), TranscodeError> {
    writer.numbers(4, &seq.to_le_bytes())?;
    writer.numbers(4, &stamp.bytes())?;
    writer.string(&[])
}

fn put_goal_id(writer: &mut Writer, goal: &GoalId) -> Result<(), TranscodeError> {
    writer.numbers(4, &goal.stamp.bytes())?;
    writer.string(goal.id.as_bytes())
}

fn put_status(writer: &mut Writer, status: &GoalStatus) -> Result<(), TranscodeError> {
    put_goal_id(writer, &status.goal)?;
    writer.numbers(1, &[status.status])?;
    writer.string(status.text.as_bytes())
}

pub(super) fn cancel_message(goal: &GoalId) -> Bytes {
    write_ros1(&[], |writer| put_goal_id(writer, goal))
}

pub(super) fn goal_message(seq: u32, now: Stamp, id: &GoalId, goal: &[u8]) -> Bytes {
    write_ros1(goal, |writer| {
        put_header(writer, seq, now)?;
        put_goal_id(writer, id)
    })
}

/// A result or feedback message.
pub(super) fn report_message(seq: u32, now: Stamp, status: &GoalStatus, part: &[u8]) -> Bytes {
    write_ros1(part, |writer| {
        put_header(writer, seq, now)?;
        put_status(writer, status)
    })
}

pub(super) fn status_message(seq: u32, now: Stamp, all: &[GoalStatus]) -> Bytes {
    write_ros1(&[], |writer| {
        put_header(writer, seq, now)?;
        writer.length(all.len())?;
        all.iter().try_for_each(|status| put_status(writer, status))
    })
}

/// Writes a message of ROS 2.
fn write_ros2(write: impl Fn(&mut Writer) -> Result<(), TranscodeError>) -> Bytes {
    let mut writer = cdr_writer(MAX_WRITTEN_BYTES);
    match write(&mut writer) {
        Ok(()) => writer.finish().into(),
        Err(_) => Bytes::new(),
    }
}

/// The response to a goal of ROS 2: whether the goal is accepted, and the time.
pub(super) fn goal_response(accepted: bool, stamp: Stamp) -> Bytes {
    write_ros2(|writer| {
        writer.numbers(1, &[u8::from(accepted)])?;
        writer.numbers(4, &stamp.bytes())
    })
}

pub(super) fn read_accepted(response: &[u8]) -> Result<bool, TranscodeError> {
    Ok(octet(&mut cdr_reader(response)?)? != 0)
}

/// A request for a result in ROS 2.
pub(super) fn result_request(uuid: Uuid) -> Bytes {
    write_ros2(|writer| writer.numbers(1, &uuid))
}

pub(super) fn read_result_request(request: &[u8]) -> Result<Uuid, TranscodeError> {
    uuid(&mut cdr_reader(request)?)
}

/// A cancel request of ROS 2. A UUID of zeros means all goals until the time, or all goals if the
/// time is zero too.
pub(super) fn cancel_request(uuid: Uuid, stamp: Stamp) -> Bytes {
    write_ros2(|writer| {
        writer.numbers(1, &uuid)?;
        writer.numbers(4, &stamp.bytes())
    })
}

pub(super) fn read_cancel_request(request: &[u8]) -> Result<(Uuid, Stamp), TranscodeError> {
    let mut reader = cdr_reader(request)?;
    Ok((uuid(&mut reader)?, stamp(&mut reader)?))
}

/// The response to a cancel request of ROS 2: a code, and the goals that are being canceled.
pub(super) fn cancel_response(code: u8, goals: &[(Uuid, Stamp)]) -> Bytes {
    write_ros2(|writer| {
        writer.numbers(1, &[code])?;
        writer.length(goals.len())?;
        goals.iter().try_for_each(|(uuid, stamp)| {
            writer.numbers(1, uuid)?;
            writer.numbers(4, &stamp.bytes())
        })
    })
}

/// The code of a response to a cancel request.
pub(super) fn read_cancel_response(response: &[u8]) -> Result<u8, TranscodeError> {
    octet(&mut cdr_reader(response)?)
}

/// A status message of ROS 2.
pub(super) fn states_message(all: &[GoalState]) -> Bytes {
    write_ros2(|writer| {
        writer.length(all.len())?;
        all.iter().try_for_each(|goal| {
            writer.numbers(1, &goal.uuid)?;
            writer.numbers(4, &goal.stamp.bytes())?;
            writer.numbers(1, &[goal.status])
        })
    })
}

pub(super) fn read_states(message: &[u8]) -> Result<Vec<GoalState>, TranscodeError> {
    let mut reader = cdr_reader(message)?;
    let count = reader.length()?.min(MAX_LISTED);
    let state = |_| {
        let (uuid, stamp) = (uuid(&mut reader)?, stamp(&mut reader)?);
        Ok(GoalState { uuid, stamp, status: octet(&mut reader)? })
    };
    (0..count).map(state).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Stamp = Stamp { secs: 7, nanos: 8 };

    #[test]
    fn ids_from_ros_2_are_restored_and_others_become_different_uuids() {
        let uuid = std::array::from_fn(|index| 0xf0 + index as u8);
        let id = goal_id(uuid);
        assert_eq!(id, "f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff");
        assert_eq!(goal_id_to_uuid("robot", &id), uuid);
        let client = goal_id_to_uuid("robot", "/client-1-7.5");
        assert_eq!(client, goal_id_to_uuid("robot", "/client-1-7.5"), "stable");
        assert_ne!(client, goal_id_to_uuid("robot", "/client-2-7.5"));
        assert_ne!(client, goal_id_to_uuid("other", "/client-1-7.5"));
        assert_ne!(
            goal_id_to_uuid("robot", &id.to_uppercase()),
            uuid,
            "another text is another goal"
        );
        assert_ne!(goal_id_to_uuid("robot", "é-é"), goal_id_to_uuid("robot", ""));
    }

    #[test]
    fn written_messages_are_read_back() {
        let goal = GoalId { stamp: NOW, id: "a".into() };
        assert_eq!(read_cancel(&cancel_message(&goal)), Ok(goal.clone()));
        assert_eq!(read_goal(&goal_message(1, NOW, &goal, b"g")), Ok((goal.clone(), &b"g"[..])));
        let status = GoalStatus { goal, status: 3, text: "done".into() };
        let report = report_message(1, NOW, &status, b"r");
        assert_eq!(read_report(&report), Ok((status.clone(), &b"r"[..])));
        let all = [status.clone(), status];
        assert_eq!(read_statuses(&status_message(1, NOW, &all)), Ok(all.to_vec()));
        let state = GoalState { uuid: [3; 16], stamp: NOW, status: ros2::EXECUTING };
        let states = states_message(&[state, state]);
        // The second goal's time is aligned behind the first one's status.
        assert_eq!(states.len(), 4 + 4 + 25 + 16 + 3 + 9);
        assert_eq!(read_states(&states), Ok(vec![state, state]));
        assert_eq!(read_cancel_request(&cancel_request([3; 16], NOW)), Ok(([3; 16], NOW)));
        assert_eq!(read_result_request(&result_request([3; 16])), Ok([3; 16]));
        assert_eq!(read_accepted(&goal_response(true, NOW)), Ok(true));
        assert_eq!(read_cancel_response(&cancel_response(2, &[([3; 16], NOW)])), Ok(2));
    }

    #[test]
    fn bytes_that_do_not_form_a_message_are_refused() {
        let long = goal_message(1, NOW, &GoalId { stamp: NOW, id: "x".repeat(2000) }, &[]);
        assert!(read_goal(&long).is_err());
        for wrong in [&[][..], &[0; 3], &[0, 1, 0, 0, 255, 255, 255, 255], &[255; 40]] {
            assert!(read_states(wrong).is_err());
            assert!(read_statuses(wrong).is_err());
            assert!(read_cancel_request(wrong).is_err());
            assert!(read_report(wrong).is_err());
        }
    }
}
