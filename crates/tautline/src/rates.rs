// SPDX-License-Identifier: Apache-2.0
//! The changes between two snapshots, as `top` and /diagnostics report them.

use crate::status::{
    BudgetReport, DelayReport, Direction, GivenUpReport, LinkReport, LinkUseReport, RadioReport,
    Status, TeamReport, TopicReport,
};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Minimum time between two snapshots from which rates are computed, in seconds.
const MIN_INTERVAL_S: f64 = 0.05;

/// The changes between two snapshots.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rates {
    /// The node's name.
    pub node: String,
    /// Seconds since the node started.
    pub uptime_s: f64,
    /// Seconds between the snapshots; `None` without an earlier snapshot of the same run.
    pub interval_s: Option<f64>,
    /// Rates of the topics, in the order of the snapshot.
    pub topics: Vec<TopicRates>,
    /// Rates of the teams of a relay, in the order of the snapshot.
    pub teams: Vec<TeamRates>,
    /// Rates of the radios, in the order of the snapshot.
    pub radios: Vec<RadioRates>,
    /// Rates of the links, in the order of the snapshot.
    pub links: Vec<LinkRates>,
}

/// The rates of one topic, direction and peer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TopicRates {
    /// Local name.
    pub topic: String,
    /// Direction.
    pub direction: Direction,
    /// The other node.
    pub peer: String,
    /// Priority, 0-255.
    pub priority: u8,
    /// Whether there is a subscriber at the receiving end.
    pub wanted: bool,
    /// Messages per second.
    pub rate_hz: Option<f64>,
    /// Payload bits per second.
    pub bps: Option<f64>,
    /// Median delay in the interval, as the bound of its histogram bucket.
    pub p50_ms: Option<f64>,
    /// 99th percentile of the delay in the interval, as the bound of its histogram bucket.
    pub p99_ms: Option<f64>,
    /// Messages since the start. Out: delivered to the peer. In: passed to the gateway.
    pub delivered: u64,
    /// Messages queued now.
    pub queued: u64,
    /// Messages dropped since the start, by reason; includes drops by the rate limit and by the gateway.
    pub dropped: BTreeMap<String, u64>,
    /// Messages dropped in the interval, for all reasons.
    pub dropped_now: u64,
    /// Recently dropped messages, from the later snapshot.
    pub given_up: Option<GivenUpReport>,
    /// Bytes that each link carried in the interval, if several lead to the peer.
    pub links: Option<LinkUseReport>,
}

/// The rates of one team of a relay.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TeamRates {
    /// The name.
    pub team: String,
    /// Number of its members.
    pub members: u64,
    /// Members that are up.
    pub up: u64,
    /// The `max_rate` in bits per second.
    pub max_bps: Option<u64>,
    /// Bits per second of the IP packets that carried forwarded packets.
    pub sent_bps: Option<f64>,
    /// Forwarded packets per second.
    pub forwarded_pps: Option<f64>,
    /// Bytes queued.
    pub queued_bytes: u64,
    /// Packets that were not forwarded since the start, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Packets that were not forwarded in the interval.
    pub dropped_now: u64,
}

/// The rates of one radio.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RadioRates {
    /// Interface.
    pub radio: String,
    /// The signal that paces the radio.
    pub paced_by: String,
    /// Configured rate in bits per second.
    pub configured_bps: Option<u64>,
    /// Measured rate in bits per second.
    pub measured_bps: Option<u64>,
    /// Bytes in the kernel.
    pub in_flight_bytes: u64,
    /// Maximum bytes that may be in the kernel.
    pub in_flight_limit_bytes: u64,
    /// IP bits per second.
    pub sent_bps: Option<f64>,
    /// Packets per second.
    pub sent_pps: Option<f64>,
}

/// The rates of one link.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LinkRates {
    /// The other node.
    pub peer: String,
    /// Name of the link in the file; empty for a link without an address there.
    pub name: String,
    /// Interface.
    pub radio: String,
    /// Remote address.
    pub remote: String,
    /// What lies between the two ends, as in [`LinkReport`].
    pub path: String,
    /// State in a word, as in [`LinkReport`].
    pub state: String,
    /// Whether packets arrive.
    pub up: bool,
    /// Whether packets are stuck in the driver, so that other links carry the messages.
    pub stalled: bool,
    /// Whether the peer acknowledges nothing, so that other links carry the messages.
    pub silent: bool,
    /// Available rate in bits per second of IP packets.
    pub available_bps: Option<u64>,
    /// The signal that held packets back last.
    pub paced_by: String,
    /// Smoothed round trip in milliseconds.
    pub rtt_ms: Option<f64>,
    /// Lost packets as a fraction of those whose fate became known in the interval.
    pub loss: Option<f64>,
    /// IP bits per second sent.
    pub sent_bps: Option<f64>,
    /// IP bits per second received.
    pub received_bps: Option<f64>,
    /// Repairs as a fraction of the bytes sent in the interval.
    pub repairs: Option<f64>,
    /// The budget of the link, if it has one.
    pub budget: Option<BudgetReport>,
}

