// SPDX-License-Identifier: Apache-2.0
//! Arbitrary bytes on the port, and a peer that sends arbitrary content. floods.rs measures the
//! memory that such input makes a node allocate.

use proptest::prelude::*;
use proptest::sample::Index;
use std::collections::HashSet;
use tautline_proto::crypto::cookies::MacKey;
use tautline_proto::stats::RefusedPacket;
use tautline_proto::wire::beacon::emit_beacon;
use tautline_proto::wire::control::Control;
use tautline_proto::wire::cursor::Reader;
use tautline_proto::wire::frame::{
    Frame, put_candidates, put_challenge, put_echo, put_goodbye, put_held, put_observe,
    put_observed, put_ping,
};
use tautline_proto::wire::packet::{Packet, SESSION_HEADER, start_initiation, start_response};
use tautline_proto::{ChannelId, Event, LinkConfig, LinkId, PeerId, RadioId, SecretKey, Transmit};
use tautline_testkit::attacker::{Attacked, PEER};
use tautline_testkit::net::{MS, Net, Pipe, address, channel, defaults, number_of, payload, topic};

/// Bytes that pass the first checks more often than random ones.
fn bytes_like(starts: &'static [&'static [u8]], len: usize) -> impl Strategy<Value = Vec<u8>> {
    let rest = prop::collection::vec(prop_oneof![Just(0u8), 0u8..8, any::<u8>()], 0..len);
    (prop::sample::select(starts), rest).prop_map(|(start, rest)| [start, &rest].concat())
}

const PACKETS: &[&[u8]] = &[
    b"",
    b"T",
    b"T\x00\x01",
    b"T\x01\x03",
    b"T\x02",
    b"T\x03",
    b"T\x03saltsalt",
    b"T\x50\x02",
    b"\x80",
    b"\xcf\x01",
];
const FRAMES: &[&[u8]] = &[
    b"",
    b"\x01",
    b"\x01\x09\x01\x01\x00",
    b"\x02\x06\x00",
    b"\x03\x00",
    b"\x0b\x12",
    b"\x0d\x13\x00",
];
const CONTROLS: &[&[u8]] = &[b"", b"\x01\x01", b"\x02", b"\x03\x02", b"\x05\x01\x04", b"\x06\x01"];

fn emit_packet(packet: &Packet<'_>) -> Option<Vec<u8>> {
    Some(match packet {
        Packet::Initiation(it) => {
            [&start_initiation(it.session, it.noise)[..], &it.mac1, &it.mac2].concat()
        }
        Packet::Response(it) => {
            [&start_response(it.session, it.your_session, it.noise)[..], &it.mac1].concat()
        }
        Packet::CookieReply(cookie) => cookie.emit(),
        Packet::Beacon(beacon) => emit_beacon(beacon.salt, beacon.tags()),
        Packet::Session(header, sealed) => [&header.emit(0), *sealed].concat(),
        Packet::OtherVersion(_) => return None,
    })
}

