// SPDX-License-Identifier: Apache-2.0
//! The stations of a plan on the medium. The oracle checks all their outputs.

use super::super::attacker::Attacker;
use super::super::gate::Gate;
use super::super::net::{HostEvent, Net, PORT, instant};
use super::hostile::Hostile;
use super::oracle::{Delivery, Era, Oracle, Sent, Terms};
use super::plan::{Chain, LinkEnd, MAX_COPIES, Plan, TopicPlan};
use crate::rig::staging::address;
use crate::scenario::NetworkKind;
use anyhow::{Error, Result, anyhow, bail};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use tautline_medium::{Medium, Nanos, NetworkId, RadioId, StationId};
use tautline_proto::stats::{DropReason, Drops, InStats, OutStats, RefusedPacket};
use tautline_proto::{
    ChannelId, DeliveryOrder, Endpoint, Event, Message, PeerId, Rights, SecretKey,
};

/// Maximum size of a control message, without a definition's text.
const CONTROL_BYTES: u64 = 300;
/// Publishers of each topic.
const SOURCES: u32 = 2;

/// A path between two stations.
#[derive(Debug, Clone)]
pub enum Path {
    /// Without a relay, on this network.
    Direct(usize),
    /// Along a chain that forwards IP packets.
    Forwarded(Chain),
    /// Along a chain that relays packets of Tautline.
    Relayed(Chain),
}

/// A topic at its publisher.
#[derive(Debug, Default)]
pub struct Outward {
    /// Whether the publisher knows of a subscription.
    pub wanted: bool,
    /// Counters of the topic.
    pub stats: OutStats,
}

/// A start of a node.
#[derive(Debug, Clone, Copy, Default)]
struct Life {
    /// Restart counter, from 1.
    number: u32,
    /// Time of the start.
    began: Nanos,
}

/// One end of a pair of peers: its sessions, and the maximum of its control bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Acquaintance {
    sessions: u32,
    control_bytes: u64,
    /// Era of messages from this node's current start to the other.
    era: Era,
    /// Restart counter of the other node when this node started.
    first_life: u32,
    /// Sessions since this node started.
    sessions_since: u32,
}

/// The world, see the module.
pub struct World {
    /// The plan from which the world was built.
    pub plan: Plan,
    /// Hosts and medium.
    pub net: Net,
    /// Source of all random draws.
    pub random: Rng,
    /// The oracle.
    pub oracle: Oracle,
    /// Channel of each topic at its publisher.
    channels: Vec<ChannelId>,
    /// Messages accepted of each topic since its publisher started.
    accepted: Vec<u64>,
    /// Whether the subscriber of each topic is subscribed.
    pub wished: Vec<bool>,
    peers: BTreeMap<(usize, usize), PeerId>,
    acquaintances: BTreeMap<(usize, usize), Acquaintance>,
    /// Transit time of the last datagram to each host.
    transit: Vec<Nanos>,
    radios: usize,
    /// Restarts of nodes so far.
    pub restarts: u64,
    /// The last start of each node.
    lives: Vec<Life>,
    /// Sessions so far, over all nodes.
    sessions: u32,
    /// Changes of addresses so far.
    pub moves: u64,
    /// Outages of networks and of directions so far.
    pub outages: u64,
    /// Links that went down so far.
    pub downs: u64,
    /// Total time of pauses in the fault phase.
    pub paused: Nanos,
    /// A hostile station.
    pub hostile: Option<Hostile>,
}

