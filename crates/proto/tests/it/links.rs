// SPDX-License-Identifier: Apache-2.0
//! Two radios to one peer: the first radio that is up carries the data. When it fails, no message is lost or
//! delivered twice.

use std::net::SocketAddr;
use tautline_proto::{
    Arrival, ChannelConfig, ChannelId, Config, DeliveryOrder, Duration, Endpoint, Event,
    HEARTBEAT_BYTES_PER_SECOND, Instant, LinkConfig, LinkId, LinkPolicy, LinkUse,
    METERED_HEARTBEAT_BYTES_PER_SECOND, Message, MtuState, OfferedTopic, PeerId, RadioConfig,
    RadioId, SecretKey,
};

const PEER: PeerId = PeerId(0);
const STEP: Duration = Duration::from_millis(1);

fn address(node: usize, radio: RadioId) -> SocketAddr {
    SocketAddr::from(([10, radio.0 as u8, 0, node as u8 + 1], 18470))
}

/// A node without links.
fn unlinked(number: usize) -> Endpoint {
    let names = ["robot", "base"];
    let config = Config::new(names[number], SecretKey::insecure(names[number]));
    let mut state = number as u64 * 1_000_000;
    let random = move || {
        state += 1;
        state
    };
    let mut endpoint = Endpoint::new(config, Box::new(random)).unwrap();
    endpoint.add_peer(names[1 - number], SecretKey::insecure(names[1 - number]).public()).unwrap();
    endpoint
}

/// The link of node `number` to the other node by `radio`.
fn link(number: usize, radio: RadioId) -> LinkConfig {
    // A slow second radio has smaller datagrams: fragments are byte ranges, not indices.
    let datagram_bytes = [1472, 600][radio.0 as usize];
    let remote = Some(address(1 - number, radio));
    LinkConfig { remote, datagram_bytes, header_bytes: 28, metered: false }
}

fn node(number: usize) -> Endpoint {
    node_with(number, false)
}

/// A node whose second link may be metered.
fn node_with(number: usize, metered: bool) -> Endpoint {
    let mut endpoint = unlinked(number);
    for is_second in [false, true] {
        let radio = endpoint.add_radio(RadioConfig::default());
        let config = LinkConfig { metered: metered && is_second, ..link(number, radio) };
        endpoint.peer_mut(PEER).add_link(Instant(0), radio, config).unwrap();
    }
    endpoint
}

/// A packet on its way to a node.
struct OnWay {
    arrives: Instant,
    to: usize,
    radio: RadioId,
    datagram: Vec<u8>,
}

/// Two nodes, joined by two radios that can be cut.
struct JoinedNodes {
    now: Instant,
    nodes: [Endpoint; 2],
    cut: [bool; 2],
    delays: [Duration; 2],
    /// How long each packet to the second node waits before that node reads it.
    waits: Duration,
    on_way: Vec<OnWay>,
    carried: [usize; 2],
    received: Vec<u8>,
    /// Links that went down, of both nodes.
    downs: Vec<LinkId>,
}

impl JoinedNodes {
    fn new() -> Self {
        let mut joined = Self::from_nodes([node(0), node(1)]);
        joined.run(1000);
        joined
    }

