// SPDX-License-Identifier: Apache-2.0
//! A hostile peer with a valid key. It can do no more than its rights allow, and harms no other
//! pair of nodes.

use std::net::SocketAddr;
use tautline_proto::crypto::cookies::{CookieJar, MacKey};
use tautline_proto::crypto::noise::Initiator;
use tautline_proto::crypto::seal::Sealer;
use tautline_proto::stats::RefusedPacket;
use tautline_proto::wire::control::{Control, Offer};
use tautline_proto::wire::frame::{Ack, Data, Fragment, put_goodbye, put_held, put_ping};
use tautline_proto::wire::packet::{Greeting, Packet, SessionHeader, start_initiation};
use tautline_proto::wire::relay::{Held, RelayHeader, ShortName};
use tautline_proto::{
    ChannelId, Duration, EcnCounts, Event, LinkConfig, PeerId, RadioId, Rights, SecretKey,
};
use tautline_testkit::net::*;

const MBPS_6: u64 = 6_000_000;
const RELAYED: Rights = Rights { relayed: true, max_priority: 255 };

/// A hand-made peer of one node of a [`Net`]. It completes the handshake, and then sends anything.
struct Liar {
    name: &'static str,
    node: usize,
    from: SocketAddr,
    /// The id at the node.
    peer: PeerId,
    session: u32,
    sealer: Option<Sealer>,
    packet: u64,
    control: u64,
}

impl Liar {
    /// Makes the liar a peer of `node` and completes a handshake.
    fn meet(net: &mut Net, node: usize, name: &'static str) -> Self {
        let key = SecretKey::insecure(name).public();
        let peer = net.nodes[node].endpoint.add_peer(name, key).unwrap();
        let from = address(100);
        let link = LinkConfig {
            remote: Some(from),
            datagram_bytes: 1472,
            header_bytes: 28,
            metered: false,
        };
        net.nodes[node].endpoint.peer_mut(peer).add_link(net.now, RadioId(0), link).unwrap();
        // Time for packets to another liar to leave the kernel.
        net.run(10 * MS);
        let mut liar =
            Self { name, node, from, peer, session: 0, sealer: None, packet: 0, control: 0 };
        assert!(liar.shake_hands(net, 1), "the handshake succeeds");
        assert!(net.nodes[node].endpoint.peer(peer).up);
        liar
    }

    /// Completes a handshake with session epoch `epoch`, and sends a first packet under the new keys.
    fn shake_hands(&mut self, net: &mut Net, epoch: u64) -> bool {
        let node_key = net.nodes[self.node].endpoint.key();
        let payload = Greeting { epoch, name: self.name }.emit();
        let drawn = [(net.rng.draw() & 0xff) as u8; 32];
        let secret = SecretKey::insecure(self.name);
        let (mut state, noise) = Initiator::initiate(&secret, &node_key, drawn, &payload).unwrap();
        let mut packet = start_initiation(7, &noise);
        CookieJar::default().append_macs(net.now, &MacKey::for_receiver(&node_key), &mut packet);
        net.nodes[self.node].sent.clear();
        net.inject(self.node, self.from, &packet);
        let sent = std::mem::take(&mut net.nodes[self.node].sent);
        let answers = sent.iter().filter(|it| it.remote == self.from);
        let met = answers.filter_map(|transmit| match Packet::parse(&transmit.datagram) {
            Ok(Packet::Response(answer)) => {
                let (split, _) = state.finish(answer.noise).ok()?;
                Some((answer.session, Sealer::new(&split)?))
            }
            _ => None,
        });
        let Some((session, sealer)) = met.last() else { return false };
        (self.session, self.sealer, self.packet, self.control) = (session, Some(sealer), 0, 0);
        let refused = net.nodes[self.node].endpoint.refused_packets().total();
        self.send(net, &[]);
        net.nodes[self.node].endpoint.refused_packets().total() == refused
    }

    /// A sealed packet with the next number.
    fn seal(&mut self, net: &Net, relayed: bool, frames: &[u8]) -> Vec<u8> {
        self.packet += 1;
        self.seal_as(net, self.packet, relayed, frames)
    }

