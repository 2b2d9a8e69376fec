// SPDX-License-Identifier: Apache-2.0
//! What one UDP datagram is: a hello, a refusal or a packet of a session.

use super::cursor::Reader;
use super::{VERSION, WireError};

/// First byte of every packet.
pub const MAGIC: u8 = b'T';
/// Longest name of a node, in bytes.
pub const MAX_NAME: usize = 63;
/// Bytes before the frames of a session packet.
pub const SESSION_HEADER: usize = 11;

const KIND_HELLO: u8 = 0;
const KIND_REFUSAL: u8 = 1;
const KIND_SESSION: u8 = 2;
const KIND_SESSION_ACK_SOON: u8 = 3;

/// One datagram, its frames not yet read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet<'a> {
    /// Opens or resumes a session.
    Hello(Hello<'a>),
    /// Answers a hello that cannot be taken.
    Refusal(Refusal<'a>),
    /// Carries frames.
    Session(SessionHeader, &'a [u8]),
    /// A hello or refusal of another version of the format, of which only the name is known.
    OtherVersion {
        /// Its version.
        version: u8,
        /// The name in it.
        name: &'a str,
        /// A refusal; only a hello is answered, or two nodes would refuse each other for ever.
        is_refusal: bool,
    },
}

/// Opens or resumes a session. Up to the name, the layout is the same in every version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello<'a> {
    /// The sender's name.
    pub name: &'a str,
    /// The number the sender wants to see on packets to it; not 0.
    pub session: u32,
    /// The receiver's number as the sender knows it; 0 if not yet.
    pub your_session: u32,
    /// Drawn when the sender started: another value means that it restarted.
    pub epoch: u64,
}

/// Why a hello was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RefusalReason {
    /// The name is not among the receiver's peers.
    UnknownPeer,
    /// The receiver speaks another version (its own is in the header).
    Version,
    /// Another node of that name is connected, or it is the receiver's own.
    NameTaken,
    /// The name is known, but not from this address.
    Address,
}

/// Answers a hello that cannot be taken; at most 67 bytes, so that it is no means to flood others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal<'a> {
    /// The name of the node that refuses.
    pub name: &'a str,
    /// Why.
    pub reason: RefusalReason,
}

/// What precedes the frames of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionHeader {
    /// The receiver's number for this session.
    pub session: u32,
    /// The sender's number for the link, 0-15.
    pub link: u8,
    /// Low 32 bits of the packet's number on that link.
    pub number: u32,
    /// The sender has nothing more to send now: acknowledge soon, since no later packet will reveal a loss.
    pub ack_soon: bool,
}

impl<'a> Packet<'a> {
    /// Reads the part before the frames.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(bytes);
        if reader.u8()? != MAGIC {
            return Err(WireError::Magic);
        }
        let version_and_kind = reader.u8()?;
        let (version, kind) = (version_and_kind >> 4, version_and_kind & 0xf);
        match kind {
            KIND_HELLO | KIND_REFUSAL if version != VERSION => {
                let is_refusal = kind == KIND_REFUSAL;
                Ok(Self::OtherVersion { version, name: read_name(&mut reader)?, is_refusal })
            }
            _ if version != VERSION => Err(WireError::Value("version")),
            KIND_HELLO => read_hello(&mut reader).map(Self::Hello),
            KIND_REFUSAL => read_refusal(&mut reader).map(Self::Refusal),
            KIND_SESSION | KIND_SESSION_ACK_SOON => {
                let header = SessionHeader {
                    session: reader.u32()?,
                    link: reader.u8()?,
                    number: reader.u32()?,
                    ack_soon: kind == KIND_SESSION_ACK_SOON,
                };
                Ok(Self::Session(header, reader.remaining()))
            }
            _ => Err(WireError::Value("kind")),
        }
    }
}

fn read_name<'a>(reader: &mut Reader<'a>) -> Result<&'a str, WireError> {
    match reader.text(MAX_NAME, "name")? {
        "" => Err(WireError::Value("name")),
        name => Ok(name),
    }
}

fn read_hello<'a>(reader: &mut Reader<'a>) -> Result<Hello<'a>, WireError> {
    let hello = Hello {
        name: read_name(reader)?,
        session: reader.u32()?,
        your_session: reader.u32()?,
        epoch: reader.u64()?,
    };
    if hello.session == 0 { Err(WireError::Value("session")) } else { Ok(hello) }
}

fn read_refusal<'a>(reader: &mut Reader<'a>) -> Result<Refusal<'a>, WireError> {
    let name = read_name(reader)?;
    let reason = match reader.u8()? {
        1 => RefusalReason::UnknownPeer,
        2 => RefusalReason::Version,
        3 => RefusalReason::NameTaken,
        4 => RefusalReason::Address,
        _ => return Err(WireError::Value("reason")),
    };
    Ok(Refusal { name, reason })
}

fn start(kind: u8, capacity: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(capacity);
    out.extend_from_slice(&[MAGIC, VERSION << 4 | kind]);
    out
}

fn put_name(out: &mut Vec<u8>, name: &str) {
    debug_assert!(!name.is_empty() && name.len() <= MAX_NAME);
    super::cursor::put_text(out, name);
}

impl Hello<'_> {
    /// The whole datagram.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = start(KIND_HELLO, 2 + 1 + self.name.len() + 16);
        put_name(&mut out, self.name);
        out.extend_from_slice(&self.session.to_le_bytes());
        out.extend_from_slice(&self.your_session.to_le_bytes());
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out
    }
}

impl Refusal<'_> {
    /// The whole datagram.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = start(KIND_REFUSAL, 2 + 1 + self.name.len() + 1);
        put_name(&mut out, self.name);
        out.push(match self.reason {
            RefusalReason::UnknownPeer => 1,
            RefusalReason::Version => 2,
            RefusalReason::NameTaken => 3,
            RefusalReason::Address => 4,
        });
        out
    }
}

impl SessionHeader {
    /// Starts a datagram of at most `capacity` bytes; frames are appended.
    pub fn emit(&self, capacity: usize) -> Vec<u8> {
        let kind = if self.ack_soon { KIND_SESSION_ACK_SOON } else { KIND_SESSION };
        let mut out = start(kind, capacity);
        out.extend_from_slice(&self.session.to_le_bytes());
        out.push(self.link);
        out.extend_from_slice(&self.number.to_le_bytes());
        out
    }

    /// Asks for a soon acknowledgement in a datagram already started.
    pub fn mark_ack_soon(datagram: &mut [u8]) {
        if let Some(kind) = datagram.get_mut(1) {
            *kind = VERSION << 4 | KIND_SESSION_ACK_SOON;
        }
    }
}

/// The full packet number whose low 32 bits are `low`, nearest to the one expected next.
pub fn full_number(low: u32, expected: u64) -> u64 {
    let distance = low.wrapping_sub(expected as u32) as i32;
    expected.checked_add_signed(i64::from(distance)).unwrap_or(u64::from(low))
}
