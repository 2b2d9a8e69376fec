// SPDX-License-Identifier: Apache-2.0
//! A seeded swarm: random configurations and faults, then healing. The test compares the messages
//! that were sent with those delivered, independently of the protocol's own counters.
//!
//! `SEED=n cargo test -p tautline-proto --test conservation` repeats one run;
//! `SEEDS=n` runs another number than 200.

mod net;

use net::*;
use std::collections::HashMap;
use tautline_proto::stats::Drops;
use tautline_proto::{
    ChannelConfig, ChannelId, Config, Duration, Instant, Message, PeerId, Received,
};

const P: PeerId = PeerId(0);
const SEEDS: u64 = 200;
const NODES: usize = 2;
/// Limit of bytes that a run sends in its fault phase, so that 200 runs take seconds.
const MAX_PHASE_BYTES: usize = 400_000;
/// Most bytes between the building of a packet and its end on the air: the in-flight budget, and
/// packets without messages, to which the budget does not apply.
const MAX_AHEAD_BYTES: u64 = 6_000;

#[expect(clippy::disallowed_methods, reason = "a failed run is repeated by its seed")]
fn seeds() -> Vec<u64> {
    match std::env::var("SEED") {
        Ok(seed) => vec![seed.parse().expect("SEED is a number")],
        Err(_) => (1..=std::env::var("SEEDS").map_or(SEEDS, |n| n.parse().unwrap())).collect(),
    }
}

/// Prints the seed of a run that fails.
struct Naming(u64);

impl Drop for Naming {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with SEED={}", self.0);
        }
    }
}

fn pick<T: Copy>(rng: &mut Rng, choices: &[T]) -> T {
    choices[rng.below(choices.len() as u64) as usize]
}

fn random_pipe(rng: &mut Rng) -> Pipe {
    Pipe {
        rate_bps: pick(rng, &[500_000, 1_000_000, 6_000_000, 20_000_000]),
        delay: Duration::from_micros(pick(rng, &[100, 2_000, 30_000])),
        loss: pick(rng, &[0.0, 0.01, 0.05, 0.2]),
        duplicate: pick(rng, &[0.0, 0.05, 0.2]),
        reorder: pick(rng, &[0.0, 0.1, 0.3]),
        reorder_by: MS * pick(rng, &[1, 5, 20]),
        ..Pipe::of(0)
    }
}

fn random_config(rng: &mut Rng) -> Config {
    Config {
        max_message: 250_000,
        queue_bytes: pick(rng, &[50_000, 300_000, 16_000_000]),
        queue_time: MS * pick(rng, &[200, 1000, 2000]),
        reassembly_bytes: pick(rng, &[300_000, 16_000_000]),
        repair_percent: pick(rng, &[10, 30, 100]),
        ..defaults()
    }
}

fn random_channel(rng: &mut Rng, name: &str) -> ChannelConfig {
    let mut topic = topic(name, rng.below(256) as u8);
    topic.keep_last = pick(rng, &[1, 2, 10, 1000]);
    topic.lifespan = pick(rng, &[None, Some(50), Some(300), Some(2000)]).map(|ms| MS * ms);
    // A type of its own, so that the definition is requested.
    topic.type_name = format!("pkg{name}");
    let definition = "x".repeat(pick(rng, &[0, 500, 60_000])).into();
    let thin = topic.priority.is_multiple_of(4);
    ChannelConfig { topic, definition, repair: !rng.chance(0.2), thin }
}

/// A message as it was sent.
struct Sent {
    node: usize,
    channel: ChannelId,
    source: u32,
    len: usize,
    at: Instant,
    lifespan: Option<Duration>,
    received_packets: u32,
}

/// A topic of one node.
struct Topic {
    id: ChannelId,
    config: ChannelConfig,
    max_len: usize,
    accepted: u64,
}

struct Swarm {
    net: Net,
    rng: Rng,
    topics: [Vec<Topic>; NODES],
    sent: Vec<Sent>,
    /// Messages too short for their number: for each byte, the number sent less the number delivered.
    tiny: HashMap<(usize, ChannelId, Vec<u8>), i64>,
    faults: Vec<Pipe>,
}

