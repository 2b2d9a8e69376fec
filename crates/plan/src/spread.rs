// SPDX-License-Identifier: Apache-2.0
//! The division of topics among several radios.
//!
//! The policies match the protocol's (`proto/src/path/policy.rs`) while all links are up. Topics of
//! a higher priority choose first.

use super::assessment::idle_delay;
use super::team::{Team, Traffic};
use std::cmp::Reverse;
use std::time::Duration;
use tautline_proto::{LinkPolicy, SWITCH_MARGIN};

/// Minimum bytes of a part of a striped message: a full packet.
const MIN_PART_BYTES: f64 = 1428.0;
/// Steps of the binary search for the arrival of a striped message.
const BISECTION_STEPS: u32 = 40;
/// Bytes of a message so short that its delay is nearly that of the path alone.
const SHORT_MESSAGE_BYTES: u64 = 1;

/// The radios whose links may carry a topic, by their numbers in [`Team::radios`].
#[derive(Debug, Clone, PartialEq)]
pub struct Links {
    /// The radios that carry the topic.
    pub radios: Vec<usize>,
    /// The radios of metered links and `avoid_links`, which carry the topic only while no other
    /// radio can.
    pub fallback_radios: Vec<usize>,
    /// The policy for dividing the topic.
    pub policy: LinkPolicy,
}

impl Links {
    /// The only radio of a team.
    pub fn single_radio() -> Self {
        Self { radios: vec![0], fallback_radios: vec![], policy: LinkPolicy::Best }
    }

    /// Adds the radio of a link; `is_avoided`: only while no other radio can carry the topic.
    pub(super) fn add(&mut self, radio: usize, is_avoided: bool) {
        let list = if is_avoided { &mut self.fallback_radios } else { &mut self.radios };
        if !list.contains(&radio) {
            list.push(radio);
        }
    }

    /// Returns the preferred radios, or else the avoided ones; `None` without links.
    pub(super) fn preferred(mut self) -> Option<Self> {
        if self.radios.is_empty() {
            self.radios = std::mem::take(&mut self.fallback_radios);
        }
        self.fallback_radios.retain(|it| !self.radios.contains(it));
        (!self.radios.is_empty()).then_some(self)
    }

    /// Returns the links while a radio is down; `None` if no other radio carries the topic.
    fn without(&self, radio: usize) -> Option<Self> {
        let rest = |all: &[usize]| -> Vec<usize> {
            all.iter().copied().filter(|it| *it != radio).collect()
        };
        let (radios, fallback_radios) = (rest(&self.radios), rest(&self.fallback_radios));
        Self { radios, fallback_radios, policy: self.policy }.preferred()
    }
}

/// The part of a topic that one radio carries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Part {
    /// Number of the topic.
    pub(super) topic: usize,
    pub(super) radio: usize,
    /// Messages per second on this radio.
    pub(super) rate_hz: f64,
    /// Bytes of each of these messages.
    pub(super) bytes: u64,
}

impl Part {
    /// Returns the whole topic as a part on one radio.
    fn whole(topic: usize, radio: usize, traffic: &Traffic) -> Self {
        Self { topic, radio, rate_hz: traffic.rate_hz, bytes: traffic.bytes }
    }

    /// Fraction of the topic's bytes.
    pub(super) fn fraction(&self, traffic: &Traffic) -> f64 {
        self.rate_hz * self.bytes as f64 / (traffic.rate_hz * traffic.bytes as f64).max(1e-9)
    }
}

impl Team {
    /// Returns the parts of each topic, in the order of the topics.
    pub(super) fn spread(&self, traffic: &[Traffic]) -> Vec<Vec<Part>> {
        let mut spread = Spread { team: self, traffic, placed: vec![vec![]; self.radios.len()] };
        let mut parts = vec![vec![]; traffic.len()];
        let mut order: Vec<usize> = (0..traffic.len()).collect();
        order.sort_by_key(|it| Reverse(traffic[*it].priority));
        for index in order {
            parts[index] = spread.parts(index);
            parts[index].iter().for_each(|it: &Part| spread.placed[it.radio].push(*it));
        }
        parts
    }