impl World {
    /// Builds the world of a plan and starts its nodes.
    pub fn new(plan: Plan, seed: u64, mut random: Rng) -> Result<Self> {
        let mut medium = Medium::new(seed);
        for network in &plan.networks {
            medium.add_network(network.kind.clone());
        }
        let mut net = Net::new(medium);
        net.relays = plan.relays;
        net.gate = Some(Gate::new(random.u64(..)));
        net.attacker = Some(Attacker::new(random.u64(..)));
        for station in &plan.stations {
            let networks: Vec<_> = station.networks.iter().map(|n| NetworkId(*n)).collect();
            net.add_host(station.motion.clone(), &networks, station.queue_packets);
        }
        let hostile = Hostile::draw(seed, &plan).map(|(hostile, motion)| {
            let (network, queue_packets) = hostile.radio();
            net.hostile = Some(net.add_host(motion, &[network], queue_packets));
            net.relays |= hostile.relayed;
            hostile
        });
        let terms = plan.topics.iter().map(|topic| {
            let topic = &topic.config.topic;
            let in_order = topic.order != DeliveryOrder::Arrival;
            Terms { lifespan: topic.lifespan, keep_last: topic.keep_last, in_order }
        });
        let mut world = Self {
            net,
            random,
            oracle: Oracle::new(terms.collect()),
            channels: vec![ChannelId(0); plan.topics.len()],
            accepted: vec![0; plan.topics.len()],
            wished: vec![false; plan.topics.len()],
            peers: BTreeMap::new(),
            acquaintances: BTreeMap::new(),
            // The hostile station has an entry, though it is not checked.
            transit: vec![0; plan.stations.len() + 1],
            radios: plan.stations.iter().map(|station| station.networks.len()).sum(),
            restarts: 0,
            lives: vec![Life::default(); plan.stations.len()],
            sessions: 0,
            moves: 0,
            outages: 0,
            downs: 0,
            paused: 0,
            hostile,
            plan,
        };
        world.add_routes();
        for station in 0..world.plan.stations.len() {
            world.start(station)?;
        }
        Ok(world)
    }

    fn add_routes(&mut self) {
        let stations = 0..self.plan.stations.len();
        for (from, to) in stations.clone().flat_map(|a| stations.clone().map(move |b| (a, b))) {
            for path in self.paths(from, to) {
                let Path::Forwarded(route) = path else { continue };
                let [next, destination] = [(1, 0), (route.hops.len(), route.hops.len() - 1)]
                    .map(|(station, hop)| address(route.hops[hop], route.stations[station]));
                self.net.add_route(StationId(from), destination, next);
            }
        }
    }

    /// Returns the paths from one station to another, in the order of their links.
    pub fn paths(&self, from: usize, to: usize) -> Vec<Path> {
        let direct = self.plan.shared_networks(from, to).into_iter().map(Path::Direct);
        let along = if self.plan.relays { Path::Relayed } else { Path::Forwarded };
        direct.chain(self.plan.routes(from, to).into_iter().map(along)).collect()
    }

    /// Returns the peers of a station.
    pub fn partners(&self, station: usize) -> Vec<usize> {
        let pairs = self.plan.pairs.iter().filter(|pair| pair.contains(&station));
        pairs.map(|[a, b]| if *a == station { *b } else { *a }).collect()
    }

    /// Starts a station's node, or replaces it as after a crash.
    pub fn start(&mut self, station: usize) -> Result<()> {
        let plan = self.plan.stations[station].clone();
        let mut random = self.random.fork();
        let endpoint = Endpoint::new(plan.config, Box::new(move || random.u64(..)));
        let endpoint = endpoint?;
        self.net.start_node(StationId(station), endpoint, |_| plan.radio.clone());
        let number = self.lives[station].number + 1;
        self.lives[station] = Life { number, began: self.net.now() };
        let partners = self.partners(station);
        for &partner in &partners {
            let acquaintance = self.acquaintances.entry((station, partner)).or_default();
            // Initially all nodes start, one after the other.
            acquaintance.first_life = self.lives[partner].number.max(1);
            acquaintance.sessions_since = 0;
            self.meet(station, partner)?;
        }
        for partner in partners {
            self.link(station, partner)?;
        }
        self.meet_hostile(station)?;
        for topic in 0..self.plan.topics.len() {
            if self.plan.topics[topic].from == station {
                self.accepted[topic] = 0;
                self.offer(topic)?;
            }
            self.wished[topic] &= self.plan.topics[topic].to != station;
        }
        Ok(())
    }

