// SPDX-License-Identifier: Apache-2.0
//! Endpoints in virtual time, joined by seeded lossy pipes. There is no I/O, so a seed reproduces a
//! run exactly.
//!
//! A pipe belongs to a node, duplicates and reorders packets, and may change while a test runs. The
//! pipes of `medium` belong to a network instead.

pub mod translator;

use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;
use tautline_proto::{
    Arrival, ChannelConfig, ChannelId, Class, Config, Duration, Ecn, Endpoint, Event, Instant,
    LinkConfig, LinkId, Message, OfferedTopic, PeerId, RadioConfig, RadioId, Received, RemovedPeer,
    SecretKey, SendError, Transmit,
};
use translator::Translator;

pub const MS: Duration = Duration::from_millis(1);
pub const DATAGRAM: usize = 1472;
const IP_UDP: usize = 28;

/// splitmix64 (Steele, Lea and Flood, 2014).
#[derive(Clone)]
pub struct Rng(pub u64);

impl Rng {
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn chance(&mut self, probability: f64) -> bool {
        (self.draw() >> 11) as f64 / ((1u64 << 53) as f64) < probability
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound.max(1)
    }
}

/// One node's radio: a local queue that drains at a rate, then a transmission with loss and delay.
#[derive(Clone)]
pub struct Pipe {
    pub rate_bps: u64,
    pub delay: Duration,
    pub loss: f64,
    pub duplicate: f64,
    /// Fraction of packets that are delayed.
    pub reorder: f64,
    /// Longest delay of such a packet.
    pub reorder_by: Duration,
    /// Packets are lost while this is set.
    pub cut: bool,
    /// Length above which datagrams are lost, as on a path with a smaller MTU.
    pub longest: usize,
    /// Length above which the kernel refuses datagrams.
    pub interface: usize,
    /// Packets with messages are lost if this is the highest priority in them.
    pub lost_priority: Option<u8>,
    /// Whether the queue is at a far bottleneck instead of in our kernel.
    pub is_far: bool,
    /// The ECN field with which a packet arrives; `None` if it is lost.
    pub ecn: fn(Ecn) -> Option<Ecn>,
}

impl Pipe {
    pub fn with_rate(rate_bps: u64) -> Self {
        Self {
            rate_bps,
            delay: Duration::from_micros(100),
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_by: 5 * MS,
            cut: false,
            longest: DATAGRAM,
            interface: DATAGRAM,
            lost_priority: None,
            is_far: false,
            ecn: Some,
        }
    }

    pub fn lossy(rate_bps: u64, loss: f64) -> Self {
        Self { loss, ..Self::with_rate(rate_bps) }
    }
}

pub struct Node {
    pub endpoint: Endpoint,
    pub address: SocketAddr,
    config: Config,
    pub pipe: Pipe,
    busy_until: Instant,
    in_flight: BTreeMap<(LinkId, Class), usize>,
    pub events: Vec<Event>,
    /// Messages delivered: time, sender, channel.
    pub received: Vec<(Instant, PeerId, ChannelId, Received)>,
    /// Packets sent, for tests that examine them.
    pub sent: Vec<Transmit>,
    /// Peers whose packets stay in the kernel (unresolved neighbours).
    pub stuck: Vec<SocketAddr>,
    /// The address translator in front of the node.
    pub translator: Option<Translator>,
    /// The only address from which packets reach the node; `None` for any address.
    pub only_from: Option<SocketAddr>,
}

enum Scheduled {
    Departed { node: usize, link: LinkId, class: Class, bytes: usize },
    Arrives { node: usize, from: SocketAddr, to: SocketAddr, ecn: Ecn, datagram: Vec<u8> },
}

struct Planned {
    at: Instant,
    order: u64,
    what: Scheduled,
}

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}
impl Eq for Planned {}
impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Planned {
    /// Reversed, so that a max-heap returns the earliest first.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

pub struct Net {
    pub now: Instant,
    pub nodes: Vec<Node>,
    planned: BinaryHeap<Planned>,
    order: u64,
    pub rng: Rng,
    /// Loss from one node to another, in addition to that of the pipe.
    pub losses: Vec<(usize, usize, f64)>,
}

pub fn address(node: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, node as u8 + 1], 18470))
}

/// Returns the default configuration; [`Net::add`] sets name and key.
pub fn defaults() -> Config {
    Config::new("node", SecretKey::insecure("node"))
}

