// SPDX-License-Identifier: Apache-2.0
//! Robots by name and the topics between them: the load of their radios, and the delays.

use super::assessment::{Assessment, FlowForecast, load_of};
use super::spread::{Links, Part};
use super::traffic::{Channel, Fleet, Flow};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use tautline::config;
use tautline_proto::LinkPolicy;

/// A topic from one robot to another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Traffic {
    /// Name of the sender.
    pub from: String,
    /// Name of the receiver.
    pub to: String,
    /// Relays that forward it, in order.
    pub via: Vec<String>,
    /// Name of the topic.
    pub topic: String,
    /// Messages per second.
    pub rate_hz: f64,
    /// Bytes of a message.
    pub bytes: u64,
    /// Priority, 0 to 255, higher first.
    pub priority: u8,
    /// Age past which a message is worthless; `None` for no limit.
    #[serde(skip)]
    pub lifespan: Option<Duration>,
    /// The radios that may carry it.
    #[serde(skip)]
    pub links: Links,
}

impl Traffic {
    /// Whether the traffic has this sender, receiver and topic.
    pub fn matches(&self, from: &str, to: &str, topic: &str) -> bool {
        (&*self.from, &*self.to, &*self.topic) == (from, to, topic)
    }

    /// Sender, relays and receiver.
    fn stations(&self) -> impl Iterator<Item = &str> {
        self.senders().chain([&*self.to])
    }

    /// Sender and relays.
    pub(super) fn senders(&self) -> impl Iterator<Item = &str> {
        [&*self.from].into_iter().chain(self.via.iter().map(String::as_str))
    }
}

/// A radio of a team.
#[derive(Debug, Clone, PartialEq)]
pub struct Radio {
    /// Name of its interface, in the first file with this radio or on the command line.
    pub name: String,
    /// The channel.
    pub channel: config::Channel,
}

/// Robots that share one radio or several.
#[derive(Debug, Clone, PartialEq)]
pub struct Team {
    /// The radios; at least one.
    pub radios: Vec<Radio>,
    /// All topics on them.
    pub traffic: Vec<Traffic>,
}

/// The load of a radio.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RadioLoad {
    /// Name of the radio.
    pub radio: String,
    /// Load as a fraction of what the channel carries ([`Assessment::load`]).
    pub load: f64,
}

/// The delays of a topic.
pub(super) struct Delays {
    pub(super) traffic: Traffic,
    /// Fraction of the topic that has these delays.
    part: f64,
    pub(super) least_ms: f64,
    pub(super) typical_ms: Option<f64>,
    pub(super) worst_ms: Option<f64>,
    pub(super) attempts: u32,
}

impl Delays {
    /// Returns the delays of a part of each message, or of some messages, over all hops of the topic on one
    /// radio.
    fn from_hops(traffic: &Traffic, part: Part, hops: &[FlowForecast]) -> Self {
        let sum = |of: fn(&FlowForecast) -> Option<Duration>| {
            let all: Option<Duration> = hops.iter().map(of).sum();
            all.map(|it| it.as_secs_f64() * 1e3)
        };
        Self {
            traffic: traffic.clone(),
            part: part.fraction(traffic),
            least_ms: sum(|it| Some(it.least)).unwrap_or_default(),
            typical_ms: sum(|it| it.typical),
            worst_ms: sum(|it| it.worst),
            attempts: hops.iter().map(|it| it.attempts).max().unwrap_or(1),
        }
    }

    /// Combines the delays of a topic on several radios.
    fn combine(self, other: Self) -> Self {
        let both = |a: Option<f64>, b: Option<f64>, of: fn(f64, f64) -> f64| {
            a.zip(b).map(|(a, b)| of(a, b))
        };
        let (least_ms, typical_ms, worst_ms) = match self.traffic.links.policy {
            // The first copy determines the delay.
            LinkPolicy::Duplicate(_) => {
                let first = |a: Option<f64>, b| both(a, b, f64::min).or(a).or(b);
                (
                    self.least_ms.min(other.least_ms),
                    first(self.typical_ms, other.typical_ms),
                    first(self.worst_ms, other.worst_ms),
                )
            }
            // Each message takes one of the links.
            LinkPolicy::Weighted => {
                let mean =
                    |a: f64, b: f64| (a * self.part + b * other.part) / (self.part + other.part);
                (
                    self.least_ms.min(other.least_ms),
                    self.typical_ms.zip(other.typical_ms).map(|(a, b)| mean(a, b)),
                    both(self.worst_ms, other.worst_ms, f64::max),
                )
            }
            // The last part determines the delay.
            LinkPolicy::Best | LinkPolicy::Stripe => (
                self.least_ms.max(other.least_ms),
                both(self.typical_ms, other.typical_ms, f64::max),
                both(self.worst_ms, other.worst_ms, f64::max),
            ),
        };
        let (part, attempts) = (self.part + other.part, self.attempts.max(other.attempts));
        Self { traffic: self.traffic, part, least_ms, typical_ms, worst_ms, attempts }
    }
}

