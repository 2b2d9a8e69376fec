// SPDX-License-Identifier: Apache-2.0
//! Slots for connections of one kind. When all are in use, a new connection evicts the one that
//! has been silent for longest, so that silent connections cannot lock out active ones.

use crate::lock::lock;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

pub(super) struct SlotPool {
    limit: usize,
    per_address: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// A logical clock, which orders activity.
    clock: u64,
    holders: BTreeMap<u64, Holder>,
}

struct Holder {
    address: IpAddr,
    last_active: u64,
    /// Signals an eviction; `None` while the holder is pinned.
    eviction: Option<Arc<Notify>>,
}

impl State {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Evicts the longest silent of the `eligible` holders; returns its address.
    fn evict(&mut self, eligible: impl Fn(&Holder) -> bool) -> Option<IpAddr> {
        let silent = self.holders.iter().filter(|(_, it)| it.eviction.is_some() && eligible(it));
        let (id, _) = silent.min_by_key(|(_, holder)| holder.last_active)?;
        let holder = self.holders.remove(&{ *id })?;
        holder.eviction?.notify_one();
        Some(holder.address)
    }
}

impl SlotPool {
    pub fn new(limit: usize, per_address: usize) -> Arc<Self> {
        Arc::new(Self { limit, per_address, state: Mutex::default() })
    }

    /// Takes a slot, if necessary that of a silent connection. The limit per address does not apply to
    /// this machine, where all programs share an address.
    pub fn take(self: &Arc<Self>, address: IpAddr, is_own: bool) -> Option<Slot> {
        let mut state = lock(&self.state);
        let same_address = |holder: &Holder| holder.address == address;
        let limit = if is_own { self.limit } else { self.per_address };
        let mut evicted_address = None;
        if state.holders.values().filter(|holder| same_address(holder)).count() >= limit {
            evicted_address = Some(state.evict(same_address)?);
        }
        if state.holders.len() >= self.limit {
            evicted_address = Some(state.evict(|_| true)?);
        }
        let (id, eviction) = (state.tick(), Arc::new(Notify::new()));
        let holder = Holder { address, last_active: id, eviction: Some(eviction.clone()) };
        state.holders.insert(id, holder);
        Some(Slot { pool: self.clone(), id, eviction, evicted_address })
    }

    #[cfg(test)]
    pub fn used_slots(&self) -> usize {
        lock(&self.state).holders.len()
    }
}

/// One slot; released on drop.
pub(super) struct Slot {
    pool: Arc<SlotPool>,
    id: u64,
    eviction: Arc<Notify>,
    /// The address of the evicted connection.
    pub evicted_address: Option<IpAddr>,
}

impl Slot {
    /// Returns when another connection has taken the slot; close this one then.
    pub async fn wait_for_eviction(&self) {
        self.eviction.notified().await;
    }

    /// Runs `task` until it ends; `None`: the slot was evicted first.
    pub async fn while_held<T>(
        &self,
        peer: SocketAddr,
        task: impl Future<Output = T>,
    ) -> Option<T> {
        tokio::select! {
            result = task => Some(result),
            () = self.wait_for_eviction() => {
                tracing::debug!(%peer, "a silent connection was evicted");
                None
            }
        }
    }

    /// Records a complete request or response: this slot becomes the last to be evicted.
    pub fn touch(&self) {
        let mut state = lock(&self.pool.state);
        let now = state.tick();
        if let Some(holder) = state.holders.get_mut(&self.id) {
            holder.last_active = now;
            holder.eviction = Some(self.eviction.clone());
        }
    }

    /// Protects the slot from eviction until the next [`Slot::touch`].
    pub fn pin(&self) {
        if let Some(holder) = lock(&self.pool.state).holders.get_mut(&self.id) {
            holder.eviction = None;
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        lock(&self.pool.state).holders.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Waker};

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn is_evicted(slot: &Slot) -> bool {
        pin!(slot.wait_for_eviction()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn the_longest_silent_connection_is_evicted() {
        let pool = SlotPool::new(3, 3);
        let mut held: Vec<Slot> = (0..3).map(|_| pool.take(HERE, true).unwrap()).collect();
        held[0].touch();
        held.push(pool.take(HERE, true).unwrap());
        assert_eq!(held[3].evicted_address, Some(HERE));
        assert_eq!(held.iter().map(is_evicted).collect::<Vec<_>>(), [false, true, false, false]);
        drop(held.remove(1));
        assert_eq!(pool.used_slots(), 3, "the slot was taken at the eviction");
    }

    #[test]
    fn a_pinned_slot_is_kept_until_new_activity() {
        let pool = SlotPool::new(2, 2);
        let pinned: Vec<Slot> = (0..2).map(|_| pool.take(HERE, true).unwrap()).collect();
        pinned.iter().for_each(Slot::pin);
        assert!(pool.take(HERE, true).is_none() && !pinned.iter().any(is_evicted));
        pinned[1].touch();
        let _new = pool.take(HERE, true).unwrap();
        assert!(!is_evicted(&pinned[0]) && is_evicted(&pinned[1]));
    }

    #[test]
    fn an_address_beyond_its_limit_evicts_only_its_own_connections() {
        let pool = SlotPool::new(10, 2);
        let (one, other) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let others: Vec<Slot> = (0..2).map(|_| pool.take(other, false).unwrap()).collect();
        let held: Vec<Slot> = (0..5).map(|_| pool.take(one, false).unwrap()).collect();
        assert_eq!(pool.used_slots(), 4);
        assert!(!others.iter().any(is_evicted));
        assert_eq!(held.iter().filter(|slot| is_evicted(slot)).count(), 3);
    }
}
