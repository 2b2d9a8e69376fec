// SPDX-License-Identifier: Apache-2.0
//! A hand-made peer with a valid key: it completes the handshake with a daemon, keeps its
//! session alive, and sends whatever its user makes. The tests of the daemon share this file
//! (`crates/node/tests/hostile_peer.rs`), so it uses the protocol's crate and no other.
#![allow(dead_code, reason = "each user takes its part")]

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::time::{Duration, Instant};
use tautline_proto::crypto::gate::{Jar, Proof};
use tautline_proto::crypto::noise::Caller;
use tautline_proto::crypto::seal::Sealer;
use tautline_proto::wire::control::{Control, Offer, OfferedTopic};
use tautline_proto::wire::cursor::Reader;
use tautline_proto::wire::frame::{Ack, Data, Fragment, Frame, put_echo, put_ping};
use tautline_proto::wire::packet::{Greeting, Packet, SessionHeader, full_number, start_call};
use tautline_proto::wire::relay::{Held, RelayHeader};
use tautline_proto::{OfferedQos, PublicKey, Role, SecretKey};

/// Largest datagram sent: a full packet of an Ethernet interface.
pub const DATAGRAM: usize = 1472;
/// Bytes of frames in such a datagram: header, clock and tag take the rest.
pub const FRAMES: usize = DATAGRAM - HEADER - CLOCK - TAG;
const HEADER: usize = 9;
const CLOCK: usize = 4;
const TAG: usize = 16;
/// Type, length, channel, number, flags, age, place: of a data frame, at most.
const DATA_HEADER: usize = 40;
/// Control messages under way by default: a node holds 1024 of them for one that is missing.
const CONTROL_WINDOW: usize = 800;
/// Packets of control messages under way.
const PACKET_WINDOW: usize = 512;
/// A packet of control messages without acknowledgement is repeated after so long.
const REPEAT_AFTER: Duration = Duration::from_millis(50);
/// Pause while there is nothing to do.
const IDLE: Duration = Duration::from_micros(200);
/// How often arrivals are acknowledged.
const ACK_EVERY: Duration = Duration::from_millis(5);
const MAX_RANGES: usize = 32;
/// Datagrams read at once.
const MAX_READ: usize = 256;
/// What is remembered of what was told of packets that wait.
const MAX_HELD: usize = 4096;
/// Calls whose answers can still be read.
const MAX_CALLS: usize = 64;
/// A call without an answer is repeated after so long, and given up at the end.
const CALL_AGAIN: Duration = Duration::from_millis(200);
const MEETING_PATIENCE: Duration = Duration::from_secs(20);

/// Who the peer is, and whom it calls.
#[derive(Debug, Clone)]
pub struct Identity {
    /// As the other's file has it.
    pub name: String,
    /// Its key.
    pub secret: SecretKey,
    /// The public key of the node that it calls.
    pub other: PublicKey,
}

/// A topic that the other node offers.
#[derive(Debug, Clone)]
pub struct Offered {
    /// Its channel.
    pub channel: u64,
    /// What was offered.
    pub topic: OfferedTopic,
}

/// What the other node said so far.
#[derive(Debug, Default)]
pub struct Heard {
    /// Its offers, without those withdrawn.
    pub offers: Vec<Offered>,
    /// Whether it wants our channels.
    pub wanted: BTreeMap<u64, bool>,
    /// Why it refused channels of ours.
    pub refused: Vec<String>,
    /// Session packets that hold.
    pub packets: u64,
    /// What was told of packets that wait.
    pub held: Vec<Held>,
    /// Packets for others that came, whole or in pieces.
    pub relayed: u64,
}

/// Keys of one handshake.
struct Keys {
    session: u32,
    sealer: Sealer,
    epoch: u64,
}

struct Calling {
    session: u32,
    caller: Caller,
    epoch: u64,
}

/// Packets of one link of the other node.
#[derive(Default)]
struct Arrived {
    /// First and last number of each run, newest first.
    ranges: VecDeque<(u64, u64)>,
    told: bool,
}

/// A packet of control messages under way.
struct Sent {
    number: u64,
    at: Instant,
    messages: usize,
    frames: Vec<u8>,
}

/// One frame of a control message that waits to be sent.
struct Waiting {
    frame: Vec<u8>,
    /// It is the last of its message.
    ends: bool,
}

