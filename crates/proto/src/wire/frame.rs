// SPDX-License-Identifier: Apache-2.0
//! Frames: `type: u8, length: varint, body`. A receiver skips unknown types by their length.

use super::WireError;
use super::address::{Candidates, put_address, read_address};
use super::cursor::{Reader, put_varint, varint_len};
use super::relay::Held;
use crate::ecn::EcnCounts;
use crate::time::Duration;
use std::net::SocketAddr;

const TYPE_DATA: u8 = 1;
const TYPE_ACK: u8 = 2;
const TYPE_PING: u8 = 3;
const TYPE_GOODBYE: u8 = 4;
const TYPE_CHALLENGE: u8 = 5;
const TYPE_ECHO: u8 = 6;
const TYPE_CLOCK: u8 = 7;
const TYPE_RELAY: u8 = 8;
const TYPE_HELD: u8 = 9;
const TYPE_PARITY: u8 = 10;
const TYPE_OBSERVE: u8 = 11;
const TYPE_OBSERVED: u8 = 12;
const TYPE_CANDIDATES: u8 = 13;

const FLAG_LEAST: u8 = 1;
const FLAG_WALL: u8 = 2;

const FLAG_FRAGMENT: u8 = 1;
const FLAG_SOURCE: u8 = 2;
const FLAG_ENCODED: u8 = 4;
const FLAG_BLOCK: u8 = 8;

/// Largest channel number.
pub const MAX_CHANNEL: u64 = u64::MAX >> 1;
/// Unit of ages on the wire.
const AGE_UNIT: Duration = Duration::from_micros(100);
/// Maximum number of frames that one block protects: their recovery takes about a millisecond.
pub const MAX_BLOCK: u8 = 128;
/// Maximum number of ranges in one acknowledgement.
pub const MAX_ACK_RANGES: usize = 32;

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A message or a fragment of one.
    Data(Data, &'a [u8]),
    /// A relayed packet or a fragment of one, encoded as DATA with its priority as the channel.
    Relay(Data, &'a [u8]),
    /// A parity symbol or a fragment of one, encoded as DATA on the protected channel.
    Parity(Data, &'a [u8]),
    /// A relay backlog report.
    Held(Held),
    /// Acknowledges packets of one link.
    Ack(Ack),
    /// Asks for an acknowledgement and nothing else.
    Ping,
    /// The sender ends the session.
    Goodbye,
    /// A token to be echoed to the sender's address. The echo validates that address.
    Challenge(u64),
    /// The response to a challenge.
    Echo(u64),
    /// The sender's view of both clocks.
    Clock(ClockReport),
    /// The address from which the sender believes it sends. The frame asks for the address from
    /// which the packet came.
    Observe(SocketAddr),
    /// The address from which the receiver's OBSERVE came.
    Observed(SocketAddr),
    /// Addresses at which the sender may be reached.
    Candidates(Candidates),
    /// A type of a later version.
    Unknown(u8),
}

/// The header of a message or fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Data {
    /// Number of the channel; 0 for control messages.
    pub channel: u64,
    /// Number of the message on this channel and source, from 1.
    pub number: u64,
    /// Publisher within the channel.
    pub source: u32,
    /// The application encoded (compressed) the payload.
    pub encoded: bool,
    /// Age of the message when the packet was built.
    pub age: Duration,
    /// The position of a fragment in its message.
    pub fragment: Option<Fragment>,
    /// The position of the frame in the block whose parity protects it.
    pub place: Option<BlockPlace>,
}

/// The position of a frame in a block that parity protects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockPlace {
    /// Number of the block on this channel, from 1.
    pub block: u64,
    /// Position among the frames of the block, from 0; below [`MAX_BLOCK`].
    pub index: u8,
    /// Time from the first frame of the block to this one.
    pub since: Duration,
}

/// The position of a fragment in its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment {
    /// Bytes of the whole message.
    pub total: u32,
    /// Offset of the first byte of the fragment.
    pub offset: u32,
}

