// SPDX-License-Identifier: Apache-2.0
//! A hostile peer with a valid key. It draws each of its choices from the bytes of a fuzzer or from a
//! seeded generator. Shared by proto's tests, the fuzz targets and the lab's swarm.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use tautline_proto::crypto::cookies::{CookieJar, MacKey};
use tautline_proto::crypto::noise::Initiator;
use tautline_proto::crypto::seal::Sealer;
use tautline_proto::wire::address::Candidates;
use tautline_proto::wire::control::{Control, MAX_TEXT, Offer};
use tautline_proto::wire::frame::{
    Ack, BlockPlace, ClockReport, Data, Fragment, MAX_BLOCK, MAX_CHANNEL, put_candidates,
    put_challenge, put_echo, put_goodbye, put_held, put_observe, put_observed, put_ping,
};
use tautline_proto::wire::packet::{Greeting, Packet, SessionHeader, start_initiation};
use tautline_proto::wire::parity::Parity;
use tautline_proto::wire::relay::{Held, RelayHeader, ShortName};
use tautline_proto::{
    DeliveryOrder, Duration, EcnCounts, Instant, OfferedQos, OfferedTopic, PublicKey, Role,
    SecretKey,
};

/// Draws a number below a bound; 0 when the source is exhausted.
pub type Draw<'a> = dyn FnMut(u64) -> u64 + 'a;

/// Maximum number of its own datagrams, and of other nodes' datagrams, that the peer remembers for
/// replays.
const MAX_REMEMBERED: usize = 16;
/// Bytes of a fragment of a long relayed packet.
const FRAGMENT_BYTES: usize = 1200;
/// Largest relayed packet.
const MAX_CARRIED: usize = 60_000;
/// Minimum time between initiations, within the node's limit.
const INITIATION_INTERVAL: Duration = Duration::from_millis(500);
/// Age at which keys are renewed; old keys end soon after.
const KEY_LIFETIME: Duration = Duration::from_secs(100);

/// The node under attack, and its peers.
#[derive(Clone)]
pub struct LiarConfig {
    /// Name of the hostile peer; its key is `SecretKey::insecure` of this name.
    pub name: String,
    /// The node's key.
    pub node: PublicKey,
    /// All nodes of the team, including these two.
    pub team: Vec<ShortName>,
}

/// The hostile peer; see the module's documentation.
pub struct Liar {
    config: LiarConfig,
    secret: SecretKey,
    epoch: u64,
    drawn: u8,
    calling: Option<Initiator>,
    initiated_at: Option<Instant>,
    /// The node's session number.
    session: u32,
    sealer: Option<Sealer>,
    /// The last packet number of each link.
    packets: BTreeMap<u8, u64>,
    /// The last message number of each channel (`false`), and of each priority of relayed packets (`true`).
    messages: BTreeMap<(bool, u64), u64>,
    own: VecDeque<Vec<u8>>,
    heard: VecDeque<Vec<u8>>,
    /// Datagrams made so far.
    pub datagram_count: u64,
}

impl std::fmt::Debug for Liar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Liar").field("name", &self.config.name).finish_non_exhaustive()
    }
}

fn remember(list: &mut VecDeque<Vec<u8>>, datagram: &[u8]) {
    if list.len() == MAX_REMEMBERED {
        list.pop_front();
    }
    list.push_back(datagram.to_vec());
}

fn pick<T: Copy>(draw: &mut Draw<'_>, choices: &[T]) -> T {
    let at = draw(choices.len() as u64) as usize;
    choices[at.min(choices.len() - 1)]
}

/// Draws an address, which may be invalid as a destination.
fn any_address(draw: &mut Draw<'_>) -> SocketAddr {
    let ends = [[0; 4], [255; 4], [127, 0, 0, 1], [224, 0, 0, 1], [10, 0, 0, 1]];
    (pick(draw, &ends), number(draw, 18470) as u16).into()
}

