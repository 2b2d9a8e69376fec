// SPDX-License-Identifier: Apache-2.0
//! Worst-case response times: the recurrence of response-time analysis, over packets.

use super::FlowForecast;
use super::contention::{CLASSES, Contention, Delays, Queued, Stations, Timing};
use super::traffic::{Channel, FULL_PACKET, Packets, REPORTS, Stream};
use std::time::Duration;

/// Probability with which a message may be later than its worst case.
const EXCEEDED: f64 = 1e-5;
/// Packets are assumed to need no more attempts than the packets of all but this fraction of messages.
const MORE_ATTEMPTS: f64 = 1e-3;
/// A longer delay counts as unbounded, in seconds.
const UNBOUNDED: f64 = 60.0;
/// Messages of one flow within a busy period that are examined.
const MAX_MESSAGES: u32 = 1000;
/// Time for which the kernel may hold packets behind the one on the air: the back-pressure's lead.
const LEAD: f64 = 1e-3;
/// Packets from which on a message counts as a large one.
const LARGE: u64 = 5;

/// Determines the delays of a flow.
pub(super) fn forecast(
    channel: &Channel,
    timing: &Timing,
    streams: &[Stream],
    flow: usize,
) -> FlowForecast {
    let airtime = streams[flow].airtime(timing);
    let share = airtime / streams[flow].period;
    let least = Duration::from_secs_f64(airtime + timing.delay);
    let mut station = Station::of(channel, timing, streams, flow);
    let worst = station.worst().map(|it| Duration::from_secs_f64(it + timing.delay));
    FlowForecast { share, least, worst, attempts: station.attempts }
}

/// Rivals that have packets at the same time.
#[derive(Debug, Clone, Copy, Default)]
struct Present {
    stations: Stations,
    bytes: [u32; CLASSES],
    /// Airtime of all that they send in the time that is examined.
    airtime: f64,
}

impl Present {
    fn add(&mut self, rival: &Stream, airtime: f64) {
        let class = rival.class();
        self.stations[class] += 1.0;
        self.bytes[class] = self.bytes[class].max(rival.packets.largest());
        self.airtime += airtime;
    }
}

/// The sender of a flow, and what its messages wait for.
struct Station<'a> {
    timing: &'a Timing,
    stream: &'a Stream,
    class: usize,
    /// The packet of lower priority on the air, and those that the kernel holds.
    blocking: Option<Queued>,
    /// Its own packets of lower classes, which contend with these ones.
    own_rivals: Stations,
    /// Its streams of the same or a higher priority.
    preceding: Vec<&'a Stream>,
    /// What other stations send on the channel.
    rivals: Vec<&'a Stream>,
    /// Fraction of the time in which the channel is free for this station.
    free: f64,
    /// Attempts of a packet, at most.
    attempts: u32,
    /// The last time found: the next is not shorter.
    until: f64,
}

impl<'a> Station<'a> {
    fn of(channel: &Channel, timing: &'a Timing, streams: &'a [Stream], flow: usize) -> Self {
        let stream = &streams[flow];
        let class = stream.class();
        let own = streams.iter().enumerate().filter(|(_, it)| it.station == stream.station);
        let (preceding, following): (Vec<_>, Vec<_>) = own
            .filter(|(index, _)| *index != flow)
            .map(|(_, it)| it)
            .partition(|it| it.priority >= stream.priority);
        let separate = |it: &&&Stream| timing.separates(class, it.class());
        let mut own_rivals = Stations::default();
        for it in following.iter().filter(separate) {
            own_rivals[it.class()] = 1.0;
        }
        let held = following.iter().filter(|it| !separate(it)).map(|it| it.packets.largest()).max();
        let blocking = held.map(|bytes| Queued {
            messages: 1.0 + (LEAD / timing.airtime(class, bytes)).ceil(),
            packets: Packets { full: 0, last_bytes: bytes },
        });
        let shares = match channel {
            Channel::Wifi(_) => true,
            Channel::Pipe(pipe) => pipe.half_duplex,
        };
        let others = streams.iter().filter(|it| shares && it.station != stream.station);
        let rivals: Vec<&Stream> = others.collect();
        let airtime: f64 = rivals.iter().map(|it| it.airtime(timing) / it.period).sum();
        let free = (1.0 - airtime).max(0.0);
        let mut it = Self {
            timing,
            stream,
            class,
            blocking,
            own_rivals,
            preceding,
            rivals,
            free,
            attempts: 1,
            until: 0.0,
        };
        it.attempts = it.usual_attempts();
        it
    }

    /// The number of attempts that the packets of all but few messages need at most.
    fn usual_attempts(&self) -> u32 {
        let mut present = self.own_rivals;
        for rival in &self.rivals {
            present[rival.class()] += self.presence(rival, 0.0);
        }
        let failure = self.timing.failure(self.contention(present).collision(self.class));
        let bearable = MORE_ATTEMPTS / self.stream.packets.count() as f64;
        let needed = if failure > 0.0 { bearable.ln() / failure.ln() } else { 1.0 };
        (needed.ceil() as u32).clamp(1, self.timing.retries + 1)
    }

    /// Contention with these rivals.
    fn contention(&self, rivals: Stations) -> Contention {
        let mut stations = rivals;
        stations[self.class] += 1.0;
        Contention::of(self.timing, stations)
    }

    /// See [`FlowForecast::worst`].
    fn worst(&mut self) -> Option<f64> {
        let mut longest: f64 = 0.0;
        // A message may also wait for earlier messages of its flow: all of a busy period count.
        for message in 0..MAX_MESSAGES {
            let end = self.busy_until(message)?;
            let begin = f64::from(message) * self.stream.period;
            longest = longest.max(end - begin);
            if end <= begin + self.stream.period {
                return Some(longest);
            }
        }
        None
    }

