// SPDX-License-Identifier: Apache-2.0
//! What one UDP datagram is: part of a handshake, a beacon, or a packet of a session.

use super::beacon::Beacon;
use super::cursor::{Reader, put_text};
use super::{VERSION, WireError};

/// First byte of every packet of a handshake, and of beacons.
pub const MAGIC: u8 = b'T';
/// Longest name of a node, in bytes.
pub const MAX_NAME: usize = 63;
/// Bytes of a session packet that are not encrypted.
pub const SESSION_HEADER: usize = 9;
/// Bytes of the sender's clock, the first of what is encrypted where there is no relay.
pub const TIME_BYTES: usize = 4;
/// Bytes of an authentication tag (RFC 8439).
pub const TAG: usize = 16;
/// Bytes of each of the two codes that end a packet of a handshake.
pub const MAC: usize = 16;
/// Bytes that a Noise message adds to its payload: the first of IK (ephemeral key, encrypted
/// static key, two tags), and the second (ephemeral key, tag).
const NOISE_FIRST: usize = 32 + 32 + TAG + TAG;
const NOISE_SECOND: usize = 32 + TAG;
/// Bytes of the payload of an answer: the epoch and the verdict.
const ANSWER_PAYLOAD: usize = 9;

const KIND_CALL: u8 = 0;
const KIND_ANSWER: u8 = 1;
const KIND_COOKIE: u8 = 2;
pub(super) const KIND_BEACON: u8 = 3;

const SESSION: u8 = 0x80;
const ACK_SOON: u8 = 0x40;
const RELAYED: u8 = 0x20;
const RESERVED: u8 = 0x10;
const LINK: u8 = 0x0f;

/// One datagram, nothing of it decrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet<'a> {
    /// First message of a handshake.
    Initiation(Initiation<'a>),
    /// Second message of a handshake.
    Response(Response<'a>),
    /// In place of an answer, while under flood.
    CookieReply(CookieReply<'a>),
    /// Tells peers where the sender is.
    Beacon(Beacon<'a>),
    /// Carries frames, encrypted.
    Session(SessionHeader, &'a [u8]),
    /// A packet of a handshake of another version of the format, which stays unread.
    OtherVersion(u8),
}

/// First message of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Initiation<'a> {
    /// The number the caller wants to see on packets to it; not 0.
    pub session: u32,
    /// First message of Noise IK; its payload is a [`Greeting`].
    pub noise: &'a [u8],
    /// All bytes before the codes, which the first code covers.
    pub proven: &'a [u8],
    /// Shows that the caller knows the receiver's public key.
    pub mac1: [u8; MAC],
    /// Shows that the caller receives at its address; zero if not asked for.
    pub mac2: [u8; MAC],
}

/// Second message of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response<'a> {
    /// The number the sender wants to see on packets to it; not 0.
    pub session: u32,
    /// The caller's number.
    pub your_session: u32,
    /// Second message of Noise IK; its payload is the sender's epoch and its [`Verdict`].
    pub noise: &'a [u8],
    /// All bytes before the code.
    pub proven: &'a [u8],
    /// Shows that the sender knows the caller's public key.
    pub mac1: [u8; MAC],
}

/// In place of an answer, while under flood: what the caller has to show with its next call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CookieReply<'a> {
    /// The caller's number.
    pub your_session: u32,
    /// Of the encryption.
    pub nonce: [u8; 12],
    /// The cookie, encrypted, and its tag.
    pub sealed: &'a [u8],
}

/// Bytes of a cookie.
pub const COOKIE: usize = 16;

/// Payload of a call: who it is, and in which of its lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Greeting<'a> {
    /// Drawn by the caller when it started: another value means that it restarted.
    pub epoch: u64,
    /// What the caller calls itself.
    pub name: &'a str,
}

/// Payload of an answer, after the sender's epoch: whether it takes the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It does.
    Welcome,
    /// It knows the caller's key under another name.
    Name,
    /// Another node with the caller's key has called since.
    Twin,
}

impl Verdict {
    /// Reads the payload of an answer; what follows is of a later version.
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

    /// The payload of an answer.
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

/// What precedes the encrypted part of a session packet; it is authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionHeader {
    /// The sender has nothing more to send now: acknowledge soon, since no later packet will reveal a loss.
    pub ack_soon: bool,
    /// Others carry it, and tell its age: its clock is left out.
    pub relayed: bool,
    /// The sender's number for the link, 0-15.
    pub link: u8,
    /// The receiver's number for the session.
    pub session: u32,
    /// Low 32 bits of the packet's number on that link.
    pub number: u32,
}

