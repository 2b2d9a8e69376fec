// SPDX-License-Identifier: Apache-2.0
//! What carries the messages between the hosts of a team: TCP connections, or Tautline's channels.

use super::super::flows;
use super::super::net::{Net, instant};
use super::Plan;
use super::tcp::{Connection, Part, Segment};
use crate::rig::stamp::Stamp;
use anyhow::{Context, Result};
use fastrand::Rng;
use std::collections::HashMap;
use std::net::Ipv4Addr;
use tautline_medium::{Nanos, NetworkId, StationId};
use tautline_proto::{
    ChannelConfig, ChannelId, Config, Endpoint, LinkUse, Message, OfferedTopic, PeerId,
    RadioConfig, SecretKey,
};

/// The radio channel.
pub const CHANNEL: NetworkId = NetworkId(0);
/// ROS 1 precedes each message by its length.
const LENGTH_BYTES: u32 = 4;
/// All messages count, as in ROS 1 with a queue of 1000.
const KEEP_LAST: u32 = 1000;

/// A topic of the experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Topic {
    /// The messages of a sender.
    Out(usize),
    /// The echoes of an echoer to a sender: sender, echoer.
    Back(usize, usize),
}

/// Where the nodes are: they take turns on the hosts of their half, as in `study scaling`.
#[derive(Debug, Clone, Copy)]
pub struct Places {
    half: usize,
    /// Number of senders, and of echoers.
    pub senders: usize,
}

impl Places {
    /// Returns the places of a team.
    pub fn of(plan: &Plan) -> Self {
        Self { half: plan.hosts / 2, senders: plan.senders() }
    }

    /// Returns the host of a sender.
    pub fn of_sender(self, sender: usize) -> StationId {
        StationId(sender % self.half)
    }

    /// Returns the host of an echoer.
    pub fn of_echoer(self, echoer: usize) -> StationId {
        StationId(self.half + echoer % self.half)
    }

    /// Returns the echoers on a host.
    pub fn echoers(self, host: StationId) -> impl Iterator<Item = usize> {
        (0..self.senders).filter(move |echoer| self.of_echoer(*echoer) == host)
    }

    /// Returns the hosts with subscribers of a topic, and the host of its publisher.
    fn ends(self, topic: Topic) -> (StationId, Vec<StationId>) {
        match topic {
            Topic::Out(sender) => {
                let there = (self.half..2 * self.half).map(StationId);
                (self.of_sender(sender), there.collect())
            }
            Topic::Back(sender, echoer) => (self.of_echoer(echoer), vec![self.of_sender(sender)]),
        }
    }

    fn topics(self) -> impl Iterator<Item = Topic> {
        let numbers = move || 0..self.senders;
        let back = numbers().flat_map(move |s| numbers().map(move |e| Topic::Back(s, e)));
        numbers().map(Topic::Out).chain(back)
    }
}

/// TCP connections of all pairs: those to the echoers, then those back.
pub struct Connections {
    all: Vec<Connection<Stamp>>,
    /// Time of the next look at the timers of each connection.
    armed: Vec<Option<Nanos>>,
    places: Places,
    message_bytes: u32,
}

/// A message that has arrived over a connection: sender, echoer, whether it is an echo, its stamp.
pub type Arrived = (usize, usize, bool, Stamp);

impl Connections {
    /// Creates the connections of a team.
    pub fn new(plan: &Plan, has_nodelay: bool) -> Self {
        let count = 2 * plan.pairs();
        Self {
            all: (0..count).map(|_| Connection::new(has_nodelay)).collect(),
            armed: vec![None; count],
            places: Places::of(plan),
            message_bytes: plan.bytes as u32 + LENGTH_BYTES,
        }
    }

    fn pair(&self, connection: usize) -> (usize, usize, bool) {
        let pairs = self.all.len() / 2;
        let pair = connection % pairs;
        (pair / self.places.senders, pair % self.places.senders, connection >= pairs)
    }

    /// Returns the hosts of publisher and subscriber.
    fn ends(&self, connection: usize) -> [StationId; 2] {
        let (sender, echoer, is_back) = self.pair(connection);
        let ends = [self.places.of_sender(sender), self.places.of_echoer(echoer)];
        if is_back { [ends[1], ends[0]] } else { ends }
    }

