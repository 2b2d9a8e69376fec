// SPDX-License-Identifier: Apache-2.0
//! Handshakes, offers, restarts and goodbyes.

use std::net::SocketAddr;
use tautline_proto::crypto::cookies::{CookieJar, MacKey};
use tautline_proto::crypto::noise::Initiator;
use tautline_proto::stats::{DropReason, RefusedPacket};
use tautline_proto::wire::packet::{Greeting, MAGIC, Packet, start_initiation};
use tautline_proto::{
    ChannelConfig, Config, Event, LinkConfig, LinkId, Notice, PeerId, RadioId, SecretKey, Transmit,
    Verdict,
};
use tautline_testkit::net::*;

const P: PeerId = PeerId(0);

#[test]
fn offers_arrive_with_type_hash_and_definition_and_messages_follow() {
    let mut net = Net::pair(1, &Pipe::with_rate(6_000_000));
    let channel = net.open(0, P, channel(topic("/chatter", 100)));
    let offered = net.nodes[1].events.iter().find_map(|e| match e {
        Event::Offered { topic, definition, .. } => Some((topic.clone(), definition.clone())),
        _ => None,
    });
    let (found, definition) = offered.unwrap();
    assert_eq!(found, topic("/chatter", 100));
    assert_eq!(&*definition, "string data");
    for n in 0..10 {
        net.send(0, P, channel, payload(n, 100 * n as usize + 4));
    }
    net.send(0, P, channel, Vec::new());
    net.run(1000 * MS);
    let got: Vec<_> = net.nodes[1].received.iter().map(|r| r.3.payload.to_vec()).collect();
    let mut sent: Vec<_> = (0..10).map(|n| payload(n, 100 * n as usize + 4)).collect();
    sent.push(Vec::new());
    assert_eq!(got, sent);
    net.check_conservation(0, P, &[channel]);
}

#[test]
fn a_definition_is_requested_once_for_all_topics_of_a_type() {
    let mut net = Net::pair(2, &Pipe::with_rate(6_000_000));
    net.open(0, P, channel(topic("/a", 1)));
    net.nodes[0].sent.clear();
    net.open(0, P, channel(topic("/b", 1)));
    let bytes: usize = net.nodes[0].sent.iter().map(|t| t.datagram.len()).sum();
    net.nodes[0].sent.clear();
    let mut other = channel(topic("/c", 1));
    (other.topic.type_hash, other.definition) = ("another".into(), "x".repeat(1000).into());
    net.open(0, P, other);
    let more: usize = net.nodes[0].sent.iter().map(|t| t.datagram.len()).sum();
    assert!(more > bytes + 900, "only a type of its own needs its definition: {bytes}, {more}");
}

#[test]
fn a_restarted_peer_is_found_and_offered_everything_again() {
    let mut net = Net::pair(3, &Pipe::with_rate(6_000_000));
    let kept = net.open(0, P, channel(topic("/chatter", 100)));
    net.send(0, P, kept, payload(1, 50_000));
    net.restart(1, &[0]);
    net.run(5000 * MS);
    let (_, wanted, stats) = net.nodes[0].endpoint.peer(P).channel_out(kept).unwrap();
    assert!(wanted && stats.adds_up());
    assert_eq!(stats.dropped.get(DropReason::PeerGone), 1, "{stats:?}");
    net.send(0, P, kept, payload(2, 4));
    net.run(100 * MS);
    assert_eq!(net.nodes[1].received.len(), 1, "only what was sent to the new session");
    assert_eq!(number_of(&net.nodes[1].received[0].3.payload), 2);
}

