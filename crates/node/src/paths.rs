// SPDX-License-Identifier: Apache-2.0
//! Which way leads to a peer: name resolution and routes, looked at again and
//! again on a thread of its own, because both may block and both may change.

use crate::config::{Config, LinkConfig, MAX_DEFAULT_MTU};
use crate::node::{Inlet, Input};
use crate::{sys, udp};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// How often routes are looked at, if the kernel tells of no change.
const CHECK_EVERY: Duration = Duration::from_secs(2);
/// After a change others of the same occasion are waited for so long.
const SETTLING: Duration = Duration::from_millis(10);
/// Links, addresses and routes of IPv4 and IPv6 (RTMGRP_* of linux/rtnetlink.h).
const CHANGES: u32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400;
/// How often a name that was resolved is resolved again.
const RESOLVE_EVERY: Duration = Duration::from_secs(30);

/// A way to a peer as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) remote: SocketAddr,
    /// Address that packets leave from.
    pub(crate) local: IpAddr,
    /// Interface that packets leave by.
    pub(crate) interface: String,
    /// Its number: one that returns under its old name has another.
    pub(crate) index: u32,
    /// Largest IP packet.
    pub(crate) mtu: usize,
}

/// Finds the way that packets to `remote` take now.
pub(crate) fn route(
    remote: SocketAddr,
    interface: Option<&str>,
    mtu: Option<u16>,
) -> io::Result<Path> {
    let probe = Socket::new(Domain::for_address(remote), Type::DGRAM, Some(Protocol::UDP))?;
    if let Some(interface) = interface {
        probe.bind_device(Some(interface.as_bytes()))?;
    }
    // Connecting a datagram socket looks up the route and sends nothing.
    probe.connect(&remote.into())?;
    let local = probe.local_addr()?.as_socket().map(|a| a.ip());
    let local = local.ok_or_else(|| io::Error::other("no local address"))?;
    let interface = match interface {
        Some(name) => name.to_owned(),
        None => interface_of(local, zone(remote))?,
    };
    let route_mtu = sys::path_mtu(probe.as_fd(), remote.is_ipv6())?;
    let mtu = route_mtu.min(mtu.unwrap_or(MAX_DEFAULT_MTU).into());
    let index = rustix::net::netdevice::name_to_index(&probe, &interface)?;
    Ok(Path { remote, local, interface, index, mtu })
}

/// Index of the interface that a link-local address (`fe80::1%wlan0`) is reached by.
fn zone(remote: SocketAddr) -> Option<u32> {
    match remote {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => Some(v6.scope_id()),
        _ => None,
    }
}

/// The interface of index `zone`, or else the one that has the address `local`.
fn interface_of(local: IpAddr, zone: Option<u32>) -> io::Result<String> {
    let mut all = if_addrs::get_if_addrs()?.into_iter();
    let found = all.find(|i| match zone {
        Some(index) => i.index == Some(index),
        None => i.ip() == local,
    });
    let none = || io::Error::other(format!("no interface has the address {local}"));
    found.map(|i| i.name).ok_or_else(none)
}

/// Starts the threads that look after the ways to all peers: one for those of
/// known address, and one for each that has a name, since a name server that
/// does not answer holds its thread up for seconds.
pub(crate) fn watch(config: &Config, inlet: &Inlet) -> io::Result<()> {
    let mut addressed = Vec::new();
    let mut index = 0;
    for peer in &config.peers {
        for link in &peer.links {
            let watch = (index, Watch::new(link.clone()));
            index += 1;
            match link.host.parse::<IpAddr>() {
                Ok(_) => addressed.push(watch),
                Err(_) => watch_in_thread(vec![watch], inlet.clone())?,
            }
        }
        // A peer without address has one link, which it opens itself.
        index += usize::from(peer.is_caller());
    }
    // Those who call us are answered from an address that may change as well.
    watch_in_thread(addressed, inlet.clone())
}

fn watch_in_thread(mut watches: Vec<(usize, Watch)>, inlet: Inlet) -> io::Result<()> {
    let changes = Changes::listen()?;
    let watch = move || {
        while !inlet.waiting.is_closed() {
            for (link, watch) in &mut watches {
                match watch.check() {
                    Some(Ok(path)) => drop(inlet.push(Input::Path { link: *link, path })),
                    Some(Err(trouble)) => drop(inlet.push(Input::Notice(trouble))),
                    None => {}
                }
            }
            if changes.wait() {
                inlet.push(Input::NetworkChanged);
            }
        }
    };
    let builder = std::thread::Builder::new().name("paths".into());
    builder.spawn(watch).map(drop)
}

/// The kernel's word that interfaces, addresses or routes have changed.
struct Changes(OwnedFd);

