// SPDX-License-Identifier: Apache-2.0
//! Packets of links: the sockets of each link and the addresses that they lead to.

use super::Driver;
use super::peers::FileEntry;
use super::ports::SourcePort;
use super::usage::Admission;
use crate::config::Budget;
use crate::limits::TIME_SHARE;
use crate::paths::{self, Path};
use crate::udp::{self, Datagram, Inbox, LinkSocket, NotSent};
use rustix::event::epoll;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tautline_proto::{Class, Instant, LinkConfig, LinkId, Marking, RadioId, Transmit};

/// Time after which the next socket is read, even after few datagrams: the effects of one packet
/// may take hundreds of microseconds.
const READ_TIME: Duration = Duration::from_micros(200);
/// Maximum number of packets sent before inputs are checked again, if the kernel takes all of them
/// immediately: two full trains.
const TRANSMIT_BATCH: usize = 88;
/// Maximum number of strangers per second whose route is looked up; a lookup takes the time of
/// several packets.
const MAX_STRANGERS: usize = 32;
pub(super) const HEADER_V4: usize = 28;
const HEADER_V6: usize = 48;
/// Maximum number of sockets of a link: one for each class, and that of a trial.
const MAX_SOCKETS: usize = Class::ALL.len() + 1;

pub(super) struct Link {
    pub(super) id: LinkId,
    /// Entry of the file that the link represents; `None` after its removal.
    pub(super) entry: Option<FileEntry>,
    /// Number under which the link's path is watched.
    pub(super) watch: Option<u64>,
    /// One socket for each marked class, then that of a trial; empty while they cannot be opened.
    pub(super) sockets: Vec<ClassSocket>,
    pub(super) path: Option<Path>,
    /// Source address of its packets, if the peer's packets have shown which.
    pub(super) source: Option<IpAddr>,
    pub(super) port: SourcePort,
    pub(super) device: Option<String>,
    /// Whether the link has no configured address and leads to the address from which the peer
    /// initiated the handshake.
    pub(super) follows_initiator: bool,
    /// The part of its bytes that is counted in its budget.
    pub(super) counted_bytes: u64,
}

pub(super) struct ClassSocket {
    pub(super) class: Class,
    pub(super) socket: LinkSocket,
    /// Whether the socket may hold more datagrams than were read.
    pub(super) readable: bool,
    /// Whether it tries another source port, and sends only copies.
    pub(super) is_trial: bool,
}

impl Link {
    pub(super) fn new(id: LinkId) -> Self {
        Self {
            id,
            entry: None,
            watch: None,
            sockets: Vec::new(),
            path: None,
            source: None,
            port: SourcePort::default(),
            device: None,
            follows_initiator: false,
            counted_bytes: 0,
        }
    }

    /// The budget of the link, if it has one.
    pub(super) fn budget(&self) -> Option<Budget> {
        match &self.entry {
            Some(FileEntry::To(config)) => config.budget,
            _ => None,
        }
    }

    /// Removes the link: closes its sockets and frees its slot for another link.
    pub(super) fn close(&mut self) {
        *self = Self::new(self.id);
    }

    /// Sends a packet that the protocol no longer counts.
    pub(super) fn send_last(&mut self, transmit: &Transmit) -> io::Result<()> {
        let packets = std::slice::from_ref(transmit);
        self.socket_of(transmit.class)
            .map_or(Ok(()), |socket| send(socket, packets).map(drop).map_err(|it| it.error))
    }

    /// Finds the current path to the address from which the peer initiated the handshake.
    fn route(&self, remote: SocketAddr) -> io::Result<Path> {
        let mtu = self.entry.as_ref().and_then(FileEntry::mtu_back);
        paths::route(remote, self.device.as_deref(), mtu)
    }

    fn socket_of(&mut self, class: Class) -> Option<&mut LinkSocket> {
        let mut own = self.sockets.iter_mut().filter(|it| !it.is_trial);
        own.find(|it| it.class == class).map(|it| &mut it.socket)
    }
}

/// Sends packets of one link; returns the IP bytes in the kernel.
fn send(socket: &mut LinkSocket, packets: &[Transmit]) -> Result<usize, NotSent> {
    let Some(first) = packets.first() else { return Ok(socket.in_flight()) };
    let datagrams: Vec<&[u8]> = packets.iter().map(|it| &it.datagram[..]).collect();
    socket.send(&datagrams, header_bytes(first.remote), first.ecn)
}

