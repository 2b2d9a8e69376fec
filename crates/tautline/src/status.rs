// SPDX-License-Identifier: Apache-2.0
//! The state of a running node: one snapshot, the same for the command line, `--json`, metrics and
//! the console. Counters grow from the node's start; rates are the difference of two snapshots.

mod link;
mod team;

pub use link::{BudgetReport, SteadyReport};
pub use team::TeamReport;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// A snapshot of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The node's name.
    pub node: String,
    /// The node's version.
    pub version: String,
    /// Seconds since the node started.
    pub uptime_s: f64,
    /// `keys`, or `none`: then anybody on the network can send in the name of any node.
    pub security: String,
    /// The public key by which peers know this node; `None` with `security: none`.
    pub key: Option<String>,
    /// Address on which the node listens.
    pub listen: String,
    /// The middleware on this robot.
    pub gateways: Vec<GatewayReport>,
    /// Other nodes.
    pub peers: Vec<PeerReport>,
    /// Teams of a relay; empty at a robot.
    #[serde(default)]
    pub teams: Vec<TeamReport>,
    /// One report per topic, direction and peer.
    pub topics: Vec<TopicReport>,
    /// One report per radio.
    pub radios: Vec<RadioReport>,
    /// One report per link.
    pub links: Vec<LinkReport>,
    /// One report per topic with a watchdog.
    pub watchdogs: Vec<WatchdogReport>,
    /// What the file plans (`expect` of topics, `channel` of radios), with the measured values, which are at
    /// most a second old. Failed assumptions come first. Empty if the file plans nothing.
    #[serde(default)]
    pub plan: Vec<PlanReport>,
    /// Refused requests of peers, each with the line in the file that would allow it.
    #[serde(default)]
    pub waiting: Vec<WaitingReport>,
    /// For each peer with such requests, the lines that allow all of them.
    #[serde(default)]
    pub to_allow_all: Vec<LinesReport>,
    /// Topics and services whose messages no shared definition checks.
    #[serde(default)]
    pub unchecked: Vec<UncheckedReport>,
    /// Fields of translated topics and services that only one ROS has. A field is left empty if the
    /// sender's ROS lacks it, and lost if the receiver's ROS lacks it.
    #[serde(default)]
    pub one_sided: Vec<FieldReport>,
    /// Packets that were refused, by reason.
    pub packets_refused: BTreeMap<String, u64>,
    /// Recent notices for people, newest last.
    pub notices: Vec<String>,
}

/// Returns the word for the state of a gateway or link.
pub fn up_or_down(is_up: bool) -> &'static str {
    if is_up { "up" } else { "down" }
}

/// The middleware on this robot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GatewayReport {
    /// Kind of the middleware: `ros1`, for example.
    pub kind: String,
    /// The address: `http://localhost:11311`, for example.
    pub location: String,
    /// Whether the middleware answers.
    pub connected: bool,
    /// Description of the current problem; empty if there is none.
    pub trouble: String,
    /// Messages that the gateway rejected.
    pub rejected: Vec<RejectedReport>,
}

/// Messages from local publishers (out) or to local subscribers (in) that a gateway rejected.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RejectedReport {
    /// Local name; empty for topics beyond the number that are counted separately.
    pub topic: String,
    /// Direction.
    pub direction: Direction,
    /// Out: too_large, not_cdr, publisher_gone, caller_gone, too_many_calls. In: not_written,
    /// gateway_behind.
    pub reason: String,
    /// Number of messages.
    pub count: u64,
}

/// Another node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeerReport {
    /// The name.
    pub name: String,
    /// The public key; `None` with `security: none`.
    pub key: Option<String>,
    /// `connecting`, `up` or `down`.
    pub state: String,
    /// Bytes queued for it.
    pub queued_bytes: u64,
    /// Messages queued for it.
    pub queued_messages: u64,
    /// Payload of topics accepted for it in the last ten seconds, in bits per second.
    pub wanted_bps: Option<f64>,
    /// IP packets sent to it in the same time, in bits per second.
    pub sent_bps: Option<f64>,
    /// Offset of the peer's clock from ours, once it is known.
    pub clock: Option<ClockReport>,
    /// Packets of others that were relayed to it.
    pub relayed_packets: u64,
    /// Packets of others for it that were not relayed, by reason.
    pub relayed_dropped: BTreeMap<String, u64>,
}