    /// Publishes a message on the connection of a pair. Returns the time at which its timers are due if
    /// that is news.
    pub fn write(&mut self, net: &mut Net, topic: Topic, stamp: Stamp) -> Vec<(usize, Nanos)> {
        let count = self.places.senders;
        let connections = match topic {
            Topic::Out(sender) => sender * count..(sender + 1) * count,
            Topic::Back(sender, echoer) => {
                let connection = self.all.len() / 2 + sender * count + echoer;
                connection..connection + 1
            }
        };
        let mut timers = Vec::new();
        for connection in connections {
            self.all[connection].write(stamp, self.message_bytes);
            timers.extend(self.pump(net, connection));
        }
        timers
    }

    /// Sends what is due. Returns the connection and the time of its timers if that is news.
    fn pump(&mut self, net: &mut Net, connection: usize) -> Option<(usize, Nanos)> {
        let [from, to] = self.ends(connection);
        while let Some(part) = self.all[connection].poll_data(net.now()) {
            let stamp = net.now();
            net.send_segment(from, address(net, to), Segment { connection, part, stamp });
        }
        let due = self.all[connection].poll_timeout()?;
        let armed = &mut self.armed[connection];
        armed.is_none_or(|at| due < at).then(|| {
            *armed = Some(due);
            (connection, due)
        })
    }

    /// Handles data that has left the radio's queue of its sender.
    pub fn left(&mut self, net: &mut Net, connection: usize) -> Option<(usize, Nanos)> {
        self.all[connection].handle_left();
        self.pump(net, connection)
    }

    /// Handles data that the radio's full queue has dropped. What is lost is sent again by timers and
    /// acknowledgements.
    pub fn dropped(&mut self, connection: usize) {
        self.all[connection].handle_left();
    }

    /// Handles a packet at its receiver; adds the messages that it completes to `arrived`.
    pub fn handle(
        &mut self,
        net: &mut Net,
        segment: Segment,
        arrived: &mut Vec<Arrived>,
    ) -> Option<(usize, Nanos)> {
        let Segment { connection, part, stamp } = segment;
        match part {
            Part::Data { from, bytes } => {
                let (now, mut delivered) = (net.now(), Vec::new());
                let state = &mut self.all[connection];
                let ack = state.handle_data(now, (from, bytes), stamp, &mut delivered);
                let (sender, echoer, is_back) = self.pair(connection);
                arrived.extend(delivered.into_iter().map(|it| (sender, echoer, is_back, it)));
                self.send_ack(net, connection, ack);
            }
            Part::Ack(next) => self.all[connection].handle_ack(net.now(), next, stamp),
        }
        self.pump(net, connection)
    }

    /// Handles due timers.
    pub fn handle_timeout(&mut self, net: &mut Net, connection: usize) -> Option<(usize, Nanos)> {
        self.armed[connection] = None;
        let ack = self.all[connection].handle_timeout(net.now());
        self.send_ack(net, connection, ack);
        self.pump(net, connection)
    }

    fn send_ack(&self, net: &mut Net, connection: usize, ack: Option<(Part, Nanos)>) {
        let [to, from] = self.ends(connection);
        if let Some((part, stamp)) = ack {
            net.send_segment(from, address(net, to), Segment { connection, part, stamp });
        }
    }

    /// Returns the messages that have not been sent, and those that were dropped.
    pub fn queued_and_dropped(&self) -> [u64; 2] {
        let queued = self.all.iter().map(|it| it.unsent() as u64).sum();
        [queued, self.all.iter().map(|it| it.dropped).sum()]
    }
}

fn address(net: &Net, host: StationId) -> Ipv4Addr {
    net.address(host, CHANNEL).map_or(Ipv4Addr::UNSPECIFIED, |address| *address.ip())
}

/// Channels of the Tautline nodes.
pub struct Channels {
    /// Topics by receiving host and channel.
    topics: HashMap<(StationId, PeerId, ChannelId), Topic>,
    /// Channels of each topic at its publisher.
    outgoing: HashMap<Topic, Vec<(PeerId, ChannelId)>>,
    names: HashMap<String, Topic>,
    places: Places,
    message_bytes: usize,
}

impl Channels {
    /// Starts the nodes, makes every host of one half a peer of every host of the other, and offers
    /// each topic to the hosts of its subscribers.
    pub fn new(net: &mut Net, plan: &Plan, random: &mut Rng) -> Result<Self> {
        for host in 0..plan.hosts {
            let mut random = random.fork();
            let name = name(StationId(host));
            let config = Config::new(name.clone(), SecretKey::insecure(&name));
            let endpoint = Endpoint::new(config, Box::new(move || random.u64(..)))?;
            let radio = RadioConfig { marking: None, ..RadioConfig::default() };
            net.start_node(StationId(host), endpoint, |_| radio.clone());
        }
        let mut peers = HashMap::new();
        for one in 0..plan.hosts / 2 {
            for other in plan.hosts / 2..plan.hosts {
                for ends in [[one, other], [other, one]] {
                    let [host, other] = ends.map(StationId);
                    peers.insert((host, other), join(net, host, other)?);
                }
            }
        }
        let places = Places::of(plan);
        let (names, message_bytes) = (HashMap::new(), plan.bytes);
        let (topics, outgoing) = (HashMap::new(), HashMap::new());
        let mut channels = Self { topics, outgoing, names, places, message_bytes };
        for topic in places.topics() {
            channels.offer(net, topic, &peers)?;
        }
        Ok(channels)
    }

