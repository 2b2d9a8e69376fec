// SPDX-License-Identifier: Apache-2.0
//! The programs of a team and what they do, in order of time.

use super::super::net::{Happened, Net};
use super::carriers::{CHANNEL, Channels, Connections, Places, Topic};
use super::processor::Processor;
use super::{Outcome, Plan, START, Transport, Trip};
use crate::rig::staging::DATAGRAM_BYTES;
use crate::rig::stamp::Stamp;
use anyhow::Result;
use fastrand::Rng;
use std::collections::BTreeMap;
use tautline_medium::{Medium, Motion, Nanos, RadioId, RateControl, StationId, WifiConfig};
use tautline_proto::Event;

/// Maximum delay of a publisher's timer, drawn uniformly, as in [`super::super::world`].
const MOST_LATE: Nanos = 200_000;
/// Mean interval of looks at the radios' queues, which are at random times: looks at regular ones would
/// always meet the same part of a period.
const SAMPLE: Nanos = 1_000_000;
/// Packets in the queue of a radio (Linux: txqueuelen).
const QUEUE_PACKETS: usize = 1000;
/// The golden ratio, which keeps the starts of any number of senders apart.
const GOLDEN: f64 = 0.618_033_988_749_895;

enum Carrier {
    Tcp(Connections),
    Tautline(Channels),
}

/// Work of one program's processor on one message.
#[derive(Debug, Clone, Copy)]
enum Work {
    /// A sender publishes its next message.
    Publish(usize),
    /// An echoer receives a message of a sender and publishes it again: sender, echoer.
    Echo(usize, usize, Stamp),
    /// A sender receives an echo: sender, echoer.
    Receive(usize, usize, Stamp),
    /// A daemon takes a message from ROS and sends it to its peers.
    Forward(Topic, Stamp),
    /// A daemon receives a message from a peer and publishes it in ROS.
    Deliver(StationId, Topic, Stamp),
}

enum Due {
    Start(Work),
    Finish(Work),
    Timer(usize),
    Sample,
}

/// State of the counters at one time.
pub struct Reading {
    at: Nanos,
    busy: Nanos,
    samples: [u64; 2],
    attempts: [u64; 2],
    worked: Vec<Nanos>,
    queued: u64,
}

/// The world, see the module.
pub struct World {
    plan: Plan,
    net: Net,
    carrier: Carrier,
    places: Places,
    /// Scheduled work by time, then in the order of scheduling.
    due: BTreeMap<(Nanos, u64), Due>,
    order: u64,
    random: Rng,
    /// Of the senders, the echoers and the daemons of all hosts.
    processors: Vec<Processor>,
    /// Times of publishing, by sender and message.
    sent: Vec<Vec<Nanos>>,
    /// Times of return, by pair and message; 0 for what has not returned.
    returned: Vec<Vec<Nanos>>,
    missing: u64,
    /// Looks at the radios' queues: those that found a frame, and all.
    samples: [u64; 2],
}

impl World {
    /// Creates the hosts and their programs.
    pub fn new(plan: &Plan, seed: u64) -> Result<Self> {
        let mut medium = Medium::new(seed);
        let rate = RateControl::Fixed(plan.channel_bps);
        medium.add_wifi(WifiConfig { rate, ..WifiConfig::default() });
        let mut net = Net::new(medium);
        for _ in 0..plan.hosts {
            net.add_host(Motion::at([0.0; 3]), &[CHANNEL], QUEUE_PACKETS);
        }
        let mut random = Rng::with_seed(seed);
        let carrier = match plan.transport {
            Transport::Tcp => Carrier::Tcp(Connections::new(plan, false)),
            Transport::TcpNodelay => Carrier::Tcp(Connections::new(plan, true)),
            Transport::Tautline => Carrier::Tautline(Channels::new(&mut net, plan, &mut random)?),
        };
        let places = Places::of(plan);
        let mut world = Self {
            plan: *plan,
            net,
            carrier,
            places,
            due: BTreeMap::new(),
            order: 0,
            random,
            processors: vec![Processor::default(); 2 * places.senders + plan.hosts],
            sent: vec![Vec::new(); places.senders],
            returned: vec![Vec::new(); plan.pairs()],
            missing: 0,
            samples: [0; 2],
        };
        for sender in 0..places.senders {
            world.plan_publication(sender);
        }
        world.plan(START, Due::Sample);
        Ok(world)
    }

    /// Returns the time at which a message of a sender is due.
    fn due_ns(&self, sender: usize, sequence: usize) -> Nanos {
        let period = self.plan.period();
        let phase = ((sender as f64 * GOLDEN).fract() * period as f64) as Nanos;
        START + phase + sequence as Nanos * period
    }

    fn plan_publication(&mut self, sender: usize) {
        let due = self.due_ns(sender, self.sent[sender].len());
        if due < self.plan.counted_span().end {
            let at = self.net.now().max(due + self.random.u64(0..=MOST_LATE));
            self.plan(at, Due::Start(Work::Publish(sender)));
        }
    }

