// SPDX-License-Identifier: Apache-2.0
//! Forward error correction: parity replaces lost frames where a repair would come too late.

use std::time::Duration;
use tautline_proto::{ChannelConfig, ChannelId, PeerId};
use tautline_testkit::net::*;

const P: PeerId = PeerId(0);

/// A link with a one-way delay of 300 ms that loses a tenth of the packets.
fn satellite(seed: u64) -> Net {
    let mut pipe = Pipe::lossy(2_000_000, 0.1);
    pipe.delay = 300 * MS;
    let mut net = Net::new(seed);
    net.add("robot", defaults(), pipe.clone());
    net.add("base", defaults(), pipe);
    net.join(0, 1);
    net.run(5000 * MS);
    net
}

fn open(net: &mut Net, fec: Option<u8>, repair: bool) -> ChannelId {
    let topic = tautline_proto::OfferedTopic { keep_last: 1000, ..topic("/state", 100) };
    let (now, config) = (net.now, ChannelConfig { fec, repair, ..channel(topic) });
    let channel = net.nodes[0].endpoint.peer_mut(P).offer(now, config).unwrap();
    net.run(10_000 * MS);
    assert!(
        net.nodes[0].endpoint.peer(P).channel_out(channel).unwrap().1,
        "the peer is subscribed"
    );
    channel
}

/// Sends `count` messages of `bytes` bytes at 50 Hz, and waits for their delivery.
fn send(net: &mut Net, topic: ChannelId, count: u32, bytes: usize) {
    for n in 0..count {
        net.send(0, P, topic, payload(n, bytes));
        net.run(20 * MS);
    }
    net.run(12_000 * MS);
}

fn recovered_frames(net: &Net, topic: ChannelId) -> u64 {
    net.nodes[1].endpoint.peer(P).channel_in(topic).unwrap().2.recovered_pieces
}

#[test]
fn parity_recovers_small_messages_before_a_repair_could_arrive() {
    let mut net = satellite(3);
    let topic = open(&mut net, Some(60), false);
    // Rate control finds the rate of the link.
    send(&mut net, topic, 200, 1000);
    let warm = net.nodes[1].received.len() as u64;
    net.nodes[1].received.clear();
    let before = recovered_frames(&net, topic);
    send(&mut net, topic, 1000, 1000);
    let received = &net.nodes[1].received;
    assert!(received.len() >= 998, "{} of 1000", received.len());
    let recovered = recovered_frames(&net, topic) - before;
    assert!((70..130).contains(&recovered), "{recovered}");
    let slowest = received.iter().map(|r| r.3.age).max().unwrap();
    assert!(slowest < 600 * MS, "at most a block of 200 ms later, not a round trip: {slowest:?}");
    let (_, _, stats) = net.nodes[0].endpoint.peer(P).channel_out(topic).unwrap();
    let delivered = stats.delivered - warm;
    assert!(delivered.abs_diff(received.len() as u64) < 5, "the sender knows: {delivered}");
    net.check_conservation(0, P, &[topic]);
}

#[test]
fn packets_beyond_parity_are_repaired() {
    let mut net = satellite(4);
    let topic = open(&mut net, Some(10), true);
    send(&mut net, topic, 500, 1000);
    assert_eq!(net.nodes[1].received.len(), 500);
    assert!(recovered_frames(&net, topic) > 5);
    net.check_conservation(0, P, &[topic]);
}

#[test]
fn fragments_of_large_messages_are_recovered() {
    let mut net = satellite(5);
    let topic = open(&mut net, Some(50), false);
    for n in 0..21 {
        net.send(0, P, topic, payload(n, 200_000));
        net.run(2000 * MS);
        if n == 0 {
            // Rate control finds the rate of the link.
            net.run(5000 * MS);
            net.nodes[1].received.clear();
        }
    }
    net.run(3000 * MS);
    assert_eq!(net.nodes[1].received.len(), 20);
    assert!(recovered_frames(&net, topic) > 200);
    net.check_conservation(0, P, &[topic]);
}

#[test]
fn a_rare_message_does_not_wait_for_others() {
    let mut net = satellite(6);
    let topic = open(&mut net, Some(100), false);
    for n in 0..200 {
        net.send(0, P, topic, payload(n, 200));
        net.run(1000 * MS);
    }
    net.run(2000 * MS);
    let received = &net.nodes[1].received;
    assert!(received.len() >= 194, "{} of 200, 1 % lost", received.len());
    let slowest = received.iter().map(|r| r.3.age).max().unwrap();
    assert!(slowest < Duration::from_millis(600), "{slowest:?}");
}
