// SPDX-License-Identifier: Apache-2.0
//! What a running node says of itself: one snapshot, the same for the command
//! line, `--json`, metrics and the console. Counters grow from the node's start;
//! rates are the difference of two snapshots.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// One snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The node's name.
    pub node: String,
    /// Its version.
    pub version: String,
    /// Seconds since it started.
    pub uptime_s: f64,
    /// `keys`, or `none`: anybody on the network can speak for any node.
    pub security: String,
    /// The public key that peers know this node by; none where there is no security.
    pub key: Option<String>,
    /// Where it listens.
    pub listen: String,
    /// The middleware on this robot.
    pub gateways: Vec<GatewayReport>,
    /// Other nodes.
    pub peers: Vec<PeerReport>,
    /// One per topic, direction and peer.
    pub topics: Vec<TopicReport>,
    /// One per radio.
    pub radios: Vec<RadioReport>,
    /// One per link.
    pub links: Vec<LinkReport>,
    /// One per topic with a watchdog.
    pub watchdogs: Vec<WatchdogReport>,
    /// What peers want to do here, each with the line of the file that would allow it.
    #[serde(default)]
    pub waiting: Vec<WaitingReport>,
    /// For each peer among them, the lines that allow all that it wants.
    #[serde(default)]
    pub to_allow_all: Vec<LinesReport>,
    /// Packets that were refused, by reason.
    pub packets_refused: BTreeMap<String, u64>,
    /// Recent things a person should know, newest last.
    pub notices: Vec<String>,
}

/// The middleware on this robot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GatewayReport {
    /// `ros1`.
    pub kind: String,
    /// `http://localhost:11311`.
    pub location: String,
    /// Whether it answers.
    pub connected: bool,
    /// Last trouble, empty when all is well.
    pub trouble: String,
    /// Messages that its gateway did not take or hand on.
    pub rejected: Vec<RejectedReport>,
}

/// Messages that a gateway did not take from local publishers (out) or hand to local
/// subscribers (in).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RejectedReport {
    /// Local name; empty for all topics that are too many to be told apart.
    pub topic: String,
    /// Which way.
    pub direction: Direction,
    /// Out: too_large, not_cdr, publisher_gone, caller_gone, too_many_calls. In: not_written, gateway_behind.
    pub reason: String,
    /// How many.
    pub count: u64,
}

/// Another node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeerReport {
    /// Its name.
    pub name: String,
    /// Its public key; none where there is no security.
    pub key: Option<String>,
    /// `connecting`, `up` or `down`.
    pub state: String,
    /// Bytes waiting for it.
    pub queued_bytes: u64,
    /// Messages waiting for it.
    pub queued_messages: u64,
    /// Payload of topics accepted for it in the last ten seconds, in bits per second.
    pub wanted_bps: Option<f64>,
    /// IP packets sent to it in the same time, in bits per second.
    pub sent_bps: Option<f64>,
    /// How its clock stands to ours, once that is known.
    pub clock: Option<ClockReport>,
    /// Packets of others that were passed on to it.
    pub relayed_packets: u64,
    /// Packets of others that did not get to it, by reason.
    pub relayed_dropped: BTreeMap<String, u64>,
}

/// How a peer's clock stands to ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClockReport {
    /// The peer's time of day less ours, in milliseconds; through relays it is not known.
    pub offset_ms: Option<f64>,
    /// The error of that and of one-way delays is at most this, in milliseconds.
    pub bound_ms: f64,
    /// How much faster its clock runs than ours, in millionths, after a minute.
    pub drift_ppm: Option<f64>,
}

/// `out`: from this robot; `in`: to this robot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From this robot.
    Out,
    /// To this robot.
    In,
}

/// One topic in one direction to or from one peer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TopicReport {
    /// Local name.
    pub topic: String,
    /// Which way.
    pub direction: Direction,
    /// The other node.
    pub peer: String,
    /// Type name.
    pub type_name: String,
    /// 0-255, higher first.
    pub priority: u8,
    /// Rate limit at the source in hertz.
    pub rate_hz: Option<f64>,
    /// Whether someone at the far end (out) or here (in) listens.
    pub wanted: bool,
    /// Out: messages accepted for sending. In: messages handed to the gateway.
    pub messages: u64,
    /// Their payload bytes (before compression).
    pub bytes: u64,
    /// Out: messages known to be complete at the peer.
    pub delivered: u64,
    /// Out: waiting in our queue now.
    pub queued: u64,
    /// Out: on their way, outcome unknown.
    pub sent: u64,
    /// Messages left out at the source by the rate limit; those of tf were merged into others.
    pub rate_limited: u64,
    /// Messages dropped, by reason: expired, superseded, thinned, overflow, lost, peer_gone, refused, late, ...
    /// In: over_rate (more than peers.NAME.max_rate).
    /// Those of tf before they were accepted: malformed, no_named_frame, no_room (for some of
    /// its transforms).
    pub dropped: BTreeMap<String, u64>,
    /// What of it was given up in the last ten seconds, if anything was.
    pub given_up: Option<GivenUpReport>,
    /// In: one-way delay, age at delivery.
    pub delay: Option<DelayReport>,
    /// In: the error of those delays is at most this, in milliseconds, once the clocks of both
    /// ends are compared; until then half a round trip stands for the way.
    pub delay_bound_ms: Option<f64>,
}