#[test]
fn an_outage_does_not_drop_useful_messages() {
    let mut net = Net::pair(4, &Pipe::with_rate(6_000_000));
    let channel = net.open(0, P, channel(topic("/chatter", 100)));
    net.nodes[0].pipe.cut = true;
    net.nodes[1].pipe.cut = true;
    net.run(6000 * MS);
    assert!(net.nodes[0].events.contains(&Event::PeerDown { peer: P, said_goodbye: false }));
    net.send(0, P, channel, payload(7, 5000));
    net.nodes[0].pipe.cut = false;
    net.nodes[1].pipe.cut = false;
    net.run(3000 * MS);
    assert!(net.nodes[0].endpoint.peer(P).up);
    assert_eq!(net.nodes[1].received.len(), 1);
    let resumed = Event::PeerUp { peer: P, new_session: false };
    assert!(net.nodes[0].events.contains(&resumed));
}

#[test]
fn goodbye_is_noticed_at_once() {
    let mut net = Net::pair(5, &Pipe::with_rate(6_000_000));
    net.nodes[0].endpoint.close();
    net.run(20 * MS);
    assert!(net.nodes[1].events.contains(&Event::PeerDown { peer: P, said_goodbye: true }));
}

/// The handshake packets of a kind that a node sent: 0 for initiations, 1 for responses.
fn handshakes(net: &Net, node: usize, kind: u8) -> Vec<Vec<u8>> {
    let all = net.nodes[node].sent.iter().map(|t| &t.datagram);
    all.filter(|d| d[0] == MAGIC && d[1] & 0xf == kind).cloned().collect()
}

fn notices(net: &Net, node: usize) -> Vec<Notice> {
    let notice = |event: &Event| match event {
        Event::Notice(notice) => Some(notice.clone()),
        _ => None,
    };
    net.nodes[node].events.iter().filter_map(notice).collect()
}

#[test]
fn a_replayed_initiation_of_an_earlier_epoch_ends_no_session() {
    let mut net = Net::pair(6, &Pipe::with_rate(6_000_000));
    let old = handshakes(&net, 1, 0)[0].clone();
    net.restart(1, &[0]);
    net.run(5000 * MS);
    for node in &mut net.nodes {
        node.events.clear();
        node.sent.clear();
    }
    net.inject(0, address(1), &old);
    net.run(1000 * MS);
    assert_eq!(notices(&net, 0).len(), 1, "{:?}", net.nodes[0].events);
    assert_eq!(net.nodes[0].events.len(), 1, "the session stands: {:?}", net.nodes[0].events);
    assert_eq!(net.nodes[1].events, []);
}

#[test]
fn replayed_and_changed_handshakes_end_no_session() {
    let mut net = Net::pair(11, &Pipe::with_rate(6_000_000));
    let recorded: Vec<_> = [0, 1].map(|node| net.nodes[node].sent.clone()).concat();
    for node in &mut net.nodes {
        node.events.clear();
    }
    for (at, transmit) in recorded.iter().enumerate().take(40) {
        for node in 0..2 {
            let mut changed = transmit.datagram.clone();
            net.inject(node, address(1 - node), &changed);
            let byte = at * 7 % changed.len();
            changed[byte] ^= 0x10;
            net.inject(node, address(1 - node), &changed);
        }
    }
    net.run(3000 * MS);
    for node in 0..2 {
        assert_eq!(net.nodes[node].events, []);
        assert!(net.nodes[node].endpoint.peer(P).up);
    }
}

#[test]
fn a_stranger_is_reported_and_learns_nothing() {
    let mut net = Net::pair(7, &Pipe::with_rate(6_000_000));
    let stranger = net.add("stranger", defaults(), Pipe::with_rate(6_000_000));
    net.add_peer(stranger, 0);
    net.run(2000 * MS);
    let (name, key) = ("stranger".to_owned(), SecretKey::insecure("stranger").public());
    let unknown =
        Notice::UnknownKey { name, key, from: address(stranger).into(), known_name: false };
    assert!(notices(&net, 0).contains(&unknown));
    let to_stranger = |t: &&Transmit| t.remote == address(stranger);
    assert_eq!(net.nodes[0].sent.iter().filter(to_stranger).count(), 0);
    assert!(!net.nodes[stranger].endpoint.peer(P).up);
}