/// Returns the bytes that IP and UDP add to a datagram.
pub(super) fn header_bytes(remote: SocketAddr) -> usize {
    if remote.is_ipv6() { HEADER_V6 } else { HEADER_V4 }
}

/// Returns the epoll tag of a link's socket: the link's number and the socket's index in the link.
pub(super) fn tag(link: usize, place: usize) -> u64 {
    super::TAG_LINKS + (link * MAX_SOCKETS + place) as u64
}

/// Returns the classes with sockets of their own, and their DSCPs.
pub(super) fn marks(marking: Option<&Marking>) -> Vec<(Class, u8)> {
    match marking {
        Some(marking) => Class::ALL.map(|class| (class, marking.dscp(class))).to_vec(),
        None => vec![(Class::BestEffort, 0)],
    }
}

/// Receiving.
impl Driver {
    /// Handles an epoll event; `number` is the [`tag`] without its offset.
    pub(super) fn link_ready(&mut self, number: usize, flags: epoll::EventFlags) {
        let now = self.now();
        let (index, place) = (number / MAX_SOCKETS, number % MAX_SOCKETS);
        let Some(link) = self.links.get_mut(index) else { return };
        let Some(of_class) = link.sockets.get_mut(place) else { return };
        let failed = epoll::EventFlags::ERR | epoll::EventFlags::HUP;
        of_class.readable |= flags.intersects(epoll::EventFlags::IN | failed);
        if of_class.is_trial {
            return;
        }
        let in_flight = of_class.socket.in_flight();
        self.endpoint.link_mut(link.id).handle_in_flight(now, of_class.class, in_flight);
    }

    /// Whether a link's sockets may hold more datagrams than were read.
    pub(super) fn links_readable(&self) -> bool {
        self.links.iter().flat_map(|link| &link.sockets).any(|it| it.readable)
    }

    pub(super) fn read_sockets(&mut self) {
        for index in 0..self.links.len() {
            for place in 0..self.links[index].sockets.len() {
                if self.links[index].sockets[place].readable {
                    self.read_link(index, place);
                }
            }
        }
        if self.listen_readable {
            self.read_listen();
        }
    }

    fn read_link(&mut self, index: usize, place: usize) {
        // That of the socket, not of the link: the link may have moved to another radio by mistake, and
        // returns by what its own socket receives.
        let path = &self.links[index].sockets[place].socket.path;
        let (from, interface) = (path.remote, path.interface.clone());
        let radio = self.radio(&interface);
        let was_heard = self.is_heard(index);
        let mut is_answered = false;
        let begun = self.now();
        let mut inbox = std::mem::take(&mut self.inbox);
        let mut now = begun;
        while self.links[index].sockets[place].readable && now.since(begun) <= READ_TIME {
            let before = now;
            let ClassSocket { socket, readable, .. } = &mut self.links[index].sockets[place];
            match socket.receive(&mut inbox) {
                Ok(()) => *readable = !inbox.is_socket_empty,
                Err(error) if error.kind() == ErrorKind::WouldBlock => *readable = false,
                // This is an ICMP error of an earlier packet; reading it cleared it.
                Err(_) => {}
            }
            let local = Some(socket.local);
            let received = self.now();
            now = received;
            while let Some(mut datagram) = inbox.take(now.since(received)) {
                datagram.arrival.local = local;
                is_answered |= self.handle_datagram(&mut now, radio, from, &mut inbox, &datagram);
            }
            inbox.adapt(now.since(before), READ_TIME);
        }
        self.inbox = inbox;
        let is_answered = is_answered || self.is_heard(index);
        if self.links[index].sockets[place].is_trial && !was_heard && is_answered {
            self.adopt_trial(index);
        }
    }

    fn read_listen(&mut self) {
        let mut inbox = std::mem::take(&mut self.inbox);
        let received = inbox.receive(&self.listen);
        let is_empty = match received {
            Ok(()) => inbox.is_socket_empty,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        };
        self.listen_readable = !is_empty;
        let received = self.now();
        let mut now = received;
        while let Some(datagram) = inbox.take(now.since(received)) {
            let radio = self.radio_towards(datagram.from, inbox.bytes(&datagram));
            now = self.now();
            self.handle_datagram(&mut now, radio, datagram.from, &mut inbox, &datagram);
        }
        self.inbox = inbox;
    }

