// SPDX-License-Identifier: Apache-2.0
//! The messages for one peer, and the collections derived from them: the orders of sending, expiry
//! and eviction, the sums of bytes and the relay backlog.
//!
//! Only [`MessageStore::change`] changes a message. It compares the derived values before and after,
//! so that the collections stay consistent.

use super::copies::Copies;
use super::loss::FutileRepairs;
use super::order::SendOrder;
use super::relayed::{Backlog, RelayOrigin};
use crate::delivery::MessageId;
use crate::delivery::fragment::RangeSet;
use crate::delivery::traffic::Traffic;
use crate::time::{Duration, Instant};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A message that is queued, or sent and not yet acknowledged.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) origin: Option<RelayOrigin>,
    /// The message counts as backlog until the peer acknowledges it, not until it is sent.
    pub(super) is_forwarded_again: bool,
    pub(super) traffic: Traffic,
    pub(super) source: u32,
    /// The message number; assigned with the first packet.
    pub(super) number: Option<u64>,
    pub(super) payload: Bytes,
    pub(super) encoded: bool,
    pub(super) published: Instant,
    pub(super) first_sent: Instant,
    pub(super) lifespan_end: Option<Instant>,
    /// Time of the next check: the end of its lifespan, or of a suspicion.
    pub(super) expires: Option<Instant>,
    /// The check was due, and the message was kept.
    pub(super) is_checked: bool,
    pub(super) order: SendOrder,
    /// First byte not yet sent, unless there are copies.
    pub(super) next: u32,
    /// The copies of a message that several links carry.
    pub(super) copies: Option<Box<Copies>>,
    pub(super) repairs: RangeSet,
    /// Repairs sent since the last acknowledgement of bytes that were not acknowledged before.
    pub(super) futile_repairs: FutileRepairs,
    pub(super) acked: RangeSet,
    /// Ranges that are suspected lost and not repaired. The message is dropped as lost at
    /// `expires`, unless all these ranges are acknowledged before.
    pub(super) suspected: RangeSet,
    /// Copies to be sent for as long as no acknowledgement arrives.
    pub(super) redundant_copies: Option<RedundantCopies>,
    /// The range in `repairs` is such a copy, which the repair budget does not pay for.
    pub(super) redundant_copy_is_due: bool,
}

/// Copies of a message on a lossy link, in addition to the first transmission.
#[derive(Debug, Clone, Copy)]
pub(super) struct RedundantCopies {
    pub(super) next_at: Instant,
    pub(super) interval: Duration,
    pub(super) left: u8,
}

/// Positions of a message in the collections, and its contribution to the sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct IndexKeys {
    ready: Option<SendOrder>,
    expiry: Option<Instant>,
    /// Position in the eviction order: by rank, lowest first, then messages that are not begun.
    /// `None` for control messages, which are not evicted.
    eviction: Option<(u16, bool)>,
    /// The rank of the message, and its bytes still to be sent.
    waiting: (u16, u64),
    backlog: Option<RelayOrigin>,
}

impl Outgoing {
    /// Length in bytes; 1 for an empty message, which counts as one virtual byte.
    pub(super) fn extent(&self) -> u32 {
        (self.payload.len() as u32).max(1)
    }

    /// Bytes to be sent for the first time, of all copies.
    pub(super) fn unsent_bytes(&self) -> u64 {
        match &self.copies {
            Some(copies) => copies.waiting_bytes(self.extent()),
            None => u64::from(self.extent() - self.next),
        }
    }

    /// The bytes that a link has not sent: those of the link's copy if there are copies.
    pub(super) fn unsent_on(&self, link: u8) -> Range<u32> {
        let next = match &self.copies {
            Some(copies) => copies.next_on(link).unwrap_or(self.extent()),
            None => self.next,
        };
        next..self.extent()
    }

    pub(super) fn waiting_bytes(&self) -> u64 {
        self.unsent_bytes() + self.repairs.len()
    }

    /// Whether a part of the message is to be sent or repaired.
    pub(super) fn is_queued(&self) -> bool {
        self.waiting_bytes() > 0
    }

    pub(super) fn is_suspected(&self) -> bool {
        self.suspected.first().is_some()
    }

    pub(super) fn is_forwarded(&self) -> bool {
        matches!(self.origin, Some(RelayOrigin::Forwarded(..)))
    }

    /// Time of the next check, or of the next copy.
    fn next_check(&self) -> Option<Instant> {
        let spare = self.redundant_copies.map(|redundant_copies| redundant_copies.next_at);
        let checked = self.expires.filter(|_| !self.is_checked);
        spare.into_iter().chain(checked).min()
    }

    /// Makes the next copy due, if its time has come.
    pub(super) fn release_redundant_copy(&mut self, now: Instant) -> bool {
        let Some(redundant_copies) =
            self.redundant_copies.filter(|redundant_copies| redundant_copies.next_at <= now)
        else {
            return false;
        };
        let left = redundant_copies.left - 1;
        self.redundant_copies = (left > 0).then_some(RedundantCopies {
            next_at: now + redundant_copies.interval,
            left,
            ..redundant_copies
        });
        self.redundant_copy_is_due = self.repair(0..self.extent());
        true
    }

    /// Marks a range to be sent again, except for bytes that are acknowledged. `false` at the limit
    /// of ranges.
    pub(super) fn repair(&mut self, range: Range<u32>) -> bool {
        let inserted = self.repairs.insert(range).is_some();
        for known in self.acked.iter() {
            self.repairs.remove(known);
        }
        inserted
    }

