// SPDX-License-Identifier: Apache-2.0
//! The MTU of paths between two endpoints: it is found, no message depends on it, and messages continue when
//! it falls.

use tautline_proto::{
    ChannelConfig, Duration, Event, LinkId, LinkView, MtuState, Notice, PeerId, Place, Rights,
};
use tautline_testkit::net;
use tautline_testkit::net::{DATAGRAM, MS, Net, Pipe, address, channel, payload, topic};

const P: PeerId = PeerId(0);
const LINK: LinkId = LinkId(0);
const HEADERS: usize = 28;

fn link(net: &Net, node: usize) -> LinkView<'_> {
    net.nodes[node].endpoint.link(LINK).unwrap()
}

/// Sets the MTU of the paths in both directions.
fn set_mtu(net: &mut Net, mtu: usize) {
    net.nodes.iter_mut().for_each(|node| node.pipe.longest = mtu - HEADERS);
}

fn path_of(mtu: usize) -> Pipe {
    Pipe { longest: mtu - HEADERS, ..Pipe::with_rate(6_000_000) }
}

fn black_holes(net: &Net, node: usize) -> Vec<&Notice> {
    let notices = net.nodes[node].events.iter().filter_map(|event| match event {
        Event::Notice(notice @ Notice::BlackHole { .. }) => Some(notice),
        _ => None,
    });
    notices.collect()
}

fn has_arrived(net: &Net, node: usize, messages: usize) -> bool {
    net.nodes[node].received.len() >= messages
}

#[test]
fn a_full_path_is_found_with_the_first_round_trip() {
    let mut net = Net::new(1);
    let pipe = Pipe { delay: 50 * MS, ..Pipe::with_rate(6_000_000) };
    for name in ["robot", "base"] {
        net.add(name, net::defaults(), pipe.clone());
    }
    net.join(0, 1);
    let is_up = |net: &Net| net.nodes.iter().all(|node| node.endpoint.peer(P).up);
    assert!(net.run_until_done(MS, Duration::from_secs(2), is_up));
    assert_eq!((link(&net, 0).mtu, link(&net, 0).mtu_state), (1228, MtuState::Searching));
    net.run(110 * MS);
    for node in 0..2 {
        assert_eq!((link(&net, node).mtu, link(&net, node).mtu_state), (1500, MtuState::Full));
    }
}

#[test]
fn lost_probes_are_no_losses_of_the_link() {
    let mut net = Net::pair(2, &path_of(1400));
    net.run(Duration::from_secs(3));
    for node in 0..2 {
        let view = link(&net, node);
        assert_eq!((view.mtu, view.mtu_state), (1400, MtuState::Probed));
        // Every loss is spurious: probes of both ends delay an acknowledgement.
        assert_eq!(view.stats.lost_packets, view.stats.spurious_losses);
        assert!(black_holes(&net, node).is_empty());
        let probes = net.nodes[node].sent.iter().filter(|it| it.datagram.len() > 1200).count();
        assert!(probes <= 10, "{probes} probes of 1500, 1492, 1420 and 1400 bytes");
    }
}

#[test]
fn definitions_and_first_messages_need_no_probe() {
    for mtu in [1280, 576, 300] {
        let mut net = Net::pair(3, &path_of(mtu));
        let definition = "x".repeat(5000).into();
        let mut config = ChannelConfig { definition, ..channel(topic("/scan", 200)) };
        config.topic.type_name = "unknown/Type".into();
        let scan = net.open(0, P, config);
        for n in 0..10 {
            net.send(0, P, scan, payload(n, 5000));
        }
        let all = |net: &Net| has_arrived(net, 1, 10);
        assert!(net.run_until_done(10 * MS, Duration::from_secs(2), all), "{mtu}");
        assert!(link(&net, 0).mtu <= mtu);
    }
}

#[test]
fn a_message_in_flight_arrives_although_the_mtu_falls() {
    for config in [channel(topic("/map", 10)), fec_channel()] {
        let mut net = Net::pair(4, &path_of(1500));
        let map = net.open(0, P, config);
        net.send(0, P, map, payload(0, 300_000));
        net.run(150 * MS);
        assert!(link(&net, 0).stats.sent_packets > 50 && net.nodes[1].received.is_empty());
        set_mtu(&mut net, 1280);
        let all = |net: &Net| has_arrived(net, 1, 1);
        assert!(net.run_until_done(10 * MS, Duration::from_secs(2), all));
        net.run(Duration::from_secs(1));
        assert_eq!((link(&net, 0).mtu, link(&net, 0).mtu_state), (1280, MtuState::BlackHole));
        let to = Place::Udp(address(1));
        let notice = Notice::BlackHole { name: "base".into(), to, lost: 1500, passes: 1280 };
        assert_eq!(black_holes(&net, 0), [&notice]);
        net.check_conservation(0, P, &[map]);
    }
}

