// SPDX-License-Identifier: Apache-2.0
//! Number and time of a message, at the start of the payloads that the lab makes, and messages of
//! several datagrams.

use std::collections::BTreeMap;

/// Bytes of a stamp.
pub const STAMP_BYTES: usize = 16;

/// Maximum number of incomplete messages at a receiver.
const MAX_INCOMPLETE: usize = 256;

/// Number and time of a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Number of the message, from 0.
    pub sequence: u64,
    /// Time of sending.
    pub sent_ns: u64,
}

impl Stamp {
    /// Writes the stamp to the first [`STAMP_BYTES`] of a payload.
    pub fn write(self, payload: &mut [u8]) {
        payload[..8].copy_from_slice(&self.sequence.to_le_bytes());
        payload[8..STAMP_BYTES].copy_from_slice(&self.sent_ns.to_le_bytes());
    }

    /// Reads the stamp of a payload; `None` if the payload is too short.
    pub fn read(payload: &[u8]) -> Option<Self> {
        let number = |at: usize| payload.get(at..)?.first_chunk().copied().map(u64::from_le_bytes);
        Some(Self { sequence: number(0)?, sent_ns: number(8)? })
    }
}

/// Messages of which not all parts have arrived: the number of parts so far, by the key of the message. If
/// there are too many, a new message replaces the oldest.
#[derive(Debug)]
pub struct Incomplete<K>(BTreeMap<K, u32>);

impl<K> Default for Incomplete<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Copy> Incomplete<K> {
    /// Counts a part of a message; returns whether it completes the message.
    pub fn completes(&mut self, key: K, parts: u32) -> bool {
        let have = self.0.entry(key).or_default();
        *have += 1;
        let complete = *have >= parts;
        if complete {
            self.0.remove(&key);
        } else if self.0.len() > MAX_INCOMPLETE {
            self.0.pop_first();
        }
        complete
    }
}
