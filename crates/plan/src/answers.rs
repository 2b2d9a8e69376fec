// SPDX-License-Identifier: Apache-2.0
//! Answers for a team: which topics fit, which rates are reduced, which rates and how many robots
//! would fit, and the effect of a radio that is down.

use super::assessment::airtime_fraction;
use super::spread::Part;
use super::team::{Delays, RadioLoad, Team, Traffic};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of additional robots that are tried.
pub(super) const MAX_ROBOTS: usize = 256;
/// Steps of the binary search for a rate.
const BISECTION_STEPS: u32 = 20;
/// A topic that fits at this multiple of its rate is not limited by the radio.
const MAX_FACTOR: f64 = 1000.0;
/// Multiple of a rate below which the rate counts as zero.
const MIN_FACTOR: f64 = 1e-6;

/// The plan of one topic from one robot to another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TopicPlan {
    /// The topic.
    #[serde(flatten)]
    pub traffic: Traffic,
    /// The radios that carry the topic; several divide it or carry copies.
    pub radios: Vec<RadioShare>,
    /// Delay of a message on an idle channel, in milliseconds. All delays and `attempts` apply after rates
    /// were reduced, and are `None` for a topic that is not sent.
    pub least_ms: Option<f64>,
    /// Mean delay, in milliseconds; `None` without a bound.
    pub typical_ms: Option<f64>,
    /// Worst case, in milliseconds ([`FlowForecast::worst`](super::FlowForecast::worst)); `None`
    /// without a bound.
    pub worst_ms: Option<f64>,
    /// Whether messages may expire before they arrive: the worst case exceeds their lifespan.
    pub may_expire: bool,
    /// Maximum number of attempts on the air that the worst case assumes for a packet.
    pub attempts: Option<u32>,
    /// Highest rate of the topic, equal for all senders, at which everything fits, in hertz; `None`
    /// if the radio does not limit it.
    pub fits_up_to_hz: Option<f64>,
}

/// The part of a topic that one radio carries.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RadioShare {
    /// Name of the radio.
    pub radio: String,
    /// Fraction of the topic's bytes.
    pub part: f64,
    /// Fraction of the channel's airtime, 0 to 1, over all hops.
    pub share: f64,
}

/// A topic that loses messages because a radio is full.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReducedTopic {
    /// Name of the topic.
    pub topic: String,
    /// The senders whose rates are reduced.
    pub from: BTreeSet<String>,
    /// The priority.
    pub priority: u8,
    /// Messages per second and sender that remain.
    pub rate_hz: f64,
    /// Requested messages per second and sender.
    pub asked_hz: f64,
}

/// How many more robots like an existing one fit, with topics to and from the same nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AdditionalRobots {
    /// Name of the robot.
    pub like: String,
    /// Number of further robots with its topics.
    pub robots: usize,
}

/// What changes while one of several radios is down.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OutageEffect {
    /// Name of the radio.
    pub radio: String,
    /// Load of the other radios.
    pub loads: Vec<RadioLoad>,
    /// Topics that no other radio may carry.
    pub waits: Vec<Waiting>,
    /// Topics that lose messages, in the order in which their rates are reduced.
    pub gives_way: Vec<ReducedTopic>,
    /// Worst cases of the remaining topics.
    pub topics: Vec<WorstCase>,
}

/// A topic that is not sent while a radio is down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// Name of the sender.
    pub from: String,
    /// Name of the receiver.
    pub to: String,
    /// Name of the topic.
    pub topic: String,
}

/// The worst case of a topic.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorstCase {
    /// Name of the sender.
    pub from: String,
    /// Name of the receiver.
    pub to: String,
    /// Name of the topic.
    pub topic: String,
    /// In milliseconds; `None` without a bound.
    pub worst_ms: Option<f64>,
}

/// The plan of a team.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TeamPlan {
    /// Load of the fullest radio.
    pub load: f64,
    /// Load of each radio.
    pub loads: Vec<RadioLoad>,
    /// Whether everything fits.
    pub fits: bool,
    /// The topics, the highest priority first.
    pub topics: Vec<TopicPlan>,
    /// Topics that lose messages, in the order in which their rates are reduced; empty if
    /// everything fits.
    pub gives_way: Vec<ReducedTopic>,
    /// How many more robots fit; empty if not everything fits.
    pub more: Vec<AdditionalRobots>,
    /// What changes while each radio is down, one entry per radio; empty with only one radio.
    pub without: Vec<OutageEffect>,
}

/// The topic whose rate is reduced first, on a full radio.
struct ReductionCandidate {
    radio: usize,
    traffic: Traffic,
}

