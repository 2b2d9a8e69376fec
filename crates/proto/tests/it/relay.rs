// SPDX-License-Identifier: Apache-2.0
//! Nodes that reach each other through relays.

use tautline_proto::stats::{DropReason, RefusedPacket};
use tautline_proto::{ChannelId, Event, Instant, Notice, PeerId, Received, Rights};
use tautline_testkit::net::*;

const MBPS_6: u64 = 6_000_000;
const RELAYED: Rights = Rights { relayed: true, max_priority: 255 };

/// Nodes in a row, each with its neighbours as peers; each may have the others relay its packets.
fn row(seed: u64, names: &[&str], pipe: &Pipe) -> Net {
    let mut net = Net::new(seed);
    for name in names {
        net.add(name, defaults(), pipe.clone());
    }
    for node in 1..names.len() {
        let (left, right) = net.join(node - 1, node);
        net.nodes[node - 1].endpoint.peer_mut(left).set_rights(RELAYED);
        net.nodes[node].endpoint.peer_mut(right).set_rights(RELAYED);
    }
    net
}

/// Robot, relay and base. Also returns the base's id at the robot, and the robot's id at the base.
fn three(seed: u64, pipe: &Pipe) -> (Net, PeerId, PeerId) {
    let mut net = row(seed, &["robot", "relay", "base"], pipe);
    let base = net.add_peer_through(0, 2, &[PeerId(0)]);
    let robot = net.add_peer_through(2, 0, &[PeerId(0)]);
    net.run(1500 * MS);
    assert!(net.nodes[0].endpoint.peer(base).up && net.nodes[2].endpoint.peer(robot).up);
    (net, base, robot)
}

fn numbers(net: &Net, node: usize, channel: ChannelId) -> Vec<u32> {
    let of = net.nodes[node].received.iter().filter(|r| r.2 == channel);
    of.map(|r| number_of(&r.3.payload)).collect()
}

#[test]
fn messages_of_all_sizes_pass_in_both_directions() {
    let (mut net, base, robot) = three(1, &Pipe::with_rate(MBPS_6));
    let there = net.open(0, base, channel(topic("/image", 20)));
    let back = net.open(2, robot, channel(topic("/cmd_vel", 220)));
    for n in 0..20 {
        net.send(0, base, there, payload(n, 4 + n as usize * 3000));
        net.send(2, robot, back, payload(n, 100));
        net.run(300 * MS);
    }
    assert_eq!(numbers(&net, 2, there), (0..20).collect::<Vec<_>>());
    assert_eq!(numbers(&net, 0, back), (0..20).collect::<Vec<_>>());
    net.check_conservation(0, base, &[there]);
    for peer in [PeerId(0), PeerId(1)] {
        assert!(net.nodes[1].endpoint.peer(peer).relayed().adds_up());
        assert!(net.nodes[1].endpoint.peer(peer).relayed().delivered > 20);
    }
}

#[test]
fn a_kilobyte_message_carries_at_most_80_bytes() {
    let (mut net, base, _) = three(2, &Pipe::with_rate(MBPS_6));
    let laser = net.open(0, base, channel(topic("/scan", 200)));
    for n in 0..300 {
        net.send(0, base, laser, payload(n, 1024));
        net.run(20 * MS);
    }
    for node in 0..2 {
        net.nodes[node].sent.clear();
    }
    net.send(0, base, laser, payload(300, 1024));
    net.run(50 * MS);
    for node in 0..2 {
        let longest = net.nodes[node].sent.iter().map(|t| t.datagram.len()).max().unwrap();
        assert!(longest - 1024 <= 80, "node {node}: {} bytes", longest - 1024);
    }
}

#[test]
fn urgent_messages_overtake_at_every_hop_and_the_queue_stays_at_the_sender() {
    // The second hop is the slow one.
    let (mut net, base, _) = three(3, &Pipe::with_rate(MBPS_6));
    net.nodes[1].pipe.rate_bps = 2_000_000;
    let laser = net.open(0, base, channel(topic("/scan", 200)));
    let bulk = net.open(0, base, channel(topic("/bulk", 10)));
    let (mut worst_at_relay, mut sent_at) = (0, Vec::new());
    for n in 0..200 {
        sent_at.push(net.now);
        net.send(0, base, bulk, payload(n, 15_000));
        net.send(0, base, laser, payload(n, 1000));
        for _ in 0..4 {
            net.run(5 * MS);
            let queued = net.nodes[1].endpoint.peer(PeerId(1)).queued_bytes;
            worst_at_relay = worst_at_relay.max(queued);
        }
    }
    net.run(2000 * MS);
    let of_laser = net.nodes[2].received.iter().filter(|r| r.2 == laser);
    let delay = |r: &(Instant, PeerId, ChannelId, Received)| {
        r.0.since(sent_at[number_of(&r.3.payload) as usize])
    };
    let mut ages: Vec<_> = of_laser.map(delay).collect();
    assert_eq!(ages.len(), 200);
    ages.sort_unstable();
    // At each hop, two packets are ahead, and the laser's own packet takes airtime: 12 + 4 ms, then
    // 4 + 1.5 ms.
    assert!(ages[190] < 30 * MS, "{:?}", ages[190]);
    assert!(worst_at_relay < 12_000, "{worst_at_relay} bytes wait at the relay");
    let dropped = net.nodes[1].endpoint.peer(PeerId(1)).relayed().dropped.total();
    assert_eq!(dropped, 0, "nothing is dropped on the path");
    let carried = net.nodes[2].received.iter().filter(|r| r.2 == bulk).count() * 15_000;
    // The relay's 2 Mbps carry 1.2 MB in this time: the laser takes 0.2, acknowledgements 0.17, headers 0.1
    // MB.
    assert!(carried > 600_000, "{carried} bytes of bulk");
}

