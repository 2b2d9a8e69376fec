// SPDX-License-Identifier: Apache-2.0
//! The traffic that contends with a station for the channel, and the resulting delays.

use super::contention::{CLASSES, Contention, Stations, Timing};
use super::delays::{Delays, LogMeans, log_number, log_sum};
use super::queue::{self, Queued};
use super::traffic::Stream;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Number of packets from which a message is large. The model assumes that all packets of a small message
/// precede, and that packets of a large message precede as often as the backoff rules allow. Both
/// assumptions give bounds. With 5 instead of 8, worst cases are 4 % longer; with 9, collisions between the
/// contending packets cannot be neglected.
const LARGE_MESSAGE_PACKETS: u64 = 8;

/// Mean time that is assumed for a packet on a full channel, in seconds.
const MAX_SERVICE_TIME_S: f64 = 1.0;

/// The streams that contend with a station's packets of one class.
#[derive(Debug)]
pub(super) struct Rivals<'a> {
    timing: &'a Timing,
    class: usize,
    small: Vec<&'a Stream>,
    /// Large messages, by the queue at their station: each queue contends once.
    large: Vec<Vec<&'a Stream>>,
    /// Fraction of the time in which the channel is free for this station.
    free: f64,
    /// Mean number of contending queues of small messages.
    mean_small_queues: Stations,
}

/// Queues of large messages that contend at the same time.
#[derive(Debug, Clone, Copy, Default)]
struct ContendingQueues {
    stations: Stations,
    bytes: [u32; CLASSES],
}

/// The rivals' traffic within a time span.
struct RivalTraffic {
    /// For each small stream, the number of its messages and the airtime of one message.
    small: Vec<(f64, f64)>,
    /// Maximum airtime of 0, 1, 2, ... large queues, and the probability of that number.
    large: Vec<(f64, f64)>,
}

impl<'a> Rivals<'a> {
    /// Creates the rivals of packets of `class`. `streams` are the streams of other stations, and
    /// this station's streams in other queues.
    pub(super) fn new(timing: &'a Timing, class: usize, streams: Vec<&'a Stream>) -> Self {
        let airtime: f64 = streams.iter().map(|it| it.airtime(timing) / it.period).sum();
        let (large, small): (Vec<_>, Vec<_>) =
            streams.into_iter().partition(|it| it.packets.count() >= LARGE_MESSAGE_PACKETS);
        let mut queues: BTreeMap<(usize, usize), Vec<&Stream>> = BTreeMap::new();
        for it in large {
            let class = timing.queue(it.class());
            queues.entry((it.station, class)).or_default().push(it);
        }
        let free = (1.0 - airtime).max(0.0);
        let mut large: Vec<_> = queues.into_values().collect();
        // Queues of the highest class contend most.
        large.sort_by_key(|queue| Reverse(queue.first().map(|it| it.class())));
        let mut it =
            Self { timing, class, small, large, free, mean_small_queues: Stations::default() };
        for stream in &it.small {
            it.mean_small_queues[stream.class()] += it.presence_probability(stream, 0.0);
        }
        it
    }

    /// Returns how long a message of a stream keeps its station busy.
    pub(super) fn busy_time(&self, stream: &Stream) -> f64 {
        let airtime = stream.airtime(self.timing);
        if self.free > 0.0 { (airtime / self.free).min(stream.period) } else { stream.period }
    }

    /// Returns the mean time of a packet in the channel time that the rivals leave.
    pub(super) fn service_time(&self, airtime: f64) -> f64 {
        if self.free > 0.0 { airtime / self.free } else { MAX_SERVICE_TIME_S }
    }

    /// Returns the maximum number of a stream's messages within a time. For a negative time, it counts
    /// earlier messages that still wait.
    pub(super) fn messages(&self, stream: &Stream, within: f64) -> f64 {
        ((within + self.busy_time(stream)) / stream.period).max(0.0)
    }

    /// Returns the probability that a stream has packets within a time.
    pub(super) fn presence_probability(&self, stream: &Stream, within: f64) -> f64 {
        self.messages(stream, within).min(1.0)
    }

    /// Probabilities that a packet needs more than 1, 2, ... attempts.
    pub(super) fn more_attempts(&self) -> Vec<f64> {
        let mut more = vec![0.0; self.timing.retries as usize + 1];
        let mut present = ContendingQueues::default();
        let within = self.within(0.0);
        for (number, (_, chance)) in within.large.iter().enumerate() {
            if let Some(queue) = number.checked_sub(1).and_then(|last| self.large.get(last)) {
                present.add(queue);
            }
            let failures = self.contention(present.stations).failures(self.timing, self.class);
            let mut all = *chance;
            for (more, failure) in more.iter_mut().zip(failures) {
                all *= failure;
                *more += all;
            }
        }
        more
    }

