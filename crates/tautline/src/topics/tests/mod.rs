// SPDX-License-Identifier: Apache-2.0
//! The exchange between real protocol endpoints, in virtual time.

mod audit;
mod checked;
mod frames;
mod goals;
mod incoming;
mod kept;
mod outgoing;
mod own;
mod recent;
mod reload;
mod rights;
mod services;
mod shown;
mod stamps;
mod transforms;
mod translation;
mod watchdogs;

use super::imports::safe::safe_message;
use super::{ChannelKey, Context, Exchange, Order, Shared, Topics};
use crate::codec::JobResult;
use crate::codec::Worker;
use crate::codec::job::Job;
use crate::config::{self, Surroundings};
use crate::treatment::peer_names::Accept;
use bytes::Bytes;
use std::net::SocketAddr;
use tautline_gateway::pattern::Pattern;
use tautline_gateway::types::definition::Schema;
use tautline_gateway::types::hash::type_hash;
use tautline_gateway::types::installed::InstalledTypes;
use tautline_gateway::types::translate::{dialect_of, localize};
use tautline_gateway::{Command, Event, Kept, Origin, Qos, Source, Topic};
use tautline_proto::{
    Duration, Endpoint, Instant, LinkConfig, PeerId, RadioConfig, RadioId, SecretKey,
};

const SECOND: Duration = Duration::from_secs(1);
/// Time after which a topic without subscribers is no longer read.
const PAST_UNSUBSCRIBE_DELAY: Duration = Duration::from_secs(12);
const STRING: &str = "std_msgs/String";

/// One node. Commands to its gateway are recorded; the test gives it the gateway's events.
struct Side {
    endpoint: Endpoint,
    topics: Topics,
    shared: Shared,
    config: config::Config,
    commands: Vec<Command>,
    /// Whether packets to this node are lost on the way.
    drops_incoming: bool,
}

impl Side {
    /// Does a piece of work at `now`.
    fn with<T>(
        &mut self,
        now: Instant,
        work: impl FnOnce(&mut Topics, &mut Context<'_>) -> T,
    ) -> T {
        work(&mut self.topics, &mut self.shared.context(now, &mut self.endpoint))
    }

    fn exchange(&self) -> Exchange<'_> {
        Exchange { endpoint: &self.endpoint, topics: &self.topics, shared: &self.shared }
    }

    fn on_local(&mut self, now: Instant, event: Event) {
        self.with(now, |topics, cx| topics.on_local(cx, event));
    }

    fn on_remote(&mut self, now: Instant, event: tautline_proto::Event) {
        self.with(now, |topics, cx| topics.on_remote(cx, event));
    }

    fn on_codec(&mut self, now: Instant, done: JobResult) {
        self.with(now, |topics, cx| topics.on_codec(cx, done));
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.with(now, |topics, cx| topics.handle_timeout(cx));
    }

    fn sweep(&mut self, now: Instant) {
        self.with(now, |topics, cx| topics.sweep(cx));
    }
}

struct World {
    now: Instant,
    sides: Vec<Side>,
    seed: u64,
    /// The message types installed at all nodes.
    installed: InstalledTypes,
    /// A change that is applied to each configuration after parsing.
    change: fn(&mut config::Config),
}

fn address(side: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, side as u8 + 1], 18470))
}

fn topic(name: &str, type_name: &str) -> Topic {
    Topic {
        name: name.into(),
        type_name: type_name.into(),
        type_hash: format!("hash-of-{type_name}"),
        definition: "".into(),
        qos: Qos::default(),
    }
}

/// A topic whose definition is `text`.
fn defined(name: &str, type_name: &str, text: &str) -> Topic {
    let schema = Schema::parse(type_name, text, dialect_of(type_name)).unwrap();
    let type_hash = type_hash(&schema);
    Topic { type_hash, definition: text.into(), ..topic(name, type_name) }
}

fn latched(name: &str) -> Topic {
    Topic { qos: Qos { transient_local: true, ..Qos::default() }, ..topic(name, STRING) }
}

/// Describes a command briefly, for comparisons.
fn describe_command(command: &Command) -> String {
    match command {
        Command::Subscribe { topic } => format!("subscribe {topic}"),
        Command::Unsubscribe { topic } => format!("unsubscribe {topic}"),
        Command::Advertise { topic } => format!("advertise {} {}", topic.name, topic.type_name),
        Command::Unadvertise { topic } => format!("unadvertise {topic}"),
        Command::Forget { topic, source } => {
            format!("forget {topic} {}", source.map_or("all".into(), |it| it.number.to_string()))
        }
        Command::Publish { topic, source, payload, .. } => {
            let text = String::from_utf8_lossy(payload);
            let from = match source.peer {
                None => "here:".into(),
                Some(0) => String::new(),
                Some(peer) => format!("{peer}:"),
            };
            format!("publish {topic} {from}{} {text}", source.number)
        }
        other => format!("{other:?}"),
    }
}

