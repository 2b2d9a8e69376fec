// SPDX-License-Identifier: Apache-2.0
//! Peers without an address find each other by beacons, and false beacons do no harm.

use std::net::SocketAddr;
use tautline_proto::stats::RefusedPacket;
use tautline_proto::wire::beacon::{MAX_TAGS, TAG};
use tautline_proto::wire::packet::Packet;
use tautline_proto::{Event, LinkConfig, LinkId, PeerId, RadioId, SecretKey};
use tautline_testkit::net::*;

const P: PeerId = PeerId(0);
const L: LinkId = LinkId(0);

/// Makes `name` a peer of a node, with a known address or without one.
fn add(net: &mut Net, node: usize, name: &str, remote: Option<SocketAddr>) -> PeerId {
    let (now, endpoint) = (net.now, &mut net.nodes[node].endpoint);
    let peer = endpoint.add_peer(name, SecretKey::insecure(name).public()).unwrap();
    let link = LinkConfig { remote, datagram_bytes: DATAGRAM, header_bytes: 28, metered: false };
    endpoint.peer_mut(peer).add_link(now, RadioId(0), link).unwrap();
    peer
}

/// `robot` (0) and `base` (1). Each is a peer of the other, without an address.
fn strangers(seed: u64) -> Net {
    let mut net = Net::new(seed);
    for name in ["robot", "base"] {
        net.add(name, defaults(), Pipe::with_rate(6_000_000));
    }
    add(&mut net, 0, "base", None);
    add(&mut net, 1, "robot", None);
    net
}

fn beacon(net: &mut Net, node: usize) -> Vec<u8> {
    net.nodes[node].endpoint.beacon().unwrap()
}

fn tags(datagram: &[u8]) -> Vec<[u8; TAG]> {
    let Ok(Packet::Beacon(beacon)) = Packet::parse(datagram) else { panic!("a beacon") };
    beacon.tags().collect()
}

/// Addresses to which a node has sent since the last call.
fn reached_addresses(net: &mut Net, node: usize) -> Vec<SocketAddr> {
    let mut all: Vec<_> = net.nodes[node].sent.drain(..).map(|it| it.remote).collect();
    all.sort();
    all.dedup();
    all
}

#[test]
fn peers_without_addresses_connect_after_one_beacon() {
    let mut net = strangers(1);
    net.run(5000 * MS);
    assert_eq!(reached_addresses(&mut net, 0), [], "nowhere to call");
    let beacon = beacon(&mut net, 0);
    net.inject(1, address(0), &beacon);
    net.run(100 * MS);
    for node in 0..2 {
        assert!(net.nodes[node].endpoint.peer(P).up, "the call was made at once");
    }
}

#[test]
fn a_stranger_learns_nothing_and_gets_no_initiation() {
    let mut net = strangers(2);
    let other = net.add("other", defaults(), Pipe::with_rate(6_000_000));
    add(&mut net, other, "robot", None);
    let [ours, again, others] = [0, 0, other].map(|node| beacon(&mut net, node));
    assert_ne!(tags(&ours), tags(&again), "two beacons have nothing in common");
    assert_eq!(ours.len(), others.len());
    net.inject(other, address(0), &ours);
    net.inject(0, address(other), &others);
    // A node's own beacon returns when the group has a loop or somebody reflects it.
    net.inject(0, address(1), &ours);
    net.run(2000 * MS);
    assert_eq!(
        (reached_addresses(&mut net, 0), reached_addresses(&mut net, other)),
        (vec![], vec![])
    );
    assert_eq!(net.nodes[0].endpoint.refused_packets().total(), 0, "there may be other teams");
}

#[test]
fn an_established_link_is_not_moved_by_a_beacon() {
    let mut net = Net::pair(3, &Pipe::with_rate(6_000_000));
    let beacon = beacon(&mut net, 1);
    net.nodes[0].events.clear();
    reached_addresses(&mut net, 0);
    net.inject(0, address(9), &beacon);
    net.run(2000 * MS);
    assert_eq!(reached_addresses(&mut net, 0), [address(1)]);
    assert_eq!(net.nodes[0].events, []);
}

#[test]
fn a_peer_that_moved_while_down_is_found_by_its_beacon() {
    let mut net = Net::pair(4, &Pipe::with_rate(6_000_000));
    net.nodes[1].address = address(7);
    // The sender does not know our address.
    net.restart(1, &[]);
    add(&mut net, 1, "robot", None);
    net.run(6000 * MS);
    assert!(!net.nodes[0].endpoint.peer(P).up);
    let beacon = beacon(&mut net, 1);
    net.inject(0, address(7), &beacon);
    net.run(100 * MS);
    assert!(net.nodes[0].endpoint.peer(P).up);
    assert_eq!(net.nodes[0].endpoint.link(L).unwrap().remote, Some(address(7).into()));
}

