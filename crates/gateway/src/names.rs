// SPDX-License-Identifier: Apache-2.0
//! Rules for names of topics, services and frames. Pure.
//!
//! | names | characters of each level |
//! |---|---|
//! | of this robot, in the configuration file | letters, digits and `_` |
//! | of peers, and of ROS 1 | also `-` and `.`: rospy takes them, roscpp does not |
//! | of ROS 2 (`rmw_validate_full_topic_name`) | letters, digits and `_`; the first is no digit |

use crate::types::Dialect;

/// Longest name of a topic or service of ROS 2, in bytes (`RMW_TOPIC_MAX_NAME_LENGTH`).
const MAX_ROS2_BYTES: usize = 247;

/// Why a name or pattern is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Names of topics are absolute.
    #[error("'{0}' does not start with '/'")]
    NotAbsolute(String),
    /// A character that is invalid in a ROS name.
    #[error("'{name}' has '{found}'; a level of a name is letters, digits and '_'{also}")]
    Character {
        /// The whole text.
        name: String,
        /// The first invalid character.
        found: char,
        /// Further characters allowed here.
        also: &'static str,
    },
    /// tf2 refuses absolute names of frames.
    #[error("'{0}' starts with '/', which names of frames do not")]
    Absolute(String),
    /// An empty level, as in `//` or a trailing `/`.
    #[error("'{0}' has an empty level")]
    EmptyLevel(String),
    /// A level that ROS 2 refuses.
    #[error("'{name}' has the level '{level}'; in ROS 2, no level starts with a digit")]
    Digit {
        /// The whole name.
        name: String,
        /// The first such level.
        level: String,
    },
    /// More bytes than ROS 2 takes.
    #[error("'{name}' has {} bytes; allowed in ROS 2: {MAX_ROS2_BYTES}", name.len())]
    TooLong {
        /// The whole name.
        name: String,
    },
}

/// Checks that `name` is an absolute ROS name such as `/robot1/scan`, in the characters that all
/// programs of both ROS take.
pub fn check_name(name: &str) -> Result<(), NameError> {
    check(name, "", |_| false)
}

/// Checks the name of a topic or service at a peer.
pub fn check_peer_name(name: &str) -> Result<(), NameError> {
    check(name, ", '-' and '.'", is_peer_name_char)
}

/// Checks that nodes of this robot's ROS can use `name`; `None`: no ROS.
pub fn check_local_name(name: &str, ros: Option<Dialect>) -> Result<(), NameError> {
    if ros != Some(Dialect::Ros2) {
        return check_peer_name(name);
    }
    check(name, " in ROS 2", |_| false)?;
    let digit = |level: &&str| level.starts_with(|first: char| first.is_ascii_digit());
    let name = name.to_owned();
    match name.split('/').find(digit).map(str::to_owned) {
        Some(level) => Err(NameError::Digit { name, level }),
        None if name.len() > MAX_ROS2_BYTES => Err(NameError::TooLong { name }),
        None => Ok(()),
    }
}

/// Proposes a similar name that programs of both ROS accept.
pub fn plain_name(name: &str) -> String {
    let level = |level: &str| {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let text: String = level.chars().map(plain).collect();
        match text.starts_with(|first: char| first.is_ascii_digit()) {
            true => format!("n{text}"),
            false => text,
        }
    };
    let levels: Vec<String> = name.split('/').map(level).collect();
    levels.join("/")
}

/// Whether `name` is the prefix (`/robot1`) itself or lies under it.
pub fn is_below(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether names at a peer may have a character besides letters, digits and `_`.
pub(crate) fn is_peer_name_char(c: char) -> bool {
    matches!(c, '-' | '.')
}

pub(crate) fn check(
    name: &str,
    also: &'static str,
    allowed: impl Fn(char) -> bool,
) -> Result<(), NameError> {
    match name.strip_prefix('/') {
        Some(levels) => check_levels(name, levels, also, allowed),
        None => Err(NameError::NotAbsolute(name.into())),
    }
}

pub(crate) fn check_levels(
    name: &str,
    levels: &str,
    also: &'static str,
    allowed: impl Fn(char) -> bool,
) -> Result<(), NameError> {
    for level in levels.split('/') {
        if level.is_empty() {
            return Err(NameError::EmptyLevel(name.into()));
        }
        let odd = level.chars().find(|&c| !(c.is_ascii_alphanumeric() || c == '_' || allowed(c)));
        if let Some(found) = odd {
            return Err(NameError::Character { name: name.into(), found, also });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ros_has_its_own_rules() {
        let long = format!("/{}", "a".repeat(MAX_ROS2_BYTES));
        for (name, ros1, ros2) in [
            ("/scan", true, true),
            ("/robot1/_action/status", true, true),
            ("/camera-1/image", true, false),
            ("/camera.left", true, false),
            ("/lidar/bottom/1_2v", true, false),
            (&*long, true, false),
            ("/a b", false, false),
            ("/a//b", false, false),
            ("a", false, false),
        ] {
            assert_eq!(check_local_name(name, Some(Dialect::Ros1)).is_ok(), ros1, "{name}");
            assert_eq!(check_local_name(name, Some(Dialect::Ros2)).is_ok(), ros2, "{name}");
        }
        let error = check_local_name("/x/1_2v", Some(Dialect::Ros2)).unwrap_err().to_string();
        assert!(error.contains("'/x/1_2v' has the level '1_2v'; in ROS 2"), "{error}");
        let error = check_local_name("/x-1", Some(Dialect::Ros2)).unwrap_err().to_string();
        assert!(error.ends_with("has '-'; a level of a name is letters, digits and '_' in ROS 2"));
    }

    #[test]
    fn a_proposed_name_is_valid_in_ros_1_and_ros_2() {
        for (odd, plain) in [
            ("/camera-1/image", "/camera_1/image"),
            ("/lidar/bottom/1_2v", "/lidar/bottom/n1_2v"),
            ("/a b", "/a_b"),
        ] {
            assert_eq!(plain_name(odd), plain);
            check_local_name(plain, Some(Dialect::Ros2)).unwrap();
        }
    }
}