    /// When the message with this number, from 0, has arrived, if this flow's messages are published
    /// from time 0 on; `None` if that takes too long.
    fn busy_until(&mut self, message: u32) -> Option<f64> {
        loop {
            let found = self.served(self.until, message);
            if found > UNBOUNDED {
                return None;
            }
            if found <= self.until * (1.0 + 1e-3) {
                return Some(self.until.max(found));
            }
            self.until = found;
        }
    }

    /// The time in which everything is sent that precedes the message, if that is published within
    /// `until`.
    fn served(&self, until: f64, message: u32) -> f64 {
        let own = Queued { messages: f64::from(message) + 1.0, packets: self.stream.packets };
        let mut queue: Vec<Queued> = self.blocking.into_iter().chain([own]).collect();
        queue.extend(self.preceding.iter().map(|stream| {
            // Packets with messages also carry the reports that are due after them.
            let within = if stream.priority == REPORTS { 0.0 } else { until };
            let messages = (within + self.busy(stream)) / stream.period;
            Queued { messages, packets: stream.packets }
        }));
        self.contended(until, &queue)
    }

    /// Time for which a message of a stream keeps its station busy.
    fn busy(&self, stream: &Stream) -> f64 {
        let airtime = stream.airtime(self.timing);
        if self.free > 0.0 { (airtime / self.free).min(stream.period) } else { stream.period }
    }

    /// The time in which the station's queue is delivered. The phases of the streams are independent:
    /// the more of them have packets at the same time, the less likely.
    fn contended(&self, until: f64, queue: &[Queued]) -> f64 {
        let groups = [true, false].map(|large| self.group(until, large));
        let [large, small] = groups.each_ref().map(|(_, chances)| chances);
        let combinations = (large.len() * small.len()) as f64;
        let mut longest: f64 = 0.0;
        for (many, one) in large.iter().enumerate() {
            for (few, other) in small.iter().enumerate() {
                let probability = EXCEEDED / (one * other) / combinations;
                if probability < 1.0 {
                    let present = [groups[0].0[many], groups[1].0[few]];
                    longest = longest.max(self.among(queue, probability, present));
                }
            }
        }
        longest
    }

    /// The large or the small rivals of which 0, 1, 2, ... are present, and the probabilities.
    fn group(&self, until: f64, large: bool) -> (Vec<Present>, Vec<f64>) {
        let of_group = |it: &&&Stream| (it.packets.count() >= LARGE) == large;
        let rivals = self.rivals.iter().filter(of_group);
        let mut rivals: Vec<(&Stream, f64)> =
            rivals.map(|it| (*it, self.demand(it, until))).collect();
        rivals.sort_by(|a, b| b.1.total_cmp(&a.1));
        let chances: Vec<f64> = rivals.iter().map(|(it, _)| self.presence(it, until)).collect();
        let mut present = vec![Present::default()];
        for (rival, airtime) in rivals {
            let mut more = *present.last().unwrap_or(&Present::default());
            more.add(rival, airtime);
            present.push(more);
        }
        (present, numbers(&chances))
    }

    /// The time in which the queue is delivered among these large and small rivals, which send all that
    /// they have, or as often as the rules allow.
    fn among(&self, queue: &[Queued], probability: f64, [large, small]: [Present; 2]) -> f64 {
        let mut all = self.own_rivals;
        for (class, stations) in all.iter_mut().enumerate() {
            *stations += large.stations[class] + small.stations[class];
        }
        let contention = self.contention(all);
        let own_bytes = |class: usize| if self.own_rivals[class] > 0.0 { FULL_PACKET } else { 0 };
        let rival_bytes =
            [0, 1, 2, 3].map(|it| own_bytes(it).max(large.bytes[it]).max(small.bytes[it]));
        let (timing, class, attempts) = (self.timing, self.class, self.attempts);
        let delays = |rivals: Stations| {
            Delays { timing, class, rivals, rival_bytes, attempts, contention }
                .bound(queue, probability)
        };
        let limited = large.airtime + small.airtime + delays(self.own_rivals);
        // One of them, or the own lower class, may be on the air.
        let on_air = rival_bytes.iter().max().filter(|it| **it > 0);
        let on_air = on_air.map_or(0.0, |it| timing.airtime(class, *it));
        if !timing.contends() {
            return limited;
        }
        let mut most = self.own_rivals;
        most.iter_mut().zip(large.stations).for_each(|(it, more)| *it += more);
        let least = limited.min(small.airtime + delays(most)).min(delays(all));
        on_air + least
    }

    /// Probability that a rival has packets within a time.
    fn presence(&self, rival: &Stream, within: f64) -> f64 {
        ((within + self.busy(rival)) / rival.period).min(1.0)
    }

    /// Airtime of what a present rival sends within a time.
    fn demand(&self, rival: &Stream, within: f64) -> f64 {
        let messages = ((within + self.busy(rival)) / rival.period).ceil();
        messages.max(1.0) * rival.airtime(self.timing)
    }
}

/// Probabilities that 0, 1, 2, ... of independent events with these probabilities occur.
fn numbers(events: &[f64]) -> Vec<f64> {
    let mut number = vec![1.0];
    for probability in events {
        number.push(0.0);
        for n in (0..number.len()).rev() {
            let fewer = if n > 0 { number[n - 1] } else { 0.0 };
            number[n] = number[n] * (1.0 - probability) + fewer * probability;
        }
    }
    number
}
