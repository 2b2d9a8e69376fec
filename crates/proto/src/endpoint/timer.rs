// SPDX-License-Identifier: Apache-2.0
//! The table of all timers.

use crate::ids::{LinkId, PeerId, RadioId, TeamId};
use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Timer {
    Reconnect(LinkId),
    PathValidation(LinkId),
    BacklogReport(PeerId),
    Rendezvous(PeerId),
    Rekey(PeerId),
    Ping(LinkId),
    LinkTimeout(LinkId),
    Loss(LinkId),
    Probe(LinkId),
    Stall(LinkId),
    Ack(PeerId, u8),
    Expiry(PeerId),
    Reassembly(PeerId),
    Order(PeerId),
    Pace(RadioId),
    Team(TeamId),
}

/// A table with at most one time for each key. The earliest time is found and moved in O(log n). Every packet
/// sets several times of its link, most of which do not change. Searching among the few keys costs less than
/// hashing them.
#[derive(Debug)]
pub(crate) struct TimerTable<K> {
    times: BTreeMap<K, Instant>,
    order: BTreeSet<(Instant, K)>,
}

impl<K: Copy + Ord> TimerTable<K> {
    pub(crate) fn new() -> Self {
        Self { times: BTreeMap::new(), order: BTreeSet::new() }
    }

    /// Sets, moves or (with `None`) removes the time of `key`.
    pub(crate) fn set(&mut self, key: K, at: Option<Instant>) {
        let before = match at {
            Some(at) => self.times.insert(key, at),
            None => self.times.remove(&key),
        };
        if before == at {
            return;
        }
        if let Some(before) = before {
            self.order.remove(&(before, key));
        }
        if let Some(at) = at {
            self.order.insert((at, key));
        }
    }

    /// Sets the time of `key` to `at`, unless it has an earlier time already.
    pub(crate) fn bring_forward(&mut self, key: K, at: Instant) {
        if self.times.get(&key).is_none_or(|before| at < *before) {
            self.set(key, Some(at));
        }
    }

    pub(crate) fn is_set(&self, key: &K) -> bool {
        self.times.contains_key(key)
    }

    pub(crate) fn next_time(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Removes and returns one key that is due.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<K> {
        let &(at, key) = self.order.first().filter(|(at, _)| *at <= now)?;
        self.order.remove(&(at, key));
        self.times.remove(&key);
        Some(key)
    }
}
