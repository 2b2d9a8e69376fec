// SPDX-License-Identifier: Apache-2.0
//! A scenario file as written. The doc comments here are the text of the schema and of
//! `docs/reference/scenarios.md`.

pub use super::forms::{Loss, Outage};
use super::reader::At;
use super::value::{
    Burst, Flag, Line, List, MessageSize, Named, Or, Overhead, Pacing, Point, QueueSize, Rate,
    Real, Reference, Share, Span, Time, Whole, Word,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Defaults of keys, written as in the file.
pub mod default {
    /// dot11ShortRetryLimit of IEEE 802.11-2016.
    pub const RETRIES: &str = "7";
    /// No loss in addition to collisions.
    pub const LOSS: &str = "0%";
    /// A common card, dBm.
    pub const POWER: &str = "15";
    /// Thermal noise of 20 MHz (-101 dBm) and a noise figure of 7 dB.
    pub const NOISE: &str = "-94";
    /// Sensitivity required at 6 Mbps (IEEE 802.11-2016, 17.3.10.6).
    pub const CARRIER_SENSE: &str = "-82";
    /// Free space at 5.18 GHz: 20 log10(4 pi f / c).
    pub const AT_1M: &str = "46.7";
    /// Equal reception at equal distance.
    pub const SHADOWING: &str = "0";
    /// No delay.
    pub const DELAY: &str = "0s";
    /// The value of the demo's token bucket.
    pub const PIPE_QUEUE: &str = "100KB";
    /// The value of the demo's token bucket: two full packets.
    pub const BURST: &str = "0";
    /// IP bytes only.
    pub const OVERHEAD: &str = "0";
    /// txqueuelen of a common interface.
    pub const STATION_QUEUE: &str = "1000";
    /// The system under test.
    pub const OVER: &str = "tautline";
    /// The kernel's default.
    pub const CONGESTION: &str = "cubic";
    /// The daemon's default.
    pub const PRIORITY: &str = "100";
    /// The daemon's default.
    pub const COPIES: &str = "2";
    /// The daemon's default.
    pub const REPAIR: &str = "true";
    /// Best effort.
    pub const DSCP: &str = "0";
    /// Immediately.
    pub const START: &str = "0s";
    /// The daemon's default.
    pub const IN_FLIGHT: &str = "2";
    pub const PACING: &str = "auto";
}

/// Converts `text` to the value that YAML delivers: numbers are numbers, quantities with a unit are
/// text.
fn as_yaml(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

/// A scenario: networks and stations, the traffic between them, and events.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "A scenario of tautline-lab")]
pub struct File {
    /// Description of the scenario in one line.
    pub about: Line,
    /// Source of the figures in the scenario.
    pub source: Option<Line>,
    /// Duration of the run.
    pub duration: At<Span>,
    /// 802.11 channels and pipes, by name.
    pub networks: At<Named<Network>>,
    /// Stations with radios (robots, base stations), by name.
    pub stations: At<Named<Station>>,
    /// Chains of at least three stations that forward packets in both directions: by plain IP or, with `tautline: { relay: true }`, by Tautline nodes.
    #[serde(default)]
    pub routes: List<List<Reference>>,
    /// Streams of messages between stations.
    #[serde(default)]
    pub flows: List<Flow>,
    /// Plants and their controllers.
    #[serde(default)]
    pub control_loops: List<ControlLoop>,
    /// Scheduled events: outages, interference and changes of rate.
    #[serde(default)]
    pub events: List<Event>,
    /// Settings of every Tautline node.
    pub tautline: Option<Tautline>,
}

/// A network of radios that can reach each other: exactly one of `wifi` and `pipe`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// An 802.11 channel.
    Wifi(Wifi),
    /// A channel without contention, such as a token bucket, a serial radio or a cellular modem.
    Pipe(Pipe),
}

/// An 802.11 channel that all its stations share.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Wifi {
    /// Timing and rates: `ofdm` (802.11a and g: 6, 9, 12, 18, 24, 36, 48, 54 Mbps) or `dsss` (802.11b: 1, 2, 5.5, 11 Mbps).
    #[serde(default)]
    pub phy: Phy,
    /// Rate of data frames: one of the rates of `phy`, or `adaptive`, which selects the rate by the success of earlier frames, as Minstrel does.
    pub rate: At<Or<Adaptive, Rate>>,
    /// Channel access. `dcf`: one queue per radio. `edca`: four queues per radio, selected by the packet's DSCP.
    #[serde(default)]
    pub access: Access,
    /// Maximum number of retransmissions of a frame.
    #[schemars(extend("default" = as_yaml(default::RETRIES)))]
    pub retries: Option<Whole<0, 255>>,
    /// Loss in addition to that by collisions and weak signals: a probability, or bursts (Gilbert-Elliott), `{ enter: 1%, leave: 20% }`.
    #[schemars(extend("default" = as_yaml(default::LOSS)))]
    pub loss: Option<Loss>,
    /// Unit to which `loss` applies. `attempt`: each transmission attempt; a later attempt can succeed. `frame`: the frame as a whole, after all attempts.
    #[serde(default)]
    pub loss_per: LossPer,
    /// Transmit power, dBm.
    #[schemars(extend("default" = as_yaml(default::POWER)))]
    pub power: Option<Real<-50, 60>>,
    /// Noise floor, dBm.
    #[schemars(extend("default" = as_yaml(default::NOISE)))]
    pub noise: Option<Real<-200, 0>>,
    /// Minimum power at which a station senses a signal and defers, dBm.
    #[schemars(extend("default" = as_yaml(default::CARRIER_SENSE)))]
    pub carrier_sense: Option<Real<-200, 0>>,
    /// Loss of power with distance. Without this key, every station receives every other without attenuation, and all overlapping frames are lost.
    pub path_loss: Option<PathLoss>,
    /// Station that forwards all frames between the other stations.
    pub access_point: Option<At<Reference>>,
}