    fn from_nodes(nodes: [Endpoint; 2]) -> Self {
        Self {
            now: Instant(0),
            nodes,
            cut: [false; 2],
            delays: [Duration::ZERO; 2],
            waits: Duration::ZERO,
            on_way: Vec::new(),
            carried: [0; 2],
            received: Vec::new(),
            downs: Vec::new(),
        }
    }

    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            self.now = self.now + STEP;
            for from in 0..2 {
                self.nodes[from].handle_timeout(self.now);
                self.deliver();
                self.enqueue_relayed(from);
                self.take_events(from);
            }
        }
    }

    /// One packet for each radio in each step, so that something is always in flight.
    fn enqueue_relayed(&mut self, from: usize) {
        for _ in 0..2 {
            let Some(transmit) = self.nodes[from].poll_transmit(self.now) else { return };
            let radio = transmit.radio;
            if let Some(link) = transmit.link {
                self.nodes[from].link_mut(link).handle_in_flight(self.now, transmit.class, 0);
            }
            if self.cut[radio.0 as usize] {
                continue;
            }
            self.carried[radio.0 as usize] += transmit.datagram.len();
            let arrives = self.now + self.delays[radio.0 as usize];
            let (to, datagram) = (1 - from, transmit.datagram);
            self.on_way.push(OnWay { arrives, to, radio, datagram });
            self.deliver();
        }
    }

    fn deliver(&mut self) {
        let now = self.now;
        let waits = [Duration::ZERO, self.waits];
        for packet in self.on_way.extract_if(.., |it| it.arrives + waits[it.to] <= now) {
            let OnWay { to, radio, datagram, .. } = packet;
            let from = address(1 - to, radio);
            let arrival = Arrival { waited: waits[to], ..Arrival::default() };
            self.nodes[to].handle_received_packet(now, arrival, radio, from, &datagram);
        }
    }

    fn take_events(&mut self, node: usize) {
        while let Some(event) = self.nodes[node].poll_event() {
            match event {
                Event::Offered { peer, channel, .. } => {
                    self.nodes[node].peer_mut(peer).want(self.now, channel, true);
                }
                Event::Message { message, .. } => self.received.push(message.payload[0]),
                Event::LinkDown { link } => self.downs.push(link),
                _ => {}
            }
        }
    }

    fn offer(&mut self) -> ChannelId {
        self.offer_with(DeliveryOrder::Arrival, LinkUse::default())
    }

    fn offer_with(&mut self, order: DeliveryOrder, links: LinkUse) -> ChannelId {
        let topic = OfferedTopic {
            name: "/image".into(),
            type_name: "t".into(),
            type_hash: "h".into(),
            priority: 10,
            keep_last: 1000,
            lifespan: None,
            qos: tautline_proto::OfferedQos::default(),
            role: tautline_proto::Role::Topic,
            order,
        };
        let (definition, repair, thin, fec) = ("d".into(), true, false, None);
        let config = ChannelConfig { topic, definition, repair, thin, links, fec };
        let channel = self.nodes[0].peer_mut(PEER).offer(self.now, config).unwrap();
        self.run(100);
        channel
    }

    fn send(&mut self, channel: ChannelId, number: u8) {
        self.send_bytes(channel, number, 20_000);
    }

    fn send_bytes(&mut self, channel: ChannelId, number: u8, bytes: usize) {
        let payload = vec![number; bytes].into();
        let message =
            Message { payload, published: self.now, source: 0, encoded: false, lifespan: None };
        self.nodes[0].peer_mut(PEER).send(self.now, channel, message).unwrap();
    }
}

#[test]
fn both_links_come_up_and_share_a_message() {
    let mut joined = JoinedNodes::new();
    let up: Vec<_> = joined.nodes[0].links().map(|l| joined.nodes[0].link(l).unwrap().up).collect();
    assert_eq!(up, [true, true]);
    let channel = joined.offer();
    joined.carried = [0, 0];
    joined.send(channel, 1);
    joined.run(500);
    assert_eq!(joined.received, [1]);
    let [first, second] = joined.carried;
    assert!(first > 5000 && second > 5000 && first + second < 25_000, "{:?}", joined.carried);
}

/// A busy computer reads its packets late. This time counts neither as round trip nor as a queue of
/// the radio.
#[test]
fn waiting_in_the_receiver_is_no_delay_of_the_path() {
    let mut joined = JoinedNodes::from_nodes([node(0), node(1)]);
    joined.delays = [Duration::from_millis(5); 2];
    joined.waits = Duration::from_millis(9);
    joined.run(2000);
    let channel = joined.offer();
    for number in 1..=20 {
        joined.send_bytes(channel, number, 1000);
        joined.run(50);
    }
    assert_eq!(joined.received.len(), 20);
    let rtt = joined.nodes[0].link(LinkId(0)).unwrap().rtt.unwrap();
    assert!((10..=12).contains(&rtt.as_millis()), "{rtt:?}");
}

/// The second link is 30 ms longer. Each message takes one of the two at random.
#[test]
fn messages_that_overtake_each_other_are_delivered_in_the_order_of_the_topic() {
    let delivered = |order| {
        let mut joined = JoinedNodes::new();
        let links = LinkUse { policy: LinkPolicy::Weighted, ..LinkUse::default() };
        let channel = joined.offer_with(order, links);
        joined.delays = [Duration::ZERO, 30 * STEP];
        for number in 0..100 {
            joined.send_bytes(channel, number, 100);
            joined.run(5);
        }
        joined.run(1000);
        joined.received
    };
    let published: Vec<u8> = (0..100).collect();
    let arrival = delivered(DeliveryOrder::Arrival);
    assert_ne!(arrival, published);
    let mut sorted = arrival.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, published, "each arrives once");
    assert_eq!(delivered(DeliveryOrder::Sent { wait: 200 * STEP }), published);
    let newest = delivered(DeliveryOrder::Newest);
    assert!(newest.is_sorted_by(|a, b| a < b) && newest.len() < 100, "{newest:?}");
    // The wait is too short for the longer link.
    let impatient = delivered(DeliveryOrder::Sent { wait: 10 * STEP });
    assert!(impatient.is_sorted_by(|a, b| a < b) && impatient.len() < 100, "{impatient:?}");
}

