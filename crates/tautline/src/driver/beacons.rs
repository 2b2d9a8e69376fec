// SPDX-License-Identifier: Apache-2.0
//! Beacons, sent to multicast groups of the local network and received from them. They leave by the
//! listening socket, which accepts packets from anybody, because receivers take a
//! beacon's source address as this node's address.

use super::common::Common;
use super::listen::Listen;
use crate::config::{self, Config};
use crate::sys;
use if_addrs::Interface;
use socket2::{InterfaceIndexOrAddress, SockRef};
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::AsFd;
use tautline_proto::{Duration, Instant};

/// IPv4 group in the Local Scope (RFC 2365, section 6.1). Its last two bytes are the default port.
pub const GROUP_V4: Ipv4Addr = Ipv4Addr::new(239, 255, 72, 38);
/// IPv6 group of link-local scope, not permanently assigned (RFC 3307, section 4.3).
pub const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff12, 0, 0, 0, 0, 0, 0x8000, 0x4826);
/// Interval of beacons while all peers are up; a peer may be down before this node detects it.
/// While a peer is known to be down, each sweep sends a beacon.
const IDLE_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum number of addresses from which beacons are sent. Linux limits a socket to 20 groups of IPv4.
const MAX_ADDRESSES: usize = 32;

/// Sends and receives beacons.
pub(super) struct Beacons {
    sends: bool,
    /// The interfaces to use; `None` means all.
    only: Option<Vec<String>>,
    joined: BTreeSet<Group>,
    sent_at: Option<Instant>,
}

/// A place from which beacons are sent: a local IPv4 address, or an interface for IPv6, where the
/// kernel selects the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    interface: u32,
    /// `None` means IPv6.
    v4: Option<Ipv4Addr>,
}

impl Beacons {
    /// Returns `None` if beacons are neither sent nor received. Without sending, the node still
    /// listens if a peer has no address, because that peer's beacon may reveal it.
    pub(super) fn new(config: &Config, listen: &UdpSocket) -> Option<Self> {
        let (sends, only) = match &config.beacons {
            config::Beacons::Off => (false, None),
            config::Beacons::Everywhere => (true, None),
            config::Beacons::On(interfaces) => (true, Some(interfaces.clone())),
        };
        // A relay needs no beacons: its members reach it at its address.
        let awaits = config.teams.is_none() && config.peers.iter().any(|it| it.links.is_empty());
        let receives = sends || awaits;
        prepare(listen, config.listen);
        receives.then(|| Self { sends, only, joined: BTreeSet::new(), sent_at: None })
    }

    /// Applies a changed configuration. `next` takes over the joined groups; without `next`, the
    /// socket leaves them.
    pub(super) fn hand_over(self, next: Option<&mut Self>, listen: &UdpSocket) {
        match next {
            Some(next) => next.joined = self.joined,
            None => self.joined.iter().for_each(|group| group.leave(listen)),
        }
    }

    fn uses(&self, interface: &Interface, listen: &UdpSocket, address: IpAddr) -> bool {
        let name = interface.name.as_str();
        let chosen = self.only.as_ref().is_none_or(|only| only.iter().any(|it| it == name));
        let ours = match address {
            IpAddr::V6(any) if any.is_unspecified() => true,
            IpAddr::V4(any) if any.is_unspecified() => interface.ip().is_ipv4(),
            one => one == interface.ip(),
        };
        chosen && ours && sys::supports_multicast(listen.as_fd(), name).unwrap_or(false)
    }

    /// Returns the addresses at which beacons can be sent and received now.
    fn places(&self, listen: &UdpSocket, address: IpAddr) -> io::Result<BTreeSet<Place>> {
        let interfaces = if_addrs::get_if_addrs()?;
        let here = interfaces.iter().filter(|interface| self.uses(interface, listen, address));
        let place = |interface: &Interface| {
            let v4 = match interface.ip() {
                IpAddr::V4(v4) => Some(v4),
                IpAddr::V6(_) => None,
            };
            Some(Place { interface: interface.index?, v4 })
        };
        let places: BTreeSet<Place> = here.filter_map(place).collect();
        Ok(places.into_iter().take(MAX_ADDRESSES).collect())
    }

