// SPDX-License-Identifier: Apache-2.0
//! The formats of a UDP datagram: handshake packets, beacons and session packets.

use super::beacon::Beacon;
use super::cursor::{Reader, put_text};
use super::{VERSION, WireError};

/// First byte of handshake packets and beacons.
pub const MAGIC: u8 = b'T';
/// Longest name of a node, in bytes.
pub const MAX_NAME: usize = 63;
/// Bytes of the unencrypted header of a session packet.
pub const SESSION_HEADER: usize = 9;
/// Bytes of the sender's clock, the first encrypted field unless the packet is relayed.
pub const TIME_BYTES: usize = 4;
/// Bytes of an authentication tag (RFC 8439).
pub const TAG: usize = 16;
/// Bytes of MAC1 and of MAC2.
pub const MAC: usize = 16;
/// Bytes that the first Noise message of IK adds to its payload: ephemeral key, encrypted static key, two
/// tags.
const NOISE_FIRST: usize = 32 + 32 + TAG + TAG;
/// Bytes that the second Noise message of IK adds to its payload: ephemeral key, tag.
const NOISE_SECOND: usize = 32 + TAG;
/// Bytes of the payload of a response: epoch and verdict.
const RESPONSE_PAYLOAD: usize = 9;

const TYPE_INITIATION: u8 = 0;
const TYPE_RESPONSE: u8 = 1;
const TYPE_COOKIE_REPLY: u8 = 2;
pub(super) const TYPE_BEACON: u8 = 3;

const SESSION: u8 = 0x80;
const ACK_SOON: u8 = 0x40;
const RELAYED: u8 = 0x20;
const RESERVED: u8 = 0x10;
const LINK: u8 = 0x0f;

/// A datagram, still encrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet<'a> {
    /// First message of a handshake.
    Initiation(Initiation<'a>),
    /// Second message of a handshake.
    Response(Response<'a>),
    /// The reply to an initiation during a flood.
    CookieReply(CookieReply<'a>),
    /// Announces the sender's address to its peers.
    Beacon(Beacon<'a>),
    /// Carries encrypted frames.
    Session(SessionHeader, &'a [u8]),
    /// A handshake packet of another version. The rest of it is not read.
    OtherVersion(u8),
}

/// The first message of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Initiation<'a> {
    /// Session number for packets to the initiator; not 0.
    pub session: u32,
    /// First message of Noise IK; its payload is a [`Greeting`].
    pub noise: &'a [u8],
    /// All bytes before the MACs. MAC1 covers these bytes.
    pub mac1_input: &'a [u8],
    /// Proves that the initiator knows the receiver's public key.
    pub mac1: [u8; MAC],
    /// Proves that the initiator receives at its address; zero without a cookie.
    pub mac2: [u8; MAC],
}

/// The second message of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response<'a> {
    /// Session number for packets to the responder; not 0.
    pub session: u32,
    /// The session number of the initiation.
    pub your_session: u32,
    /// Second message of Noise IK; its payload is the responder's epoch and [`Verdict`].
    pub noise: &'a [u8],
    /// All bytes before MAC1.
    pub mac1_input: &'a [u8],
    /// Proves that the responder knows the initiator's public key.
    pub mac1: [u8; MAC],
}

/// The reply to an initiation during a flood: a cookie for the next initiation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CookieReply<'a> {
    /// The session number of the initiation.
    pub your_session: u32,
    /// Nonce of the encryption.
    pub nonce: [u8; 12],
    /// The encrypted cookie, and its tag.
    pub sealed: &'a [u8],
}

/// Bytes of a cookie.
pub const COOKIE: usize = 16;

/// The payload of an initiation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Greeting<'a> {
    /// Session epoch of the initiator. A changed epoch shows a restart.
    pub epoch: u64,
    /// Name of the initiator.
    pub name: &'a str,
}

/// Whether the responder accepts the initiator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The responder accepts the initiator.
    Welcome,
    /// The responder knows the initiator's key under another name.
    Name,
    /// A later session epoch of the initiator's key is in use: two nodes have the key.
    Twin,
}

