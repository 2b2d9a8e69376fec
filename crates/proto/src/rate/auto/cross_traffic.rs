// SPDX-License-Identifier: Apache-2.0
//! The rate alongside cross traffic that fills the queue however others behave, as a TCP download
//! does. A sender that always yields to it gets nothing, and one that never yields leaves nothing.
//! The rate therefore stays between a quarter and a half of the former estimate. It grows by a
//! packet per round trip and falls when the queue overflows, as TCP's rate does.

use crate::rate::FULL_PACKET;
use crate::time::{Duration, Instant};

/// The lowest rate, as a fraction of the estimate before the cross traffic.
const MIN_FRACTION: f64 = 0.25;
/// The lowest rate persists while the cross traffic was detected within this time, although the
/// estimate has fallen since.
const MEMORY: Duration = Duration::from_secs(120);
/// The highest rate, as a multiple of the lowest.
const MAX_OVER_MIN: f64 = 2.0;
/// The reduction at an overflow, which both senders make: CUBIC's factor (RFC 9438).
const BACKOFF: f64 = 0.7;

/// The limits of the rate alongside cross traffic, in bits per second.
#[derive(Debug)]
pub(super) struct CrossTraffic {
    min_rate: f64,
    last_detected: Instant,
    /// The cross traffic was there first, and its queue has not overflowed yet: the capacity of
    /// the path is unknown.
    capacity_unknown: bool,
}

impl Default for CrossTraffic {
    fn default() -> Self {
        Self { min_rate: 0.0, last_detected: Instant::default(), capacity_unknown: true }
    }
}

impl CrossTraffic {
    pub(super) fn min_rate(&self) -> f64 {
        self.min_rate
    }

    /// The highest rate, which leaves as much for the cross traffic; infinite while the capacity is
    /// unknown.
    pub(super) fn max_rate(&self) -> f64 {
        if self.capacity_unknown { f64::INFINITY } else { self.min_rate * MAX_OVER_MIN }
    }

    /// The growth per round trip, one packet as in TCP (RFC 5681); `None` while the capacity is
    /// unknown.
    pub(super) fn growth(&self, rtt: Duration) -> Option<f64> {
        (!self.capacity_unknown).then(|| FULL_PACKET as f64 * 8.0 / rtt.as_secs_f64())
    }

    /// The queue overflowed at `estimate`, of which `delivered` arrived; returns the new estimate.
    pub(super) fn on_overflow(&mut self, estimate: f64, delivered: f64) -> f64 {
        self.min_rate = match self.capacity_unknown {
            true => delivered / MAX_OVER_MIN,
            false => self.min_rate.min(delivered),
        };
        self.capacity_unknown = false;
        estimate * BACKOFF
    }

    /// No cross traffic is present, so that the estimate shows the capacity.
    pub(super) fn on_absence(&mut self) {
        self.capacity_unknown = false;
    }

    /// Cross traffic was detected. The estimate before it was `estimate`, or higher if the cross
    /// traffic was present already.
    pub(super) fn on_detected(&mut self, now: Instant, estimate: f64) {
        let is_recent = now.since(self.last_detected) < MEMORY;
        let remembered = if is_recent { self.min_rate } else { 0.0 };
        (self.min_rate, self.last_detected) = ((estimate * MIN_FRACTION).max(remembered), now);
    }

    /// Cross traffic was detected while little was sent; `guess` stands in for the capacity.
    pub(super) fn on_detected_while_idle(&mut self, now: Instant, guess: f64) {
        *self = Self { min_rate: guess * MIN_FRACTION, last_detected: now, ..Self::default() };
    }
}