impl Team {
    /// Makes the plan.
    pub fn plan(&self) -> TeamPlan {
        let loads = self.loads();
        let load = loads.iter().map(|it| it.load).fold(0.0, f64::max);
        let fits = load < 1.0;
        let (gives_way, delays) = self.reduced_plan();
        let highest = self.highest_factors();
        let parts = self.spread(&self.traffic);
        let topic = |(traffic, parts): (&Traffic, Vec<Part>)| {
            let radios = parts.into_iter().map(|it| self.radio_share(it)).collect();
            let factor = highest.get(&*traffic.topic).copied().flatten();
            let delays = delays
                .iter()
                .find(|it| it.traffic.matches(&traffic.from, &traffic.to, &traffic.topic));
            TopicPlan::new(traffic, radios, delays, factor)
        };
        let mut topics: Vec<TopicPlan> = self.traffic.iter().zip(parts).map(topic).collect();
        topics.sort_by_key(|it| Reverse(it.traffic.priority));
        let more = if fits { self.additional_robots() } else { vec![] };
        let without = match self.radios.len() {
            1 => vec![],
            count => (0..count).map(|radio| self.plan_without(radio)).collect(),
        };
        TeamPlan { load, loads, fits, topics, gives_way, more, without }
    }

    fn plan_without(&self, radio: usize) -> OutageEffect {
        let (team, waits) = self.without(radio);
        let (gives_way, delays) = team.reduced_plan();
        let worst = |it: Delays| {
            let Traffic { from, to, topic, .. } = it.traffic;
            WorstCase { from, to, topic, worst_ms: it.worst_ms }
        };
        let waiting = |it: Traffic| Waiting { from: it.from, to: it.to, topic: it.topic };
        let mut loads = team.loads();
        loads.remove(radio);
        OutageEffect {
            radio: self.radios[radio].name.clone(),
            loads,
            waits: waits.into_iter().map(waiting).collect(),
            gives_way,
            topics: delays.into_iter().map(worst).collect(),
        }
    }

    /// Returns the reduced topics, and the delays of the remaining traffic.
    fn reduced_plan(&self) -> (Vec<ReducedTopic>, Vec<Delays>) {
        let (gives_way, left) = self.reduce_rates();
        let left = Team { radios: self.radios.clone(), traffic: left };
        (gives_way, left.delays())
    }

    fn radio_share(&self, part: Part) -> RadioShare {
        let traffic = &self.traffic[part.topic];
        let fleet = self.fleet_of(&self.traffic, &[part]);
        RadioShare {
            radio: self.radios[part.radio].name.clone(),
            part: part.fraction(traffic),
            share: fleet.as_ref().map_or(0.0, airtime_fraction),
        }
    }

    pub(super) fn fits(&self, traffic: &[Traffic]) -> bool {
        self.loads_of(traffic).iter().all(|it| *it < 1.0)
    }

    /// Returns the traffic with the rates of some topics multiplied; at 0, without these topics.
    fn scaled(&self, which: impl Fn(&Traffic) -> bool, factor: f64) -> Vec<Traffic> {
        let scaled = self.traffic.iter().cloned().map(|mut it| {
            if which(&it) {
                it.rate_hz *= factor;
            }
            it
        });
        scaled.filter(|it| it.rate_hz > 0.0).collect()
    }

    /// Returns, by topic, the highest factor of its rates at which everything fits; `None` if no
    /// radio limits it.
    fn highest_factors(&self) -> BTreeMap<&str, Option<f64>> {
        let names: BTreeSet<&str> = self.traffic.iter().map(|it| &*it.topic).collect();
        let highest = |name| {
            let factor = self.highest_factor(|it| it.topic == name, |all| self.fits(all));
            (name, factor)
        };
        names.into_iter().map(highest).collect()
    }

    /// Returns the highest factor of some topics' rates that fits.
    fn highest_factor(
        &self,
        which: impl Fn(&Traffic) -> bool,
        fits: impl Fn(&[Traffic]) -> bool,
    ) -> Option<f64> {
        // A lower factor does not always fit if a higher one does: topics change radios.
        let (mut low, mut high) = match fits(&self.traffic) {
            true if fits(&self.scaled(&which, MAX_FACTOR)) => return None,
            true => (1.0, MAX_FACTOR),
            false => (0.0, 1.0),
        };
        for _ in 0..BISECTION_STEPS {
            // The search is logarithmic.
            let middle = if low == 0.0 { high / 16.0 } else { (low * high).sqrt() };
            if fits(&self.scaled(&which, middle)) {
                low = middle
            } else {
                high = middle
            }
            if high < MIN_FACTOR {
                return Some(0.0);
            }
        }
        Some(low)
    }

