// SPDX-License-Identifier: Apache-2.0
//! Messages of nodes to people, on `/rosout`. A peer's messages are published here with the peer's
//! prefix before the node's name. Pure.

use crate::names::check_peer_name;
use crate::types::Dialect;
use crate::types::translate::dialect_of;
use bytes::Bytes;

/// The topic of all nodes, in either ROS.
pub const TOPIC: &str = "/rosout";
const ROS1: (&str, &str) = ("rosgraph_msgs/Log", "acffd30cd6b6de30f120938c17c593fb");
const ROS2: (&str, &str) = (
    "rcl_interfaces/msg/Log",
    "RIHS01_e28ce254ca8abc06abf92773b74602cdbf116ed34fbaf294fb9f81da9f318eac",
);
/// Bytes before the name in CDR: encapsulation, time and level, padded.
const CDR_NAME_OFFSET: usize = 4 + 12;

/// Whether a topic has the messages of nodes to people, by its name, type and hash. ROS 2 before Iron
/// has no hashes.
pub fn is_log(topic: &str, type_name: &str, type_hash: &str) -> bool {
    let found = (type_name, type_hash);
    topic == TOPIC && (found == ROS1 || found == ROS2 || found == (ROS2.0, ""))
}

/// The message with `prefix` (`/robot1`) before the name of its node; `None` if it is malformed.
pub fn with_prefix(message: &Bytes, type_name: &str, prefix: &str) -> Option<Bytes> {
    debug_assert!(check_peer_name(prefix).is_ok());
    match dialect_of(type_name) {
        Dialect::Ros1 => prefix_ros1(message, prefix),
        Dialect::Ros2 => prefix_ros2(message, prefix),
    }
}

fn number(bytes: &[u8], at: usize, is_little: bool) -> Option<usize> {
    let bytes: [u8; 4] = *bytes.get(at..)?.first_chunk()?;
    let number = if is_little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) };
    usize::try_from(number).ok()
}

/// The layout: a header that ends with the text `frame_id`, the level, the name, ...
fn prefix_ros1(message: &Bytes, prefix: &str) -> Option<Bytes> {
    let frame = number(message, 12, true)?;
    let at = 16usize.checked_add(frame)?.checked_add(1)?;
    let length = number(message, at, true)?;
    let name = message.get(at + 4..(at + 4).checked_add(length)?)?;
    let own = name.strip_prefix(b"/").unwrap_or(name);
    let mut written = message[..at].to_vec();
    let length = u32::try_from(prefix.len() + 1 + own.len()).ok()?;
    written.extend_from_slice(&length.to_le_bytes());
    written.extend_from_slice(&[prefix.as_bytes(), b"/", own].concat());
    written.extend_from_slice(&message[at + 4 + name.len()..]);
    Some(written.into())
}

/// In the prefix, dots replace slashes: logger names separate their levels by dots.
fn prefix_ros2(message: &Bytes, prefix: &str) -> Option<Bytes> {
    let is_little = message.get(1)? & 1 == 1;
    let length = number(message, CDR_NAME_OFFSET, is_little)?;
    let start = CDR_NAME_OFFSET + 4;
    // The length includes the final NUL.
    let name = message.get(start..start.checked_add(length)?)?.strip_suffix(&[0])?;
    let levels = prefix.trim_matches('/').replace('/', ".");
    let full = [levels.as_bytes(), if name.is_empty() { b"" } else { b"." }, name, &[0]].concat();
    let mut written = message[..CDR_NAME_OFFSET].to_vec();
    let new_length = u32::try_from(full.len()).ok()?;
    written.extend_from_slice(&match is_little {
        true => new_length.to_le_bytes(),
        false => new_length.to_be_bytes(),
    });
    written.extend_from_slice(&full);
    // All that follows is aligned to at most four bytes.
    written.resize(written.len().next_multiple_of(4), 0);
    let end = (start + length).next_multiple_of(4);
    written.extend_from_slice(message.get(end..)?);
    Some(written.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn string(text: &str) -> Vec<u8> {
        [&u32::try_from(text.len()).unwrap().to_le_bytes()[..], text.as_bytes()].concat()
    }

    fn ros1(name: &str) -> Bytes {
        [vec![1; 12], string("frame"), vec![2], string(name), string("message"), vec![0; 16]]
            .concat()
            .into()
    }

    fn ros2(name: &str) -> Bytes {
        let mut cdr = vec![0, 1, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 20, 0, 0, 0];
        for part in [name, "message", "file", "function"] {
            cdr.resize(cdr.len().next_multiple_of(4), 0);
            cdr.extend(string(&format!("{part}\0")));
        }
        cdr.resize(cdr.len().next_multiple_of(4), 0);
        cdr.extend([9, 0, 0, 0]);
        cdr.into()
    }

    #[test]
    fn the_prefix_is_inserted_before_the_name() {
        let renamed =
            |message: &Bytes, kind: &str| with_prefix(message, kind, "/fleet/r1").unwrap();
        for (name, expected) in
            [("/camera", "/fleet/r1/camera"), ("x", "/fleet/r1/x"), ("", "/fleet/r1/")]
        {
            assert_eq!(renamed(&ros1(name), ROS1.0), ros1(expected));
        }
        for (name, expected) in [
            ("camera", "fleet.r1.camera"),
            ("arm.n", "fleet.r1.arm.n"),
            ("", "fleet.r1"),
            ("abc", "fleet.r1.abc"),
        ] {
            assert_eq!(renamed(&ros2(name), ROS2.0), ros2(expected));
        }
    }

    #[test]
    fn truncated_messages_are_not_renamed() {
        let (first, second) = (ros1("/camera"), ros2("camera"));
        for length in 0..first.len() - 32 {
            assert_eq!(with_prefix(&first.slice(..length), ROS1.0, "/r"), None, "{length}");
        }
        for length in 0..28 {
            assert_eq!(with_prefix(&second.slice(..length), ROS2.0, "/r"), None, "{length}");
        }
        let huge =
            [&second[..CDR_NAME_OFFSET], &[0xff; 4], &second[CDR_NAME_OFFSET + 4..]].concat();
        assert_eq!(with_prefix(&huge.into(), ROS2.0, "/r"), None);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_renamed_or_refused(bytes: Vec<u8>, length in 0_u32..40) {
            let mut named = bytes.clone();
            for at in [12, 16] {
                if let Some(place) = named.get_mut(at..at + 4) {
                    place.copy_from_slice(&length.to_le_bytes());
                }
            }
            for bytes in [bytes, named] {
                for kind in [ROS1.0, ROS2.0] {
                    let message = Bytes::from(bytes.clone());
                    if let Some(renamed) = with_prefix(&message, kind, "/r") {
                        assert!(renamed.len() > message.len() - 4);
                    }
                }
            }
        }
    }

    #[test]
    fn only_rosout_with_its_types_is_a_log() {
        assert!(is_log("/rosout", ROS1.0, ROS1.1) && is_log("/rosout", ROS2.0, ""));
        assert!(!is_log("/rosout", ROS1.0, "") && !is_log("/log", ROS1.0, ROS1.1));
        assert!(!is_log("/rosout", "std_msgs/String", ROS1.1));
    }
}
