// SPDX-License-Identifier: Apache-2.0
//! Beacons: told to the groups of the local network, and heard there. They leave by
//! the socket that is open to everybody, since where they come from is what they say.

use super::Driver;
use crate::config::{self, Config};
use crate::quota::Cause;
use crate::sys;
use if_addrs::Interface;
use socket2::{InterfaceIndexOrAddress, SockRef};
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::AsFd;
use tautline_proto::{Duration, Instant};

/// Of the site's own (RFC 2365, section 6.1); the last bytes are the usual port.
const GROUP_V4: Ipv4Addr = Ipv4Addr::new(239, 255, 72, 38);
/// On the link, assigned by nobody (RFC 3307, section 4.3).
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff12, 0, 0, 0, 0, 0, 0x8000, 0x4826);
/// How often a beacon is sent while all peers are up: for those that cannot tell yet that
/// they are not. Else with every sweep.
const SELDOM: Duration = Duration::from_secs(10);
/// Addresses that beacons leave from; Linux lets a socket into 20 groups of IPv4.
const MAX_PLACES: usize = 32;

/// Where beacons are sent and heard.
pub(super) struct Beacons {
    /// The node tells of itself.
    sends: bool,
    /// Interfaces; `None` is all.
    only: Option<Vec<String>>,
    joined: BTreeSet<Group>,
    sent_at: Option<Instant>,
}

/// An address here that beacons leave from; of IPv6 one for each interface, as the kernel chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    interface: u32,
    /// `None` is IPv6.
    v4: Option<Ipv4Addr>,
}

impl Beacons {
    /// `None` where there are none to be sent or heard: a peer without address may be found by its own.
    pub(super) fn new(config: &Config, listen: &UdpSocket) -> Option<Self> {
        let (sends, only) = match &config.beacons {
            config::Beacons::Off => (false, None),
            config::Beacons::Everywhere => (true, None),
            config::Beacons::On(interfaces) => (true, Some(interfaces.clone())),
        };
        let hears = sends || config.peers.iter().any(|peer| peer.links.is_empty());
        prepare(listen, config.listen);
        hears.then(|| Self { sends, only, joined: BTreeSet::new(), sent_at: None })
    }

    /// The file says something else of beacons: `next` goes on with the groups that were joined,
    /// or none is of use any more.
    pub(super) fn hand_over(self, next: Option<&mut Self>, listen: &UdpSocket) {
        match next {
            Some(next) => next.joined = self.joined,
            None => self.joined.iter().for_each(|group| group.leave(listen)),
        }
    }

    fn takes(&self, interface: &Interface, listen: &UdpSocket, address: IpAddr) -> bool {
        let name = interface.name.as_str();
        let chosen = self.only.as_ref().is_none_or(|only| only.iter().any(|it| it == name));
        let ours = match address {
            IpAddr::V6(any) if any.is_unspecified() => true,
            IpAddr::V4(any) if any.is_unspecified() => interface.ip().is_ipv4(),
            one => one == interface.ip(),
        };
        chosen && ours && sys::takes_groups(listen.as_fd(), name).unwrap_or(false)
    }

    /// Where beacons may be sent and heard now.
    fn places(&self, listen: &UdpSocket, address: IpAddr) -> io::Result<BTreeSet<Place>> {
        let all = if_addrs::get_if_addrs()?;
        let here = all.iter().filter(|interface| self.takes(interface, listen, address));
        let place = |interface: &Interface| {
            let v4 = match interface.ip() {
                IpAddr::V4(v4) => Some(v4),
                IpAddr::V6(_) => None,
            };
            Some(Place { interface: interface.index?, v4 })
        };
        let places: BTreeSet<Place> = here.filter_map(place).collect();
        Ok(places.into_iter().take(MAX_PLACES).collect())
    }
}

/// One hop, and none of it comes back. What does not fit the socket's family is refused, and need not be.
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

    /// Makes `listen` send to the group from here; the group's address.
    fn aim(&self, listen: &UdpSocket, port: u16) -> io::Result<SocketAddr> {
        Ok(match self.v4 {
            Some(address) => {
                SockRef::from(listen).set_multicast_if_v4(&address)?;
                SocketAddr::new(GROUP_V4.into(), port)
            }
            None => SocketAddrV6::new(GROUP_V6, port, 0, self.interface).into(),
        })
    }
}

/// A group on an interface.
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

    /// Its interface may be gone, and the kernel still count it.
    fn leave(self, listen: &UdpSocket) {
        let socket = SockRef::from(listen);
        let interface = InterfaceIndexOrAddress::Index(self.interface);
        let _ = match self.is_v6 {
            true => socket.leave_multicast_v6(&GROUP_V6, self.interface),
            false => socket.leave_multicast_v4_n(&GROUP_V4, &interface),
        };
    }
}

impl Driver {
    /// Follows interfaces that come and go, and tells peers where we are when it is time to.
    pub(super) fn sweep_beacons(&mut self) {
        let Some(mut beacons) = self.beacons.take() else { return };
        let now = self.now();
        let alone = self.endpoint.peers().any(|peer| !self.endpoint.peer(peer).up);
        if alone || beacons.sent_at.is_none_or(|at| now.since(at) >= SELDOM) {
            beacons.sent_at = Some(now);
            if let Err(error) = self.turn_beacons(&mut beacons) {
                self.topics.notice(now, Cause::Here, &format!("beacons: {error}"));
            }
        }
        self.beacons = Some(beacons);
    }

    /// With the next sweep, since peers may be near who were not.
    pub(super) fn hasten_beacons(&mut self) {
        if let Some(beacons) = &mut self.beacons {
            beacons.sent_at = None;
        }
    }

    fn turn_beacons(&mut self, beacons: &mut Beacons) -> io::Result<()> {
        let places = beacons.places(&self.listen, self.address.ip())?;
        // What is sent to a group does not come to a socket that is bound to another address.
        if self.address.ip().is_unspecified() {
            self.follow_groups(&mut beacons.joined, &places);
        }
        let beacon = if beacons.sends { self.endpoint.beacon() } else { None };
        let Some(beacon) = beacon else { return Ok(()) };
        for place in &places {
            let group = place.aim(&self.listen, self.address.port());
            let sent = group.and_then(|group| self.listen.send_to(&beacon, self.mapped(group)));
            if let Err(error) = sent {
                tracing::debug!(%error, ?place, "a beacon was not sent");
            }
        }
        Ok(())
    }

    fn follow_groups(&mut self, joined: &mut BTreeSet<Group>, places: &BTreeSet<Place>) {
        let wanted: BTreeSet<Group> = places.iter().map(Place::group).collect();
        joined.difference(&wanted).for_each(|gone| gone.leave(&self.listen));
        joined.retain(|group| wanted.contains(group));
        for &group in wanted.difference(&joined.clone()) {
            if let Err(error) = group.join(&self.listen) {
                let family = if group.is_v6 { "IPv6" } else { "IPv4" };
                let (now, index) = (self.now(), group.interface);
                let text = format!("no beacons over {family} on interface {index}: {error}");
                self.topics.notice(now, Cause::Here, &text);
            } else {
                joined.insert(group);
            }
        }
    }
}
