// SPDX-License-Identifier: Apache-2.0
//! Limits that several parts of the exchange have.

/// Maximum bytes of a message whose frames are renamed, or whose stamps are moved, on the data plane. This
/// takes up to 0.1 ms, or up to 0.8 ms if neighbouring names differ.
pub(super) const MAX_INLINE_REWRITE_BYTES: usize = 64 << 10;