#[test]
fn a_spent_link_leaves_messages_to_the_other_link() {
    let mut joined = JoinedNodes::new();
    let channel = joined.offer();
    let first = joined.nodes[0].links().next().unwrap();
    joined.nodes[0].link_mut(first).set_allowance(Some(3000));
    joined.carried = [0, 0];
    joined.send(channel, 1);
    joined.run(500);
    assert_eq!(joined.received, [1]);
    // The bound: two packets of the message, one heartbeat in flight, and two heartbeats a second.
    assert!(
        joined.nodes[0].link(first).unwrap().spent && joined.carried[0] < 6000,
        "{:?}",
        joined.carried
    );
    assert!(joined.carried[1] > 15_000, "{:?}", joined.carried);
}

#[test]
fn a_message_in_flight_moves_to_the_second_link_when_the_first_dies() {
    let mut joined = JoinedNodes::new();
    let channel = joined.offer();
    for number in 0..20 {
        joined.send(channel, number);
    }
    joined.run(30);
    let before = joined.received.len();
    assert!((1..15).contains(&before), "the cut comes midway: {before}");
    joined.cut[0] = true;
    joined.run(1500);
    joined.received.sort_unstable();
    assert_eq!(joined.received, (0..20).collect::<Vec<u8>>(), "each once");
    let (_, _, stats) = joined.nodes[0].peer(PEER).channel_out(channel).unwrap();
    assert!(stats.adds_up() && stats.delivered == 20, "{stats:?}");
}

#[test]
fn a_recovered_link_carries_messages_again() {
    let mut joined = JoinedNodes::new();
    let channel = joined.offer();
    joined.cut[0] = true;
    joined.run(4000);
    joined.cut[0] = false;
    joined.run(2000);
    joined.carried = [0, 0];
    joined.send(channel, 1);
    joined.run(500);
    assert_eq!(joined.received, [1]);
    assert!(joined.carried[0] > 5000, "{:?}", joined.carried);
}

/// A node learns the paths to its peer one after another, while the peer is already sending.
#[test]
fn a_link_keeps_its_address_although_the_peer_was_first_heard_by_the_other() {
    let (mut robot, base) = (unlinked(0), node(1));
    let radios = [0, 1].map(|_| robot.add_radio(RadioConfig::default()));
    let unknown = robot.add_radio(RadioConfig::default());
    let links = radios.map(|radio| {
        let pending = LinkConfig { remote: None, ..link(0, radio) };
        robot.peer_mut(PEER).add_link(Instant(0), unknown, pending).unwrap()
    });
    let mut joined = JoinedNodes::from_nodes([robot, base]);
    joined.cut[0] = true;
    joined.run(300);
    joined.cut[0] = false;
    for (id, radio) in links.into_iter().zip(radios) {
        joined.nodes[0].link_mut(id).set_path(joined.now, radio, link(0, radio)).unwrap();
        joined.run(300);
        let view = joined.nodes[0].link(links[0]).unwrap();
        let remote = Some(address(1, radios[0]).into());
        assert_eq!((view.remote, view.radio), (remote, radios[0]), "{} of two", id.0 + 1);
    }
    joined.run(300);
    for (id, radio) in links.into_iter().zip(radios) {
        let view = joined.nodes[0].link(id).unwrap();
        let remote = Some(address(1, radio).into());
        assert_eq!((view.up, view.remote, view.radio), (true, remote, radio));
    }
}

/// The queueing delay of a link is the delay beyond the link's own fastest packet. The other link's
/// path says nothing about this queue.
#[test]
fn a_longer_path_is_not_taken_for_a_queue() {
    let mut joined = JoinedNodes::from_nodes([node(0), node(1)]);
    joined.delays[1] = Duration::from_millis(25);
    joined.run(1000);
    let channel = joined.offer();
    for number in 0..100 {
        joined.send(channel, number);
        joined.send(channel, number);
        joined.run(40);
    }
    let rates: Vec<_> = joined.nodes[0]
        .links()
        .map(|id| joined.nodes[0].link(id).unwrap().rate_bps.unwrap())
        .collect();
    assert!(rates[1] > 4_000_000, "{rates:?}, {:?}", joined.carried);
}

const LTE: LinkId = LinkId(1);

