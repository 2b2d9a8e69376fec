// SPDX-License-Identifier: Apache-2.0
//! Fields that change in peers' messages when they arrive:
//! - Time stamps are moved onto this robot's clock by the measured offset of the two clocks, if the
//!   file says so. Local nodes then find transforms for them.
//! - Frames with this robot's own prefix of tf lose it. Local nodes know them without.

use super::super::Topics;
use super::super::frames::MAX_BYTES_HERE;
use super::ChannelKey;
use bytes::Bytes;
use std::sync::Arc;
use tautline_gateway::action_names::action_of;
use tautline_gateway::tf::Rules;
use tautline_gateway::tf::fields::{FrameFields, Places, StampFields};
use tautline_proto::{ClockView, Instant};

/// A change of fields in a message.
#[derive(Debug, Clone)]
pub(crate) struct ArrivalChange {
    frames: Option<(Arc<FrameFields>, Arc<Rules>)>,
    /// With the nanoseconds that are added to each stamp.
    stamps: Option<(Arc<StampFields>, i64)>,
}

impl ArrivalChange {
    /// Returns the changed message. One that cannot be read stays as it is: it has been checked, or
    /// will be.
    pub(crate) fn apply(&self, payload: Bytes) -> Bytes {
        let frames = self.frames.as_ref();
        let restored = frames.and_then(|(fields, rules)| fields.restored(&payload, rules).ok()?);
        let payload = restored.map_or(payload, Bytes::from);
        let stamps = self.stamps.as_ref();
        let moved = stamps.and_then(|(fields, by_ns)| fields.moved(&payload, *by_ns).ok()?);
        moved.map_or(payload, Bytes::from)
    }

    /// Whether the codec changes messages of this size.
    pub(super) fn is_for_codec(bytes: usize) -> bool {
        bytes > MAX_BYTES_HERE
    }
}

/// Returns the nanoseconds from a stamp of the peer to one of this robot; 0 if the offset is not
/// known, or if it may be an error of its measurement.
fn distance_ns(clock: Option<ClockView>) -> i64 {
    let offset_us = clock.and_then(|clock| {
        let bound_us = u64::try_from(clock.bound.as_micros()).unwrap_or(u64::MAX);
        clock.offset_us.filter(|offset| offset.unsigned_abs() > bound_us)
    });
    offset_us.unwrap_or(0).saturating_mul(-1000)
}

impl Topics {
    /// Returns the change of fields in messages of a peer's topic; `None`: there is none.
    pub(super) fn arrival_change(
        &mut self,
        now: Instant,
        key: ChannelKey,
    ) -> Option<ArrivalChange> {
        let change = ArrivalChange {
            frames: self.frames_with_own_names(key),
            stamps: self.moved_stamps(now, key),
        };
        (change.frames.is_some() || change.stamps.is_some()).then_some(change)
    }

    fn frames_with_own_names(&self, key: ChannelKey) -> Option<(Arc<FrameFields>, Arc<Rules>)> {
        if self.tf_rules.prefix.is_empty() {
            return None;
        }
        let remote = self.remote.get(key)?;
        match &remote.checked.fields.frames {
            // The services of an action keep the names of frames, so its topics do as well.
            Places::In(fields) if action_of(&remote.topic.name).is_none() => {
                Some((fields.clone(), self.tf_rules.clone()))
            }
            Places::In(_) | Places::Nowhere | Places::Unknown => None,
        }
    }

    fn moved_stamps(&mut self, now: Instant, key: ChannelKey) -> Option<(Arc<StampFields>, i64)> {
        if !self.rights(key.peer).moves_stamps() {
            return None;
        }
        let by_ns = distance_ns(self.endpoint.peer(key.peer).clock);
        let remote = self.remote.get_mut(key)?;
        match &remote.checked.fields.stamps {
            Places::Nowhere => None,
            Places::In(fields) => (by_ns != 0).then(|| (fields.clone(), by_ns)),
            Places::Unknown => {
                if remote.checked.stamps_told.is_due(now) {
                    let (topic, type_name) =
                        (remote.topic.name.clone(), remote.topic.type_name.clone());
                    let text = format!(
                        "{topic} of '{}': time stamps are not moved: no definition of {type_name} \
                         is known; install its package",
                        self.peer_name(key.peer)
                    );
                    self.peer_notice(now, key.peer, &text);
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tautline_proto::Duration;

    #[test]
    fn an_offset_counts_if_it_exceeds_its_error() {
        let clock = |offset_us| {
            Some(ClockView { offset_us, bound: Duration::from_micros(500), drift_ppm: None })
        };
        assert_eq!(distance_ns(None), 0);
        assert_eq!(distance_ns(clock(None)), 0);
        assert_eq!(distance_ns(clock(Some(500))), 0);
        assert_eq!(distance_ns(clock(Some(-501))), 501_000);
        assert_eq!(distance_ns(clock(Some(2_000_000))), -2_000_000_000);
    }
}