    fn plan(&mut self, at: Nanos, due: Due) {
        self.order += 1;
        self.due.insert((at, self.order), due);
    }

    /// Runs until `end`.
    pub fn run(&mut self, end: Nanos) {
        loop {
            let next = self.due.first_key_value().map(|((at, _), _)| *at).filter(|at| *at <= end);
            while let Some(happened) = self.net.run(next.unwrap_or(end)) {
                self.react(happened);
            }
            let Some((_, due)) = next.and_then(|_| self.due.pop_first()) else { return };
            self.carry_out(due);
        }
    }

    fn carry_out(&mut self, due: Due) {
        match due {
            Due::Start(work) => self.start(work),
            Due::Finish(work) => self.finish(work),
            Due::Timer(connection) => {
                if let Carrier::Tcp(connections) = &mut self.carrier {
                    let timer = connections.handle_timeout(&mut self.net, connection);
                    self.plan_timers(timer);
                }
            }
            Due::Sample => {
                let radios = (0..self.plan.hosts).map(RadioId);
                let mut waiting = radios.map(|radio| self.net.medium.stats(radio).waiting);
                let found = u64::from(waiting.any(|frames| frames > 0));
                self.samples = [self.samples[0] + found, self.samples[1] + 1];
                let pause = self.random.u64(0..2 * SAMPLE);
                self.plan(self.net.now() + pause, Due::Sample);
            }
        }
    }

    fn plan_timers(&mut self, timers: impl IntoIterator<Item = (usize, Nanos)>) {
        for (connection, at) in timers {
            self.plan(at, Due::Timer(connection));
        }
    }

    /// Gives work to the processor of its program.
    fn start(&mut self, work: Work) {
        let (processor, cost) = (self.processor(work), self.cost(work));
        let at = self.processors[processor].admit(self.net.now(), cost);
        self.plan(at, Due::Finish(work));
    }

    fn processor(&self, work: Work) -> usize {
        let count = self.places.senders;
        match work {
            Work::Publish(sender) | Work::Receive(sender, ..) => sender,
            Work::Echo(_, echoer, _) => count + echoer,
            Work::Forward(topic, _) => 2 * count + self.host_of_publisher(topic).0,
            Work::Deliver(host, ..) => 2 * count + host.0,
        }
    }

    fn host_of_publisher(&self, topic: Topic) -> StationId {
        match topic {
            Topic::Out(sender) => self.places.of_sender(sender),
            Topic::Back(_, echoer) => self.places.of_echoer(echoer),
        }
    }

    fn cost(&self, work: Work) -> Nanos {
        let costs = self.plan.costs;
        let one = costs.contents_ns + costs.node_ns;
        let packets = self.plan.bytes.div_ceil(DATAGRAM_BYTES) as u64;
        match (work, &self.carrier) {
            (Work::Publish(_), Carrier::Tcp(_)) => {
                costs.contents_ns + self.places.senders as u64 * costs.node_ns
            }
            (Work::Publish(_) | Work::Receive(..), _) => one,
            (Work::Echo(..), _) => 2 * one,
            (Work::Forward(topic, _), Carrier::Tautline(channels)) => {
                costs.daemon_ns * (1 + packets * channels.fan_out(topic) as u64)
            }
            (Work::Deliver(host, Topic::Out(_), _), _) => {
                costs.daemon_ns * (packets + self.places.echoers(host).count() as u64)
            }
            (Work::Deliver(..) | Work::Forward(..), _) => costs.daemon_ns * (packets + 1),
        }
    }

    fn finish(&mut self, work: Work) {
        match work {
            Work::Publish(sender) => self.publish(sender),
            Work::Echo(sender, echoer, stamp) => self.carry(Topic::Back(sender, echoer), stamp),
            Work::Receive(sender, echoer, stamp) => {
                let pair = sender * self.places.senders + echoer;
                let returned = &mut self.returned[pair][stamp.sequence as usize];
                if *returned == 0 {
                    *returned = self.net.now();
                    self.missing -= 1;
                }
            }
            Work::Forward(topic, stamp) => {
                if let Carrier::Tautline(channels) = &self.carrier {
                    channels.send(&mut self.net, topic, stamp);
                }
            }
            Work::Deliver(host, Topic::Out(sender), stamp) => {
                for echoer in self.places.echoers(host) {
                    self.start(Work::Echo(sender, echoer, stamp));
                }
            }
            Work::Deliver(_, Topic::Back(sender, echoer), stamp) => {
                self.start(Work::Receive(sender, echoer, stamp));
            }
        }
    }

    fn publish(&mut self, sender: usize) {
        // The sender notes the time before it publishes.
        let sent_ns = self.net.now() - self.cost(Work::Publish(sender));
        let sequence = self.sent[sender].len() as u64;
        self.sent[sender].push(sent_ns);
        let count = self.places.senders;
        for pair in sender * count..(sender + 1) * count {
            self.returned[pair].push(0);
        }
        self.missing += count as u64;
        self.carry(Topic::Out(sender), Stamp { sequence, sent_ns });
        self.plan_publication(sender);
    }

