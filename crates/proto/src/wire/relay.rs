// SPDX-License-Identifier: Apache-2.0
//! The relay header, and relay backlog reports (HELD).

use super::WireError;
use super::cursor::{Reader, put_varint};
use crate::time::Duration;

/// Bytes of a node's short name.
pub const SHORT_NAME: usize = 3;
/// Largest value of the field Hops.
pub const MAX_HOPS: u8 = 15;

const HOPS: u8 = 0x0f;
const FLAG_FROM: u8 = 0x10;
const FLAG_TO: u8 = 0x20;
/// Lifespans are encoded in eighths of octaves of milliseconds.
const LIFE_STEPS: f64 = 8.0;

/// The short name of a node along a route: the first bytes of a hash of its public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShortName(pub [u8; SHORT_NAME]);

/// The header of a relayed packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelayHeader {
    /// Relays that may still forward the packet.
    pub hops: u8,
    /// Age past which the packet is worthless.
    pub life: Option<Duration>,
    /// The node that made the packet; `None`: the node that sends the packet on this hop.
    pub from: Option<ShortName>,
    /// The final receiver; `None`: the node that receives the packet on this hop.
    pub to: Option<ShortName>,
}

impl RelayHeader {
    /// Reads the header; the packet follows.
    pub fn parse(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let flags = reader.u8()?;
        if flags & !(HOPS | FLAG_FROM | FLAG_TO) != 0 {
            return Err(WireError::Value("relay flags"));
        }
        let life = decode_lifespan(reader.u8()?);
        let mut name = |flag| match flags & flag {
            0 => Ok(None),
            _ => reader.array().map(|bytes| Some(ShortName(bytes))),
        };
        Ok(Self { hops: flags & HOPS, life, from: name(FLAG_FROM)?, to: name(FLAG_TO)? })
    }

    /// The bytes of the header and `packet`.
    pub fn with_header(&self, packet: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(packet.len() + 2 + 2 * SHORT_NAME);
        self.emit(&mut out);
        out.extend_from_slice(packet);
        out
    }

    /// Appends the header.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let flag = |name: &Option<ShortName>, flag| if name.is_some() { flag } else { 0 };
        out.push(self.hops & HOPS | flag(&self.from, FLAG_FROM) | flag(&self.to, FLAG_TO));
        out.push(encode_lifespan(self.life));
        for name in [self.from, self.to].into_iter().flatten() {
            out.extend_from_slice(&name.0);
        }
    }
}

/// Decodes a lifespan: 0 is none, other values are 2^((code - 1) / 8) ms, at most 42 days.
fn decode_lifespan(code: u8) -> Option<Duration> {
    let steps = f64::from(code.checked_sub(1)?);
    Some(Duration::from_secs_f64(2f64.powf(steps / LIFE_STEPS) / 1000.0))
}

/// Encodes a lifespan, rounded up: a relay must not drop a packet that its receiver would accept.
fn encode_lifespan(life: Option<Duration>) -> u8 {
    let Some(life) = life else { return 0 };
    let millis = life.as_secs_f64() * 1000.0;
    let steps = (millis.max(1.0).log2() * LIFE_STEPS - 1e-9).ceil() as u64;
    u8::try_from(steps + 1).unwrap_or(0)
}

/// A relay backlog report: bytes of relayed packets for one node that are in flight from the sender
/// of the report onwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// The final receiver of the packets.
    pub to: ShortName,
    /// Bytes that the last relay has not sent.
    pub bytes: u64,
    /// The node that made the packets; `None`: the receiver of the report.
    pub from: Option<ShortName>,
}

impl Held {
    /// Reads the body.
    pub fn parse(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let (to, bytes) = (ShortName(reader.array()?), reader.varint()?);
        let from = if reader.is_empty() { None } else { Some(ShortName(reader.array()?)) };
        Ok(Self { to, bytes, from })
    }

    /// Appends the body.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to.0);
        put_varint(out, self.bytes);
        if let Some(from) = self.from {
            out.extend_from_slice(&from.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifespans_are_rounded_up_by_at_most_a_tenth() {
        for millis in [1, 2, 50, 199, 200, 500, 2000, 100_000] {
            let life = Duration::from_millis(millis);
            let decoded = decode_lifespan(encode_lifespan(Some(life))).unwrap();
            assert!(decoded >= life - Duration::from_micros(1), "{millis}: {decoded:?}");
            assert!(decoded < life.mul_f64(1.1), "{millis}: {decoded:?}");
        }
        assert_eq!(decode_lifespan(encode_lifespan(None)), None);
        assert_eq!(decode_lifespan(encode_lifespan(Some(Duration::from_secs(1 << 40)))), None);
    }

    #[test]
    fn headers_survive_encoding() {
        let name = |n| Some(ShortName([n; SHORT_NAME]));
        for (from, to) in [(None, None), (name(1), None), (None, name(2)), (name(1), name(2))] {
            let header = RelayHeader { hops: 7, life: None, from, to };
            let mut out = Vec::new();
            header.emit(&mut out);
            assert_eq!(RelayHeader::parse(&mut Reader::new(&out)), Ok(header));
        }
    }
}
