// SPDX-License-Identifier: Apache-2.0
//! The payload of PARITY frames.

use super::WireError;
use super::cursor::{Reader, put_varint};
use super::frame::MAX_BLOCK;

/// The header of a parity symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parity {
    /// Number of the block on the channel, from 1.
    pub block: u64,
    /// Frames that the block protects: 1 to [`MAX_BLOCK`].
    pub sources: u8,
    /// Position among the parity symbols of the block, from 0.
    pub index: u8,
}

impl Parity {
    /// Reads the header; the symbol follows.
    pub fn parse<'a>(reader: &mut Reader<'a>) -> Result<(Self, &'a [u8]), WireError> {
        let (block, sources, index) = (reader.varint()?, reader.u8()?, reader.u8()?);
        if block == 0 || sources == 0 || sources > MAX_BLOCK {
            return Err(WireError::Value("block"));
        }
        Ok((Self { block, sources, index }, reader.remaining()))
    }

    /// The bytes of the header and `symbol`.
    pub fn with_header(&self, symbol: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(symbol.len() + 12);
        put_varint(&mut out, self.block);
        out.extend([self.sources, self.index]);
        out.extend_from_slice(symbol);
        out
    }
}