/// Draws `near`, or a number at a boundary.
fn number(draw: &mut Draw<'_>, near: u64) -> u64 {
    let ends = [0, 1, u64::from(u32::MAX), MAX_CHANNEL, u64::MAX - 1, u64::MAX];
    match draw(8) {
        0..5 => near,
        5 => near.wrapping_add(draw(2048)).wrapping_sub(1024),
        6 => pick(draw, &ends),
        _ => draw(1 << 48),
    }
}

fn age(draw: &mut Draw<'_>) -> Duration {
    pick(draw, &[0, 0, 0, 1, 100, 10_000, 400_000_000]) * Duration::from_millis(1)
}

fn drawn_count(draw: &mut Draw<'_>) -> u64 {
    pick(draw, &[0, 0, 1, 2, 100, 1 << 40, u64::MAX])
}

fn micros(draw: &mut Draw<'_>) -> Duration {
    Duration::from_micros(pick(draw, &[0, 100, 20_000, 3_000_000, u64::from(u32::MAX)]))
}

/// Handshakes.
impl Liar {
    /// Creates a peer that has not sent an initiation yet.
    pub fn new(config: LiarConfig) -> Self {
        Self {
            secret: SecretKey::insecure(&config.name),
            config,
            epoch: 1,
            drawn: 0,
            calling: None,
            initiated_at: None,
            session: 0,
            sealer: None,
            packets: BTreeMap::new(),
            messages: BTreeMap::new(),
            own: VecDeque::new(),
            heard: VecDeque::new(),
            datagram_count: 0,
        }
    }

    /// Whether the peer has session keys.
    pub fn has_keys(&self) -> bool {
        self.sealer.is_some()
    }

    /// Returns an initiation with the current session epoch.
    pub fn call(&mut self, now: Instant) -> Vec<u8> {
        self.drawn = self.drawn.wrapping_add(1);
        self.initiated_at = Some(now);
        let payload = Greeting { epoch: self.epoch, name: &self.config.name }.emit();
        let (node, drawn) = (&self.config.node, [self.drawn; 32]);
        let Ok((caller, noise)) = Initiator::initiate(&self.secret, node, drawn, &payload) else {
            return Vec::new();
        };
        let mut call = start_initiation(1 + u32::from(self.drawn), &noise);
        CookieJar::default().append_macs(now, &MacKey::for_receiver(node), &mut call);
        self.calling = Some(caller);
        call
    }

    /// Handles a datagram of the node. Returns whether it was the response to an initiation; the peer
    /// must then send a packet.
    pub fn handle_datagram(&mut self, datagram: &[u8]) -> bool {
        let Ok(Packet::Response(answer)) = Packet::parse(datagram) else {
            remember(&mut self.heard, datagram);
            return false;
        };
        if answer.your_session != 1 + u32::from(self.drawn) {
            return false;
        }
        let Some(Ok((split, _))) = self.calling.as_mut().map(|it| it.finish(answer.noise)) else {
            return false;
        };
        self.calling = None;
        (self.session, self.sealer) = (answer.session, Sealer::new(&split));
        self.sealer.is_some()
    }

    /// Remembers a datagram between other nodes.
    pub fn remember_datagram(&mut self, datagram: &[u8]) {
        remember(&mut self.heard, datagram);
    }

    /// Returns an initiation if there are no keys or only old keys.
    pub fn due_initiation(&mut self, now: Instant) -> Option<Vec<u8>> {
        let since = self.initiated_at.map(|initiated_at| now.since(initiated_at));
        let patience = if self.has_keys() { KEY_LIFETIME } else { INITIATION_INTERVAL };
        since.is_none_or(|since| since >= patience).then(|| self.call(now))
    }

    /// Restarts with the same, an earlier or a new session epoch. Returns the initiation, if it is time.
    fn restart(&mut self, now: Instant, draw: &mut Draw<'_>) -> Vec<Vec<u8>> {
        if self
            .initiated_at
            .is_some_and(|initiated_at| now.since(initiated_at) < INITIATION_INTERVAL)
        {
            return Vec::new();
        }
        self.epoch = match draw(4) {
            0 => self.epoch,
            1 => self.epoch.wrapping_sub(1),
            _ => self.epoch.wrapping_add(1),
        };
        if draw(2) == 0 {
            // Packet numbers start again, as on a node that has restarted.
            self.packets.clear();
            self.messages.clear();
        }
        vec![self.call(now)]
    }
}

