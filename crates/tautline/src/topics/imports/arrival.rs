// SPDX-License-Identifier: Apache-2.0
//! Fields of peers' messages that are changed on arrival:
//! - Time stamps are moved onto this robot's clock by the measured offset of the two clocks, if the
//!   file says so. Local nodes then find transforms for the stamps.
//! - Frames with this robot's own prefix of tf lose the prefix, because local nodes know these
//!   frames without it.

use crate::topics::limits::MAX_INLINE_REWRITE_BYTES;
use bytes::Bytes;
use std::sync::Arc;
use tautline_gateway::tf::Rules;
use tautline_gateway::tf::fields::{FrameFields, StampFields};
use tautline_proto::ClockView;

/// A change of fields in a message.
#[derive(Debug, Clone)]
pub(crate) struct ArrivalChange {
    pub(super) frames: Option<(Arc<FrameFields>, Arc<Rules>)>,
    /// The fields of stamps, and the nanoseconds that are added to each stamp.
    pub(super) stamps: Option<(Arc<StampFields>, i64)>,
}

impl ArrivalChange {
    /// Returns the changed message. A message that cannot be read stays unchanged, because it is
    /// checked elsewhere.
    pub(crate) fn apply(&self, payload: Bytes) -> Bytes {
        let frames = self.frames.as_ref();
        let restored =
            frames.and_then(|(fields, rules)| fields.with_restored_frames(&payload, rules).ok()?);
        let payload = restored.map_or(payload, Bytes::from);
        let stamps = self.stamps.as_ref();
        let moved = stamps
            .and_then(|(fields, offset_ns)| fields.with_moved_stamps(&payload, *offset_ns).ok()?);
        moved.map_or(payload, Bytes::from)
    }

    /// Whether messages of this size are changed by the codec.
    pub(super) fn needs_codec(bytes: usize) -> bool {
        bytes > MAX_INLINE_REWRITE_BYTES
    }
}

/// Returns the nanoseconds to add to a stamp of the peer to get a stamp of this robot. Returns 0 if
/// the offset is not known, or does not exceed its own error.
pub(super) fn stamp_offset_ns(clock: Option<ClockView>) -> i64 {
    let offset_us = clock.and_then(|clock| {
        let bound_us = u64::try_from(clock.bound.as_micros()).unwrap_or(u64::MAX);
        clock.offset_us.filter(|offset| offset.unsigned_abs() > bound_us)
    });
    offset_us.unwrap_or(0).saturating_mul(-1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tautline_proto::Duration;

    #[test]
    fn an_offset_is_reported_if_it_exceeds_its_error() {
        let clock = |offset_us| {
            Some(ClockView { offset_us, bound: Duration::from_micros(500), drift_ppm: None })
        };
        assert_eq!(stamp_offset_ns(None), 0);
        assert_eq!(stamp_offset_ns(clock(None)), 0);
        assert_eq!(stamp_offset_ns(clock(Some(500))), 0);
        assert_eq!(stamp_offset_ns(clock(Some(-501))), 501_000);
        assert_eq!(stamp_offset_ns(clock(Some(2_000_000))), -2_000_000_000);
    }
}
