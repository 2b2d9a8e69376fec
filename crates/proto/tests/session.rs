// SPDX-License-Identifier: Apache-2.0
//! Meeting, offering, restarting, parting.

mod net;

use net::*;
use tautline_proto::stats::{DropReason, RefusedPacket};
use tautline_proto::wire::packet::{Hello, Packet, Refusal};
use tautline_proto::{Config, Event, Notice, PeerId, RefusalReason};

const P: PeerId = PeerId(0);

#[test]
fn offers_arrive_with_type_hash_and_definition_and_messages_follow() {
    let mut net = Net::pair(1, &Pipe::of(6_000_000));
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
fn a_definition_is_asked_for_once_however_many_topics_share_the_type() {
    let mut net = Net::pair(2, &Pipe::of(6_000_000));
    net.open(0, P, channel(topic("/a", 1)));
    net.nodes[0].sent.clear();
    let text = b"string data";
    net.open(0, P, channel(topic("/b", 1)));
    let carries = |d: &Vec<u8>| d.windows(text.len()).any(|w| w == text);
    assert!(!net.nodes[0].sent.iter().any(carries), "the second offer needs no definition");
}

#[test]
fn a_restarted_peer_is_found_and_offered_everything_again() {
    let mut net = Net::pair(3, &Pipe::of(6_000_000));
    let kept = net.open(0, P, channel(topic("/chatter", 100)));
    net.send(0, P, kept, payload(1, 50_000));
    net.restart(1, &[0]);
    net.run(5000 * MS);
    let (_, wanted, stats) = net.nodes[0].endpoint.channel_out(P, kept).unwrap();
    assert!(wanted && stats.adds_up());
    assert_eq!(stats.dropped.get(DropReason::PeerGone), 1, "{stats:?}");
    net.send(0, P, kept, payload(2, 4));
    net.run(100 * MS);
    assert_eq!(net.nodes[1].received.len(), 1, "only what was sent to the new session");
    assert_eq!(number_of(&net.nodes[1].received[0].3.payload), 2);
}

#[test]
fn an_outage_ends_nothing_that_is_still_useful() {
    let mut net = Net::pair(4, &Pipe::of(6_000_000));
    let channel = net.open(0, P, channel(topic("/chatter", 100)));
    net.nodes[0].pipe.cut = true;
    net.nodes[1].pipe.cut = true;
    net.run(6000 * MS);
    assert!(net.nodes[0].events.contains(&Event::PeerDown { peer: P }));
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
    let mut net = Net::pair(5, &Pipe::of(6_000_000));
    net.nodes[0].endpoint.close();
    net.run(20 * MS);
    assert!(net.nodes[1].events.contains(&Event::PeerDown { peer: P }));
}

#[test]
fn a_replayed_hello_of_an_earlier_life_ends_no_session() {
    let mut net = Net::pair(6, &Pipe::of(6_000_000));
    let old_hello = net.nodes[1].sent[0].clone();
    net.restart(1, &[0]);
    net.run(5000 * MS);
    net.nodes[0].events.clear();
    net.nodes[0].sent.clear();
    net.inject(0, address(1), &old_hello);
    net.run(1000 * MS);
    assert_eq!(net.nodes[0].events, [], "the session stands");
    assert!(net.nodes[0].sent.len() < 10, "no more than heartbeats and one answer");
}

#[test]
fn a_live_session_is_not_replaced_by_a_hello_of_the_same_life() {
    let mut net = Net::pair(11, &Pipe::of(6_000_000));
    let last = net.nodes[1].sent.iter().rev().find_map(|d| match Packet::parse(d) {
        Ok(Packet::Hello(hello)) if hello.your_session != 0 => Some(hello.emit()),
        _ => None,
    });
    let mut garbled = last.unwrap();
    let session_at = 3 + "base".len();
    garbled[session_at] ^= 1;
    net.nodes[0].events.clear();
    net.inject(0, address(1), &garbled);
    net.run(1000 * MS);
    assert_eq!(net.nodes[0].events, []);
    let refused = net.nodes[0].endpoint.refused_packets();
    assert_eq!(refused.get(RefusedPacket::UnknownSession), 1);
}

#[test]
fn strangers_and_namesakes_are_named_to_both_sides() {
    let mut net = Net::pair(7, &Pipe::of(6_000_000));
    let stranger = net.add("stranger", Config::default(), Pipe::of(6_000_000));
    net.meet(stranger, 0);
    let namesake = net.add("robot", Config::default(), Pipe::of(6_000_000));
    net.nodes[namesake].endpoint.add_peer("elsewhere").unwrap();
    net.run(100 * MS);
    let unknown =
        Event::Notice(Notice::UnknownPeer { name: "stranger".into(), from: address(stranger) });
    assert!(net.nodes[0].events.contains(&unknown));
    let told = Event::Notice(Notice::TheyRefuse {
        name: "robot".into(),
        from: address(0),
        reason: RefusalReason::UnknownPeer,
    });
    assert!(net.nodes[stranger].events.contains(&told), "{:?}", net.nodes[stranger].events);

    let hello = Hello { name: "robot", session: 9, your_session: 0, epoch: 99 };
    net.inject(0, address(namesake), &hello.emit());
    let own_name = Event::Notice(Notice::NameTaken {
        name: "robot".into(),
        from: address(namesake),
        first: None,
    });
    assert!(net.nodes[0].events.contains(&own_name));

    net.inject(1, address(namesake), &hello.emit());
    let elsewhere = Event::Notice(Notice::UnknownAddress {
        name: "robot".into(),
        from: address(namesake),
        configured: vec![address(0)],
    });
    assert!(net.nodes[1].events.contains(&elsewhere));
}

#[test]
fn another_version_is_named_and_answered() {
    let mut net = Net::pair(8, &Pipe::of(6_000_000));
    let mut hello = Hello { name: "future", session: 9, your_session: 0, epoch: 1 }.emit();
    hello[1] |= 5 << 4;
    net.inject(0, address(9), &hello);
    let event = Event::Notice(Notice::Version {
        name: "future".into(),
        from: address(9),
        theirs: 5,
        ours: 0,
    });
    assert!(net.nodes[0].events.contains(&event));
    assert_eq!(net.nodes[0].endpoint.refused_packets().get(RefusedPacket::Version), 1);
    let answers = |net: &Net| net.nodes[0].sent.iter().filter(|d| d[1] & 0xf == 1).count();
    assert_eq!(answers(&net), 1);
    let mut refusal = Refusal { name: "future", reason: RefusalReason::Version }.emit();
    refusal[1] |= 5 << 4;
    net.inject(0, address(9), &refusal);
    assert_eq!(answers(&net), 1, "a refusal is not answered");
}

#[test]
fn a_node_does_not_take_its_own_reflected_hello_for_a_namesake() {
    let mut net = Net::pair(9, &Pipe::of(6_000_000));
    let own = net.nodes[0].sent[0].clone();
    net.nodes[0].events.clear();
    net.inject(0, address(1), &own);
    assert_eq!(net.nodes[0].events, []);
}

#[test]
fn an_unwanted_channel_carries_nothing() {
    let mut net = Net::pair(10, &Pipe::of(6_000_000));
    let channel = net.open(0, P, channel(topic("/chatter", 100)));
    let now = net.now;
    let theirs = net.nodes[1].endpoint.channels_in(P).next().unwrap();
    net.nodes[1].endpoint.want(now, P, theirs, false);
    net.run(100 * MS);
    assert!(!net.nodes[0].endpoint.channel_out(P, channel).unwrap().1);
    net.nodes[1].endpoint.refuse(net.now, P, theirs, "type differs".into());
    net.run(100 * MS);
    let refused = Event::Refused { peer: P, channel, reason: "type differs".into() };
    assert!(net.nodes[0].events.contains(&refused));
}