/// An acknowledgement of packets of one link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ack {
    /// The link of the packets, by the number that their sender gave it.
    pub link: u8,
    /// Time from the arrival of the packet with the largest number to the making of this frame.
    pub delay: Duration,
    /// Average queueing delay of the packets since the previous acknowledgement: their time on the
    /// path beyond that of the fastest recent packet.
    pub waited: Duration,
    /// The least queueing delay of these packets.
    pub least_waited: Duration,
    /// Packets of the link that have arrived, by their ECN field.
    pub ecn: EcnCounts,
    /// First and last number of each run of received packets, newest first; never empty.
    pub ranges: Vec<(u64, u64)>,
}

/// The sender's view of both clocks; see spec/protocol.md, section 12.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClockReport {
    /// The least recent difference between the sender's clock at the arrival of a packet of the
    /// receiver and the clock in that packet, in microseconds modulo 2^32.
    pub least: Option<u32>,
    /// The sender's time of day at the moment of this packet's clock, in microseconds since 1970.
    pub wall: Option<i64>,
}

impl<'a> Frame<'a> {
    /// Reads the next frame.
    pub fn parse(reader: &mut Reader<'a>) -> Result<Self, WireError> {
        let kind = reader.u8()?;
        let len = reader.varint_u32("length")? as usize;
        let mut body = Reader::new(reader.bytes(len)?);
        match kind {
            TYPE_DATA => read_data(&mut body).map(|(data, bytes)| Self::Data(data, bytes)),
            TYPE_RELAY => match read_data(&mut body)? {
                (data, _) if data.channel > u64::from(u8::MAX) || data.source != 0 => {
                    Err(WireError::Value("priority"))
                }
                (data, _) if data.place.is_some() => Err(WireError::Value("block")),
                (data, bytes) => Ok(Self::Relay(data, bytes)),
            },
            TYPE_PARITY => match read_data(&mut body)? {
                (data, _) if data.channel == 0 || data.source != 0 => {
                    Err(WireError::Value("channel"))
                }
                (data, _) if data.place.is_some() => Err(WireError::Value("block")),
                (data, bytes) => Ok(Self::Parity(data, bytes)),
            },
            TYPE_HELD => Held::parse(&mut body).map(Self::Held),
            TYPE_ACK => read_ack(&mut body).map(Self::Ack),
            TYPE_PING => Ok(Self::Ping),
            TYPE_GOODBYE => Ok(Self::Goodbye),
            TYPE_CHALLENGE => body.u64().map(Self::Challenge),
            TYPE_ECHO => body.u64().map(Self::Echo),
            TYPE_CLOCK => read_clock(&mut body).map(Self::Clock),
            TYPE_OBSERVE => read_address(&mut body).map(Self::Observe),
            TYPE_OBSERVED => read_address(&mut body).map(Self::Observed),
            TYPE_CANDIDATES => Candidates::parse(&mut body).map(Self::Candidates),
            other => Ok(Self::Unknown(other)),
        }
    }
}

fn read_data<'a>(body: &mut Reader<'a>) -> Result<(Data, &'a [u8]), WireError> {
    let channel = body.varint()?;
    let number = body.varint()?;
    let flags = body.u8()?;
    if channel > MAX_CHANNEL {
        return Err(WireError::Value("channel"));
    }
    if number == 0 || flags & !(FLAG_FRAGMENT | FLAG_SOURCE | FLAG_ENCODED | FLAG_BLOCK) != 0 {
        return Err(WireError::Value("number or flags"));
    }
    let age = AGE_UNIT * body.varint_u32("age")?;
    let source = if flags & FLAG_SOURCE != 0 { body.varint_u32("source")? } else { 0 };
    let mut fragment = None;
    if flags & FLAG_FRAGMENT != 0 {
        fragment =
            Some(Fragment { total: body.varint_u32("total")?, offset: body.varint_u32("offset")? });
    }
    let place = if flags & FLAG_BLOCK != 0 { Some(read_place(channel, body)?) } else { None };
    let bytes = body.remaining();
    if let Some(Fragment { total, offset }) = fragment {
        let end = u64::from(offset) + bytes.len() as u64;
        if bytes.is_empty() || end > u64::from(total) {
            return Err(WireError::Value("offset"));
        }
    }
    let encoded = flags & FLAG_ENCODED != 0;
    Ok((Data { channel, number, source, encoded, age, fragment, place }, bytes))
}

