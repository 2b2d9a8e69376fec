// SPDX-License-Identifier: Apache-2.0
//! Parameters of networks, stations and radios. Every value is in SI units or named with its unit;
//! distances are metres, powers dBm.

use crate::ids::{Nanos, StationId};
use crate::trace::Trace;

/// The 802.11 physical layer of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phy {
    /// OFDM on 20 MHz (IEEE 802.11-2016, clause 17): 6, 9, 12, 18, 24, 36, 48 and 54 Mbps.
    Ofdm,
    /// HR/DSSS with the long preamble (clause 16): 1, 2, 5.5 and 11 Mbps.
    Dsss,
}

/// The channel access method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// One queue per radio (clause 10.3).
    Dcf,
    /// Four queues per radio, by the packet's DSCP (clause 10.22.2).
    Edca,
}

/// The rate of data frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateControl {
    /// A constant rate in bits per second, one of the [`Phy`]'s rates.
    Fixed(u64),
    /// Selected by measured success, as in Minstrel.
    Adaptive,
}

/// Loss in addition to collisions and weak signals.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Loss {
    /// No loss.
    None,
    /// The same probability for each trial.
    Uniform {
        /// Probability, 0-1.
        probability: f64,
    },
    /// In bursts (Gilbert, 1960; Elliott, 1963): a good state without loss and a bad state that
    /// loses everything. Long-run loss is `enter / (enter + leave)`, the mean burst `1 / leave`.
    GilbertElliott {
        /// Probability of the transition from good to bad, per trial.
        enter: f64,
        /// Probability of the transition from bad to good, per trial.
        leave: f64,
    },
}

/// What a trial of [`Loss`] decides on an 802.11 network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trial {
    /// Each attempt on the air; retries may compensate.
    Attempt,
    /// Each frame after all its attempts; nothing compensates.
    Frame,
}

/// A path-loss law: power over distance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathLoss {
    /// Loss at one metre, dB.
    pub at_1m_db: f64,
    /// Exponent: 2 in free space, 3 to 4 among walls and rubble.
    pub exponent: f64,
    /// Standard deviation of a constant per pair of stations, dB, drawn from the seed.
    pub shadowing_db: f64,
}

/// An 802.11 network: all its radios share one channel.
#[derive(Debug, Clone, PartialEq)]
pub struct WifiConfig {
    /// Physical layer: timing and rates.
    pub phy: Phy,
    /// Channel access: DCF or EDCA.
    pub access: Access,
    /// Rate of data frames: fixed or adaptive.
    pub rate: RateControl,
    /// Attempts after the first one (dot11ShortRetryLimit is 7).
    pub retries: u32,
    /// Artificial loss, per directed pair of radios.
    pub loss: Loss,
    /// Unit of a trial of `loss`.
    pub trial: Trial,
    /// Transmit power of every radio, dBm.
    pub power_dbm: f64,
    /// Noise floor, dBm.
    pub noise_dbm: f64,
    /// Carrier-sense threshold, dBm: a stronger signal keeps a station silent.
    pub carrier_sense_dbm: f64,
    /// Path loss; with `None` all radios receive each other perfectly, and any overlap destroys all
    /// frames.
    pub path_loss: Option<PathLoss>,
    /// The station that forwards all frames between other stations.
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
    /// Bytes that an idle pipe sends immediately (the burst of a token bucket).
    pub burst_bytes: u64,
    /// Time from the end of a frame at the sender to its arrival.
    pub delay: Nanos,
    /// Maximum extra delay, drawn uniformly; frames stay in order.
    pub jitter: Nanos,
    /// Frames that later frames may overtake.
    pub reordering: Reordering,
    /// Probability that a frame arrives twice.
    pub duplicates: f64,
    /// Recorded times at which the pipe can send, in place of rate and burst; `rate_bps` is then the mean.
    pub trace: Option<Trace>,
    /// Loss per directed pair of radios, one trial per frame.
    pub loss: Loss,
    /// Queue limit of a radio in bytes (with overhead); frames above it are dropped.
    pub queue_bytes: u64,
    /// Active queue management: marks and drops before the queue is full.
    pub aqm: Aqm,
    /// Whether all radios share the rate, first come first served.
    pub half_duplex: bool,
}

/// Active queue management of a pipe's queues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Aqm {
    /// A full queue drops packets; nothing else does.
    #[default]
    None,
    /// CoDel (RFC 8289) with a target of 5 ms and an interval of 100 ms: marks ECN-capable packets, and
    /// drops others.
    Codel,
    /// Marks every ECN-capable packet that was queued for longer than this, as the queue of L4S does
    /// (RFC 9332); drops none.
    Step(Nanos),
}

/// Frames that are delayed until later frames overtake them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Reordering {
    /// Probability that a frame is delayed.
    pub probability: f64,
    /// Maximum delay, drawn uniformly.
    pub delay: Nanos,
}

/// A station's position over time.
#[derive(Debug, Clone, PartialEq)]
pub struct Motion {
    /// Time since the start and position, in order of time. Between two waypoints the station moves
    /// in a straight line at constant speed; before the first and after the last it rests.
    pub waypoints: Vec<(Nanos, [f64; 3])>,
}

/// Transmissions from sources outside the model: a neighbour's network, a microwave oven.
#[derive(Debug, Clone, PartialEq)]
pub struct Interference {
    /// Duration of each burst.
    pub burst: Nanos,
    /// Mean time from the end of one burst to the start of the next, exponentially distributed.
    pub mean_pause: Nanos,
    /// Position of the source; power and path loss are the network's.
    pub place: [f64; 3],
    /// Start of the interference.
    pub from: Nanos,
    /// End of the interference.
    pub until: Nanos,
}

impl Default for WifiConfig {
    /// DCF at a fixed 6 Mbps in one collision domain, without loss.
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
    /// 6 Mbps in each direction, without delay, loss or burst; a queue of 100 KB.
    fn default() -> Self {
        Self {
            rate_bps: 6_000_000,
            overhead_bytes: 0,
            burst_bytes: 0,
            delay: 0,
            jitter: 0,
            reordering: Reordering::default(),
            duplicates: 0.0,
            trace: None,
            loss: Loss::None,
            queue_bytes: 100_000,
            aqm: Aqm::None,
            half_duplex: false,
        }
    }
}