    /// Handles a datagram unless its sender has used up its share of the loop's time. Returns whether it
    /// is a packet of a session. `now` moves to the time of its end.
    fn handle_datagram(
        &mut self,
        now: &mut Instant,
        radio: RadioId,
        from: SocketAddr,
        inbox: &mut Inbox,
        datagram: &Datagram,
    ) -> bool {
        let (begun, arrival) = (*now, datagram.arrival);
        let datagram = inbox.bytes_mut(datagram);
        let endpoint = &mut self.endpoint;
        let claimed = endpoint.claimed_sender(datagram);
        match claimed.map_or(Admission::Granted, |peer| self.usage.admit(begun, peer)) {
            Admission::Granted => {
                let sender = endpoint.handle_packet_in_place(begun, arrival, radio, from, datagram);
                *now = self.clock.now();
                if let Some(peer) = sender {
                    self.usage.charge(begun, *now, peer);
                }
                return sender.is_some();
            }
            Admission::Denied { is_first: false } => {}
            Admission::Denied { is_first: true } => {
                let Some(peer) = claimed else { return false };
                let text = format!(
                    "packets of '{}' take more than {:.0} % of the data plane's time at '{}'; the excess is \
                     dropped",
                    endpoint.peer(peer).name,
                    TIME_SHARE * 100.0,
                    endpoint.name(),
                );
                self.shared.peer_notice(begun, peer, &text);
            }
        }
        false
    }

    /// Returns the radio by which responses to `from`, the source of a datagram, leave. Packets that anybody can forge cause no lookup: under flood the lookups alone
    /// would delay the loop for a hundredth of its time.
    fn radio_towards(&mut self, from: SocketAddr, datagram: &[u8]) -> RadioId {
        let endpoint = &self.endpoint;
        let mut known = self.links.iter();
        if let Some(link) = known.find(|l| l.path.as_ref().is_some_and(|p| p.remote == from)) {
            return endpoint.link(link.id).map_or(self.unknown_radio, |view| view.radio);
        }
        if let Some(&radio) = self.strangers.get(&from.ip()) {
            return radio;
        }
        let matters = endpoint.bears_our_number(datagram);
        if !matters || self.strangers.len() == MAX_STRANGERS {
            return self.unknown_radio;
        }
        let radio = match paths::route(from, None, None) {
            Ok(path) => self.radio(&path.interface),
            Err(_) => self.unknown_radio,
        };
        self.strangers.insert(from.ip(), radio);
        radio
    }
}

/// Sockets.
impl Driver {
    /// Sets the path of a link, unless the link was removed meanwhile.
    pub(super) fn take_path(&mut self, watch: u64, path: Path) {
        let of_watch = |link: &Link| link.watch == Some(watch);
        if let Some(index) = self.links.iter().position(of_watch) {
            self.set_path(index, path);
        }
    }

    /// Opens the sockets of a link, or moves them to another path.
    fn set_path(&mut self, index: usize, path: Path) {
        let now = self.now();
        let radio = self.radio(&path.interface);
        let header_bytes = header_bytes(path.remote);
        let metered = self.links[index].entry.as_ref().is_some_and(FileEntry::is_metered);
        let config = LinkConfig {
            remote: Some(path.remote),
            datagram_bytes: path.mtu.saturating_sub(header_bytes),
            header_bytes,
            metered,
        };
        let id = self.links[index].id;
        if let Err(error) = self.endpoint.link_mut(id).set_path(now, radio, config) {
            let text = format!("{} by {}: {error}", path.remote, path.interface);
            return self.link_notice(index, &text);
        }
        self.use_path(index, path);
    }

    fn use_path(&mut self, index: usize, path: Path) {
        self.reporter.limit_mtu(self.links[index].id, path.mtu_is_configured);
        self.links[index].path = Some(path);
        self.connect(index);
    }