/// The offset of a peer's clock from ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClockReport {
    /// The peer's time of day minus ours, in milliseconds; unknown through relays.
    pub offset_ms: Option<f64>,
    /// Maximum error of the offset and of one-way delays, in milliseconds.
    pub bound_ms: f64,
    /// Drift of the peer's clock against ours, in millionths (positive: faster); `None` in the first minute.
    pub drift_ppm: Option<f64>,
}

impl ClockReport {
    /// Formats the offset (positive: the peer is ahead) and its largest error, in milliseconds.
    pub fn in_words(&self) -> String {
        let offset = self.offset_ms.map_or("-".into(), |ms| format!("{ms:+.1}"));
        format!("{offset} ±{:.1}", self.bound_ms)
    }
}

/// `out`: from this robot; `in`: to this robot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From this robot.
    Out,
    /// To this robot.
    In,
}

impl Direction {
    /// Returns an arrow for the direction: `>` for messages that this robot sends.
    pub fn arrow(self) -> &'static str {
        match self {
            Self::Out => ">",
            Self::In => "<",
        }
    }
}

/// One topic in one direction to or from one peer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TopicReport {
    /// Local name.
    pub topic: String,
    /// Direction.
    pub direction: Direction,
    /// The other node.
    pub peer: String,
    /// Type name.
    pub type_name: String,
    /// Priority, 0-255, higher first.
    pub priority: u8,
    /// Rate limit at the source in hertz.
    pub rate_hz: Option<f64>,
    /// Whether there is a subscriber: at the peer (out) or here (in).
    pub wanted: bool,
    /// Out: messages accepted for sending. In: messages handed to the gateway.
    pub messages: u64,
    /// Payload bytes of these messages, before compression.
    pub bytes: u64,
    /// Out: messages known to be complete at the peer.
    pub delivered: u64,
    /// Out: messages in our queue now.
    pub queued: u64,
    /// Out: messages that were sent and whose outcome is unknown.
    pub sent: u64,
    /// Messages not sent because of the rate limit at the source; those of tf were merged into
    /// others.
    pub rate_limited: u64,
    /// In: lost packets whose content was recovered from parity (`fec`).
    pub recovered_packets: u64,
    /// Messages dropped, by [`DropReason`](tautline_proto::stats::DropReason) or
    /// [`DroppedMessage`](crate::reasons::DroppedMessage).
    pub dropped: BTreeMap<String, u64>,
    /// Messages dropped in the last ten seconds, if there are any.
    pub given_up: Option<GivenUpReport>,
    /// Out, if several links lead to the peer: how the topic uses them.
    pub links: Option<LinkUseReport>,
    /// In: delays from the publication to the delivery here.
    pub delay: Option<DelayReport>,
    /// In: maximum error of those delays, in milliseconds. `None` until the clocks of both ends are
    /// compared; the delay of the path is then taken to be half a round trip.
    pub delay_bound_ms: Option<f64>,
}

/// A topic or service for which this node cannot check whether local nodes can read its messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UncheckedReport {
    /// The peer that sends the messages; `None` for calls from any peer to a service of this robot.
    pub peer: Option<String>,
    /// Local name.
    pub name: String,
    /// Type name.
    pub type_name: String,
    /// Which definition is missing for the check.
    pub why: String,
}

/// How a topic uses several links.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkUseReport {
    /// `best`, `weighted`, `stripe` or `duplicate`.
    pub policy: String,
    /// By link name: payload bytes sent, including repairs and copies.
    pub bytes: BTreeMap<String, u64>,
    /// By link name: why the link carries the topic only while no other link can, or not at all:
    /// `only_links`, `avoid_links`, `metered` or `budget used up`.
    #[serde(default)]
    pub limits: BTreeMap<String, String>,
}

