// SPDX-License-Identifier: Apache-2.0
//! Time stamps in peers' messages: if the file says so, they are moved onto this robot's clock by the
//! measured offset of the two clocks, so that local nodes find transforms for them.

use super::super::Topics;
use super::super::frames::MAX_BYTES_HERE;
use super::ChannelKey;
use bytes::Bytes;
use std::sync::Arc;
use tautline_gateway::tf::fields::{StampFields, Stamps};
use tautline_proto::{ClockView, Instant};

/// A change of the stamps in a message.
#[derive(Debug, Clone)]
pub(crate) struct StampMove {
    fields: Arc<StampFields>,
    by_ns: i64,
}

impl StampMove {
    /// Returns the message with the moved stamps. One that cannot be read stays as it is: it has
    /// been checked, or will be.
    pub(crate) fn apply(&self, payload: Bytes) -> Bytes {
        match self.fields.moved(&payload, self.by_ns) {
            Ok(Some(moved)) => moved.into(),
            Ok(None) | Err(_) => payload,
        }
    }

    /// Whether the codec moves the stamps of a message of this size.
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
    /// Returns how stamps in messages of a peer's topic are moved; `None`: not at all.
    pub(super) fn stamp_move(&mut self, now: Instant, key: ChannelKey) -> Option<StampMove> {
        if !self.rights(key.peer).moves_stamps() {
            return None;
        }
        let by_ns = distance_ns(self.endpoint.peer(key.peer).clock);
        let remote = self.remote.get_mut(key)?;
        match &remote.checked.stamps {
            Stamps::Nowhere => None,
            Stamps::In(fields) => (by_ns != 0).then(|| StampMove { fields: fields.clone(), by_ns }),
            Stamps::Unknown => {
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