    pub(super) fn connect(&mut self, index: usize) {
        let link = &mut self.links[index];
        let Some(path) = link.path.clone() else { return };
        let text = format!("{} by {}", path.remote, path.interface);
        link.sockets.clear();
        link.source = self.endpoint.link(link.id).and_then(|view| view.local_address());
        let node = SocketAddr::new(self.address.ip(), link.port.or_node(self.address.port()));
        let open = |source| {
            let open = |(place, (class, dscp))| {
                let (local, device) = ((node, source), link.device.as_deref());
                let socket = LinkSocket::connect(path.clone(), local, device, dscp)?;
                socket.register(&self.poll, tag(index, place))?;
                Ok(ClassSocket { class, socket, readable: true, is_trial: false })
            };
            let marks = marks(self.config.marking.as_ref()).into_iter().enumerate();
            marks.map(open).collect::<io::Result<_>>()
        };
        let opened = match open(link.source) {
            // The machine no longer has the address.
            Err(_) if link.source.is_some() => open(None),
            result => result,
        };
        match opened {
            Ok(sockets) => {
                link.sockets = sockets;
                if let Some(first) = link.sockets.first() {
                    let own = SocketAddr::new(first.socket.local.to_canonical(), node.port());
                    self.endpoint.link_mut(link.id).set_own_address(own);
                }
                self.open_trial(index);
            }
            Err(error) => {
                self.link_notice(index, &format!("{text}: cannot open a socket: {error}"));
            }
        }
    }

    /// Reopens sockets that failed to open. Resets links of peers that are down and may initiate
    /// the next handshake from another address.
    pub(super) fn sweep_links(&mut self) {
        self.strangers.clear();
        for index in 0..self.links.len() {
            let link = &mut self.links[index];
            let is_up = self.endpoint.link(link.id).is_some_and(|view| view.up);
            if link.follows_initiator && !is_up {
                // The local address on the path to the peer may have changed as well.
                (link.path, link.sockets) = (None, Vec::new());
            } else if link.sockets.is_empty() {
                self.connect(index);
            }
        }
    }

    /// Checks the routes to peers that initiated the handshake: the local address may have changed.
    pub(super) fn refresh_followers(&mut self) {
        self.strangers.clear();
        for index in 0..self.links.len() {
            let link = &self.links[index];
            let Some(path) = link.path.clone().filter(|_| link.follows_initiator) else { continue };
            if link.route(path.remote).is_ok_and(|now| now != path) {
                self.links[index].path = None;
                self.follow_initiator(index, path.remote);
                let (now, id) = (self.now(), self.links[index].id);
                self.endpoint.link_mut(id).announce_move(now);
            }
        }
    }

    /// Connects a link to the address to which the protocol sends, from the address at which the peer's
    /// packets arrive.
    fn follow_addresses(&mut self, index: usize, remote: SocketAddr) {
        self.follow_initiator(index, remote);
        let link = &mut self.links[index];
        let source = self.endpoint.link(link.id).and_then(|view| view.local_address());
        if source == link.source {
            return;
        }
        // Sockets that have the address already keep what they received.
        if source.is_some() && link.sockets.iter().all(|it| Some(it.socket.local) == source) {
            link.source = source;
        } else {
            self.connect(index);
        }
    }

    /// Connects a link to the address from which its peer initiated the handshake, or to which the
    /// peer moved.
    fn follow_initiator(&mut self, index: usize, remote: SocketAddr) {
        let link = &mut self.links[index];
        if link.path.as_ref().is_some_and(|p| p.remote == remote) {
            return;
        }
        (link.path, link.sockets) = (None, Vec::new());
        let id = link.id;
        let found = link.route(remote);
        if let Ok(path) = &found {
            let radio = self.radio(&path.interface);
            if self.endpoint.link(id).is_some_and(|link| link.shuns(radio)) {
                let interface = &path.interface;
                tracing::info!(%remote, interface, "no direct path by an interface that costs money");
                let now = self.now();
                return self.endpoint.link_mut(id).forget_direct_path(now);
            }
        }
        let fits = found.map_err(|error| error.to_string()).and_then(|path| {
            let header_bytes = header_bytes(remote);
            let datagram_bytes = path.mtu.saturating_sub(header_bytes);
            let radio = self.radio(&path.interface);
            let set = self.endpoint.link_mut(id).set_route(radio, datagram_bytes, header_bytes);
            set.map(|()| path).map_err(|error| error.to_string())
        });
        match fits {
            Ok(path) => self.use_path(index, path),
            Err(error) => {
                self.link_notice(index, &format!("{remote}: no route to this address: {error}"));
            }
        }
    }

