// SPDX-License-Identifier: Apache-2.0
//! Removal of peers and links while others continue.

use tautline_proto::stats::DropReason;
use tautline_proto::{
    Class, Duration, Event, LinkConfig, LinkId, Notice, PeerId, RadioId, Rights, SecretKey,
    SetupError,
};
use tautline_testkit::net::*;

const MBPS_6: u64 = 6_000_000;

/// A base (0) and robots that have sessions with it.
fn star(seed: u64, robots: &[&str]) -> Net {
    let mut net = Net::new(seed);
    net.add("base", defaults(), Pipe::with_rate(MBPS_6));
    for robot in robots {
        let node = net.add(robot, defaults(), Pipe::with_rate(MBPS_6));
        net.join(0, node);
    }
    net.run(Duration::from_secs(2));
    for peer in net.nodes[0].endpoint.peers() {
        assert!(net.nodes[0].endpoint.peer(peer).up);
    }
    net
}

fn numbers(net: &Net, node: usize) -> Vec<u32> {
    net.nodes[node].received.iter().map(|r| number_of(&r.3.payload)).collect()
}

fn new_sessions(net: &Net, node: usize) -> usize {
    let is_new = |event: &&Event| matches!(event, Event::PeerUp { new_session: true, .. });
    net.nodes[node].events.iter().filter(is_new).count()
}

#[test]
fn a_removed_peer_gets_a_goodbye_and_cannot_reconnect() {
    let mut net = star(1, &["robot", "thief"]);
    let thief = PeerId(1);
    net.remove_peer(0, thief);
    net.run(50 * MS);
    assert!(
        net.nodes[2].events.contains(&Event::PeerDown { peer: PeerId(0), said_goodbye: true }),
        "it is reported"
    );
    assert_eq!(net.nodes[0].endpoint.peers().collect::<Vec<_>>(), [PeerId(0)]);
    net.nodes[0].events.clear();
    net.run(Duration::from_secs(20));
    assert!(!net.nodes[2].endpoint.peer(PeerId(0)).up);
    let stranger = |event: &Event| {
        let Event::Notice(Notice::UnknownKey { name, .. }) = event else { return false };
        name == "thief"
    };
    assert!(net.nodes[0].events.iter().any(stranger), "it calls, and is a stranger");
    assert!(!net.nodes[0].events.iter().any(|it| matches!(it, Event::PeerUp { .. })));
}

/// A caller may learn of the removal after it has asked the kernel about the link.
#[test]
fn a_link_of_a_removed_peer_ignores_late_reports() {
    let mut net = star(7, &["robot", "thief"]);
    let now = net.now;
    let endpoint = &mut net.nodes[0].endpoint;
    let of_thief = |id: &LinkId| endpoint.link(*id).is_some_and(|link| link.peer == PeerId(1));
    let gone = endpoint.links().find(of_thief).unwrap();
    let config =
        LinkConfig { remote: None, datagram_bytes: 1200, header_bytes: 28, metered: false };
    endpoint.peer_mut(PeerId(1)).remove(now);
    assert!(endpoint.link(gone).is_none() && endpoint.pacing_rate(gone).is_none());
    endpoint.link_mut(gone).set_path(now, RadioId(0), config).unwrap();
    endpoint.link_mut(gone).set_route(RadioId(0), 1200, 28).unwrap();
    endpoint.link_mut(gone).announce_move(now);
    endpoint.link_mut(gone).set_own_address(address(1));
    endpoint.link_mut(gone).set_allowance(Some(1));
    endpoint.link_mut(gone).set_direct_path(now, None);
    endpoint.link_mut(gone).try_address(now, RadioId(0), address(1));
    endpoint.link_mut(gone).forget_direct_path(now);
    endpoint.link_mut(gone).handle_in_flight(now, Class::Video, 1000);
    endpoint.link_mut(gone).handle_refused(now, &[0; 100]);
    endpoint.link_mut(gone).remove(now);
    let link = LinkConfig { remote: None, datagram_bytes: 1200, header_bytes: 28, metered: false };
    let added = endpoint.peer_mut(PeerId(1)).add_link(now, RadioId(0), link);
    assert_eq!(added, Err(SetupError::PeerRemoved));
    let relayed = endpoint.peer_mut(PeerId(1)).add_relayed_link(now, PeerId(0));
    assert_eq!(relayed, Err(SetupError::PeerRemoved));
    net.run(Duration::from_secs(2));
    assert!(net.nodes[0].endpoint.peer(PeerId(0)).up, "the other peer is as before");
}

#[test]
fn queued_and_outstanding_messages_are_dropped_and_counted() {
    let mut net = star(2, &["robot", "thief"]);
    let channel = net.open(0, PeerId(1), channel(topic("/image", 20)));
    for n in 0..8 {
        net.send(0, PeerId(1), channel, payload(n, 30_000));
    }
    net.run(60 * MS);
    let parted = net.remove_peer(0, PeerId(1));
    let (last, stats) = &parted.channels[0];
    assert_eq!((parted.channels.len(), *last), (1, channel));
    assert!(stats.adds_up() && stats.queued + stats.sent == 0, "{stats:?}");
    assert_eq!(stats.accepted, 8);
    assert!(stats.dropped.get(DropReason::PeerGone) >= 5, "{stats:?}");
}

