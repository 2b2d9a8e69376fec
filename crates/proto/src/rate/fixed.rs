// SPDX-License-Identifier: Apache-2.0
//! A configured rate, as in the ROS tool Pound: a gap after each packet.

use super::controller::{Controller, PendingPacket, Release, next_send_time};
use super::local::BackPressure;
use crate::time::{Instant, serialization_time};

/// Bytes of the link-layer header (Ethernet, 802.11 after conversion) that a configured rate includes.
const FRAME_HEADER: usize = 14;
/// Bytes by which the next packet may be early: one full packet. A late timer then costs no rate.
const CATCH_UP_BYTES: usize = 1514;

/// A gap after each packet: its serialization time at a configured rate (Pound). Local
/// back-pressure still applies if the configured rate exceeds the radio's.
#[derive(Debug)]
pub struct Fixed {
    rate_bps: u64,
    next: Instant,
    local: BackPressure,
}

impl Fixed {
    /// Paces packets at `rate_bps`, link-layer header included.
    pub fn new(rate_bps: u64, local: BackPressure) -> Self {
        Self { rate_bps, next: Instant::default(), local }
    }
}

impl Controller for Fixed {
    fn release(&mut self, now: Instant, packet: PendingPacket, in_flight: usize) -> Release {
        match self.local.release(now, packet, in_flight) {
            Release::Now if now < self.next => Release::At(self.next),
            other => other,
        }
    }

    fn on_sent(&mut self, now: Instant, bytes: usize, in_flight: usize) {
        self.local.on_sent(now, bytes, in_flight);
        let catch_up = serialization_time(CATCH_UP_BYTES, self.rate_bps);
        let gap = serialization_time(bytes + FRAME_HEADER, self.rate_bps);
        self.next = next_send_time(self.next, now, gap, catch_up);
    }

    fn on_drained(&mut self, now: Instant, bytes: usize) {
        self.local.on_drained(now, bytes);
    }

    fn expected_start(&self, now: Instant, in_flight: usize) -> Instant {
        self.local.expected_start(now, in_flight).max(self.next)
    }

    fn service_bps(&self, now: Instant) -> Option<u64> {
        self.local.service_bps(now)
    }

    fn signal(&self) -> &'static str {
        "rate"
    }

    fn limit_bytes(&self) -> usize {
        self.local.limit_bytes()
    }

    fn rate_bps(&self) -> Option<u64> {
        Some(self.rate_bps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_spaced_by_their_airtime() {
        let mut fixed = Fixed::new(6_000_000, BackPressure::new(3000));
        let packet = PendingPacket { bytes: 1500, urgent: false };
        let start = Instant(1_000_000_000);
        let mut sent = 0;
        while fixed.release(start, packet, 0) == Release::Now {
            fixed.on_sent(start, 1500, 0);
            sent += 1;
        }
        assert_eq!(sent, 2, "one to catch up with a late timer, one for now");
        let gap = serialization_time(1514, 6_000_000);
        assert_eq!(fixed.release(start, packet, 0), Release::At(start + gap));
    }
}