/// Loss of power with distance (log-distance model).
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PathLoss {
    /// Path loss exponent: 2 in free space, 3 to 4 among walls and rubble.
    pub exponent: Real<1, 10>,
    /// Loss at one metre, dB.
    #[schemars(extend("default" = as_yaml(default::AT_1M)))]
    pub at_1m: Option<Real<0, 200>>,
    /// Standard deviation of the shadowing, dB. The shadowing of each pair of stations is constant and drawn from the seed.
    #[schemars(extend("default" = as_yaml(default::SHADOWING)))]
    pub shadowing: Option<Real<0, 40>>,
}

/// A channel without contention.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pipe {
    /// Rate in bits per second of IP packets, `overhead` included. Either `rate` or `trace` is required.
    pub rate: Option<At<Rate>>,
    /// File with recorded opportunities to send, in the format of mahimahi: a line has the milliseconds since the start at which up to 1500 bytes can be sent. The recording repeats after its last line.
    pub trace: Option<At<Reference>>,
    /// Propagation delay: from the end of a packet's transmission to its arrival.
    #[schemars(extend("default" = as_yaml(default::DELAY)))]
    pub delay: Option<Time>,
    /// Maximum additional delay, drawn uniformly; packets stay in order.
    #[schemars(extend("default" = as_yaml(default::DELAY)))]
    pub jitter: Option<Time>,
    /// Packets that arrive later than those behind them: `{ share: 5%, by: 50ms }` delays every twentieth by up to 50 ms.
    pub reorder: Option<Reorder>,
    /// Share of packets that arrive twice.
    #[schemars(extend("default" = as_yaml(default::LOSS)))]
    pub duplicate: Option<Share>,
    /// Loss of packets: a probability, or bursts (Gilbert-Elliott), `{ enter: 1%, leave: 20% }`.
    #[schemars(extend("default" = as_yaml(default::LOSS)))]
    pub loss: Option<Loss>,
    /// Maximum bytes queued at a radio; packets beyond it are dropped.
    #[schemars(extend("default" = as_yaml(default::PIPE_QUEUE)))]
    pub queue: Option<QueueSize>,
    /// Active queue management. `codel` (RFC 8289; target 5 ms, interval 100 ms) marks ECN-capable packets and drops others before the queue is full.
    #[serde(default)]
    pub aqm: Aqm,
    /// Marks every ECN-capable packet that was queued for longer than this time, and drops none before the queue is full. Not together with `aqm`.
    pub mark: Option<At<Span>>,
    /// Bytes that an idle pipe sends immediately, as a token bucket does.
    #[schemars(extend("default" = as_yaml(default::BURST)))]
    pub burst: Option<Burst>,
    /// Bytes added to each IP packet (14 for Ethernet).
    #[schemars(extend("default" = as_yaml(default::OVERHEAD)))]
    pub overhead: Option<Overhead>,
    /// `full`: each radio has the whole rate. `half`: the radios share the rate and take turns.
    #[serde(default)]
    pub duplex: Duplex,
}