    /// Returns the contention with these queues of large messages and the mean number of queues of
    /// small messages.
    fn contention(&self, large: Stations) -> Contention {
        let mut stations = self.mean_small_queues;
        stations.iter_mut().zip(large).for_each(|(it, more)| *it += more);
        stations[self.class] += 1.0;
        Contention::new(self.timing, stations)
    }

    /// Prepares the bounds for queues of packets of these sizes, if each packet needs no more than
    /// `attempts`.
    pub(super) fn bounds(&self, attempts: u32, sizes: &[u32]) -> Bounds<'_> {
        let mut large = vec![ContendingQueues::default()];
        for queue in &self.large {
            let mut more = large[large.len() - 1];
            more.add(queue);
            large.push(more);
        }
        let of_number = |present: &ContendingQueues| {
            let contention = self.contention(present.stations);
            let failures = contention.failures(self.timing, self.class);
            let failures = &failures[..attempts as usize];
            let delays = |rivals: Stations| {
                let (timing, class, rival_bytes) = (self.timing, self.class, present.bytes);
                let attempts = contention.attempt;
                let delays = Delays { timing, class, rivals, rival_bytes, attempts, failures };
                thetas().map(|theta| LogMeans::from_delays(&delays, theta, sizes)).collect()
            };
            let contending = if self.timing.contends() { delays(present.stations) } else { vec![] };
            ContendedDelays { alone: delays(Stations::default()), contending }
        };
        Bounds { rivals: self, numbers: large.iter().map(of_number).collect() }
    }

    /// Returns the longest time of a large rival's packet on the air. Packets of small rivals are already
    /// counted with their messages.
    fn large_packet_airtime(&self) -> f64 {
        let large = self.large.iter().flatten();
        let longest = large.map(|it| self.timing.airtime(self.class, it.packets.largest()));
        longest.fold(0.0, f64::max)
    }

    fn within(&self, until: f64) -> RivalTraffic {
        let small = self.small.iter();
        let small = small.map(|it| (self.messages(it, until), it.airtime(self.timing))).collect();
        let absent = |it: &&Stream| 1.0 - self.presence_probability(it, until);
        let chances: Vec<f64> = self
            .large
            .iter()
            .map(|queue| 1.0 - queue.iter().map(absent).product::<f64>())
            .collect();
        let mut demands: Vec<f64> = self.large.iter().map(|it| self.demand(it, until)).collect();
        demands.sort_by(|a, b| b.total_cmp(a));
        let mut sum = 0.0;
        let mut airtimes = vec![0.0];
        airtimes.extend(demands.into_iter().map(|it| {
            sum += it;
            sum
        }));
        RivalTraffic { small, large: airtimes.into_iter().zip(count_chances(&chances)).collect() }
    }

    /// Returns the maximum airtime that a present queue uses within a time.
    fn demand(&self, queue: &[&Stream], within: f64) -> f64 {
        let airtime =
            |it: &&Stream| self.messages(it, within).ceil().max(1.0) * it.airtime(self.timing);
        queue.iter().map(airtime).sum()
    }
}

impl ContendingQueues {
    fn add(&mut self, queue: &[&Stream]) {
        let Some(first) = queue.first() else { return };
        let class = first.class();
        self.stations[class] += 1.0;
        let largest = queue.iter().map(|it| it.packets.largest()).max();
        self.bytes[class] = self.bytes[class].max(largest.unwrap_or(0));
    }
}

/// Returns arguments of moment generating functions, 1/s. Each gives a bound; the best of them is
/// nearly the lowest possible.
fn thetas() -> impl Iterator<Item = f64> {
    (0..80).map(|step| 0.2 * 1.25_f64.powi(step))
}

/// The delays of packets while a number of large queues contend, at each of [`thetas`].
struct ContendedDelays {
    /// Delays of the packets alone; the rivals' packets are added separately.
    alone: Vec<LogMeans>,
    /// Delays if each rival sends as often as the rules allow; empty without contention.
    contending: Vec<LogMeans>,
}

/// Bounds on the time in which packets are delivered.
pub(super) struct Bounds<'a> {
    rivals: &'a Rivals<'a>,
    /// Entries for 0, 1, ... large queues.
    numbers: Vec<ContendedDelays>,
}