/// Changes a configuration so that it accepts everything that peers advertise, and lets them call
/// every service.
fn trust_peers(config: &mut config::Config) {
    let all = || Pattern::new("/**").unwrap();
    for peer in &mut config.peers {
        if peer.names.accept.is_empty() {
            peer.names.accept.push(Accept { pattern: all(), types: Vec::new() });
        }
        if peer.call.is_empty() {
            peer.call.push(all());
        }
    }
}

impl World {
    /// Creates nodes from their files. Each node has all other nodes that its file names as peers,
    /// and trusts those for which the file states no rights.
    fn new(files: &[&str]) -> Self {
        Self::from_files(files, trust_peers)
    }

    /// Creates a pair of nodes that have only the rights that the files state.
    fn strict_pair(robot: &str, base: &str) -> Self {
        let robot = format!("name: robot\n{robot}\n");
        let base = format!("name: base\n{base}\n");
        Self::from_files(&[&robot, &base], |_| {})
    }

    pub(super) fn from_files(files: &[&str], change: fn(&mut config::Config)) -> Self {
        let mut world = Self {
            now: Instant(1_000_000_000),
            sides: Vec::new(),
            seed: 1,
            installed: InstalledTypes::default(),
            change,
        };
        for file in files {
            let file = format!("security: none\n{file}");
            let mut config = config::parse(&file, &Surroundings::default()).unwrap().config;
            change(&mut config);
            let side = world.side(config);
            world.sides.push(side);
        }
        for side in 0..files.len() {
            world.add_links(side);
        }
        world.run(2 * SECOND);
        world
    }

    /// Creates the nodes `robot` (0) and `base` (1). The arguments add lines to their files.
    fn pair(robot: &str, base: &str) -> Self {
        let robot = format!("name: robot\n{robot}\n");
        let base = format!("name: base\n{base}\n");
        Self::new(&[&robot, &base])
    }

    fn side(&mut self, config: config::Config) -> Side {
        self.seed += 1000;
        let mut seed = self.seed;
        let random = move || {
            seed += 1;
            seed
        };
        let protocol = tautline_proto::Config {
            max_message: config.limits.max_message,
            ..tautline_proto::Config::new(&config.name, SecretKey::insecure(&config.name))
        };
        let mut endpoint = Endpoint::new(protocol, Box::new(random)).unwrap();
        endpoint.add_radio(RadioConfig::default());
        let (topics, shared) = (Topics::new(&config), Shared::new(&config));
        Side { endpoint, topics, shared, config, commands: Vec::new(), drops_incoming: false }
    }

    fn add_links(&mut self, side: usize) {
        for peer in self.sides[side].config.peers.clone() {
            let endpoint = &self.sides[side].endpoint;
            if endpoint.peers().any(|id| endpoint.peer(id).key == peer.key) {
                continue;
            }
            let other = self.sides.iter().position(|s| s.config.name == peer.name).unwrap();
            let endpoint = &mut self.sides[side].endpoint;
            let id = endpoint.add_peer(&peer.name, peer.key).unwrap();
            let remote = Some(address(other));
            let link =
                LinkConfig { remote, datagram_bytes: 1472, header_bytes: 28, metered: false };
            endpoint.peer_mut(id).add_link(self.now, RadioId(0), link).unwrap();
        }
    }

    /// Replaces the file of a node, as the driver does.
    fn reload(&mut self, side: usize, lines: &str) {
        let now = self.now;
        let name = self.sides[side].config.name.clone();
        let file = format!("security: none\nname: {name}\n{lines}\n");
        let mut new = config::parse(&file, &Surroundings::default()).unwrap().config;
        (self.change)(&mut new);
        let old = std::mem::replace(&mut self.sides[side].config, new.clone());
        for gone in old.peers.iter().filter(|it| new.peers.iter().all(|new| new.key != it.key)) {
            let side = &mut self.sides[side];
            let mut peers = side.endpoint.peers();
            let id = peers.find(|id| side.endpoint.peer(*id).key == gone.key).unwrap();
            side.with(now, |topics, cx| topics.remove_peer(cx, id));
            side.endpoint.peer_mut(id).remove(now);
        }
        self.add_links(side);
        self.sides[side].with(now, |topics, cx| topics.reconfigure(cx, &old, &new));
        self.run(Duration::from_millis(100));
    }

    /// Restarts a node, as after a crash.
    fn restart(&mut self, side: usize) {
        let config = self.sides[side].config.clone();
        self.sides[side] = self.side(config);
        self.add_links(side);
    }

