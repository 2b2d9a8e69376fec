// SPDX-License-Identifier: Apache-2.0
//! Relayed packets: those of other nodes, and this node's own packets to nodes behind a relay.

use crate::ids::{LinkId, PeerId};
use crate::limits;
use crate::time::Instant;
use crate::wire::relay::{SHORT_NAME, ShortName};
use std::collections::{BTreeMap, BTreeSet};

/// The origin of a relayed packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum RelayOrigin {
    /// This node. The packet uses this link through a relay.
    Own(LinkId),
    /// Another node. The packet belongs to this flow, and this neighbour sent it.
    Forwarded(PeerId, Flow),
}

/// All packets from one node to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Flow {
    pub(crate) from: ShortName,
    pub(crate) to: ShortName,
}

impl Flow {
    /// The first flow in the order of flows.
    pub(super) const FIRST: Self =
        Self { from: ShortName([0; SHORT_NAME]), to: ShortName([0; SHORT_NAME]) };
}

/// A packet to be relayed.
#[derive(Debug)]
pub(crate) struct RelayedPacket {
    pub(crate) priority: u8,
    /// Relay header and packet.
    pub(crate) payload: Vec<u8>,
    pub(crate) published: Instant,
    /// End of its lifespan.
    pub(crate) expires: Option<Instant>,
    pub(crate) origin: RelayOrigin,
    /// The next hop is not the final receiver: it forwards the packet again, and reports it in its
    /// backlog.
    pub(crate) is_forwarded_again: bool,
}

/// Packets queued to be relayed, by their origin.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    pub(super) sums: BTreeMap<RelayOrigin, BacklogSize>,
    pub(super) changes: BTreeSet<RelayOrigin>,
}

impl Backlog {
    /// A backlog without packets, in which the changes of `before` are still to be reported.
    pub(super) fn restarted_from(before: &mut Self) -> Self {
        Self { sums: BTreeMap::new(), changes: std::mem::take(&mut before.changes) }
    }

    pub(super) fn add(&mut self, origin: RelayOrigin, bytes: u64) {
        let sum = self.sums.entry(origin).or_default();
        *sum = BacklogSize { bytes: sum.bytes + bytes, packets: sum.packets + 1 };
        self.changes.insert(origin);
    }

    pub(super) fn remove(&mut self, origin: RelayOrigin, bytes: u64) {
        let sum = self.sums.entry(origin).or_default();
        sum.bytes = sum.bytes.saturating_sub(bytes);
        sum.packets = sum.packets.saturating_sub(1);
        if sum.packets == 0 {
            self.sums.remove(&origin);
        }
        self.changes.insert(origin);
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BacklogSize {
    pub(super) bytes: u64,
    pub(super) packets: u64,
}

impl BacklogSize {
    /// Approximate memory in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.bytes + self.packets * limits::RELAYED_OVERHEAD_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_packets_count_with_their_overhead() {
        let mut backlog = Backlog::default();
        let origin = RelayOrigin::Own(LinkId(0));
        (0..100).for_each(|_| backlog.add(origin, 8));
        let sum = backlog.sums[&origin];
        assert_eq!(
            (sum.bytes, sum.memory_bytes()),
            (800, 800 + 100 * limits::RELAYED_OVERHEAD_BYTES)
        );
        (0..100).for_each(|_| backlog.remove(origin, 8));
        assert!(backlog.sums.is_empty());
    }
}