/// Returns the changes between `previous` and `current`. If `previous` is of an earlier run of the
/// node, it is ignored.
pub fn between(previous: Option<&Status>, current: &Status) -> Rates {
    let seconds = |previous: &&Status| current.uptime_s - previous.uptime_s;
    let previous = previous.filter(|p| p.node == current.node && seconds(p) >= MIN_INTERVAL_S);
    let interval = Interval { seconds: previous.as_ref().map(seconds) };
    let [rejected_before, rejected] = [previous, Some(current)].map(RejectedMessages::from_status);
    let topics = pair_reports(previous.map(|p| &p.topics[..]), &current.topics, |t| {
        (t.direction, &*t.topic, &*t.peer)
    });
    let teams = pair_reports(previous.map(|p| &p.teams[..]), &current.teams, |team| &*team.name);
    let radios = pair_reports(previous.map(|p| &p.radios[..]), &current.radios, |r| &*r.radio);
    let earlier = previous.zip(interval.seconds);
    let earlier = earlier.map(|(p, age_s)| EarlierLinks { age_s, links: &p.links });
    Rates {
        node: current.node.clone(),
        uptime_s: current.uptime_s,
        interval_s: interval.seconds,
        topics: topics
            .map(|(before, now)| {
                let dropped_before = before.map(|it| rejected_before.dropped_by_reason(it));
                interval.topic(before, now, dropped_before, rejected.dropped_by_reason(now))
            })
            .collect(),
        teams: teams.map(|(before, now)| interval.team(before, now)).collect(),
        radios: radios.map(|(before, now)| interval.radio(before, now)).collect(),
        links: link_rates(earlier, &current.links),
    }
}

/// Earlier reports of links.
pub(crate) struct EarlierLinks<'a> {
    pub(crate) age_s: f64,
    pub(crate) links: &'a [LinkReport],
}

/// Returns the changes of links since `earlier`.
pub(crate) fn link_rates(earlier: Option<EarlierLinks>, current: &[LinkReport]) -> Vec<LinkRates> {
    let earlier = earlier.filter(|earlier| earlier.age_s >= MIN_INTERVAL_S);
    let interval = Interval { seconds: earlier.as_ref().map(|earlier| earlier.age_s) };
    let links = pair_reports(earlier.map(|earlier| earlier.links), current, |link| {
        (&*link.peer, &*link.radio, &*link.remote)
    });
    links.map(|(before, now)| interval.link(before, now)).collect()
}

/// Pairs each current report with the previous report that has the same key.
fn pair_reports<'s, T, K: Hash + Eq>(
    previous: Option<&'s [T]>,
    current: &'s [T],
    key: impl Fn(&'s T) -> K,
) -> impl Iterator<Item = (Option<&'s T>, &'s T)> {
    let previous = previous.unwrap_or_default().iter();
    let previous: HashMap<K, &T> = previous.map(|report| (key(report), report)).collect();
    current.iter().map(move |report| (previous.get(&key(report)).copied(), report))
}