/// Packets that take longer than those behind them.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reorder {
    /// Probability that a packet is delayed.
    pub share: Share,
    /// Maximum delay of such a packet, drawn uniformly.
    pub by: Span,
}

/// A station, for example a robot or a base station, or `count` of them.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Station {
    /// Networks on which the station has a radio.
    pub networks: List<Reference>,
    /// Number of stations with these keys, named NAME1, NAME2 and so on.
    pub count: Option<At<Whole<1, 256>>>,
    /// Position in metres. A network with `path_loss` requires `at`, `around`, `moves` or `trace`.
    pub at: Option<At<Point>>,
    /// Centre of a circle on which `count` stations are evenly spaced.
    pub around: Option<At<Point>>,
    /// Radius of this circle, metres.
    pub radius: Option<At<Real<0, 100_000>>>,
    /// Waypoints. The station moves between them in straight lines at constant speed, and is at rest before the first and after the last.
    pub moves: Option<At<List<Waypoint>>>,
    /// Path of a file with waypoints, relative to the scenario's file. Its columns are seconds, x, y and optionally z.
    pub trace: Option<At<Reference>>,
    /// Maximum number of packets queued at each 802.11 radio of the station.
    #[schemars(extend("default" = as_yaml(default::STATION_QUEUE)))]
    pub queue: Option<Whole<1, 1_000_000>>,
}

/// A position, and the time at which the station is there.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Waypoint {
    /// Time since the start.
    pub at: At<Time>,
    /// Position in metres.
    pub to: Point,
}

/// Messages from one station to another.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// Name of the flow in results. If `from` or `to` is a pattern, the matching station's name is appended (`laser-worker3`).
    pub name: At<super::value::Name>,
    /// Sender, or a pattern (`worker*`) that makes one flow for each matching station.
    pub from: At<Reference>,
    /// Receiver, or a pattern. If `from` is a pattern too, the first sender sends to the first receiver, the second to the second, and so on.
    pub to: At<Reference>,
    /// Size of a message.
    pub size: MessageSize,
    /// Time between two messages. `saturate` (`udp` and `tcp` only) sends the next message as soon as the socket accepts it.
    pub every: At<Or<Saturate, Span>>,
    /// Transport. `tautline`: Tautline nodes. `udp`: plain datagrams of at most 1472 bytes; all datagrams of a message are sent at once. `tcp`: one connection of this machine's kernel, which always has more to send; in real time only.
    #[schemars(extend("default" = as_yaml(default::OVER)))]
    pub over: Option<At<Over>>,
    /// Priority; a higher one is sent first. `tautline` only.
    #[schemars(extend("default" = as_yaml(default::PRIORITY)))]
    pub priority: Option<Whole<0, 255>>,
    /// Number of newest messages that are kept. `tautline` only.
    pub keep_last: Option<Whole<1, 1_000_000>>,
    /// Age past which a message is worthless. `tautline` only.
    pub lifespan: Option<Span>,
    /// Links that carry a message if the stations have several networks in common. `best`: the link on which it arrives first. `weighted`: one link at random, by goodput. `stripe`: all links, each with a part. `duplicate`: the fastest links, each with a copy. Without this key, the priority decides, as in the daemon. `tautline` only.
    pub links: Option<LinkPolicyWord>,
    /// Number of links that carry a copy with links: duplicate. `tautline` only.
    #[schemars(extend("default" = as_yaml(default::COPIES)))]
    pub copies: Option<Whole<2, 16>>,
    /// Networks whose links carry the messages; the messages wait while none of them is up. Without this key, all do. `tautline` only.
    #[serde(default)]
    pub only_links: List<Reference>,
    /// Networks whose links carry the messages only while no other link can. `tautline` only.
    #[serde(default)]
    pub avoid_links: List<Reference>,
    /// Whether lost fragments are sent again. `tautline` only.
    #[schemars(extend("default" = as_yaml(default::REPAIR)))]
    pub repair: Option<Flag>,
    /// Parity in percent of the packets. `tautline` only.
    pub fec: Option<Whole<1, 200>>,
    /// Order of delivery. `arrival`: each message when it is complete. `sent`: in the order of publication; a message waits up to 200 ms for missing earlier ones. `newest`: none that is older than one already delivered. `tautline` only.
    #[schemars(extend("default" = "arrival"))]
    pub order: Option<OrderWord>,
    /// Congestion control of `tcp`; this machine's kernel must support it.
    #[schemars(extend("default" = as_yaml(default::CONGESTION)))]
    pub congestion: Option<At<Congestion>>,
    /// DSCP of `udp` and `tcp` packets. On a network with `access: edca`, it selects the access category.
    #[schemars(extend("default" = as_yaml(default::DSCP)))]
    pub dscp: Option<Whole<0, 63>>,
    /// Number of messages. Without this key, messages are sent until the end of the run.
    pub count: Option<Whole<1, 1_000_000_000>>,
    /// Time of the first message.
    #[schemars(extend("default" = as_yaml(default::START)))]
    pub start: Option<At<Time>>,
    /// Whether the receiver immediately sends each message back; the delay is then that of the round trip. Not over `tcp`.
    #[schemars(extend("default" = false))]
    pub echo: Option<At<Flag>>,
}

