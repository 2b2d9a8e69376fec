// SPDX-License-Identifier: Apache-2.0
//! A hand-made peer with a valid key. It completes the handshake with a daemon, keeps its session
//! alive, and sends arbitrary packets for the lab's case `attack` and for tests of the daemon.

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
use tautline_proto::{DeliveryOrder, OfferedQos, PublicKey, Role, SecretKey};

/// Largest datagram sent: a full packet of an Ethernet interface.
pub const DATAGRAM: usize = 1472;
/// Bytes of frames in a datagram of [`DATAGRAM`] bytes, without header, clock and tag.
pub const FRAMES: usize = DATAGRAM - HEADER - CLOCK - TAG;
const HEADER: usize = 9;
const CLOCK: usize = 4;
const TAG: usize = 16;
/// Largest header of a data frame: type, length, channel, number, flags, age and fragment.
const DATA_HEADER: usize = 40;
/// Default limit of control messages in flight. A node holds 1024 of them while one is missing.
const CONTROL_WINDOW: usize = 800;
/// Limit of packets of control messages in flight.
const PACKET_WINDOW: usize = 512;
/// Time after which an unacknowledged packet of control messages is retransmitted.
const REPEAT_AFTER: Duration = Duration::from_millis(50);
/// Pause while there is nothing to do.
const IDLE: Duration = Duration::from_micros(200);
/// Time between two acknowledgements.
const ACK_EVERY: Duration = Duration::from_millis(5);
const MAX_RANGES: usize = 32;
/// Maximum number of datagrams read in one call of [`Peer::listen`].
const MAX_READ: usize = 256;
/// Maximum number of relay backlog reports that are remembered.
const MAX_HELD: usize = 4096;
/// Maximum number of handshake initiations whose responses can still be read.
const MAX_CALLS: usize = 64;
/// Interval at which an initiation is repeated, within the node's limit.
const INITIATION_RETRY: Duration = Duration::from_millis(200);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(20);

/// Identity of the peer, and of the node that it connects to.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Name in the other node's file.
    pub name: String,
    /// Key of the peer.
    pub secret: SecretKey,
    /// Public key of the node that the peer connects to.
    pub other: PublicKey,
}

/// A topic that the other node advertises.
#[derive(Debug, Clone)]
pub struct Offered {
    /// Channel of the topic.
    pub channel: u64,
    /// Advertised topic.
    pub topic: OfferedTopic,
}

/// The state received from the other node.
#[derive(Debug, Default)]
pub struct Received {
    /// The current advertisements.
    pub offers: Vec<Offered>,
    /// Whether the other node subscribes, by our channel.
    pub wanted: BTreeMap<u64, bool>,
    /// Reasons for which the other node refused our channels.
    pub refused: Vec<String>,
    /// Number of authentic session packets.
    pub packets: u64,
    /// Relay backlog reports.
    pub held: Vec<Held>,
    /// Number of received packets to relay, whole or in fragments.
    pub relayed: u64,
}

/// Keys of one handshake.
struct Keys {
    session: u32,
    sealer: Sealer,
    epoch: u64,
}

struct PendingHandshake {
    session: u32,
    caller: Initiator,
    epoch: u64,
}

/// Packets received on one link of the other node.
#[derive(Default)]
struct ReceivedPackets {
    /// First and last number of each range, newest first.
    ranges: VecDeque<(u64, u64)>,
    reported: bool,
}

/// A packet of control messages in flight.
struct Sent {
    number: u64,
    at: Instant,
    messages: usize,
    frames: Vec<u8>,
}

/// One queued frame of a control message.
struct Waiting {
    frame: Vec<u8>,
    /// Whether it is the last frame of its message.
    ends: bool,
}