impl Verdict {
    /// Reads epoch and verdict from the payload of a response. Later versions may append fields.
    pub fn parse(bytes: &[u8]) -> Result<(u64, Self), WireError> {
        let mut reader = Reader::new(bytes);
        let epoch = reader.u64()?;
        let verdict = match reader.u8()? {
            0 => Self::Welcome,
            1 => Self::Name,
            2 => Self::Twin,
            _ => return Err(WireError::Value("verdict")),
        };
        Ok((epoch, verdict))
    }

    /// The payload of a response.
    pub fn emit(self, epoch: u64) -> Vec<u8> {
        let mut out = epoch.to_le_bytes().to_vec();
        out.push(match self {
            Self::Welcome => 0,
            Self::Name => 1,
            Self::Twin => 2,
        });
        out
    }
}

/// The header of a session packet. It is authenticated but not encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionHeader {
    /// The sender asks for an early acknowledgement, since no later packet can reveal a loss, or
    /// since its rate control needs a report.
    pub ack_soon: bool,
    /// The packet travels through a relay, and has no clock.
    pub relayed: bool,
    /// The sender's link number, 0 to 15.
    pub link: u8,
    /// The receiver's session number.
    pub session: u32,
    /// Low 32 bits of the packet number.
    pub number: u32,
}

impl<'a> Packet<'a> {
    /// Reads the fields that are not encrypted.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(bytes);
        let first = reader.u8()?;
        if first & SESSION != 0 {
            return read_session(first, &mut reader);
        }
        if first != MAGIC {
            return Err(WireError::Magic);
        }
        let version_and_kind = reader.u8()?;
        let (version, kind) = (version_and_kind >> 4, version_and_kind & 0xf);
        match kind {
            _ if version != VERSION => Ok(Self::OtherVersion(version)),
            TYPE_INITIATION => read_initiation(bytes, &mut reader).map(Self::Initiation),
            TYPE_RESPONSE => read_response(bytes, &mut reader).map(Self::Response),
            TYPE_COOKIE_REPLY => read_cookie_reply(&mut reader).map(Self::CookieReply),
            TYPE_BEACON => Beacon::read(&mut reader).map(Self::Beacon),
            _ => Err(WireError::Value("kind")),
        }
    }
}

fn read_session<'a>(first: u8, reader: &mut Reader<'a>) -> Result<Packet<'a>, WireError> {
    if first & RESERVED != 0 {
        return Err(WireError::Value("kind"));
    }
    let header = SessionHeader {
        ack_soon: first & ACK_SOON != 0,
        relayed: first & RELAYED != 0,
        link: first & LINK,
        session: reader.u32()?,
        number: reader.u32()?,
    };
    let sealed = reader.remaining();
    let clock = if header.relayed { 0 } else { TIME_BYTES };
    if sealed.len() < clock + TAG {
        return Err(WireError::Truncated);
    }
    Ok(Packet::Session(header, sealed))
}

/// Reads a session number, which is not 0.
fn read_number(reader: &mut Reader<'_>) -> Result<u32, WireError> {
    match reader.u32()? {
        0 => Err(WireError::Value("session")),
        number => Ok(number),
    }
}

/// The bytes between the reader and the last `macs` MACs, and all bytes before these MACs.
fn before_macs<'a>(
    bytes: &'a [u8],
    reader: &mut Reader<'a>,
    macs: usize,
) -> Result<(&'a [u8], &'a [u8]), WireError> {
    let rest = reader.remaining();
    let len = rest.len().checked_sub(macs * MAC).ok_or(WireError::Truncated)?;
    *reader = Reader::new(&rest[len..]);
    Ok((&rest[..len], &bytes[..bytes.len() - macs * MAC]))
}

