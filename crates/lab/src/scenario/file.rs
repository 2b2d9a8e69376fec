// SPDX-License-Identifier: Apache-2.0
//! A scenario file as written. The doc comments here are the text of the schema and of
//! `docs/reference/scenarios.md`.

use super::reader::At;
use super::value::{
    Burst, Flag, Line, List, MessageSize, Named, Or, Overhead, Pacing, Point, QueueSize, Rate,
    Real, Reference, Share, Span, Time, Whole, Word, inline_schema,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

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
    /// As the demo's token bucket.
    pub const PIPE_QUEUE: &str = "100KB";
    /// As the demo's token bucket: two full packets.
    pub const BURST: &str = "0";
    /// IP bytes only.
    pub const OVERHEAD: &str = "0";
    /// txqueuelen of a common interface.
    pub const STATION_QUEUE: &str = "1000";
    /// The system under test.
    pub const OVER: &str = "tautline";
    /// As the kernel's default.
    pub const CONGESTION: &str = "cubic";
    /// As the daemon's default.
    pub const PRIORITY: &str = "100";
    /// Best effort.
    pub const DSCP: &str = "0";
    /// Immediately.
    pub const START: &str = "0s";
    /// As the daemon's default.
    pub const IN_FLIGHT: &str = "2";
    pub const PACING: &str = "auto";
}

/// Converts `text` to the value that YAML delivers: numbers are numbers, quantities with a unit are
/// text.
fn as_yaml(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

/// A set-up of radios and stations, what is sent over it and what happens.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "A scenario of tautline-lab")]
pub struct File {
    /// One line that says what this is.
    pub about: Line,
    /// Where its numbers come from.
    pub source: Option<Line>,
    /// How long it runs.
    pub duration: At<Span>,
    /// Radio channels and lines, by name.
    pub networks: At<Named<Network>>,
    /// Places with radios, by name: robots, base stations.
    pub stations: At<Named<Station>>,
    /// Chains of at least three stations along which packets are forwarded, both ways: by plain IP, or (over `tautline`, with `relay`) by nodes.
    #[serde(default)]
    pub routes: List<List<Reference>>,
    /// What is sent.
    #[serde(default)]
    pub flows: List<Flow>,
    /// Plants and their controllers.
    #[serde(default)]
    pub control_loops: List<ControlLoop>,
    /// What happens during the run.
    #[serde(default)]
    pub events: List<Event>,
    /// Settings of every Tautline node.
    pub tautline: Option<Tautline>,
}

/// Radios that can reach each other: exactly one of the two.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// An 802.11 channel.
    Wifi(Wifi),
    /// A line without contention: a token bucket, a serial radio, a cellular modem.
    Pipe(Pipe),
}

/// An 802.11 channel that all its stations share.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Wifi {
    /// Timing and rates: `ofdm` (6, 9, 12, 18, 24, 36, 48, 54 Mbps) or `dsss` (802.11b: 1, 2, 5.5, 11 Mbps).
    #[serde(default)]
    pub phy: Phy,
    /// One of the phy's rates for data frames, or `adaptive`: by success seen, as Minstrel does.
    pub rate: At<Or<Adaptive, Rate>>,
    /// `dcf`: one queue per radio. `edca`: four, by the packet's DSCP.
    #[serde(default)]
    pub access: Access,
    /// Attempts after the first one.
    #[schemars(extend("default" = as_yaml(default::RETRIES)))]
    pub retries: Option<Whole<0, 255>>,
    /// Loss beside collisions and weak signals: a share, or in bursts (Gilbert-Elliott) `{ enter: 1%, leave: 20% }`.
    #[schemars(extend("default" = as_yaml(default::LOSS)))]
    pub loss: Option<Loss>,
    /// What one trial of `loss` is: an `attempt` on the air, which may be repaired by the next, or a `frame` after all its attempts.
    #[serde(default)]
    pub loss_per: LossPer,
    /// Transmit power, dBm.
    #[schemars(extend("default" = as_yaml(default::POWER)))]
    pub power: Option<Real<-50, 60>>,
    /// Noise floor, dBm.
    #[schemars(extend("default" = as_yaml(default::NOISE)))]
    pub noise: Option<Real<-200, 0>>,
    /// Signals from here up keep a station silent, dBm.
    #[schemars(extend("default" = as_yaml(default::CARRIER_SENSE)))]
    pub carrier_sense: Option<Real<-200, 0>>,
    /// How power falls with distance. Without it everyone hears everyone perfectly, and any overlap destroys all.
    pub path_loss: Option<PathLoss>,
    /// The station through which all frames between the others go.
    pub access_point: Option<At<Reference>>,
}

