// SPDX-License-Identifier: Apache-2.0
//! Worst-case response times: the recurrence of response-time analysis, over packets.

use super::FlowForecast;
use super::contention::Timing;
use super::delays::Queued;
use super::rivals::{Bounds, Rivals};
use super::traffic::{Channel, Packets, REPORTS, Stream};
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
    let station = Station::of(channel, timing, streams, flow);
    let bounds = station.rivals.bounds(station.attempts, &station.sizes());
    let arrival = |sent: f64| Duration::from_secs_f64(sent + timing.delay);
    let worst = station.worst(&bounds).map(arrival);
    let typical = Some(bounds.mean(&station.queue(0.0, 0))).filter(|it| *it < UNBOUNDED);
    FlowForecast { share, least, typical: typical.map(arrival), worst, attempts: station.attempts }
}

/// The sender of a flow, and what its messages wait for.
struct Station<'a> {
    stream: &'a Stream,
    /// Packets of lower priority that the kernel holds.
    blocking: Option<Queued>,
    /// Its streams of the same or a higher priority.
    preceding: Vec<&'a Stream>,
    rivals: Rivals<'a>,
    /// Attempts of a packet, at most.
    attempts: u32,
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
        Self { stream, blocking, preceding, rivals, attempts }
    }

    /// See [`FlowForecast::worst`].
    fn worst(&self, bounds: &Bounds<'_>) -> Option<f64> {
        let (mut longest, mut end): (f64, f64) = (0.0, 0.0);
        // A message may also wait for earlier messages of its flow: all of a busy period count.
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

    /// IP bytes of the packets in a queue of the station.
    fn sizes(&self) -> Vec<u32> {
        let own = self.preceding.iter().chain([&self.stream]).map(|it| it.packets);
        let all = own.chain(self.blocking.map(|it| it.packets));
        let mut sizes: Vec<u32> = all.flat_map(Packets::sizes).map(|(_, bytes)| bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// When the message with this number, from 0, has arrived, if this flow's messages are published
    /// from time 0 on; `None` if that takes too long. It is not before `until`.
    fn busy_until(&self, bounds: &Bounds<'_>, mut until: f64, message: u32) -> Option<f64> {
        loop {
            let found = bounds.of(&self.queue(until, message), until, EXCEEDED);
            if found > UNBOUNDED {
                return None;
            }
            if found <= until * (1.0 + 1e-3) {
                return Some(until.max(found));
            }
            until = found;
        }
    }

    /// What precedes the message, if that is published within `until`, and the message.
    fn queue(&self, until: f64, message: u32) -> Vec<Queued> {
        let own = Queued { messages: f64::from(message) + 1.0, packets: self.stream.packets };
        let preceding = self.preceding.iter().map(|stream| {
            // A packet with a message also carries the reports to its receiver that are due after it.
            let carried = stream.priority == REPORTS && stream.to == self.stream.to;
            let within = if carried { 0.0 } else { until };
            Queued { messages: self.rivals.messages(stream, within), packets: stream.packets }
        });
        self.blocking.into_iter().chain([own]).chain(preceding).collect()
    }
}

/// The packets of lower priority that the kernel may hold: one on the air, and the back-pressure's lead.
fn blocking(timing: &Timing, rivals: &Rivals<'_>, following: &[&Stream]) -> Option<Queued> {
    let longest = following.iter().max_by_key(|it| it.packets.largest())?;
    let bytes = longest.packets.largest();
    let behind = (LEAD / timing.airtime(longest.class(), bytes)).ceil() as u64;
    let presence: f64 = following.iter().map(|it| rivals.presence(it, 0.0)).sum();
    Some(Queued {
        messages: presence.min(1.0),
        packets: Packets { full: behind, last_bytes: bytes },
    })
}

/// The number of attempts that the packets of all but few messages need at most.
fn usual_attempts(rivals: &Rivals<'_>, stream: &Stream) -> u32 {
    let bearable = MORE_ATTEMPTS / stream.packets.count() as f64;
    let mut more = 1.0;
    let failures = rivals.failures();
    let needed = failures.iter().position(|failure| {
        more *= failure;
        more <= bearable
    });
    needed.map_or(failures.len(), |before| before + 1) as u32
}