/// A plant and its controller, connected by the network (Pound, section 6.6).
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ControlLoop {
    /// Station of the plant, which sends the measurement y.
    pub plant: At<Reference>,
    /// Station of the controller, which sends the command u.
    pub controller: At<Reference>,
    /// Time between two measurements, and between two commands.
    pub period: Span,
    /// Transport of both; not `tcp`.
    #[schemars(extend("default" = as_yaml(default::OVER)))]
    pub over: Option<At<Over>>,
    /// Priority; a higher one is sent first. `tautline` only.
    #[schemars(extend("default" = as_yaml(default::PRIORITY)))]
    pub priority: Option<Whole<0, 255>>,
    /// Model of the plant. `rlc`: a series circuit with C = 0.1 F, L = 0.1 H and R = 1 ohm; a P controller with K = 1; a step of 1 V.
    #[serde(default)]
    pub plant_model: PlantModel,
}

/// A scheduled event: exactly one of `outage`, `interference` and `rate`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [
    { "required": ["outage", "for"] },
    { "required": ["interference", "for"], "not": { "required": ["network"] } },
    { "required": ["rate"], "not": { "anyOf": [{ "required": ["for"] }, { "required": ["network"] }] } },
]))]
pub struct Event {
    /// Time at which the event begins.
    pub at: At<Time>,
    /// Duration of an outage or of interference. A new rate lasts until the end, without this key.
    #[serde(rename = "for")]
    pub lasts: Option<At<Span>>,
    /// Station that is cut off from all others, or `[one, other]`: two stations that are cut off from each other.
    pub outage: Option<At<Outage>>,
    /// The only network that the outage concerns. Without this key, it concerns all networks.
    pub network: Option<At<Reference>>,
    /// Interference from outside the scenario, for example another network or a microwave oven.
    pub interference: Option<Interference>,
    /// New rate of a pipe, or of an 802.11 network with a fixed rate.
    pub rate: Option<NewRate>,
}

/// Bursts of interference from a source that is not a station. The network defines their power and path loss.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Interference {
    /// Affected 802.11 network.
    pub network: At<Reference>,
    /// Position of the source in metres.
    pub at: Point,
    /// Duration of each burst.
    pub burst: Span,
    /// Mean time from the end of one burst to the start of the next; the times are exponentially distributed.
    pub pause: Span,
}

/// A new rate of a network.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRate {
    /// Network whose rate changes.
    pub network: At<Reference>,
    /// New rate.
    pub to: At<Rate>,
}