/// What was given up lately of a topic, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GivenUpReport {
    /// The time that this is about, up to now: ten seconds, less after the start.
    pub seconds: f64,
    /// Messages that were given up.
    pub messages: u64,
    /// Messages of which it became known in this time whether they arrived.
    pub of: u64,
    /// Messages given up by reason, named as in [`TopicReport::dropped`].
    pub reasons: BTreeMap<String, u64>,
    /// The reasons in words, with what the links to the peer carried where that was too little.
    pub why: String,
}

impl GivenUpReport {
    /// The share of messages given up, 0 to 1.
    pub fn share(&self) -> f64 {
        self.messages as f64 / self.of.max(1) as f64
    }

    /// `41 % of messages given up in the last 10 s: newer ones replaced them (...)`.
    pub fn in_words(&self) -> String {
        let share = match self.share() * 100.0 {
            few if few < 1.0 => "less than 1".into(),
            share => format!("{share:.0}"),
        };
        let (seconds, why) = (self.seconds, &self.why);
        format!("{share} % of messages given up in the last {seconds:.0} s: {why}")
    }
}

/// Delays since the node started, milliseconds.
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
    /// Upper bound of each histogram bucket in milliseconds and how many delays fell in it.
    pub buckets: Vec<(f64, u64)>,
}

/// One radio.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RadioReport {
    /// Interface name.
    pub radio: String,
    /// Which signal lets packets go now: `back-pressure`, `rate`, `idle`.
    pub paced_by: String,
    /// Configured rate in bits per second.
    pub configured_bps: Option<u64>,
    /// Rate measured while there was always something to send, bits per second.
    pub measured_bps: Option<u64>,
    /// Bytes in the kernel now.
    pub in_flight_bytes: u64,
    /// Bytes that may be.
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
    /// Which radio it leaves by.
    pub radio: String,
    /// Remote address, empty while unknown.
    pub remote: String,
    /// Whether packets come in.
    pub up: bool,
    /// What it lets go now, in bits per second of IP packets, shared with the other links of its
    /// radio; it grows with use. None: nothing is known to bound it, or it is down.
    pub available_bps: Option<u64>,
    /// The signal that held packets back last: that of the radio (`back-pressure`, `rate`,
    /// `relay`), or `reports` of the peer where the slow hop is further away.
    pub paced_by: String,
    /// Largest datagram payload.
    pub mtu: u64,
    /// Smoothed round trip in milliseconds.
    pub rtt_ms: Option<f64>,
    /// Packets sent, and of these acknowledged and lost.
    pub sent_packets: u64,
    /// Packets the peer has confirmed.
    pub acked_packets: u64,
    /// Packets taken for lost.
    pub lost_packets: u64,
    /// IP bytes sent.
    pub sent_bytes: u64,
    /// Bytes of repairs among them.
    pub repair_bytes: u64,
    /// Packets received.
    pub received_packets: u64,
    /// IP bytes received.
    pub received_bytes: u64,
    /// Packets received twice.
    pub duplicate_packets: u64,
}

/// The watchdog of one topic from peers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WatchdogReport {
    /// Local name.
    pub topic: String,
    /// `asleep` (nothing came yet, or nobody listens), `armed` or `silent`.
    pub state: String,
    /// Safe messages published.
    pub published: u64,
}

/// Something that a peer may do here only with another line in the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WaitingReport {
    /// The other node.
    pub peer: String,
    /// `publish` or `serve` something of its own here, or `call` something of this robot.
    pub act: String,
    /// Name of the topic or service where it comes from.
    pub name: String,
    /// Type name.
    pub type_name: String,
    /// To be added under peers.NAME.
    pub line: String,
}

/// What of a peer's entry in the file allows all that waits for a line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinesReport {
    /// The other node.
    pub peer: String,
    /// YAML, to be put in place of `accept` and `call` under peers.NAME; what they name so far is
    /// in it.
    pub lines: String,
}

/// A change to topics that match `topic`, on a running node.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TopicChange {
    /// Name or pattern of local topics.
    pub topic: String,
    /// New priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// New rate limit in hertz; 0 lifts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_hz: Option<f64>,
}

/// `/scan: priority=9 rate=5Hz`.
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