#[test]
fn other_peers_lose_nothing_while_an_index_is_reused() {
    let mut net = star(3, &["robot", "other"]);
    let kept = net.open(0, PeerId(0), channel(topic("/scan", 200)));
    let mut sent = 0;
    for round in 0..30 {
        for _ in 0..5 {
            net.send(0, PeerId(0), kept, payload(sent, 1000));
            sent += 1;
            net.run(10 * MS);
        }
        if round % 2 == 0 {
            net.remove_peer(0, PeerId(1));
        } else {
            assert_eq!(net.add_peer(0, 2), PeerId(1), "places are used again");
        }
    }
    net.run(Duration::from_secs(3));
    assert_eq!(numbers(&net, 1), (0..sent).collect::<Vec<_>>());
    assert_eq!(new_sessions(&net, 1), 1, "one session all the time");
    net.check_conservation(0, PeerId(0), &[kept]);
    assert_eq!(net.nodes[0].endpoint.links().count(), 2);
}

#[test]
fn a_peer_that_is_added_again_restarts_at_both_ends() {
    let mut net = star(4, &["robot"]);
    let before = net.open(0, PeerId(0), channel(topic("/scan", 200)));
    net.send(0, PeerId(0), before, payload(1, 1000));
    net.run(100 * MS);
    net.remove_peer(0, PeerId(0));
    net.run(500 * MS);
    let peer = net.add_peer(0, 1);
    net.run(Duration::from_secs(8));
    assert!(net.nodes[0].endpoint.peer(peer).up && net.nodes[1].endpoint.peer(PeerId(0)).up);
    assert_eq!(new_sessions(&net, 1), 2, "it knows that nothing is left of the first session");
    let after = net.open(0, peer, channel(topic("/scan", 200)));
    assert_ne!(before, after, "no number of the earlier peer is given out again");
    for n in 2..20 {
        net.send(0, peer, after, payload(n, 1000));
        net.run(20 * MS);
    }
    assert_eq!(numbers(&net, 1), (1..20).collect::<Vec<_>>());
}

#[test]
fn a_peer_at_a_reused_index_gets_nothing_of_the_previous_peer() {
    let mut net = star(5, &["robot", "thief"]);
    let theirs = net.open(2, PeerId(0), channel(topic("/cmd_vel", 200)));
    let secret = net.open(0, PeerId(1), channel(topic("/secret", 200)));
    let guest = net.add("guest", defaults(), Pipe::with_rate(MBPS_6));
    for n in 0..8 {
        net.send(0, PeerId(1), secret, payload(n, 30_000));
    }
    net.remove_peer(0, PeerId(1));
    let (place, _) = net.join(0, guest);
    assert_eq!(place, PeerId(1));
    // Packets of the first robot are still on the air.
    let _ = net.try_send(2, PeerId(0), theirs, payload(99, 1000));
    net.run(Duration::from_secs(5));
    assert!(net.nodes[0].endpoint.peer(place).up);
    assert_eq!(net.nodes[0].endpoint.peer(place).key, SecretKey::insecure("guest").public());
    assert!(net.nodes[guest].received.is_empty() && numbers(&net, 0).is_empty());
    assert!(net.nodes[0].endpoint.peer(place).channel_out(secret).is_none());
    assert_eq!(net.nodes[0].endpoint.peer(place).channels_in().count(), 0);
}

fn link_to(remote: std::net::SocketAddr) -> LinkConfig {
    LinkConfig { remote: Some(remote), datagram_bytes: DATAGRAM, header_bytes: 28, metered: false }
}

#[test]
fn a_link_is_replaced_within_the_session_and_nothing_is_lost() {
    let mut net = star(6, &["robot"]);
    let channel = net.open(0, PeerId(0), channel(topic("/scan", 200)));
    let mut sent = 0;
    for round in 0..20 {
        for _ in 0..5 {
            net.send(0, PeerId(0), channel, payload(sent, 3000));
            sent += 1;
            net.run(10 * MS);
        }
        let now = net.now;
        let endpoint = &mut net.nodes[0].endpoint;
        let links: Vec<LinkId> = endpoint.links().collect();
        if round % 3 == 0 {
            let second = endpoint
                .peer_mut(PeerId(0))
                .add_link(now, RadioId(0), link_to(address(1)))
                .unwrap();
            endpoint.peer_mut(PeerId(0)).order_links(&[second]);
        }
        endpoint.link_mut(links[0]).remove(now);
        if round % 3 != 0 && links.len() == 1 {
            endpoint.peer_mut(PeerId(0)).add_link(now, RadioId(0), link_to(address(1))).unwrap();
        }
    }
    net.run(Duration::from_secs(5));
    assert_eq!(numbers(&net, 1), (0..sent).collect::<Vec<_>>());
    assert_eq!(new_sessions(&net, 1), 1, "the session continues");
    net.check_conservation(0, PeerId(0), &[channel]);
}