impl<'a> Packet<'a> {
    /// Reads what is not encrypted.
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
            KIND_CALL => read_initiation(bytes, &mut reader).map(Self::Initiation),
            KIND_ANSWER => read_response(bytes, &mut reader).map(Self::Response),
            KIND_COOKIE => read_cookie_reply(&mut reader).map(Self::CookieReply),
            KIND_BEACON => Beacon::read(&mut reader).map(Self::Beacon),
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

/// A number of a session, which is never 0.
fn read_number(reader: &mut Reader<'_>) -> Result<u32, WireError> {
    match reader.u32()? {
        0 => Err(WireError::Value("session")),
        number => Ok(number),
    }
}

/// What lies between the reader and the last `codes` codes, and all before these.
fn before_codes<'a>(
    bytes: &'a [u8],
    reader: &mut Reader<'a>,
    codes: usize,
) -> Result<(&'a [u8], &'a [u8]), WireError> {
    let rest = reader.remaining();
    let len = rest.len().checked_sub(codes * MAC).ok_or(WireError::Truncated)?;
    *reader = Reader::new(&rest[len..]);
    Ok((&rest[..len], &bytes[..bytes.len() - codes * MAC]))
}

fn read_initiation<'a>(
    bytes: &'a [u8],
    reader: &mut Reader<'a>,
) -> Result<Initiation<'a>, WireError> {
    let session = read_number(reader)?;
    let (noise, proven) = before_codes(bytes, reader, 2)?;
    if noise.len() < NOISE_FIRST {
        return Err(WireError::Truncated);
    }
    Ok(Initiation { session, noise, proven, mac1: reader.array()?, mac2: reader.array()? })
}

fn read_response<'a>(bytes: &'a [u8], reader: &mut Reader<'a>) -> Result<Response<'a>, WireError> {
    let (session, your_session) = (read_number(reader)?, read_number(reader)?);
    let (noise, proven) = before_codes(bytes, reader, 1)?;
    if noise.len() < NOISE_SECOND + ANSWER_PAYLOAD {
        return Err(WireError::Truncated);
    }
    Ok(Response { session, your_session, noise, proven, mac1: reader.array()? })
}

fn read_cookie_reply<'a>(reader: &mut Reader<'a>) -> Result<CookieReply<'a>, WireError> {
    let (your_session, nonce) = (read_number(reader)?, reader.array()?);
    Ok(CookieReply { your_session, nonce, sealed: reader.bytes(COOKIE + TAG)? })
}

pub(super) fn start(kind: u8) -> Vec<u8> {
    vec![MAGIC, VERSION << 4 | kind]
}

/// A call up to its codes.
pub fn start_initiation(session: u32, noise: &[u8]) -> Vec<u8> {
    let mut out = start(KIND_CALL);
    out.extend_from_slice(&session.to_le_bytes());
    out.extend_from_slice(noise);
    out
}

/// An answer up to its code.
pub fn start_response(session: u32, your_session: u32, noise: &[u8]) -> Vec<u8> {
    let mut out = start(KIND_ANSWER);
    out.extend_from_slice(&session.to_le_bytes());
    out.extend_from_slice(&your_session.to_le_bytes());
    out.extend_from_slice(noise);
    out
}

impl CookieReply<'_> {
    /// The whole datagram.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = start(KIND_COOKIE);
        out.extend_from_slice(&self.your_session.to_le_bytes());
        out.extend_from_slice(&self.nonce);
        out.extend_from_slice(self.sealed);
        out
    }
}

impl<'a> Greeting<'a> {
    /// Reads the payload of a call; what follows the name is of a later version.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(bytes);
        let epoch = reader.u64()?;
        match reader.text(MAX_NAME, "name")? {
            "" => Err(WireError::Value("name")),
            name => Ok(Self { epoch, name }),
        }
    }

    /// The payload of a call.
    pub fn emit(&self) -> Vec<u8> {
        debug_assert!((1..=MAX_NAME).contains(&self.name.len()));
        let mut out = self.epoch.to_le_bytes().to_vec();
        put_text(&mut out, self.name);
        out
    }
}

impl SessionHeader {
    /// Starts a datagram of at most `capacity` bytes; the clock and frames are appended.
    pub fn emit(&self, capacity: usize) -> Vec<u8> {
        debug_assert!(self.link & !LINK == 0);
        let mut out = Vec::with_capacity(capacity);
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags = flag(self.ack_soon, ACK_SOON) | flag(self.relayed, RELAYED);
        out.push(SESSION | flags | self.link);
        out.extend_from_slice(&self.session.to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
        out
    }

    /// Asks for a soon acknowledgement in a datagram already started.
    pub fn mark_ack_soon(datagram: &mut [u8]) {
        if let Some(first) = datagram.first_mut() {
            *first |= ACK_SOON;
        }
    }
}

/// The full packet number whose low 32 bits are `low`, nearest to the one expected next.
pub fn full_number(low: u32, expected: u64) -> u64 {
    let distance = low.wrapping_sub(expected as u32) as i32;
    expected.checked_add_signed(i64::from(distance)).unwrap_or(u64::from(low))
}