    /// Returns the team while a radio is down, and the topics that no other radio carries.
    pub(super) fn without(&self, radio: usize) -> (Team, Vec<Traffic>) {
        let (mut traffic, mut waits) = (Vec::new(), Vec::new());
        for it in &self.traffic {
            match it.links.without(radio) {
                Some(links) => traffic.push(Traffic { links, ..it.clone() }),
                None => waits.push(it.clone()),
            }
        }
        (Team { radios: self.radios.clone(), traffic }, waits)
    }
}

/// The parts placed on the radios so far.
struct Spread<'a> {
    team: &'a Team,
    traffic: &'a [Traffic],
    /// Parts by radio.
    placed: Vec<Vec<Part>>,
}

impl Spread<'_> {
    fn parts(&self, topic: usize) -> Vec<Part> {
        let traffic = &self.traffic[topic];
        let whole = |radio| Part::whole(topic, radio, traffic);
        if let [only] = traffic.links.radios[..] {
            return vec![whole(only)];
        }
        let radios = self.fastest_first(topic);
        match traffic.links.policy {
            LinkPolicy::Duplicate(copies) => {
                radios.into_iter().take(copies.into()).map(whole).collect()
            }
            LinkPolicy::Best => {
                let fits = |it: &usize| self.headroom(topic, *it).fits >= 1.0;
                let first = radios.iter().copied().find(fits).or(radios.first().copied());
                first.map(whole).into_iter().collect()
            }
            LinkPolicy::Weighted => {
                // The goodput of a radio is measured without other topics.
                let goodput = |it: &usize| 1.0 / self.load_alone(topic, *it);
                let all: Vec<f64> = radios.iter().map(goodput).collect();
                let part = |(radio, share): (usize, f64)| Part {
                    rate_hz: traffic.rate_hz * share,
                    ..whole(radio)
                };
                radios.into_iter().zip(normalized(&all)).map(part).collect()
            }
            LinkPolicy::Stripe => {
                let part = |(radio, share): (usize, f64)| Part {
                    bytes: (traffic.bytes as f64 * share).ceil() as u64,
                    ..whole(radio)
                };
                self.stripe(topic, radios).into_iter().map(part).collect()
            }
        }
    }

    /// Returns a topic's radios, fastest first. Radios with nearly the same delay keep the file's
    /// order, as in the protocol.
    fn fastest_first(&self, topic: usize) -> Vec<usize> {
        let mut radios: Vec<(Duration, usize)> = Vec::new();
        for radio in self.traffic[topic].links.radios.iter().copied() {
            let delay = self.idle_delay(topic, radio, self.traffic[topic].bytes);
            let slower = radios.iter().position(|(it, _)| delay + SWITCH_MARGIN < *it);
            radios.insert(slower.unwrap_or(radios.len()), (delay, radio));
        }
        radios.into_iter().map(|(_, radio)| radio).collect()
    }

    /// Returns these radios, each with its fraction of a message, so that all parts arrive at the same time
    /// if they fit. Radios whose fraction would be too small are left out.
    fn stripe(&self, topic: usize, mut radios: Vec<usize>) -> Vec<(usize, f64)> {
        let bytes = self.traffic[topic].bytes as f64;
        loop {
            let headrooms: Vec<Headroom> =
                radios.iter().map(|it| self.headroom(topic, *it)).collect();
            let shares = stripe_fractions(&headrooms);
            let too_small = (0..radios.len()).filter(|it| shares[*it] * bytes < MIN_PART_BYTES);
            let least = too_small.min_by(|a, b| shares[*a].total_cmp(&shares[*b]));
            match least {
                Some(index) if radios.len() > 1 => drop(radios.remove(index)),
                _ => return radios.into_iter().zip(shares).collect(),
            }
        }
    }

    /// Returns the delay of a message of this size on an idle radio.
    fn idle_delay(&self, topic: usize, radio: usize, bytes: u64) -> Duration {
        let part = Part { bytes, ..Part::whole(topic, radio, &self.traffic[topic]) };
        let fleet = self.team.fleet_of(self.traffic, &[part]);
        fleet.as_ref().map_or(Duration::ZERO, idle_delay)
    }

    fn load_alone(&self, topic: usize, radio: usize) -> f64 {
        let part = Part::whole(topic, radio, &self.traffic[topic]);
        self.team.load_of(self.traffic, &[part]).max(1e-9)
    }

    fn headroom(&self, topic: usize, radio: usize) -> Headroom {
        let traffic = &self.traffic[topic];
        let beside = |it: &&Part| self.team.are_rivals(radio, traffic, &self.traffic[it.topic]);
        let mut all: Vec<Part> = self.placed[radio].iter().filter(beside).copied().collect();
        let before = self.team.load_of(self.traffic, &all);
        all.push(Part::whole(topic, radio, traffic));
        let own = (self.team.load_of(self.traffic, &all) - before).max(1e-9);
        let free = (1.0 - before).max(0.0);
        Headroom {
            fits: free / own,
            delay: self.idle_delay(topic, radio, SHORT_MESSAGE_BYTES).as_secs_f64(),
            // Preceding traffic leaves only the fraction `free` of the time.
            seconds: own / traffic.rate_hz / free.max(1e-6),
        }
    }
}