/// Settings of every Tautline node.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tautline {
    /// In-flight budget of a radio, in full packets.
    #[schemars(extend("default" = as_yaml(default::IN_FLIGHT)))]
    pub in_flight: Option<Whole<1, 64>>,
    /// Rate control of radios, as in the robot's file. In virtual time also a rival of `auto`.
    #[schemars(extend("default" = as_yaml(default::PACING)))]
    pub rate: Option<Pacing>,
    /// Whether packets are marked by priority, as in the robot's file. On a network with `access: edca`, the mark selects the access category.
    #[schemars(extend("default" = true))]
    pub dscp: Option<At<Flag>>,
    /// Whether the stations of a route relay packets by Tautline nodes instead of plain IP. In virtual time only.
    #[schemars(extend("default" = false))]
    pub relay: Option<At<Flag>>,
}

/// Defines an enum of words of the file.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $(#[$first_doc:meta])* $first:ident, $($(#[$word_doc:meta])* $word:ident),* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "lowercase")]
        #[schemars(inline)]
        pub enum $name {
            $(#[$first_doc])*
            #[default]
            $first,
            $($(#[$word_doc])* $word),*
        }
    };
}

/// Converts words of the file to the medium's type, whose variants have the same names.
macro_rules! into_medium {
    ($name:ident => $of_medium:ident { $($word:ident),* }) => {
        impl From<$name> for tautline_medium::$of_medium {
            fn from(word: $name) -> Self {
                match word { $($name::$word => Self::$word),* }
            }
        }
    };
}

into_medium!(Phy => Phy { Ofdm, Dsss });
into_medium!(Access => Access { Dcf, Edca });
into_medium!(LossPer => Trial { Attempt, Frame });

words! {
    /// Timing and rates.
    Phy { /** 802.11a and g. */ Ofdm, /** 802.11b. */ Dsss }
}
words! {
    /// Channel access.
    Access { /** One queue per radio. */ Dcf, /** Four queues per radio. */ Edca }
}
words! {
    /// Unit to which a loss applies.
    LossPer { /** One attempt; a later one can succeed. */ Attempt, /** The whole frame. */ Frame }
}
words! {
    /// Whether the radios of a pipe share its rate.
    Duplex { /** Each radio has the whole rate. */ Full, /** The radios share the rate. */ Half }
}
words! {
    /// Active queue management.
    Aqm { /** A full queue drops. */ None, /** CoDel. */ Codel }
}
words! {
    /// Transport of messages.
    Over { /** Tautline. */ Tautline, /** Plain datagrams. */ Udp, /** A connection of the kernel. */ Tcp }
}
impl Over {
    /// Returns the word of the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tautline => "tautline",
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        }
    }
}

words! {
    /// Congestion control of TCP, by its name in the kernel.
    Congestion { /** By losses (RFC 9438). */ Cubic, /** By delivery rate and shortest round trip. */ Bbr }
}
words! {
    /// Links that carry a message.
    LinkPolicyWord { /** The one on which it arrives first. */ Best, /** One at random, by goodput. */ Weighted, /** All, each with a part. */ Stripe, /** The fastest, each with a copy. */ Duplicate }
}
impl LinkPolicyWord {
    /// Returns the policy; `copies` are those of `duplicate`.
    pub const fn policy(self, copies: u8) -> tautline_proto::LinkPolicy {
        use tautline_proto::LinkPolicy;
        match self {
            Self::Best => LinkPolicy::Best,
            Self::Weighted => LinkPolicy::Weighted,
            Self::Stripe => LinkPolicy::Stripe,
            Self::Duplicate => LinkPolicy::Duplicate(copies),
        }
    }
}
words! {
    /// Order of delivery.
    OrderWord { /** As messages arrive. */ Arrival, /** As they were published, with a bounded wait. */ Sent, /** As they arrive, but none after a newer one. */ Newest }
}
impl OrderWord {
    /// Returns the order, with the default wait.
    pub const fn order(self) -> tautline_proto::DeliveryOrder {
        use tautline_proto::DeliveryOrder;
        match self {
            Self::Arrival => DeliveryOrder::Arrival,
            Self::Sent => DeliveryOrder::Sent { wait: tautline_proto::wire::control::ORDER_WAIT },
            Self::Newest => DeliveryOrder::Newest,
        }
    }
}
words! {
    /// Model of the plant.
    PlantModel { /** A series circuit. */ Rlc, }
}

/// The word `adaptive`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Adaptive;

impl Word for Adaptive {
    const WORD: &'static str = "adaptive";
}

/// The word `saturate`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Saturate;

impl Word for Saturate {
    const WORD: &'static str = "saturate";
}