fn read_place(channel: u64, body: &mut Reader<'_>) -> Result<BlockPlace, WireError> {
    let (block, index) = (body.varint()?, body.u8()?);
    if channel == 0 || block == 0 || index >= MAX_BLOCK {
        return Err(WireError::Value("block"));
    }
    Ok(BlockPlace { block, index, since: AGE_UNIT * body.varint_u32("since")? })
}

fn read_clock(body: &mut Reader<'_>) -> Result<ClockReport, WireError> {
    let flags = body.u8()?;
    let least = if flags & FLAG_LEAST != 0 { Some(body.u32()?) } else { None };
    let wall = if flags & FLAG_WALL != 0 { Some(body.u64()? as i64) } else { None };
    Ok(ClockReport { least, wall })
}

fn read_ack(body: &mut Reader<'_>) -> Result<Ack, WireError> {
    let link = body.u8()?;
    let mut last = body.varint()?;
    let delay = Duration::from_micros(u64::from(body.varint_u32("delay")?));
    let mut micros = |field| body.varint_u32(field).map(|it| Duration::from_micros(it.into()));
    let (waited, least_waited) = (micros("waited")?, micros("least waited")?);
    let ecn = EcnCounts { capable: body.varint()?, marked: body.varint()? };
    let mut ranges = Vec::with_capacity(4);
    loop {
        let before = body.varint()?;
        let first = last.checked_sub(before).ok_or(WireError::Value("range"))?;
        ranges.push((first, last));
        if body.is_empty() {
            return Ok(Ack { link, delay, waited, least_waited, ecn, ranges });
        }
        if ranges.len() == MAX_ACK_RANGES {
            return Err(WireError::Value("ranges"));
        }
        let missing = body.varint()?;
        last = first
            .checked_sub(missing)
            .and_then(|n| n.checked_sub(2))
            .ok_or(WireError::Value("gap"))?;
    }
}

impl Data {
    /// Bytes that the frame adds to a payload of `payload_len` bytes.
    pub fn overhead(&self, payload_len: usize) -> usize {
        let body = self.body_header_len();
        1 + varint_len((body + payload_len) as u64) + body
    }

    fn body_header_len(&self) -> usize {
        let mut len = varint_len(self.channel) + varint_len(self.number) + 1;
        len += varint_len(age_units(self.age));
        if self.source != 0 {
            len += varint_len(u64::from(self.source));
        }
        if let Some(fragment) = self.fragment {
            len += varint_len(u64::from(fragment.total)) + varint_len(u64::from(fragment.offset));
        }
        if let Some(place) = self.place {
            len += varint_len(place.block) + 1 + varint_len(age_units(place.since));
        }
        len
    }

    /// Reads the body of a DATA frame.
    pub fn parse_body(body: &[u8]) -> Result<(Self, &[u8]), WireError> {
        read_data(&mut Reader::new(body))
    }

    /// Appends the frame.
    pub fn emit(&self, payload: &[u8], out: &mut Vec<u8>) {
        self.emit_as(TYPE_DATA, payload, out);
    }

    /// Appends the frame of a packet that is carried for others; the channel is its priority.
    pub fn emit_relay(&self, payload: &[u8], out: &mut Vec<u8>) {
        self.emit_as(TYPE_RELAY, payload, out);
    }

    /// Appends the frame of a parity symbol, or of a fragment of one.
    pub fn emit_parity(&self, payload: &[u8], out: &mut Vec<u8>) {
        self.emit_as(TYPE_PARITY, payload, out);
    }

    fn emit_as(&self, kind: u8, payload: &[u8], out: &mut Vec<u8>) {
        out.push(kind);
        put_varint(out, (self.body_header_len() + payload.len()) as u64);
        self.emit_body(payload, out);
    }

    /// Appends the body of the frame.
    pub fn emit_body(&self, payload: &[u8], out: &mut Vec<u8>) {
        put_varint(out, self.channel);
        put_varint(out, self.number);
        let mut flags = 0;
        if self.fragment.is_some() {
            flags |= FLAG_FRAGMENT;
        }
        if self.source != 0 {
            flags |= FLAG_SOURCE;
        }
        if self.encoded {
            flags |= FLAG_ENCODED;
        }
        if self.place.is_some() {
            flags |= FLAG_BLOCK;
        }
        out.push(flags);
        put_varint(out, age_units(self.age));
        if self.source != 0 {
            put_varint(out, u64::from(self.source));
        }
        if let Some(fragment) = self.fragment {
            put_varint(out, u64::from(fragment.total));
            put_varint(out, u64::from(fragment.offset));
        }
        if let Some(place) = self.place {
            put_varint(out, place.block);
            out.push(place.index);
            put_varint(out, age_units(place.since));
        }
        out.extend_from_slice(payload);
    }
}