    fn meet(&mut self, station: usize, partner: usize) -> Result<()> {
        let name = self.plan.stations[partner].config.name.clone();
        let relayed = self.plan.relays;
        let endpoint = self.endpoint(station);
        let peer = endpoint.add_peer(&name, SecretKey::insecure(&name).public())?;
        endpoint.peer_mut(peer).set_rights(Rights { relayed, ..Rights::default() });
        self.peers.insert((station, partner), peer);
        Ok(())
    }

    fn link(&mut self, station: usize, partner: usize) -> Result<()> {
        let peer = self.peer(station, partner);
        for path in self.paths(station, partner) {
            let (here, there) = match path {
                Path::Direct(network) => (network, network),
                Path::Forwarded(Chain { hops, .. }) => (hops[0], hops[hops.len() - 1]),
                Path::Relayed(Chain { stations, .. }) => {
                    let (now, via) = (instant(self.net.now()), self.peer(station, stations[1]));
                    let added = self.endpoint(station).peer_mut(peer).add_relayed_link(now, via);
                    added?;
                    self.net.drain(StationId(station));
                    continue;
                }
            };
            // The configuration names the partner's initial address.
            let end = LinkEnd { station, network: here, partner };
            let waits = self.plan.waiting_ends.contains(&end);
            let remote = SocketAddrV4::new(address(there, partner), PORT);
            let remote = (!waits).then_some(remote);
            let link = self.net.add_link_on(NetworkId(here), StationId(station), peer, remote);
            link.ok_or_else(|| anyhow!("station {station} has no link to {remote:?}"))?;
        }
        Ok(())
    }

    fn offer(&mut self, topic: usize) -> Result<()> {
        let plan = self.plan.topics[topic].clone();
        let (now, peer) = (instant(self.net.now()), self.peers[&(plan.from, plan.to)]);
        let endpoint = self.endpoint(plan.from);
        let channel = endpoint.peer_mut(peer).offer(now, plan.config)?;
        self.channels[topic] = channel;
        self.net.drain(StationId(plan.from));
        Ok(())
    }

    /// Advertises a topic again with another priority.
    pub fn set_priority(&mut self, topic: usize, priority: u8) -> Result<()> {
        self.plan.topics[topic].config.topic.priority = priority;
        let plan = self.plan.topics[topic].clone();
        let (now, peer) = (instant(self.net.now()), self.peers[&(plan.from, plan.to)]);
        let channel = self.channels[topic];
        let endpoint = self.endpoint(plan.from);
        let changed = endpoint.peer_mut(peer).change_offer(now, channel, plan.config);
        changed?;
        self.expect_relayed_bytes(plan.from, plan.to, CONTROL_BYTES);
        self.net.drain(StationId(plan.from));
        Ok(())
    }

    /// Informs a station's node that its own address may have changed.
    pub fn announce_move(&mut self, station: usize) {
        let now = instant(self.net.now());
        let endpoint = self.endpoint(station);
        for link in endpoint.links() {
            endpoint.link_mut(link).announce_move(now);
        }
        self.net.drain(StationId(station));
    }

    fn expect_relayed_bytes(&mut self, from: usize, to: usize, bytes: u64) {
        self.acquaintances.entry((from, to)).or_default().control_bytes += bytes;
    }

    /// Returns a station's node.
    ///
    /// # Panics
    /// If the station has no node, which no plan produces.
    #[expect(clippy::expect_used, reason = "every station of a plan has a node")]
    pub fn endpoint(&mut self, station: usize) -> &mut Endpoint {
        self.net.endpoint(StationId(station)).expect("every station has a node")
    }

