// SPDX-License-Identifier: Apache-2.0
//! Places for connections of one kind. Where all are taken, the connection that has said nothing
//! for longest gives way to a new one, so that silent ones hold no place against those that speak.

use super::door::locked;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// Places of one kind.
pub(super) struct Seats {
    all: usize,
    per_address: usize,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    /// Counts what happens, to tell the older from the newer.
    count: u64,
    holders: BTreeMap<u64, Holder>,
}

struct Holder {
    address: IpAddr,
    /// When it last said something.
    since: u64,
    /// Told when it has to give way; `None` if it has not to.
    evicted: Option<Arc<Notify>>,
}

impl Held {
    fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// Ends the connection among `these` that has been silent for longest; gives its address.
    fn evict(&mut self, these: impl Fn(&Holder) -> bool) -> Option<IpAddr> {
        let silent = self.holders.iter().filter(|(_, it)| it.evicted.is_some() && these(it));
        let (id, _) = silent.min_by_key(|(_, it)| it.since)?;
        let holder = self.holders.remove(&{ *id })?;
        holder.evicted?.notify_one();
        Some(holder.address)
    }
}

impl Seats {
    pub fn new(all: usize, per_address: usize) -> Arc<Self> {
        Arc::new(Self { all, per_address, held: Mutex::default() })
    }

    /// A place, maybe that of a silent connection. Programs of this machine share its addresses,
    /// and the whole of the places.
    pub fn take(self: &Arc<Self>, address: IpAddr, is_own: bool) -> Option<Seat> {
        let mut held = locked(&self.held);
        let here = |holder: &Holder| holder.address == address;
        let limit = if is_own { self.all } else { self.per_address };
        let mut instead_of = None;
        if held.holders.values().filter(|it| here(it)).count() >= limit {
            instead_of = Some(held.evict(here)?);
        }
        if held.holders.len() >= self.all {
            instead_of = Some(held.evict(|_| true)?);
        }
        let (id, evicted) = (held.next(), Arc::new(Notify::new()));
        let holder = Holder { address, since: id, evicted: Some(evicted.clone()) };
        held.holders.insert(id, holder);
        Some(Seat { seats: self.clone(), id, evicted, instead_of })
    }

    #[cfg(test)]
    pub fn taken(&self) -> usize {
        locked(&self.held).holders.len()
    }
}

/// One place, free again when dropped.
pub(super) struct Seat {
    seats: Arc<Seats>,
    id: u64,
    evicted: Arc<Notify>,
    /// Whose connection gave way to this one.
    pub instead_of: Option<IpAddr>,
}

impl Seat {
    /// Ends when another connection has the place; this one is to be closed.
    pub async fn lost(&self) {
        self.evicted.notified().await;
    }

    /// The connection has said something complete: it is the last to give way.
    pub fn heard(&self) {
        let mut held = locked(&self.seats.held);
        let now = held.next();
        if let Some(holder) = held.holders.get_mut(&self.id) {
            holder.since = now;
            holder.evicted = Some(self.evicted.clone());
        }
    }

    /// The connection has not to give way until it is [`Seat::heard`] again.
    pub fn keep(&self) {
        if let Some(holder) = locked(&self.seats.held).holders.get_mut(&self.id) {
            holder.evicted = None;
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        locked(&self.seats.held).holders.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Waker};

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn is_lost(seat: &Seat) -> bool {
        pin!(seat.lost()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn who_is_silent_for_longest_gives_way() {
        let seats = Seats::new(3, 3);
        let mut held: Vec<Seat> = (0..3).map(|_| seats.take(HERE, true).unwrap()).collect();
        held[0].heard();
        held.push(seats.take(HERE, true).unwrap());
        assert_eq!(held[3].instead_of, Some(HERE));
        assert_eq!(held.iter().map(is_lost).collect::<Vec<_>>(), [false, true, false, false]);
        drop(held.remove(1));
        assert_eq!(seats.taken(), 3, "its place was given away before");
    }

    #[test]
    fn who_is_to_be_kept_gives_way_only_once_it_was_heard() {
        let seats = Seats::new(2, 2);
        let kept: Vec<Seat> = (0..2).map(|_| seats.take(HERE, true).unwrap()).collect();
        kept.iter().for_each(Seat::keep);
        assert!(seats.take(HERE, true).is_none() && !kept.iter().any(is_lost));
        kept[1].heard();
        let _new = seats.take(HERE, true).unwrap();
        assert!(!is_lost(&kept[0]) && is_lost(&kept[1]));
    }

    #[test]
    fn one_address_beyond_its_places_pushes_out_its_own_connections() {
        let seats = Seats::new(10, 2);
        let (one, other) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let others: Vec<Seat> = (0..2).map(|_| seats.take(other, false).unwrap()).collect();
        let held: Vec<Seat> = (0..5).map(|_| seats.take(one, false).unwrap()).collect();
        assert_eq!(seats.taken(), 4);
        assert!(!others.iter().any(is_lost));
        assert_eq!(held.iter().filter(|seat| is_lost(seat)).count(), 3);
    }
}
