// SPDX-License-Identifier: Apache-2.0
//! Relayed packets: those of others, and our own to nodes behind a relay.

use super::{Message, Outbox};
use crate::delivery::traffic::Traffic;
use crate::ids::{LinkId, PeerId};
use crate::limits;
use crate::stats::{DropReason, Forwarded, OutStats};
use crate::time::Instant;
use crate::wire::relay::{SHORT_NAME, ShortName};
use std::collections::{BTreeMap, BTreeSet};

/// The origin of a relayed packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum RelayOrigin {
    /// This node, by a link through a relay.
    Own(LinkId),
    /// Another node, through the neighbour that sent it.
    For(PeerId, Flow),
}

/// All packets from one node to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Flow {
    pub(crate) from: ShortName,
    pub(crate) to: ShortName,
}

impl Flow {
    /// The first flow in their order.
    const FIRST: Self = Self { from: ShortName([0; SHORT_NAME]), to: ShortName([0; SHORT_NAME]) };
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
    /// The next hop is not the final receiver, and reports the packet in its backlog.
    pub(crate) is_forwarded_again: bool,
}

impl Outbox {
    /// Queues a relayed packet.
    pub(crate) fn enqueue_relayed(&mut self, packet: RelayedPacket) {
        let RelayedPacket { priority, payload, published, expires, origin, is_forwarded_again } =
            packet;
        let traffic = Traffic::Relayed(priority);
        if !self.channels.contains_key(&traffic) {
            self.add_internal(traffic, priority.into());
        }
        if let Some(open) = self.channels.get_mut(&traffic) {
            open.stats.accepted += 1;
            open.stats.bytes += payload.len() as u64;
        }
        let (payload, encoded, lifespan) = (payload.into(), false, None);
        let message = Message { payload, published, source: 0, encoded, lifespan };
        self.insert(traffic, message, expires, Some((origin, is_forwarded_again)));
    }

    /// Counters of relayed packets of others.
    pub(crate) fn forwarded(&self) -> Forwarded {
        self.forwarded
    }

    /// Counters of all relayed packets, our own included.
    pub(crate) fn relayed_stats(&self) -> OutStats {
        let mut sum = OutStats::default();
        for (_, channel) in self.channels.range(Traffic::Relayed(0)..) {
            sum.add(&channel.stats);
        }
        sum
    }

    /// Backlog of one origin, in bytes.
    pub(crate) fn held(&self, origin: RelayOrigin) -> u64 {
        self.store.backlog.sums.get(&origin).map_or(0, |sum| sum.bytes)
    }

    /// Memory of all packets from one neighbour, with the overhead of each.
    pub(crate) fn held_from(&self, hop: PeerId) -> u64 {
        let first = RelayOrigin::For(hop, Flow::FIRST);
        let from = self.store.backlog.sums.range(first..).map_while(|(origin, sum)| match origin {
            RelayOrigin::For(from, _) if *from == hop => Some(sum.taken()),
            _ => None,
        });
        from.fold(0, u64::saturating_add)
    }

    /// Memory of all messages that are queued, or sent with unknown outcome, with the overhead of each.
    pub(crate) fn taken_bytes(&self) -> u64 {
        let (bytes, packets) = (self.store.held_bytes() as u64, self.store.len() as u64);
        Sum { bytes, packets }.taken()
    }

    /// Whether relayed packets are queued.
    pub(crate) fn has_relayed(&self) -> bool {
        self.store.ready().any(|(_, message)| message.origin.is_some())
    }

    /// Drops queued relayed packets, as when no link leads to the next hop.
    pub(crate) fn drop_relayed(&mut self, which: impl Fn(RelayOrigin) -> bool) {
        for id in self.store.ids(|message| message.origin.is_some_and(&which)) {
            self.drop_message(id, DropReason::PeerGone);
        }
    }

    /// The next origin whose backlog has changed.
    pub(crate) fn pop_backlog_change(&mut self) -> Option<RelayOrigin> {
        self.store.backlog.changes.pop_first()
    }
}

/// Packets queued to be relayed, by their origin.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    sums: BTreeMap<RelayOrigin, Sum>,
    changes: BTreeSet<RelayOrigin>,
}

impl Backlog {
    /// A backlog without packets, in which the changes of `before` are still to be reported.
    pub(super) fn after(before: &mut Self) -> Self {
        Self { sums: BTreeMap::new(), changes: std::mem::take(&mut before.changes) }
    }

    pub(super) fn add(&mut self, origin: RelayOrigin, bytes: u64) {
        let sum = self.sums.entry(origin).or_default();
        *sum = Sum { bytes: sum.bytes + bytes, packets: sum.packets + 1 };
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
struct Sum {
    bytes: u64,
    packets: u64,
}

impl Sum {
    /// Memory, about.
    fn taken(&self) -> u64 {
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
        assert_eq!((sum.bytes, sum.taken()), (800, 800 + 100 * limits::RELAYED_OVERHEAD_BYTES));
        (0..100).for_each(|_| backlog.remove(origin, 8));
        assert!(backlog.sums.is_empty());
    }
}
