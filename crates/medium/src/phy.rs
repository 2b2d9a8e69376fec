// SPDX-License-Identifier: Apache-2.0
//! Timing of 802.11 frames, and the signal strength that each rate needs.
//!
//! IEEE 802.11-2016: clause 17 for OFDM (20 MHz), clause 16 for DSSS (long preamble).

use crate::config::{Access, Phy};
use crate::ids::Nanos;

/// One microsecond.
const US: Nanos = 1_000;
/// MAC header (24), LLC and SNAP (8) and checksum (4) around an IP packet.
pub const MAC_BYTES: u32 = 36;
/// The QoS control field, which EDCA adds.
pub const QOS_BYTES: u32 = 2;
/// An ACK frame.
pub const ACK_BYTES: u32 = 14;
/// Frame length for which the standard states receiver sensitivity, bytes.
const REFERENCE_BYTES: f64 = 1000.0;
/// Steepness of success over signal strength at [`REFERENCE_BYTES`], per dB: from 90 % lost to 10 %
/// within 1.5 dB, as in measured curves of single cards.
const STEEPNESS_PER_DB: f64 = 3.0;

/// A rate of a [`Phy`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Bits per second.
    pub bps: u64,
    /// Ratio of signal to noise and interference at which 10 % of 1000-byte frames are lost, dB.
    /// OFDM: minimum sensitivity (table 17-18) over thermal noise (-101 dBm), noise figure (10 dB)
    /// and margin (5 dB). DSSS: spread over 11 chips, so lower.
    pub required_sinr_db: f64,
    /// Whether ACKs may use the rate.
    pub basic: bool,
}

const fn rate(bps: u64, required_sinr_db: f64, basic: bool) -> Rate {
    Rate { bps, required_sinr_db, basic }
}

const OFDM: [Rate; 8] = [
    rate(6_000_000, 4.0, true),
    rate(9_000_000, 5.0, false),
    rate(12_000_000, 7.0, true),
    rate(18_000_000, 9.0, false),
    rate(24_000_000, 12.0, true),
    rate(36_000_000, 16.0, false),
    rate(48_000_000, 20.0, false),
    rate(54_000_000, 21.0, false),
];
const DSSS: [Rate; 4] = [
    rate(1_000_000, 1.0, true),
    rate(2_000_000, 3.0, true),
    rate(5_500_000, 6.0, false),
    rate(11_000_000, 9.0, false),
];

impl Access {
    /// Returns the bytes that this access method adds to the header of a data frame.
    #[must_use]
    pub fn header_bytes(self) -> u32 {
        match self {
            Self::Dcf => 0,
            Self::Edca => QOS_BYTES,
        }
    }
}

