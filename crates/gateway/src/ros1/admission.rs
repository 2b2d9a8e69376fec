// SPDX-License-Identifier: Apache-2.0
//! Admission of connections to this node's ROS 1 sockets. ROS 1 has no authentication: a program
//! that connects can read, call and redirect. Therefore only programs of this machine, of the
//! master's machine and of the configured networks may connect, within limits.

use super::slots::{Slot, SlotPool};
use crate::lock::lock;
use crate::networks::Network;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

/// Maximum number of connections to the slave API; a new connection evicts the one that has been silent
/// for longest.
const MAX_API_CONNECTIONS: usize = 128;
/// Maximum number of connections to the slave API from one address of another machine.
const MAX_API_PER_ADDRESS: usize = 32;
/// Maximum number of TCPROS connections whose header has not arrived; a new connection evicts the
/// oldest.
const MAX_HANDSHAKES: usize = 64;
/// Maximum number of connections whose header has not arrived, from one address of another machine.
const MAX_HANDSHAKES_PER_ADDRESS: usize = 16;
/// Maximum number of subscribers and service clients. A new connection evicts the oldest client that
/// never called; if there is none, the new connection is refused.
const MAX_CONNECTIONS: usize = 4096;
/// Maximum number of subscribers and service clients from one address of another machine.
const MAX_CONNECTIONS_PER_ADDRESS: usize = 1024;
/// Least time between two log lines about one address.
const LOG_PERIOD: Duration = Duration::from_secs(60);
/// Maximum number of addresses logged in each [`LOG_PERIOD`]; refusals of further addresses are only
/// counted.
const MAX_LOGGED: usize = 16;
/// Pause after the system refused to accept (out of file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const NOT_ALLOWED: &str = "it is no address of this machine or of the ROS master's; if a computer of \
                           this robot has it, allow it by ros1: { allow: [ADDRESS] }";

/// An address and its interface (0: any), which distinguishes equal link-local addresses of
/// machines behind different interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ScopedAddress {
    pub address: IpAddr,
    pub scope: u32,
}

impl ScopedAddress {
    /// The address of a peer. The system reports the interface only for link-local addresses.
    pub fn of_peer(peer: SocketAddr) -> Self {
        let scope = if let SocketAddr::V6(v6) = peer { v6.scope_id() } else { 0 };
        Self { address: peer.ip().to_canonical(), scope }
    }

    pub fn own_addresses() -> impl Iterator<Item = Self> {
        let interfaces = if_addrs::get_if_addrs().unwrap_or_default().into_iter();
        interfaces.map(|it| Self { address: it.ip(), scope: it.index.unwrap_or(0) })
    }