#[test]
fn two_nodes_with_wrong_keys_of_each_other_report_it() {
    let mut net = Net::new(13);
    let [robot, base] =
        ["robot", "base"].map(|name| net.add(name, defaults(), Pipe::with_rate(6_000_000)));
    for (node, other, wrong) in [(robot, base, "bse"), (base, robot, "robt")] {
        let peer = net.nodes[node]
            .endpoint
            .add_peer("other", SecretKey::insecure(wrong).public())
            .unwrap();
        let remote = Some(address(other));
        let link =
            LinkConfig { remote, datagram_bytes: DATAGRAM, header_bytes: 28, metered: false };
        net.nodes[node].endpoint.peer_mut(peer).add_link(net.now, RadioId(0), link).unwrap();
    }
    net.run(1000 * MS);
    for (node, other) in [(robot, base), (base, robot)] {
        let notice = Notice::OtherKey { name: Some("other".into()), from: address(other).into() };
        assert!(notices(&net, node).contains(&notice));
    }
}

#[test]
fn a_key_under_another_name_is_refused_and_reported_at_both_ends() {
    let mut net = Net::new(12);
    let robot = net.add("robot", defaults(), Pipe::with_rate(6_000_000));
    let base = net.add("base", defaults(), Pipe::with_rate(6_000_000));
    net.add_peer(robot, base);
    let key = SecretKey::insecure("robot").public();
    let peer = net.nodes[base].endpoint.add_peer("robot7", key).unwrap();
    let link =
        LinkConfig { remote: None, datagram_bytes: DATAGRAM, header_bytes: 28, metered: false };
    net.nodes[base].endpoint.peer_mut(peer).add_link(net.now, RadioId(0), link).unwrap();
    net.run(1000 * MS);
    let (name, theirs) = ("robot7".to_owned(), "robot".to_owned());
    let found = Notice::OtherName { name, theirs, from: address(robot).into() };
    assert!(notices(&net, base).contains(&found));
    let (name, verdict) = ("base".to_owned(), Verdict::Name);
    let notice = Notice::TheyRefuse { name, from: address(base).into(), verdict };
    assert!(notices(&net, robot).contains(&notice));
    assert!(!net.nodes[base].endpoint.peer(P).up);
}

#[test]
fn the_later_of_two_nodes_with_one_key_stays_and_all_report_it() {
    let mut net = Net::pair(13, &Pipe::with_rate(6_000_000));
    let twin = net.add("robot", defaults(), Pipe::with_rate(6_000_000));
    // Only the base detects the twin: both robots have the base's address.
    net.add_peer(twin, 1);
    net.run(5000 * MS);
    let twins = |notice: &Notice| matches!(notice, Notice::Twins { .. });
    assert!(notices(&net, 1).iter().any(twins), "{:?}", notices(&net, 1));
    let verdict =
        |notice: &Notice| matches!(notice, Notice::TheyRefuse { verdict: Verdict::Twin, .. });
    assert!(notices(&net, 0).iter().any(verdict), "the earlier one is reported");
    net.nodes[1].events.clear();
    net.run(5000 * MS);
    let flips = |event: &&Event| matches!(event, Event::PeerUp { .. });
    assert_eq!(net.nodes[1].events.iter().filter(flips).count(), 0, "they do not take turns");
}

#[test]
fn another_version_is_reported_and_gets_no_response() {
    let mut net = Net::pair(8, &Pipe::with_rate(6_000_000));
    net.nodes[0].sent.clear();
    net.inject(0, address(9), &[MAGIC, 5 << 4, 1, 2, 3]);
    let (from, theirs, ours) = (address(9).into(), 5, 0);
    assert_eq!(notices(&net, 0), [Notice::Version { from, theirs, ours }]);
    assert_eq!(net.nodes[0].endpoint.refused_packets().get(RefusedPacket::Version), 1);
    assert!(net.nodes[0].sent.iter().all(|t| t.remote != address(9)));
}