    fn seal_as(&self, net: &Net, packet: u64, relayed: bool, frames: &[u8]) -> Vec<u8> {
        let (session, number) = (self.session, packet as u32);
        let header = SessionHeader { ack_soon: false, relayed, link: 0, session, number };
        let mut datagram = header.emit(1472);
        if !relayed {
            datagram.extend_from_slice(&((net.now.0 / 1000) as u32).to_le_bytes());
        }
        datagram.extend_from_slice(frames);
        self.sealer.as_ref().unwrap().seal(0, packet, &mut datagram).unwrap();
        datagram
    }

    fn send(&mut self, net: &mut Net, frames: &[u8]) {
        let datagram = self.seal(net, false, frames);
        net.now = net.now + Duration::from_micros(50);
        net.inject(self.node, self.from, &datagram);
    }

    fn control(&mut self, net: &mut Net, control: &Control) {
        self.control += 1;
        let frame = data_frame(0, self.control, &control.emit());
        self.send(net, &frame);
    }

    /// Sends the content of a RELAY frame in as many packets as needed.
    fn relay(&mut self, net: &mut Net, number: u64, content: &[u8]) {
        let total = content.len() as u32;
        for (index, piece) in content.chunks(1300).enumerate() {
            let fragment = Some(Fragment { total, offset: index as u32 * 1300 });
            let mut frame = Vec::new();
            data(100, number, fragment).emit_relay(piece, &mut frame);
            self.send(net, &frame);
        }
    }
    /// Acknowledges only the newest packet, as if all others were lost.
    fn acknowledge_newest(&mut self, net: &mut Net) {
        let to_us = net.nodes[self.node].sent.iter().filter(|it| it.remote == self.from);
        let numbers = to_us.filter_map(|it| match Packet::parse(&it.datagram) {
            Ok(Packet::Session(header, _)) => Some(u64::from(header.number)),
            _ => None,
        });
        let Some(newest) = numbers.max() else { return };
        let (delay, ranges) = (Duration::ZERO, vec![(newest, newest)]);
        let ack = Ack {
            link: 0,
            delay,
            waited: delay,
            least_waited: delay,
            ecn: EcnCounts::default(),
            ranges,
        };
        let mut frames = Vec::new();
        ack.emit(&mut frames);
        put_ping(&mut frames);
        self.send(net, &frames);
    }
}

fn data(channel: u64, number: u64, fragment: Option<Fragment>) -> Data {
    Data { channel, number, source: 0, encoded: false, age: Duration::ZERO, fragment, place: None }
}

fn data_frame(channel: u64, number: u64, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    data(channel, number, None).emit(payload, &mut frame);
    frame
}

fn short_name(name: &str) -> ShortName {
    SecretKey::insecure(name).public().short_name()
}

fn refused(net: &Net, node: usize, reason: RefusedPacket) -> u64 {
    net.nodes[node].endpoint.refused_packets().get(reason)
}

/// Nested packets, each in a RELAY frame for the node itself.
fn nested(liar: &Liar, net: &Net, levels: u64) -> Vec<u8> {
    let header = RelayHeader { hops: 8, life: None, from: None, to: None };
    let first = liar.packet + 10_000;
    let mut ping = Vec::new();
    put_ping(&mut ping);
    let mut inner = header.with_header(&liar.seal_as(net, first + levels, true, &ping));
    for level in (0..levels).rev() {
        let mut frame = Vec::new();
        data(100, 1000 + level, None).emit_relay(&inner, &mut frame);
        inner = header.with_header(&liar.seal_as(net, first + level, true, &frame));
    }
    inner
}