    /// Passes a message that a node has published to its carrier.
    fn carry(&mut self, topic: Topic, stamp: Stamp) {
        match &mut self.carrier {
            Carrier::Tcp(connections) => {
                let timers = connections.write(&mut self.net, topic, stamp);
                self.plan_timers(timers);
            }
            Carrier::Tautline(_) => self.start(Work::Forward(topic, stamp)),
        }
    }

    fn react(&mut self, happened: Happened) {
        match (&mut self.carrier, happened) {
            (Carrier::Tcp(connections), Happened::Left(connection, _)) => {
                let timer = connections.left(&mut self.net, connection);
                self.plan_timers(timer);
            }
            (Carrier::Tcp(connections), Happened::Dropped(connection, _)) => {
                connections.dropped(connection);
            }
            (Carrier::Tcp(connections), Happened::Segment(segment)) => {
                let mut arrived = Vec::new();
                let timer = connections.handle(&mut self.net, segment, &mut arrived);
                self.plan_timers(timer);
                for (sender, echoer, is_back, stamp) in arrived {
                    let work = if is_back { Work::Receive } else { Work::Echo };
                    self.start(work(sender, echoer, stamp));
                }
            }
            (Carrier::Tautline(channels), Happened::Event(host, event)) => match event {
                Event::Offered { peer, channel, topic, .. } => {
                    channels.offered(&mut self.net, host, (peer, channel), &topic.name);
                }
                Event::Message { peer, channel, message } => {
                    let topic = channels.topic(host, (peer, channel));
                    if let Some((topic, stamp)) = topic.zip(Stamp::read(&message.payload)) {
                        self.start(Work::Deliver(host, topic, stamp));
                    }
                }
                _ => {}
            },
            _ => {}
        }
    }

    /// Whether all echoes have returned.
    pub fn is_complete(&self) -> bool {
        self.missing == 0
    }

    fn queued_and_dropped(&self) -> [u64; 2] {
        match &self.carrier {
            Carrier::Tcp(connections) => connections.queued_and_dropped(),
            Carrier::Tautline(channels) => channels.queued_and_dropped(&self.net),
        }
    }

    /// Returns the counters now.
    pub fn reading(&self) -> Reading {
        let at = self.net.now();
        let radios = (0..self.plan.hosts).map(|radio| self.net.medium.stats(RadioId(radio)));
        let attempts = radios.fold([0, 0], |sums: [u64; 2], it| {
            [sums[0] + it.failed_attempts, sums[1] + it.attempts]
        });
        Reading {
            at,
            busy: self.net.medium.busy(CHANNEL, at),
            samples: self.samples,
            attempts,
            worked: self.processors.iter().map(|processor| processor.worked(at)).collect(),
            queued: self.queued_and_dropped()[0],
        }
    }

    /// Returns the outcome; the readings are those at start and end of the counted time.
    pub fn outcome(&self, before: &Reading, after: &Reading) -> Outcome {
        let time = (after.at - before.at) as f64;
        let percent = |[part, all]: [u64; 2]| 100.0 * part as f64 / all.max(1) as f64;
        let since = |now: [u64; 2], then: [u64; 2]| percent([now[0] - then[0], now[1] - then[1]]);
        let worked = after.worked.iter().zip(&before.worked);
        let shares = worked.map(|(now, then)| 100.0 * (now - then) as f64 / time);
        let counted = self.plan.counted_span();
        let first = |sender: usize| {
            let phase = self.due_ns(sender, 0);
            counted.start.saturating_sub(phase).div_ceil(self.plan.period())
        };
        Outcome {
            trips: (0..self.places.senders).map(|sender| self.trips(sender)).collect(),
            first_counted: (0..self.places.senders).map(first).collect(),
            busy_percent: 100.0 * (after.busy - before.busy) as f64 / time,
            wanted_percent: since(after.samples, before.samples),
            failed_percent: since(after.attempts, before.attempts),
            processors: self.names().into_iter().zip(shares).collect(),
            queued: after.queued,
            dropped: self.queued_and_dropped()[1],
        }
    }

    fn names(&self) -> Vec<String> {
        let of = |kind: &'static str, count| (0..count).map(move |it| format!("{kind} {it}"));
        let nodes = of("sender", self.places.senders).chain(of("echoer", self.places.senders));
        nodes.chain(of("daemon", self.plan.hosts)).collect()
    }

    fn trips(&self, sender: usize) -> Vec<Trip> {
        let count = self.places.senders;
        let of_pair = |echoer: usize| {
            let returned = &self.returned[sender * count + echoer];
            (0..).zip(self.sent[sender].iter().zip(returned)).map(|(sequence, (sent, returned))| {
                let received_ns = (*returned > 0).then_some(*returned);
                Trip { sequence, sent_ns: *sent, received_ns }
            })
        };
        (0..count).flat_map(of_pair).collect()
    }
}