/// How power falls with distance.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PathLoss {
    /// 2 in free space, 3 to 4 among walls and rubble.
    pub exponent: Real<1, 10>,
    /// Loss at one metre, dB.
    #[schemars(extend("default" = as_yaml(default::AT_1M)))]
    pub at_1m: Option<Real<0, 200>>,
    /// Standard deviation of a constant per pair of stations, dB, drawn from the seed.
    #[schemars(extend("default" = as_yaml(default::SHADOWING)))]
    pub shadowing: Option<Real<0, 40>>,
}

/// A line without contention.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pipe {
    /// Bits per second of IP packets with their overhead.
    pub rate: Rate,
    /// From the end of a packet at the sender to the receiver.
    #[schemars(extend("default" = as_yaml(default::DELAY)))]
    pub delay: Option<Time>,
    /// Largest extra delay, evenly drawn; packets stay in order.
    #[schemars(extend("default" = as_yaml(default::DELAY)))]
    pub jitter: Option<Time>,
    /// A share of packets, or in bursts (Gilbert-Elliott) `{ enter: 1%, leave: 20% }`.
    #[schemars(extend("default" = as_yaml(default::LOSS)))]
    pub loss: Option<Loss>,
    /// Bytes that may wait at a radio; more are dropped.
    #[schemars(extend("default" = as_yaml(default::PIPE_QUEUE)))]
    pub queue: Option<QueueSize>,
    /// Bytes that an idle pipe sends immediately, as a token bucket does.
    #[schemars(extend("default" = as_yaml(default::BURST)))]
    pub burst: Option<Burst>,
    /// Bytes added to each IP packet (14 for Ethernet).
    #[schemars(extend("default" = as_yaml(default::OVERHEAD)))]
    pub overhead: Option<Overhead>,
    /// `full`: every radio has the rate for itself. `half`: all share it and take turns.
    #[serde(default)]
    pub duplex: Duplex,
}

/// A robot, a base station, or `count` of them.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Station {
    /// The networks it has a radio on.
    pub networks: List<Reference>,
    /// Makes this many, named NAME1, NAME2 and so on.
    pub count: Option<At<Whole<1, 256>>>,
    /// Where it is, in metres. Needed (or `around`, `moves`, `trace`) on a network with `path_loss`.
    pub at: Option<At<Point>>,
    /// The middle of the circle on which `count` stations stand, evenly.
    pub around: Option<At<Point>>,
    /// The radius of that circle, metres.
    pub radius: Option<At<Real<0, 100_000>>>,
    /// Where it is when; straight and even in between, at rest before and after.
    pub moves: Option<At<List<Waypoint>>>,
    /// The same from a file, whose columns are seconds, x, y and perhaps z; relative to this file.
    pub trace: Option<At<Reference>>,
    /// Packets that may wait at each of its 802.11 radios.
    #[schemars(extend("default" = as_yaml(default::STATION_QUEUE)))]
    pub queue: Option<Whole<1, 1_000_000>>,
}

/// A place and when the station is there.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Waypoint {
    /// Since the start.
    pub at: At<Time>,
    /// Where, in metres.
    pub to: Point,
}

