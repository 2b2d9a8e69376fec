// SPDX-License-Identifier: Apache-2.0
//! Teams in virtual time: senders on half of the hosts, echoers on the other half, and every echoer
//! answers every sender over one radio channel. The programs are rospy's nodes, whose messages plain
//! TCP or Tautline's protocol carries.

mod carriers;
mod processor;
pub mod tcp;
mod world;

use anyhow::Result;
use serde::Serialize;
use std::ops::Range;
use tautline_medium::Nanos;
use world::World;

/// Time before the first message, for handshakes.
const START: Nanos = 2_000_000_000;
/// Time for which the senders publish before the counted time.
const WARM_UP: Nanos = 2_000_000_000;
/// Longest wait for echoes after the last message, as in the thesis.
const DRAIN: Nanos = 5_000_000_000;
/// Interval at which the wait looks whether all echoes have returned.
const LOOK: Nanos = 100_000_000;

/// What carries the messages between hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// Plain ROS 1: a TCP connection for each topic and subscriber.
    Tcp,
    /// As [`Self::Tcp`], with `TCP_NODELAY`.
    TcpNodelay,
    /// A Tautline node on each host, which sends a topic once to each host that subscribes.
    Tautline,
}

/// Time of a processor for one message. All zero: programs take no time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Costs {
    /// Of a node, to send a message on a connection or to receive it, whatever is in it, nanoseconds.
    pub node_ns: Nanos,
    /// Of a node, to convert the contents to bytes or back, nanoseconds.
    pub contents_ns: Nanos,
    /// Of a daemon, for a message from or to a node, and for a packet, nanoseconds.
    pub daemon_ns: Nanos,
}

/// A team and its load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// Transport.
    pub transport: Transport,
    /// Hosts, an even number: half of them with senders.
    pub hosts: usize,
    /// Nodes on each host.
    pub nodes: usize,
    /// Messages per second of each sender.
    pub frequency_hz: f64,
    /// Bytes of a message.
    pub bytes: usize,
    /// Rate of the 802.11 channel's frames, bits per second.
    pub channel_bps: u64,
    /// Costs of messages.
    pub costs: Costs,
    /// Counted time.
    pub counted: Nanos,
}

impl Plan {
    /// Returns the number of senders, and of echoers.
    pub fn senders(&self) -> usize {
        self.hosts / 2 * self.nodes
    }

    /// Returns the pairs of a sender and an echoer.
    pub fn pairs(&self) -> usize {
        self.senders().pow(2)
    }

    /// Returns the counted time on the clock of the run.
    pub fn counted_span(&self) -> Range<Nanos> {
        START + WARM_UP..START + WARM_UP + self.counted
    }

    fn period(&self) -> Nanos {
        (1e9 / self.frequency_hz) as Nanos
    }
}

/// A message of a sender and one of its echoes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trip {
    /// Number of the sender's message, from 0.
    pub sequence: u64,
    /// Time of publishing.
    pub sent_ns: Nanos,
    /// Time at which the echo reached the callback; `None` if it did not.
    pub received_ns: Option<Nanos>,
}

/// What a run gave.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// By sender: each of its messages with each of its echoers.
    pub trips: Vec<Vec<Trip>>,
    /// By sender: number of its first message that is due in the counted time.
    pub first_counted: Vec<u64>,
    /// Time in which a frame was on the air, percent of the counted time.
    pub busy_percent: f64,
    /// Time in which some radio had a frame to send, percent of the counted time (sampled).
    pub wanted_percent: f64,
    /// Attempts to send a frame that failed, percent.
    pub failed_percent: f64,
    /// Programs with the work of their processors, percent of the counted time.
    pub processors: Vec<(String, f64)>,
    /// Messages in the queues of the transport at the end of the counted time.
    pub queued: u64,
    /// Messages that full queues of the transport dropped.
    pub dropped: u64,
}