/// The peer.
pub struct Peer {
    socket: UdpSocket,
    own: Identity,
    /// The life of this peer, by which the other node sees that it started again.
    epoch: u64,
    jar: Jar,
    calls: VecDeque<Calling>,
    /// The first code of the last call, which a cookie answers.
    mac1: [u8; 16],
    keys: Option<Keys>,
    born: Instant,
    /// Numbers of the last packet of each link.
    packets: [u64; 16],
    /// Number of the last control message.
    control: u64,
    /// Number of the last packet for others.
    relays: u64,
    waiting: VecDeque<Waiting>,
    sent: VecDeque<Sent>,
    arrived: BTreeMap<u8, Arrived>,
    acked_at: Instant,
    /// Control messages that may be under way.
    pub window: usize,
    /// Answers questions for definitions; without it they stay open.
    pub definition: Option<String>,
    /// What the other node said.
    pub heard: Heard,
}

/// A number that nobody foresees.
pub fn drawn() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A topic with the default treatment.
pub fn topic(name: &str, type_name: &str, type_hash: &str) -> OfferedTopic {
    OfferedTopic {
        name: name.into(),
        type_name: type_name.into(),
        type_hash: type_hash.into(),
        priority: 100,
        keep_last: 10,
        lifespan: None,
        qos: OfferedQos::default(),
        role: Role::Topic,
    }
}

/// What precedes the bytes of a message.
pub fn data(channel: u64, number: u64, fragment: Option<Fragment>) -> Data {
    let age = tautline_proto::Duration::ZERO;
    Data { channel, number, source: 0, encoded: false, age, fragment }
}

/// A packet's worth of what `put` appends, over and over.
pub fn fill(mut put: impl FnMut(&mut Vec<u8>)) -> Vec<u8> {
    let mut frames = Vec::with_capacity(FRAMES);
    loop {
        let before = frames.len();
        put(&mut frames);
        if frames.len() > FRAMES || frames.len() == before {
            frames.truncate(before);
            return frames;
        }
    }
}

/// The frames of one message: as it is, or in pieces that each fill a packet.
pub fn pieces(
    mut data: Data,
    payload: &[u8],
    emit: fn(&Data, &[u8], &mut Vec<u8>),
) -> Vec<Vec<u8>> {
    let frame = |data: &Data, bytes: &[u8]| {
        let mut frame = Vec::with_capacity(bytes.len() + DATA_HEADER);
        emit(data, bytes, &mut frame);
        frame
    };
    let room = FRAMES - DATA_HEADER;
    if payload.len() <= room {
        return vec![frame(&data, payload)];
    }
    let total = payload.len() as u32;
    let piece = |(index, bytes): (usize, &[u8])| {
        data.fragment = Some(Fragment { total, offset: (index * room) as u32 });
        frame(&data, bytes)
    };
    payload.chunks(room).enumerate().map(piece).collect()
}

/// Meeting.
impl Peer {
    /// Calls the other node by a socket that is connected to it, until it answers.
    pub fn meet(socket: UdpSocket, own: Identity) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let now = Instant::now();
        let mut peer = Self {
            socket,
            own,
            epoch: drawn(),
            jar: Jar::default(),
            calls: VecDeque::new(),
            mac1: [0; 16],
            keys: None,
            born: now,
            packets: [0; 16],
            control: 0,
            relays: 0,
            waiting: VecDeque::new(),
            sent: VecDeque::new(),
            arrived: BTreeMap::new(),
            acked_at: now,
            window: CONTROL_WINDOW,
            definition: None,
            heard: Heard::default(),
        };
        while peer.keys.is_none() {
            if now.elapsed() > MEETING_PATIENCE {
                let text = format!("no answer to a call in {MEETING_PATIENCE:?}");
                return Err(io::Error::new(ErrorKind::TimedOut, text));
            }
            let call = peer.call();
            peer.put(&call)?;
            peer.listen_for(CALL_AGAIN, |peer| peer.keys.is_some())?;
        }
        Ok(peer)
    }

    /// Another call of the same life.
    pub fn call(&mut self) -> Vec<u8> {
        let greeting = Greeting { epoch: self.epoch, name: &self.own.name }.emit();
        let mut random = [0; 32];
        random.chunks_mut(8).for_each(|it| it.copy_from_slice(&drawn().to_le_bytes()));
        let session = (drawn() as u32).max(1);
        let Ok((caller, noise)) =
            Caller::call(&self.own.secret, &self.own.other, random, &greeting)
        else {
            return Vec::new();
        };
        let mut call = start_call(session, &noise);
        let now = self.clock();
        self.mac1 = self.jar.prove(now, &Proof::of(&self.own.other), &mut call);
        if self.calls.len() == MAX_CALLS {
            self.calls.pop_front();
        }
        self.calls.push_back(Calling { session, caller, epoch: self.epoch });
        call
    }

    /// A call in a new life, as if this peer had started again.
    pub fn call_anew(&mut self) -> Vec<u8> {
        self.epoch = drawn();
        self.call()
    }

    /// Whether the other node has answered.
    pub fn has_met(&self) -> bool {
        self.keys.is_some()
    }

    fn clock(&self) -> tautline_proto::Instant {
        // The protocol's time may not begin at zero: what is older than a cookie is then negative.
        tautline_proto::Instant((self.born.elapsed() + Duration::from_secs(3600)).as_nanos() as u64)
    }
}