#[test]
fn a_node_does_not_take_its_own_reflected_packets() {
    let mut net = Net::pair(9, &Pipe::with_rate(6_000_000));
    let own: Vec<_> = net.nodes[0].sent.iter().map(|t| t.datagram.clone()).collect();
    net.nodes[0].events.clear();
    for datagram in &own {
        net.inject(0, address(1), datagram);
    }
    assert_eq!(net.nodes[0].events, []);
}

#[test]
fn rekeying_while_messages_flow_loses_none() {
    let mut net = Net::pair(14, &Pipe::with_rate(6_000_000));
    let channel = net.open(0, P, channel(topic("/chatter", 100)));
    net.nodes[0].sent.clear();
    let before = handshakes(&net, 0, 0).len() + handshakes(&net, 1, 0).len();
    for n in 0..3000 {
        net.send(0, P, channel, payload(n, 200));
        net.run(200 * MS);
    }
    assert_eq!(net.nodes[1].received.len(), 3000);
    let made = handshakes(&net, 0, 0).len() + handshakes(&net, 1, 0).len() - before;
    assert!((4..=6).contains(&made), "every two minutes of ten: {made}");
    assert!(net.nodes[0].events.iter().all(|e| !matches!(e, Event::PeerDown { .. })));
    net.check_conservation(0, P, &[channel]);
}

#[test]
fn no_nonce_is_ever_used_twice() {
    let mut pipe = Pipe::lossy(2_000_000, 0.1);
    (pipe.duplicate, pipe.reorder) = (0.1, 0.2);
    let mut net = Net::pair(15, &pipe);
    let there = net.open(0, P, channel(topic("/a", 100)));
    let mut seen = std::collections::HashSet::new();
    for round in 0..6 {
        for n in 0..300 {
            let _ = net.try_send(0, P, there, payload(n, 3000));
            net.run(100 * MS);
        }
        if round % 2 == 1 {
            net.restart(1, &[0]);
        }
        net.run(6000 * MS);
        for node in 0..2 {
            for transmit in net.nodes[node].sent.drain(..) {
                let Ok(Packet::Session(header, _)) = Packet::parse(&transmit.datagram) else {
                    continue;
                };
                let nonce = (header.session, header.link, header.number);
                assert!(seen.insert((node, nonce)), "{nonce:?}");
            }
        }
    }
    assert!(seen.len() > 2000);
}

#[test]
fn a_peer_that_moves_is_followed() {
    let mut net = Net::pair(16, &Pipe::with_rate(6_000_000));
    let up = net.open(0, P, channel(topic("/up", 100)));
    let down = net.open(1, P, channel(topic("/down", 100)));
    net.nodes[1].address = SocketAddr::from(([10, 9, 9, 9], 4711));
    let moved = net.now;
    net.nodes[0].events.clear();
    for n in 0..200 {
        net.send(0, P, up, payload(n, 100));
        net.send(1, P, down, payload(n, 100));
        net.run(20 * MS);
    }
    let link = LinkId(0);
    let to = net.nodes[1].address.into();
    assert_eq!(net.nodes[0].events, [Event::LinkMoved { link, to }]);
    for node in 0..2 {
        let first = net.nodes[node].received.iter().map(|r| r.0).find(|at| *at > moved).unwrap();
        assert!(first.since(moved) < 200 * MS, "{:?}", first.since(moved));
        assert_eq!(net.nodes[node].received.len(), 200, "repaired");
    }
}

#[test]
fn a_peer_that_moves_is_followed_over_a_satellite() {
    // The echo arrives when all challenges have been sent.
    let mut net = Net::pair(16, &Pipe::with_rate(6_000_000));
    let up = net.open(0, P, channel(topic("/up", 100)));
    net.nodes.iter_mut().for_each(|node| node.pipe.delay = 300 * MS);
    net.run(5000 * MS);
    net.nodes[1].address = SocketAddr::from(([10, 9, 9, 9], 4711));
    let (before, moved) = (net.nodes[1].received.len(), net.now);
    for n in 0..100 {
        net.send(0, P, up, payload(n, 100));
        net.run(50 * MS);
    }
    net.run(3000 * MS);
    assert_eq!(net.nodes[1].received.len() - before, 100, "repaired");
    let first = net.nodes[1].received.iter().map(|r| r.0).find(|at| *at > moved).unwrap();
    assert!(first.since(moved) < 1500 * MS, "{:?}", first.since(moved));
}