    fn is_among(self, all: impl IntoIterator<Item = Self>) -> bool {
        let link_local = matches!(self.address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let is_same = |other: Self| {
            other.address == self.address && (!link_local || other.scope == self.scope)
        };
        all.into_iter().any(is_same)
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) enum SlotKind {
    /// A connection to the slave API.
    Api,
    /// A TCPROS connection until its header has arrived.
    Handshake,
    /// A TCPROS connection after its header.
    Connection,
}

pub(super) struct Admitted {
    pub stream: TcpStream,
    pub peer: SocketAddr,
    /// Released when the connection ends.
    pub slot: Slot,
}

pub(super) struct Admission {
    allowed: Vec<Network>,
    /// Addresses of the master's host, as last resolved.
    master: Mutex<Vec<ScopedAddress>>,
    api: Arc<SlotPool>,
    handshakes: Arc<SlotPool>,
    connections: Arc<SlotPool>,
    refusals: Mutex<RefusalLog>,
}

impl Admission {
    pub fn new(allowed: Vec<Network>) -> Self {
        Self {
            allowed,
            master: Mutex::default(),
            api: SlotPool::new(MAX_API_CONNECTIONS, MAX_API_PER_ADDRESS),
            handshakes: SlotPool::new(MAX_HANDSHAKES, MAX_HANDSHAKES_PER_ADDRESS),
            connections: SlotPool::new(MAX_CONNECTIONS, MAX_CONNECTIONS_PER_ADDRESS),
            refusals: Mutex::default(),
        }
    }

    /// Whether the configuration allows other machines than the master's.
    pub fn allows_others(&self) -> bool {
        !self.allowed.is_empty()
    }

    pub fn set_master(&self, addresses: Vec<ScopedAddress>) {
        *lock(&self.master) = addresses;
    }

    pub async fn accept(&self, listener: &TcpListener, kind: SlotKind) -> Admitted {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    if let Some(slot) = self.admit(kind, peer) {
                        return Admitted { stream, peer, slot };
                    }
                }
                Err(_) => sleep(ACCEPT_PAUSE).await,
            }
        }
    }

    /// Returns a slot for a connection. `None`: the connection is refused, and the refusal was logged.
    pub fn admit(&self, kind: SlotKind, peer: SocketAddr) -> Option<Slot> {
        let from = ScopedAddress::of_peer(peer);
        // The addresses of this machine change, so the system is asked each time.
        let is_own = from.address.is_loopback() || from.is_among(ScopedAddress::own_addresses());
        if !is_own && !self.is_allowed(from) {
            self.log(from.address, "is refused", NOT_ALLOWED);
            return None;
        }
        let pool = match kind {
            SlotKind::Api => &self.api,
            SlotKind::Handshake => &self.handshakes,
            SlotKind::Connection => &self.connections,
        };
        let slot = pool.take(from.address, is_own);
        let closed = slot.as_ref().map_or(Some(from.address), |slot| slot.evicted_address);
        if let Some(address) = closed {
            self.log(address, "is closed", "there are too many at once");
        }
        slot
    }

    fn is_allowed(&self, from: ScopedAddress) -> bool {
        let is_configured = self.allowed.iter().any(|network| network.contains(from.address));
        is_configured || from.is_among(lock(&self.master).iter().copied())
    }

    fn log(&self, address: IpAddr, action: &str, reason: &str) {
        let more = match lock(&self.refusals).record(address, Instant::now()) {
            None => return,
            Some(0) => String::new(),
            Some(count) => format!(" ({count} more were not logged)"),
        };
        tracing::warn!("a ROS 1 connection from {address} {action}: {reason}{more}");
    }
}

/// Limits the log of refusals: some are logged, the others only counted.
#[derive(Default)]
struct RefusalLog {
    logged: BTreeMap<IpAddr, Instant>,
    /// Refusals since the last log line.
    unlogged: u64,
}