fn emit_frame(frame: &Frame<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    match frame {
        Frame::Data(data, payload) => data.emit(payload, &mut out),
        Frame::Ack(ack) => ack.emit(&mut out),
        Frame::Relay(data, packet) => data.emit_relay(packet, &mut out),
        Frame::Parity(data, symbol) => data.emit_parity(symbol, &mut out),
        Frame::Held(held) => put_held(held, &mut out),
        Frame::Ping => put_ping(&mut out),
        Frame::Goodbye => put_goodbye(&mut out),
        Frame::Challenge(token) => put_challenge(*token, &mut out),
        Frame::Echo(token) => put_echo(*token, &mut out),
        Frame::Clock(report) => report.emit(&mut out),
        Frame::Observe(own) => put_observe(*own, &mut out),
        Frame::Observed(observed) => put_observed(*observed, &mut out),
        Frame::Candidates(candidates) => put_candidates(candidates, &mut out),
        Frame::Unknown(kind) => out.extend_from_slice(&[*kind, 0]),
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_packet_that_parses_is_emitted_as_it_was(bytes in bytes_like(PACKETS, 80)) {
        if let Ok(packet) = Packet::parse(&bytes)
            && let Some(again) = emit_packet(&packet)
        {
            // A cookie reply may be followed by fields of a later version.
            prop_assert_eq!(&bytes[..again.len()], &again[..]);
        }
    }

    #[test]
    fn parsed_frames_survive_a_round_trip(bytes in bytes_like(FRAMES, 80)) {
        if let Ok(frame) = Frame::parse(&mut Reader::new(&bytes)) {
            let again = emit_frame(&frame);
            prop_assert_eq!(Frame::parse(&mut Reader::new(&again)), Ok(frame));
        }
    }

    #[test]
    fn a_control_message_that_parses_is_emitted_as_one_that_parses_equal(
        bytes in bytes_like(CONTROLS, 80),
    ) {
        if let Ok(control) = Control::parse(&bytes) {
            prop_assert_eq!(Control::parse(&control.emit()), Ok(control));
        }
    }
}

/// The number of datagrams that were refused with a reason or received. A repeated initiation is not counted:
/// it is answered again.
fn accounted_datagrams(net: &Net, node: usize) -> u64 {
    let endpoint = &net.nodes[node].endpoint;
    endpoint.refused_packets().total() + endpoint.link(LinkId(0)).unwrap().stats.received_packets
}

/// Delivers a datagram to the base as if from the robot; checks that a counter accounts for it.
fn inject(net: &mut Net, datagram: &[u8]) {
    let before = accounted_datagrams(net, 1);
    net.inject(1, address(0), datagram);
    let is_initiation = matches!(Packet::parse(datagram), Ok(Packet::Initiation(_)));
    assert!(is_initiation || accounted_datagrams(net, 1) > before, "not counted: {datagram:02x?}");
}

#[derive(Debug, Clone)]
enum Mutation {
    Replay,
    Truncate(Index),
    /// Joins the header of one packet to the rest of another.
    Splice(Index),
    /// Flips any bit.
    Flip(Index, u8),
    Insert(Index, u8),
    Random(Vec<u8>),
}

fn any_mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        Just(Mutation::Replay),
        any::<Index>().prop_map(Mutation::Truncate),
        any::<Index>().prop_map(Mutation::Splice),
        (any::<Index>(), 0u8..8).prop_map(|(at, bit)| Mutation::Flip(at, bit)),
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Mutation::Insert(at, byte)),
        prop::collection::vec(any::<u8>(), 0..200).prop_map(Mutation::Random),
    ]
}

fn mutated(recorded: &[Transmit], which: &Index, mutation: &Mutation) -> Vec<u8> {
    let mut datagram = which.get(recorded).datagram.clone();
    match mutation {
        Mutation::Replay => {}
        Mutation::Truncate(len) => datagram.truncate(len.index(datagram.len())),
        Mutation::Splice(other) => {
            let other = &other.get(recorded).datagram;
            datagram.truncate(SESSION_HEADER);
            datagram.extend_from_slice(&other[SESSION_HEADER..]);
        }
        Mutation::Flip(at, bit) => {
            let at = at.index(datagram.len());
            datagram[at] ^= 1 << bit;
        }
        Mutation::Insert(at, byte) => datagram.insert(at.index(datagram.len()), *byte),
        Mutation::Random(bytes) => datagram.clone_from(bytes),
    }
    datagram
}

const P: PeerId = PeerId(0);

/// A pair of nodes. The robot has sent messages of many sizes over a lossy link, and keeps sending.
fn busy_pair(seed: u64) -> (Net, ChannelId) {
    let mut net = Net::pair(seed, &Pipe::lossy(6_000_000, 0.1));
    let channel = net.open(0, P, channel(topic("/data", 100)));
    for n in 0..12 {
        net.send(0, P, channel, payload(n, 4 + (n as usize * 977) % 9000));
        net.run(5 * MS);
    }
    (net, channel)
}

/// Continues the session while mutated packets of the robot, old and new, also reach the base.
fn attack(net: &mut Net, channel: ChannelId, mutations: &[(Index, Mutation)]) {
    for (n, (which, mutation)) in mutations.iter().enumerate() {
        let number = 12 + n as u32;
        let message = payload(number, 4 + (number as usize * 977) % 9000);
        net.send(0, P, channel, message);
        net.run(3 * MS);
        let datagram = mutated(&net.nodes[0].sent, which, mutation);
        inject(net, &datagram);
        net.check_conservation(0, P, &[channel]);
    }
    net.run(1000 * MS);
    net.check_conservation(0, P, &[channel]);
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 200, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn packets_of_strangers_have_no_effect(
        seed in 1u64..1000,
        mutations in prop::collection::vec((any::<Index>(), any_mutation()), 1..40),
    ) {
        let (mut net, channel) = busy_pair(seed);
        net.nodes[1].events.clear();
        attack(&mut net, channel, &mutations);
        let mut seen = HashSet::new();
        for (_, _, _, message) in &net.nodes[1].received {
            let number = number_of(&message.payload);
            let sent = payload(number, 4 + (number as usize * 977) % 9000);
            prop_assert_eq!(&message.payload[..], &sent[..]);
            prop_assert!(seen.insert(number), "message {} came twice", number);
        }
        prop_assert!(net.nodes[1].endpoint.peer(P).up);
        let said = |event: &&Event| !matches!(event, Event::Notice(_));
        prop_assert_eq!(net.nodes[1].events.iter().find(said), None);
    }
}