/// The capacity that a radio has left for a topic.
struct Headroom {
    /// Multiple of the topic's rate that fits.
    fits: f64,
    /// Delay of a short message, in seconds.
    delay: f64,
    /// Seconds that a whole message takes in addition to `delay`.
    seconds: f64,
}

/// Normalizes the values to a sum of one; equal fractions if all are zero.
fn normalized(values: &[f64]) -> Vec<f64> {
    let sum: f64 = values.iter().sum();
    let equal = 1.0 / values.len() as f64;
    values.iter().map(|it| if sum > 0.0 { it / sum } else { equal }).collect()
}

fn stripe_fractions(headrooms: &[Headroom]) -> Vec<f64> {
    let fits: Vec<f64> = headrooms.iter().map(|it| it.fits.min(1.0)).collect();
    if fits.iter().sum::<f64>() <= 1.0 {
        return normalized(&fits);
    }
    let until = |time: f64| -> Vec<f64> {
        let share =
            |(it, fits): (&Headroom, &f64)| ((time - it.delay) / it.seconds).clamp(0.0, *fits);
        headrooms.iter().zip(&fits).map(share).collect()
    };
    let (mut early, mut late) =
        (0.0, headrooms.iter().map(|it| it.delay + it.seconds).fold(0.0, f64::max));
    for _ in 0..BISECTION_STEPS {
        let middle = (early + late) / 2.0;
        if until(middle).iter().sum::<f64>() < 1.0 { early = middle } else { late = middle }
    }
    normalized(&until(late))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Radio;
    use tautline::config::channel;

    fn team(policy: LinkPolicy, bytes: u64, rate_hz: f64) -> Team {
        let channels = [("wifi", "wifi:6Mbps"), ("lte", "line:2Mbps,delay=40ms")];
        let radio = |(name, text): (&str, &str)| Radio {
            name: name.into(),
            channel: channel::parse(text).unwrap(),
        };
        let [from, to, topic] = ["robot", "base", "/topic"].map(str::to_owned);
        let links = Links { radios: vec![0, 1], fallback_radios: vec![], policy };
        let traffic = Traffic {
            from,
            to,
            via: vec![],
            topic,
            rate_hz,
            bytes,
            priority: 100,
            lifespan: None,
            links,
        };
        Team { radios: channels.map(radio).into(), traffic: vec![traffic] }
    }

    /// Fraction of the topic that each radio carries.
    fn parts(policy: LinkPolicy, bytes: u64, rate_hz: f64) -> Vec<(usize, f64)> {
        let team = team(policy, bytes, rate_hz);
        let parts = team.spread(&team.traffic).remove(0);
        parts.iter().map(|it| (it.radio, it.fraction(&team.traffic[0]))).collect()
    }

    #[test]
    fn the_best_link_carries_a_topic_while_it_has_capacity() {
        assert_eq!(parts(LinkPolicy::Best, 1000, 10.0), [(0, 1.0)]);
        assert_eq!(parts(LinkPolicy::Duplicate(2), 1000, 10.0), [(0, 1.0), (1, 1.0)]);
        let mut team = team(LinkPolicy::Best, 10_000, 10.0);
        let high = Traffic {
            priority: 200,
            bytes: 60_000,
            topic: "/high".into(),
            ..team.traffic[0].clone()
        };
        team.traffic.push(high);
        let parts = team.spread(&team.traffic);
        assert_eq!((parts[1][0].radio, parts[0][0].radio), (0, 1), "the lower one moves");
    }

    #[test]
    fn the_parts_of_a_message_arrive_together() {
        assert_eq!(
            parts(LinkPolicy::Stripe, 10_000, 1.0),
            [(0, 1.0)],
            "it is there before LTE's delay"
        );
        let large = parts(LinkPolicy::Stripe, 500_000, 0.5);
        let [(0, wifi), (1, lte)] = large[..] else { panic!("{large:?}") };
        assert!((wifi + lte - 1.0).abs() < 1e-3 && (0.2..0.4).contains(&lte), "{large:?}");
        let full = parts(LinkPolicy::Stripe, 10_000, 70.0);
        assert!(full.len() == 2 && full[1].1 > 0.15, "what Wi-Fi does not carry: {full:?}");
    }

    #[test]
    fn a_metered_link_carries_what_no_other_can() {
        let mut team = team(LinkPolicy::Best, 1000, 10.0);
        team.traffic[0].links =
            Links { radios: vec![0], fallback_radios: vec![1], policy: LinkPolicy::Best };
        let mut bound = team.traffic[0].clone();
        bound.links = Links { radios: vec![0], fallback_radios: vec![], policy: LinkPolicy::Best };
        bound.topic = "/bound".into();
        team.traffic.push(bound);
        assert_eq!(team.spread(&team.traffic)[0][0].radio, 0);
        let (without, waits) = team.without(0);
        assert_eq!(without.spread(&without.traffic)[0][0].radio, 1);
        let waits: Vec<&str> = waits.iter().map(|it| &*it.topic).collect();
        assert_eq!(waits, ["/bound"]);
    }

    #[test]
    fn a_weighted_topic_uses_a_full_radio_by_its_goodput() {
        let mut team = team(LinkPolicy::Weighted, 1000, 10.0);
        let links = Links { radios: vec![0], fallback_radios: vec![], policy: LinkPolicy::Best };
        let high = Traffic { priority: 200, rate_hz: 1000.0, links, ..team.traffic[0].clone() };
        team.traffic.push(high);
        let parts = team.spread(&team.traffic).remove(0);
        let share = |number: usize| parts[number].fraction(&team.traffic[0]);
        assert!(parts.len() == 2 && share(0) > share(1) && share(1) > 0.1, "{parts:?}");
        assert!(!team.plan().fits);
    }

    #[test]
    fn lines_of_different_robots_do_not_share_capacity() {
        let mut team = team(LinkPolicy::Stripe, 20_000, 5.0);
        team.radios[0].channel = channel::parse("line:2Mbps").unwrap();
        let other = Traffic { from: "other".into(), rate_hz: 10.0, ..team.traffic[0].clone() };
        team.traffic.insert(0, other);
        let [both, alone] = [&team.traffic[..], &team.traffic[1..]]
            .map(|it| team.spread(it).pop().unwrap().iter().map(|it| it.bytes).collect::<Vec<_>>());
        assert_eq!(both, alone);
    }
}
