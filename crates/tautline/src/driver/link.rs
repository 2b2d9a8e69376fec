// SPDX-License-Identifier: Apache-2.0
//! One link: its entry in the file, its path, and its sockets.

use super::entry::FileEntry;
use super::listen::{Listen, tag};
use super::ports::{SourcePort, Trial, fresh_port};
use crate::config::Budget;
use crate::route::{self, Path};
use crate::udp::{LinkSocket, PartialSendError};
use std::io;
use std::net::{IpAddr, SocketAddr};
use tautline_proto::{Class, Endpoint, Instant, LinkId, Marking, Transmit};

pub(super) const HEADER_V4: usize = 28;
const HEADER_V6: usize = 48;

pub(super) struct Link {
    pub(super) id: LinkId,
    /// Entry of the file that the link represents; `None` after its removal.
    pub(super) entry: Option<FileEntry>,
    /// Number under which the link's path is watched.
    pub(super) watch: Option<u64>,
    /// One socket for each class, or one for all without marking, then the socket of the trial, if
    /// there is one. Empty while they cannot be opened.
    pub(super) sockets: Vec<ClassSocket>,
    pub(super) path: Option<Path>,
    /// Source address of this node's packets on the link, once the peer's packets have revealed it.
    pub(super) source: Option<IpAddr>,
    pub(super) port: SourcePort,
    pub(super) device: Option<String>,
    /// Whether the link has no configured address and leads to the address from which the peer
    /// initiated the handshake.
    pub(super) follows_initiator: bool,
    /// The bytes of the link that are already counted in its budget.
    pub(super) counted_bytes: u64,
}

pub(super) struct ClassSocket {
    pub(super) class: Class,
    pub(super) socket: LinkSocket,
    /// Whether the socket may hold more datagrams than were read.
    pub(super) readable: bool,
    /// Whether the socket belongs to a trial of another source port. It then sends only copies.
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

    /// The index of the link in the tables of the node.
    pub(super) fn index(&self) -> usize {
        self.id.0 as usize
    }

    /// The budget of the link, if it has one.
    pub(super) fn budget(&self) -> Option<Budget> {
        match &self.entry {
            Some(FileEntry::WithAddress(config)) => config.budget,
            _ => None,
        }
    }

    /// Whether packets arrive on the link and the peer acknowledges packets.
    pub(super) fn is_heard(&self, endpoint: &Endpoint) -> bool {
        endpoint.link(self.id).is_some_and(|view| view.up && !view.silent)
    }

    /// Removes the link: closes its sockets and frees its slot for another link.
    pub(super) fn close(&mut self) {
        *self = Self::new(self.id);
    }

    /// Sends a packet of a link that the protocol has removed.
    pub(super) fn send_last(&mut self, transmit: &Transmit) -> io::Result<()> {
        let packets = std::slice::from_ref(transmit);
        self.socket_of(transmit.class)
            .map_or(Ok(()), |socket| send(socket, packets).map(drop).map_err(|it| it.error))
    }

    /// Finds the current path to the address from which the peer initiated the handshake.
    pub(super) fn route(&self, remote: SocketAddr) -> io::Result<Path> {
        let mtu = self.entry.as_ref().and_then(FileEntry::mtu_without_address);
        route::route(remote, self.device.as_deref(), mtu)
    }

    /// Returns the socket that sends packets of this class.
    pub(super) fn socket_of(&mut self, class: Class) -> Option<&mut LinkSocket> {
        let mut own = self.sockets.iter_mut().filter(|it| !it.is_trial);
        own.find(|it| it.class == class).map(|it| &mut it.socket)
    }

    /// Returns the address and port of this node from which the link sends.
    pub(super) fn node(&self, listen: &Listen) -> SocketAddr {
        SocketAddr::new(listen.address.ip(), self.port.port_or(listen.address.port()))
    }

