// SPDX-License-Identifier: Apache-2.0
//! A hand-made peer with a valid key: it completes the handshake with a daemon, keeps its
//! session alive, and sends whatever its user makes. The tests of the daemon share this file
//! (`crates/node/tests/hostile_peer.rs`), so it uses the protocol's crate and no other.
#![allow(dead_code, reason = "each user takes its part")]

mod receive;
mod send;

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::time::{Duration, Instant};
use tautline_proto::crypto::cookies::{CookieJar, MacKey};
use tautline_proto::crypto::noise::Initiator;
use tautline_proto::crypto::seal::Sealer;
use tautline_proto::wire::control::OfferedTopic;
use tautline_proto::wire::frame::{Ack, Data, Fragment};
use tautline_proto::wire::packet::{Greeting, start_initiation};
use tautline_proto::wire::relay::Held;
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
    caller: Initiator,
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
    jar: CookieJar,
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

/// An acknowledgement of those numbers, at once.
pub fn ack(link: u8, ranges: Vec<(u64, u64)>) -> Ack {
    let none = tautline_proto::Duration::ZERO;
    Ack { link, delay: none, waited: none, least_waited: none, ranges }
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
            jar: CookieJar::default(),
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
            Initiator::call(&self.own.secret, &self.own.other, random, &greeting)
        else {
            return Vec::new();
        };
        let mut call = start_initiation(session, &noise);
        let now = self.clock();
        self.mac1 = self.jar.prove(now, &MacKey::of(&self.own.other), &mut call);
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