impl LinkUseReport {
    /// Returns the bytes sent since `before`.
    pub fn since(&self, before: Option<&Self>) -> Self {
        let known = |name: &String| before.and_then(|it| it.bytes.get(name)).copied().unwrap_or(0);
        let grown =
            |(name, bytes): (&String, &u64)| (name.clone(), bytes.saturating_sub(known(name)));
        Self { bytes: self.bytes.iter().map(grown).collect(), ..self.clone() }
    }

    /// Formats `stripe: wlan0 71 %, lte 29 %, sat 0 % (metered)`.
    pub fn in_words(&self) -> String {
        let total = self.bytes.values().sum::<u64>().max(1) as f64;
        let part = |(name, bytes): (&String, &u64)| {
            let limit = self.limits.get(name).map(|limit| format!(" ({limit})"));
            format!("{name} {:.0} %{}", *bytes as f64 * 100.0 / total, limit.unwrap_or_default())
        };
        let parts: Vec<String> = self.bytes.iter().map(part).collect();
        format!("{}: {}", self.policy, parts.join(", "))
    }
}

impl TopicReport {
    /// Returns the drops by reason, including the messages that the rate limit left out at the source.
    pub fn drops_by_reason(&self) -> BTreeMap<String, u64> {
        let limited = Some(self.rate_limited).filter(|count| *count > 0);
        let limited = limited.map(|count| ("rate limited".into(), count));
        self.dropped.clone().into_iter().chain(limited).collect()
    }
}

/// Recently dropped messages of a topic, and the reasons.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GivenUpReport {
    /// The time that this report covers, until now: ten seconds, or less after the start.
    pub seconds: f64,
    /// Messages that were dropped.
    pub messages: u64,
    /// Messages whose outcome became known in this time.
    pub of: u64,
    /// Messages dropped by reason, named as in [`TopicReport::dropped`].
    pub reasons: BTreeMap<String, u64>,
    /// The reasons in words. If the links to the peer were too slow, the rate that they carried is included.
    pub why: String,
}

impl GivenUpReport {
    /// Returns the fraction of messages that were dropped, 0 to 1.
    pub fn share(&self) -> f64 {
        self.messages as f64 / self.of.max(1) as f64
    }

    /// Formats `41 % of messages dropped in the last 10 s: newer messages replaced them (...)`.
    pub fn in_words(&self) -> String {
        let share = match self.share() * 100.0 {
            few if few < 1.0 => "less than 1".into(),
            share => format!("{share:.0}"),
        };
        let (seconds, why) = (self.seconds, &self.why);
        format!("{share} % of messages dropped in the last {seconds:.0} s: {why}")
    }
}

/// Delays since the node started, in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DelayReport {
    /// Mean.
    pub mean_ms: f64,
    /// Median.
    pub p50_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// Largest.
    pub max_ms: f64,
    /// Upper bound of each histogram bucket in milliseconds, and the number of delays in it.
    pub buckets: Vec<(f64, u64)>,
}

/// One radio.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RadioReport {
    /// Interface name.
    pub radio: String,
    /// The signal that paces the radio now: `back-pressure`, `rate`, `idle`.
    pub paced_by: String,
    /// Configured rate in bits per second.
    pub configured_bps: Option<u64>,
    /// Rate in bits per second, measured while packets were queued all the time.
    pub measured_bps: Option<u64>,
    /// Bytes in the kernel now.
    pub in_flight_bytes: u64,
    /// Maximum bytes that may be in the kernel.
    pub in_flight_limit_bytes: u64,
    /// IP bytes sent.
    pub sent_bytes: u64,
    /// Packets sent.
    pub sent_packets: u64,
}

