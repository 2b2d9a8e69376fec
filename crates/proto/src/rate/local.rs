// SPDX-License-Identifier: Apache-2.0
//! What a radio's own queue tells.
//!
//! A packet in the kernel's queue can no longer be overtaken, so as few as
//! possible are let in: just enough that the radio never falls idle.

use super::{Ask, Controller, Release};
use crate::time::{Duration, Instant};

/// Local back-pressure: a socket stays charged for a packet until the driver
/// has sent it, so what is in flight shows when the radio falls idle.
///
/// The next packet is let in shortly before the last one ends, as far as that
/// can be told from how long earlier ones took: soon enough that the radio finds
/// it, and late enough that a more urgent message can still overtake it.
#[derive(Debug)]
pub struct BackPressure {
    limit_bytes: usize,
    /// When the packet now on the air began.
    head_since: Instant,
    /// What recent packets took.
    recent_bytes: f64,
    recent_seconds: f64,
}

/// How long before the end of the last packet the next is let in: covers the
/// wake-up of a busy machine (p99 below 0.5 ms here), not much of a packet at 6 Mbps (2 ms).
const LEAD: Duration = Duration::from_millis(1);
/// No more is let in however fast the radio is: what it gathers into one frame (802.11n: 64 KB).
const MOST_BYTES: usize = 64 * 1024;
/// Earlier packets count for a thirty-second less with each new one: long enough that two
/// packets let go at once by a shaper's bucket hardly show, and 130 ms at 3 Mbps.
const FADING: f64 = 31.0 / 32.0;

impl BackPressure {
    /// At most `limit_bytes` in the kernel.
    pub fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes, head_since: Instant::default(), recent_bytes: 0.0, recent_seconds: 0.0 }
    }

    /// What may be in the kernel: on a fast radio all that leaves within the lead, so that it
    /// can gather packets into frames.
    fn budget(&self) -> usize {
        let led = self.recent_bytes / self.recent_seconds * LEAD.as_secs_f64();
        // Before anything was measured that is no number, and counts as none.
        self.limit_bytes.max((led as usize).min(MOST_BYTES))
    }

    /// How long before now or later the `in_flight` bytes will have left.
    fn expected_end(&self, in_flight: usize) -> Instant {
        if self.recent_bytes == 0.0 {
            return self.head_since;
        }
        let seconds = in_flight as f64 * self.recent_seconds / self.recent_bytes;
        self.head_since + Duration::from_secs_f64(seconds.clamp(0.0, 1.0))
    }
}

/// A bound on what is on the way through a relay, in bytes.
#[derive(Debug)]
pub(crate) struct Window(pub(crate) usize);

impl Controller for Window {
    fn release(&mut self, _now: Instant, ask: Ask, in_flight: usize) -> Release {
        if in_flight == 0 || in_flight + ask.bytes <= self.0 {
            Release::Now
        } else {
            Release::Drained
        }
    }

    fn on_sent(&mut self, _now: Instant, _bytes: usize, _in_flight: usize) {}

    fn signal(&self) -> &'static str {
        "relay"
    }

    fn limit_bytes(&self) -> usize {
        self.0
    }
}

impl Controller for BackPressure {
    fn release(&mut self, now: Instant, ask: Ask, in_flight: usize) -> Release {
        // An idle radio takes any packet, even one above its limit.
        if in_flight == 0 {
            return Release::Now;
        }
        if in_flight + ask.bytes > self.budget() {
            return Release::Drained;
        }
        let end = self.expected_end(in_flight);
        if end <= now + LEAD {
            return Release::Now;
        }
        Release::At(end.before(LEAD))
    }

    fn on_sent(&mut self, now: Instant, _bytes: usize, in_flight: usize) {
        if in_flight == 0 {
            self.head_since = now;
        }
    }

    fn on_drained(&mut self, now: Instant, bytes: usize) {
        let took = now.since(self.head_since).as_secs_f64();
        self.recent_bytes = self.recent_bytes * FADING + bytes as f64;
        self.recent_seconds = self.recent_seconds * FADING + took;
        self.head_since = now;
    }

    fn signal(&self) -> &'static str {
        "back-pressure"
    }

    fn limit_bytes(&self) -> usize {
        self.budget()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn ask(bytes: usize) -> Ask {
        Ask { bytes, urgent: false }
    }

    /// A radio that takes 4 ms for each of three packets, 3000 bytes allowed in the kernel.
    fn after_three_packets() -> BackPressure {
        let mut pacer = BackPressure::new(3000);
        for n in 0..3 {
            pacer.on_sent(Instant(n * 4 * MS), 1500, 0);
            pacer.on_drained(Instant((n + 1) * 4 * MS), 1500);
        }
        pacer
    }

    #[test]
    fn a_second_packet_is_let_in_just_before_the_first_ends() {
        let mut pacer = after_three_packets();
        pacer.on_sent(Instant(12 * MS), 1500, 0);
        let release = pacer.release(Instant(13 * MS), ask(1500), 1500);
        assert_eq!(release, Release::At(Instant(15 * MS)));
        assert_eq!(pacer.release(Instant(15 * MS), ask(1500), 1500), Release::Now);
    }

    #[test]
    fn nothing_is_held_back_from_an_idle_radio_or_let_past_the_limit() {
        let mut pacer = after_three_packets();
        assert_eq!(pacer.release(Instant(12 * MS), ask(9000), 0), Release::Now);
        assert_eq!(pacer.release(Instant(12 * MS), ask(1500), 1501), Release::Drained);
    }

    #[test]
    fn a_radio_that_is_not_known_yet_gets_its_whole_budget() {
        let mut pacer = BackPressure::new(3000);
        pacer.on_sent(Instant(0), 1500, 0);
        assert_eq!(pacer.release(Instant(1), ask(1500), 1500), Release::Now);
    }

    #[test]
    fn a_fast_radio_may_gather_packets_and_a_slow_one_has_two() {
        let mut pacer = BackPressure::new(3000);
        let mut now = Instant(0);
        let run = |pacer: &mut BackPressure, now: &mut Instant, packet_ns: u64, packets: u32| {
            for _ in 0..packets {
                *now = *now + Duration::from_nanos(packet_ns);
                pacer.on_drained(*now, 1500);
            }
        };
        // 120 Mbps: ten packets in a millisecond.
        run(&mut pacer, &mut now, 100_000, 100);
        assert!((14_000..=15_000).contains(&pacer.limit_bytes()), "{}", pacer.limit_bytes());
        // 6 Mbps: seen within a few packets.
        run(&mut pacer, &mut now, 2_000_000, 8);
        assert_eq!(pacer.limit_bytes(), 3000);
        run(&mut pacer, &mut now, 1, 1000);
        assert_eq!(pacer.limit_bytes(), MOST_BYTES);
    }
}
