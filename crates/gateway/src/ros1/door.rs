// SPDX-License-Identifier: Apache-2.0
//! Who may connect to this node's ROS 1 sockets, and how often. ROS 1 has no authentication:
//! whoever connects can read, call and redirect. So only programs of this machine, the master's
//! machine and the networks that the file names are let in.

use super::seats::{Seat, Seats};
use crate::networks::Network;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Connections to the slave API at once; the one that is silent for longest gives way to a new one.
const MAX_API_CONNECTIONS: usize = 128;
/// Of these, from one address of another machine.
const MAX_API_PER_ADDRESS: usize = 32;
/// TCPROS connections whose header has not arrived; the oldest gives way to a new one.
const MAX_HANDSHAKES: usize = 64;
/// Of these, from one address of another machine.
const MAX_HANDSHAKES_PER_ADDRESS: usize = 16;
/// Subscribers and clients of services at once; the oldest client that never called gives way,
/// else further ones are refused.
const MAX_CONNECTIONS: usize = 4096;
/// Of these, from one address of another machine.
const MAX_CONNECTIONS_PER_ADDRESS: usize = 1024;
/// One address is logged once in so long.
const LOG_PERIOD: Duration = Duration::from_secs(60);
/// Addresses logged in [`LOG_PERIOD`]; more are only counted.
const MAX_LOGGED: usize = 16;

const NOT_ALLOWED: &str = "it is no address of this machine or of the ROS master's; if a computer of \
                           this robot has it, allow it by ros1: { allow: [ADDRESS] }";

/// An address, and the interface (0 for none) that tells one link-local address from the same one
/// of another machine behind another interface.
pub(super) type Local = (IpAddr, u32);

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
    master: Mutex<Vec<Local>>,
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

    pub fn set_master(&self, addresses: Vec<Local>) {
        *locked(&self.master) = addresses;
    }

    /// A seat for a connection; `None`: it is to be closed, and has been logged.
    pub fn enter(&self, place: Place, from: SocketAddr) -> Option<Seat> {
        let (address, scope) = local(from);
        let own = || if_addrs::get_if_addrs().unwrap_or_default();
        // Addresses come and go, so the system is asked each time.
        let is_own = address.is_loopback() || is_among((address, scope), own().iter().map(of));
        if !is_own && !self.is_allowed((address, scope)) {
            self.log(address, "is refused", NOT_ALLOWED);
            return None;
        }
        let seats = match place {
            Place::Api => &self.api,
            Place::Handshake => &self.handshakes,
            Place::Connection => &self.connections,
        };
        let seat = seats.take(address, is_own);
        let loser = seat.as_ref().map_or(Some(address), |seat| seat.instead_of);
        if let Some(loser) = loser {
            self.log(loser, "is closed", "there are too many at once");
        }
        seat
    }

    fn is_allowed(&self, from: Local) -> bool {
        let named = self.allowed.iter().any(|network| network.contains(from.0));
        named || is_among(from, locked(&self.master).iter().copied())
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

/// Where a connection is from. The system names the interface for link-local addresses alone.
pub(super) fn local(from: SocketAddr) -> Local {
    let scope = if let SocketAddr::V6(v6) = from { v6.scope_id() } else { 0 };
    (from.ip().to_canonical(), scope)
}

/// An address of this machine.
pub(super) fn of(interface: &if_addrs::Interface) -> Local {
    (interface.ip(), interface.index.unwrap_or(0))
}

fn is_among((address, scope): Local, mut all: impl Iterator<Item = Local>) -> bool {
    let link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    all.any(|(other, index)| other == address && (!link_local || index == scope))
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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
        door.set_master(vec![("192.0.2.1".parse().unwrap(), 0)]);
        assert!(enters("192.0.2.1"));
        let own = if_addrs::get_if_addrs().unwrap();
        let enters = |it: &if_addrs::Interface| door.enter(Place::Api, of_interface(it, 0));
        assert!(own.iter().all(|it| enters(it).is_some()));
    }

    fn of_interface(it: &if_addrs::Interface, further: u32) -> SocketAddr {
        let scope = it.index.unwrap_or(0) + further;
        match it.ip() {
            IpAddr::V6(v6) if v6.is_unicast_link_local() => {
                std::net::SocketAddrV6::new(v6, 4000, 0, scope).into()
            }
            address => SocketAddr::new(address, 4000),
        }
    }

    #[test]
    fn a_link_local_address_counts_on_its_own_interface_alone() {
        let door = Door::new(vec![]);
        let enters = |text: &str| door.enter(Place::Api, text.parse().unwrap()).is_some();
        door.set_master(vec![("fe80::7:7".parse().unwrap(), 3)]);
        assert!(enters("[fe80::7:7%3]:4000"));
        assert!(!enters("[fe80::7:7%4]:4000") && !enters("[fe80::7:7]:4000"));
        let own = [("fe80::1".parse().unwrap(), 2), ("10.0.0.1".parse().unwrap(), 2)];
        let is_own = |text: &str| is_among(local(text.parse().unwrap()), own.into_iter());
        assert!(is_own("[fe80::1%2]:1") && is_own("10.0.0.1:1"));
        assert!(!is_own("[fe80::1%3]:1"));
        for it in if_addrs::get_if_addrs().unwrap() {
            let elsewhere = of_interface(&it, 1000);
            let same = elsewhere == of_interface(&it, 0);
            assert_eq!(door.enter(Place::Api, elsewhere).is_some(), same, "{elsewhere}");
        }
    }

    #[test]
    fn one_address_does_not_take_the_places_of_others() {
        let door = Door::new(vec!["10.9.0.0/16".parse().unwrap()]);
        let enter = |from: &str| {
            let seat = door.enter(Place::Connection, at(from))?;
            seat.keep();
            Some(seat)
        };
        let mut held: Vec<_> = (0..2000).filter_map(|_| enter("10.9.0.1")).collect();
        assert_eq!(held.len(), MAX_CONNECTIONS_PER_ADDRESS);
        assert!(enter("10.9.0.2").is_some());
        assert!(door.enter(Place::Handshake, at("10.9.0.1")).is_some(), "of another kind");
        held.pop();
        held.extend(enter("10.9.0.1"));
        assert_eq!(held.len(), MAX_CONNECTIONS_PER_ADDRESS);
        held.extend((0..5000).filter_map(|_| enter("127.0.0.1")));
        assert_eq!(held.len(), MAX_CONNECTIONS, "this machine may have the rest");
        held.clear();
        assert_eq!(door.connections.taken(), 0, "nothing is left");
    }

    #[test]
    fn silent_connections_do_not_hold_the_door_shut() {
        let door = Door::new(vec![]);
        for (place, seats) in [(Place::Handshake, &door.handshakes), (Place::Api, &door.api)] {
            let enter = || door.enter(place, at("127.0.0.1"));
            let held: Vec<_> = (0..1000).map(|_| enter().expect("a place")).collect();
            assert!(seats.taken() <= MAX_API_CONNECTIONS);
            drop(held);
            assert_eq!(seats.taken(), 0);
        }
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
