// SPDX-License-Identifier: Apache-2.0
//! The bytes that the kernel charges a socket for packets that have not left.

use super::inbox::MAX_DATAGRAM;

/// Packets that were sent by one system call.
#[derive(Debug)]
pub(super) struct SentPackets {
    /// The kernel's charge, in bytes.
    pub(super) charge: usize,
    pub(super) ip_bytes: usize,
    pub(super) packets: usize,
}

impl SentPackets {
    /// Returns the IP bytes that the kernel still holds if `charged` bytes of the charge are left.
    /// The driver sends and releases whole packets.
    pub(super) fn held_bytes(&self, charged: usize) -> usize {
        let packets = (charged * self.packets).div_ceil(self.charge.max(1)).min(self.packets);
        self.ip_bytes * packets / self.packets.max(1)
    }
}

/// The kernel's charge for the packets of one call, by their total length. If a packet leaves while
/// the charge for another is measured, this charge looks too small, so the largest charge seen is
/// right. But if the kernel segments an earlier train meanwhile, the charge looks too large.
#[derive(Debug)]
pub(super) struct Charges(Vec<usize>);

impl Charges {
    /// Lengths within a step of this size count as equal.
    const STEP: usize = 64;
    /// Maximum bytes that the kernel charges for a packet, in addition to twice its length.
    const OVERHEAD: usize = 2048;

    pub(super) fn new() -> Self {
        Self(vec![0; MAX_DATAGRAM / Self::STEP + 1])
    }

    /// Records that `seen` bytes were charged for a call with `len` bytes, and returns the best estimate
    /// of its charge. `alone`: nothing else was charged.
    pub(super) fn learn(&mut self, len: usize, seen: usize, alone: bool) -> usize {
        let is_credible = alone || seen <= 2 * len + Self::OVERHEAD;
        let Some(known) = self.0.get_mut(len / Self::STEP) else { return len.max(seen) };
        *known = (*known).max(len).max(if is_credible { seen } else { 0 });
        *known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remainder_of_a_train_is_counted_in_whole_packets() {
        let sent = SentPackets { charge: 10_000, ip_bytes: 6000, packets: 4 };
        let held = [0, 1, 2500, 2501, 10_000, 20_000].map(|charged| sent.held_bytes(charged));
        assert_eq!(held, [0, 1500, 1500, 3000, 6000, 6000]);
    }

    #[test]
    fn an_underestimated_charge_is_corrected() {
        let mut charges = Charges::new();
        assert_eq!(charges.learn(1472, 0, false), 1472, "another packet left meanwhile");
        assert_eq!(charges.learn(1472, 2304, false), 2304);
        assert_eq!(charges.learn(1472, 0, false), 2304);
        assert_eq!(charges.learn(100, 768, false), 768);
        let cut_meanwhile = charges.learn(100, 40_000, false);
        assert_eq!(cut_meanwhile, 768, "the kernel cut a train that was charged before");
        assert_eq!(charges.learn(60_000, 150_000, true), 150_000);
    }
}
