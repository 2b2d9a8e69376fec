// SPDX-License-Identifier: Apache-2.0
//! Robots by name and the topics between them, and the questions that a team asks of them.

use super::{Assessment, Channel, Fleet, Flow, FlowForecast, load_of};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

/// More robots than these are not tried.
pub(super) const MAX_ROBOTS: usize = 256;
/// Halvings of an interval in which a rate is searched.
const HALVINGS: u32 = 20;
/// A topic that fits at this multiple of its rate is not limited by the radio.
const MAX_FACTOR: f64 = 1000.0;

/// A topic from one robot to another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Traffic {
    /// Name of the sender.
    pub from: String,
    /// Name of the receiver.
    pub to: String,
    /// Relays that forward it, in their order.
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
}

/// Robots that share a radio.
#[derive(Debug, Clone, PartialEq)]
pub struct Team {
    /// The radio.
    pub channel: Channel,
    /// All topics on it.
    pub traffic: Vec<Traffic>,
}

/// The plan of one topic from one robot to another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TopicPlan {
    /// The topic.
    #[serde(flatten)]
    pub traffic: Traffic,
    /// Fraction of the channel's airtime, 0 to 1, over all hops.
    pub share: f64,
    /// Delay of a message on an idle channel, in milliseconds. This and the following hold once topics
    /// have given way, and are `None` for a topic that is not sent.
    pub least_ms: Option<f64>,
    /// Mean delay, in milliseconds; `None` without a bound.
    pub typical_ms: Option<f64>,
    /// Worst case, in milliseconds ([`FlowForecast::worst`]); `None` without a bound.
    pub worst_ms: Option<f64>,
    /// Attempts of a packet on the air that the worst case assumes at most.
    pub attempts: Option<u32>,
    /// Highest rate of the topic, of all its senders alike, at which everything fits, in hertz; `None`
    /// if the radio does not limit it.
    pub fits_up_to_hz: Option<f64>,
}

/// A topic that loses messages because the channel is full.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GivesWay {
    /// Name of the topic.
    pub topic: String,
    /// Its priority.
    pub priority: u8,
    /// Messages per second and sender that remain.
    pub rate_hz: f64,
    /// The same that were asked for.
    pub asked_hz: f64,
}

/// How many robots like one fit in addition, with topics to and from the same others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct More {
    /// Name of the robot.
    pub like: String,
    /// Number of further robots with its topics.
    pub robots: usize,
}

/// What the planner says about a team.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TeamPlan {
    /// Load as a fraction of what the channel carries ([`Assessment::load`]).
    pub load: f64,
    /// Whether everything fits.
    pub fits: bool,
    /// The topics, the highest priority first.
    pub topics: Vec<TopicPlan>,
    /// Topics that lose messages, the first to give way first; empty if everything fits.
    pub gives_way: Vec<GivesWay>,
    /// How many more robots fit; empty if not everything fits.
    pub more: Vec<More>,
}

/// The delays of a topic.
pub(super) struct Delays {
    pub(super) traffic: Traffic,
    least_ms: f64,
    pub(super) typical_ms: Option<f64>,
    pub(super) worst_ms: Option<f64>,
    attempts: u32,
}

impl Delays {
    fn of(&self, traffic: &Traffic) -> bool {
        let name = |it: &Traffic| (it.from.clone(), it.to.clone(), it.topic.clone());
        name(&self.traffic) == name(traffic)
    }
}

impl Team {
    /// Answers all questions.
    pub fn plan(&self) -> TeamPlan {
        let load = self.load();
        let fits = load < 1.0;
        let (gives_way, left) = self.gives_way();
        let delays = Team { channel: self.channel.clone(), traffic: left }.delays();
        let topic = |traffic: &Traffic| {
            let is_same = |it: &&Delays| it.of(traffic);
            let found = delays.iter().find(is_same);
            TopicPlan {
                traffic: traffic.clone(),
                share: self.share(traffic),
                least_ms: found.map(|it| it.least_ms),
                typical_ms: found.and_then(|it| it.typical_ms),
                worst_ms: found.and_then(|it| it.worst_ms),
                attempts: found.map(|it| it.attempts),
                fits_up_to_hz: self.highest_factor(&traffic.topic).map(|it| it * traffic.rate_hz),
            }
        };
        let mut topics: Vec<TopicPlan> = self.traffic.iter().map(topic).collect();
        topics.sort_by_key(|it| Reverse(it.traffic.priority));
        let more = if fits { self.more() } else { vec![] };
        TeamPlan { load, fits, topics, gives_way, more }
    }

