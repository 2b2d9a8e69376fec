// SPDX-License-Identifier: Apache-2.0
//! Who may connect to this node's ROS 1 sockets, and how often. ROS 1 has no authentication:
//! whoever connects can read, call and redirect. So only programs of this machine, the master's
//! machine and the networks that the file names are let in.

use crate::networks::Network;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Connections to the slave API at once; further ones are closed.
const MAX_API_CONNECTIONS: usize = 128;
/// Of these, from one address of another machine.
const MAX_API_PER_ADDRESS: usize = 32;
/// TCPROS connections whose header has not arrived; further ones are closed.
const MAX_HANDSHAKES: usize = 64;
/// Of these, from one address of another machine.
const MAX_HANDSHAKES_PER_ADDRESS: usize = 16;
/// Subscribers and clients of services at once; further ones are refused.
const MAX_CONNECTIONS: usize = 4096;
/// Of these, from one address of another machine.
const MAX_CONNECTIONS_PER_ADDRESS: usize = 1024;
/// One address is logged once in so long.
const LOG_PERIOD: Duration = Duration::from_secs(60);
/// Addresses logged in [`LOG_PERIOD`]; more are only counted.
const MAX_LOGGED: usize = 16;

const NOT_ALLOWED: &str = "it is no address of this machine or of the ROS master's; if a computer of \
                           this robot has it, allow it by ros1: { allow: [ADDRESS] }";

/// What a connection takes up.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    /// A connection to the slave API.
    Api,
    /// A TCPROS connection until its header has arrived.
    Handshake,
    /// A TCPROS connection after that.
    Connection,
}

/// Decides on each connection.
pub(super) struct Door {
    allowed: Vec<Network>,
    /// Addresses of the master's host, as last resolved.
    master: Mutex<Vec<IpAddr>>,
    api: Arc<Seats>,
    handshakes: Arc<Seats>,
    connections: Arc<Seats>,
    refused: Mutex<Refused>,
}

impl Door {
    pub fn new(allowed: Vec<Network>) -> Self {
        Self {
            allowed,
            master: Mutex::default(),
            api: Seats::new(MAX_API_CONNECTIONS, MAX_API_PER_ADDRESS),
            handshakes: Seats::new(MAX_HANDSHAKES, MAX_HANDSHAKES_PER_ADDRESS),
            connections: Seats::new(MAX_CONNECTIONS, MAX_CONNECTIONS_PER_ADDRESS),
            refused: Mutex::default(),
        }
    }

    /// Whether the file lets in other machines than the master's.
    pub fn expects_others(&self) -> bool {
        !self.allowed.is_empty()
    }

    pub fn set_master(&self, addresses: Vec<IpAddr>) {
        *locked(&self.master) = addresses;
    }

    /// A seat for a connection; `None`: it is to be closed, and has been logged.
    pub fn enter(&self, place: Place, from: SocketAddr) -> Option<Seat> {
        let address = from.ip().to_canonical();
        let is_own = is_of_this_machine(address);
        if !is_own && !self.is_allowed(address) {
            self.log(address, "is refused", NOT_ALLOWED);
            return None;
        }
        let seats = match place {
            Place::Api => &self.api,
            Place::Handshake => &self.handshakes,
            Place::Connection => &self.connections,
        };
        let seat = seats.take(address, is_own);
        if seat.is_none() {
            self.log(address, "is closed", "there are too many at once");
        }
        seat
    }

    fn is_allowed(&self, address: IpAddr) -> bool {
        let named = self.allowed.iter().any(|network| network.contains(address));
        named || locked(&self.master).contains(&address)
    }

    fn log(&self, address: IpAddr, what: &str, why: &str) {
        let noted = locked(&self.refused).note(address, Instant::now());
        match noted {
            Some(0) => tracing::warn!("a ROS 1 connection from {address} {what}: {why}"),
            Some(more) => tracing::warn!(
                "a ROS 1 connection from {address} {what}: {why} ({more} more were not logged)"
            ),
            None => {}
        }
    }
}

