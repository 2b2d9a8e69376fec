// SPDX-License-Identifier: Apache-2.0
//! What precedes a packet that is carried for others, and what relays tell of it.

use super::WireError;
use super::cursor::{Reader, put_varint};
use crate::time::Duration;

/// Bytes of a node's short name.
pub const SHORT_NAME: usize = 3;
/// Most relays that a packet passes.
pub const MAX_HOPS: u8 = 15;

const HOPS: u8 = 0x0f;
const FLAG_FROM: u8 = 0x10;
const FLAG_TO: u8 = 0x20;
/// Lifespans are told in eighths of octaves of milliseconds.
const LIFE_STEPS: f64 = 8.0;

/// By which nodes know each other along a route: the first bytes of a hash of the public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShortName(pub [u8; SHORT_NAME]);

/// Precedes a packet between two nodes that others carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelayHeader {
    /// So many more relays may pass it on.
    pub hops: u8,
    /// Age past which the packet is worthless.
    pub life: Option<Duration>,
    /// Who made it; `None`: the node that sends it on this hop.
    pub from: Option<ShortName>,
    /// Whom it is for; `None`: the node that receives it on this hop.
    pub to: Option<ShortName>,
}

impl RelayHeader {
    /// Reads it; the packet follows.
    pub fn parse(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let flags = reader.u8()?;
        if flags & !(HOPS | FLAG_FROM | FLAG_TO) != 0 {
            return Err(WireError::Value("relay flags"));
        }
        let life = life_of(reader.u8()?);
        let mut name = |flag| match flags & flag {
            0 => Ok(None),
            _ => reader.array().map(|bytes| Some(ShortName(bytes))),
        };
        Ok(Self { hops: flags & HOPS, life, from: name(FLAG_FROM)?, to: name(FLAG_TO)? })
    }

    /// The bytes of `packet` with this before it.
    pub fn before(&self, packet: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(packet.len() + 2 + 2 * SHORT_NAME);
        self.emit(&mut out);
        out.extend_from_slice(packet);
        out
    }

    /// Appends it.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let flag = |name: &Option<ShortName>, flag| if name.is_some() { flag } else { 0 };
        out.push(self.hops & HOPS | flag(&self.from, FLAG_FROM) | flag(&self.to, FLAG_TO));
        out.push(life_code(self.life));
        for name in [self.from, self.to].into_iter().flatten() {
            out.extend_from_slice(&name.0);
        }
    }
}

/// 0 is none; else 2^((code - 1) / 8) ms, at most 42 days.
fn life_of(code: u8) -> Option<Duration> {
    let steps = f64::from(code.checked_sub(1)?);
    Some(Duration::from_secs_f64(2f64.powf(steps / LIFE_STEPS) / 1000.0))
}

/// Rounded up: a relay must not drop what its receiver would take.
fn life_code(life: Option<Duration>) -> u8 {
    let Some(life) = life else { return 0 };
    let millis = life.as_secs_f64() * 1000.0;
    let steps = (millis.max(1.0).log2() * LIFE_STEPS - 1e-9).ceil() as u64;
    u8::try_from(steps + 1).unwrap_or(0)
}

/// Tells a neighbour how much of what came by it for a node still is on the way from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// For whom it is.
    pub to: ShortName,
    /// Bytes that the last relay has not sent on.
    pub bytes: u64,
    /// Who made it; `None`: the neighbour that is told.
    pub from: Option<ShortName>,
}

impl Held {
    /// Reads it.
    pub fn parse(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let (to, bytes) = (ShortName(reader.array()?), reader.varint()?);
        let from = if reader.is_empty() { None } else { Some(ShortName(reader.array()?)) };
        Ok(Self { to, bytes, from })
    }

    /// Appends it.
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
    fn lifespans_are_rounded_up_and_by_a_tenth_at_most() {
        for millis in [1, 2, 50, 199, 200, 500, 2000, 100_000] {
            let life = Duration::from_millis(millis);
            let told = life_of(life_code(Some(life))).unwrap();
            assert!(told >= life - Duration::from_micros(1), "{millis}: {told:?}");
            assert!(told < life.mul_f64(1.1), "{millis}: {told:?}");
        }
        assert_eq!(life_of(life_code(None)), None);
        assert_eq!(life_of(life_code(Some(Duration::from_secs(1 << 40)))), None);
    }

    #[test]
    fn headers_come_back() {
        let name = |n| Some(ShortName([n; SHORT_NAME]));
        for (from, to) in [(None, None), (name(1), None), (None, name(2)), (name(1), name(2))] {
            let header = RelayHeader { hops: 7, life: None, from, to };
            let mut out = Vec::new();
            header.emit(&mut out);
            assert_eq!(RelayHeader::parse(&mut Reader::new(&out)), Ok(header));
        }
    }
}