#[test]
fn the_removal_of_a_relay_closes_the_link_through_it_and_another_relay_takes_over() {
    let mut net = Net::new(7);
    for name in ["robot", "relay", "second", "base"] {
        net.add(name, defaults(), Pipe::with_rate(MBPS_6));
    }
    let rights = Rights { relayed: true, max_priority: 255 };
    for relay in [1, 2] {
        for end in [0, 3] {
            let (_, at_relay) = net.join(end, relay);
            net.nodes[relay].endpoint.peer_mut(at_relay).set_rights(rights);
        }
    }
    let base = net.add_peer_through(0, 3, &[PeerId(0), PeerId(1)]);
    net.add_peer_through(3, 0, &[PeerId(0), PeerId(1)]);
    net.run(Duration::from_secs(3));
    let channel = net.open(0, base, channel(topic("/scan", 200)));
    for n in 0..60 {
        net.send(0, base, channel, payload(n, 1000));
        net.run(20 * MS);
        if n == 20 {
            net.remove_peer(0, PeerId(0));
        }
    }
    net.run(Duration::from_secs(5));
    assert!(net.nodes[0].endpoint.peer(base).up);
    assert_eq!(numbers(&net, 3), (0..60).collect::<Vec<_>>(), "by the second");
    net.check_conservation(0, base, &[channel]);
}

#[test]
fn relays_forget_removed_peers() {
    let mut net = Net::new(8);
    for name in ["robot", "relay", "base"] {
        net.add(name, defaults(), Pipe::with_rate(MBPS_6));
    }
    for end in [0, 2] {
        let (_, at_relay) = net.join(end, 1);
        let rights = Rights { relayed: true, max_priority: 255 };
        net.nodes[1].endpoint.peer_mut(at_relay).set_rights(rights);
    }
    let base = net.add_peer_through(0, 2, &[PeerId(0)]);
    net.add_peer_through(2, 0, &[PeerId(0)]);
    net.run(Duration::from_secs(3));
    let channel = net.open(0, base, channel(topic("/image", 20)));
    for n in 0..4 {
        net.send(0, base, channel, payload(n, 30_000));
    }
    net.run(50 * MS);
    // The relay removes the far end, with packets for it in flight, and adds it again.
    net.remove_peer(1, PeerId(1));
    net.run(Duration::from_secs(3));
    assert!(!net.nodes[0].endpoint.peer(base).up, "no route is left");
    let again = net.add_peer(1, 2);
    net.nodes[1].endpoint.peer_mut(again).set_rights(Rights { relayed: true, max_priority: 255 });
    net.run(Duration::from_secs(10));
    assert!(net.nodes[0].endpoint.peer(base).up, "the route works again");
    for n in 10..20 {
        net.send(0, base, channel, payload(n, 1000));
        net.run(50 * MS);
    }
    net.run(Duration::from_secs(2));
    assert!(numbers(&net, 2).ends_with(&(10..20).collect::<Vec<_>>()));
    net.check_conservation(0, base, &[channel]);
}

#[test]
fn a_beacon_names_no_peer_that_was_removed() {
    let mut net = star(9, &["robot", "thief"]);
    let lengths = |net: &mut Net| net.nodes[0].endpoint.beacon().map(|it| it.len());
    let both = lengths(&mut net);
    net.remove_peer(0, PeerId(0));
    let one = lengths(&mut net);
    assert!(one.is_some() && one < both);
    net.remove_peer(0, PeerId(1));
    assert_eq!(lengths(&mut net), None);
    net.add_peer(0, 2);
    assert_eq!(lengths(&mut net), one);
    // The packets of node 2 are for the peer that now has the place.
    net.remove_peer(2, PeerId(0));
    net.add_peer(2, 0);
    let beacon = net.nodes[0].endpoint.beacon().unwrap();
    let mut other = Net::new(10);
    other.add("thief", defaults(), Pipe::with_rate(MBPS_6));
    let endpoint = &mut other.nodes[0].endpoint;
    let base = endpoint.add_peer("base", SecretKey::insecure("base").public()).unwrap();
    let nowhere = LinkConfig { remote: None, ..link_to(address(0)) };
    endpoint.peer_mut(base).add_link(other.now, RadioId(0), nowhere).unwrap();
    other.inject(0, address(5), &beacon);
    assert_eq!(other.nodes[0].endpoint.link(LinkId(0)).unwrap().remote, Some(address(5).into()));
}

#[test]
fn names_and_keys_are_checked_before_anything_is_changed() {
    let net = star(11, &["robot"]);
    let endpoint = &net.nodes[0].endpoint;
    let key = |name: &str| SecretKey::insecure(name).public();
    assert!(endpoint.check_peers(&[("robot", key("robot")), ("b", key("b"))]).is_ok());
    assert!(endpoint.check_peers(&[("base", key("b"))]).is_err(), "our own name");
    assert!(endpoint.check_peers(&[("b", key("base"))]).is_err(), "our own key");
    assert!(endpoint.check_peers(&[("a", key("b")), ("c", key("b"))]).is_err());
    assert!(endpoint.check_peers(&[("", key("b"))]).is_err());
}