/// Packets.
impl Liar {
    /// Returns a correct session packet with these frames.
    pub fn packet(&mut self, now: Instant, frames: &[u8]) -> Option<Vec<u8>> {
        let next = self.packets.get(&0).map_or(1, |last| last.saturating_add(1));
        self.seal((0, next), Some((now.0 / 1000) as u32), false, frames)
    }

    /// Returns a packet with a control message.
    pub fn control_packet(&mut self, now: Instant, control: &Control) -> Option<Vec<u8>> {
        let mut frames = Vec::new();
        self.next_data(false, 0).emit(&control.emit(), &mut frames);
        self.packet(now, &frames)
    }

    fn seal(
        &mut self,
        (link, number): (u8, u64),
        clock: Option<u32>,
        ack_soon: bool,
        frames: &[u8],
    ) -> Option<Vec<u8>> {
        let sealer = self.sealer.as_ref()?;
        self.packets.insert(link, number);
        let (session, relayed) = (self.session, clock.is_none());
        let header = SessionHeader { ack_soon, relayed, link, session, number: number as u32 };
        let mut datagram = header.emit(frames.len() + 64);
        datagram.extend(clock.into_iter().flat_map(u32::to_le_bytes));
        datagram.extend_from_slice(frames);
        sealer.seal(link, number, &mut datagram)?;
        Some(datagram)
    }

    /// Returns a packet with a random header.
    fn drawn_packet(
        &mut self,
        now: Instant,
        draw: &mut Draw<'_>,
        relayed: bool,
        frames: &[u8],
    ) -> Vec<u8> {
        let link = pick(draw, &[0, 0, 0, 0, 0, 0, 1, 15]);
        let next = self.packets.get(&link).map_or(1, |last| last.saturating_add(1));
        let next = match draw(16) {
            0 => number(draw, next),
            1 => next.saturating_add(draw(4000)),
            _ => next,
        };
        let clock = (now.0 / 1000) as u32;
        let clock = match draw(8) {
            0 => pick(draw, &[0, u32::MAX, clock.wrapping_add(1 << 31)]),
            1 => clock.wrapping_sub(draw(10_000_000) as u32),
            _ => clock,
        };
        let ack_soon = draw(2) == 0;
        let sealed = self.seal((link, next), (!relayed).then_some(clock), ack_soon, frames);
        sealed.unwrap_or_default()
    }

    /// Returns the datagrams of one action.
    pub fn act(&mut self, now: Instant, draw: &mut Draw<'_>) -> Vec<Vec<u8>> {
        let mut datagrams: Vec<_> = self.due_initiation(now).into_iter().collect();
        datagrams.extend(match draw(16) {
            0 => self.restart(now, draw),
            1 => self.own.get(draw(MAX_REMEMBERED as u64) as usize).cloned().into_iter().collect(),
            2 => {
                self.heard.get(draw(MAX_REMEMBERED as u64) as usize).cloned().into_iter().collect()
            }
            3 => self.flood(now, draw),
            4 => self.nest(now, draw),
            5 => vec![self.forge(draw)],
            _ => vec![self.multi_frame_packet(now, draw)],
        });
        datagrams.retain(|datagram| !datagram.is_empty());
        datagrams.iter().for_each(|datagram| remember(&mut self.own, datagram));
        self.datagram_count += datagrams.len() as u64;
        datagrams
    }

    fn multi_frame_packet(&mut self, now: Instant, draw: &mut Draw<'_>) -> Vec<u8> {
        let mut frames = Vec::new();
        for _ in 0..=draw(4) {
            self.frame(now, draw, 2, &mut frames);
        }
        frames.truncate(1400);
        self.drawn_packet(now, draw, false, &frames)
    }