/// Sending.
impl Peer {
    /// Puts any datagram on the wire. One for which the kernel has no room is dropped.
    pub fn put(&mut self, datagram: &[u8]) -> io::Result<()> {
        match self.socket.send(datagram) {
            Ok(_) => Ok(()),
            // A daemon that has ended or starts anew refuses.
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionRefused) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// A datagram of the session with these frames, the next of a link of ours.
    pub fn seal(&mut self, link: u8, relayed: bool, frames: &[u8]) -> Vec<u8> {
        let counter = &mut self.packets[usize::from(link & 0xf)];
        *counter += 1;
        let number = *counter;
        self.seal_as((link, number), relayed, frames)
    }

    fn seal_as(&self, (link, number): (u8, u64), relayed: bool, frames: &[u8]) -> Vec<u8> {
        let Some(keys) = &self.keys else { return Vec::new() };
        let header = SessionHeader {
            ack_soon: true,
            relayed,
            link,
            session: keys.session,
            number: number as u32,
        };
        let mut datagram = header.emit(HEADER + CLOCK + frames.len() + TAG);
        if !relayed {
            let clock = self.born.elapsed().as_micros() as u32;
            datagram.extend_from_slice(&clock.to_le_bytes());
        }
        datagram.extend_from_slice(frames);
        keys.sealer.seal(link, number, &mut datagram);
        datagram
    }

    /// Sends a packet with these frames.
    pub fn send(&mut self, frames: &[u8]) -> io::Result<()> {
        let datagram = self.seal(0, false, frames);
        self.put(&datagram)
    }

    /// Has a control message wait for [`Self::send_control`].
    pub fn control(&mut self, control: &Control) {
        self.control += 1;
        self.queue(pieces(data(0, self.control, None), &control.emit(), Data::emit));
    }

    /// Has the frames of one message wait; they are sent until they are acknowledged.
    pub fn queue(&mut self, frames: Vec<Vec<u8>>) {
        let count = frames.len();
        let waiting = (1..).zip(frames).map(|(n, frame)| Waiting { frame, ends: n == count });
        self.waiting.extend(waiting);
    }

    /// An offer waits.
    pub fn offer(&mut self, channel: u64, topic: OfferedTopic) {
        self.control(&Control::Offer(Offer { channel, topic }));
    }

    /// Frames of control messages that wait.
    pub fn backlog(&self) -> usize {
        self.waiting.len()
    }

    /// Packets of them under way.
    pub fn under_way(&self) -> usize {
        self.sent.len()
    }

    /// Whether all control messages have arrived.
    pub fn is_settled(&self) -> bool {
        self.waiting.is_empty() && self.sent.is_empty()
    }

    /// The number that the next control message will have.
    pub fn next_control(&self) -> u64 {
        self.control + 1
    }

    /// Sends one packet of control messages: what is overdue again, else what waits. Where too
    /// much is under way the oldest is sent again. Without any it is a ping.
    pub fn send_control(&mut self) -> io::Result<()> {
        let overdue = self.sent.front().is_some_and(|it| it.at.elapsed() >= REPEAT_AFTER);
        let again = if overdue || self.is_full() { self.sent.pop_front() } else { None };
        let (frames, messages) = match again {
            Some(sent) => (sent.frames, sent.messages),
            None => self.next_control_frames(),
        };
        if frames.is_empty() {
            let mut ping = Vec::new();
            put_ping(&mut ping);
            return self.send(&ping);
        }
        self.send(&frames)?;
        let number = self.packets[0];
        self.sent.push_back(Sent { number, at: Instant::now(), messages, frames });
        Ok(())
    }

    /// Whether as much is under way as may be.
    fn is_full(&self) -> bool {
        let messages: usize = self.sent.iter().map(|sent| sent.messages).sum();
        messages >= self.window || self.sent.len() >= PACKET_WINDOW
    }

    fn next_control_frames(&mut self) -> (Vec<u8>, usize) {
        let (mut frames, mut messages) = (Vec::with_capacity(FRAMES), 0);
        loop {
            let fits = |next: &&Waiting| frames.len() + next.frame.len() <= FRAMES;
            if self.waiting.front().filter(fits).is_none() {
                break;
            }
            let Some(next) = self.waiting.pop_front() else { break };
            frames.extend_from_slice(&next.frame);
            messages += usize::from(next.ends);
        }
        (frames, messages)
    }

    /// Sends what waits and listens until `holds`, or the time is over; whether it held.
    pub fn run_until(
        &mut self,
        patience: Duration,
        mut holds: impl FnMut(&Self) -> bool,
    ) -> io::Result<bool> {
        let start = Instant::now();
        while !holds(self) {
            if start.elapsed() > patience {
                return Ok(false);
            }
            self.send_control()?;
            if self.listen()? == 0 && (self.waiting.is_empty() || self.is_full()) {
                std::thread::sleep(IDLE);
            }
        }
        Ok(true)
    }

    /// Frames of a packet for the other node itself, which has another in it, and so on; and the
    /// number of the innermost packet, to go on from. Numbers grow inwards, and begin a little
    /// ahead of those of the datagrams that carry all: no window lets in what is far behind.
    pub fn nest(&mut self, levels: u64, priority: u8) -> (Vec<Vec<u8>>, u64) {
        let (packets, relays) = (self.packets[0] + 64 + levels / 30, self.relays);
        self.relays += levels;
        let header = RelayHeader { hops: 8, life: None, from: None, to: None };
        let mut inner = Vec::new();
        put_ping(&mut inner);
        for level in (2..=levels).rev() {
            let payload = header.before(&self.seal_as((0, packets + level), true, &inner));
            inner.clear();
            data(priority.into(), relays + level, None).emit_relay(&payload, &mut inner);
        }
        let payload = header.before(&self.seal_as((0, packets + 1), true, &inner));
        let outer = data(priority.into(), relays + 1, None);
        (pieces(outer, &payload, Data::emit_relay), packets + levels)
    }

    /// Goes on with the packet after that one.
    pub fn skip_to(&mut self, number: u64) {
        self.packets[0] = self.packets[0].max(number);
    }

    /// The number of another packet for others.
    pub fn next_relay(&mut self) -> u64 {
        self.relays += 1;
        self.relays
    }
}

/// Receiving.
impl Peer {
    /// Listens for so long, or until `enough`.
    pub fn listen_for(
        &mut self,
        time: Duration,
        mut enough: impl FnMut(&Self) -> bool,
    ) -> io::Result<()> {
        let start = Instant::now();
        while !enough(self) && start.elapsed() < time {
            if self.listen()? == 0 {
                std::thread::sleep(IDLE);
            }
        }
        Ok(())
    }