#[test]
fn packets_within_packets_end_at_the_first() {
    for rights in [Rights::default(), RELAYED] {
        let mut net = Net::pair(1, &Pipe::with_rate(MBPS_6));
        let mut liar = Liar::meet(&mut net, 0, "liar");
        net.nodes[0].endpoint.peer_mut(liar.peer).set_rights(rights);
        let content = nested(&liar, &net, 5000);
        liar.relay(&mut net, 1, &content);
        let expected =
            if rights.relayed { RefusedPacket::Bound } else { RefusedPacket::NotRelayed };
        assert!(refused(&net, 0, expected) > 100, "{:?}", net.nodes[0].endpoint.refused_packets());
        let content = nested(&liar, &net, 10);
        let before = refused(&net, 0, RefusedPacket::Malformed);
        liar.relay(&mut net, 2, &content);
        let malformed = refused(&net, 0, RefusedPacket::Malformed) - before;
        assert_eq!(malformed, u64::from(rights.relayed));
    }
}

/// Robot (0), relay (1) and base (2), with a laser from the robot to the base, and a hostile peer of
/// the relay.
fn relayed_pair() -> (Net, PeerId, ChannelId, Liar) {
    let mut net = Net::new(2);
    for name in ["robot", "relay", "base"] {
        net.add(name, defaults(), Pipe::with_rate(MBPS_6));
    }
    for node in 1..3 {
        let (left, right) = net.join(node - 1, node);
        net.nodes[node - 1].endpoint.peer_mut(left).set_rights(RELAYED);
        net.nodes[node].endpoint.peer_mut(right).set_rights(RELAYED);
    }
    let base = net.add_peer_through(0, 2, &[PeerId(0)]);
    net.add_peer_through(2, 0, &[PeerId(0)]);
    net.run(1500 * MS);
    let laser = net.open(0, base, channel(topic("/scan", 200)));
    let liar = Liar::meet(&mut net, 1, "liar");
    (net, base, laser, liar)
}

#[test]
fn queue_reports_are_believed_from_the_next_neighbour_only() {
    for bytes in [100_000, u64::MAX] {
        let (mut net, base, laser, mut liar) = relayed_pair();
        let flow = (short_name("robot"), short_name("base"));
        for n in 0..20 {
            net.send(0, base, laser, payload(n, 1000));
            let held = Held { to: flow.1, bytes, from: Some(flow.0) };
            let mut frame = Vec::new();
            put_held(&held, &mut frame);
            liar.send(&mut net, &frame);
            net.run(50 * MS);
        }
        net.run(300 * MS);
        let arrived = net.nodes[2].received.iter().filter(|it| it.2 == laser).count();
        assert_eq!(arrived, 20, "the liar reports {bytes} bytes");
    }
}

#[test]
fn sums_of_queued_bytes_saturate() {
    let (mut net, base, laser, _) = relayed_pair();
    // The next hop of the relay is the hostile peer here, so that its reports count.
    let mut liar = Liar::meet(&mut net, 1, "second");
    let end = net.nodes[1].endpoint.add_peer("end", SecretKey::insecure("end").public()).unwrap();
    net.nodes[1].endpoint.peer_mut(end).add_relayed_link(net.now, liar.peer).unwrap();
    let mut frame = Vec::new();
    put_held(&Held { to: short_name("end"), bytes: u64::MAX, from: None }, &mut frame);
    put_held(
        &Held { to: short_name("end"), bytes: u64::MAX, from: Some(short_name("robot")) },
        &mut frame,
    );
    for _ in 0..5 {
        liar.send(&mut net, &frame);
        net.run(500 * MS);
    }
    net.send(0, base, laser, payload(1, 1000));
    net.run(500 * MS);
    assert_eq!(net.nodes[2].received.len(), 1);
}