impl Swarm {
    fn new(seed: u64) -> Self {
        let mut rng = Rng(seed);
        let mut net = Net::new(rng.next());
        let faults: Vec<_> = (0..NODES).map(|_| random_pipe(&mut rng)).collect();
        for (name, pipe) in ["robot", "base"].into_iter().zip(&faults) {
            net.add(name, random_config(&mut rng), pipe.clone());
        }
        net.join(0, 1);
        let mut swarm =
            Self { net, rng, topics: [vec![], vec![]], sent: vec![], tiny: HashMap::new(), faults };
        for node in 0..NODES {
            for n in 0..=swarm.rng.below(3) {
                let config = random_channel(&mut swarm.rng, &format!("/{node}/{n}"));
                let max_len = pick(&mut swarm.rng, &[48, 1000, 20_000, 200_000]);
                let id = swarm.offer(node, &config);
                swarm.topics[node].push(Topic { id, config, max_len, accepted: 0 });
            }
        }
        swarm
    }

    fn offer(&mut self, node: usize, config: &ChannelConfig) -> ChannelId {
        self.net.nodes[node].endpoint.offer(self.net.now, P, config.clone()).unwrap()
    }

    fn send(&mut self, node: usize, topic: usize, len: usize) -> bool {
        let topic = &mut self.topics[node][topic];
        let payload = payload(self.sent.len() as u32, len);
        let (now, channel) = (self.net.now, topic.id);
        let source = self.rng.below(2) as u32;
        let message = Message {
            payload: payload.clone().into(),
            published: now,
            source,
            encoded: source == 1,
        };
        let endpoint = &mut self.net.nodes[node].endpoint;
        // Refused while the peer is away or not subscribed; then the message does not count.
        if endpoint.send(now, P, channel, message).is_err() {
            return false;
        }
        topic.accepted += 1;
        if len < 4 {
            *self.tiny.entry((node, channel, payload)).or_default() += 1;
        }
        let lifespan = topic.config.topic.lifespan;
        self.sent.push(Sent { node, channel, source, len, at: now, lifespan, received_packets: 0 });
        true
    }

    fn run(&mut self, span: Duration) {
        self.net.run(span);
        self.check();
    }

    fn check(&mut self) {
        for node in 0..NODES {
            for (at, _, channel, message) in std::mem::take(&mut self.net.nodes[node].received) {
                self.judge(1 - node, at, channel, &message);
            }
            for topic in &self.topics[node] {
                let (_, _, stats) = self.net.nodes[node].endpoint.channel_out(P, topic.id).unwrap();
                assert!(stats.adds_up(), "{stats:?}");
                assert_eq!(stats.accepted, topic.accepted, "{stats:?}");
            }
        }
    }

    /// Checks a message that came from `node`.
    fn judge(&mut self, node: usize, at: Instant, channel: ChannelId, message: &Received) {
        let Received { payload: bytes, age, .. } = message;
        if bytes.len() < 4 {
            let left = self.tiny.entry((node, channel, bytes.to_vec())).or_default();
            *left -= 1;
            assert!(*left >= 0, "{bytes:?} came more often than it was sent");
            return;
        }
        let number = number_of(bytes);
        let sent = self.sent.get_mut(number as usize).expect("a message that was sent");
        assert_eq!((sent.node, sent.channel), (node, channel), "message {number}");
        assert_eq!((message.source, message.encoded), (sent.source, sent.source == 1));
        assert!(*bytes == payload(number, sent.len), "bytes of message {number} differ");
        sent.received_packets += 1;
        assert_eq!(sent.received_packets, 1, "message {number} came twice");
        let Some(lifespan) = sent.lifespan else { return };
        assert!(*age <= lifespan, "message {number} is said to be {age:?} old");
        let true_age = at.since(sent.at);
        let margin = longest_transit(&self.faults[node]);
        assert!(true_age <= lifespan + margin, "message {number}: {true_age:?} of {lifespan:?}");
    }