impl Team {
    /// Returns the load of the fullest radio, as a fraction of what the radio carries
    /// ([`Assessment::load`]).
    pub fn load(&self) -> f64 {
        self.loads_of(&self.traffic).into_iter().fold(0.0, f64::max)
    }

    /// Returns the load of each radio.
    pub fn loads(&self) -> Vec<RadioLoad> {
        let loads = self.radios.iter().zip(self.loads_of(&self.traffic));
        loads.map(|(radio, load)| RadioLoad { radio: radio.name.clone(), load }).collect()
    }

    pub(super) fn loads_of(&self, traffic: &[Traffic]) -> Vec<f64> {
        self.by_radio(traffic).iter().map(|parts| self.load_of(traffic, parts)).collect()
    }

    /// Returns the load of the radio that carries these parts.
    pub(super) fn load_of(&self, traffic: &[Traffic], parts: &[Part]) -> f64 {
        self.fleet_of(traffic, parts).map_or(0.0, |fleet| load_of(&fleet))
    }

    /// Returns the parts that each radio carries, in the order of the topics.
    pub(super) fn by_radio(&self, traffic: &[Traffic]) -> Vec<Vec<Part>> {
        let mut by_radio = vec![vec![]; self.radios.len()];
        self.spread(traffic).into_iter().flatten().for_each(|it| by_radio[it.radio].push(it));
        by_radio
    }

    /// Whether two topics compete on a radio. Topics of robots with separate lines do not.
    pub(super) fn are_rivals(&self, radio: usize, one: &Traffic, other: &Traffic) -> bool {
        self.radios[radio].channel.is_shared()
            || one.senders().any(|it| other.senders().any(|sender| sender == it))
    }

    /// Returns the channel of these parts' radio and their flows, one for each hop in order; `None` without
    /// parts.
    pub(super) fn fleet_of(&self, traffic: &[Traffic], parts: &[Part]) -> Option<Fleet> {
        let channel = Channel::from(&self.radios[parts.first()?.radio].channel);
        let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
        let mut flows = Vec::new();
        for part in parts {
            let it = &traffic[part.topic];
            let mut number = |name| {
                let next = numbers.len();
                *numbers.entry(name).or_insert(next)
            };
            let path: Vec<usize> = it.stations().map(&mut number).collect();
            flows.extend(path.windows(2).map(|hop| Flow {
                from: hop[0],
                to: hop[1],
                bytes: part.bytes,
                period: Duration::from_secs_f64(1.0 / part.rate_hz),
                priority: it.priority,
                lifespan: it.lifespan,
            }));
        }
        Some(Fleet { channel, flows })
    }

    /// Returns the delays of the topics, in the order of the topics.
    pub(super) fn delays(&self) -> Vec<Delays> {
        let mut found: Vec<Vec<Delays>> = self.traffic.iter().map(|_| vec![]).collect();
        for parts in self.by_radio(&self.traffic) {
            let Some(fleet) = self.fleet_of(&self.traffic, &parts) else { continue };
            let assessment = Assessment::new(&fleet);
            let mut flows = &assessment.flows[..];
            for part in parts {
                let traffic = &self.traffic[part.topic];
                let (hops, rest) = flows.split_at(traffic.senders().count());
                found[part.topic].push(Delays::from_hops(traffic, part, hops));
                flows = rest;
            }
        }
        found.into_iter().filter_map(|it| it.into_iter().reduce(Delays::combine)).collect()
    }
}
