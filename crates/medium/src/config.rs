// SPDX-License-Identifier: Apache-2.0
//! What networks, stations and radios are made of. Every value is in SI units
//! or named with its unit; distances are metres, powers dBm.

use crate::{Nanos, StationId};

/// The 802.11 physical layer of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phy {
    /// OFDM on 20 MHz (IEEE 802.11-2016, clause 17): 6, 9, 12, 18, 24, 36, 48 and 54 Mbps.
    Ofdm,
    /// HR/DSSS with the long preamble (clause 16): 1, 2, 5.5 and 11 Mbps.
    Dsss,
}

/// How stations take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// One queue per radio (clause 10.3).
    Dcf,
    /// Four queues per radio, by the packet's DSCP (clause 10.22.2).
    Edca,
}

/// Which rate a data frame is sent at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateControl {
    /// Always this one, in bits per second; it has to be one of the [`Phy`]'s.
    Fixed(u64),
    /// By success seen, in the manner of Minstrel.
    Adaptive,
}

/// What is lost beside collisions and weak signals.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Loss {
    /// Nothing.
    None,
    /// Each with the same probability.
    Uniform {
        /// 0-1.
        probability: f64,
    },
    /// In bursts (Gilbert, 1960; Elliott, 1963): a good state that loses nothing
    /// and a bad one that loses all. Long-run loss is `enter / (enter + leave)`,
    /// the mean burst `1 / leave`.
    GilbertElliott {
        /// Probability of good to bad, per trial.
        enter: f64,
        /// Probability of bad to good, per trial.
        leave: f64,
    },
}

/// What one trial of [`Loss`] is, on an 802.11 network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trial {
    /// Each attempt on the air; retries may repair it.
    Attempt,
    /// Each frame after all its attempts: nothing repairs it.
    Frame,
}

/// How power falls with distance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathLoss {
    /// Loss at one metre, dB.
    pub at_1m_db: f64,
    /// 2 in free space, 3 to 4 among walls and rubble.
    pub exponent: f64,
    /// Standard deviation of a constant per pair of stations, dB, drawn from the seed.
    pub shadowing_db: f64,
}

/// An 802.11 network: all its radios share one channel.
#[derive(Debug, Clone, PartialEq)]
pub struct WifiConfig {
    /// Timing and rates.
    pub phy: Phy,
    /// DCF or EDCA.
    pub access: Access,
    /// Fixed or adaptive.
    pub rate: RateControl,
    /// Attempts after the first one (dot11ShortRetryLimit is 7).
    pub retries: u32,
    /// Artificial loss, per directed pair of radios.
    pub loss: Loss,
    /// What one trial of `loss` is.
    pub trial: Trial,
    /// Transmit power of every radio, dBm.
    pub power_dbm: f64,
    /// Noise floor, dBm.
    pub noise_dbm: f64,
    /// Signals from here up keep a station silent, dBm.
    pub carrier_sense_dbm: f64,
    /// `None`: everyone hears everyone perfectly, and any overlap destroys all.
    pub path_loss: Option<PathLoss>,
    /// All frames between other stations go through this one.
    pub access_point: Option<StationId>,
}

/// A point-to-point or shared line without contention: a token bucket, a serial
/// radio, a cellular modem.
#[derive(Debug, Clone, PartialEq)]
pub struct PipeConfig {
    /// Bits per second, of IP bytes plus `overhead_bytes`.
    pub rate_bps: u64,
    /// Bytes added to each IP packet.
    pub overhead_bytes: u32,
    /// Bytes that an idle pipe lets go at once (the burst of a token bucket).
    pub burst_bytes: u64,
    /// From the end of a frame at the sender to the receiver.
    pub delay: Nanos,
    /// Largest extra delay, uniformly drawn; frames stay in order.
    pub jitter: Nanos,
    /// Per directed pair of radios, one trial per frame.
    pub loss: Loss,
    /// Bytes (with overhead) that may wait at a radio; more are dropped.
    pub queue_bytes: u64,
    /// All radios share the rate and take turns, first come first served.
    pub half_duplex: bool,
}

/// Where a station is over time.
#[derive(Debug, Clone, PartialEq)]
pub struct Motion {
    /// Time since the start and place, in order of time. Between two the station
    /// moves straight and evenly; before the first and after the last it rests.
    pub waypoints: Vec<(Nanos, [f64; 3])>,
}

/// Frames that are no one's: a neighbour's network, a microwave oven.
#[derive(Debug, Clone, PartialEq)]
pub struct Interference {
    /// How long each burst lasts.
    pub burst: Nanos,
    /// Mean time from the end of one to the start of the next, exponentially drawn.
    pub mean_pause: Nanos,
    /// Where it comes from; power and path loss are the network's.
    pub place: [f64; 3],
    /// First moment.
    pub from: Nanos,
    /// Last moment.
    pub until: Nanos,
}

impl Default for WifiConfig {
    /// DCF at a fixed 6 Mbps in one collision domain, nothing lost.
    fn default() -> Self {
        Self {
            phy: Phy::Ofdm,
            access: Access::Dcf,
            rate: RateControl::Fixed(6_000_000),
            retries: 7,
            loss: Loss::None,
            trial: Trial::Attempt,
            power_dbm: 15.0,
            noise_dbm: -94.0,
            carrier_sense_dbm: -82.0,
            path_loss: None,
            access_point: None,
        }
    }
}

impl Default for PipeConfig {
    /// 6 Mbps both ways at once, without delay, loss or burst; 100 KB may wait.
    fn default() -> Self {
        Self {
            rate_bps: 6_000_000,
            overhead_bytes: 0,
            burst_bytes: 0,
            delay: 0,
            jitter: 0,
            loss: Loss::None,
            queue_bytes: 100_000,
            half_duplex: false,
        }
    }
}