#[test]
fn losses_are_repaired_on_their_own_hop() {
    let (mut net, base, _) = three(4, &Pipe::lossy(MBPS_6, 0.05));
    let image = net.open(0, base, channel(topic("/image", 20)));
    for n in 0..30 {
        net.send(0, base, image, payload(n, 30_000));
        net.run(250 * MS);
    }
    net.run(3000 * MS);
    let mut got = numbers(&net, 2, image);
    got.sort_unstable();
    assert_eq!(got, (0..30).collect::<Vec<_>>(), "each once");
    net.check_conservation(0, base, &[image]);
}

#[test]
fn a_chain_of_three_hops_works_and_another_route_takes_over_when_a_relay_dies() {
    // robot - a - b - base, and robot - c - base.
    let mut net = row(5, &["robot", "a", "b", "base"], &Pipe::with_rate(MBPS_6));
    let c = net.add("c", defaults(), Pipe::with_rate(MBPS_6));
    let (robot_c, c_robot) = net.join(0, c);
    let (base_c, c_base) = net.join(3, c);
    for (node, peer) in [(0, robot_c), (c, c_robot), (3, base_c), (c, c_base)] {
        net.nodes[node].endpoint.peer_mut(peer).set_rights(RELAYED);
    }
    // The relays know the ends, because the ends are their neighbours.
    net.add_peer_through(1, 3, &[PeerId(1)]);
    net.add_peer_through(2, 0, &[PeerId(0)]);
    let base = net.add_peer_through(0, 3, &[PeerId(0), robot_c]);
    let robot = net.add_peer_through(3, 0, &[PeerId(0), base_c]);
    for node in [0, 3] {
        let peers: Vec<_> = net.nodes[node].endpoint.peers().collect();
        for peer in peers {
            net.nodes[node].endpoint.peer_mut(peer).set_rights(RELAYED);
        }
    }
    for node in [1, 2] {
        let peers: Vec<_> = net.nodes[node].endpoint.peers().collect();
        for peer in peers {
            net.nodes[node].endpoint.peer_mut(peer).set_rights(RELAYED);
        }
    }
    net.run(2000 * MS);
    assert!(net.nodes[0].endpoint.peer(base).up && net.nodes[3].endpoint.peer(robot).up);
    let scan = net.open(0, base, channel(topic("/scan", 200)));
    for n in 0..50 {
        net.send(0, base, scan, payload(n, 1000));
        net.run(20 * MS);
    }
    assert_eq!(numbers(&net, 3, scan).len(), 50);
    let through_a = net.nodes[1].endpoint.peer(PeerId(1)).relayed().delivered;
    assert!(through_a >= 50, "the first route of the configuration: {through_a}");
    // The relay a is silent from here on.
    net.nodes[1].pipe.cut = true;
    net.nodes[0].pipe.cut = false;
    let died = net.now;
    for n in 50..150 {
        net.send(0, base, scan, payload(n, 1000));
        net.run(20 * MS);
    }
    let after = net.nodes[3].received.iter().find(|r| r.2 == scan && number_of(&r.3.payload) > 55);
    let after = after.unwrap().0.since(died);
    assert!(after < 1500 * MS, "{after:?}");
    let mut got = numbers(&net, 3, scan);
    got.sort_unstable();
    got.dedup();
    assert_eq!(got.len(), numbers(&net, 3, scan).len(), "nothing twice");
    assert!(got.len() >= 140, "{} of 150", got.len());
}

#[test]
fn a_stalled_relayed_link_recovers() {
    // Heartbeats are more frequent than their acknowledgements.
    let (mut net, base, _) = three(16, &Pipe::with_rate(MBPS_6));
    let scan = net.open(0, base, channel(topic("/scan", 200)));
    for node in &mut net.nodes {
        node.pipe.delay = 140 * MS;
    }
    net.run(3000 * MS);
    for cut in [true, false] {
        net.nodes[1].pipe.cut = cut;
        net.run(700 * MS);
    }
    net.run(2000 * MS);
    for n in 0..20 {
        net.send(0, base, scan, payload(n, 16));
        net.run(300 * MS);
    }
    assert_eq!(numbers(&net, 2, scan), (0..20).collect::<Vec<_>>());
}

