// SPDX-License-Identifier: Apache-2.0
//! Limits that several parts of the exchange have.

/// Maximum bytes of a message whose frames are renamed, or whose stamps are moved, on the data plane: that
/// takes 0.1 ms at most, or 0.8 ms if neighbouring names differ.
pub(super) const MAX_BYTES_HERE: usize = 64 << 10;