    fn index_keys(&self) -> IndexKeys {
        let waiting_bytes = self.waiting_bytes();
        let queued = waiting_bytes > 0;
        IndexKeys {
            ready: queued.then_some(self.order),
            expiry: self.next_check(),
            eviction: (self.traffic != Traffic::Control)
                .then_some((self.order.rank.0, self.number.is_some())),
            waiting: (self.order.rank.0, waiting_bytes),
            backlog: self.origin.filter(|_| queued || self.is_forwarded_again),
        }
    }
}

/// The messages for one peer; see the module's documentation.
#[derive(Debug, Default)]
pub(super) struct MessageStore {
    messages: BTreeMap<MessageId, Outgoing>,
    ready: BTreeSet<SendOrder>,
    expiries: BTreeSet<(Instant, MessageId)>,
    eviction_order: BTreeSet<(u16, bool, MessageId)>,
    held_bytes: usize,
    waiting_bytes: u64,
    /// Bytes still to be sent, by rank. Only the ranks of channels occur, so that the map is
    /// bounded.
    waiting_by_rank: BTreeMap<u16, u64>,
    pub(super) backlog: Backlog,
}

impl MessageStore {
    /// Adds a message under the id of its `order`.
    pub(super) fn insert(&mut self, message: Outgoing) {
        let id = message.order.id;
        self.held_bytes += message.payload.len();
        self.update(id, message.payload.len(), IndexKeys::default(), message.index_keys());
        self.messages.insert(id, message);
    }

    /// Changes a message; `None` if there is none.
    pub(super) fn change<T>(
        &mut self,
        id: MessageId,
        change: impl FnOnce(&mut Outgoing) -> T,
    ) -> Option<T> {
        let message = self.messages.get_mut(&id)?;
        let before = message.index_keys();
        let result = change(message);
        let (len, after) = (message.payload.len(), message.index_keys());
        self.update(id, len, before, after);
        Some(result)
    }

    /// Removes a message.
    pub(super) fn remove(&mut self, id: MessageId) -> Option<Outgoing> {
        let message = self.messages.remove(&id)?;
        self.held_bytes -= message.payload.len();
        self.update(id, message.payload.len(), message.index_keys(), IndexKeys::default());
        Some(message)
    }

    fn update(&mut self, id: MessageId, len: usize, before: IndexKeys, after: IndexKeys) {
        if before.ready != after.ready {
            before.ready.map(|order| self.ready.remove(&order));
            self.ready.extend(after.ready);
        }
        if before.expiry != after.expiry {
            before.expiry.map(|at| self.expiries.remove(&(at, id)));
            self.expiries.extend(after.expiry.map(|at| (at, id)));
        }
        if before.eviction != after.eviction {
            let entry = |(rank, begun)| (rank, begun, id);
            before.eviction.map(|it| self.eviction_order.remove(&entry(it)));
            self.eviction_order.extend(after.eviction.map(entry));
        }
        match (before.waiting, after.waiting) {
            ((old, less), (new, more)) if old == new => self.count_waiting(old, less, more),
            ((old, less), (new, more)) => {
                self.count_waiting(old, less, 0);
                self.count_waiting(new, 0, more);
            }
        }
        if before.backlog != after.backlog {
            before.backlog.into_iter().for_each(|origin| self.backlog.remove(origin, len as u64));
            after.backlog.into_iter().for_each(|origin| self.backlog.add(origin, len as u64));
        }
    }

    fn count_waiting(&mut self, rank: u16, less: u64, more: u64) {
        if less == more {
            return;
        }
        self.waiting_bytes = self.waiting_bytes - less + more;
        let bytes = self.waiting_by_rank.entry(rank).or_default();
        *bytes = *bytes - less + more;
        if *bytes == 0 {
            self.waiting_by_rank.remove(&rank);
        }
    }

    pub(super) fn get(&self, id: MessageId) -> Option<&Outgoing> {
        self.messages.get(&id)
    }

    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Ids of the messages that `which` selects.
    pub(super) fn ids(&self, which: impl Fn(&Outgoing) -> bool) -> Vec<MessageId> {
        self.messages.iter().filter(|(_, message)| which(message)).map(|(id, _)| *id).collect()
    }

    /// Queued messages in send order.
    pub(super) fn ready(&self) -> impl Iterator<Item = (SendOrder, &Outgoing)> {
        self.ready.iter().filter_map(|order| Some((*order, self.messages.get(&order.id)?)))
    }

    /// Number of queued messages.
    pub(super) fn queued(&self) -> usize {
        self.ready.len()
    }

    /// Time of the next check of a message, and its id.
    pub(super) fn next_expiry(&self) -> Option<(Instant, MessageId)> {
        self.expiries.first().copied()
    }

    /// Messages in the order of eviction.
    pub(super) fn eviction_order(&self) -> impl Iterator<Item = (MessageId, &Outgoing)> {
        let ids = self.eviction_order.iter().map(|(_, _, id)| *id);
        ids.filter_map(|id| Some((id, self.messages.get(&id)?)))
    }

    /// The most urgent rank for which more than `bound` bytes wait in that rank and more urgent
    /// ranks together.
    pub(super) fn first_rank_over(&self, bound: u64) -> Option<u16> {
        let mut ahead = 0;
        let ranks = self.waiting_by_rank.iter().rev();
        ranks.map(|(rank, bytes)| (*rank, *bytes)).find_map(|(rank, bytes)| {
            ahead += bytes;
            (ahead > bound).then_some(rank)
        })
    }

    /// Bytes of all messages.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Bytes still to be sent.
    pub(super) fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes
    }
}