pub fn topic(name: &str, priority: u8) -> OfferedTopic {
    OfferedTopic {
        name: name.into(),
        type_name: "std_msgs/String".into(),
        type_hash: "992ce8a1687cec8c8bd883ec73ca41d1".into(),
        priority,
        keep_last: 10,
        lifespan: None,
        qos: tautline_proto::OfferedQos::default(),
        role: tautline_proto::Role::Topic,
        order: tautline_proto::DeliveryOrder::Arrival,
    }
}

pub fn channel(topic: OfferedTopic) -> ChannelConfig {
    ChannelConfig {
        topic,
        definition: "string data".into(),
        repair: true,
        thin: false,
        fec: None,
        links: tautline_proto::LinkUse::default(),
    }
}

impl Net {
    pub fn new(seed: u64) -> Self {
        Self {
            now: Instant(1_000_000_000),
            nodes: Vec::new(),
            planned: BinaryHeap::new(),
            order: 0,
            rng: Rng(seed),
            losses: Vec::new(),
        }
    }

    /// Creates two nodes, `robot` (0) and `base` (1), with a session.
    pub fn pair(seed: u64, pipe: &Pipe) -> Self {
        let mut net = Self::new(seed);
        net.add("robot", defaults(), pipe.clone());
        net.add("base", defaults(), pipe.clone());
        net.join(0, 1);
        net.run(Duration::from_secs(2));
        for node in &net.nodes {
            assert!(node.endpoint.peer(PeerId(0)).up, "the pair has met");
        }
        net
    }

    pub fn endpoint(&mut self, name: &str, config: Config) -> Endpoint {
        let mut rng = Rng(self.rng.draw());
        let config = Config { name: name.into(), key: SecretKey::insecure(name), ..config };
        Endpoint::new(config, Box::new(move || rng.draw())).unwrap()
    }

    pub fn add(&mut self, name: &str, config: Config, pipe: Pipe) -> usize {
        let mut endpoint = self.endpoint(name, config.clone());
        endpoint.add_radio(RadioConfig::default());
        self.nodes.push(Node {
            endpoint,
            address: address(self.nodes.len()),
            config,
            pipe,
            busy_until: self.now,
            in_flight: BTreeMap::new(),
            events: Vec::new(),
            received: Vec::new(),
            sent: Vec::new(),
            stuck: Vec::new(),
            translator: None,
            only_from: None,
        });
        self.nodes.len() - 1
    }

    /// Makes two nodes peers; returns each one's id at the other.
    pub fn join(&mut self, a: usize, b: usize) -> (PeerId, PeerId) {
        (self.add_peer(a, b), self.add_peer(b, a))
    }

    /// Makes `other` a peer of `node`.
    pub fn add_peer(&mut self, node: usize, other: usize) -> PeerId {
        self.add_peer_at(node, other, Some(self.nodes[other].address))
    }

    /// Makes `other` a peer of `node`, which does not know its address.
    pub fn add_peer_without_address(&mut self, node: usize, other: usize) -> PeerId {
        self.add_peer_at(node, other, None)
    }

    fn add_peer_at(&mut self, node: usize, other: usize, remote: Option<SocketAddr>) -> PeerId {
        let name = self.nodes[other].endpoint.name().to_owned();
        let endpoint = &mut self.nodes[node].endpoint;
        let peer = endpoint.add_peer(&name, SecretKey::insecure(&name).public()).unwrap();
        let link =
            LinkConfig { remote, datagram_bytes: DATAGRAM, header_bytes: IP_UDP, metered: false };
        endpoint.peer_mut(peer).add_link(self.now, RadioId(0), link).unwrap();
        peer
    }

    /// Makes `other` a peer of `node` through the relay `via`.
    pub fn add_peer_through(&mut self, node: usize, other: usize, via: &[PeerId]) -> PeerId {
        let name = self.nodes[other].endpoint.name().to_owned();
        let endpoint = &mut self.nodes[node].endpoint;
        let peer = endpoint.add_peer(&name, SecretKey::insecure(&name).public()).unwrap();
        for via in via {
            endpoint.peer_mut(peer).add_relayed_link(self.now, *via).unwrap();
        }
        peer
    }

    /// Removes a peer of `node`, and sends its goodbyes.
    pub fn remove_peer(&mut self, node: usize, peer: PeerId) -> RemovedPeer {
        let mut parted = self.nodes[node].endpoint.peer_mut(peer).remove(self.now);
        for transmit in parted.goodbyes.drain(..) {
            self.transmit(node, transmit);
        }
        self.drain(node);
        parted
    }

    /// Replaces a node by a new node with the same name, as after a crash.
    pub fn restart(&mut self, node: usize, others: &[usize]) {
        let name = self.nodes[node].endpoint.name().to_owned();
        let config = self.nodes[node].config.clone();
        let mut endpoint = self.endpoint(&name, config);
        endpoint.add_radio(RadioConfig::default());
        self.nodes[node].endpoint = endpoint;
        self.nodes[node].in_flight.clear();
        for &other in others {
            self.add_peer(node, other);
        }
    }

