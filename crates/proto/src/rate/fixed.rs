// SPDX-License-Identifier: Apache-2.0
//! A configured rate: Pound's gap between packets.

use super::{Ask, BackPressure, Controller, Release, following};
use crate::time::{Instant, airtime};

/// Bytes of the lower layer's header (Ethernet, 802.11 after conversion) that a configured rate counts.
const FRAME_HEADER: usize = 14;
/// Bytes the next packet may be early for, so that a late timer does not cost rate: one full packet.
const CATCH_UP_BYTES: usize = 1514;

/// A gap after each packet, as long as it takes at a configured rate (Pound); local
/// back-pressure still holds where the rate is set higher than the radio's.
#[derive(Debug)]
pub struct Fixed {
    rate_bps: u64,
    next: Instant,
    local: BackPressure,
}

impl Fixed {
    /// Packets leave at `rate_bps`, lower layer's header included.
    pub fn new(rate_bps: u64, local: BackPressure) -> Self {
        Self { rate_bps, next: Instant::default(), local }
    }
}

impl Controller for Fixed {
    fn release(&mut self, now: Instant, ask: Ask, in_flight: usize) -> Release {
        match self.local.release(now, ask, in_flight) {
            Release::Now if now < self.next => Release::At(self.next),
            other => other,
        }
    }

    fn on_sent(&mut self, now: Instant, bytes: usize, in_flight: usize) {
        self.local.on_sent(now, bytes, in_flight);
        let catch_up = airtime(CATCH_UP_BYTES, self.rate_bps);
        let gap = airtime(bytes + FRAME_HEADER, self.rate_bps);
        self.next = following(self.next, now, gap, catch_up);
    }

    fn on_drained(&mut self, now: Instant, bytes: usize) {
        self.local.on_drained(now, bytes);
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
        let ask = Ask { bytes: 1500, urgent: false };
        let start = Instant(1_000_000_000);
        let mut sent = 0;
        while fixed.release(start, ask, 0) == Release::Now {
            fixed.on_sent(start, 1500, 0);
            sent += 1;
        }
        assert_eq!(sent, 2, "one to catch up with a late timer, one for now");
        let gap = airtime(1514, 6_000_000);
        assert_eq!(fixed.release(start, ask, 0), Release::At(start + gap));
    }
}
