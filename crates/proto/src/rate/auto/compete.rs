// SPDX-License-Identifier: Apache-2.0
//! The rate alongside senders that fill the queue however this node behaves: the rate of a TCP with CUBIC
//! (RFC 9438).

use super::tuning::Tuning;
use crate::rate::controller::FULL_PACKET;
use crate::time::{Duration, Instant};

/// The constant C of RFC 9438, section 4.1, in packets per second cubed.
const C: f64 = 0.4;
/// Bits of a full packet.
const PACKET_BITS: f64 = 8.0 * FULL_PACKET as f64;
/// The longest round trip decreases by one part in this many with each sample.
const MAX_RTT_DECAY: u32 = 256;
/// The rate is at most this many times the rate at which packets arrive.
const MAX_RATE_FACTOR: f64 = 2.0;
/// The queue is nearly full above this part of the longest round trip.
const NEARLY_FULL: f64 = 0.6;

/// The window of a TCP. The rate follows from it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Compete {
    /// The present window, in packets.
    window: f64,
    /// The window at the last overflow, in packets.
    window_max: f64,
    /// When the queue last overflowed.
    last_overflow: Instant,
    /// When the window last grew.
    last_growth: Instant,
    /// The round trip when the window last grew.
    rtt: Duration,
    /// The least round trip known at the beginning. All later round trips may include the queue.
    least: Duration,
    /// The longest recent round trip.
    max_rtt: Duration,
}

impl Compete {
    /// Begins after an overflow, at a rate in bits per second.
    pub(super) fn begin(
        now: Instant,
        rate: f64,
        rtt: Duration,
        least: Duration,
        tuning: &Tuning,
    ) -> Self {
        let window = rate * rtt.as_secs_f64() / PACKET_BITS;
        Self {
            window,
            window_max: window / tuning.backoff,
            last_overflow: now,
            last_growth: now,
            rtt,
            least,
            max_rtt: rtt,
        }
    }

    /// Limit of outstanding bytes. A report comes later than the acknowledgement of a TCP would, by
    /// `interval`.
    pub(super) fn window_bytes(&self, interval: Duration) -> usize {
        let longer = 1.0 + interval.as_secs_f64() / self.rtt.as_secs_f64().max(1e-3);
        ((self.window * longer + 2.0) * FULL_PACKET as f64) as usize
    }

    /// The time for which packets are queued if the round trip is `rtt`.
    pub(super) fn delay(&self, rtt: Duration) -> Duration {
        rtt.saturating_sub(self.least)
    }

    /// Whether the queue is close to its greatest length. The packets of other senders then wait longest,
    /// too.
    pub(super) fn is_nearly_full(&self) -> bool {
        self.rtt > self.max_rtt.mul_f64(NEARLY_FULL)
    }

    /// Reduces the window after an overflow of the queue.
    pub(super) fn reduce(&mut self, now: Instant, tuning: &Tuning) {
        (self.window_max, self.last_overflow, self.last_growth) = (self.window, now, now);
        self.window *= tuning.backoff;
    }

    /// Lets the window grow until `now` as that of a TCP does, while packets arrive at a rate in bits per
    /// second. Returns the rate that the window gives at this round trip.
    pub(super) fn grow(
        &mut self,
        now: Instant,
        arrived: f64,
        rtt: Duration,
        tuning: &Tuning,
    ) -> f64 {
        self.rtt = rtt;
        self.max_rtt = rtt.max(self.max_rtt - self.max_rtt / MAX_RTT_DECAY);
        let rtt = rtt.as_secs_f64().max(1e-3);
        let recovery = (self.window_max * (1.0 - tuning.backoff) / C).cbrt();
        let since = now.since(self.last_overflow).as_secs_f64() + rtt;
        let cubic = C * (since - recovery).powi(3) + self.window_max;
        // The window grows at least as much as that of a Reno with the same reduction (section 4.3). This
        // holds for each round trip, not only for the sum since the overflow. Otherwise, where the plateau is
        // long, a TCP that was there first would keep most of the path.
        let reno = 3.0 * (1.0 - tuning.backoff) / (1.0 + tuning.backoff);
        let passed = now.since(self.last_growth).as_secs_f64() / rtt;
        self.last_growth = now;
        let most = self.window * (1.0 + passed / 2.0);
        let window = cubic.min(most).max(self.window + reno * passed);
        self.window = window.min(MAX_RATE_FACTOR * arrived * rtt / PACKET_BITS).max(2.0);
        self.window * PACKET_BITS / rtt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_grows_like_cubic() {
        let tuning = Tuning::default();
        let rtt = Duration::from_millis(100);
        let at = |ms: u64| Instant(1_000_000_000) + Duration::from_millis(ms);
        let mut compete = Compete::begin(at(0), 12e6, rtt, rtt / 10, &tuning);
        compete.window = 100.0;
        compete.reduce(at(0), &tuning);
        assert_eq!(compete.window, 70.0);
        // RFC 9438, figure 2: the time to the plateau is the cube root of 100 * 0.3 / 0.4 s.
        let windows: Vec<f64> = (1..=84)
            .map(|n| {
                compete.grow(at(n * 100), 1e9, rtt, &tuning);
                compete.window
            })
            .collect();
        assert!((100.0..110.0).contains(&windows[41]), "{windows:?}");
        assert!(windows.is_sorted() && windows[20] > 88.0 && windows[83] > 120.0, "{windows:?}");
    }

    #[test]
    fn the_rate_stays_near_the_delivery_rate() {
        let tuning = Tuning::default();
        let rtt = Duration::from_millis(100);
        let now = Instant(1_000_000_000);
        let mut compete = Compete::begin(now, 6e6, rtt, rtt / 10, &tuning);
        let rate = compete.grow(now + Duration::from_secs(100), 1e6, rtt, &tuning);
        assert!((rate - 2e6).abs() < 1.0, "{rate}");
    }
}