    /// Offers a topic from one node to a peer, and waits until the peer is subscribed.
    pub fn open(&mut self, node: usize, peer: PeerId, config: ChannelConfig) -> ChannelId {
        let now = self.now;
        let channel = self.nodes[node].endpoint.peer_mut(peer).offer(now, config).unwrap();
        self.run(Duration::from_secs(1));
        let wanted = self.nodes[node].endpoint.peer(peer).channel_out(channel).unwrap().1;
        assert!(wanted, "the harness wants whatever is offered");
        channel
    }

    pub fn send(&mut self, node: usize, peer: PeerId, channel: ChannelId, payload: Vec<u8>) {
        self.try_send(node, peer, channel, payload).unwrap();
    }

    pub fn try_send(
        &mut self,
        node: usize,
        peer: PeerId,
        channel: ChannelId,
        payload: Vec<u8>,
    ) -> Result<(), SendError> {
        let message = Message {
            payload: payload.into(),
            published: self.now,
            source: 0,
            encoded: false,
            lifespan: None,
        };
        let sent = self.nodes[node].endpoint.peer_mut(peer).send(self.now, channel, message);
        self.drain(node);
        sent
    }

    /// Delivers bytes to a node as if from `from`.
    pub fn inject(&mut self, node: usize, from: SocketAddr, datagram: &[u8]) {
        self.nodes[node].endpoint.handle_packet(self.now, RadioId(0), from, datagram);
        self.drain(node);
    }

    pub fn run(&mut self, span: Duration) {
        self.run_until(self.now + span);
    }

    pub fn run_until(&mut self, end: Instant) {
        for node in 0..self.nodes.len() {
            self.drain(node);
        }
        loop {
            let timers = self.nodes.iter().filter_map(|n| n.endpoint.poll_timeout());
            let next = timers.chain(self.planned.peek().map(|p| p.at)).min();
            let Some(next) = next.filter(|at| *at <= end) else { break };
            self.now = self.now.max(next);
            while self.planned.peek().is_some_and(|p| p.at <= self.now) {
                let Some(planned) = self.planned.pop() else { break };
                self.handle_scheduled(planned.what);
            }
            for node in 0..self.nodes.len() {
                let due = self.nodes[node].endpoint.poll_timeout();
                if due.is_some_and(|at| at <= self.now) {
                    self.nodes[node].endpoint.handle_timeout(self.now);
                    self.drain(node);
                }
            }
        }
        self.now = end;
    }

    fn handle_scheduled(&mut self, what: Scheduled) {
        match what {
            Scheduled::Departed { node, link, class, bytes } => {
                let state = &mut self.nodes[node];
                let left = state.in_flight.entry((link, class)).or_default();
                *left = left.saturating_sub(bytes);
                let left = *left;
                state.endpoint.link_mut(link).handle_in_flight(self.now, class, left);
                self.drain(node);
            }
            Scheduled::Arrives { node, from, to, ecn, datagram } => {
                let translator = self.nodes[node].translator.as_ref();
                let is_foreign = self.nodes[node].only_from.is_some_and(|it| it != from);
                if is_foreign || translator.is_some_and(|it| !it.admits(from, to)) {
                    return;
                }
                let arrival = Arrival { ecn, ..Arrival::default() };
                let endpoint = &mut self.nodes[node].endpoint;
                endpoint.handle_received_packet(self.now, arrival, RadioId(0), from, &datagram);
                self.drain(node);
            }
        }
    }

    fn drain(&mut self, node: usize) {
        while let Some(transmit) = self.nodes[node].endpoint.poll_transmit(self.now) {
            assert!(transmit.datagram.len() <= DATAGRAM, "a datagram fits the link");
            self.transmit(node, transmit);
        }
        while let Some(event) = self.nodes[node].endpoint.poll_event() {
            self.note(node, event);
        }
        // Events may have caused replies, such as subscriptions.
        while let Some(transmit) = self.nodes[node].endpoint.poll_transmit(self.now) {
            self.transmit(node, transmit);
        }
    }

    fn note(&mut self, node: usize, event: Event) {
        let state = &mut self.nodes[node];
        match event {
            Event::Message { peer, channel, message } => {
                state.received.push((self.now, peer, channel, message));
            }
            Event::Candidates { link, ref addresses, .. } => {
                for &remote in addresses {
                    state.endpoint.link_mut(link).try_address(self.now, RadioId(0), remote);
                }
                state.events.push(event);
            }
            Event::Offered { peer, channel, .. } => {
                state.endpoint.peer_mut(peer).want(self.now, channel, true);
                state.events.push(event);
            }
            other => state.events.push(other),
        }
    }