#[test]
fn a_relay_forwards_nothing_without_the_right_and_reports_it() {
    let mut net = row(6, &["robot", "relay", "base"], &Pipe::with_rate(MBPS_6));
    net.nodes[1].endpoint.peer_mut(PeerId(0)).set_rights(Rights::default());
    let base = net.add_peer_through(0, 2, &[PeerId(0)]);
    net.add_peer_through(2, 0, &[PeerId(0)]);
    net.run(2000 * MS);
    assert!(!net.nodes[0].endpoint.peer(base).up);
    let refused = net.nodes[1].endpoint.refused_packets().get(RefusedPacket::NotRelayed);
    assert!(refused > 0);
    let notice = Event::Notice(Notice::NotRelayed { name: "robot".into() });
    assert!(net.nodes[1].events.contains(&notice));
}

#[test]
fn a_relay_limits_the_priority_of_a_sender() {
    let (mut net, base, _) = three(7, &Pipe::with_rate(MBPS_6));
    let clamped = Rights { relayed: true, max_priority: 50 };
    net.nodes[1].endpoint.peer_mut(PeerId(0)).set_rights(clamped);
    net.nodes[1].pipe.rate_bps = 1_000_000;
    let greedy = net.open(0, base, channel(topic("/greedy", 250)));
    // The relay's own messages go to the same base.
    let own = net.open(1, PeerId(1), channel(topic("/own", 100)));
    for n in 0..100 {
        net.send(0, base, greedy, payload(n, 8000));
        net.send(1, PeerId(1), own, payload(n, 1000));
        net.run(20 * MS);
    }
    net.run(500 * MS);
    let of_own = net.nodes[2].received.iter().filter(|r| r.2 == own && r.1 == PeerId(0));
    let mut ages: Vec<_> = of_own.map(|r| r.3.age).collect();
    ages.sort_unstable();
    assert!(ages.len() >= 95, "{}", ages.len());
    // At 1 Mbps, two packets of 1.5 kB are ahead, and the packet itself takes its time.
    assert!(ages[ages.len() * 95 / 100] < 40 * MS, "{ages:?}");
}

#[test]
fn expired_messages_are_dropped_on_the_path() {
    let (mut net, base, _) = three(8, &Pipe::with_rate(MBPS_6));
    let mut short = topic("/scan", 200);
    short.lifespan = Some(100 * MS);
    let scan = net.open(0, base, channel(short));
    net.send(0, base, scan, payload(1, 1000));
    net.run(100 * MS);
    // The second hop is cut after the relay has received the packet.
    net.nodes[1].stuck.push(address(2));
    for n in 2..30 {
        net.send(0, base, scan, payload(n, 1000));
        net.run(20 * MS);
    }
    net.nodes[1].stuck.clear();
    net.run(3000 * MS);
    for (_, _, _, message) in &net.nodes[2].received {
        assert!(message.age <= 100 * MS, "{:?}", message.age);
    }
    let relayed = net.nodes[1].endpoint.peer(PeerId(1)).relayed();
    let dropped = relayed.dropped;
    assert!(relayed.adds_up() && dropped.get(DropReason::Expired) > 0, "{dropped:?}");
}

#[test]
fn packets_in_a_routing_loop_are_dropped() {
    // Each of a and b has the other as the next hop to a base that neither reaches.
    let mut net = row(9, &["a", "b", "robot"], &Pipe::with_rate(MBPS_6));
    let base = net.add("base", defaults(), Pipe::with_rate(MBPS_6));
    net.add_peer_through(0, base, &[PeerId(0)]);
    net.add_peer_through(1, base, &[PeerId(0), PeerId(1)]);
    net.add_peer_through(2, base, &[PeerId(0)]);
    net.run(5000 * MS);
    let refused = |node: usize| {
        let refused = net.nodes[node].endpoint.refused_packets();
        refused.get(RefusedPacket::RelayLoop) + refused.get(RefusedPacket::NoRoute)
    };
    assert!(refused(0) + refused(1) + refused(2) > 0);
    let sent: usize = net.nodes.iter().map(|node| node.sent.len()).sum();
    assert!(sent < 3000, "{sent} packets in 5 s");
}

#[test]
fn restarted_ends_connect_again_through_the_relay() {
    let (mut net, base, _) = three(10, &Pipe::with_rate(MBPS_6));
    let scan = net.open(0, base, channel(topic("/scan", 200)));
    net.restart(2, &[1]);
    net.nodes[2].endpoint.peer_mut(PeerId(0)).set_rights(RELAYED);
    let back = net.now;
    net.add_peer_through(2, 0, &[PeerId(0)]);
    for n in 0..100 {
        let _ = net.try_send(0, base, scan, payload(n, 500));
        net.run(20 * MS);
    }
    let first = net.nodes[2].received.iter().find(|r| r.2 == scan).unwrap().0.since(back);
    assert!(first < 1000 * MS, "{first:?}");
}