fn fec_channel() -> ChannelConfig {
    ChannelConfig { fec: Some(40), ..channel(topic("/map", 10)) }
}

#[test]
fn random_losses_and_outages_are_not_taken_for_a_black_hole() {
    for loss in [0.2, 0.4] {
        let mut net = Net::pair(5, &Pipe::lossy(6_000_000, loss));
        let image = net.open(0, P, channel(topic("/image", 10)));
        for n in 0..600 {
            net.send(0, P, image, payload(n, 10_000));
            net.run(50 * MS);
            if n % 150 == 100 {
                net.nodes.iter_mut().for_each(|node| node.pipe.cut = true);
                net.run(Duration::from_secs(2));
                net.nodes.iter_mut().for_each(|node| node.pipe.cut = false);
            }
        }
        assert!(black_holes(&net, 0).is_empty(), "{:?}", black_holes(&net, 0));
        assert_eq!(link(&net, 0).mtu, 1500, "{loss}");
        let cut_small = |it: &&tautline_proto::Transmit| (1200..1400).contains(&it.datagram.len());
        let large = net.nodes[0].sent.iter().filter(|it| it.datagram.len() > 1400).count();
        let small = net.nodes[0].sent.iter().filter(cut_small).count();
        println!("loss {loss}: {small} packets of the first size, {large} full ones");
        assert!(small * 10 < large, "{small} of {large}");
    }
}

#[test]
fn a_path_through_a_relay_follows_the_link_to_the_relay() {
    let mut net = Net::new(6);
    let [robot, relay, base] =
        ["robot", "relay", "base"].map(|name| net.add(name, net::defaults(), path_of(1500)));
    let (to_relay, _) = net.join(robot, relay);
    let (base_to_relay, _) = net.join(base, relay);
    for peer in net.nodes[relay].endpoint.peers() {
        net.nodes[relay]
            .endpoint
            .peer_mut(peer)
            .set_rights(Rights { relayed: true, max_priority: 255 });
    }
    let to_base = net.add_peer_through(robot, base, &[to_relay]);
    net.add_peer_through(base, robot, &[base_to_relay]);
    net.run(Duration::from_secs(2));
    let map = net.open(robot, to_base, channel(topic("/map", 10)));
    let through = net.nodes[robot].endpoint.links().nth(1).unwrap();
    assert_eq!(net.nodes[robot].endpoint.link(through).unwrap().mtu, DATAGRAM - 64);
    net.send(robot, to_base, map, payload(0, 300_000));
    net.run(200 * MS);
    // The last hop shrinks first: its relay cannot tell the robot. Then the first hop shrinks.
    for (round, node) in [relay, robot].into_iter().enumerate() {
        net.nodes[node].pipe.longest = 1280 - HEADERS;
        net.run(200 * MS);
        net.send(robot, to_base, map, payload(1, 30_000));
        let all = |net: &Net| has_arrived(net, base, 2 + round);
        assert!(net.run_until_done(10 * MS, Duration::from_secs(3), all), "{round}");
    }
    assert_eq!(net.nodes[robot].endpoint.link(through).unwrap().mtu, 1280 - HEADERS - 64);
}

#[test]
fn packets_that_the_kernel_refuses_are_sent_smaller() {
    let mut net = Net::pair(7, &path_of(1500));
    let scan = ChannelConfig { repair: false, ..channel(topic("/scan", 200)) };
    let scan = net.open(0, P, scan);
    net.send(0, P, scan, payload(0, 5000));
    net.run(100 * MS);
    net.nodes[0].pipe.interface = 1300 - HEADERS;
    for n in 1..10 {
        net.send(0, P, scan, payload(n, 5000));
        net.run(50 * MS);
    }
    let (_, _, stats) = net.nodes[0].endpoint.peer(P).channel_out(scan).unwrap();
    assert_eq!((stats.delivered, stats.dropped.total()), (10, 0), "also without repair");
    assert_eq!((link(&net, 0).loss, link(&net, 0).stats.lost_packets), (0.0, 0));
    assert!((1280..=1300).contains(&link(&net, 0).mtu), "{}", link(&net, 0).mtu);
    assert!(black_holes(&net, 0).is_empty());
}