    fn transmit(&mut self, node: usize, transmit: Transmit) {
        self.nodes[node].sent.push(transmit.clone());
        let Transmit { link, remote: to, datagram, class, ecn, priority, .. } = transmit;
        let ip_bytes = datagram.len() + IP_UDP;
        let state = &mut self.nodes[node];
        if let Some(link) = link.filter(|_| datagram.len() > state.pipe.interface) {
            state.endpoint.link_mut(link).handle_refused(self.now, &datagram);
            let in_flight = state.in_flight.get(&(link, class)).copied().unwrap_or(0);
            return state.endpoint.link_mut(link).handle_in_flight(self.now, class, in_flight);
        }
        let stuck = state.stuck.contains(&to);
        if let Some(link) = link {
            let in_flight = state.in_flight.entry((link, class)).or_default();
            *in_flight += ip_bytes;
            let bytes = *in_flight;
            state.endpoint.link_mut(link).handle_in_flight(self.now, class, bytes);
        }
        if stuck {
            return;
        }
        let state = &mut self.nodes[node];
        let airtime = Duration::from_nanos(ip_bytes as u64 * 8_000_000_000 / state.pipe.rate_bps);
        let departs = state.busy_until.max(self.now) + airtime;
        state.busy_until = departs;
        let pipe = state.pipe.clone();
        if let Some(link) = link {
            let departs = if pipe.is_far { self.now } else { departs };
            self.plan(departs, Scheduled::Departed { node, link, class, bytes: ip_bytes });
        }
        let leads = |n: &Node| match &n.translator {
            Some(translator) => translator.owns_address(to),
            None => n.address == to,
        };
        let target = self.nodes.iter().position(leads);
        let is_unwanted = priority.is_some() && priority == pipe.lost_priority;
        let is_dropped = is_unwanted || datagram.len() > pipe.longest;
        let lost = pipe.cut || is_dropped || self.rng.chance(pipe.loss);
        let arrives = target.filter(|_| !lost).zip((pipe.ecn)(ecn));
        let inside = self.nodes[node].address;
        let from =
            self.nodes[node].translator.as_mut().map_or(inside, |it| it.translate_outgoing(to));
        let Some((target, ecn)) = arrives else { return };
        let between = |it: &&(usize, usize, f64)| (it.0, it.1) == (node, target);
        let loss = self.losses.iter().find(between).map_or(0.0, |it| it.2);
        if loss > 0.0 && self.rng.chance(loss) {
            return;
        }
        let copies = 1 + usize::from(self.rng.chance(pipe.duplicate));
        for _ in 0..copies {
            let mut at = departs + pipe.delay;
            if self.rng.chance(pipe.reorder) {
                let span = pipe.reorder_by.as_nanos() as u64;
                at = at + Duration::from_nanos(self.rng.below(span));
            }
            let datagram = datagram.clone();
            self.plan(at, Scheduled::Arrives { node: target, from, to, ecn, datagram });
        }
    }

    fn plan(&mut self, at: Instant, what: Scheduled) {
        self.order += 1;
        self.planned.push(Planned { at, order: self.order, what });
    }

    /// Lets time pass in steps until `done`; returns whether that was within `limit`.
    pub fn run_until_done(
        &mut self,
        step: Duration,
        limit: Duration,
        mut done: impl FnMut(&Net) -> bool,
    ) -> bool {
        let end = self.now + limit;
        while !done(self) {
            if self.now >= end {
                return false;
            }
            self.run(step);
        }
        true
    }

    /// Checks that every accepted message is accounted for, on every channel of a node.
    pub fn check_conservation(&self, node: usize, peer: PeerId, channels: &[ChannelId]) {
        for &channel in channels {
            let (_, _, stats) = self.nodes[node].endpoint.peer(peer).channel_out(channel).unwrap();
            assert!(stats.adds_up(), "{stats:?}");
        }
    }
}

/// Returns a payload that contains its number and differs from shifted copies of other payloads.
pub fn payload(number: u32, len: usize) -> Vec<u8> {
    let mut rng = Rng(u64::from(number) << 32 | len as u64);
    let mut bytes: Vec<u8> = (0..len).map(|_| rng.draw() as u8).collect();
    if len >= 4 {
        bytes[..4].copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

pub fn number_of(payload: &[u8]) -> u32 {
    u32::from_le_bytes(payload[..4].try_into().unwrap())
}
