// SPDX-License-Identifier: Apache-2.0
//! Beacons: a node announces itself to its local network, so that only its peers recognise it.

use super::WireError;
use super::cursor::Reader;
use super::packet::{TYPE_BEACON, start};

/// Bytes of a tag. They make accidental matches rare; a match only causes an initiation.
pub const TAG: usize = 8;
/// Maximum number of tags in a beacon. A beacon with that many has 522 bytes: 4 ms at 1 Mbps, the rate at
/// which an 802.11 radio sends multicast packets.
pub const MAX_TAGS: usize = 64;

/// A beacon. Its source address tells the sender's peers where the sender is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beacon<'a> {
    /// Drawn for each beacon, so that no two look alike.
    pub salt: u64,
    tags: &'a [u8],
}

impl<'a> Beacon<'a> {
    /// Reads the fields after the type.
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, WireError> {
        let salt = reader.u64()?;
        let tags = reader.remaining();
        match tags.len() {
            len if len < TAG || !len.is_multiple_of(TAG) => Err(WireError::Truncated),
            len if len > MAX_TAGS * TAG => Err(WireError::Value("tags")),
            _ => Ok(Self { salt, tags }),
        }
    }

    /// The tags, one for each peer: 1 to [`MAX_TAGS`].
    pub fn tags(&self) -> impl Iterator<Item = [u8; TAG]> + use<'a> {
        let (tags, _) = self.tags.as_chunks();
        tags.iter().copied()
    }
}

/// A beacon with these tags, 1 to [`MAX_TAGS`].
pub fn emit_beacon(salt: u64, tags: impl Iterator<Item = [u8; TAG]>) -> Vec<u8> {
    let mut out = start(TYPE_BEACON);
    out.extend_from_slice(&salt.to_le_bytes());
    tags.for_each(|tag| out.extend_from_slice(&tag));
    out
}