impl RefusalLog {
    /// The number of unlogged refusals before this one; `None`: do not log this one either.
    fn record(&mut self, address: IpAddr, now: Instant) -> Option<u64> {
        self.logged.retain(|_, at| now.saturating_duration_since(*at) < LOG_PERIOD);
        if self.logged.contains_key(&address) || self.logged.len() >= MAX_LOGGED {
            self.unlogged = self.unlogged.saturating_add(1);
            return None;
        }
        self.logged.insert(address, now);
        Some(std::mem::take(&mut self.unlogged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scoped_address(text: &str, scope: u32) -> ScopedAddress {
        ScopedAddress { address: text.parse().unwrap(), scope }
    }

    fn at(text: &str) -> SocketAddr {
        SocketAddr::new(text.parse().unwrap(), 4000)
    }

    #[test]
    fn only_this_machine_the_master_and_configured_networks_are_admitted() {
        let admission = Admission::new(vec!["10.9.0.0/16".parse().unwrap()]);
        let admits = |from: &str| admission.admit(SlotKind::Api, at(from)).is_some();
        assert!(admits("127.0.0.1") && admits("::1") && admits("10.9.200.1"));
        assert!(admits("::ffff:10.9.0.1"), "as an IPv6 socket has it");
        assert!(!admits("192.0.2.1") && !admits("2001:db8::1"));
        admission.set_master(vec![scoped_address("192.0.2.1", 0)]);
        assert!(admits("192.0.2.1"));
        let own = if_addrs::get_if_addrs().unwrap();
        let admits = |interface: &if_addrs::Interface| {
            admission.admit(SlotKind::Api, of_interface(interface, 0))
        };
        assert!(own.iter().all(|interface| admits(interface).is_some()));
    }

    fn of_interface(interface: &if_addrs::Interface, further: u32) -> SocketAddr {
        let scope = interface.index.unwrap_or(0) + further;
        match interface.ip() {
            IpAddr::V6(v6) if v6.is_unicast_link_local() => {
                std::net::SocketAddrV6::new(v6, 4000, 0, scope).into()
            }
            address => SocketAddr::new(address, 4000),
        }
    }

    #[test]
    fn a_link_local_address_is_valid_only_on_its_interface() {
        let admission = Admission::new(vec![]);
        let admits = |text: &str| admission.admit(SlotKind::Api, text.parse().unwrap()).is_some();
        admission.set_master(vec![scoped_address("fe80::7:7", 3)]);
        assert!(admits("[fe80::7:7%3]:4000"));
        assert!(!admits("[fe80::7:7%4]:4000") && !admits("[fe80::7:7]:4000"));
        let own = [scoped_address("fe80::1", 2), scoped_address("10.0.0.1", 2)];
        let is_own = |text: &str| ScopedAddress::of_peer(text.parse().unwrap()).is_among(own);
        assert!(is_own("[fe80::1%2]:1") && is_own("10.0.0.1:1"));
        assert!(!is_own("[fe80::1%3]:1"));
        for interface in if_addrs::get_if_addrs().unwrap() {
            let elsewhere = of_interface(&interface, 1000);
            let same = elsewhere == of_interface(&interface, 0);
            assert_eq!(admission.admit(SlotKind::Api, elsewhere).is_some(), same, "{elsewhere}");
        }
    }

    #[test]
    fn one_address_cannot_use_all_slots() {
        let admission = Admission::new(vec!["10.9.0.0/16".parse().unwrap()]);
        let admit = |from: &str| {
            let slot = admission.admit(SlotKind::Connection, at(from))?;
            slot.pin();
            Some(slot)
        };
        let mut held: Vec<_> = (0..2000).filter_map(|_| admit("10.9.0.1")).collect();
        assert_eq!(held.len(), MAX_CONNECTIONS_PER_ADDRESS);
        assert!(admit("10.9.0.2").is_some());
        assert!(admission.admit(SlotKind::Handshake, at("10.9.0.1")).is_some(), "of another kind");
        held.pop();
        held.extend(admit("10.9.0.1"));
        assert_eq!(held.len(), MAX_CONNECTIONS_PER_ADDRESS);
        held.extend((0..5000).filter_map(|_| admit("127.0.0.1")));
        assert_eq!(held.len(), MAX_CONNECTIONS, "this machine may use the rest");
        held.clear();
        assert_eq!(admission.connections.used_slots(), 0, "all are released");
    }

    #[test]
    fn silent_connections_do_not_block_admission() {
        let admission = Admission::new(vec![]);
        for (kind, pool) in
            [(SlotKind::Handshake, &admission.handshakes), (SlotKind::Api, &admission.api)]
        {
            let admit = || admission.admit(kind, at("127.0.0.1"));
            let held: Vec<_> = (0..1000).map(|_| admit().expect("a slot")).collect();
            assert!(pool.used_slots() <= MAX_API_CONNECTIONS);
            drop(held);
            assert_eq!(pool.used_slots(), 0);
        }
    }

    #[test]
    fn refusals_are_logged_once_per_address() {
        let (mut log, start) = (RefusalLog::default(), Instant::now());
        let one: IpAddr = "192.0.2.1".parse().unwrap();
        assert_eq!(log.record(one, start), Some(0));
        assert_eq!(log.record(one, start + LOG_PERIOD / 2), None);
        let others = (0..1000).filter(|n| {
            let address = IpAddr::from([10, 0, (n / 256) as u8, (n % 256) as u8]);
            log.record(address, start + LOG_PERIOD / 2).is_some()
        });
        assert_eq!(others.count(), MAX_LOGGED - 1);
        let left_out = 1000 - (MAX_LOGGED as u64 - 1);
        assert_eq!(log.record(one, start + LOG_PERIOD), Some(left_out));
        assert!(log.logged.len() <= MAX_LOGGED);
    }
}