    /// Delivers everything that is queued, without time passing.
    fn settle(&mut self) {
        while (0..self.sides.len()).any(|side| self.drain(side)) {}
    }

    fn drain(&mut self, index: usize) -> bool {
        let now = self.now;
        let mut busy = false;
        while let Some(transmit) = self.sides[index].endpoint.poll_transmit(now) {
            busy = true;
            if let Some(link) = transmit.link {
                self.sides[index].endpoint.link_mut(link).handle_in_flight(now, transmit.class, 0);
            }
            let to = (0..self.sides.len()).find(|s| address(*s) == transmit.remote);
            if let Some(to) = to.filter(|to| !self.sides[*to].drops_incoming) {
                let (from, bytes) = (address(index), &transmit.datagram);
                self.sides[to].endpoint.handle_packet(now, RadioId(0), from, bytes);
            }
        }
        let side = &mut self.sides[index];
        while let Some(event) = side.endpoint.poll_event() {
            busy = true;
            side.on_remote(now, event);
        }
        while let Some(order) = side.shared.poll_order() {
            busy = true;
            match order {
                Order::Gateway(command) => side.commands.push(command),
                Order::Codec(job) => {
                    let ros = side.config.ros().map(|(own, _)| (own, self.installed.clone()));
                    let worker = Worker::new(side.config.limits.max_message, ros);
                    if let Some(done) = worker.run(job) {
                        side.on_codec(now, done);
                    }
                }
            }
        }
        busy
    }

    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        let mut next_sweep = self.now + SECOND;
        self.settle();
        loop {
            let timers = self
                .sides
                .iter()
                .flat_map(|s| [s.endpoint.poll_timeout(), s.topics.poll_timeout()]);
            let next = timers.flatten().chain([next_sweep]).min().unwrap_or(end);
            if next > end {
                break;
            }
            self.now = self.now.max(next);
            for side in &mut self.sides {
                side.endpoint.handle_timeout(self.now);
                side.handle_timeout(self.now);
                if self.now >= next_sweep {
                    side.sweep(self.now);
                }
            }
            if self.now >= next_sweep {
                next_sweep = self.now + SECOND;
            }
            self.settle();
        }
        self.now = end;
    }

    /// Passes an event of a node's gateway to the node.
    fn inject(&mut self, side: usize, event: Event) {
        let side = &mut self.sides[side];
        side.on_local(self.now, event);
        self.run(Duration::from_millis(100));
    }

    fn wants(&mut self, side: usize, topic: &str, wanted: bool) {
        self.inject(side, Event::Wanted { topic: topic.into(), wanted });
    }

    fn publishes(&mut self, side: usize, topic: &str, source: u32, text: &str) {
        let message = self.message(side, topic, source, text.as_bytes());
        self.inject(side, message);
    }

    /// A message of a publisher whose QoS is exactly that of its topic.
    fn message(&self, side: usize, topic: &str, source: u32, payload: &[u8]) -> Event {
        let local = self.sides[side].topics.exported_topics().get(topic);
        let qos = local.map(|local| local.topic.qos).filter(|qos| qos.transient_local);
        let origin = qos.map(|qos| kept_origin(qos.depth, source, payload)).unwrap_or_default();
        message_of(topic, source, payload, origin)
    }

    /// Returns the commands to a node's gateway since the last call.
    fn take_commands(&mut self, side: usize) -> Vec<String> {
        self.settle();
        std::mem::take(&mut self.sides[side].commands).iter().map(describe_command).collect()
    }

    fn notices(&self, side: usize) -> Vec<String> {
        self.sides[side].shared.notices.texts(self.now)
    }

    fn sweep(&mut self, side: usize) {
        let now = self.now;
        self.sides[side].sweep(now);
    }

    /// Whether one notice of a node contains all of `words`.
    fn has_notice(&self, side: usize, words: &[&str]) -> bool {
        self.notices(side).iter().any(|n| words.iter().all(|word| n.contains(word)))
    }
}

fn message(topic: &str, source: u32, payload: &[u8]) -> Event {
    message_of(topic, source, payload, Origin::default())
}

/// The origin of a message whose publisher keeps `depth` of them.
fn kept_origin(depth: u32, source: u32, payload: &[u8]) -> Origin {
    let identity = tautline_gateway::identity(&(source, payload));
    let kept = Some(Kept { identity, depth, ..Kept::default() });
    Origin { kept, ..Origin::default() }
}

fn message_of(topic: &str, source: u32, payload: &[u8], origin: Origin) -> Event {
    Event::Message {
        topic: topic.into(),
        source: Source::local(source),
        payload: Bytes::copy_from_slice(payload),
        origin,
        received: std::time::Instant::now(),
    }
}

/// In a pair, the only peer of each side.
const ONLY_PEER: PeerId = PeerId(0);