    /// One random event of the fault phase.
    fn disturb(&mut self) {
        let node = self.rng.below(NODES as u64) as usize;
        let count = self.topics[node].len() as u64;
        match self.rng.below(100) {
            0..6 => {
                let topic = self.rng.below(count) as usize;
                self.topics[node][topic].config.topic.priority = self.rng.below(256) as u8;
                let Topic { id, config, .. } = &self.topics[node][topic];
                let endpoint = &mut self.net.nodes[node].endpoint;
                endpoint.change_offer(self.net.now, P, *id, config.clone()).unwrap();
            }
            6..12 => self.want_all(node, |rng| rng.chance(0.5)),
            12..15 => self.set_pipes(|_, faults| Pipe { cut: true, ..faults.clone() }),
            15..25 => self.set_pipes(|_, faults| faults.clone()),
            25 => self.restart(node),
            // Long enough for links to go down and for messages to expire.
            26..28 => self.run(MS * pick(&mut self.rng.clone(), &[3000, 12_000])),
            _ => {}
        }
    }

    fn want_all(&mut self, node: usize, mut wanted: impl FnMut(&mut Rng) -> bool) {
        let now = self.net.now;
        let endpoint = &mut self.net.nodes[node].endpoint;
        for channel in endpoint.channels_in(P).collect::<Vec<_>>() {
            endpoint.want(now, P, channel, wanted(&mut self.rng));
        }
    }

    fn set_pipes(&mut self, pipe: impl Fn(usize, &Pipe) -> Pipe) {
        for node in 0..NODES {
            self.net.nodes[node].pipe = pipe(node, &self.faults[node]);
        }
    }

    fn restart(&mut self, node: usize) {
        self.check();
        self.net.restart(node, &[1 - node]);
        for index in 0..self.topics[node].len() {
            let config = self.topics[node][index].config.clone();
            let id = self.offer(node, &config);
            let topic = &mut self.topics[node][index];
            (topic.id, topic.accepted) = (id, 0);
        }
    }

    fn fault_phase(&mut self) {
        let mut bytes = 0;
        for _ in 0..150 {
            self.disturb();
            let node = self.rng.below(NODES as u64) as usize;
            let topic = self.rng.below(self.topics[node].len() as u64) as usize;
            let len = self.rng.below(self.topics[node][topic].max_len as u64 + 1) as usize;
            if bytes + len <= MAX_PHASE_BYTES && self.send(node, topic, len) {
                bytes += len;
            }
            let pause = MS * self.rng.below(20) as u32;
            self.run(pause);
        }
    }

    /// Ends all faults; waits until the nodes agree again and no packet is in flight.
    fn heal(&mut self) {
        self.set_pipes(|_, faults| Pipe {
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            ..faults.clone()
        });
        for _ in 0..2 {
            self.run(MS * 6000);
            (0..NODES).for_each(|node| self.want_all(node, |_| true));
        }
        self.run(MS * 1000);
        for node in 0..NODES {
            for topic in &self.topics[node] {
                let endpoint = &self.net.nodes[node].endpoint;
                let (_, wanted, stats) = endpoint.channel_out(P, topic.id).unwrap();
                assert!(wanted, "{} of node {node} is not wanted", topic.config.topic.name);
                assert!(endpoint.peer(P).up, "node {node} sees its peer: {stats:?}");
            }
        }
        let drained = self.drain(Duration::from_secs(60));
        assert!(drained, "some messages are still open: {:?}", self.open_messages());
        self.check();
    }

    fn drain(&mut self, limit: Duration) -> bool {
        let topics = [0, 1].map(|n: usize| self.topics[n].iter().map(|t| t.id).collect::<Vec<_>>());
        self.net.run_until_done(MS * 10, limit, |net| {
            (0..NODES).all(|n| topics[n].iter().all(|t| settled(net, n, *t)))
        })
    }

    fn open_messages(&self) -> Vec<(usize, &str, u64, u64)> {
        let all = (0..NODES).flat_map(|n| self.topics[n].iter().map(move |t| (n, t)));
        all.map(|(node, topic)| {
            let stats = self.net.nodes[node].endpoint.channel_out(P, topic.id).unwrap().2;
            (node, topic.config.topic.name.as_str(), stats.queued, stats.sent)
        })
        .collect()
    }

