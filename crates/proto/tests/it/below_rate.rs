// SPDX-License-Identifier: Apache-2.0
//! Load below the rate: random paths without faults, configurations and topics. The lab's swarm
//! covers faults. It loads healthy paths with one message at a time and has no `thin` topics.

use tautline_proto::{ChannelConfig, ChannelId, Config, Duration, PeerId};
use tautline_testkit::net::*;

const P: PeerId = PeerId(0);
const SEEDS: u64 = 100;
const NODES: usize = 2;
/// Messages of each topic, one each second.
const ROUNDS: usize = 20;
/// Most bytes that are ahead of a packet between its building and its end on the air: the in-flight
/// budget, and packets without messages. The budget does not apply to the latter.
const MAX_AHEAD_BYTES: u64 = 6_000;

fn pick<T: Copy>(rng: &mut Rng, choices: &[T]) -> T {
    choices[rng.below(choices.len() as u64) as usize]
}

fn random_pipe(rng: &mut Rng) -> Pipe {
    Pipe {
        rate_bps: pick(rng, &[500_000, 1_000_000, 6_000_000, 20_000_000]),
        delay: Duration::from_micros(pick(rng, &[100, 2_000, 30_000])),
        ..Pipe::with_rate(0)
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
    // Each topic has a type of its own, so that the definition is requested.
    topic.type_name = format!("pkg{name}");
    let definition = "x".repeat(pick(rng, &[0, 500, 60_000])).into();
    let (repair, thin) = (!rng.chance(0.2), rng.chance(0.25));
    ChannelConfig { definition, repair, thin, ..channel(topic) }
}

fn one_way(pipe: &Pipe) -> Duration {
    Duration::from_micros(MAX_AHEAD_BYTES * 8_000_000 / pipe.rate_bps) + pipe.delay + MS
}

/// The largest message that arrives in time when nothing else is sent.
fn easy_len(net: &Net, node: usize, config: &ChannelConfig) -> usize {
    let lifespan = config.topic.lifespan.unwrap_or(Duration::from_secs(5));
    // The receiver assumes half a round trip for the path.
    let round_trip: Duration = net.nodes.iter().map(|node| one_way(&node.pipe)).sum();
    let spare = (lifespan / 2).saturating_sub(round_trip);
    let in_time = net.nodes[node].pipe.rate_bps / 8 * spare.as_millis() as u64 / 2000;
    (in_time as usize).min(50_000)
}

/// A topic of one node.
struct Topic {
    node: usize,
    id: ChannelId,
    len: usize,
}

fn offer_topics(net: &mut Net, rng: &mut Rng) -> Vec<Topic> {
    let mut topics = Vec::new();
    let counts = [0; NODES].map(|_| 1 + rng.below(3) as usize);
    // All topics of a node together take at most a quarter of the rate that a single topic could
    // use.
    let share = 4 * counts.into_iter().max().unwrap_or(1);
    for (node, count) in counts.into_iter().enumerate() {
        for number in 0..count {
            let config = random_channel(rng, &format!("/{node}/{number}"));
            let most = pick(rng, &[48, 1000, 20_000, 200_000]);
            let len = most.min(easy_len(net, node, &config)) / share;
            let id = net.nodes[node].endpoint.peer_mut(P).offer(net.now, config).unwrap();
            // Messages shorter than four bytes carry no number.
            if len >= 4 {
                topics.push(Topic { node, id, len });
            }
        }
    }
    topics
}

#[test]
fn without_losses_nothing_is_dropped_below_the_rate() {
    for seed in 1..=SEEDS {
        println!("seed {seed}");
        let mut rng = Rng(seed);
        let mut net = Net::new(rng.draw());
        for name in ["robot", "base"] {
            let config = random_config(&mut rng);
            net.add(name, config, random_pipe(&mut rng));
        }
        net.join(0, 1);
        let topics = offer_topics(&mut net, &mut rng);
        let wanted = |net: &Net, Topic { node, id, .. }: &Topic| {
            net.nodes[*node].endpoint.peer(P).channel_out(*id).is_some_and(|(_, wanted, _)| wanted)
        };
        // Definitions of 60 KB take a second each on the slowest path.
        let (step, limit) = (MS * 100, MS * 10_000);
        assert!(net.run_until_done(step, limit, |net| topics.iter().all(|it| wanted(net, it))));
        net.run(MS * 1000);
        for round in 0..ROUNDS {
            for (number, Topic { node, id, len }) in topics.iter().enumerate() {
                let number = round * topics.len() + number;
                net.send(*node, P, *id, payload(number as u32, *len));
            }
            net.run(MS * 1000);
        }
        net.run(MS * 5000);
        for (number, Topic { node, id, len }) in topics.iter().enumerate() {
            let out = *net.nodes[*node].endpoint.peer(P).channel_out(*id).unwrap().2;
            assert!(out.adds_up() && out.delivered == ROUNDS as u64, "{out:?}");
            let inward = *net.nodes[1 - node].endpoint.peer(P).channel_in(*id).unwrap().2;
            assert_eq!(inward.dropped.total(), 0, "{inward:?}");
            let sent = (0..ROUNDS).map(|round| (round * topics.len() + number) as u32);
            let all =
                net.nodes[1 - node].received.iter().filter(|(_, _, channel, _)| channel == id);
            let same = all.map(|it| &it.3.payload[..]).eq(sent.map(|number| payload(number, *len)));
            assert!(same, "each message came once, and unchanged");
        }
        for node in &net.nodes {
            let refused = node.endpoint.refused_packets();
            assert_eq!(refused.total(), 0, "{refused:?}");
        }
    }
}