impl Bounds<'_> {
    /// Returns a time within which the station's queue is delivered, except with this probability. The
    /// rivals' messages are published within `until`; their phases are independent.
    pub(super) fn delivery_time(&self, queue: &[Queued], until: f64, probability: f64) -> f64 {
        let within = self.rivals.within(until);
        let bound = |(step, theta): (usize, f64)| {
            (self.log_mean(step, theta, queue, &within) - probability.ln()) / theta
        };
        thetas().enumerate().map(bound).fold(f64::INFINITY, f64::min)
    }

    /// Returns the mean time in which the queue is delivered, if the rivals' traffic stays the
    /// same.
    pub(super) fn mean(&self, queue: &[Queued]) -> f64 {
        // At the smallest argument, the logarithm is nearly linear, and its slope is the mean.
        let theta = thetas().next().unwrap_or(1.0);
        self.log_mean(0, theta, queue, &self.rivals.within(0.0)) / theta
    }

    fn log_mean(&self, step: usize, theta: f64, queue: &[Queued], within: &RivalTraffic) -> f64 {
        let small = within.small.iter().map(|(count, time)| log_number(*count, theta * time));
        let mut mixed = f64::NEG_INFINITY;
        let on_air = theta * self.rivals.large_packet_airtime();
        for (number, (airtime, chance)) in self.numbers.iter().zip(&within.large) {
            // Both are bounds: large rivals send all their packets, and no more than the rules allow.
            let limited = theta * airtime + number.alone[step].of_queue(queue);
            let contending = number.contending.get(step);
            let contending = contending.map_or(f64::INFINITY, |it| on_air + it.of_queue(queue));
            mixed = log_sum(mixed, chance.ln() + limited.min(contending));
        }
        small.sum::<f64>() + mixed
    }
}

/// Returns the probabilities that 0, 1, 2, ... of independent events occur.
fn count_chances(events: &[f64]) -> Vec<f64> {
    let mut chances = vec![1.0];
    for probability in events {
        queue::add_bernoulli(&mut chances, *probability, usize::MAX);
    }
    chances
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::{Channel, Packets};
    use tautline_medium::{Access, PipeConfig, RateControl, WifiConfig};
    use tautline_proto::Class;

    const FULL: Packets = Packets { full: 0, last_bytes: 1500 };

    fn wifi(access: Access) -> Timing {
        let rate = RateControl::Fixed(6_000_000);
        Timing::for_channel(&Channel::Wifi(WifiConfig { rate, access, ..WifiConfig::default() }))
    }

    /// Returns the time of `count` full packets while other stations send one large message each.
    fn within(timing: &Timing, class: Class, rivals: usize, count: u32, probability: f64) -> f64 {
        let packets = Packets { full: 100, last_bytes: 1500 };
        let stream =
            |station| Stream { station, to: 0, priority: 20, period: 1.0, due: 1.0, packets };
        let streams: Vec<Stream> = (1..=rivals).map(stream).collect();
        let rivals = Rivals::new(timing, class as usize, streams.iter().collect());
        let queue = [Queued { number: queue::Number::Mean(f64::from(count)), packets: FULL }];
        rivals.bounds(timing.retries + 1, &[0, 1500]).delivery_time(&queue, 0.5, probability)
    }

    #[test]
    fn a_single_station_takes_at_most_airtime_and_full_backoff() {
        let timing = wifi(Access::Dcf);
        let class = Class::BestEffort;
        let airtime = timing.airtime(class as usize, 1500);
        let [least, most] = [0.0, 15.0].map(|slots| airtime + slots * timing.slot);
        let one = within(&timing, class, 0, 1, 1e-9);
        assert!((least..=most * 1.01).contains(&one), "{one} of {least} to {most}");
        let hundred = within(&timing, class, 0, 100, 1e-6);
        assert!(hundred < 100.0 * most * 0.99, "not all backoffs are the longest");
        assert!(hundred > 100.0 * (airtime + 7.5 * timing.slot), "{hundred}");
    }

    #[test]
    fn voice_waits_less_for_others_than_best_effort() {
        let timing = wifi(Access::Edca);
        let bound = |class| within(&timing, class, 3, 1, 1e-3);
        assert!(bound(Class::Voice) * 2.0 < bound(Class::BestEffort));
    }

    #[test]
    fn a_line_delivers_in_order_without_contention() {
        let timing = Timing::for_channel(&Channel::Pipe(PipeConfig::default()));
        let three = within(&timing, Class::BestEffort, 0, 3, 1e-6);
        assert!((three / 0.006 - 1.0).abs() < 0.01, "{three}");
    }

    #[test]
    fn probabilities_of_event_counts_sum_to_one() {
        let all = count_chances(&[0.5, 0.1, 1.0]);
        assert_eq!(all[0], 0.0, "the last one is certain");
        assert!((all[1] - 0.45).abs() < 1e-12 && (all.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }
}