    fn offer(
        &mut self,
        net: &mut Net,
        topic: Topic,
        peers: &HashMap<(StationId, StationId), PeerId>,
    ) -> Result<()> {
        let name = match topic {
            Topic::Out(sender) => format!("/out/s{sender}"),
            Topic::Back(sender, echoer) => format!("/back/s{sender}_e{echoer}"),
        };
        self.names.insert(name.clone(), topic);
        let (from, hosts) = self.places.ends(topic);
        let now = instant(net.now());
        for host in hosts {
            let peer = *peers.get(&(from, host)).context("hosts of one half")?;
            let endpoint = net.endpoint(from).context("no node")?;
            let channel = endpoint.offer(now, peer, scans(&name))?;
            self.outgoing.entry(topic).or_default().push((peer, channel));
        }
        net.drain(from);
        Ok(())
    }

    /// Handles an advertised topic: the host subscribes.
    pub fn offered(
        &mut self,
        net: &mut Net,
        host: StationId,
        (peer, channel): (PeerId, ChannelId),
        name: &str,
    ) {
        let Some(topic) = self.names.get(name) else { return };
        self.topics.insert((host, peer, channel), *topic);
        let now = instant(net.now());
        if let Some(endpoint) = net.endpoint(host) {
            endpoint.want(now, peer, channel, true);
        }
        net.drain(host);
    }

    /// Returns the topic of a received message.
    pub fn topic(&self, host: StationId, (peer, channel): (PeerId, ChannelId)) -> Option<Topic> {
        self.topics.get(&(host, peer, channel)).copied()
    }

    /// Returns the number of hosts to which a topic is sent.
    pub fn fan_out(&self, topic: Topic) -> usize {
        self.outgoing.get(&topic).map_or(0, Vec::len)
    }

    /// Publishes a message to all subscribed hosts.
    pub fn send(&self, net: &mut Net, topic: Topic, stamp: Stamp) {
        let (host, _) = self.places.ends(topic);
        let payload = flows::stamped(stamp.sequence, stamp.sent_ns, self.message_bytes);
        let published = instant(net.now());
        for &(peer, channel) in self.outgoing.get(&topic).into_iter().flatten() {
            let Some(endpoint) = net.endpoint(host) else { return };
            let payload = payload.clone().into();
            let message = Message { payload, published, source: 0, encoded: false, lifespan: None };
            // What is refused is counted by the channel.
            let _ = endpoint.send(published, peer, channel, message);
        }
        net.drain(host);
    }

    /// Returns the messages that have not been sent, and those that were dropped.
    pub fn queued_and_dropped(&self, net: &Net) -> [u64; 2] {
        let mut sums = [0, 0];
        for (topic, channels) in &self.outgoing {
            let (host, _) = self.places.ends(*topic);
            for (peer, channel) in channels {
                let found = net.view(host).and_then(|it| it.channel_out(*peer, *channel));
                if let Some((_, _, stats)) = found {
                    sums = [sums[0] + stats.queued, sums[1] + stats.dropped.total()];
                }
            }
        }
        sums
    }
}

fn name(host: StationId) -> String {
    format!("host{}", host.0)
}

/// Makes `other` a peer of a host.
fn join(net: &mut Net, host: StationId, other: StationId) -> Result<PeerId> {
    let name = name(other);
    let endpoint = net.endpoint(host).context("no node")?;
    let peer = endpoint.add_peer(&name, SecretKey::insecure(&name).public())?;
    let there = address(net, other);
    net.add_link(host, peer, there).context("no link")?;
    Ok(peer)
}

fn scans(name: &str) -> ChannelConfig {
    // The type and its definition do not matter to the protocol.
    let topic = flows::topic(name, "sensor_msgs/LaserScan", "90c7ef2dc6895d81024acba2ac42f369");
    ChannelConfig {
        topic: OfferedTopic { keep_last: KEEP_LAST, ..topic },
        definition: "".into(),
        repair: true,
        thin: false,
        links: LinkUse::default(),
        fec: None,
    }
}
