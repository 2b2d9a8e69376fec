// SPDX-License-Identifier: Apache-2.0
//! What a plan says about a channel that one node can measure.

use super::contention::{Contention, Stations, Timing};
use super::traffic::{Channel, FULL_PACKET};
use tautline_proto::Class;

impl Channel {
    /// Fraction of packets lost after all attempts.
    pub(crate) fn loss(&self) -> f64 {
        Timing::of(self).packet_loss
    }

    /// Whether packets in both directions share it.
    pub(crate) fn is_shared(&self) -> bool {
        match self {
            Self::Wifi(_) => true,
            Self::Pipe(pipe) => pipe.half_duplex,
        }
    }

    /// Seconds of a round trip without queueing, and of two full packets; `None` if no delay is
    /// planned.
    pub(crate) fn round_trip(&self) -> Option<(f64, f64)> {
        let Self::Pipe(pipe) = self else { return None };
        let timing = Timing::of(self);
        (pipe.delay > 0).then(|| (2.0 * timing.delay, 2.0 * timing.exchange(FULL_PACKET)))
    }

    /// Bits per second of IP packets of this size that one station with full queues sends.
    pub(crate) fn capacity_bps(&self, ip_bytes: u32) -> f64 {
        let timing = Timing::of(self);
        let class = Class::BestEffort as usize;
        let mut stations = Stations::default();
        stations[class] = 1.0;
        let waste = match timing.contends() {
            true => Contention::of(&timing, stations).waste(&timing, class, ip_bytes),
            false => 0.0,
        };
        f64::from(ip_bytes) * 8.0 / (timing.airtime(class, ip_bytes) + waste)
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::radio;

    /// A full packet on an idle 802.11a channel of 6 Mbps: 2108 us with preamble and its
    /// acknowledgement, AIFS 43 us, and 7.5 slots of backoff.
    #[test]
    fn a_channel_carries_less_than_its_bit_rate() {
        let wifi = radio::parse("wifi:6Mbps,loss=2%").unwrap();
        let bps = wifi.capacity_bps(1500);
        assert!((5.2e6..5.5e6).contains(&bps), "{bps}");
        assert!(wifi.capacity_bps(100) < bps / 2.0);
        assert_eq!((wifi.loss(), wifi.round_trip()), (0.02, None));
        let line = radio::parse("line:2Mbps,delay=40ms").unwrap();
        assert!((1.9e6..=2e6).contains(&line.capacity_bps(1500)));
        let (planned, packets) = line.round_trip().unwrap();
        assert!((planned - 0.08).abs() < 1e-9 && (0.012..0.0125).contains(&packets), "{packets}");
        assert!(wifi.is_shared() && !line.is_shared());
    }
}