#[test]
fn a_message_delayed_at_a_far_queue_is_too_old() {
    let mut net = Net::pair(20, &Pipe::with_rate(6_000_000));
    let mut command = topic("/cmd_vel", 220);
    command.lifespan = Some(200 * MS);
    // With repair, the message would be repaired in time.
    let config = ChannelConfig { repair: false, ..channel(command) };
    let channel = net.open(0, P, config);
    net.run(2000 * MS);
    net.send(0, P, channel, payload(1, 100));
    net.run(100 * MS);
    // An access point delays packets by 600 ms. That is too short for the link to go down.
    net.nodes[0].pipe.delay = 600 * MS;
    net.send(0, P, channel, payload(2, 100));
    net.run(1 * MS);
    net.nodes[0].pipe.delay = MS / 10;
    net.run(1000 * MS);
    net.send(0, P, channel, payload(3, 100));
    net.run(100 * MS);
    let got: Vec<_> = net.nodes[1].received.iter().map(|r| number_of(&r.3.payload)).collect();
    assert_eq!(got, [1, 3]);
}

#[test]
fn an_old_round_trip_does_not_expire_new_messages() {
    let mut net = Net::pair(21, &Pipe::with_rate(6_000_000));
    let mut command = topic("/cmd_vel", 220);
    command.lifespan = Some(100 * MS);
    let command = net.open(0, P, ChannelConfig { repair: false, ..channel(command) });
    net.run(2000 * MS);
    // The base has measured round trips of 600 ms, and few round trips since.
    net.nodes[0].pipe.delay = 300 * MS;
    net.nodes[1].pipe.delay = 300 * MS;
    net.run(6000 * MS);
    (0..2).for_each(|node| net.nodes[node].pipe.delay = MS);
    net.run(700 * MS);
    let rtt = net.nodes[1].endpoint.link(LinkId(0)).unwrap().rtt.unwrap();
    assert!(rtt > 250 * MS, "{rtt:?}");
    net.send(0, P, command, payload(1, 100));
    net.run(100 * MS);
    assert_eq!(net.nodes[1].received.len(), 1);
}

#[test]
fn replayed_packets_do_not_move_a_link() {
    let mut net = Net::pair(17, &Pipe::with_rate(6_000_000));
    let channel = net.open(1, P, channel(topic("/scan", 100)));
    // An attacker forwards all packets from another address, and never receives a response.
    net.nodes[0].events.clear();
    for n in 0..100 {
        net.nodes[1].sent.clear();
        net.nodes[1].pipe.delay = 3 * MS;
        net.send(1, P, channel, payload(n, 100));
        net.run(MS);
        for transmit in net.nodes[1].sent.clone() {
            net.inject(0, address(66), &transmit.datagram);
        }
        net.run(20 * MS);
    }
    assert_eq!(net.nodes[0].events, []);
    assert_eq!(net.nodes[0].endpoint.link(LinkId(0)).unwrap().remote, Some(address(1).into()));
    assert_eq!(net.nodes[0].received.len(), 100);
}

#[test]
fn a_returning_link_is_detected_soon() {
    for seconds in [5, 60, 400] {
        let mut net = Net::pair(18, &Pipe::with_rate(6_000_000));
        let channel = net.open(0, P, channel(topic("/scan", 100)));
        (0..2).for_each(|node| net.nodes[node].pipe.cut = true);
        net.run(1000 * MS * seconds);
        assert!(!net.nodes[0].endpoint.peer(P).up);
        (0..2).for_each(|node| net.nodes[node].pipe.cut = false);
        let back = net.now;
        for n in 0..150 {
            net.send(0, P, channel, payload(n, 100));
            net.run(10 * MS);
        }
        let first = net.nodes[1].received[0].0.since(back);
        let allowed = if seconds > 300 { 1100 } else { 300 };
        assert!(first < MS * allowed, "after {seconds} s: {first:?}");
    }
}