    /// Follows changes of the interfaces, and sends a beacon when one is due.
    pub(super) fn sweep(&mut self, common: &mut Common) {
        let now = common.now();
        let endpoint = &common.endpoint;
        let peer_is_down = endpoint.peers().any(|peer| !endpoint.peer(peer).up);
        if peer_is_down || self.sent_at.is_none_or(|at| now.since(at) >= IDLE_INTERVAL) {
            self.sent_at = Some(now);
            if let Err(error) = self.send(common) {
                common.notice(now, &format!("beacons: {error}"));
            }
        }
    }

    /// Sends a beacon in the next sweep, because other peers may be near now.
    pub(super) fn send_soon(&mut self) {
        self.sent_at = None;
    }

    fn send(&mut self, common: &mut Common) -> io::Result<()> {
        let address = common.listen.address;
        let places = self.places(common.listen.socket(), address.ip())?;
        // A socket that is bound to a unicast address receives no packets to a group.
        if address.ip().is_unspecified() {
            self.follow_groups(common, &places);
        }
        let beacon = if self.sends { common.endpoint.beacon() } else { None };
        let Some(beacon) = beacon else { return Ok(()) };
        for place in &places {
            if let Err(error) = place.send(&common.listen, &beacon) {
                tracing::debug!(%error, ?place, "a beacon was not sent");
            }
        }
        Ok(())
    }

    fn follow_groups(&mut self, common: &mut Common, places: &BTreeSet<Place>) {
        let wanted: BTreeSet<Group> = places.iter().map(Place::group).collect();
        self.joined.difference(&wanted).for_each(|gone| gone.leave(common.listen.socket()));
        self.joined.retain(|group| wanted.contains(group));
        for &group in wanted.difference(&self.joined.clone()) {
            if let Err(error) = group.join(common.listen.socket()) {
                let family = if group.is_v6 { "IPv6" } else { "IPv4" };
                let index = group.interface;
                let text = format!("no beacons over {family} on interface {index}: {error}");
                common.notice(common.now(), &text);
            } else {
                self.joined.insert(group);
            }
        }
    }
}

/// Limits beacons to one hop and disables their loopback. The kernel refuses the options of the
/// other address family, which are not needed.
fn prepare(listen: &UdpSocket, address: SocketAddr) {
    let socket = SockRef::from(listen);
    let _ = socket.set_multicast_ttl_v4(1);
    let _ = socket.set_multicast_loop_v4(false);
    if address.is_ipv6() {
        let _ = socket.set_multicast_hops_v6(1);
        let _ = socket.set_multicast_loop_v6(false);
    }
}

impl Place {
    fn group(&self) -> Group {
        Group { interface: self.interface, is_v6: self.v4.is_none() }
    }

    /// Makes `listen` send to the group from this place; returns the group's address.
    fn set_multicast_source(&self, listen: &UdpSocket, port: u16) -> io::Result<SocketAddr> {
        Ok(match self.v4 {
            Some(address) => {
                SockRef::from(listen).set_multicast_if_v4(&address)?;
                SocketAddr::new(GROUP_V4.into(), port)
            }
            None => SocketAddrV6::new(GROUP_V6, port, 0, self.interface).into(),
        })
    }

    fn send(&self, listen: &Listen, beacon: &[u8]) -> io::Result<usize> {
        let group = self.set_multicast_source(listen.socket(), listen.address.port())?;
        listen.socket().send_to(beacon, listen.mapped_address(group))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    interface: u32,
    is_v6: bool,
}

impl Group {
    fn join(self, listen: &UdpSocket) -> io::Result<()> {
        let socket = SockRef::from(listen);
        let interface = InterfaceIndexOrAddress::Index(self.interface);
        match self.is_v6 {
            true => socket.join_multicast_v6(&GROUP_V6, self.interface),
            false => socket.join_multicast_v4_n(&GROUP_V4, &interface),
        }
    }

    /// Leaves the group. The kernel counts a joined group even after its interface has disappeared.
    fn leave(self, listen: &UdpSocket) {
        let socket = SockRef::from(listen);
        let interface = InterfaceIndexOrAddress::Index(self.interface);
        let _ = match self.is_v6 {
            true => socket.leave_multicast_v6(&GROUP_V6, self.interface),
            false => socket.leave_multicast_v4_n(&GROUP_V4, &interface),
        };
    }
}