    /// Load as a fraction of what the channel carries ([`Assessment::load`]).
    pub fn load(&self) -> f64 {
        self.load_of(&self.traffic)
    }

    fn load_of(&self, traffic: &[Traffic]) -> f64 {
        if traffic.is_empty() { 0.0 } else { load_of(&self.fleet(traffic).0) }
    }

    /// Airtime of a topic alone, over all its hops.
    fn share(&self, traffic: &Traffic) -> f64 {
        let fleet = self.fleet(std::slice::from_ref(traffic)).0;
        Assessment::new(&fleet).flows.iter().map(|it| it.share).sum()
    }

    /// In the order of the topics.
    pub(super) fn delays(&self) -> Vec<Delays> {
        let (fleet, hops) = self.fleet(&self.traffic);
        let assessment = Assessment::new(&fleet);
        let delays = |(traffic, hops): (&Traffic, Range<usize>)| {
            let hops = &assessment.flows[hops];
            let sum = |of: fn(&FlowForecast) -> Option<Duration>| {
                let all: Option<Duration> = hops.iter().map(of).sum();
                all.map(|it| it.as_secs_f64() * 1e3)
            };
            Delays {
                traffic: traffic.clone(),
                least_ms: sum(|it| Some(it.least)).unwrap_or_default(),
                typical_ms: sum(|it| it.typical),
                worst_ms: sum(|it| it.worst),
                attempts: hops.iter().map(|it| it.attempts).max().unwrap_or(1),
            }
        };
        self.traffic.iter().zip(hops).map(delays).collect()
    }