fn read_initiation<'a>(
    bytes: &'a [u8],
    reader: &mut Reader<'a>,
) -> Result<Initiation<'a>, WireError> {
    let session = read_number(reader)?;
    let (noise, mac1_input) = before_macs(bytes, reader, 2)?;
    if noise.len() < NOISE_FIRST {
        return Err(WireError::Truncated);
    }
    Ok(Initiation { session, noise, mac1_input, mac1: reader.array()?, mac2: reader.array()? })
}

fn read_response<'a>(bytes: &'a [u8], reader: &mut Reader<'a>) -> Result<Response<'a>, WireError> {
    let (session, your_session) = (read_number(reader)?, read_number(reader)?);
    let (noise, mac1_input) = before_macs(bytes, reader, 1)?;
    if noise.len() < NOISE_SECOND + RESPONSE_PAYLOAD {
        return Err(WireError::Truncated);
    }
    Ok(Response { session, your_session, noise, mac1_input, mac1: reader.array()? })
}

fn read_cookie_reply<'a>(reader: &mut Reader<'a>) -> Result<CookieReply<'a>, WireError> {
    let (your_session, nonce) = (read_number(reader)?, reader.array()?);
    Ok(CookieReply { your_session, nonce, sealed: reader.bytes(COOKIE + TAG)? })
}

pub(super) fn start(kind: u8) -> Vec<u8> {
    vec![MAGIC, VERSION << 4 | kind]
}

/// An initiation without its MACs.
pub fn start_initiation(session: u32, noise: &[u8]) -> Vec<u8> {
    let mut out = start(TYPE_INITIATION);
    out.extend_from_slice(&session.to_le_bytes());
    out.extend_from_slice(noise);
    out
}

/// A response without MAC1.
pub fn start_response(session: u32, your_session: u32, noise: &[u8]) -> Vec<u8> {
    let mut out = start(TYPE_RESPONSE);
    out.extend_from_slice(&session.to_le_bytes());
    out.extend_from_slice(&your_session.to_le_bytes());
    out.extend_from_slice(noise);
    out
}

impl CookieReply<'_> {
    /// The whole datagram.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = start(TYPE_COOKIE_REPLY);
        out.extend_from_slice(&self.your_session.to_le_bytes());
        out.extend_from_slice(&self.nonce);
        out.extend_from_slice(self.sealed);
        out
    }
}

impl<'a> Greeting<'a> {
    /// Reads the payload of an initiation. Later versions may append fields.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(bytes);
        let epoch = reader.u64()?;
        match reader.utf8(MAX_NAME, "name")? {
            "" => Err(WireError::Value("name")),
            name => Ok(Self { epoch, name }),
        }
    }

    /// The payload of an initiation.
    pub fn emit(&self) -> Vec<u8> {
        debug_assert!((1..=MAX_NAME).contains(&self.name.len()));
        let mut out = self.epoch.to_le_bytes().to_vec();
        put_text(&mut out, self.name);
        out
    }
}

impl SessionHeader {
    /// Starts a datagram of at most `capacity` bytes; clock and frames are appended.
    pub fn emit(&self, capacity: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(capacity);
        self.emit_into(&mut out);
        out
    }

    /// Like [`Self::emit`], but into the buffer `out`, which is empty.
    pub(crate) fn emit_into(&self, out: &mut Vec<u8>) {
        debug_assert!(self.link & !LINK == 0);
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags = flag(self.ack_soon, ACK_SOON) | flag(self.relayed, RELAYED);
        out.push(SESSION | flags | self.link);
        out.extend_from_slice(&self.session.to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
    }

    /// Sets Ack Soon in a datagram that is already started.
    pub fn mark_ack_soon(datagram: &mut [u8]) {
        if let Some(first) = datagram.first_mut() {
            *first |= ACK_SOON;
        }
    }
}

/// The packet number with the low 32 bits `low` that is nearest to the expected number.
pub fn full_number(low: u32, expected: u64) -> u64 {
    let distance = low.wrapping_sub(expected as u32) as i32;
    expected.checked_add_signed(i64::from(distance)).unwrap_or(u64::from(low))
}
