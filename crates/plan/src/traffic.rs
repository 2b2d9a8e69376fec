// SPDX-License-Identifier: Apache-2.0
//! The messages of a fleet, and the packets into which they are cut.

use super::contention::Timing;
use std::collections::BTreeMap;
use std::time::Duration;
use tautline::config::{self, channel::DSSS_BPS};
use tautline_medium::{Access, Loss, Phy, PipeConfig, RateControl, Trial, WifiConfig};
use tautline_proto::Marking;

/// IP bytes of a full packet.
pub(super) const FULL_PACKET: u32 = 1500;
/// Bytes of a large message that a full packet carries.
const FULL_PAYLOAD: u64 = 1428;
/// IP bytes of a packet beyond its only message: IP, UDP, the headers of packet and frame, and the tag.
const OVERHEAD: u64 = 72;
/// IP bytes of a packet with only reports and acknowledgements.
const REPORT_BYTES: u32 = 76;
/// Maximum fraction of the channel for reports (`proto/src/recovery/received.rs`).
const REPORT_SHARE: f64 = 0.0175;
/// Airtime of each report in addition to its bytes, in seconds.
const REPORT_SECONDS: f64 = 200e-6;
/// Time from publication to due time of a message without a lifespan
/// (`proto/src/delivery/outbox/mod.rs`).
const DEFAULT_DUE: Duration = Duration::from_secs(1);
/// Priority of reports: they precede all messages.
pub(super) const REPORTS: u16 = 256;

/// A channel.
#[derive(Debug, Clone, PartialEq)]
pub enum Channel {
    /// All stations share one 802.11 channel and hear each other.
    Wifi(WifiConfig),
    /// Every station has its own line, or all share one (`half_duplex`).
    Pipe(PipeConfig),
}

impl From<&config::Channel> for Channel {
    fn from(channel: &config::Channel) -> Self {
        let loss = Loss::Uniform { probability: channel.loss() };
        match channel {
            config::Channel::Wifi(wifi) => Self::Wifi(WifiConfig {
                phy: if DSSS_BPS.contains(&wifi.bps) { Phy::Dsss } else { Phy::Ofdm },
                rate: RateControl::Fixed(wifi.bps),
                access: if wifi.has_wmm { Access::Edca } else { Access::Dcf },
                // The loss in the file is meant as `status` shows it: packets lost after all attempts.
                trial: Trial::Frame,
                loss,
                ..WifiConfig::default()
            }),
            config::Channel::Line(line) => Self::Pipe(PipeConfig {
                rate_bps: line.bps,
                delay: u64::try_from(line.delay.as_nanos()).unwrap_or(u64::MAX),
                half_duplex: line.is_shared,
                loss,
                ..PipeConfig::default()
            }),
        }
    }
}

impl Channel {
    /// The highest rate in bits per second.
    fn bps(&self) -> u64 {
        match self {
            Self::Wifi(wifi) => match wifi.rate {
                RateControl::Fixed(bps) => bps,
                RateControl::Adaptive => wifi.phy.rates().last().map_or(1, |it| it.bps),
            },
            Self::Pipe(pipe) => pipe.rate_bps,
        }
    }
}

/// Messages from one station to another.
#[derive(Debug, Clone, PartialEq)]
pub struct Flow {
    /// Number of the sending station.
    pub from: usize,
    /// Number of the receiving station.
    pub to: usize,
    /// Bytes of a message.
    pub bytes: u64,
    /// Time between two messages.
    pub period: Duration,
    /// Priority, 0 to 255, higher first.
    pub priority: u8,
    /// Age past which a message is worthless; `None` for no limit. Among messages of one priority,
    /// the first to expire is sent first.
    pub lifespan: Option<Duration>,
}

/// Robots on one channel.
#[derive(Debug, Clone, PartialEq)]
pub struct Fleet {
    /// The channel.
    pub channel: Channel,
    /// All messages on it.
    pub flows: Vec<Flow>,
}

/// Periodic packets of a station: the messages of a flow, or reports on received packets.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Stream {
    pub(super) station: usize,
    /// The station that receives the packets.
    pub(super) to: usize,
    pub(super) priority: u16,
    /// Seconds between two messages, or between two reports.
    pub(super) period: f64,
    /// Seconds from a message's publication to its due time, which determines the send order.
    pub(super) due: f64,
    pub(super) packets: Packets,
}

/// The packets of one message: `full` full packets, then a last packet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Packets {
    pub(super) full: u64,
    /// IP bytes of the last packet.
    pub(super) last_bytes: u32,
}

impl Stream {
    /// Airtime of one message.
    pub(super) fn airtime(&self, timing: &Timing) -> f64 {
        let class = self.class();
        let sizes = self.packets.sizes().into_iter();
        sizes.map(|(count, bytes)| count as f64 * timing.airtime(class, bytes)).sum()
    }

    /// Returns the index of the packets' class. Reports have the class of packets without messages.
    pub(super) fn class(&self) -> usize {
        Marking::default().class(u8::try_from(self.priority).ok()) as usize
    }
}

impl Packets {
    fn for_bytes(bytes: u64) -> Self {
        let full = bytes.saturating_sub(1) / FULL_PAYLOAD;
        Self { full, last_bytes: (bytes - full * FULL_PAYLOAD + OVERHEAD) as u32 }
    }

    pub(super) fn count(self) -> u64 {
        self.full + 1
    }

    /// Returns the IP bytes of the largest packet.
    pub(super) fn largest(self) -> u32 {
        if self.full > 0 { FULL_PACKET } else { self.last_bytes }
    }

    /// Returns two pairs, for the full packets and for the last packet: the number of packets, and the IP
    /// bytes of each.
    pub(super) fn sizes(self) -> [(u64, u32); 2] {
        [(self.full, FULL_PACKET), (1, self.last_bytes)]
    }
}

/// Returns the streams of all flows in order, then the streams of reports.
pub(super) fn streams(fleet: &Fleet) -> Vec<Stream> {
    let messages = fleet.flows.iter().map(|flow| Stream {
        station: flow.from,
        to: flow.to,
        priority: flow.priority.into(),
        period: flow.period.as_secs_f64(),
        due: flow.lifespan.unwrap_or(DEFAULT_DUE).as_secs_f64(),
        packets: Packets::for_bytes(flow.bytes),
    });
    messages.chain(reports(fleet)).collect()
}

/// Returns the reports of each receiver to each sender: one for each packet, limited by the
/// reports' share of the channel.
fn reports(fleet: &Fleet) -> impl Iterator<Item = Stream> {
    let mut rates: BTreeMap<(usize, usize), f64> = BTreeMap::new();
    for flow in &fleet.flows {
        let packets = Packets::for_bytes(flow.bytes).count() as f64;
        *rates.entry((flow.to, flow.from)).or_default() += packets / flow.period.as_secs_f64();
    }
    let bytes = f64::from(REPORT_BYTES) * 8.0 / fleet.channel.bps() as f64;
    let most = REPORT_SHARE / (REPORT_SECONDS + bytes);
    rates.into_iter().map(move |((station, to), packets)| Stream {
        station,
        to,
        priority: REPORTS,
        period: 1.0 / packets.min(most),
        due: 0.0,
        packets: Packets { full: 0, last_bytes: REPORT_BYTES },
    })
}
