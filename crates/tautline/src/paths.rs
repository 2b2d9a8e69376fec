// SPDX-License-Identifier: Apache-2.0
//! Paths to peers: name resolution and routes, checked periodically on threads of their own,
//! because both may block and both may change.

use crate::config::{LinkConfig, MAX_MTU};
use crate::inlet::{Inlet, Input};
use crate::{sys, udp};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tautline_gateway::threads;

/// Interval of route checks without a change reported by the kernel.
const CHECK_EVERY: Duration = Duration::from_secs(2);
/// Time to wait after a change for related changes.
const SETTLING: Duration = Duration::from_millis(10);
/// Links, addresses and routes of IPv4 and IPv6 (RTMGRP_* of linux/rtnetlink.h).
const CHANGES: u32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400;
/// Interval at which a resolved name is resolved again.
const RESOLVE_EVERY: Duration = Duration::from_secs(30);

/// The current path to a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// Address of the peer.
    pub remote: SocketAddr,
    /// Source address of the packets.
    pub local: IpAddr,
    /// Interface that sends the packets.
    pub interface: String,
    /// The interface's index; an interface that returns under its old name has another one.
    pub index: u32,
    /// Largest IP packet that the interface or the configuration allows, in bytes.
    pub mtu: usize,
    /// Whether that is the configured size.
    pub mtu_is_configured: bool,
}

/// Finds the current path of packets to `remote`.
pub fn route(remote: SocketAddr, interface: Option<&str>, mtu: Option<u16>) -> io::Result<Path> {
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
    // That of the route follows ICMP, which anybody can forge.
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

/// Returns the interface of index `zone`, or else the interface with the address `local`.
fn interface_of(local: IpAddr, zone: Option<u32>) -> io::Result<String> {
    let mut all = if_addrs::get_if_addrs()?.into_iter();
    let found = all.find(|i| match zone {
        Some(index) => i.index == Some(index),
        None => i.ip() == local,
    });
    let none = || io::Error::other(format!("no interface has the address {local}"));
    found.map(|i| i.name).ok_or_else(none)
}

/// The links whose paths are watched, each under a number that is used once.
pub(crate) type Watched = BTreeMap<u64, LinkConfig>;

/// The threads that watch the paths to all peers: one for peers of known address, and one for each
/// peer with a host name, since a name server that does not answer blocks its thread for seconds.
pub(crate) struct Paths {
    inlet: Inlet,
    addressed: Arc<Addressed>,
    /// Threads of links with a host name; `true` ends one.
    named: BTreeMap<u64, Arc<AtomicBool>>,
}

/// The links that the first thread watches.
struct Addressed {
    links: Mutex<Watched>,
    /// Readable when `links` has changed.
    wake: OwnedFd,
}

impl Addressed {
    /// Updates `watches` to the current links; those that stay keep their last report.
    fn follow(&self, watches: &mut BTreeMap<u64, Watch>) {
        let links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        watches.retain(|number, _| links.contains_key(number));
        for (number, config) in links.iter() {
            watches.entry(*number).or_insert_with(|| Watch::new(config.clone()));
        }
    }
}

impl Paths {
    /// Starts without links.
    pub(crate) fn start(inlet: Inlet) -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let addressed = Arc::new(Addressed { links: Mutex::default(), wake });
        let (changes, list, reports) = (Changes::listen()?, addressed.clone(), inlet.clone());
        let mut watches = BTreeMap::new();
        inlet.spawn("paths", move || {
            while !reports.waiting.is_closed() {
                list.follow(&mut watches);
                watches.iter_mut().for_each(|(number, watch)| watch.report(*number, &reports));
                if changes.wait(Some(&list.wake)) {
                    reports.hand_over(Input::NetworkChanged);
                }
            }
        })?;
        Ok(Self { inlet, addressed, named: BTreeMap::new() })
    }

    /// Watches exactly these links.
    pub(crate) fn set(&mut self, links: &Watched) -> io::Result<()> {
        let has_name = |link: &LinkConfig| link.host.parse::<IpAddr>().is_err();
        for (_, stop) in self.named.extract_if(.., |number, _| !links.contains_key(number)) {
            stop.store(true, Ordering::Relaxed);
        }
        for (number, link) in links.iter().filter(|(_, link)| has_name(link)) {
            if !self.named.contains_key(number) {
                let stop = watch_named(*number, link.clone(), self.inlet.clone())?;
                self.named.insert(*number, stop);
            }
        }
        let addressed = links.iter().filter(|(_, link)| !has_name(link));
        let addressed = addressed.map(|(number, link)| (*number, link.clone())).collect();
        *self.addressed.links.lock().unwrap_or_else(PoisonError::into_inner) = addressed;
        // This fails only if the counter is full; then the thread is about to wake anyway.
        let _ = rustix::io::write(&self.addressed.wake, &1u64.to_ne_bytes());
        Ok(())
    }
}