#[test]
fn a_false_address_is_tried_in_turn_with_the_right_one() {
    for configured in [true, false] {
        let mut net = strangers(5);
        if configured {
            net = Net::pair(5, &Pipe::with_rate(6_000_000));
        } else {
            let beacon = beacon(&mut net, 1);
            net.inject(0, address(1), &beacon);
            net.run(1000 * MS);
        }
        assert!(net.nodes[0].endpoint.peer(P).up);
        for node in &mut net.nodes {
            node.pipe.cut = true;
        }
        net.run(6000 * MS);
        // The beacon is recorded once, and replayed from one false address after another.
        let beacon = beacon(&mut net, 1);
        for at in 10..15 {
            net.inject(0, address(at), &beacon);
            net.run(1000 * MS);
        }
        reached_addresses(&mut net, 0);
        net.run(1000 * MS);
        assert_eq!(reached_addresses(&mut net, 0), [address(1), address(14)], "{configured}");
        // Only this node initiates, because the other node has forgotten it.
        net.restart(1, &[]);
        add(&mut net, 1, "robot", None);
        for node in &mut net.nodes {
            node.pipe.cut = false;
        }
        net.run(2000 * MS);
        assert_eq!(
            net.nodes[0].endpoint.link(L).unwrap().remote,
            Some(address(1).into()),
            "{configured}"
        );
        assert!(net.nodes[0].endpoint.peer(P).up, "{configured}");
    }
}

#[test]
fn a_flood_of_beacons_costs_little_and_causes_few_initiations() {
    let mut net = strangers(6);
    let beacon = beacon(&mut net, 1);
    for at in 0..1000 {
        let from = SocketAddr::from(([10, 9, (at >> 8) as u8, at as u8], 18470));
        net.inject(0, from, &beacon);
    }
    let refused = net.nodes[0].endpoint.refused_packets();
    assert!(refused.get(RefusedPacket::Flood) >= 1000 - 128);
    // Initiations are sent one at a time, because the kernel has not sent the first one.
    assert!((1..=16).contains(&net.nodes[0].sent.len()));
}

#[test]
fn a_flood_of_one_stranger_does_not_hide_other_beacons() {
    let v4 = [SocketAddr::from(([10, 9, 0, 9], 1)), address(1)];
    // All of these addresses are in one network.
    let v6 = ["[fe80::9%2]:1", "[fe80::1%2]:18470"].map(|it| it.parse().unwrap());
    for [stranger, base] in [v4, v6] {
        let mut net = strangers(8);
        let other = net.add("other", defaults(), Pipe::with_rate(6_000_000));
        add(&mut net, other, "nobody", None);
        let [flood, beacon] = [other, 1].map(|node| beacon(&mut net, node));
        for port in 0..1000 {
            net.inject(0, SocketAddr::new(stranger.ip(), port + 1), &flood);
        }
        assert_eq!(net.nodes[0].endpoint.refused_packets().get(RefusedPacket::Flood), 1000 - 4);
        net.inject(0, base, &beacon);
        assert_eq!(reached_addresses(&mut net, 0), [base]);
    }
}

#[test]
fn a_node_with_many_peers_announces_itself_to_them_in_turn() {
    let mut net = Net::new(7);
    let many = net.add("many", defaults(), Pipe::with_rate(6_000_000));
    assert_eq!(net.nodes[many].endpoint.beacon(), None, "nobody to tell");
    let count = 2 * MAX_TAGS + 10;
    for number in 0..count {
        let name = format!("robot{number}");
        net.nodes[many].endpoint.add_peer(&name, SecretKey::insecure(&name).public()).unwrap();
    }
    for number in [0, MAX_TAGS, count - 1] {
        let robot = net.add(&format!("robot{number}"), defaults(), Pipe::with_rate(6_000_000));
        add(&mut net, robot, "many", None);
    }
    for _ in 0..3 {
        let beacon = beacon(&mut net, many);
        assert_eq!(tags(&beacon).len(), MAX_TAGS);
        for robot in 1..net.nodes.len() {
            net.inject(robot, address(many), &beacon);
        }
    }
    for robot in 1..net.nodes.len() {
        assert_eq!(
            net.nodes[robot].endpoint.link(L).unwrap().remote,
            Some(address(many).into()),
            "{robot}"
        );
    }
}

#[test]
fn a_peer_found_by_a_beacon_moves_and_returns_like_any_other() {
    let mut net = strangers(8);
    let beacon = beacon(&mut net, 0);
    net.inject(1, address(0), &beacon);
    net.run(1000 * MS);
    net.nodes[0].address = address(5);
    net.run(2000 * MS);
    let moved = Event::LinkMoved { link: L, to: address(5).into() };
    assert!(net.nodes[1].events.contains(&moved), "{:?}", net.nodes[1].events);
    assert!(net.nodes[1].endpoint.peer(P).up);
}