    /// Logs a notice about a link under the name of its peer, which determines where the link
    /// leads.
    fn link_notice(&mut self, index: usize, text: &str) {
        let Some(view) = self.endpoint.link(self.links[index].id) else { return };
        self.shared.peer_notice(self.now(), view.peer, text);
    }
}

/// Sending.
impl Driver {
    /// Sends the packets that may leave now; sets `unsent` if there may be more.
    pub(super) fn transmit(&mut self) {
        for _ in 0..TRANSMIT_BATCH {
            let now = self.now();
            let Some(transmit) = self.endpoint.poll_transmit(now) else {
                // What leaves may make room for more.
                if self.send_train(None) {
                    continue;
                }
                self.unsent = false;
                return;
            };
            let endpoint = &self.endpoint;
            let rate_bps = transmit.link.and_then(|id| endpoint.pacing_rate(id));
            if !self.train.takes(&transmit, rate_bps) {
                self.send_train(Some(&transmit));
            }
            self.train.push(transmit);
        }
        self.send_train(None);
        self.unsent = true;
    }

    /// Sends the packets that were built; returns whether more may leave now. `next` was built after
    /// them.
    fn send_train(&mut self, next: Option<&Transmit>) -> bool {
        let packets = self.train.depart();
        let Some(first) = packets.first() else { return false };
        match first.link {
            Some(id) => {
                // The protocol counts the next packet as in flight already.
                let next = next.filter(|it| it.link == first.link && it.class == first.class);
                let next_bytes = next.map_or(0, |it| it.datagram.len() + header_bytes(it.remote));
                self.send_on(id, first, &packets, next_bytes);
            }
            None => packets.iter().for_each(|it| self.send_unlinked(it)),
        }
        packets.into_iter().for_each(|it| self.endpoint.recycle(it.datagram));
        true
    }

    fn send_on(&mut self, id: LinkId, first: &Transmit, packets: &[Transmit], next_bytes: usize) {
        let index = id.0 as usize;
        self.follow_addresses(index, first.remote);
        let class = first.class;
        // A reply to a packet at another address, which need not be the peer's.
        let is_elsewhere = first.local.is_some() && first.local != self.links[index].source;
        let in_flight = match self.links[index].socket_of(class) {
            Some(socket) if is_elsewhere && first.local != Some(socket.local) => {
                let in_flight = socket.in_flight();
                packets.iter().for_each(|it| self.send_unlinked(it));
                in_flight
            }
            Some(socket) => match send(socket, packets) {
                Ok(in_flight) => in_flight,
                Err(NotSent { sent, error }) => {
                    tracing::debug!(%error, remote = %first.remote, "a packet was not sent");
                    // Anybody can forge the ICMP message that has this effect on the next packet; only
                    // the interface itself is believed.
                    if udp::is_too_large(&error)
                        && let Ok(mtu) = socket.interface_mtu()
                    {
                        let now = self.clock.now();
                        let most = mtu.saturating_sub(header_bytes(first.remote));
                        for it in packets[sent..].iter().filter(|it| it.datagram.len() > most) {
                            self.endpoint.link_mut(id).handle_refused(now, &it.datagram);
                        }
                    }
                    socket.in_flight()
                }
            },
            None => 0,
        };
        let in_flight = in_flight + next_bytes;
        self.copy_to_trial(index, packets);
        self.endpoint.link_mut(id).handle_in_flight(self.clock.now(), class, in_flight);
    }

    /// Sends a reply, which is not worth a second attempt.
    fn send_unlinked(&self, transmit: &Transmit) {
        let Transmit { datagram, local, remote, .. } = transmit;
        if let Err(error) = self.listen.send(datagram, *local, self.mapped(*remote)) {
            tracing::debug!(%error, %remote, "a reply was not sent");
        }
    }

    /// Converts an address for the listening socket.
    pub(super) fn mapped(&self, remote: SocketAddr) -> SocketAddr {
        match remote {
            SocketAddr::V4(v4) if self.address.is_ipv6() => {
                SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port())
            }
            _ => remote,
        }
    }
}