/// Addresses come and go, so the system is asked each time.
fn is_of_this_machine(address: IpAddr) -> bool {
    let has = |it: &if_addrs::Interface| it.ip() == address;
    address.is_loopback() || if_addrs::get_if_addrs().is_ok_and(|all| all.iter().any(has))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Recent refusals.
#[derive(Default)]
struct Refused {
    logged: BTreeMap<IpAddr, Instant>,
    /// Not logged since the last that was.
    silent: u64,
}

impl Refused {
    /// How many were not logged before, if this one is to be logged.
    fn note(&mut self, address: IpAddr, now: Instant) -> Option<u64> {
        self.logged.retain(|_, at| now.saturating_duration_since(*at) < LOG_PERIOD);
        if self.logged.contains_key(&address) || self.logged.len() >= MAX_LOGGED {
            self.silent = self.silent.saturating_add(1);
            return None;
        }
        self.logged.insert(address, now);
        Some(std::mem::take(&mut self.silent))
    }
}

/// Places of one kind.
struct Seats {
    all: usize,
    per_address: usize,
    taken: Mutex<BTreeMap<IpAddr, usize>>,
}

impl Seats {
    fn new(all: usize, per_address: usize) -> Arc<Self> {
        Arc::new(Self { all, per_address, taken: Mutex::default() })
    }

    /// Programs of this machine share its addresses, and the whole of the places.
    fn take(self: &Arc<Self>, address: IpAddr, is_own: bool) -> Option<Seat> {
        let mut taken = locked(&self.taken);
        let all: usize = taken.values().sum();
        let here = taken.get(&address).copied().unwrap_or(0);
        let limit = if is_own { self.all } else { self.per_address };
        if all >= self.all || here >= limit {
            return None;
        }
        taken.insert(address, here + 1);
        Some(Seat { seats: self.clone(), address })
    }
}

/// One place, free again when dropped.
pub(super) struct Seat {
    seats: Arc<Seats>,
    address: IpAddr,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = locked(&self.seats.taken);
        match taken.get_mut(&self.address) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(taken.remove(&self.address)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        SocketAddr::new(text.parse().unwrap(), 4000)
    }

    #[test]
    fn only_this_machine_the_master_and_what_the_file_names_are_let_in() {
        let door = Door::new(vec!["10.9.0.0/16".parse().unwrap()]);
        let enters = |from: &str| door.enter(Place::Api, at(from)).is_some();
        assert!(enters("127.0.0.1") && enters("::1") && enters("10.9.200.1"));
        assert!(enters("::ffff:10.9.0.1"), "as an IPv6 socket has it");
        assert!(!enters("192.0.2.1") && !enters("2001:db8::1"));
        door.set_master(vec!["192.0.2.1".parse().unwrap()]);
        assert!(enters("192.0.2.1"));
        let own = if_addrs::get_if_addrs().unwrap();
        assert!(own.iter().all(|it| enters(&it.ip().to_string())));
    }

    #[test]
    fn one_address_does_not_take_the_places_of_others() {
        let door = Door::new(vec!["10.9.0.0/16".parse().unwrap()]);
        let enter = |from: &str| door.enter(Place::Handshake, at(from));
        let mut held: Vec<_> = (0..100).filter_map(|_| enter("10.9.0.1")).collect();
        assert_eq!(held.len(), MAX_HANDSHAKES_PER_ADDRESS);
        assert!(enter("10.9.0.2").is_some());
        assert!(door.enter(Place::Connection, at("10.9.0.1")).is_some(), "of another kind");
        held.pop();
        held.extend(enter("10.9.0.1"));
        assert_eq!(held.len(), MAX_HANDSHAKES_PER_ADDRESS);
        held.extend((0..1000).filter_map(|_| enter("127.0.0.1")));
        assert_eq!(held.len(), MAX_HANDSHAKES, "this machine may have the rest");
        held.clear();
        assert!(locked(&door.handshakes.taken).is_empty(), "nothing is left");
    }

    #[test]
    fn a_flood_of_refusals_is_logged_once_for_each_of_a_few_addresses() {
        let (mut refused, start) = (Refused::default(), Instant::now());
        let one: IpAddr = "192.0.2.1".parse().unwrap();
        assert_eq!(refused.note(one, start), Some(0));
        assert_eq!(refused.note(one, start + LOG_PERIOD / 2), None);
        let others = (0..1000).filter(|n| {
            let address = IpAddr::from([10, 0, (n / 256) as u8, (n % 256) as u8]);
            refused.note(address, start + LOG_PERIOD / 2).is_some()
        });
        assert_eq!(others.count(), MAX_LOGGED - 1);
        let left_out = 1000 - (MAX_LOGGED as u64 - 1);
        assert_eq!(refused.note(one, start + LOG_PERIOD), Some(left_out));
        assert!(refused.logged.len() <= MAX_LOGGED);
    }
}