#[test]
fn rights_to_be_relayed_ignore_the_claimed_name() {
    let (mut net, _, _, mut liar) = relayed_pair();
    let forwarded = |net: &Net| {
        let base = net.nodes[1].endpoint.peers().nth(1).unwrap();
        net.nodes[1].endpoint.peer(base).relayed().accepted
    };
    let before = forwarded(&net);
    for (number, claimed) in ["robot", "base", "nobody", "liar"].into_iter().enumerate() {
        let (from, to) = (Some(short_name(claimed)), Some(short_name("base")));
        let header = RelayHeader { hops: 8, life: None, from, to };
        liar.relay(&mut net, number as u64 + 1, &header.with_header(&[7; 100]));
    }
    assert_eq!(forwarded(&net), before);
    assert_eq!(refused(&net, 1, RefusedPacket::NotRelayed), 4);
    // With the right to be relayed, it may send for itself and for nodes that are unknown here.
    net.nodes[1].endpoint.peer_mut(liar.peer).set_rights(RELAYED);
    for (number, claimed) in ["robot", "base", "nobody", "liar"].into_iter().enumerate() {
        let (from, to) = (Some(short_name(claimed)), Some(short_name("base")));
        let header = RelayHeader { hops: 8, life: None, from, to };
        liar.relay(&mut net, number as u64 + 11, &header.with_header(&[7; 100]));
    }
    assert_eq!(refused(&net, 1, RefusedPacket::NotRelayed), 6);
    assert_eq!(forwarded(&net), before + 2);
}

#[test]
fn one_neighbour_fills_a_bounded_part_of_anothers_queue() {
    let (mut net, _, _, mut liar) = relayed_pair();
    net.nodes[1].endpoint.peer_mut(liar.peer).set_rights(RELAYED);
    net.nodes[1].pipe.rate_bps = 100_000;
    let header = RelayHeader { hops: 8, life: None, from: None, to: Some(short_name("base")) };
    for number in 1..2000 {
        liar.relay(&mut net, number, &header.with_header(&[7; 1200]));
    }
    let queued = net.nodes[1].endpoint.peer(PeerId(1)).queued_bytes;
    assert!(queued < tautline_proto::limits::RELAYED_BYTES, "{queued} bytes wait");
    assert!(refused(&net, 1, RefusedPacket::Bound) > 1000);
}

/// Offers a channel of a type, and sends the definition when the node asks for it.
fn offer(liar: &mut Liar, net: &mut Net, channel: u64, type_hash: &str, text: &str) {
    let mut topic = topic(&format!("/t{channel}"), 100);
    topic.type_hash = type_hash.into();
    liar.control(net, &Control::Offer(Offer { channel, topic }));
    liar.control(net, &Control::Definition { channel, text: text.into() });
}

fn definitions(net: &Net, node: usize, of: PeerId) -> Vec<String> {
    let definition = |event: &Event| match event {
        Event::Offered { peer, definition, .. } if *peer == of => Some(definition.to_string()),
        _ => None,
    };
    net.nodes[node].events.iter().filter_map(definition).collect()
}

#[test]
fn a_definition_is_valid_only_for_its_sender() {
    let mut net = Net::pair(3, &Pipe::with_rate(MBPS_6));
    let mut liar = Liar::meet(&mut net, 0, "liar");
    offer(&mut liar, &mut net, 1, "abc", "a lie");
    assert_eq!(definitions(&net, 0, liar.peer), ["a lie"]);
    let mut honest = topic("/honest", 100);
    honest.type_hash = "abc".into();
    net.open(1, PeerId(0), channel(honest));
    assert_eq!(definitions(&net, 0, PeerId(0)), ["string data"]);
}

#[test]
fn definitions_of_one_peer_are_bounded_together_and_freed_with_its_session() {
    let mut net = Net::pair(4, &Pipe::with_rate(MBPS_6));
    let mut liar = Liar::meet(&mut net, 0, "liar");
    let text = "x".repeat(1300);
    let mut sent = 0;
    for n in 1..=4096 {
        sent += text.len();
        offer(&mut liar, &mut net, n, &n.to_string(), &text);
        net.now = net.now + 20 * MS;
    }
    let kept = |net: &Net| definitions(net, 0, liar.peer).iter().map(String::len).sum::<usize>();
    assert!(sent > 5 << 20 && kept(&net) < 5 << 20, "{} of {sent} bytes", kept(&net));
    let without = definitions(&net, 0, liar.peer).iter().filter(|it| it.is_empty()).count();
    assert!(without > 0, "the rest comes without");
}