    /// Takes what has come, and acknowledges it; returns how many datagrams there were.
    pub fn listen(&mut self) -> io::Result<usize> {
        let mut buffer = [0; 2048];
        let mut count = 0;
        while count < MAX_READ {
            match self.socket.recv(&mut buffer) {
                Ok(len) => self.take(&mut buffer[..len])?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => break,
                Err(error) => return Err(error),
            }
            count += 1;
        }
        self.acknowledge()?;
        Ok(count)
    }

    fn take(&mut self, datagram: &mut [u8]) -> io::Result<()> {
        let copy = datagram.to_vec();
        match Packet::parse(&copy) {
            Ok(Packet::Answer(answer)) => {
                let known = self.calls.iter().position(|it| it.session == answer.your_session);
                let Some(mut calling) = known.and_then(|at| self.calls.remove(at)) else {
                    return Ok(());
                };
                let Ok((split, _)) = calling.caller.finish(answer.noise) else { return Ok(()) };
                let (session, epoch) = (answer.session, calling.epoch);
                match Sealer::new(&split) {
                    Some(sealer) => self.start(Keys { session, sealer, epoch }),
                    None => Ok(()),
                }
            }
            Ok(Packet::Cookie(cookie)) => {
                let now = self.clock();
                self.jar.take(now, &Proof::of(&self.own.other), &self.mac1, &cookie);
                Ok(())
            }
            Ok(Packet::Session(header, _)) => self.take_session(&header, datagram),
            _ => Ok(()),
        }
    }

