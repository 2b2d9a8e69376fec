// SPDX-License-Identifier: Apache-2.0
//! Routes: the interface, source address and maximum packet size of packets that leave now to an address.

use crate::config::MAX_MTU;
use crate::sys;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

/// The current path to a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// Address of the peer.
    pub remote: SocketAddr,
    /// Source address of the packets.
    pub local: IpAddr,
    /// Interface that sends the packets.
    pub interface: String,
    /// Index of the interface. It changes if the interface disappears and returns under its old name.
    pub index: u32,
    /// Largest IP packet that the interface or the configuration allows, in bytes.
    pub mtu: usize,
    /// Whether [`Self::mtu`] is the configured size.
    pub mtu_is_configured: bool,
}

/// Finds the current path of packets to `remote`.
pub fn route(remote: SocketAddr, interface: Option<&str>, mtu: Option<u16>) -> io::Result<Path> {
    let probe = Socket::new(Domain::for_address(remote), Type::DGRAM, Some(Protocol::UDP))?;
    if let Some(interface) = interface {
        probe.bind_device(Some(interface.as_bytes()))?;
    }
    // Connecting a datagram socket looks up the route without sending a packet.
    probe.connect(&remote.into())?;
    let local = probe.local_addr()?.as_socket().map(|a| a.ip());
    let local = local.ok_or_else(|| io::Error::other("no local address"))?;
    let interface = match interface {
        Some(name) => name.to_owned(),
        None => interface_of(local, zone(remote))?,
    };
    // The MTU of the interface, because the MTU of the route follows ICMP, which anybody can forge.
    let interface_mtu = sys::interface_mtu(probe.as_fd(), &interface)?.min(MAX_MTU.into());
    let configured = mtu.map(usize::from).filter(|mtu| *mtu < interface_mtu);
    let (mtu, mtu_is_configured) = (configured.unwrap_or(interface_mtu), configured.is_some());
    let index = rustix::net::netdevice::name_to_index(&probe, &interface)?;
    Ok(Path { remote, local, interface, index, mtu, mtu_is_configured })
}

/// Returns the index of the interface of a link-local address (`fe80::1%wlan0`).
fn zone(remote: SocketAddr) -> Option<u32> {
    match remote {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => Some(v6.scope_id()),
        _ => None,
    }
}

/// Returns the interface with index `zone`; without a zone, the interface with the address `local`.
fn interface_of(local: IpAddr, zone: Option<u32>) -> io::Result<String> {
    let mut all = if_addrs::get_if_addrs()?.into_iter();
    let found = all.find(|i| match zone {
        Some(index) => i.index == Some(index),
        None => i.ip() == local,
    });
    let none = || io::Error::other(format!("no interface has the address {local}"));
    found.map(|i| i.name).ok_or_else(none)
}

/// Returns an address in its usual form: an IPv4-mapped IPv6 address becomes IPv4.
pub(crate) fn canonical_address(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => SocketAddr::new(v4.into(), v6.port()),
            None => address,
        },
        SocketAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_route_to_this_machine_is_the_loopback_interface() {
        let path = route("127.0.0.1:18470".parse().unwrap(), None, None).unwrap();
        assert_eq!((path.interface.as_str(), path.mtu), ("lo", usize::from(MAX_MTU)));
        assert!(!path.mtu_is_configured);
        let path = route("127.0.0.1:18470".parse().unwrap(), Some("lo"), Some(700)).unwrap();
        assert_eq!((path.mtu, path.mtu_is_configured), (700, true));
    }

    #[test]
    fn a_zone_determines_the_interface() {
        let loopback = interface_of("127.0.0.1".parse().unwrap(), None).unwrap();
        let index = if_addrs::get_if_addrs().unwrap().into_iter();
        let index = index.filter(|i| i.name == loopback).find_map(|i| i.index);
        let elsewhere = "fe80::1".parse().unwrap();
        assert_eq!(interface_of(elsewhere, index).unwrap(), loopback);
        assert!(interface_of(elsewhere, None).is_err());
    }
}