/// Two nodes. Their second link is metered at the ends for which `ends` is true.
fn metered_at(ends: [bool; 2]) -> JoinedNodes {
    let mut joined = JoinedNodes::from_nodes([0, 1].map(|number| node_with(number, ends[number])));
    joined.delays[1] = Duration::from_millis(40);
    joined.run(10_000);
    joined
}

fn used_by_lte(joined: &JoinedNodes) -> u64 {
    let stats = joined.nodes[0].link(LTE).unwrap().stats;
    stats.sent_bytes + stats.received_bytes
}

#[test]
fn an_idle_metered_link_uses_the_documented_bytes() {
    // If only one end knows that the link is metered, the other end sends PINGs and gets answers as
    // often as on any link.
    let one_sided = HEARTBEAT_BYTES_PER_SECOND * 4 / 7;
    let cases = [
        ([true, true], METERED_HEARTBEAT_BYTES_PER_SECOND),
        ([true, false], one_sided),
        ([false, true], one_sided),
    ];
    for (ends, documented) in cases {
        let mut joined = metered_at(ends);
        let before = used_by_lte(&joined);
        joined.run(200_000);
        let per_second = (used_by_lte(&joined) - before) / 200;
        let error = documented.abs_diff(per_second);
        assert!(error <= 2 + documented / 20, "{ends:?}: {per_second} of {documented}");
        assert_eq!(joined.downs, []);
    }
}

#[test]
fn an_idle_metered_link_is_not_probed_for_its_mtu() {
    let mut joined = metered_at([true, true]);
    let known = |joined: &JoinedNodes, link| joined.nodes[0].link(link).unwrap().mtu_state;
    assert_eq!(known(&joined, LinkId(0)), MtuState::Full);
    assert_eq!(known(&joined, LTE), MtuState::Searching);
    joined.cut[0] = true;
    joined.run(2000);
    assert_eq!(known(&joined, LTE), MtuState::Full, "it may carry messages now");
}

#[test]
fn a_metered_link_stays_up_independently_of_the_other() {
    for ends in [[true, true], [true, false], [false, true]] {
        let mut joined = metered_at(ends);
        let channel = joined.offer();
        let mut number = 0u32;
        for round in 0..150u32 {
            // The intervals range from hundreds of milliseconds to seconds, so that each end
            // decides at many different times.
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            joined.cut[0] = round % 2 == 0;
            if round % 3 == 0 {
                joined.send(channel, 1);
            }
            joined.run(200 + (number >> 20) as usize * 2);
        }
        assert!(!joined.downs.contains(&LTE), "{ends:?}: {:?}", joined.downs);
        assert!(joined.downs.contains(&LinkId(0)) && joined.received.len() == 50);
    }
}

#[test]
fn the_failure_of_an_idle_metered_link_is_detected() {
    let mut joined = metered_at([true, true]);
    joined.cut[1] = true;
    joined.run(6000);
    assert!(joined.nodes.iter().all(|it| it.link(LTE).unwrap().silent), "it carries no messages");
    joined.run(16_000);
    assert!(joined.nodes.iter().all(|it| !it.link(LTE).unwrap().up));
    let before = joined.carried[1] + joined.nodes[0].link(LTE).unwrap().stats.sent_packets as usize;
    joined.run(60_000);
    let after = joined.carried[1] + joined.nodes[0].link(LTE).unwrap().stats.sent_packets as usize;
    assert!((10..15).contains(&(after - before)), "{} attempts in a minute", after - before);
    joined.cut[1] = false;
    joined.run(5200);
    assert!(joined.nodes.iter().all(|it| it.link(LTE).unwrap().up));
}

#[test]
fn a_metered_link_is_watched_normally_when_the_other_fails() {
    let mut joined = metered_at([true, true]);
    joined.cut[0] = true;
    joined.run(1500);
    let before = used_by_lte(&joined);
    joined.run(10_000);
    let per_second = (used_by_lte(&joined) - before) / 10;
    assert!(per_second > HEARTBEAT_BYTES_PER_SECOND * 3 / 4, "{per_second}");
    joined.cut[1] = true;
    joined.run(1500);
    assert!(joined.nodes.iter().all(|it| !it.peer(PEER).up));
    // Both links return at once, after a time in which little was heard on the second.
    joined.cut = [false, false];
    joined.run(12_000);
    joined.cut = [true, true];
    joined.run(2500);
    assert!(joined.nodes.iter().all(|it| !it.peer(PEER).up));
    joined.cut[1] = false;
    joined.run(400);
    assert!(joined.nodes.iter().all(|it| it.peer(PEER).up), "it is sought at the usual interval");
}