    /// Uses the keys of a handshake, which shows that we have its answer. In a new life of ours
    /// the session begins anew; the numbers of our packets may go on.
    fn start(&mut self, keys: Keys) -> io::Result<()> {
        let epoch = keys.epoch;
        let before = self.keys.replace(keys).map(|keys| keys.epoch);
        if before.is_some_and(|before| before != epoch) {
            (self.control, self.relays) = (0, 0);
            self.waiting.clear();
            self.sent.clear();
            self.arrived.clear();
            self.heard = Heard::default();
        }
        let mut ping = Vec::new();
        put_ping(&mut ping);
        self.send(&ping)
    }

    fn take_session(&mut self, header: &SessionHeader, datagram: &mut [u8]) -> io::Result<()> {
        let Some(keys) = &self.keys else { return Ok(()) };
        let arrived = self.arrived.entry(header.link).or_default();
        let expected = arrived.ranges.front().map_or(1, |(_, last)| last + 1);
        let number = full_number(header.number, expected);
        let Some(body) = keys.sealer.open(header.link, number, datagram) else { return Ok(()) };
        arrived.note(number);
        self.heard.packets += 1;
        let body = body[if header.relayed { 0 } else { CLOCK }..].to_vec();
        let mut reader = Reader::new(&body);
        while !reader.is_empty() {
            let Ok(frame) = Frame::parse(&mut reader) else { return Ok(()) };
            self.take_frame(&frame)?;
        }
        Ok(())
    }

    fn take_frame(&mut self, frame: &Frame<'_>) -> io::Result<()> {
        match frame {
            Frame::Challenge(token) => {
                let mut echo = Vec::new();
                put_echo(*token, &mut echo);
                self.send(&echo)?;
            }
            Frame::Ack(ack) if ack.link == 0 => {
                let within = |n: u64| ack.ranges.iter().any(|(a, b)| (*a..=*b).contains(&n));
                self.sent.retain(|sent| !within(sent.number));
            }
            Frame::Held(held) if self.heard.held.len() < MAX_HELD => self.heard.held.push(*held),
            Frame::Relay(..) => self.heard.relayed += 1,
            // The longer ones are definitions, which we do not ask for.
            Frame::Data(Data { channel: 0, fragment: None, .. }, bytes) => {
                if let Ok(control) = Control::parse(bytes) {
                    self.take_control(control);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn take_control(&mut self, control: Control) {
        match control {
            Control::Offer(Offer { channel, topic }) => {
                self.heard.offers.retain(|offered| offered.channel != channel);
                self.heard.offers.push(Offered { channel, topic });
            }
            Control::Withdraw { channel } => {
                self.heard.offers.retain(|offered| offered.channel != channel);
            }
            Control::Want { channel, wanted } => {
                self.heard.wanted.insert(channel, wanted);
            }
            Control::Refuse { reason, .. } => self.heard.refused.push(reason),
            Control::GetDefinition { channel } => {
                if let Some(text) = self.definition.clone() {
                    self.control(&Control::Definition { channel, text });
                }
            }
            Control::Definition { .. } | Control::Unknown(_) => {}
        }
    }

    /// What has come on each link of the other node, as an acknowledgement.
    fn acknowledge(&mut self) -> io::Result<()> {
        if self.acked_at.elapsed() < ACK_EVERY {
            return Ok(());
        }
        let mut frames = Vec::new();
        for (link, arrived) in self.arrived.iter_mut().filter(|(_, it)| !it.told) {
            arrived.told = true;
            ack(*link, arrived.ranges.iter().copied().collect()).emit(&mut frames);
        }
        if frames.is_empty() {
            return Ok(());
        }
        self.acked_at = Instant::now();
        self.send(&frames)
    }

    /// The numbers that arrived on the other node's first link, newest first.
    pub fn arrivals(&self) -> Vec<(u64, u64)> {
        let first = self.arrived.values().next();
        first.map_or(vec![], |arrived| arrived.ranges.iter().copied().collect())
    }
}

/// An acknowledgement of those numbers, at once.
pub fn ack(link: u8, ranges: Vec<(u64, u64)>) -> Ack {
    let none = tautline_proto::Duration::ZERO;
    Ack { link, delay: none, waited: none, least_waited: none, ranges }
}

impl Arrived {
    fn note(&mut self, number: u64) {
        self.told = false;
        match self.ranges.front_mut() {
            Some((_, last)) if number == *last + 1 => *last = number,
            Some((_, last)) if number <= *last => {}
            _ => self.ranges.push_front((number, number)),
        }
        self.ranges.truncate(MAX_RANGES);
    }
}