    /// Returns the datagrams of one action, repeated many times.
    fn flood(&mut self, now: Instant, draw: &mut Draw<'_>) -> Vec<Vec<u8>> {
        let count = pick(draw, &[2, 10, 40]);
        let mut frames = Vec::new();
        let kind = draw(4);
        (0..count)
            .filter_map(|_| {
                frames.clear();
                match kind {
                    0 => put_goodbye(&mut frames),
                    1 => put_ping(&mut frames),
                    2 => self.put_control(draw, &mut frames),
                    _ => self.put_relay(now, draw, 0, &mut frames),
                }
                self.packet(now, &frames)
            })
            .collect()
    }

    /// Returns nested packets of this peer, in fragments.
    fn nest(&mut self, now: Instant, draw: &mut Draw<'_>) -> Vec<Vec<u8>> {
        let levels = pick(draw, &[1, 2, 3, 20, 200, 1200]);
        let mut frames = Vec::new();
        put_ping(&mut frames);
        for _ in 0..levels {
            let next = self.packets.get(&2).map_or(1, |last| last.saturating_add(1));
            let Some(inner) = self.seal((2, next), None, false, &frames) else { break };
            let to = self.config.node.short_name();
            let to = (draw(2) == 0).then_some(to);
            let header = RelayHeader { hops: 8, life: None, from: None, to };
            let carried = header.with_header(&inner);
            if carried.len() > MAX_CARRIED {
                break;
            }
            frames.clear();
            self.next_data(true, 100).emit_relay(&carried, &mut frames);
        }
        self.in_pieces(now, &frames)
    }

    /// Returns `frames`, which are one RELAY frame, as fragments.
    fn in_pieces(&mut self, now: Instant, frames: &[u8]) -> Vec<Vec<u8>> {
        if frames.len() <= FRAGMENT_BYTES {
            return self.packet(now, frames).into_iter().collect();
        }
        let next = self.packets.get(&2).map_or(1, |last| last.saturating_add(1));
        let Some(inner) = self.seal((2, next), None, false, frames) else { return Vec::new() };
        let carried = RelayHeader { hops: 8, life: None, from: None, to: None }.with_header(&inner);
        let data = self.next_data(true, 101);
        let (mut datagrams, total) = (Vec::new(), carried.len() as u32);
        for (at, piece) in carried.chunks(FRAGMENT_BYTES).enumerate() {
            let fragment = Some(Fragment { total, offset: (at * FRAGMENT_BYTES) as u32 });
            let mut frame = Vec::new();
            Data { fragment, ..data }.emit_relay(piece, &mut frame);
            datagrams.extend(self.packet(now, &frame));
        }
        datagrams
    }

    /// Returns a session packet with an arbitrary number that no key authenticates.
    fn forge(&mut self, draw: &mut Draw<'_>) -> Vec<u8> {
        let session = if draw(2) == 0 { self.session } else { draw(1 << 32) as u32 };
        let (link, number) = (draw(16) as u8, draw(1 << 32) as u32);
        let (ack_soon, relayed) = (draw(2) == 0, draw(2) == 0);
        let mut datagram = SessionHeader { ack_soon, relayed, link, session, number }.emit(100);
        datagram.extend((0..20 + draw(60)).map(|_| draw(256) as u8));
        datagram
    }
}

/// Frames.
impl Liar {
    /// Returns the next message of a channel, or of relayed packets of a priority.
    fn next_data(&mut self, relayed: bool, channel: u64) -> Data {
        let last = self.messages.entry((relayed, channel)).or_default();
        *last = last.saturating_add(1);
        let number = *last;
        Data {
            channel,
            number,
            source: 0,
            encoded: false,
            age: Duration::ZERO,
            fragment: None,
            place: None,
        }
    }