impl Changes {
    fn listen() -> io::Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        // Without a protocol it is NETLINK_ROUTE.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, CHANGES))?;
        Ok(Self(socket))
    }

    /// Waits for one, for [`CHECK_EVERY`] at most: a full buffer loses some. Whether there was one.
    fn wait(&self) -> bool {
        let timeout = Timespec { tv_sec: CHECK_EVERY.as_secs() as i64, tv_nsec: 0 };
        let _ = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&timeout));
        let mut buffer = [0; 8192];
        let mut any = false;
        while let Ok((len, _)) = recv(&self.0, &mut buffer[..], RecvFlags::empty()) {
            any |= len > 0;
        }
        if any {
            // They come in groups: an address, then its routes.
            std::thread::sleep(SETTLING);
        }
        any
    }
}

/// Watches the way of one link.
#[derive(Debug)]
struct Watch {
    config: LinkConfig,
    resolved: Option<(SocketAddr, Instant)>,
    /// What was said last: the way, or why there is none.
    reported: Option<Result<Path, String>>,
}

impl Watch {
    fn new(config: LinkConfig) -> Self {
        Self { config, resolved: None, reported: None }
    }

    /// The way, or why there is none, if that is another than last time.
    fn check(&mut self) -> Option<Result<Path, String>> {
        let found = self.look().map_err(|error| {
            // Where the interface returns with another index, a zone means another address.
            self.resolved = None;
            format!("no way to {} yet: {error}", self.config.host)
        });
        let changed = self.reported.as_ref() != Some(&found);
        changed.then(|| self.reported.insert(found).clone())
    }

    fn look(&mut self) -> io::Result<Path> {
        let remote = self.resolve()?;
        route(remote, self.config.interface.as_deref(), self.config.mtu)
    }

    /// The address of the host; the last one known while its name server is away.
    fn resolve(&mut self) -> io::Result<SocketAddr> {
        let known = self.resolved;
        if let Some((remote, at)) = known
            && at.elapsed() < RESOLVE_EVERY
        {
            return Ok(remote);
        }
        let host = (self.config.host.as_str(), self.config.port);
        let found = host
            .to_socket_addrs()
            .and_then(|mut all| all.next().ok_or_else(|| io::Error::other("no address is known")));
        let remote = match (found, known) {
            (Ok(remote), _) => udp::canonical(remote),
            (Err(_), Some((remote, _))) => remote,
            (Err(error), None) => return Err(error),
        };
        self.resolved = Some((remote, Instant::now()));
        Ok(remote)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_this_machine_is_the_loopback_interface() {
        let path = route("127.0.0.1:18470".parse().unwrap(), None, None).unwrap();
        assert_eq!((path.interface.as_str(), path.mtu), ("lo", usize::from(MAX_DEFAULT_MTU)));
        let path = route("127.0.0.1:18470".parse().unwrap(), Some("lo"), Some(700)).unwrap();
        assert_eq!(path.mtu, 700);
    }

    fn watch(host: &str) -> Watch {
        Watch::new(LinkConfig { host: host.into(), port: 18470, interface: None, mtu: None })
    }

    #[test]
    fn a_way_is_reported_when_it_changes_only() {
        let mut watch = watch("127.0.0.1");
        let first = watch.check();
        assert!(matches!(first, Some(Ok(_))), "{first:?}");
        assert_eq!(watch.check(), None);
    }

    #[test]
    fn a_way_that_returns_is_reported_though_it_is_the_same() {
        let mut watch = watch("127.0.0.1");
        let way = watch.check();
        watch.config.interface = Some("missing0".into());
        let trouble = watch.check().unwrap().unwrap_err();
        assert!(trouble.contains("no way to 127.0.0.1 yet"), "{trouble}");
        assert_eq!(watch.check(), None, "said once");
        watch.config.interface = None;
        assert_eq!(watch.check(), way);
    }

    #[test]
    fn the_last_address_known_serves_while_the_name_does_not_resolve() {
        let mut watch = watch("host.invalid");
        assert!(matches!(watch.check(), Some(Err(_))));
        let known = "127.0.0.1:18470".parse().unwrap();
        let long_ago = Instant::now().checked_sub(2 * RESOLVE_EVERY).unwrap();
        watch.resolved = Some((known, long_ago));
        assert_eq!(watch.check().unwrap().unwrap().remote, known);
    }

    #[test]
    fn a_zone_tells_the_interface() {
        let loopback = interface_of("127.0.0.1".parse().unwrap(), None).unwrap();
        let index = if_addrs::get_if_addrs().unwrap().into_iter();
        let index = index.filter(|i| i.name == loopback).find_map(|i| i.index);
        let elsewhere = "fe80::1".parse().unwrap();
        assert_eq!(interface_of(elsewhere, index).unwrap(), loopback);
        assert!(interface_of(elsewhere, None).is_err());
    }
}
