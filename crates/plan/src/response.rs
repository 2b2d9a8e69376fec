// SPDX-License-Identifier: Apache-2.0
//! Worst-case response times: the recurrence of response-time analysis, over packets.

use super::assessment::FlowForecast;
use super::contention::Timing;
use super::queue::{Number, Queued};
use super::rivals::{Bounds, Rivals};
use super::traffic::{Channel, FULL_PACKET, Packets, REPORTS, Stream};
use std::time::Duration;

/// Probability that a message is later than its worst case.
const WORST_CASE_PROBABILITY: f64 = 1e-5;
/// Fraction of messages whose packets may need more attempts than assumed.
const EXCESS_ATTEMPTS_FRACTION: f64 = 1e-3;
/// Delay from which delays count as unbounded, in seconds.
const UNBOUNDED_DELAY_S: f64 = 60.0;
/// Maximum number of messages of one flow that are examined in a busy period.
const MAX_MESSAGES: u32 = 100;
/// Time from a packet to the report on it (`proto/src/recovery/sent.rs`), in seconds.
const REPORT_DELAY_S: f64 = 2e-3;
/// Number of messages at the start of a busy period for which the number of reports is random. For later
/// messages, the number of reports is nearly certain.
const RANDOM_REPORTS: u32 = 4;
/// Maximum number of reports that the kernel holds at once (`proto/src/endpoint/network.rs`).
const MAX_HELD_REPORTS: usize = 2;
/// Number of small packets that the kernel holds.
const HELD_PACKETS: u32 = 2;
/// Seconds for which the kernel may hold packets behind the packet on the air: the lead of back-pressure.
const BACK_PRESSURE_LEAD_S: f64 = 1e-3;

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
    let station = Station::for_flow(channel, timing, streams, flow);
    let bounds = station.rivals.bounds(station.attempts, &station.sizes());
    let arrival = |sent: f64| Duration::from_secs_f64(sent + timing.delay);
    let worst = station.worst(&bounds).map(arrival);
    let typical = Some(bounds.mean(&station.queue(0.0, 0))).filter(|it| *it < UNBOUNDED_DELAY_S);
    FlowForecast { share, least, typical: typical.map(arrival), worst, attempts: station.attempts }
}

/// The sender of a flow, and the traffic that delays its messages.
struct Station<'a> {
    stream: &'a Stream,
    /// Packets of lower priority that the kernel holds.
    blocking: Option<Queued>,
    /// Streams of the same or a higher priority.
    preceding: Vec<&'a Stream>,
    /// The streams of reports.
    reports: Vec<&'a Stream>,
    rivals: Rivals<'a>,
    /// Maximum attempts of a packet.
    attempts: u32,
    /// Time on the air of the last packet of a message.
    last: f64,
    /// Mean time for which back-pressure delays a small message: until the packets in the kernel leave
    /// within [`BACK_PRESSURE_LEAD_S`].
    back_pressure_delay: f64,
    /// Whether the packets of the flow follow each other faster than reports are due.
    carries_reports: bool,
}

impl<'a> Station<'a> {
    fn for_flow(channel: &Channel, timing: &'a Timing, streams: &'a [Stream], flow: usize) -> Self {
        let stream = &streams[flow];
        let class = stream.class();
        let own = streams.iter().enumerate().filter(|(_, it)| it.station == stream.station);
        let (preceding, following): (Vec<_>, Vec<_>) = own
            .filter(|(index, _)| *index != flow)
            .map(|(_, it)| it)
            .partition(|it| it.priority >= stream.priority);
        let (reports, preceding): (Vec<_>, Vec<_>) =
            preceding.into_iter().partition(|it| it.priority == REPORTS);
        let (apart, following): (Vec<_>, Vec<_>) =
            following.into_iter().partition(|it| timing.queue(it.class()) != timing.queue(class));
        let shares = match channel {
            Channel::Wifi(_) => true,
            Channel::Pipe(pipe) => pipe.half_duplex,
        };
        let others = streams.iter().filter(|it| shares && it.station != stream.station);
        let rivals = Rivals::new(timing, class, others.chain(apart).collect());
        let blocking = blocking(timing, &rivals, &following);
        let attempts = usual_attempts(&rivals, stream);
        let last_bytes = stream.packets.last_bytes;
        let before =
            f64::from(HELD_PACKETS) * rivals.service_time(timing.airtime(class, last_bytes));
        let back_pressure_delay = (before - BACK_PRESSURE_LEAD_S).max(0.0);
        let last = timing.exchange(last_bytes);
        let full = timing.airtime(class, stream.packets.largest().max(last_bytes));
        let carries_reports = rivals.service_time(full) < REPORT_DELAY_S;
        Self {
            stream,
            blocking,
            preceding,
            reports,
            rivals,
            attempts,
            last,
            back_pressure_delay,
            carries_reports,
        }
    }