    /// Returns a station's node for reading.
    ///
    /// # Panics
    /// As [`World::endpoint`].
    #[expect(clippy::expect_used, reason = "every station of a plan has a node")]
    pub fn view(&self, station: usize) -> &Endpoint {
        self.net.view(StationId(station)).expect("every station has a node")
    }

    /// Returns the peer number of a partner at a station.
    pub fn peer(&self, station: usize, partner: usize) -> PeerId {
        self.peers[&(station, partner)]
    }

    /// Returns whether the publisher knows of a subscription to a topic, and its counters there.
    pub fn outward(&self, topic: usize) -> Outward {
        let plan = &self.plan.topics[topic];
        let peer = self.peer(plan.from, plan.to);
        let state = self.view(plan.from).peer(peer).channel_out(self.channels[topic]);
        state.map_or(Outward::default(), |(_, wanted, stats)| Outward { wanted, stats: *stats })
    }

    /// Returns the counters of a topic at its subscriber.
    pub fn inward(&self, topic: usize) -> InStats {
        let plan = &self.plan.topics[topic];
        let peer = self.peer(plan.to, plan.from);
        let state = self.view(plan.to).peer(peer).channel_in(self.channels[topic]);
        state.map_or_else(InStats::default, |(_, _, stats)| *stats)
    }

    /// Subscribes to a topic or unsubscribes; does nothing unless the topic is advertised.
    pub fn want(&mut self, topic: usize, wanted: bool) {
        let (from, to) = (self.plan.topics[topic].from, self.plan.topics[topic].to);
        let (now, peer) = (instant(self.net.now()), self.peer(to, from));
        let channel = self.channels[topic];
        if self.view(to).peer(peer).channel_in(channel).is_none() {
            return;
        }
        self.endpoint(to).peer_mut(peer).want(now, channel, wanted);
        self.wished[topic] = wanted;
        self.expect_relayed_bytes(to, from, CONTROL_BYTES);
        self.net.drain(StationId(to));
    }

    /// Sends a message of `len` bytes. Returns its number unless it was refused (peer down, or no
    /// subscription).
    pub fn send(&mut self, topic: usize, len: usize) -> Option<u32> {
        let (from, to) = (self.plan.topics[topic].from, self.plan.topics[topic].to);
        let (at, source) = (self.net.now(), self.random.u32(..SOURCES));
        let encoded = self.random.bool();
        let payload = self.oracle.next_payload(len).into();
        let message = Message { payload, published: instant(at), source, encoded, lifespan: None };
        let (peer, channel) = (self.peer(from, to), self.channels[topic]);
        let sent = self.endpoint(from).peer_mut(peer).send(instant(at), channel, message);
        self.net.drain(StationId(from));
        sent.ok()?;
        self.accepted[topic] += 1;
        let era = self.acquaintances[&(from, to)].era;
        Some(self.oracle.record_accepted(Sent { topic, source, encoded, len, at, era }))
    }

    /// Runs for `span` of virtual time.
    pub fn run(&mut self, span: Nanos) -> Result<()> {
        let end = self.net.now() + span;
        while let Some(happened) = self.net.run(end) {
            match happened {
                HostEvent::Datagram(host, transit) => self.transit[host.0] = transit,
                HostEvent::Event(host, event) => self.react(host.0, event)?,
                HostEvent::Piece(..)
                | HostEvent::Segment(_)
                | HostEvent::Left(..)
                | HostEvent::Dropped(..) => {}
            }
        }
        self.check()
    }

    fn partner(&self, station: usize, peer: PeerId) -> usize {
        let mut known = self.peers.iter().filter(|((host, _), _)| *host == station);
        known.find(|(_, id)| **id == peer).map_or(station, |((_, partner), _)| *partner)
    }