    fn drops(&self) -> Vec<(Drops, Drops)> {
        let all = (0..NODES).flat_map(|n| self.topics[n].iter().map(move |t| (n, t.id)));
        all.map(|(node, id)| {
            let out = self.net.nodes[node].endpoint.channel_out(P, id).unwrap().2.dropped;
            let inward = self.net.nodes[1 - node].endpoint.channel_in(P, id).unwrap().2.dropped;
            (out, inward)
        })
        .collect()
    }

    /// The largest message that this topic carries in time when nothing else is sent.
    fn easy_len(&self, node: usize, topic: &Topic) -> usize {
        let lifespan = topic.config.topic.lifespan.unwrap_or(Duration::from_secs(5));
        // The receiver assumes half a round trip for the path.
        let round_trip: Duration = self.faults.iter().map(longest_transit).sum();
        let spare = (lifespan / 2).saturating_sub(round_trip);
        let in_time = (self.faults[node].rate_bps / 8 * spare.as_millis() as u64 / 2000) as usize;
        topic.max_len.min(in_time).min(50_000)
    }

    /// Sends one message at a time over healthy links: each arrives and none is dropped.
    fn clean_phase(&mut self) {
        let before = self.drops();
        let first = self.sent.len();
        for round in 0..6 {
            for node in 0..NODES {
                for index in 0..self.topics[node].len() {
                    let len = self.easy_len(node, &self.topics[node][index]) * round / 5;
                    if len == 0 {
                        continue;
                    }
                    assert!(self.send(node, index, len), "a wanted channel takes messages");
                    assert!(self.drain(Duration::from_secs(20)), "{:?}", self.open_messages());
                }
            }
        }
        self.run(MS * 100);
        assert_eq!(self.drops(), before, "drops of sender and receiver");
        let missing: Vec<_> = (first..self.sent.len())
            .filter(|n| self.sent[*n].received_packets == 0 && self.sent[*n].len >= 4)
            .collect();
        assert!(missing.is_empty(), "messages {missing:?} did not arrive");
    }
}

fn settled(net: &Net, node: usize, channel: ChannelId) -> bool {
    let (_, _, stats) = net.nodes[node].endpoint.channel_out(P, channel).unwrap();
    stats.queued == 0 && stats.sent == 0
}

fn longest_transit(pipe: &Pipe) -> Duration {
    let airtime = Duration::from_micros(MAX_AHEAD_BYTES * 8_000_000 / pipe.rate_bps);
    airtime + pipe.delay + pipe.reorder_by + MS
}

#[test]
fn whatever_happens_every_message_is_accounted_for_and_healing_is_complete() {
    for seed in seeds() {
        let _naming = Naming(seed);
        let mut swarm = Swarm::new(seed);
        swarm.run(MS * 1500);
        swarm.fault_phase();
        swarm.heal();
        swarm.clean_phase();
    }
}

#[test]
fn a_clean_run_below_the_rate_drops_nothing() {
    for seed in seeds().into_iter().take(40) {
        let _naming = Naming(seed);
        let mut swarm = Swarm::new(seed);
        for pipe in &mut swarm.faults {
            (pipe.loss, pipe.duplicate, pipe.reorder) = (0.0, 0.0, 0.0);
        }
        swarm.set_pipes(|_, faults| faults.clone());
        swarm.run(MS * 3000);
        let share = swarm.topics.iter().map(Vec::len).max().unwrap_or(1);
        for _ in 0..20 {
            for node in 0..NODES {
                for index in 0..swarm.topics[node].len() {
                    // All topics of a node together take at most a quarter of the rate that suits one.
                    let len = swarm.easy_len(node, &swarm.topics[node][index]) / share / 4;
                    if len >= 4 {
                        assert!(swarm.send(node, index, len));
                    }
                }
            }
            swarm.run(MS * 1000);
        }
        assert!(swarm.drain(Duration::from_secs(5)), "{:?}", swarm.open_messages());
        swarm.check();
        let none = vec![Default::default(); swarm.drops().len()];
        assert_eq!(swarm.drops(), none, "drops of sender and receiver");
        assert!(swarm.sent.iter().all(|s| s.received_packets == 1), "each message came once");
        for node in &swarm.net.nodes {
            assert_eq!(
                node.endpoint.refused_packets().total(),
                0,
                "{:?}",
                node.endpoint.refused_packets()
            );
        }
    }
}