    /// The flows of every hop, and which of them belong to each topic.
    fn fleet(&self, traffic: &[Traffic]) -> (Fleet, Vec<Range<usize>>) {
        let mut names: Vec<&str> = Vec::new();
        let mut number = |name| {
            names.iter().position(|it| *it == name).unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            })
        };
        let mut flows = Vec::new();
        let mut hops = Vec::new();
        for it in traffic {
            let begin = flows.len();
            let middle = it.via.iter().map(String::as_str);
            let path: Vec<usize> =
                [&*it.from].into_iter().chain(middle).chain([&*it.to]).map(&mut number).collect();
            flows.extend(path.windows(2).map(|hop| Flow {
                from: hop[0],
                to: hop[1],
                bytes: it.bytes,
                period: Duration::from_secs_f64(1.0 / it.rate_hz),
                priority: it.priority,
                lifespan: it.lifespan,
            }));
            hops.push(begin..flows.len());
        }
        (Fleet { channel: self.channel.clone(), flows }, hops)
    }

    fn fits(&self, traffic: &[Traffic]) -> bool {
        self.load_of(traffic) < 1.0
    }

    /// The same traffic with the rate of a topic multiplied; without the topic at 0.
    fn scaled(&self, topic: &str, factor: f64) -> Vec<Traffic> {
        let scaled = self.traffic.iter().cloned().map(|mut it| {
            if it.topic == topic {
                it.rate_hz *= factor;
            }
            it
        });
        scaled.filter(|it| it.rate_hz > 0.0).collect()
    }

    /// The highest factor of a topic's rates at which everything fits.
    fn highest_factor(&self, topic: &str) -> Option<f64> {
        if self.fits(&self.scaled(topic, MAX_FACTOR)) {
            return None;
        }
        let (mut low, mut high) = (0.0, MAX_FACTOR);
        for _ in 0..HALVINGS {
            // Small factors count as much as large ones.
            let middle = if low == 0.0 { high / 16.0 } else { (low * high).sqrt() };
            if self.fits(&self.scaled(topic, middle)) {
                low = middle
            } else {
                high = middle
            }
            if high < 1e-6 {
                return Some(0.0);
            }
        }
        Some(low)
    }

    /// The topics of the lowest priorities that give way until the others fit, and what is left.
    fn gives_way(&self) -> (Vec<GivesWay>, Vec<Traffic>) {
        let mut rest = self.clone();
        let mut given = Vec::new();
        while !rest.fits(&rest.traffic) {
            let lowest = rest.traffic.iter().min_by_key(|it| it.priority).cloned();
            let Some(Traffic { topic, priority, rate_hz: asked_hz, .. }) = lowest else { break };
            let factor = rest.highest_factor(&topic).unwrap_or(1.0);
            rest.traffic = rest.scaled(&topic, factor);
            given.push(GivesWay { topic, priority, rate_hz: asked_hz * factor, asked_hz });
        }
        (given, rest.traffic)
    }

    /// For each robot, but not for a base station: the only one with the most topics.
    fn more(&self) -> Vec<More> {
        let ends = |it: &Traffic| [it.from.clone(), it.to.clone()];
        let names: BTreeSet<String> = self.traffic.iter().flat_map(ends).collect();
        let topics =
            |name: &String| self.traffic.iter().filter(|it| ends(it).contains(name)).count();
        let most = names.iter().map(topics).max();
        let is_most = |name: &&String| Some(topics(name)) == most;
        let only = names.iter().filter(is_most).count() == 1;
        let robots = names.iter().filter(|name| !(only && is_most(name)));
        robots.map(|like| More { like: like.clone(), robots: self.more_like(like) }).collect()
    }

    pub(super) fn more_like(&self, name: &str) -> usize {
        let mut all = self.traffic.clone();
        for number in 1..=MAX_ROBOTS {
            all.extend(self.copy_of(name, number));
            if !self.fits(&all) {
                return number - 1;
            }
        }
        MAX_ROBOTS
    }

    /// The topics of one more robot like this one, the copy of this number.
    pub(super) fn copy_of(&self, name: &str, number: usize) -> impl Iterator<Item = Traffic> {
        let copy = move |it: &str| {
            if it == name { format!("{name} {number}") } else { it.to_owned() }
        };
        let own = self.traffic.iter().filter(move |it| it.from == name || it.to == name);
        own.map(move |it| Traffic { from: copy(&it.from), to: copy(&it.to), ..it.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tautline_medium::{RateControl, WifiConfig};

    fn traffic(
        from: &str,
        to: &str,
        topic: &str,
        rate_hz: f64,
        bytes: u64,
        priority: u8,
    ) -> Traffic {
        let [from, to, topic] = [from, to, topic].map(str::to_owned);
        Traffic { from, to, via: vec![], topic, rate_hz, bytes, priority, lifespan: None }
    }

    fn team(image_hz: f64) -> Team {
        let rate = RateControl::Fixed(6_000_000);
        Team {
            channel: Channel::Wifi(WifiConfig { rate, ..WifiConfig::default() }),
            traffic: vec![
                traffic("base", "robot", "/cmd_vel", 20.0, 48, 220),
                traffic("robot", "base", "/scan", 20.0, 1000, 200),
                traffic("robot", "base", "/image", image_hz, 64_000, 20),
            ],
        }
    }

    #[test]
    fn a_camera_that_is_too_fast_gives_way_down_to_the_rate_that_fits() {
        let plan = team(20.0).plan();
        assert!(!plan.fits && plan.load > 1.5, "{}", plan.load);
        let [image] = &plan.gives_way[..] else { panic!("{:?}", plan.gives_way) };
        assert_eq!((&*image.topic, image.priority, image.asked_hz), ("/image", 20, 20.0));
        assert!(team(image.rate_hz * 0.99).plan().fits);
        assert!(!team(image.rate_hz * 1.01).plan().fits);
        let [command, scan, _] = &plan.topics[..] else { panic!("{:?}", plan.topics) };
        assert!(
            command.worst_ms < Some(200.0) && scan.worst_ms < Some(200.0),
            "they do not give way"
        );
    }

    #[test]
    fn more_robots_fit_until_the_load_is_one() {
        let plan = team(1.0).plan();
        let more = plan.more.iter().find(|it| it.like == "robot").unwrap();
        let copies = |count: usize| {
            let mut all = team(1.0);
            for number in 0..count {
                let robot = format!("r{number}");
                all.traffic.push(traffic("base", &robot, "/cmd_vel", 20.0, 48, 220));
                all.traffic.push(traffic(&robot, "base", "/scan", 20.0, 1000, 200));
                all.traffic.push(traffic(&robot, "base", "/image", 1.0, 64_000, 20));
            }
            all.plan().fits
        };
        assert!(more.robots > 0 && copies(more.robots) && !copies(more.robots + 1));
    }

    #[test]
    fn a_relay_takes_the_air_once_more() {
        let direct = team(1.0).plan();
        let mut relayed = team(1.0);
        relayed.traffic.iter_mut().for_each(|it| it.via = vec!["middle".into()]);
        let relayed = relayed.plan();
        for (direct, relayed) in direct.topics.iter().zip(&relayed.topics) {
            assert!((relayed.share / direct.share - 2.0).abs() < 1e-9);
            let least = |it: &TopicPlan| it.least_ms.unwrap();
            assert!((least(relayed) / least(direct) - 2.0).abs() < 1e-3);
            assert!(relayed.worst_ms > direct.worst_ms);
        }
    }
}