/// Runs a team. The same seed gives the same outcome.
///
/// # Errors
/// Fails if Tautline refuses the number of hosts or topics.
pub fn run(plan: &Plan, seed: u64) -> Result<Outcome> {
    let mut world = World::new(plan, seed)?;
    let Range { start, end } = plan.counted_span();
    world.run(start);
    let before = world.reading();
    world.run(end);
    let after = world.reading();
    let mut until = end;
    while until < end + DRAIN && !world.is_complete() {
        until += LOOK;
        world.run(until);
    }
    Ok(world.outcome(&before, &after))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;
    const TRANSPORTS: [Transport; 3] = [Transport::Tcp, Transport::TcpNodelay, Transport::Tautline];

    fn plan(transport: Transport) -> Plan {
        Plan {
            transport,
            hosts: 4,
            nodes: 2,
            frequency_hz: 5.0,
            bytes: 4227,
            channel_bps: 54_000_000,
            costs: Costs::default(),
            counted: 2 * SECOND,
        }
    }

    fn delays_ms(outcome: &Outcome) -> Vec<f64> {
        let trips = outcome.trips.iter().flatten();
        let delay = |it: &Trip| Some((it.received_ns? - it.sent_ns) as f64 / 1e6);
        trips.filter_map(delay).collect()
    }

    #[test]
    fn every_echoer_answers_every_message_of_a_light_load() {
        for transport in TRANSPORTS {
            let plan = plan(transport);
            let outcome = run(&plan, 1).unwrap();
            // 4 senders, 5 Hz for 4 s, 4 echoers.
            let trips: Vec<usize> = outcome.trips.iter().map(Vec::len).collect();
            assert_eq!(trips, [80; 4], "{transport:?}");
            assert_eq!(delays_ms(&outcome).len(), 320, "{transport:?}");
            assert!(delays_ms(&outcome).iter().all(|ms| *ms < 100.0), "{transport:?}");
            assert_eq!((outcome.queued, outcome.dropped), (0, 0), "{transport:?}");
            // The share is sampled 2000 times.
            let [busy, wanted] = [outcome.busy_percent, outcome.wanted_percent];
            assert!(busy < wanted + 2.0, "{transport:?}: {busy} {wanted}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_outcome() {
        for transport in TRANSPORTS {
            let trips = |seed| run(&plan(transport), seed).unwrap().trips;
            assert_eq!(trips(3), trips(3));
            assert_ne!(trips(3), trips(4));
        }
    }

    #[test]
    fn tautline_sends_a_topic_once_to_a_host_and_plain_ros_once_to_each_node() {
        let busy = |transport| run(&plan(transport), 1).unwrap().busy_percent;
        let ratio = busy(Transport::Tautline) / busy(Transport::Tcp);
        // 2 scans to each host instead of 4, and as many echoes; fewer acknowledgements.
        assert!((0.4..0.8).contains(&ratio), "{ratio}");
    }

    #[test]
    fn a_processor_adds_its_time_to_each_round_trip_and_is_busy_for_it() {
        let median = |costs| {
            let plan = Plan { hosts: 2, nodes: 1, costs, ..plan(Transport::TcpNodelay) };
            let outcome = run(&plan, 1).unwrap();
            let mut delays = delays_ms(&outcome);
            delays.sort_by(f64::total_cmp);
            (delays[delays.len() / 2], outcome.processors)
        };
        let costs = Costs { node_ns: 2_000_000, contents_ns: 3_000_000, daemon_ns: 0 };
        let ((free, _), (slow, processors)) = (median(Costs::default()), median(costs));
        // A message is published, received, published and received. Later echoes contend less with
        // acknowledgements.
        assert!((18.5..21.0).contains(&(slow - free)), "{free} {slow}");
        for (name, percent) in processors.iter().filter(|(name, _)| !name.contains("daemon")) {
            assert!((4.0..6.0).contains(percent), "{name}: {percent}");
        }
    }

    #[test]
    fn a_load_beyond_the_channel_leaves_messages_in_queues() {
        for transport in TRANSPORTS {
            let outcome = run(&Plan { frequency_hz: 100.0, ..plan(transport) }, 1).unwrap();
            assert!(outcome.wanted_percent > 99.0 && outcome.queued > 100, "{transport:?}");
        }
    }
}