    /// Reduces topics of the lowest priorities until the others fit; returns them and the remaining
    /// traffic.
    fn reduce_rates(&self) -> (Vec<ReducedTopic>, Vec<Traffic>) {
        let mut rest = self.clone();
        let mut given: Vec<ReducedTopic> = Vec::new();
        let most = self.traffic.len() * self.radios.len();
        for round in 0.. {
            let Some(first) = rest.next_to_reduce() else { break };
            let it = &first.traffic;
            let gives = |other: &Traffic| {
                other.topic == it.topic
                    && other.links.radios.contains(&first.radio)
                    && rest.are_rivals(first.radio, it, other)
            };
            // A topic that changes radios may fill another radio, so the number of attempts is
            // limited.
            let factor = match round < most {
                true => rest.highest_factor(gives, |all| rest.has_room(&first, all)).unwrap_or(0.0),
                false => 0.0,
            };
            let from = rest.traffic.iter().filter(|it| gives(it)).map(|it| it.from.clone());
            let from: BTreeSet<String> = from.collect();
            match given.iter_mut().find(|known| known.topic == it.topic && known.from == from) {
                Some(known) => known.rate_hz *= factor,
                None => given.push(ReducedTopic {
                    topic: it.topic.clone(),
                    from,
                    priority: it.priority,
                    rate_hz: it.rate_hz * factor,
                    asked_hz: it.rate_hz,
                }),
            }
            rest.traffic = rest.scaled(gives, factor);
        }
        (given, rest.traffic)
    }

    /// Returns the topic of the lowest priority on the first full radio.
    fn next_to_reduce(&self) -> Option<ReductionCandidate> {
        let by_radio = self.by_radio(&self.traffic);
        by_radio.iter().enumerate().find_map(|(radio, parts)| {
            if self.load_of(&self.traffic, parts) < 1.0 {
                return None;
            }
            let traffic = |it: &Part| &self.traffic[it.topic];
            let is_shared = self.radios[radio].channel.is_shared();
            let is_full = |it: &&Part| {
                is_shared || self.rival_load(radio, &self.traffic, parts, traffic(it)) >= 1.0
            };
            let full = parts.iter().filter(is_full).map(traffic);
            let first = full.min_by_key(|it| it.priority)?.clone();
            Some(ReductionCandidate { radio, traffic: first })
        })
    }

    /// Whether the radio can carry all traffic that competes with a topic.
    fn has_room(&self, first: &ReductionCandidate, traffic: &[Traffic]) -> bool {
        let parts = self.by_radio(traffic).swap_remove(first.radio);
        self.rival_load(first.radio, traffic, &parts, &first.traffic) < 1.0
    }

    /// Returns the load of the parts on a radio that compete with a topic.
    fn rival_load(&self, radio: usize, traffic: &[Traffic], parts: &[Part], of: &Traffic) -> f64 {
        let beside = parts.iter().filter(|it| self.are_rivals(radio, of, &traffic[it.topic]));
        self.load_of(traffic, &beside.copied().collect::<Vec<_>>())
    }

    /// Returns how many more robots like each node fit. The only node with the most topics is a base
    /// station and is left out.
    fn additional_robots(&self) -> Vec<AdditionalRobots> {
        let ends = |it: &Traffic| [it.from.clone(), it.to.clone()];
        let names: BTreeSet<String> = self.traffic.iter().flat_map(ends).collect();
        let topics =
            |name: &String| self.traffic.iter().filter(|it| ends(it).contains(name)).count();
        let most = names.iter().map(topics).max();
        let is_most = |name: &&String| Some(topics(name)) == most;
        let only = names.iter().filter(is_most).count() == 1;
        let robots = names.iter().filter(|name| !(only && is_most(name)));
        robots
            .map(|like| AdditionalRobots {
                like: like.clone(),
                robots: self.max_additional_robots(like),
            })
            .collect()
    }

    /// Returns how many more robots like this one fit.
    pub(super) fn max_additional_robots(&self, name: &str) -> usize {
        let fits = |count: usize| {
            let copies = (1..=count).flat_map(|number| self.copy_of(name, number));
            self.fits(&self.traffic.iter().cloned().chain(copies).collect::<Vec<_>>())
        };
        let (mut low, mut high) = (0, 1);
        while high <= MAX_ROBOTS && fits(high) {
            (low, high) = (high, high * 2);
        }
        high = high.min(MAX_ROBOTS + 1);
        while high - low > 1 {
            let middle = (low + high) / 2;
            if fits(middle) { low = middle } else { high = middle }
        }
        low
    }

