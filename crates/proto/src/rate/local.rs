// SPDX-License-Identifier: Apache-2.0
//! Back-pressure of a radio's own queue.
//!
//! A packet in the kernel's queue can no longer be overtaken. The controller therefore releases as
//! few packets as possible: just enough that the radio never becomes idle.

use super::controller::{Controller, FULL_PACKET, PendingPacket, Release};
use crate::path::headroom::aged_limit;
use crate::time::{Duration, Instant};

/// Local back-pressure: the kernel charges a packet to its socket until the driver has sent the
/// packet. The in-flight bytes therefore show when the radio becomes idle.
///
/// The next packet is released shortly before the expected end of the previous one. That end is
/// estimated from the serialization times of recent packets. That is early enough that the radio
/// finds the packet, and late enough that a more urgent message can still overtake it.
#[derive(Debug)]
pub struct BackPressure {
    limit_bytes: usize,
    /// When the transmission of the packet now on the air began.
    head_since: Instant,
    /// Sums over recent packets, with exponential decay.
    recent_bytes: f64,
    recent_seconds: f64,
    service: ServiceRate,
}

/// The rate of the driver, measured with large packets only. For a report of a few bytes, the measured time
/// is that which the kernel takes to tell, and an idle radio sends nothing but reports.
#[derive(Debug, Default)]
struct ServiceRate {
    bytes: f64,
    seconds: f64,
    measured_at: Instant,
}

impl ServiceRate {
    fn on_drained(&mut self, now: Instant, bytes: usize, took: Duration) {
        if bytes >= MIN_SERVICE_BYTES {
            self.bytes = self.bytes * SERVICE_DECAY + bytes as f64;
            self.seconds = self.seconds * SERVICE_DECAY + took.as_secs_f64();
            self.measured_at = now;
        }
    }

    /// The rate in bits per second. `None` for an old measurement, which is no limit.
    fn bps(&self, now: Instant) -> Option<u64> {
        let bps = self.bytes * 8.0 / self.seconds;
        (self.bytes > 0.0).then(|| aged_limit(bps as u64, now.since(self.measured_at))).flatten()
    }
}

/// The next packet is released this long before the end of the previous one. It covers the wake-up
/// latency of a busy machine (p99 below 0.5 ms here) and is half of a full packet at 6 Mbps (2 ms).
const LEAD: Duration = Duration::from_millis(1);
/// Highest in-flight budget on a fast radio: one aggregated frame (802.11n: 64 KB).
const MAX_BUDGET: usize = 64 * 1024;
/// A packet that our kernel held for longer waited for the end of a pause, and says nothing about the rate of
/// the radio. It counts only if nothing else is known: 1500 bytes at 48 kbps take as long.
pub(crate) const PAUSE: Duration = Duration::from_millis(250);
/// Packets of at least this many bytes measure the rate of the driver: half a full packet.
const MIN_SERVICE_BYTES: usize = FULL_PACKET / 2;
/// Weight of earlier large packets in that rate.
const SERVICE_DECAY: f64 = 7.0 / 8.0;
/// Weight of earlier packets, per packet. The memory is long, so that two packets released together
/// by a shaper's bucket rarely show. At 3 Mbps, it spans 130 ms.
const DECAY: f64 = 31.0 / 32.0;

impl BackPressure {
    /// A controller that allows `limit_bytes` in the kernel, more on a fast radio.
    pub fn new(limit_bytes: usize) -> Self {
        Self {
            limit_bytes,
            head_since: Instant::default(),
            recent_bytes: 0.0,
            recent_seconds: 0.0,
            service: ServiceRate::default(),
        }
    }

    /// The in-flight budget. On a fast radio, it covers all bytes that leave within [`LEAD`], so that the
    /// radio can aggregate packets into frames.
    fn budget(&self) -> usize {
        let lead_bytes = self.recent_bytes / self.recent_seconds * LEAD.as_secs_f64();
        // Before the first measurement, the value is NaN. The cast turns NaN into 0.
        self.limit_bytes.max((lead_bytes as usize).min(MAX_BUDGET))
    }

