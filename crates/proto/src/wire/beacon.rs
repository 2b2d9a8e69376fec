// SPDX-License-Identifier: Apache-2.0
//! What a node tells everybody on its local network: that it is there, in a way
//! that only its peers can read.

use super::WireError;
use super::cursor::Reader;
use super::packet::{KIND_BEACON, start};

/// Bytes of a tag: enough that none is met by chance, since all that one leads to is a call.
pub const TAG: usize = 8;
/// Most tags of one beacon, which then has 522 bytes: 4 ms at 1 Mbps, the rate
/// at which an 802.11 radio sends to a group.
pub const MAX_TAGS: usize = 64;

/// Tells peers where the sender is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beacon<'a> {
    /// Drawn anew for each beacon, so that no two look alike.
    pub salt: u64,
    tags: &'a [u8],
}

impl<'a> Beacon<'a> {
    /// Reads what follows the kind.
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, WireError> {
        let salt = reader.u64()?;
        let tags = reader.remaining();
        match tags.len() {
            len if len < TAG || !len.is_multiple_of(TAG) => Err(WireError::Truncated),
            len if len > MAX_TAGS * TAG => Err(WireError::Value("tags")),
            _ => Ok(Self { salt, tags }),
        }
    }

    /// One for each peer that is told, 1 to [`MAX_TAGS`].
    pub fn tags(&self) -> impl Iterator<Item = [u8; TAG]> + use<'a> {
        let (tags, _) = self.tags.as_chunks();
        tags.iter().copied()
    }
}

/// A beacon with these tags, 1 to [`MAX_TAGS`].
pub fn emit_beacon(salt: u64, tags: impl Iterator<Item = [u8; TAG]>) -> Vec<u8> {
    let mut out = start(KIND_BEACON);
    out.extend_from_slice(&salt.to_le_bytes());
    tags.for_each(|tag| out.extend_from_slice(&tag));
    out
}