    fn frame(&mut self, now: Instant, draw: &mut Draw<'_>, depth: u32, out: &mut Vec<u8>) {
        match draw(16) {
            0..3 => self.put_data(draw, out),
            14.. => self.put_block(draw, out),
            3..6 => self.put_control(draw, out),
            6..8 => self.put_relay(now, draw, depth, out),
            8 => put_ack(draw, self.packets.get(&0).copied().unwrap_or(0), out),
            9 => {
                let bytes = number(draw, 1000);
                let (to, from) = (self.random_name(draw), self.random_name(draw));
                put_held(&Held { to, bytes, from: (draw(2) == 0).then_some(from) }, out);
            }
            10 => put_ping(out),
            11 => match draw(7) {
                0 => put_goodbye(out),
                1 => put_challenge(number(draw, 7), out),
                2 => put_observe(any_address(draw), out),
                3 => put_observed(any_address(draw), out),
                4 => {
                    let addresses = (0..1 + draw(8)).map(|_| any_address(draw)).collect();
                    put_candidates(&Candidates { is_answer: draw(2) == 0, addresses }, out);
                }
                _ => put_echo(number(draw, 7), out),
            },
            12 => {
                let least = (draw(2) == 0).then(|| number(draw, 1000) as u32);
                let wall = (draw(2) == 0).then(|| number(draw, 1 << 50) as i64);
                ClockReport { least, wall }.emit(out);
            }
            _ => {
                let len = draw(40);
                out.extend([draw(256) as u8, len as u8]);
                out.extend((0..len).map(|_| draw(256) as u8));
            }
        }
    }

    fn put_data(&mut self, draw: &mut Draw<'_>, out: &mut Vec<u8>) {
        let near = draw(4);
        let channel = number(draw, near).min(MAX_CHANNEL);
        let data = self.drawn_data(draw, false, channel);
        let payload = self.payload(draw, data.fragment);
        data.emit(&payload, out);
    }

    /// Writes frames and parity of contradictory blocks.
    fn put_block(&mut self, draw: &mut Draw<'_>, out: &mut Vec<u8>) {
        let block = number(draw, 3).max(1);
        for _ in 0..1 + draw(12) {
            let mut data = self.next_data(false, 1);
            if draw(2) == 0 {
                let (index, since) = (draw(MAX_BLOCK.into()) as u8, age(draw));
                data.place = Some(BlockPlace { block, index, since });
                data.emit(&vec![draw(256) as u8; draw(30) as usize], out);
            } else {
                let sources = pick(draw, &[1, 2, 10, MAX_BLOCK]);
                let parity = Parity { block, sources, index: draw(256) as u8 };
                data.age = age(draw);
                let symbol = vec![draw(256) as u8; draw(30) as usize];
                data.emit_parity(&parity.with_header(&symbol), out);
            }
        }
    }

    fn drawn_data(&mut self, draw: &mut Draw<'_>, relayed: bool, channel: u64) -> Data {
        let mut data = self.next_data(relayed, channel);
        data.number = number(draw, data.number).max(1);
        if !relayed {
            data.source = pick(draw, &[0, 0, 0, 1, 1000, u32::MAX]);
            data.encoded = draw(8) == 0;
        }
        data.age = age(draw);
        if draw(4) == 0 {
            let total = pick(draw, &[1, 100, 5000, 300_000, 20_000_000, u32::MAX]);
            let offset = pick(draw, &[0, 50, total / 2, total.saturating_sub(100), total]);
            data.fragment = Some(Fragment { total, offset });
        }
        data
    }

    fn payload(&mut self, draw: &mut Draw<'_>, fragment: Option<Fragment>) -> Vec<u8> {
        let room = fragment.map_or(1000, |it| (it.total - it.offset.min(it.total)).min(1000));
        let len = pick(draw, &[0, 4, 100, 1000]).min(room);
        vec![draw(256) as u8; len as usize]
    }

    fn put_control(&mut self, draw: &mut Draw<'_>, out: &mut Vec<u8>) {
        let near = 1 + draw(6);
        let channel = number(draw, near).clamp(1, MAX_CHANNEL);
        let text = |draw: &mut Draw<'_>, max| "x".repeat(pick(draw, &[0, 3, 300, max]));
        let control = match draw(8) {
            0..2 => Control::Offer(Offer { channel, topic: drawn_topic(draw, channel) }),
            2 => Control::Withdraw { channel },
            3 => Control::Want { channel, wanted: draw(4) != 0 },
            4 => Control::GetDefinition { channel },
            5 => Control::Definition { channel, text: text(draw, 1000) },
            6 => Control::Refuse { channel, reason: text(draw, MAX_TEXT) },
            _ => Control::Unknown(draw(256) as u8),
        };
        let mut data = self.next_data(false, 0);
        if draw(8) == 0 {
            data.number = number(draw, data.number).max(1);
        }
        data.emit(&control.emit(), out);
    }