/// The hand-made peer.
pub struct Peer {
    socket: UdpSocket,
    own: Identity,
    /// Session epoch of this peer, which shows the other node a restart.
    epoch: u64,
    jar: CookieJar,
    calls: VecDeque<PendingHandshake>,
    /// First MAC of the last initiation, to which a cookie reply responds.
    mac1: [u8; 16],
    keys: Option<Keys>,
    born: Instant,
    /// Number of the last packet of each link.
    packets: [u64; 16],
    /// Number of the last control message.
    control: u64,
    /// Number of the last packet to relay.
    relays: u64,
    waiting: VecDeque<Waiting>,
    sent: VecDeque<Sent>,
    arrived: BTreeMap<u8, ReceivedPackets>,
    acked_at: Instant,
    /// Limit of control messages in flight.
    pub window: usize,
    /// Response to requests for definitions; `None` for no response.
    pub definition: Option<String>,
    /// Everything received from the other node.
    pub heard: Received,
}

/// Returns an unpredictable number.
pub fn random_u64() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Returns a topic with the default treatment.
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
        order: DeliveryOrder::Arrival,
    }
}

/// Returns an acknowledgement of these ranges of packet numbers that reports no delay.
pub fn ack(link: u8, ranges: Vec<(u64, u64)>) -> Ack {
    let none = tautline_proto::Duration::ZERO;
    let ecn = tautline_proto::EcnCounts::default();
    Ack { link, delay: none, waited: none, least_waited: none, ecn, ranges }
}

/// Returns the header of a data frame.
pub fn data(channel: u64, number: u64, fragment: Option<Fragment>) -> Data {
    let age = tautline_proto::Duration::ZERO;
    Data { channel, number, source: 0, encoded: false, age, fragment, place: None }
}

/// Fills one packet with frames by repeated calls of `put`.
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

/// Returns the frames of one message: a single one, or fragments that each fill a packet.
pub fn message_frames(
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

/// Starts a handshake for a session number and epoch, with drawn random bytes. Returns its state and
/// the initiation without MACs.
pub fn initiation(own: &Identity, session: u32, epoch: u64) -> Option<(Initiator, Vec<u8>)> {
    let greeting = Greeting { epoch, name: &own.name }.emit();
    let mut random = [0; 32];
    random.chunks_mut(8).for_each(|it| it.copy_from_slice(&random_u64().to_le_bytes()));
    let begun = Initiator::initiate(&own.secret, &own.other, random, &greeting);
    begun.ok().map(|(caller, noise)| (caller, start_initiation(session, &noise)))
}

/// Handshake.
impl Peer {
    /// Sends initiations to the other node over a socket connected to it, until it responds.
    pub fn meet(socket: UdpSocket, own: Identity) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let now = Instant::now();
        let mut peer = Self {
            socket,
            own,
            epoch: random_u64(),
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
            heard: Received::default(),
        };
        while peer.keys.is_none() {
            if now.elapsed() > HANDSHAKE_TIMEOUT {
                let text =
                    format!("no response to a handshake initiation in {HANDSHAKE_TIMEOUT:?}");
                return Err(io::Error::new(ErrorKind::TimedOut, text));
            }
            let call = peer.call();
            peer.put(&call)?;
            peer.listen_for(INITIATION_RETRY, |peer| peer.keys.is_some())?;
        }
        Ok(peer)
    }

    /// Returns another initiation of the same session epoch.
    pub fn call(&mut self) -> Vec<u8> {
        let session = (random_u64() as u32).max(1);
        let Some((caller, mut call)) = initiation(&self.own, session, self.epoch) else {
            return Vec::new();
        };
        let now = self.clock();
        self.mac1 = self.jar.append_macs(now, &MacKey::for_receiver(&self.own.other), &mut call);
        if self.calls.len() == MAX_CALLS {
            self.calls.pop_front();
        }
        self.calls.push_back(PendingHandshake { session, caller, epoch: self.epoch });
        call
    }

    /// Returns an initiation of a new session epoch, as after a restart of this peer.
    pub fn call_on_new_connection(&mut self) -> Vec<u8> {
        self.epoch = random_u64();
        self.call()
    }

    fn clock(&self) -> tautline_proto::Instant {
        // The protocol's time must not start at zero: a time older than a cookie would be negative.
        tautline_proto::Instant((self.born.elapsed() + Duration::from_secs(3600)).as_nanos() as u64)
    }
}