#[test]
fn a_goodbye_frees_memory_and_ends_the_session() {
    let mut net = Net::pair(5, &Pipe::with_rate(MBPS_6));
    let mut liar = Liar::meet(&mut net, 0, "liar");
    offer(&mut liar, &mut net, 1, "abc", "text");
    assert_eq!(net.nodes[0].endpoint.peer(liar.peer).channels_in().count(), 1);
    let mut frame = Vec::new();
    put_goodbye(&mut frame);
    liar.send(&mut net, &frame);
    assert_eq!(net.nodes[0].endpoint.peer(liar.peer).channels_in().count(), 0);
    assert!(net.nodes[0].events.contains(&Event::PeerLeft { peer: liar.peer }));
    // The other peer's session continues, and nothing of the ended one is valid.
    let before = refused(&net, 0, RefusedPacket::UnknownSession);
    liar.send(&mut net, &[]);
    assert_eq!(refused(&net, 0, RefusedPacket::UnknownSession), before + 1);
    assert!(net.nodes[0].endpoint.peer(PeerId(0)).up && !net.nodes[0].endpoint.peer(liar.peer).up);
}

#[test]
fn both_ends_start_again_after_a_lost_goodbye() {
    for lost in [false, true] {
        let mut net = Net::pair(6, &Pipe::with_rate(MBPS_6));
        let first = net.open(0, PeerId(0), channel(topic("/scan", 200)));
        net.send(0, PeerId(0), first, payload(1, 3000));
        net.run(100 * MS);
        net.nodes[0].pipe.cut = lost;
        net.nodes[0].endpoint.close();
        net.run(20 * MS);
        net.nodes[0].pipe.cut = false;
        net.run(3000 * MS);
        assert!(net.nodes.iter().all(|node| node.endpoint.peer(PeerId(0)).up), "lost: {lost}");
        net.nodes[1].received.clear();
        net.send(0, PeerId(0), first, payload(2, 3000));
        net.run(100 * MS);
        assert_eq!(net.nodes[1].received.len(), 1, "lost: {lost}");
    }
}

#[test]
fn new_sessions_of_one_peer_are_few() {
    let mut net = Net::pair(7, &Pipe::with_rate(MBPS_6));
    let mut liar = Liar::meet(&mut net, 0, "liar");
    let mut begun = 0;
    let start = net.now;
    for epoch in 2..200 {
        begun += u32::from(liar.shake_hands(&mut net, epoch));
        net.run(50 * MS);
    }
    let seconds = net.now.since(start).as_secs() as u32;
    assert!((seconds - 1..=seconds + 16).contains(&begun), "{begun} sessions in {seconds} s");
    assert!(refused(&net, 0, RefusedPacket::Flood) > 100);
}

#[test]
fn control_messages_of_one_peer_are_handled_at_a_bounded_rate_and_none_is_lost() {
    let mut net = Net::pair(8, &Pipe::with_rate(MBPS_6));
    let mut liar = Liar::meet(&mut net, 0, "liar");
    let (mut taken, mut n) = (0, 0);
    for _ in 0..100_000 {
        let mut topic = topic("/flapping", 100);
        topic.type_hash = n.to_string();
        let number = liar.control + 1;
        let frame = data_frame(0, number, &Control::Offer(Offer { channel: 1, topic }).emit());
        let before = refused(&net, 0, RefusedPacket::Bound);
        liar.send(&mut net, &frame);
        if refused(&net, 0, RefusedPacket::Bound) == before {
            (liar.control, n, taken) = (number, n + 1, taken + 1);
        }
    }
    let allowed = tautline_proto::limits::CONTROL_MESSAGES;
    // 100 000 responses of 50 us each take 5 s.
    assert!(taken <= allowed.burst + 5 * allowed.per_second + 1, "{taken} were handled");
    assert!(taken > allowed.burst);
    assert_eq!(net.nodes[0].endpoint.peer(liar.peer).channels_in().count(), 1);
}