#[test]
fn an_unwanted_channel_carries_nothing() {
    let mut net = Net::pair(10, &Pipe::with_rate(6_000_000));
    let channel = net.open(0, P, channel(topic("/chatter", 100)));
    let now = net.now;
    let theirs = net.nodes[1].endpoint.peer(P).channels_in().next().unwrap();
    net.nodes[1].endpoint.peer_mut(P).want(now, theirs, false);
    net.run(100 * MS);
    assert!(!net.nodes[0].endpoint.peer(P).channel_out(channel).unwrap().1);
    net.nodes[1].endpoint.peer_mut(P).refuse(net.now, theirs, "type differs".into());
    net.run(100 * MS);
    let refused = Event::Refused { peer: P, channel, reason: "type differs".into() };
    assert!(net.nodes[0].events.contains(&refused));
}

#[test]
fn a_message_too_large_for_the_receiver_is_reported_at_both_ends_and_the_next_arrives() {
    let mut net = Net::new(20);
    net.add("robot", defaults(), Pipe::with_rate(6_000_000));
    let smaller = Config { max_message: 10_000, ..defaults() };
    net.add("base", smaller, Pipe::with_rate(6_000_000));
    net.join(0, 1);
    let channel = net.open(0, P, channel(topic("/image", 100)));
    for number in 0..5 {
        net.send(0, P, channel, payload(number, if number < 4 { 50_000 } else { 10_000 }));
    }
    net.run(2000 * MS);
    assert_eq!(net.nodes[1].received.len(), 1);
    let theirs = net.nodes[1].endpoint.peer(P).channels_in().next().unwrap();
    let dropped = net.nodes[1]
        .endpoint
        .peer(P)
        .channel_in(theirs)
        .unwrap()
        .2
        .dropped
        .get(DropReason::TooLarge);
    assert_eq!(dropped, 4, "each counts once");
    let notice = Notice::TooLarge {
        peer: "robot".into(),
        topic: "/image".into(),
        found: 50_000,
        allowed: 10_000,
    };
    assert!(notices(&net, 1).contains(&notice));
    // Reports of the first, second and fourth message.
    let refused = net.nodes[0].events.iter().filter_map(|event| match event {
        Event::Refused { reason, .. } => Some(reason.as_str()),
        _ => None,
    });
    let reason = "/image: a message of 50000 bytes is larger than the 10000 bytes that 'base' allows \
                  (limits.max_message)";
    assert_eq!(refused.collect::<Vec<_>>(), [reason; 3]);
    // Nothing is sent again.
    net.nodes[0].sent.clear();
    net.run(2000 * MS);
    let bytes: usize = net.nodes[0].sent.iter().map(|it| it.datagram.len()).sum();
    assert!(bytes < 10_000, "{bytes}");
}

#[test]
fn a_node_with_our_own_key_is_reported() {
    let mut net = Net::pair(19, &Pipe::with_rate(6_000_000));
    let secret = SecretKey::insecure("robot");
    let greeting = Greeting { epoch: 7, name: "clone" }.emit();
    let (_, noise) = Initiator::initiate(&secret, &secret.public(), [5; 32], &greeting).unwrap();
    let mut call = start_initiation(1, &noise);
    CookieJar::default().append_macs(net.now, &MacKey::for_receiver(&secret.public()), &mut call);
    net.inject(0, address(9), &call);
    let (name, from, other) = ("clone".into(), address(9).into(), None);
    assert_eq!(notices(&net, 0), [Notice::Twins { name, from, other }]);
}