    /// Returns the topics from one station to another.
    fn topics_between(&self, from: usize, to: usize) -> impl Iterator<Item = usize> + use<'_> {
        let all = self.plan.topics.iter().enumerate();
        all.filter(move |(_, topic)| (topic.from, topic.to) == (from, to)).map(|(number, _)| number)
    }

    fn react(&mut self, station: usize, event: Event) -> Result<()> {
        if self.is_of_hostile(station, &event) {
            return Ok(());
        }
        match event {
            Event::PeerUp { peer, new_session: true } => {
                let partner = self.partner(station, peer);
                self.on_new_session(station, partner)
            }
            Event::LinkDown { .. } => {
                self.downs += 1;
                Ok(())
            }
            Event::Offered { peer, channel, topic, .. } => {
                let partner = self.partner(station, peer);
                let mut known = self.topics_between(partner, station);
                let number = known.find(|n| self.channels[*n] == channel);
                drop(known);
                let number = number
                    .filter(|n| self.plan.topics[*n].config.topic.name == topic.name)
                    .ok_or_else(|| {
                        anyhow!("{topic:?} was offered on {channel:?} by no publisher")
                    })?;
                self.want(number, true);
                Ok(())
            }
            Event::Message { peer, channel, message } => {
                let partner = self.partner(station, peer);
                let mut known = self.topics_between(partner, station);
                let topic = known.find(|n| self.channels[*n] == channel);
                drop(known);
                let topic = topic.ok_or_else(|| anyhow!("a message arrived on {channel:?}"))?;
                let last = match self.plan.topics[topic].config.topic.order {
                    // An earlier datagram may have completed the message.
                    DeliveryOrder::Sent { .. } => self.net.worst_transit,
                    _ => self.transit[station],
                };
                let transit = last + self.relayed_transit(partner, station);
                self.oracle.record_delivery(&Delivery {
                    topic,
                    source: message.source,
                    encoded: message.encoded,
                    payload: &message.payload,
                    age: message.age,
                    at: self.net.now(),
                    transit,
                    wanted: self.wished[topic],
                    era: self.acquaintances[&(station, partner)].era,
                })
            }
            _ => Ok(()),
        }
    }

    /// Returns the maximum time of the earlier hops of a relayed path, which the receiver cannot know.
    fn relayed_transit(&self, from: usize, to: usize) -> Nanos {
        let hops = self.paths(from, to).into_iter().map(|path| match path {
            Path::Direct(_) | Path::Forwarded(_) => 1,
            Path::Relayed(chain) => chain.hops.len() as u64,
        });
        (hops.max().unwrap_or(1) - 1) * self.net.worst_transit
    }

    /// Handles a new session, after which everything is advertised and requested again.
    fn on_new_session(&mut self, station: usize, partner: usize) -> Result<()> {
        let inward: Vec<_> = self.topics_between(partner, station).collect();
        for topic in &inward {
            self.wished[*topic] = false;
        }
        let outward: Vec<_> = self.topics_between(station, partner).collect();
        let definitions = outward.iter().map(|n| self.plan.topics[*n].config.definition.len());
        let definitions = definitions.sum::<usize>() as u64;
        let acquaintance = self.acquaintances.entry((station, partner)).or_default();
        acquaintance.sessions += 1;
        let own = (2 * outward.len() + inward.len()) as u64 * CONTROL_BYTES;
        acquaintance.control_bytes += definitions + own;
        self.sessions += 1;
        let Life { number: life, began: life_began } = self.lives[station];
        let session_began = self.net.now();
        acquaintance.era = Era { life, life_began, session: self.sessions, session_began };
        // Each session is with another start of the partner, among those since this node's start.
        acquaintance.sessions_since += 1;
        let sessions = acquaintance.sessions_since;
        let restarts = self.lives[partner].number - acquaintance.first_life;
        if sessions > restarts + 1 {
            bail!(
                "station {station} had {sessions} sessions with {partner}, which started {restarts} times since"
            );
        }
        Ok(())
    }

    /// Checks the invariants that hold at any time.
    fn check(&self) -> Result<()> {
        for topic in 0..self.plan.topics.len() {
            self.check_topic(topic)?;
        }
        for &(station, partner) in self.peers.keys() {
            self.check_queue(station, partner)?;
        }
        let over_budget = self.net.gate.as_ref().and_then(|gate| gate.over_budget.clone());
        over_budget
            .or_else(|| self.net.misjudged.clone())
            .map_or(Ok(()), |wrong| Err(Error::msg(wrong)))
    }

    fn check_topic(&self, topic: usize) -> Result<()> {
        let Outward { stats, .. } = self.outward(topic);
        let sum = stats.queued + stats.sent + stats.delivered + stats.dropped.total();
        if stats.accepted != self.accepted[topic] || sum != stats.accepted {
            let accepted = self.accepted[topic];
            bail!("{accepted} messages of /{topic} were accepted, but the counters are {stats:?}");
        }
        let TopicPlan { from, to, .. } = self.plan.topics[topic];
        let sessions = |a, b| self.acquaintances.get(&(a, b)).map_or(0, |known| known.sessions);
        let one_session = sessions(from, to) <= 1 && sessions(to, from) <= 1;
        let bound = self.view(to).refused_packets().get(RefusedPacket::Bound);
        if self.restarts > 0 || !one_session || bound > 0 {
            return Ok(());
        }
        let inward = self.inward(topic);
        let known = self.oracle.deliveries(topic) + inward.dropped.total() + inward.waiting;
        if stats.delivered > known {
            bail!(
                "{} messages of /{topic} are counted as delivered; the subscriber received {known}",
                stats.delivered
            );
        }
        Ok(())
    }

    /// Checks the limit on queued bytes. Control messages add to the limit, and an empty message
    /// counts as one byte.
    fn check_queue(&self, station: usize, partner: usize) -> Result<()> {
        let view = self.view(station).peer(self.peer(station, partner));
        let own = self.acquaintances.get(&(station, partner)).map_or(0, |a| a.control_bytes);
        // Each copy of a message that several links carry counts.
        let endpoint = self.view(station);
        let peer = self.peer(station, partner);
        let links = endpoint.links().filter_map(|link| endpoint.link(link));
        let links = links.filter(|link| link.peer == peer).count();
        let copies = links.clamp(1, usize::from(MAX_COPIES)) as u64;
        let allowed = self.plan.stations[station].config.queue_bytes as u64 * copies;
        if view.queued_bytes > allowed + own + view.queued_messages as u64 {
            bail!(
                "{} bytes are queued at station {station} for {partner}; allowed: {allowed}, and {own} of the session",
                view.queued_bytes
            );
        }
        Ok(())
    }

    /// Returns the frames that networks have lost so far, for any reason.
    pub fn frames_lost(&self) -> u64 {
        let lost = |radio| {
            let stats = self.net.medium.stats(RadioId(radio));
            let (_, NetworkId(network)) = self.net.medium.radio(RadioId(radio));
            let failed = match self.plan.networks[network].kind {
                NetworkKind::Wifi(_) => stats.given_up,
                _ => stats.failed_attempts,
            };
            failed + stats.queue_drops
        };
        let behind = self.net.gate.as_ref().map_or(0, |gate| gate.lost);
        (0..self.radios).map(lost).sum::<u64>() + behind
    }

    pub fn drops(&self) -> Vec<(Drops, Drops)> {
        let topics = 0..self.plan.topics.len();
        topics
            .map(|topic| (self.outward(topic).stats.dropped, self.inward(topic).dropped))
            .collect()
    }

    /// Returns the messages dropped at either end, by reason.
    pub fn drops_by_reason(&self) -> Vec<(DropReason, u64)> {
        let all = self.drops();
        let count =
            |reason| all.iter().map(|(out, inward)| out.get(reason) + inward.get(reason)).sum();
        DropReason::ALL.into_iter().map(|reason| (reason, count(reason))).collect()
    }
}
