// SPDX-License-Identifier: Apache-2.0
//! Instants and durations in the range of the other ROS.
//!
//! | | seconds | nanoseconds |
//! |---|---|---|
//! | ROS 1 `time` | u32 | u32 |
//! | ROS 1 `duration` | i32 | i32 |
//! | ROS 2 `Time`, `Duration` | i32 | u32 |
//!
//! Programs of both ROS write nanoseconds outside of 0 to 999 999 999. The result is the same
//! instant, with nanoseconds in that range, as roscpp, rospy and rclcpp normalise it.

use super::error::TranscodeError;

/// Bytes of a time in either ROS.
pub const TIME_BYTES: usize = 8;
const BILLION: i64 = 1_000_000_000;

/// One of the two ROS, and its definition of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Ros1,
    Ros2,
}

/// The two types of ROS 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeKind {
    Instant,
    Duration,
}

impl TimeKind {
    /// Converts the bytes of a time for the other ROS; `side` is the ROS of the input. Both are
    /// little-endian. If the other ROS cannot hold the value, the error names it.
    pub fn convert(
        self,
        side: Side,
        [a, b, c, d, e, f, g, h]: [u8; TIME_BYTES],
    ) -> Result<[u8; TIME_BYTES], TranscodeError> {
        let (sec, nanosec) = ([a, b, c, d], [e, f, g, h]);
        let signed = |bytes| i64::from(i32::from_le_bytes(bytes));
        let unsigned = |bytes| i64::from(u32::from_le_bytes(bytes));
        let is_ros1 = side == Side::Ros1;
        let sec_found = if is_ros1 && self == Self::Instant { unsigned(sec) } else { signed(sec) };
        let nanosec_found =
            if is_ros1 && self == Self::Duration { signed(nanosec) } else { unsigned(nanosec) };
        let sec = sec_found + nanosec_found.div_euclid(BILLION);
        let sec = match (self, side) {
            (Self::Instant, Side::Ros2) => u32::try_from(sec).ok().map(u32::to_le_bytes),
            _ => i32::try_from(sec).ok().map(i32::to_le_bytes),
        };
        let [a, b, c, d] = sec.ok_or_else(|| self.out_of_range(side, sec_found, nanosec_found))?;
        // Below a billion.
        let nanosec = nanosec_found.rem_euclid(BILLION) as u32;
        let [e, f, g, h] = nanosec.to_le_bytes();
        Ok([a, b, c, d, e, f, g, h])
    }

    fn out_of_range(self, side: Side, sec: i64, nanosec: i64) -> TranscodeError {
        let to = if side == Side::Ros1 { "ROS 2" } else { "ROS 1" };
        let (what, least, most) = match (self, side) {
            (Self::Instant, Side::Ros2) => ("time", 0, i64::from(u32::MAX)),
            (Self::Instant, Side::Ros1) => ("time", i64::from(i32::MIN), i64::from(i32::MAX)),
            (Self::Duration, _) => ("duration", i64::from(i32::MIN), i64::from(i32::MAX)),
        };
        TranscodeError::new(format!(
            "the {what} {sec} s + {nanosec} ns is beyond the range of {to}; allowed: {least} to \
             {most} s"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use TimeKind::{Duration, Instant};

    fn converted_time(
        kind: TimeKind,
        side: Side,
        sec: i64,
        nanosec: i64,
    ) -> Result<(i64, u32), String> {
        let bytes = [sec as u32, nanosec as u32].map(u32::to_le_bytes).concat();
        let result = kind.convert(side, bytes.try_into().unwrap()).map_err(|it| it.to_string())?;
        let word = |at: usize| u32::from_le_bytes(result[at..at + 4].try_into().unwrap());
        let unsigned = (kind, side) == (Instant, Side::Ros2);
        let sec = if unsigned { i64::from(word(0)) } else { i64::from(word(0) as i32) };
        Ok((sec, word(4)))
    }

    #[test]
    fn translated_times_keep_their_instant() {
        let max = i64::from(i32::MAX);
        for (kind, side, (sec, nanosec), expected) in [
            (Instant, Side::Ros1, (7, 9), (7, 9)),
            (Instant, Side::Ros1, (1, 4_000_000_000), (5, 0)),
            (Instant, Side::Ros1, (max - 1, 1_999_999_999), (max, 999_999_999)),
            (Duration, Side::Ros1, (-1, -500_000_000), (-2, 500_000_000)),
            (Duration, Side::Ros1, (0, -1), (-1, 999_999_999)),
            (Duration, Side::Ros1, (1, 1_500_000_000), (2, 500_000_000)),
            (Duration, Side::Ros1, (max, -1), (max - 1, 999_999_999)),
            (Instant, Side::Ros2, (max, 1_000_000_000), (max + 1, 0)),
            (Instant, Side::Ros2, (-1, 1_000_000_001), (0, 1)),
            (Duration, Side::Ros2, (-2, 500_000_000), (-2, 500_000_000)),
            (Duration, Side::Ros2, (-4, 4_000_000_000), (0, 0)),
        ] {
            let found = converted_time(kind, side, sec, nanosec);
            assert_eq!(found, Ok(expected), "{kind:?} of {side:?}: {sec} {nanosec}");
        }
    }

    #[test]
    fn an_instant_that_the_other_ros_lacks_is_refused_with_its_value() {
        let (max, most) = (i64::from(i32::MAX), i64::from(u32::MAX));
        for (kind, side, (sec, nanosec)) in [
            (Instant, Side::Ros1, (3_000_000_000, 0)),
            (Instant, Side::Ros1, (max, 1_000_000_000)),
            (Instant, Side::Ros1, (most, most)),
            (Duration, Side::Ros1, (i64::from(i32::MIN), -1)),
            (Duration, Side::Ros1, (max, max)),
            (Instant, Side::Ros2, (-1, 0)),
            (Instant, Side::Ros2, (-5, 4_000_000_000)),
            (Duration, Side::Ros2, (max, most)),
        ] {
            let error = converted_time(kind, side, sec, nanosec).unwrap_err();
            let found = format!("{sec} s + {nanosec} ns");
            assert!(error.contains(&found) && error.contains("allowed: "), "{error}");
        }
    }
}