/// One link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkReport {
    /// The other node.
    pub peer: String,
    /// Name of the link in the file; empty for a link without an address there.
    pub name: String,
    /// Fraction of the packets that are lost, smoothed over 64 packets.
    pub loss: f64,
    /// Whether packets are stuck in the driver, so that other links carry the messages.
    pub stalled: bool,
    /// Whether the peer acknowledges nothing, so that other links carry the messages.
    #[serde(default)]
    pub silent: bool,
    /// The radio that sends its packets.
    pub radio: String,
    /// Remote address, empty while unknown.
    pub remote: String,
    /// What lies between the two ends: `direct`, an address translator (`NAT here`, `NAT there`, `NAT both`),
    /// or `relay`; empty while unknown.
    #[serde(default)]
    pub path: String,
    /// State in a word: `up`, `down`, `silent`, `stalled`, or `standby` (it carries no messages because
    /// another link is better: a relay while a direct path works, or a direct path on trial).
    #[serde(default)]
    pub state: String,
    /// Whether packets arrive.
    pub up: bool,
    /// Rate at which the link can send now, in bits per second of IP packets. It is shared with the other
    /// links of its radio, and grows with use. `None` if no limit is known, or if the link is down.
    pub available_bps: Option<u64>,
    /// The signal that held packets back last: a signal of the radio (`back-pressure`, `rate`,
    /// `relay`), or `reports` of the peer if the bottleneck is further away.
    pub paced_by: String,
    /// Largest IP packet, in bytes, that the path is known to carry. Through a relay, it is the
    /// largest relayed packet.
    pub mtu: u64,
    /// How `mtu` is known: `searching` (probes look for a larger value), `interface` or
    /// `configured` (packets of the size that this allows arrive), `probed` (larger packets do not
    /// arrive), `black hole` (larger packets used to arrive), or `relay`.
    #[serde(default)]
    pub mtu_known_by: String,
    /// Smoothed round-trip time in milliseconds.
    pub rtt_ms: Option<f64>,
    /// Packets sent.
    pub sent_packets: u64,
    /// Packets that the peer has acknowledged.
    pub acked_packets: u64,
    /// Packets that were declared lost.
    pub lost_packets: u64,
    /// Packets that arrived although they had been declared lost.
    #[serde(default)]
    pub late_packets: u64,
    /// Whether packets are ECN-capable: `testing`, `on`, or `off` if the path does not carry ECN.
    #[serde(default)]
    pub ecn: String,
    /// Packets that the path marked for congestion (ECN CE), as counted by the peer.
    #[serde(default)]
    pub marked_packets: u64,
    /// IP bytes sent.
    pub sent_bytes: u64,
    /// Bytes of repairs, as a part of the bytes sent.
    pub repair_bytes: u64,
    /// Bytes that were sent again before a loss was known, as a part of the bytes sent.
    pub redundant_bytes: u64,
    /// Packets received.
    pub received_packets: u64,
    /// IP bytes received.
    pub received_bytes: u64,
    /// Packets received twice.
    pub duplicate_packets: u64,
    /// The packets since the last interruption; `None` until the link is up first.
    #[serde(default)]
    pub steady: Option<SteadyReport>,
    /// The budget of the link, if it has one.
    #[serde(default)]
    pub budget: Option<BudgetReport>,
}

/// The watchdog of one topic from peers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WatchdogReport {
    /// Local name.
    pub topic: String,
    /// `asleep` (no message yet, or no subscriber), `armed` or `silent`.
    pub state: String,
    /// Number of safe messages published.
    pub published: u64,
}

/// A kind of assumption of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Assumption {
    /// Messages per second of the topics of a rule, to the peer that gets the most. Must not exceed
    /// the expected value.
    Rate,
    /// Mean bytes of a message. Must not exceed the expected value.
    Size,
    /// Fraction of a link's packets that are lost. Must not exceed the expected value.
    Loss,
    /// Smoothed round-trip time of a link in milliseconds. Must not exceed the expected value.
    RoundTrip,
    /// Bits per second of IP packets that a full radio carries. Must reach the expected value. On a
    /// channel that both directions share, received packets count as well.
    BitRate,
    /// Payload bits per second, on a radio, of topics without `expect`, to peers with no other
    /// link. The expected value is zero.
    Unplanned,
}

