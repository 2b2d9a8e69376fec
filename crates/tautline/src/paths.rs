// SPDX-License-Identifier: Apache-2.0
//! Paths to peers: name resolution and routes. They are checked periodically, because both may
//! change, and on threads of their own, because both may block.

use crate::config::LinkConfig;
use crate::inlet::{Inlet, Input};
use crate::route::canonical_address;
pub use crate::route::{Path, route};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tautline_gateway::threads;

/// Interval of route checks while the kernel reports no change.
const CHECK_EVERY: Duration = Duration::from_secs(2);
/// Time to wait after a change for further changes that belong to it.
const DEBOUNCE_TIME: Duration = Duration::from_millis(10);
/// Groups of changes to links, addresses and routes of IPv4 and IPv6 (RTMGRP_* of linux/rtnetlink.h).
const RTNETLINK_GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400;
/// Interval at which a host name is resolved again.
const RESOLVE_EVERY: Duration = Duration::from_secs(30);

/// The links whose paths are watched, each with a number that is never reused.
pub(crate) type Watched = BTreeMap<u64, LinkConfig>;

/// The threads that watch the paths to all peers: one thread for all links with an address, and one
/// for each link with a host name. A name server that does not answer blocks a thread for seconds.
pub(crate) struct Paths {
    inlet: Inlet,
    addressed: Arc<Addressed>,
    /// For each thread of a link with a host name, a flag that ends it.
    named: BTreeMap<u64, Arc<AtomicBool>>,
}

/// The links that the thread for addresses watches.
struct Addressed {
    links: Mutex<Watched>,
    /// Readable when `links` has changed.
    wake: OwnedFd,
}

impl Addressed {
    /// Updates `watches` to the current links. Links that stay keep their last report.
    fn follow(&self, watches: &mut BTreeMap<u64, Watch>) {
        let links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        watches.retain(|number, _| links.contains_key(number));
        for (number, config) in links.iter() {
            watches.entry(*number).or_insert_with(|| Watch::new(config.clone()));
        }
    }
}

impl Paths {
    /// Starts the first thread, without links.
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
        // This fails only if the counter is at its maximum. The thread is then about to wake anyway.
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
        // A netlink socket without a protocol is one of NETLINK_ROUTE.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, RTNETLINK_GROUPS))?;
        Ok(Self(socket))
    }

    /// Waits for a change or for `wake`, for at most [`CHECK_EVERY`], because the kernel drops
    /// changes when the buffer is full. Returns whether there was a change.
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
            std::thread::sleep(DEBOUNCE_TIME);
        }
        any
    }
}

/// The watch of one link's path.
#[derive(Debug)]
struct Watch {
    config: LinkConfig,
    resolved: Option<(SocketAddr, Instant)>,
    /// The last report: the path, or the reason why there is no path.
    reported: Option<Result<Path, String>>,
}

impl Watch {
    fn new(config: LinkConfig) -> Self {
        Self { config, resolved: None, reported: None }
    }

    /// Reports the path of link `number`, or why there is no path, if this has changed.
    fn report(&mut self, number: u64, inlet: &Inlet) {
        match self.check() {
            Some(Ok(path)) => drop(inlet.hand_over(Input::Path { watch: number, path })),
            Some(Err(trouble)) => drop(inlet.hand_over(Input::Notice(trouble))),
            None => {}
        }
    }

    /// Returns the path, or why there is no path, if this differs from the last report.
    fn check(&mut self) -> Option<Result<Path, String>> {
        let found = self.find_path().map_err(|error| {
            // If the interface returns with another index, a host with a zone resolves to another address.
            self.resolved = None;
            format!("no path to {}: {error}", self.config.host)
        });
        let changed = self.reported.as_ref() != Some(&found);
        changed.then(|| self.reported.insert(found).clone())
    }

    fn find_path(&mut self) -> io::Result<Path> {
        let remote = self.resolve()?;
        route(remote, self.config.interface.as_deref(), self.config.mtu)
    }

    /// Returns the address of the host. While the name server fails, this is the last known address.
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
            (Ok(remote), _) => canonical_address(remote),
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
    fn a_path_is_reported_only_when_it_changes() {
        let mut watch = watch("127.0.0.1");
        let first = watch.check();
        assert!(matches!(first, Some(Ok(_))), "{first:?}");
        assert_eq!(watch.check(), None);
    }

    #[test]
    fn a_returning_path_is_reported() {
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
    fn the_last_address_is_used_while_the_name_does_not_resolve() {
        let mut watch = watch("host.invalid");
        assert!(matches!(watch.check(), Some(Err(_))));
        let known = "127.0.0.1:18470".parse().unwrap();
        let long_ago = Instant::now().checked_sub(2 * RESOLVE_EVERY).unwrap();
        watch.resolved = Some((known, long_ago));
        assert_eq!(watch.check().unwrap().unwrap().remote, known);
    }
}