#[test]
fn a_forged_cookie_causes_few_initiations() {
    let mut net = Net::new(9);
    net.add("robot", defaults(), Pipe::with_rate(MBPS_6));
    let base = SecretKey::insecure("base").public();
    let peer = net.nodes[0].endpoint.add_peer("base", base).unwrap();
    let link = LinkConfig {
        remote: Some(address(1)),
        datagram_bytes: 1472,
        header_bytes: 28,
        metered: false,
    };
    net.nodes[0].endpoint.peer_mut(peer).add_link(net.now, RadioId(0), link).unwrap();
    net.run(100 * MS);
    let initiations = |net: &Net| {
        let sent = net.nodes[0].sent.iter();
        sent.filter(|it| matches!(Packet::parse(&it.datagram), Ok(Packet::Initiation(_)))).count()
    };
    let start = initiations(&net);
    let mut forged = Vec::new();
    for _ in 0..2000 {
        let sent = net.nodes[0].sent.iter().rev().find(|it| it.datagram[1] & 0xf == 0).unwrap();
        let Ok(Packet::Initiation(it)) = Packet::parse(&sent.datagram) else { panic!("a call") };
        // Anybody who hears the initiation and knows the base's public key can forge a cookie
        // reply.
        let cookie = MacKey::for_receiver(&base).cookie(it.session, &it.mac1, [1; 12], &[2; 16]);
        forged.clone_from(&cookie.unwrap());
        net.inject(0, address(1), &forged);
        net.run(MS);
    }
    // Cookies cause twelve initiations per second, and seeking the base causes six.
    let initiations = initiations(&net) - start;
    assert!(initiations < 45, "{initiations} initiations in 2 s");
    assert!(!forged.is_empty());
}

#[test]
fn packets_of_a_peer_are_accepted_only_through_configured_relays() {
    let mut net = Net::pair(10, &Pipe::with_rate(MBPS_6));
    let laser = net.open(1, PeerId(0), channel(topic("/scan", 200)));
    let mut liar = Liar::meet(&mut net, 0, "liar");
    net.nodes[0].endpoint.peer_mut(liar.peer).set_rights(RELAYED);
    net.nodes[1].sent.clear();
    net.nodes[1].pipe.cut = true;
    net.send(1, PeerId(0), laser, payload(1, 500));
    let packet = net.nodes[1].sent.iter().map(|it| it.datagram.clone()).max_by_key(Vec::len);
    let from = Some(short_name("base"));
    let header = RelayHeader { hops: 8, life: None, from, to: None };
    let before = refused(&net, 0, RefusedPacket::UnknownSession);
    liar.relay(&mut net, 1, &header.with_header(&packet.unwrap()));
    assert_eq!(refused(&net, 0, RefusedPacket::UnknownSession), before + 1);
    assert!(net.nodes[0].received.is_empty());
}

#[test]
fn replies_to_one_peer_do_not_precede_commands_to_another() {
    let mut net = Net::pair(5, &Pipe::with_rate(MBPS_6));
    let open = net.open(0, PeerId(0), channel(topic("/cmd_vel", 220)));
    let mut liar = Liar::meet(&mut net, 0, "liar");
    net.nodes[1].received.clear();
    for step in 0..400 {
        net.send(0, PeerId(0), open, payload(step, 100));
        // Each offer is refused with a long text.
        for _ in 0..20 {
            let (now, channel) = (net.now, ChannelId(1));
            liar.control(&mut net, &Control::Offer(Offer { channel: 1, topic: topic("/x", 1) }));
            net.nodes[0].endpoint.peer_mut(liar.peer).refuse(now, channel, "r".repeat(1000));
        }
        if step % 3 == 0 {
            liar.acknowledge_newest(&mut net);
            net.nodes[0].sent.clear();
        }
        net.run(20 * MS);
    }
    let late = net.nodes[1].received[100..].iter().enumerate();
    let late = late.filter(|(_, (_, _, _, it))| it.age > 20 * MS).count();
    assert_eq!((net.nodes[1].received.len(), late), (400, 0));
}
