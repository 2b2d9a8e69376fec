// SPDX-License-Identifier: Apache-2.0
//! The wire format (spec/protocol.md), in two layers. [`cursor`] parses and emits fields, and does
//! not panic on any bytes. [`packet`], [`beacon`], [`frame`], [`control`] and [`relay`] hold values
//! that are legal by construction.
//!
//! Fixed-width integers are little-endian; `varint` is unsigned LEB128 of at most ten bytes.

pub mod address;
pub mod beacon;
pub mod control;
pub mod cursor;
pub mod frame;
pub mod packet;
pub mod parity;
pub mod relay;

/// Version of the wire format. 0 is a draft.
pub const VERSION: u8 = 0;

/// The error for bytes that do not follow the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A field runs past the end.
    #[error("a field runs past the end of the data")]
    Truncated,
    /// A varint of more than ten bytes or 64 bits.
    #[error("a varint does not fit 64 bits")]
    VarintTooLong,
    /// The first byte is that of no packet.
    #[error("not a Tautline packet")]
    Magic,
    /// A value outside the limits of its field.
    #[error("field '{0}' has a value that is not allowed")]
    Value(&'static str),
    /// Text that is not UTF-8.
    #[error("text is not UTF-8")]
    Text,
}