/// Messages from one station to another.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// Name in results; with a pattern, the matching station's name is added (`laser-worker3`).
    pub name: At<super::value::Name>,
    /// The sender, or a pattern (`worker*`): one flow for each matching station.
    pub from: At<Reference>,
    /// The receiver, or a pattern. With a pattern at both ends the first goes to the first, the second to the second and so on.
    pub to: At<Reference>,
    /// Bytes of a message.
    pub size: MessageSize,
    /// Time between two messages, or (over `udp` and `tcp`) `saturate`: the next as soon as the socket takes it.
    pub every: At<Or<Saturate, Span>>,
    /// `tautline`; `udp`: plain datagrams of at most 1472 bytes, all of a message at once; or `tcp`: one connection of this machine's kernel, which always has more to send. In real time only.
    #[schemars(extend("default" = as_yaml(default::OVER)))]
    pub over: Option<At<Over>>,
    /// 0-255, higher first. `udp` and `tcp` have none.
    #[schemars(extend("default" = as_yaml(default::PRIORITY)))]
    pub priority: Option<Whole<0, 255>>,
    /// Only the newest messages are kept. `udp` and `tcp` do not support it.
    pub keep_last: Option<Whole<1, 1_000_000>>,
    /// Age past which a message is worthless. `udp` and `tcp` have none.
    pub lifespan: Option<Span>,
    /// How `tcp` finds its rate; this machine's kernel must support it.
    #[schemars(extend("default" = as_yaml(default::CONGESTION)))]
    pub congestion: Option<At<Congestion>>,
    /// DSCP of `udp` and `tcp` packets; chooses the access category where `access` is `edca`.
    #[schemars(extend("default" = as_yaml(default::DSCP)))]
    pub dscp: Option<Whole<0, 63>>,
    /// Messages in all; without it, until the end.
    pub count: Option<Whole<1, 1_000_000_000>>,
    /// When the first message is sent.
    #[schemars(extend("default" = as_yaml(default::START)))]
    pub start: Option<At<Time>>,
    /// The receiver sends each message back at once; the delay is that of the round trip. Not over `tcp`.
    #[schemars(extend("default" = false))]
    pub echo: Option<At<Flag>>,
}

/// A plant and its controller, joined by the network (Pound, section 6.6).
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ControlLoop {
    /// The station at which the plant is; it sends the measurement y.
    pub plant: At<Reference>,
    /// The station at which the controller is; it sends the command u.
    pub controller: At<Reference>,
    /// Time between two measurements, and between two commands.
    pub period: Span,
    /// What carries both; not `tcp`.
    #[schemars(extend("default" = as_yaml(default::OVER)))]
    pub over: Option<At<Over>>,
    /// 0-255, higher first. `udp` has none.
    #[schemars(extend("default" = as_yaml(default::PRIORITY)))]
    pub priority: Option<Whole<0, 255>>,
    /// `rlc`: C = 0.1 F, L = 0.1 H, R = 1 ohm in series, P controller with K = 1, a step of 1 V.
    #[serde(default)]
    pub plant_model: PlantModel,
}

/// Something that happens: exactly one of `outage`, `interference` and `rate`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [
    { "required": ["outage", "for"] }, { "required": ["interference", "for"] }, { "required": ["rate"], "not": { "required": ["for"] } },
]))]
pub struct Event {
    /// When it begins.
    pub at: At<Time>,
    /// How long it lasts; a new rate lasts to the end.
    #[serde(rename = "for")]
    pub lasts: Option<At<Span>>,
    /// A station that is cut off from all others, or `[one, other]`: two that are cut off from each other.
    pub outage: Option<At<Outage>>,
    /// Frames of no station: a neighbour's network, a microwave oven.
    pub interference: Option<Interference>,
    /// A pipe's rate, or the fixed rate of an 802.11 network, changes.
    pub rate: Option<NewRate>,
}

/// Frames of no station. Power and path loss are the network's.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Interference {
    /// The 802.11 network that is disturbed.
    pub network: At<Reference>,
    /// Where it comes from, in metres.
    pub at: Point,
    /// How long each burst lasts.
    pub burst: Span,
    /// Mean time from the end of one burst to the start of the next, exponentially drawn.
    pub pause: Span,
}