    /// Opens the sockets of all classes on a path.
    pub(super) fn open_sockets(
        &self,
        listen: &Listen,
        marking: Option<&Marking>,
        path: &Path,
    ) -> io::Result<Vec<ClassSocket>> {
        let node = self.node(listen);
        let open = |source| {
            let open = |(place, (class, dscp))| {
                let (local, device) = ((node, source), self.device.as_deref());
                let socket = LinkSocket::connect(path.clone(), local, device, dscp)?;
                socket.register(listen.poll(), tag(self.index(), place))?;
                Ok(ClassSocket { class, socket, readable: true, is_trial: false })
            };
            marks(marking).into_iter().enumerate().map(open).collect::<io::Result<_>>()
        };
        match open(self.source) {
            // The machine no longer has the source address.
            Err(_) if self.source.is_some() => open(None),
            result => result,
        }
    }
}

/// Trials of other source ports.
impl Link {
    pub(super) fn end_trial(&mut self) {
        self.sockets.retain(|it| !it.is_trial);
    }

    pub(super) fn begin_trial(&mut self, listen: &Listen, marking: Option<&Marking>, trial: Trial) {
        self.end_trial();
        let Some(path) = &self.path else { return };
        let port = match trial {
            Trial::Node => Some(listen.address.port()),
            Trial::Fresh => fresh_port(path.remote.is_ipv6()).ok(),
        };
        self.port.try_port(port);
        self.open_trial(listen, marking);
    }

    /// Opens the socket of the trial, if one is under way. If that fails, only the trial fails.
    pub(super) fn open_trial(&mut self, listen: &Listen, marking: Option<&Marking>) {
        let Some((path, port)) = self.path.clone().zip(self.port.tried_port()) else { return };
        // Packets without messages have the highest class.
        let Some((class, dscp)) = marks(marking).pop() else { return };
        let node = SocketAddr::new(listen.address.ip(), port);
        let tag = tag(self.index(), self.sockets.len());
        let open = || -> io::Result<ClassSocket> {
            let socket =
                LinkSocket::connect(path, (node, self.source), self.device.as_deref(), dscp)?;
            socket.register(listen.poll(), tag)?;
            Ok(ClassSocket { class, socket, readable: true, is_trial: true })
        };
        match open() {
            Ok(socket) => self.sockets.push(socket),
            Err(error) => tracing::debug!(%error, port, "cannot try another source port"),
        }
    }

    /// Sends copies of packets without messages through the socket of the trial. The copies follow
    /// the originals. Where the link's own port works, the peer therefore drops them as duplicates,
    /// and does not believe that this node has moved.
    pub(super) fn copy_to_trial(&mut self, now: Instant, packets: &[Transmit]) {
        let trial = self.sockets.iter_mut().find(|it| it.is_trial);
        let (Some(trial), Some(packet)) = (trial, packets.first()) else { return };
        let header_bytes = header_bytes(packet.remote);
        if packet.priority.is_some()
            || trial.socket.path.remote != packet.remote
            || !self.port.takes_copy(now)
        {
            return;
        }
        match trial.socket.send(&[&packet.datagram], header_bytes, packet.ecn) {
            Ok(_) => self.port.copied_bytes += (packet.datagram.len() + header_bytes) as u64,
            Err(not_sent) => tracing::debug!(error = %not_sent.error, "a copy was not sent"),
        }
    }
}

/// Sends packets of one link; returns the IP bytes in the kernel.
pub(super) fn send(
    socket: &mut LinkSocket,
    packets: &[Transmit],
) -> Result<usize, PartialSendError> {
    let Some(first) = packets.first() else { return Ok(socket.in_flight()) };
    let datagrams: Vec<&[u8]> = packets.iter().map(|it| &it.datagram[..]).collect();
    socket.send(&datagrams, header_bytes(first.remote), first.ecn)
}

/// Returns the bytes that IP and UDP add to a datagram.
pub(super) fn header_bytes(remote: SocketAddr) -> usize {
    if remote.is_ipv6() { HEADER_V6 } else { HEADER_V4 }
}

/// Returns the classes that have sockets of their own, each with its DSCP.
fn marks(marking: Option<&Marking>) -> Vec<(Class, u8)> {
    match marking {
        Some(marking) => Class::ALL.map(|class| (class, marking.dscp(class))).to_vec(),
        None => vec![(Class::BestEffort, 0)],
    }
}