    fn put_relay(&mut self, now: Instant, draw: &mut Draw<'_>, depth: u32, out: &mut Vec<u8>) {
        let (from, to) = (self.random_name(draw), self.random_name(draw));
        let header = RelayHeader {
            hops: draw(16) as u8,
            life: (draw(2) == 0).then(|| age(draw)),
            from: (draw(2) == 0).then_some(from),
            to: (draw(4) != 0).then_some(to),
        };
        let packet = match draw(4) {
            0 => self.heard.get(draw(MAX_REMEMBERED as u64) as usize).cloned().unwrap_or_default(),
            1 => self.forge(draw),
            2 if depth > 0 => {
                let mut frames = Vec::new();
                self.frame(now, draw, depth - 1, &mut frames);
                self.drawn_packet(now, draw, true, &frames)
            }
            _ => vec![7; draw(1000) as usize],
        };
        let priority = draw(256);
        let mut data = self.drawn_data(draw, true, priority);
        let carried = header.with_header(&packet);
        if let Some(fragment) = &mut data.fragment {
            fragment.total = fragment.total.max(carried.len() as u32);
            fragment.offset = fragment.offset.min(fragment.total - carried.len() as u32);
        }
        data.emit_relay(&carried, out);
    }

    fn random_name(&self, draw: &mut Draw<'_>) -> ShortName {
        let at = draw(self.config.team.len() as u64 + 1) as usize;
        self.config.team.get(at).copied().unwrap_or(ShortName([at as u8; 3]))
    }
}

fn put_ack(draw: &mut Draw<'_>, near: u64, out: &mut Vec<u8>) {
    let near = near.saturating_add(draw(64));
    let mut last = number(draw, near);
    let mut ranges = Vec::new();
    for _ in 0..=draw(4) {
        let first = match draw(3) {
            0 => 0,
            1 => last,
            _ => last.saturating_sub(draw(100)),
        };
        ranges.push((first, last));
        match first.checked_sub(2 + draw(10)) {
            Some(next) => last = next,
            None => break,
        }
    }
    let link = pick(draw, &[0, 0, 0, 0, 1, 15, 255]);
    let (delay, waited, least_waited) = (micros(draw), micros(draw), micros(draw));
    let ecn = EcnCounts { capable: drawn_count(draw), marked: drawn_count(draw) };
    Ack { link, delay, waited, least_waited, ecn, ranges }.emit(out);
}

fn drawn_topic(draw: &mut Draw<'_>, channel: u64) -> OfferedTopic {
    let seconds = |draw: &mut Draw<'_>| {
        let millis = pick(draw, &[0, 0, 1, 1000, u64::from(u32::MAX)]);
        (millis > 0).then(|| Duration::from_millis(millis))
    };
    let long = "x".repeat(pick(draw, &[0, 0, 0, MAX_TEXT - 30]));
    let wait = Duration::from_millis(pick(draw, &[1, 50, 1000]));
    let orders = [
        DeliveryOrder::Arrival,
        DeliveryOrder::Newest,
        DeliveryOrder::Sent { wait },
        DeliveryOrder::Sent { wait },
    ];
    OfferedTopic {
        name: format!("/{long}{channel}"),
        type_name: pick(draw, &["std_msgs/String", "geometry_msgs/Twist", "", "lie/Lie"]).into(),
        type_hash: pick(draw, &["992ce8a1687cec8c8bd883ec73ca41d1", "00", ""]).into(),
        priority: draw(256) as u8,
        keep_last: pick(draw, &[1, 10, u32::MAX]),
        lifespan: seconds(draw),
        qos: OfferedQos { deadline: seconds(draw), lease: seconds(draw), ..OfferedQos::default() },
        role: pick(draw, &[Role::Topic, Role::Topic, Role::Answers, Role::Calls]),
        order: pick(draw, &orders),
    }
}