impl Phy {
    /// Returns all rates, slowest first.
    #[must_use]
    pub fn rates(self) -> &'static [Rate] {
        match self {
            Self::Ofdm => &OFDM,
            Self::Dsss => &DSSS,
        }
    }

    /// Returns the index of a rate in [`Phy::rates`], if it is one.
    #[must_use]
    pub fn rate_index(self, bps: u64) -> Option<usize> {
        self.rates().iter().position(|rate| rate.bps == bps)
    }

    /// Returns the duration of a backoff slot.
    #[must_use]
    pub fn slot(self) -> Nanos {
        match self {
            Self::Ofdm => 9 * US,
            Self::Dsss => 20 * US,
        }
    }

    /// Returns the time between a frame and its ACK.
    #[must_use]
    pub fn sifs(self) -> Nanos {
        match self {
            Self::Ofdm => 16 * US,
            Self::Dsss => 10 * US,
        }
    }

    /// Returns the idle time before backoff slots count: SIFS plus `slots` slots (two make DIFS).
    #[must_use]
    pub fn aifs(self, slots: u32) -> Nanos {
        self.sifs() + Nanos::from(slots) * self.slot()
    }

    /// Returns the extra idle time of a station after a frame that it could not read: time for the
    /// ACK of a station out of its range (EIFS minus DIFS).
    #[must_use]
    pub fn eifs_extra(self) -> Nanos {
        self.sifs() + self.ack_airtime(0)
    }

    /// Returns the time from a frame's end to the detection of a missing ACK (ACKTimeout).
    #[must_use]
    pub fn ack_timeout(self) -> Nanos {
        let receive_start = match self {
            Self::Ofdm => 20 * US,
            Self::Dsss => 192 * US,
        };
        self.sifs() + self.slot() + receive_start
    }

    /// Returns the time from a transmission's start until other stations sense it (aCCATime). Two
    /// stations that start within it collide.
    #[must_use]
    pub fn sensing_time(self) -> Nanos {
        match self {
            Self::Ofdm => 4 * US,
            Self::Dsss => 15 * US,
        }
    }

    /// Returns the smallest contention window of DCF, in slots minus one.
    #[must_use]
    pub fn window_min(self) -> u32 {
        match self {
            Self::Ofdm => 15,
            Self::Dsss => 31,
        }
    }

    /// Returns the airtime of an IP packet of `ip_bytes` in a data frame with `extra_bytes` more of
    /// header.
    #[must_use]
    pub fn data_airtime(self, rate: usize, ip_bytes: u32, extra_bytes: u32) -> Nanos {
        self.airtime(self.rates()[rate].bps, ip_bytes + MAC_BYTES + extra_bytes)
    }

    /// Returns the rate of the ACK to a frame sent at `rate`: the highest basic rate up to `rate`.
    #[must_use]
    pub fn ack_rate(self, rate: usize) -> usize {
        (0..=rate).rev().find(|rate| self.rates()[*rate].basic).unwrap_or(0)
    }

    /// Returns the airtime of the ACK to a frame sent at `rate`.
    #[must_use]
    pub fn ack_airtime(self, rate: usize) -> Nanos {
        self.airtime(self.rates()[self.ack_rate(rate)].bps, ACK_BYTES)
    }

    fn airtime(self, bps: u64, mac_bytes: u32) -> Nanos {
        let bits = u64::from(mac_bytes) * 8;
        match self {
            // Preamble and SIGNAL; SERVICE and tail bits; whole symbols of 4 us.
            Self::Ofdm => (20 + 4 * (22 + bits).div_ceil(bps / 250_000)) * US,
            Self::Dsss => 192 * US + bits * 1_000_000_000 / bps,
        }
    }
}

impl Rate {
    /// Returns the probability that a frame of `bytes` is received at this ratio of signal to noise
    /// and interference.
    #[must_use]
    pub fn success(&self, sinr_db: f64, bytes: u32) -> f64 {
        // 9 is the odds of 90 % received to 10 % lost.
        let over = STEEPNESS_PER_DB * (sinr_db - self.required_sinr_db) + 9_f64.ln();
        let at_reference = 1.0 / (1.0 + (-over).exp());
        at_reference.powf(f64::from(bytes) / REFERENCE_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn airtimes_match_the_standard() {
        assert_eq!(Phy::Ofdm.data_airtime(0, 1500, 0), 2072 * US);
        assert_eq!(Phy::Ofdm.data_airtime(7, 1500, 0), 248 * US);
        assert_eq!(Phy::Ofdm.ack_airtime(0), 44 * US);
        assert_eq!(Phy::Ofdm.ack_airtime(7), 28 * US);
        assert_eq!(Phy::Dsss.ack_airtime(3), 248 * US);
        assert_eq!(Phy::Ofdm.eifs_extra() + Phy::Ofdm.aifs(2), 94 * US);
    }

    #[test]
    fn success_matches_the_sensitivity_of_the_standard() {
        for phy in [Phy::Ofdm, Phy::Dsss] {
            for rate in phy.rates() {
                let success = rate.success(rate.required_sinr_db, 1000);
                assert!((success - 0.9).abs() < 1e-9, "{rate:?}");
                assert!(rate.success(rate.required_sinr_db + 10.0, 1500) > 0.999);
                assert!(rate.success(rate.required_sinr_db - 3.0, 1500) < 0.01);
            }
        }
    }
}
