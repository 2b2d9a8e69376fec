// SPDX-License-Identifier: Apache-2.0
//! Packets of others, and our own to nodes beyond a neighbour, that wait here to be relayed.

use super::{Message, Outbox, RELAY};
use crate::delivery::MessageId;
use crate::ids::{LinkId, PeerId};
use crate::limits;
use crate::stats::{DropReason, Forwarded, OutStats};
use crate::time::Instant;
use crate::wire::relay::{SHORT_NAME, ShortName};
use std::collections::{BTreeMap, BTreeSet};

/// Whose packet waits here, to be passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum RelayOrigin {
    /// Ours, of a link through a relay.
    Own(LinkId),
    /// Others', by the neighbour that it came from.
    For(PeerId, Flow),
}

/// All that one node sends another through us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Flow {
    pub(crate) from: ShortName,
    pub(crate) to: ShortName,
}

impl Flow {
    /// The least of all, in their order.
    const FIRST: Self = Self { from: ShortName([0; SHORT_NAME]), to: ShortName([0; SHORT_NAME]) };
}

/// A packet to be passed on.
#[derive(Debug)]
pub(crate) struct RelayedPacket {
    pub(crate) priority: u8,
    /// The packet and what relays have to know.
    pub(crate) payload: Vec<u8>,
    pub(crate) published: Instant,
    /// When it is worthless.
    pub(crate) expires: Option<Instant>,
    pub(crate) origin: RelayOrigin,
    /// The peer it goes to passes it on, and tells of it once it has it.
    pub(crate) is_forwarded_again: bool,
}

impl Outbox {
    /// Takes a packet to be passed on.
    pub(crate) fn enqueue_relayed(&mut self, parcel: RelayedPacket) {
        let RelayedPacket { priority, payload, published, expires, origin, is_forwarded_again } =
            parcel;
        let channel = RELAY + u64::from(priority);
        if !self.channels.contains_key(&channel) {
            self.add_internal(channel, priority.into());
        }
        if let Some(open) = self.channels.get_mut(&channel) {
            open.stats.accepted += 1;
            open.stats.bytes += payload.len() as u64;
        }
        let message = Message { payload: payload.into(), published, source: 0, encoded: false };
        self.insert(channel, message, expires, Some((origin, is_forwarded_again)));
    }

    /// What became of packets of others.
    pub(crate) fn forwarded(&self) -> Forwarded {
        self.forwarded
    }

    /// Counters of all packets carried, our own to nodes beyond included.
    pub(crate) fn relayed_stats(&self) -> OutStats {
        let mut sum = OutStats::default();
        for (_, channel) in self.channels.range(RELAY..) {
            sum.add(&channel.stats);
        }
        sum
    }

    pub(super) fn is_of_others(&self, id: MessageId) -> bool {
        self.messages.get(&id).is_some_and(|it| matches!(it.origin, Some(RelayOrigin::For(..))))
    }

    /// Bytes that wait here, of those packets.
    pub(crate) fn held(&self, origin: RelayOrigin) -> u64 {
        self.held.get(&origin).map_or(0, |sum| sum.bytes)
    }

    /// What all packets that came from one neighbour take, with what is kept about each.
    pub(crate) fn held_from(&self, hop: PeerId) -> u64 {
        let first = RelayOrigin::For(hop, Flow::FIRST);
        let from = self.held.range(first..).map_while(|(origin, sum)| match origin {
            RelayOrigin::For(from, _) if *from == hop => Some(sum.taken()),
            _ => None,
        });
        from.fold(0, u64::saturating_add)
    }

    /// Whether packets that are passed on may be sent now: they never leave by a link that leads
    /// through a relay itself.
    pub(crate) fn release_relayed(&mut self, leave: bool) {
        self.relayed_released = leave;
    }

    /// Whether packets wait to be passed on.
    pub(crate) fn has_relayed(&self) -> bool {
        self.ready.iter().any(|order| self.messages[&order.id].origin.is_some())
    }

    /// Drops the packets that wait to be passed on, as when the way to the next node is gone.
    pub(crate) fn drop_relayed(&mut self, which: impl Fn(RelayOrigin) -> bool) {
        let parcels = self.messages.iter();
        let parcels = parcels.filter(|(_, it)| it.origin.is_some_and(&which));
        let gone: Vec<_> = parcels.map(|(id, _)| *id).collect();
        for id in gone {
            self.drop_message(id, DropReason::PeerGone);
        }
    }

    /// Whose packets wait here more or less than before.
    pub(crate) fn pop_backlog_change(&mut self) -> Option<RelayOrigin> {
        self.held_changes.pop_first()
    }
}

/// Packets that wait here.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sum {
    bytes: u64,
    packets: u64,
}

impl Sum {
    /// Memory, about.
    fn taken(&self) -> u64 {
        self.bytes + self.packets * limits::RELAYED_OVERHEAD_BYTES
    }
}

/// A packet of `bytes` is among those that wait, or is no more.
pub(super) fn change_held(
    held: &mut BTreeMap<RelayOrigin, Sum>,
    changes: &mut BTreeSet<RelayOrigin>,
    origin: RelayOrigin,
    bytes: u64,
    more: bool,
) {
    let sum = held.entry(origin).or_default();
    if more {
        *sum = Sum { bytes: sum.bytes + bytes, packets: sum.packets + 1 };
    } else {
        sum.bytes = sum.bytes.saturating_sub(bytes);
        sum.packets = sum.packets.saturating_sub(1);
    }
    if sum.packets == 0 {
        held.remove(&origin);
    }
    changes.insert(origin);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_small_packets_take_what_is_kept_about_them_as_well() {
        let (mut held, mut changes) = (BTreeMap::new(), BTreeSet::new());
        let origin = RelayOrigin::Own(LinkId(0));
        (0..100).for_each(|_| change_held(&mut held, &mut changes, origin, 8, true));
        let sum: Sum = held[&origin];
        assert_eq!((sum.bytes, sum.taken()), (800, 800 + 100 * limits::RELAYED_OVERHEAD_BYTES));
        (0..100).for_each(|_| change_held(&mut held, &mut changes, origin, 8, false));
        assert!(held.is_empty());
    }
}
