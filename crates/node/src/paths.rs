// SPDX-License-Identifier: Apache-2.0
//! Which way leads to a peer: name resolution and routes, looked at again and
//! again on a thread of its own, because both may block and both may change.

use crate::config::{LinkConfig, MAX_DEFAULT_MTU};
use crate::sys;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How often routes are looked at.
pub(crate) const CHECK_EVERY: Duration = Duration::from_secs(2);
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
        None => interface_of(local)?,
    };
    let mtu = match mtu {
        Some(mtu) => usize::from(mtu),
        None => sys::path_mtu(probe.as_fd(), remote.is_ipv6())?.min(MAX_DEFAULT_MTU.into()),
    };
    Ok(Path { remote, local, interface, mtu })
}

fn interface_of(local: IpAddr) -> io::Result<String> {
    let all = if_addrs::get_if_addrs()?;
    let found = all.into_iter().find(|i| i.ip() == local).map(|i| i.name);
    found.ok_or_else(|| io::Error::other(format!("no interface has the address {local}")))
}

/// Watches the way of one link.
#[derive(Debug)]
pub(crate) struct Watch {
    config: LinkConfig,
    resolved: Option<(SocketAddr, Instant)>,
    reported: Option<Path>,
    trouble: Option<String>,
}

impl Watch {
    pub(crate) fn new(config: LinkConfig) -> Self {
        Self { config, resolved: None, reported: None, trouble: None }
    }

    /// The way, if it is another than last time.
    pub(crate) fn check(&mut self) -> Option<Path> {
        match self.look() {
            Ok(path) => {
                self.trouble = None;
                let changed = self.reported.as_ref() != Some(&path);
                changed.then(|| self.reported.insert(path).clone())
            }
            Err(error) => {
                self.resolved = None;
                let trouble = error.to_string();
                if self.trouble.as_ref() != Some(&trouble) {
                    tracing::warn!(host = self.config.host, "no way to the peer yet: {trouble}");
                    self.trouble = Some(trouble);
                }
                None
            }
        }
    }

    fn look(&mut self) -> io::Result<Path> {
        let known = self.resolved.filter(|(_, at)| at.elapsed() < RESOLVE_EVERY);
        let remote = match known {
            Some((remote, _)) => remote,
            None => {
                let mut found = (self.config.host.as_str(), self.config.port).to_socket_addrs()?;
                let remote = found.next().ok_or_else(|| io::Error::other("no such host"))?;
                self.resolved = Some((remote, Instant::now()));
                remote
            }
        };
        route(remote, self.config.interface.as_deref(), self.config.mtu)
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

    #[test]
    fn a_way_is_reported_when_it_changes_only() {
        let config = LinkConfig {
            host: "127.0.0.1".into(),
            port: 18470,
            interface: None,
            mtu: None,
        };
        let mut watch = Watch::new(config);
        assert!(watch.check().is_some());
        assert_eq!(watch.check(), None);
    }
}