impl Assumption {
    /// Returns its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Size => "size",
            Self::Loss => "loss",
            Self::RoundTrip => "round trip",
            Self::BitRate => "bit rate",
            Self::Unplanned => "topics without expect",
        }
    }

    /// Formats a value with its unit.
    pub fn format_value(self, value: f64) -> String {
        let scaled = |unit: &str| {
            let steps = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
            match steps.into_iter().find(|(scale, _)| value >= 0.9995 * scale) {
                Some((scale, letter)) => {
                    format!("{} {letter}{unit}", format_significant(value / scale))
                }
                None => format!("{} {unit}", format_significant(value)),
            }
        };
        match self {
            Self::Rate => format!("{} Hz", format_significant(value)),
            Self::Size => scaled("B"),
            Self::Loss => format!("{} %", format_significant(value * 100.0)),
            Self::RoundTrip => format!("{} ms", format_significant(value)),
            Self::BitRate | Self::Unplanned => scaled("bps"),
        }
    }
}

/// Formats three significant digits, without zeros at the end.
fn format_significant(value: f64) -> String {
    let text = match value {
        it if it >= 99.95 => return format!("{it:.0}"),
        it if it >= 9.995 => format!("{it:.1}"),
        it => format!("{it:.2}"),
    };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// An assumption of the file, compared with what was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanReport {
    /// A rule for topics, a link with its peer, or an interface.
    pub subject: String,
    /// The assumption, and the unit of the values.
    pub assumption: Assumption,
    /// The value that follows from the file.
    pub expected: f64,
    /// The value measured in the last window, which lasts 10 s, or up to 100 s for slow topics.
    /// `None` if nothing was sent, or if a radio is not full.
    pub measured: Option<f64>,
    /// Seconds since the assumption failed; `None` while it holds.
    pub failed_for_s: Option<f64>,
    /// Path of the key in the file.
    pub key: String,
}

impl PlanReport {
    /// Formats `/camera/**: 22 Hz measured, 15 Hz expected`.
    pub fn in_words(&self) -> String {
        let quantity = |value: f64| self.assumption.format_value(value);
        let measured = self.measured.map_or("nothing".into(), quantity);
        let (subject, expected) = (&self.subject, quantity(self.expected));
        match self.assumption {
            Assumption::Rate => format!("{subject}: {measured} measured, {expected} expected"),
            Assumption::Size => {
                format!("{subject}: messages of {measured} measured, {expected} expected")
            }
            Assumption::Loss => {
                format!("{subject}: {measured} of packets lost, {expected} expected")
            }
            Assumption::RoundTrip => {
                format!("{subject}: round trip of {measured} measured, {expected} expected")
            }
            Assumption::BitRate => format!(
                "{subject}: full, and carries {measured}, {expected} expected; its bit rate or \
                 'rate' in the file is lower, or others use the channel"
            ),
            Assumption::Unplanned => {
                format!("{subject}: {measured} of topics without 'expect', {expected} expected")
            }
        }
    }
}

/// A request of a peer that the file would allow with another line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WaitingReport {
    /// The other node.
    pub peer: String,
    /// `publish` or `serve`: the peer offers a topic or service here. `call`: it calls a service of
    /// this robot.
    pub act: String,
    /// Name of the topic or service on the robot that offers it.
    pub name: String,
    /// Type name.
    pub type_name: String,
    /// The line to be added under peers.NAME.
    pub line: String,
}

/// A field that only one ROS has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldReport {
    /// The other node.
    pub peer: String,
    /// The type, the field, and the ROS that has it
    /// (`visualization_msgs/Marker.texture, ROS 2 only`).
    pub field: String,
}

/// The lines of a peer's entry in the file that allow all of its requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinesReport {
    /// The other node.
    pub peer: String,
    /// YAML that replaces `accept` and `call` under peers.NAME; includes their present entries.
    pub lines: String,
}

/// A change, on a running node, to the topics that match `topic`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TopicChange {
    /// Name or pattern of local topics.
    pub topic: String,
    /// New priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// New rate limit in hertz; 0 removes the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_hz: Option<f64>,
}

/// Formats `/scan: priority=9 rate=5Hz`.
impl fmt::Display for TopicChange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:", self.topic)?;
        if let Some(priority) = self.priority {
            write!(out, " priority={priority}")?;
        }
        match self.rate_hz {
            None => Ok(()),
            Some(0.0) => out.write_str(" rate=none"),
            Some(hz) => write!(out, " rate={hz}Hz"),
        }
    }
}