    /// Returns the topics of the copy `number` of this robot.
    pub(super) fn copy_of(&self, name: &str, number: usize) -> impl Iterator<Item = Traffic> {
        let copy = move |it: &str| {
            if it == name { format!("{name} {number}") } else { it.to_owned() }
        };
        let own = self.traffic.iter().filter(move |it| it.from == name || it.to == name);
        own.map(move |it| Traffic { from: copy(&it.from), to: copy(&it.to), ..it.clone() })
    }
}

impl TopicPlan {
    fn new(
        traffic: &Traffic,
        radios: Vec<RadioShare>,
        delays: Option<&Delays>,
        factor: Option<f64>,
    ) -> Self {
        let lifespan_ms = traffic.lifespan.map(|it| it.as_secs_f64() * 1e3);
        let exceeds = |it: &Delays| {
            lifespan_ms.is_some_and(|most| it.worst_ms.is_none_or(|worst| worst > most))
        };
        Self {
            traffic: traffic.clone(),
            radios,
            least_ms: delays.map(|it| it.least_ms),
            typical_ms: delays.and_then(|it| it.typical_ms),
            worst_ms: delays.and_then(|it| it.worst_ms),
            may_expire: delays.is_some_and(exceeds),
            attempts: delays.map(|it| it.attempts),
            fits_up_to_hz: factor.map(|it| it * traffic.rate_hz),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Links, Radio};
    use tautline::config::channel;

    fn traffic(
        from: &str,
        to: &str,
        topic: &str,
        rate_hz: f64,
        bytes: u64,
        priority: u8,
    ) -> Traffic {
        let [from, to, topic] = [from, to, topic].map(str::to_owned);
        let (via, lifespan, links) = (vec![], None, Links::single_radio());
        Traffic { from, to, via, topic, rate_hz, bytes, priority, lifespan, links }
    }

    fn team(image_hz: f64) -> Team {
        let channel = channel::parse("wifi:6Mbps").unwrap();
        Team {
            radios: vec![Radio { name: "wlan0".into(), channel }],
            traffic: vec![
                traffic("base", "robot", "/cmd_vel", 20.0, 48, 220),
                traffic("robot", "base", "/scan", 20.0, 1000, 200),
                traffic("robot", "base", "/image", image_hz, 64_000, 20),
            ],
        }
    }

    #[test]
    fn the_rate_of_a_fast_camera_is_reduced_until_it_fits() {
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
    fn a_relay_uses_the_channel_twice() {
        let direct = team(1.0).plan();
        let mut relayed = team(1.0);
        relayed.traffic.iter_mut().for_each(|it| it.via = vec!["middle".into()]);
        let relayed = relayed.plan();
        for (direct, relayed) in direct.topics.iter().zip(&relayed.topics) {
            assert!((relayed.radios[0].share / direct.radios[0].share - 2.0).abs() < 1e-9);
            let least = |it: &TopicPlan| it.least_ms.unwrap();
            assert!((least(relayed) / least(direct) - 2.0).abs() < 1e-3);
            assert!(relayed.worst_ms > direct.worst_ms);
        }
    }

    /// A topic that moves to another radio at a higher rate must not hide the topic that overfills
    /// a radio.
    #[test]
    fn a_topic_that_cannot_change_radios_is_reduced() {
        let radio = |name: &str, text: &str| Radio {
            name: name.into(),
            channel: channel::parse(text).unwrap(),
        };
        let on = |radios: &[usize]| Links {
            radios: radios.to_vec(),
            fallback_radios: vec![],
            policy: tautline_proto::LinkPolicy::Best,
        };
        let one = |topic: &str, rate_hz: f64, priority: u8, radios: &[usize]| Traffic {
            links: on(radios),
            ..traffic("robot", "base", topic, rate_hz, 1000, priority)
        };
        let team = Team {
            radios: vec![radio("wlan0", "line:1Mbps,shared"), radio("wwan0", "line:1Mbps,shared")],
            traffic: vec![
                one("/high", 95.0, 200, &[0]),
                one("/moves", 20.0, 20, &[0, 1]),
                one("/stays", 150.0, 20, &[1]),
            ],
        };
        let plan = team.plan();
        assert!(!plan.fits);
        let stays = plan.gives_way.iter().find(|it| it.topic == "/stays");
        let moves = plan.gives_way.iter().find(|it| it.topic == "/moves");
        assert!(stays.or(moves).is_some_and(|it| it.rate_hz < it.asked_hz), "{:?}", plan.gives_way);
    }
}