/// Messages that gateways rejected, by direction and topic.
struct RejectedMessages<'s>(HashMap<(Direction, &'s str), Vec<(&'s str, u64)>>);

impl<'s> RejectedMessages<'s> {
    fn from_status(status: Option<&'s Status>) -> Self {
        let mut of = HashMap::<_, Vec<_>>::new();
        for it in status.iter().flat_map(|s| &s.gateways).flat_map(|g| &g.rejected) {
            of.entry((it.direction, &*it.topic)).or_default().push((&*it.reason, it.count));
        }
        Self(of)
    }

    /// Returns the number of messages of a topic that were dropped, by reason, including those that
    /// gateways rejected.
    fn dropped_by_reason(&self, topic: &TopicReport) -> BTreeMap<String, u64> {
        let mut dropped = topic.drops_by_reason();
        let rejected = self.0.get(&(topic.direction, &*topic.topic));
        let rejected = rejected.into_iter().flatten();
        dropped.extend(rejected.map(|(reason, count)| ((*reason).to_owned(), *count)));
        dropped
    }
}

struct Interval {
    seconds: Option<f64>,
}

impl Interval {
    /// Returns the growth per second of a counter from the value `before`. A counter without an
    /// earlier value started at zero.
    fn per_second(&self, before: Option<u64>, now: u64) -> Option<f64> {
        Some(increase(before, now) as f64 / self.seconds?)
    }

    fn bps(&self, bytes_before: Option<u64>, bytes: u64) -> Option<f64> {
        Some(self.per_second(bytes_before, bytes)? * 8.0)
    }

    fn topic(
        &self,
        before: Option<&TopicReport>,
        now: &TopicReport,
        dropped_before: Option<BTreeMap<String, u64>>,
        dropped: BTreeMap<String, u64>,
    ) -> TopicRates {
        let counts = delays_between(before.and_then(|b| b.delay.as_ref()), now.delay.as_ref());
        let delivered = |t: &TopicReport| {
            if t.direction == Direction::Out { t.delivered } else { t.messages }
        };
        let total = |dropped: &BTreeMap<String, u64>| dropped.values().sum::<u64>();
        let grown_by = increase(dropped_before.as_ref().map(total), total(&dropped));
        TopicRates {
            topic: now.topic.clone(),
            direction: now.direction,
            peer: now.peer.clone(),
            priority: now.priority,
            wanted: now.wanted,
            rate_hz: self.per_second(before.map(|b| b.messages), now.messages),
            bps: self.bps(before.map(|b| b.bytes), now.bytes),
            p50_ms: percentile(&counts, 0.50),
            p99_ms: percentile(&counts, 0.99),
            delivered: delivered(now),
            queued: now.queued,
            dropped,
            dropped_now: if self.seconds.is_some() { grown_by } else { 0 },
            given_up: now.given_up.clone(),
            links: now
                .links
                .as_ref()
                .map(|links| links.since(before.and_then(|before| before.links.as_ref()))),
        }
    }

    fn team(&self, before: Option<&TeamReport>, now: &TeamReport) -> TeamRates {
        let total = |team: &TeamReport| team.dropped.values().sum::<u64>();
        let packets_before = before.map(|b| b.forwarded_packets);
        TeamRates {
            team: now.name.clone(),
            members: now.members,
            up: now.up,
            max_bps: now.max_bps,
            sent_bps: self.bps(before.map(|b| b.sent_bytes), now.sent_bytes),
            forwarded_pps: self.per_second(packets_before, now.forwarded_packets),
            queued_bytes: now.queued_bytes,
            dropped: now.dropped.clone(),
            dropped_now: self.seconds.map_or(0, |_| increase(before.map(total), total(now))),
        }
    }

    fn radio(&self, before: Option<&RadioReport>, now: &RadioReport) -> RadioRates {
        RadioRates {
            radio: now.radio.clone(),
            paced_by: now.paced_by.clone(),
            configured_bps: now.configured_bps,
            measured_bps: now.measured_bps,
            in_flight_bytes: now.in_flight_bytes,
            in_flight_limit_bytes: now.in_flight_limit_bytes,
            sent_bps: self.bps(before.map(|b| b.sent_bytes), now.sent_bytes),
            sent_pps: self.per_second(before.map(|b| b.sent_packets), now.sent_packets),
        }
    }

    fn link(&self, before: Option<&LinkReport>, now: &LinkReport) -> LinkRates {
        let increase = |count: fn(&LinkReport) -> u64| increase(before.map(count), count(now));
        let bps = |count: fn(&LinkReport) -> u64| self.bps(before.map(count), count(now));
        let lost = increase(|l| l.lost_packets).saturating_sub(increase(|l| l.late_packets));
        LinkRates {
            peer: now.peer.clone(),
            name: now.name.clone(),
            radio: now.radio.clone(),
            remote: now.remote.clone(),
            path: now.path.clone(),
            state: now.state.clone(),
            up: now.up,
            stalled: now.stalled,
            silent: now.silent,
            available_bps: now.available_bps,
            paced_by: now.paced_by.clone(),
            rtt_ms: now.rtt_ms,
            loss: fraction(lost, lost + increase(|l| l.acked_packets)),
            sent_bps: bps(|l| l.sent_bytes),
            received_bps: bps(|l| l.received_bytes),
            repairs: fraction(increase(|l| l.repair_bytes), increase(|l| l.sent_bytes)),
            budget: now.budget.clone(),
        }
    }
}

fn increase(before: Option<u64>, now: u64) -> u64 {
    now.saturating_sub(before.unwrap_or(0))
}

fn fraction(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Returns the delays counted between two histograms: the upper bound and the count of each bucket.
/// Either histogram may omit empty buckets.
pub fn delays_between(before: Option<&DelayReport>, now: Option<&DelayReport>) -> Vec<(f64, u64)> {
    let before = before.map_or(&[][..], |report| &report.buckets);
    let before: HashMap<u64, u64> =
        before.iter().map(|(bound, count)| (bound.to_bits(), *count)).collect();
    let now = now.map_or(&[][..], |report| &report.buckets);
    let increase = |(bound, count): &(f64, u64)| {
        (*bound, increase(before.get(&bound.to_bits()).copied(), *count))
    };
    now.iter().map(increase).collect()
}

/// Returns the delay that the given fraction of the counted delays does not exceed, as the upper
/// bound of its bucket.
pub fn percentile(buckets: &[(f64, u64)], fraction: f64) -> Option<f64> {
    let total: u64 = buckets.iter().map(|(_, count)| count).sum();
    let wanted = (fraction * total as f64).ceil() as u64;
    let mut below = 0;
    let reached = |(_, count): &&(f64, u64)| {
        below += count;
        below > 0 && below >= wanted
    };
    buckets.iter().find(reached).map(|(bound, _)| *bound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::RejectedReport;

    fn status(uptime_s: f64) -> Status {
        let status: Status = serde_json::from_str(include_str!("status/fixture.json")).unwrap();
        Status { uptime_s, ..status }
    }

    #[test]
    fn rates_are_differences_over_the_time_between() {
        let (before, mut now) = (status(10.0), status(12.0));
        now.topics[0].messages = before.topics[0].messages + 100;
        now.topics[0].bytes = before.topics[0].bytes + 100_000;
        now.links[0].acked_packets = before.links[0].acked_packets + 90;
        now.links[0].lost_packets = before.links[0].lost_packets + 10;
        let rates = between(Some(&before), &now);
        assert_eq!(rates.interval_s, Some(2.0));
        assert_eq!(rates.topics[0].rate_hz, Some(50.0));
        assert_eq!(rates.topics[0].bps, Some(400_000.0));
        assert_eq!(rates.links[0].loss, Some(0.1));
    }

    #[test]
    fn rejections_of_the_gateway_are_drops_of_their_topic_and_direction() {
        let rejected = |count| RejectedReport {
            topic: "/scan".into(),
            direction: Direction::Out,
            reason: "too_large".into(),
            count,
        };
        let (mut before, mut now) = (status(10.0), status(12.0));
        before.gateways[0].rejected = vec![rejected(3)];
        now.gateways[0].rejected = vec![rejected(5)];
        for topic in between(Some(&before), &now).topics {
            let is_it = topic.topic == "/scan" && topic.direction == Direction::Out;
            let expected = if is_it { (Some(&5), 2) } else { (None, 0) };
            assert_eq!((topic.dropped.get("too_large"), topic.dropped_now), expected, "{topic:?}");
        }
    }

    #[test]
    fn a_first_snapshot_or_a_restart_gives_no_rates() {
        assert_eq!(between(None, &status(10.0)).topics[0].rate_hz, None);
        let rates = between(Some(&status(100.0)), &status(3.0));
        assert_eq!((rates.interval_s, rates.links[0].sent_bps), (None, None));
    }

    #[test]
    fn the_links_of_a_topic_are_measured_in_the_interval() {
        let (before, mut now) = (status(10.0), status(12.0));
        let links = now.topics[1].links.as_mut().unwrap();
        *links.bytes.get_mut("lte").unwrap() += 500;
        links.bytes.insert("new".into(), 1500);
        let links = between(Some(&before), &now).topics[1].links.clone().unwrap();
        assert_eq!(links.in_words(), "stripe: lte 25 % (metered), new 75 %, wlan0 0 %");
        let since_start = between(None, &now).topics[1].links.clone();
        assert_eq!(since_start, now.topics[1].links);
    }

    #[test]
    fn delays_are_measured_in_the_interval() {
        let report = |buckets: &[(f64, u64)]| DelayReport {
            mean_ms: 0.0,
            p50_ms: 0.0,
            p99_ms: 0.0,
            max_ms: 0.0,
            buckets: buckets.to_vec(),
        };
        let before = report(&[(1.0, 1000)]);
        let counts =
            delays_between(Some(&before), Some(&report(&[(1.0, 1000), (2.0, 50), (4.0, 50)])));
        assert_eq!(percentile(&counts, 0.50), Some(2.0));
        assert_eq!(percentile(&counts, 0.51), Some(4.0));
        let none = delays_between(Some(&before), Some(&before));
        assert_eq!(percentile(&none, 0.5), None);
        assert_eq!(percentile(&delays_between(None, Some(&before)), 0.99), Some(1.0));
    }
}
