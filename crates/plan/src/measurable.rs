// SPDX-License-Identifier: Apache-2.0
//! The properties of a planned channel that one node can measure.

use super::contention::{Contention, Stations, Timing};
use super::traffic::{Channel, FULL_PACKET};
use tautline::config;
use tautline::planned::ChannelModel;
use tautline_proto::Class;

/// Returns the model of a file's channel, which the running node compares with its measurements.
pub fn channel_model(channel: &config::Channel) -> Box<dyn ChannelModel> {
    Box::new(Channel::from(channel))
}

impl ChannelModel for Channel {
    fn round_trip(&self) -> Option<(f64, f64)> {
        let Self::Pipe(pipe) = self else { return None };
        let timing = Timing::for_channel(self);
        (pipe.delay > 0).then(|| (2.0 * timing.delay, 2.0 * timing.exchange(FULL_PACKET)))
    }

    fn capacity_bps(&self, ip_bytes: u32) -> f64 {
        let timing = Timing::for_channel(self);
        let class = Class::BestEffort as usize;
        let mut stations = Stations::default();
        stations[class] = 1.0;
        let waste = match timing.contends() {
            true => Contention::new(&timing, stations).access_overhead(&timing, class, ip_bytes),
            false => 0.0,
        };
        f64::from(ip_bytes) * 8.0 / (timing.airtime(class, ip_bytes) + waste)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tautline::config::channel::{DSSS_BPS, OFDM_BPS, parse};
    use tautline_medium::Phy;

    /// A full packet on an idle 802.11a channel of 6 Mbps: 2108 us with preamble and its
    /// acknowledgement, AIFS 43 us, and 7.5 slots of backoff.
    #[test]
    fn a_channel_carries_less_than_its_bit_rate() {
        let model = |text: &str| channel_model(&parse(text).unwrap());
        let wifi = model("wifi:6Mbps,loss=2%");
        let bps = wifi.capacity_bps(1500);
        assert!((5.2e6..5.5e6).contains(&bps), "{bps}");
        assert!(wifi.capacity_bps(100) < bps / 2.0);
        assert_eq!(wifi.round_trip(), None);
        let line = model("line:2Mbps,delay=40ms");
        assert!((1.9e6..=2e6).contains(&line.capacity_bps(1500)));
        let (planned, packets) = line.round_trip().unwrap();
        assert!((planned - 0.08).abs() < 1e-9 && (0.012..0.0125).contains(&packets), "{packets}");
    }

    #[test]
    fn the_model_keeps_the_loss_of_the_file_and_the_bit_rates_of_802_11() {
        for text in ["wifi:6Mbps,loss=2%", "line:2Mbps,loss=2%"] {
            let of_file = parse(text).unwrap();
            let loss = Timing::for_channel(&Channel::from(&of_file)).packet_loss;
            assert!((loss - of_file.loss()).abs() < 1e-9, "{text}: {loss}");
        }
        for (phy, bps) in [(Phy::Ofdm, &OFDM_BPS[..]), (Phy::Dsss, &DSSS_BPS[..])] {
            assert_eq!(phy.rates().iter().map(|it| it.bps).collect::<Vec<_>>(), bps);
        }
    }
}