/// Well-formed frames and control messages with arbitrary values.
fn hostile_frames() -> impl Strategy<Value = Vec<u8>> {
    let number = || prop_oneof![0u64..20, any::<u64>(), u64::MAX - 2000..=u64::MAX];
    let data = (0u64..3, number(), any::<u8>(), number(), prop::collection::vec(0u8..9, 0..40));
    let data = data.prop_map(|(channel, number, flags, extra, rest)| {
        let mut body = Vec::new();
        tautline_proto::wire::cursor::put_varint(&mut body, channel);
        tautline_proto::wire::cursor::put_varint(&mut body, number);
        body.push(flags % 8);
        tautline_proto::wire::cursor::put_varint(&mut body, extra % (1 << 32));
        body.extend_from_slice(&rest);
        [&[1, body.len() as u8], &body[..]].concat()
    });
    let ack = (0u8..3, number(), number(), number()).prop_map(|(link, last, delay, before)| {
        let mut body = vec![link];
        for value in [last, delay % (1 << 32), before] {
            tautline_proto::wire::cursor::put_varint(&mut body, value);
        }
        [&[2, body.len() as u8], &body[..]].concat()
    });
    let other = (any::<u8>(), prop::collection::vec(any::<u8>(), 0..20))
        .prop_map(|(kind, body)| [&[kind, body.len() as u8], &body[..]].concat());
    prop_oneof![4 => data, 2 => ack, 1 => other]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn arbitrary_packets_of_a_peer_cause_no_panic(
        packets in prop::collection::vec(
            (prop::collection::vec(hostile_frames(), 0..4), bytes_like(CONTROLS, 60)),
            1..60,
        ),
    ) {
        let mut attacked = Attacked::new(defaults());
        for (frames, control) in &packets {
            attacked.packet(&frames.concat());
            attacked.raw_or_framed(&[&[2], &control[..]].concat());
        }
        let channels: Vec<_> = attacked.endpoint.peer(PEER).channels_in().collect();
        for channel in channels {
            prop_assert!(attacked.endpoint.peer(PEER).channel_in(channel).is_some());
        }
        let out = attacked.endpoint.peer(PEER).channel_out(ChannelId(1)).map(|c| c.2.adds_up());
        prop_assert_eq!(out, Some(true));
    }
}

#[test]
fn forged_answers_cost_few_key_agreements() {
    let mut net = Net::new(3);
    let robot = net.add("robot", defaults(), Pipe::with_rate(6_000_000));
    let endpoint = &mut net.nodes[robot].endpoint;
    let base = endpoint.add_peer("base", SecretKey::insecure("base").public()).unwrap();
    let link = LinkConfig {
        remote: Some(address(50)),
        datagram_bytes: 1472,
        header_bytes: 28,
        metered: false,
    };
    endpoint.peer_mut(base).add_link(net.now, RadioId(0), link).unwrap();
    let proof = MacKey::for_receiver(&endpoint.key());
    net.run(1000 * MS);
    // Anybody who hears an initiation knows its session number.
    let mut sessions =
        net.nodes[robot].sent.iter().filter_map(|it| match Packet::parse(&it.datagram) {
            Ok(Packet::Initiation(packet)) => Some(packet.session),
            _ => None,
        });
    let session = sessions.next_back().expect("it calls");
    for drawn in 0..1000u64 {
        let noise: Vec<u8> = (0..57).map(|i| (drawn >> (i % 8)) as u8 ^ i as u8).collect();
        let mut answer = start_response(77, session, &noise);
        let code = proof.mac(&answer);
        answer.extend_from_slice(&code);
        net.inject(robot, address(51), &answer);
    }
    let refused = net.nodes[robot].endpoint.refused_packets();
    assert_eq!(refused.get(RefusedPacket::Unauthentic), 100);
    assert_eq!(refused.get(RefusedPacket::Flood), 900);
}