    /// When the driver will have sent all `in_flight` bytes.
    fn expected_end(&self, in_flight: usize) -> Instant {
        if self.recent_bytes == 0.0 {
            return self.head_since;
        }
        let seconds = in_flight as f64 * self.recent_seconds / self.recent_bytes;
        self.head_since + Duration::from_secs_f64(seconds.clamp(0.0, 1.0))
    }
}

/// A limit of in-flight bytes through a relay.
#[derive(Debug)]
pub(crate) struct Window(pub(crate) usize);

impl Controller for Window {
    fn release(&mut self, _now: Instant, packet: PendingPacket, in_flight: usize) -> Release {
        if in_flight == 0 || in_flight + packet.bytes <= self.0 {
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
    fn release(&mut self, now: Instant, packet: PendingPacket, in_flight: usize) -> Release {
        // An idle radio accepts any packet, even one above the limit.
        if in_flight == 0 {
            return Release::Now;
        }
        if in_flight + packet.bytes > self.budget() {
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
        let took = now.since(self.head_since);
        self.head_since = now;
        if took > PAUSE && self.recent_bytes > 0.0 {
            return;
        }
        self.service.on_drained(now, bytes, took);
        let took = took.as_secs_f64();
        self.recent_bytes = self.recent_bytes * DECAY + bytes as f64;
        self.recent_seconds = self.recent_seconds * DECAY + took;
    }

    /// An overdue packet is expected to take as long again as it has taken: nothing is known about a pause
    /// but its length so far.
    fn expected_start(&self, now: Instant, in_flight: usize) -> Instant {
        if in_flight == 0 {
            return now;
        }
        let end = self.expected_end(in_flight);
        if end > now { end } else { now + now.since(self.head_since) }
    }

    fn service_bps(&self, now: Instant) -> Option<u64> {
        self.service.bps(now)
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

    fn packet(bytes: usize) -> PendingPacket {
        PendingPacket { bytes, urgent: false }
    }

    /// A radio with a limit of 3000 bytes that took 4 ms for each of three packets.
    fn after_three_packets() -> BackPressure {
        let mut pacer = BackPressure::new(3000);
        for n in 0..3 {
            pacer.on_sent(Instant(n * 4 * MS), 1500, 0);
            pacer.on_drained(Instant((n + 1) * 4 * MS), 1500);
        }
        pacer
    }

    #[test]
    fn a_second_packet_is_released_just_before_the_first_ends() {
        let mut pacer = after_three_packets();
        pacer.on_sent(Instant(12 * MS), 1500, 0);
        let release = pacer.release(Instant(13 * MS), packet(1500), 1500);
        assert_eq!(release, Release::At(Instant(15 * MS)));
        assert_eq!(pacer.release(Instant(15 * MS), packet(1500), 1500), Release::Now);
    }

    #[test]
    fn a_pause_does_not_delay_later_packets() {
        let mut pacer = after_three_packets();
        pacer.on_sent(Instant(12 * MS), 1500, 0);
        pacer.on_drained(Instant(8_012 * MS), 1500);
        let resumed = Instant(8_020 * MS);
        pacer.on_sent(resumed, 1500, 0);
        assert_eq!(pacer.release(resumed, packet(1500), 1500), Release::At(Instant(8_023 * MS)));
    }

    #[test]
    fn an_idle_radio_accepts_any_packet_and_a_busy_one_none_beyond_the_limit() {
        let mut pacer = after_three_packets();
        assert_eq!(pacer.release(Instant(12 * MS), packet(9000), 0), Release::Now);
        assert_eq!(pacer.release(Instant(12 * MS), packet(1500), 1501), Release::Drained);
    }

    #[test]
    fn an_unmeasured_radio_gets_its_whole_budget() {
        let mut pacer = BackPressure::new(3000);
        pacer.on_sent(Instant(0), 1500, 0);
        assert_eq!(pacer.release(Instant(1), packet(1500), 1500), Release::Now);
    }

    #[test]
    fn a_fast_radio_may_aggregate_packets_and_a_slow_one_has_two() {
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
        assert_eq!(pacer.limit_bytes(), MAX_BUDGET);
    }
}