    /// See [`FlowForecast::worst`].
    fn worst(&self, bounds: &Bounds<'_>) -> Option<f64> {
        let (mut longest, mut end): (f64, f64) = (0.0, 0.0);
        // A message may also wait for earlier messages of its flow, so all messages of a busy
        // period are examined.
        for message in 0..MAX_MESSAGES {
            end = self.busy_until(bounds, end, message)?;
            let begin = f64::from(message) * self.stream.period;
            longest = longest.max(end - begin);
            if end <= begin + self.stream.period {
                return Some(longest);
            }
        }
        None
    }

    /// Returns the IP bytes of the packets in the station's queue.
    fn sizes(&self) -> Vec<u32> {
        let own = self.preceding.iter().chain(&self.reports).chain([&self.stream]);
        let all = own.map(|it| it.packets).chain(self.blocking.as_ref().map(|it| it.packets));
        let mut sizes: Vec<u32> = all.flat_map(Packets::sizes).map(|(_, bytes)| bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// Returns the arrival time, not before `until`, of message number `message` (from 0), if this
    /// flow publishes from time 0; `None` if it takes too long.
    fn busy_until(&self, bounds: &Bounds<'_>, mut until: f64, message: u32) -> Option<f64> {
        loop {
            // Messages published while the last packet is on the air do not delay it.
            let begun = (until - self.last).max(0.0);
            let found =
                bounds.delivery_time(&self.queue(begun, message), begun, WORST_CASE_PROBABILITY);
            if found > UNBOUNDED_DELAY_S {
                return None;
            }
            if found <= until * (1.0 + 1e-3) {
                return Some(until.max(found));
            }
            until = found;
        }
    }

    /// Returns messages 0 to `message` of the flow, and the traffic that precedes them and is published
    /// before `until`.
    fn queue(&self, until: f64, message: u32) -> Vec<Queued> {
        let count = f64::from(message) + 1.0;
        let own = Queued { number: Number::Mean(count), packets: self.stream.packets };
        let preceding = self.preceding.iter().map(|stream| {
            let within = self.within(stream, until, message);
            let number = Number::Mean(self.rivals.messages(stream, within));
            Queued { number, packets: stream.packets }
        });
        let reports = self.reports(until, message);
        self.blocking.iter().cloned().chain([own]).chain(preceding).chain(reports).collect()
    }

    /// Returns the time until which messages of a stream precede number `message` of this flow, if both
    /// publish from time 0. It is negative if only older messages precede.
    fn within(&self, stream: &Stream, until: f64, message: u32) -> f64 {
        let published = f64::from(message) * self.stream.period;
        if stream.priority > self.stream.priority {
            until
        } else if stream.to == self.stream.to {
            // Messages to one receiver are sent in the order in which they are due.
            (published + self.stream.due - stream.due).min(until)
        } else if self.is_held_briefly() {
            // Receivers take turns: while a message is delayed, later messages to other receivers
            // may be sent.
            (published + self.back_pressure_delay).min(until)
        } else {
            until
        }
    }

    /// Returns the reports that precede the message.
    fn reports(&self, until: f64, message: u32) -> Vec<Queued> {
        let Some(packets) = self.reports.first().map(|it| it.packets) else { return vec![] };
        let means = self.reports.iter().map(|it| {
            // Packets with messages carry the reports to their receiver if they are sent before the
            // reports are due.
            let is_carried = it.to == self.stream.to && self.carries_reports;
            let within = if is_carried { 0.0 } else { until };
            self.rivals.messages(it, within)
        });
        if self.is_held_briefly() {
            let most = MAX_HELD_REPORTS * (message as usize + 1);
            let number = match message < RANDOM_REPORTS {
                true => Number::bounded_sum(most, means),
                false => Number::Mean(means.sum::<f64>().min(most as f64)),
            };
            return vec![Queued { number, packets }];
        }
        means.map(|mean| Queued { number: Number::Mean(mean), packets }).collect()
    }

    /// Whether back-pressure releases a message when the packet on the air should have left,
    /// without waiting for another packet.
    fn is_held_briefly(&self) -> bool {
        self.stream.packets.full == 0 && self.blocking.is_none()
    }
}

/// Returns the packets of lower priority that the kernel may hold: two full packets, or as many as
/// leave within the back-pressure's lead. Except for the packet on the air, they are in the kernel
/// only during the lead, or while the packet on the air is later than average.
fn blocking(timing: &Timing, rivals: &Rivals<'_>, following: &[&Stream]) -> Option<Queued> {
    let longest = following.iter().max_by_key(|it| it.packets.largest())?;
    let bytes = longest.packets.largest();
    let airtime = timing.airtime(longest.class(), bytes);
    let most = ((BACK_PRESSURE_LEAD_S / airtime) as usize).max((2 * FULL_PACKET / bytes) as usize);
    let presence: f64 = following.iter().map(|it| rivals.presence_probability(it, 0.0)).sum();
    let presence = presence.min(1.0);
    let service = rivals.service_time(airtime);
    let several = (BACK_PRESSURE_LEAD_S.max(service - airtime) / service).min(1.0);
    let mut chances = vec![0.0; most + 1];
    chances[0] = 1.0 - presence;
    chances[1] += presence * (1.0 - several);
    chances[most] += presence * several;
    Some(Queued {
        number: Number::Chances(chances),
        packets: Packets { full: 0, last_bytes: bytes },
    })
}

/// Returns the number of attempts that suffices for the packets of almost all messages.
fn usual_attempts(rivals: &Rivals<'_>, stream: &Stream) -> u32 {
    let bearable = EXCESS_ATTEMPTS_FRACTION / stream.packets.count() as f64;
    let more = rivals.more_attempts();
    let needed = more.iter().position(|it| *it <= bearable);
    needed.map_or(more.len(), |before| before + 1) as u32
}

#[cfg(test)]
mod tests {
    use crate::{Assessment, Channel, Fleet, Flow};
    use std::time::Duration;
    use tautline_medium::PipeConfig;

    const MS: Duration = Duration::from_millis(1);

    /// A line of 1 Mbps for each station, without contention: a packet of 1072 bytes takes 8.6 ms.
    fn worst_of_first(flows: Vec<Flow>) -> f64 {
        let pipe = PipeConfig { rate_bps: 1_000_000, overhead_bytes: 0, ..PipeConfig::default() };
        let fleet = Fleet { channel: Channel::Pipe(pipe), flows };
        let worst = Assessment::new(&fleet).flows[0].worst.expect("there is a bound");
        worst.as_secs_f64() * 1e3
    }

    fn flow(to: usize, period: Duration, lifespan: Option<Duration>) -> Flow {
        Flow { from: 0, to, bytes: 1000, period, priority: 100, lifespan }
    }

    #[test]
    fn messages_of_one_priority_to_one_receiver_are_sent_in_due_order() {
        let with = |lifespan: Duration| {
            let other = flow(1, 12 * MS, Some(100 * MS));
            worst_of_first(vec![flow(1, 1000 * MS, Some(lifespan)), other])
        };
        let (equal, late) = (with(100 * MS), with(5000 * MS));
        assert!((17.0..17.5).contains(&equal), "one other message precedes: {equal}");
        assert!(late > equal + 8.0, "later ones that are due earlier precede too: {late}");
        let urgent = with(20 * MS);
        assert!((8.5..9.0).contains(&urgent), "those that wait are due later: {urgent}");
    }

    /// Robots send at the same time, so their station owes each of them reports.
    #[test]
    fn few_reports_precede_a_small_message() {
        let with = |robots: usize| {
            let sent = (2..2 + robots).map(|from| Flow { from, to: 0, ..flow(0, 9 * MS, None) });
            worst_of_first([flow(1, 1000 * MS, None)].into_iter().chain(sent).collect())
        };
        let report = 76.0 * 8.0 / 1e3;
        let (few, many) = (with(3), with(30));
        assert!((many - few).abs() < 0.1 * report, "{few} {many}");
        assert!(few <= 8.6 + 2.2 * report, "{few}");
    }

    #[test]
    fn two_packets_of_lower_priority_rarely_precede() {
        let low = |period| Flow { bytes: 1_000_000, priority: 1, ..flow(1, period, None) };
        let with = |period| worst_of_first(vec![flow(1, 1000 * MS, None), low(period)]);
        let full = 1500.0 * 8.0 / 1e3;
        let busy = with(9000 * MS);
        assert!((8.5 + 2.0 * full - 0.5..8.5 + 2.0 * full + 1.0).contains(&busy), "{busy}");
    }
}