fn age_units(age: Duration) -> u64 {
    let units = age.as_nanos() / AGE_UNIT.as_nanos();
    u64::from(u32::try_from(units).unwrap_or(u32::MAX))
}

impl Ack {
    /// Appends the frame.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let mut body = vec![self.link];
        let mut before = None;
        for &(first, last) in self.ranges.iter().take(MAX_ACK_RANGES) {
            match before {
                None => {
                    put_varint(&mut body, last);
                    for time in [self.delay, self.waited, self.least_waited] {
                        let micros = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
                        put_varint(&mut body, u64::from(micros));
                    }
                    put_varint(&mut body, self.ecn.capable);
                    put_varint(&mut body, self.ecn.marked);
                }
                Some(previous_first) => put_varint(&mut body, previous_first - last - 2),
            }
            put_varint(&mut body, last - first);
            before = Some(first);
        }
        put_frame(TYPE_ACK, &body, out);
    }
}

/// Appends a relay backlog report.
pub fn put_held(held: &Held, out: &mut Vec<u8>) {
    let mut body = Vec::with_capacity(8);
    held.emit(&mut body);
    put_frame(TYPE_HELD, &body, out);
}

/// Appends a PING.
pub fn put_ping(out: &mut Vec<u8>) {
    put_frame(TYPE_PING, &[], out);
}

/// Appends a PING padded to `bytes` bytes in all, at least 130. The receiver ignores the padding.
pub fn put_padded_ping(bytes: usize, out: &mut Vec<u8>) {
    // Type and a length of two bytes, which covers bodies from 128 to 16383 bytes.
    let body = bytes.saturating_sub(3);
    debug_assert!((128..1 << 14).contains(&body), "{bytes}");
    put_frame(TYPE_PING, &vec![0; body], out);
}

/// Appends a GOODBYE, which ends the session.
pub fn put_goodbye(out: &mut Vec<u8>) {
    put_frame(TYPE_GOODBYE, &[], out);
}

impl ClockReport {
    /// Appends the frame.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let flag = |is_there: bool, flag| if is_there { flag } else { 0 };
        let mut body =
            vec![flag(self.least.is_some(), FLAG_LEAST) | flag(self.wall.is_some(), FLAG_WALL)];
        body.extend(self.least.iter().flat_map(|least| least.to_le_bytes()));
        body.extend(self.wall.iter().flat_map(|wall| wall.to_le_bytes()));
        put_frame(TYPE_CLOCK, &body, out);
    }
}

/// Appends a challenge.
pub fn put_challenge(token: u64, out: &mut Vec<u8>) {
    put_frame(TYPE_CHALLENGE, &token.to_le_bytes(), out);
}

/// Appends the echo of a challenge.
pub fn put_echo(token: u64, out: &mut Vec<u8>) {
    put_frame(TYPE_ECHO, &token.to_le_bytes(), out);
}

/// Appends the sender's own address, and asks for the address from which the packet comes.
pub fn put_observe(own: SocketAddr, out: &mut Vec<u8>) {
    put_address_frame(TYPE_OBSERVE, own, out);
}

/// Appends the address from which an OBSERVE came.
pub fn put_observed(observed: SocketAddr, out: &mut Vec<u8>) {
    put_address_frame(TYPE_OBSERVED, observed, out);
}

/// Appends addresses at which the sender may be reached.
pub fn put_candidates(candidates: &Candidates, out: &mut Vec<u8>) {
    let mut body = Vec::with_capacity(64);
    candidates.emit(&mut body);
    put_frame(TYPE_CANDIDATES, &body, out);
}

fn put_address_frame(kind: u8, address: SocketAddr, out: &mut Vec<u8>) {
    let mut body = Vec::with_capacity(18);
    put_address(address, &mut body);
    put_frame(kind, &body, out);
}

fn put_frame(kind: u8, body: &[u8], out: &mut Vec<u8>) {
    out.push(kind);
    put_varint(out, body.len() as u64);
    out.extend_from_slice(body);
}