/// A rate from now on.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRate {
    /// The network.
    pub network: At<Reference>,
    /// Its new rate.
    pub to: At<Rate>,
}

/// Settings of every Tautline node.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tautline {
    /// Full packets that may wait in a radio's queue at once.
    #[schemars(extend("default" = as_yaml(default::IN_FLIGHT)))]
    pub in_flight: Option<Whole<1, 64>>,
    /// How Tautline's radios are paced, as in the robot's file.
    #[schemars(extend("default" = as_yaml(default::PACING)))]
    pub rate: Option<Pacing>,
    /// Packets are marked by their priority, as by default in the robot's file; this chooses the access category where `access` is `edca`.
    #[schemars(extend("default" = true))]
    pub dscp: Option<At<Flag>>,
    /// Each station of a route runs a node and relays the packets of its neighbours to each other; IP does not. In virtual time only.
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
    /// How stations take turns.
    Access { /** One queue per radio. */ Dcf, /** Four queues per radio. */ Edca }
}
words! {
    /// What one trial of loss is.
    LossPer { /** May be repaired by the next. */ Attempt, /** Nothing repairs it. */ Frame }
}
words! {
    /// Whether both ends of a pipe may send at once.
    Duplex { /** Each radio has the rate for itself. */ Full, /** All share it. */ Half }
}
words! {
    /// What carries messages.
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
    /// How TCP finds its rate, in the kernel's words.
    Congestion { /** By losses (RFC 9438). */ Cubic, /** By what arrived and the shortest round trip. */ Bbr }
}
words! {
    /// What is controlled.
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

/// A loss: uniform or in bursts.
#[derive(Debug)]
pub enum Loss {
    /// The same probability for each trial.
    Share(f64),
    /// In bursts.
    Bursts(Bursts),
}

/// Loss in bursts: a good state that loses nothing and a bad one that loses all.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bursts {
    /// Probability of good to bad, per trial.
    pub enter: Share,
    /// Probability of bad to good, per trial; more than 0.
    pub leave: At<Share>,
}

impl<'de> Deserialize<'de> for Loss {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Loss;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("0% to 100%, or { enter: SHARE, leave: SHARE }")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Loss, E> {
                let share: Result<Share, String> = super::value::FromText::from_text(text);
                share
                    .map(|share| Loss::Share(share.0))
                    .map_err(|_| E::custom(&self as &dyn de::Expected))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Loss, A::Error> {
                Bursts::deserialize(MapAccessDeserializer::new(map)).map(Loss::Bursts)
            }
        }
        from.deserialize_any(Either)
    }
}

inline_schema! {
    [] Loss, "Loss",
    |it| json_schema!({ "anyOf": [it.subschema_for::<Share>(), it.subschema_for::<Bursts>()] })
}

/// An outage of one station or of a pair.
#[derive(Debug)]
pub enum Outage {
    /// A station cut off from all others.
    Station(String),
    /// Two stations cut off from each other.
    Pair([String; 2]),
}

impl<'de> Deserialize<'de> for Outage {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct OneOrTwo;
        impl<'de> Visitor<'de> for OneOrTwo {
            type Value = Outage;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a station, or a pair of stations [one, other]")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Outage, E> {
                Ok(Outage::Station(text.into()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Outage, A::Error> {
                let mut stations: Vec<String> = Vec::new();
                while let Some(Reference(station)) = list.next_element()? {
                    stations.push(station);
                }
                let count = stations.len();
                let pair = stations.try_into();
                pair.map(Outage::Pair).map_err(|_| de::Error::invalid_length(count, &self))
            }
        }
        from.deserialize_any(OneOrTwo)
    }
}

inline_schema! {
    [] Outage, "Outage",
    |_| json_schema!({ "title": "a station, or a pair of stations [one, other]", "anyOf": [
        { "type": "string" },
        { "type": "array", "items": { "type": "string" }, "minItems": 2, "maxItems": 2 },
    ] })
}