/// Starts the thread of a link with a host name. Setting the returned flag ends it.
fn watch_named(number: u64, link: LinkConfig, inlet: Inlet) -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let (changes, stopped, mut watch) = (Changes::listen()?, stop.clone(), Watch::new(link));
    let (waiting, is_stopped) = (inlet.waiting.clone(), stop.clone());
    let ended = move |name: &str, how| {
        if !is_stopped.load(Ordering::Relaxed) {
            waiting.thread_ended(name, how);
        }
    };
    threads::spawn("paths", ended, move || {
        while !inlet.waiting.is_closed() && !stopped.load(Ordering::Relaxed) {
            watch.report(number, &inlet);
            if changes.wait(None) {
                inlet.hand_over(Input::NetworkChanged);
            }
        }
    })?;
    Ok(stop)
}

/// A socket on which the kernel reports changes of interfaces, addresses or routes.
struct Changes(OwnedFd);

impl Changes {
    fn listen() -> io::Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        // Without a protocol it is NETLINK_ROUTE.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, CHANGES))?;
        Ok(Self(socket))
    }

    /// Waits for a change or for `wake`, for at most [`CHECK_EVERY`], since a full buffer loses
    /// changes. Returns whether there was a change.
    fn wait(&self, wake: Option<&OwnedFd>) -> bool {
        let timeout = Timespec { tv_sec: CHECK_EVERY.as_secs() as i64, tv_nsec: 0 };
        let sources = [Some(&self.0), wake].into_iter().flatten();
        let mut sources: Vec<_> = sources.map(|it| PollFd::new(it, PollFlags::IN)).collect();
        let _ = poll(&mut sources, Some(&timeout));
        if let Some(wake) = wake {
            let _ = rustix::io::read(wake, &mut [0; 8]);
        }
        let mut buffer = [0; 8192];
        let mut any = false;
        while let Ok((len, _)) = recv(&self.0, &mut buffer[..], RecvFlags::empty()) {
            any |= len > 0;
        }
        if any {
            // Changes arrive in groups: an address, then its routes.
            std::thread::sleep(SETTLING);
        }
        any
    }
}

/// The watch of one link's path.
#[derive(Debug)]
struct Watch {
    config: LinkConfig,
    resolved: Option<(SocketAddr, Instant)>,
    /// The last report: the path, or the reason why there is none.
    reported: Option<Result<Path, String>>,
}

impl Watch {
    fn new(config: LinkConfig) -> Self {
        Self { config, resolved: None, reported: None }
    }

    /// Reports the path of the link of this number, or why there is none, if that has changed.
    fn report(&mut self, number: u64, inlet: &Inlet) {
        match self.check() {
            Some(Ok(path)) => drop(inlet.hand_over(Input::Path { watch: number, path })),
            Some(Err(trouble)) => drop(inlet.hand_over(Input::Notice(trouble))),
            None => {}
        }
    }

    /// Returns the path, or why there is none, if that differs from the last report.
    fn check(&mut self) -> Option<Result<Path, String>> {
        let found = self.find().map_err(|error| {
            // If the interface returns with another index, a zone means another address.
            self.resolved = None;
            format!("no path to {}: {error}", self.config.host)
        });
        let changed = self.reported.as_ref() != Some(&found);
        changed.then(|| self.reported.insert(found).clone())
    }

    fn find(&mut self) -> io::Result<Path> {
        let remote = self.resolve()?;
        route(remote, self.config.interface.as_deref(), self.config.mtu)
    }

    /// Returns the address of the host; the last known one while its name server fails.
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
        assert_eq!((path.interface.as_str(), path.mtu), ("lo", usize::from(MAX_MTU)));
        assert!(!path.mtu_is_configured);
        let path = route("127.0.0.1:18470".parse().unwrap(), Some("lo"), Some(700)).unwrap();
        assert_eq!((path.mtu, path.mtu_is_configured), (700, true));
    }

    fn watch(host: &str) -> Watch {
        Watch::new(LinkConfig {
            name: "link1".into(),
            host: host.into(),
            port: 18470,
            interface: None,
            mtu: None,
            metered: false,
            budget: None,
        })
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
        let path = watch.check();
        watch.config.interface = Some("missing0".into());
        let trouble = watch.check().unwrap().unwrap_err();
        assert!(trouble.contains("no path to 127.0.0.1: "), "{trouble}");
        assert_eq!(watch.check(), None, "said once");
        watch.config.interface = None;
        assert_eq!(watch.check(), path);
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
