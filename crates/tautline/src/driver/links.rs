// SPDX-License-Identifier: Apache-2.0
//! The links of the node: where they lead, and the sockets that are open for them.

use super::common::Common;
use super::entry::FileEntry;
use super::link::{Link, header_bytes};
use super::listen::Listen;
use super::radios::Radios;
use crate::paths::Paths;
use crate::route::Path;
use rustix::event::epoll;
use std::net::SocketAddr;
use tautline_proto::{Class, Instant, LinkConfig, Transmit};

pub(super) struct Links {
    /// The links; the index of a link is its id.
    pub(super) table: Vec<Link>,
    pub(super) radios: Radios,
    /// Watches the paths to peers; set while the loop runs.
    pub(super) paths: Option<Paths>,
    /// Number given to the last path that was watched.
    pub(super) next_watch: u64,
}

impl Links {
    pub(super) fn new(radios: Radios) -> Self {
        Self { table: Vec::new(), radios, paths: None, next_watch: 0 }
    }

    /// Handles an event of a link's socket.
    pub(super) fn on_ready(
        &mut self,
        common: &mut Common,
        (index, place): (usize, usize),
        flags: epoll::EventFlags,
    ) {
        let now = common.now();
        let Some(link) = self.table.get_mut(index) else { return };
        let Some(of_class) = link.sockets.get_mut(place) else { return };
        let failed = epoll::EventFlags::ERR | epoll::EventFlags::HUP;
        of_class.readable |= flags.intersects(epoll::EventFlags::IN | failed);
        if of_class.is_trial {
            return;
        }
        let in_flight = of_class.socket.in_flight();
        common.endpoint.link_mut(link.id).handle_in_flight(now, of_class.class, in_flight);
    }

    /// Whether any socket of a link may hold more datagrams than were read.
    pub(super) fn are_readable(&self) -> bool {
        self.table.iter().flat_map(|link| &link.sockets).any(|it| it.readable)
    }

    /// Sets the path of a link, unless the link has been removed since.
    pub(super) fn take_path(&mut self, common: &mut Common, watch: u64, path: Path) {
        let of_watch = |link: &Link| link.watch == Some(watch);
        if let Some(index) = self.table.iter().position(of_watch) {
            self.set_path(common, index, path);
        }
    }

    /// Opens the sockets of a link, or moves them to another path.
    fn set_path(&mut self, common: &mut Common, index: usize, path: Path) {
        let now = common.now();
        let radio = self.radios.get_or_add(common, &path.interface);
        let header_bytes = header_bytes(path.remote);
        let link = &self.table[index];
        let config = LinkConfig {
            remote: Some(path.remote),
            datagram_bytes: path.mtu.saturating_sub(header_bytes),
            header_bytes,
            metered: link.entry.as_ref().is_some_and(FileEntry::is_metered),
        };
        if let Err(error) = common.endpoint.link_mut(link.id).set_path(now, radio, config) {
            let text = format!("{} by {}: {error}", path.remote, path.interface);
            return notice(common, link, &text);
        }
        self.use_path(common, index, path);
    }

    fn use_path(&mut self, common: &mut Common, index: usize, path: Path) {
        let link = &mut self.table[index];
        common.reporter.limit_mtu(link.id, path.mtu_is_configured);
        link.path = Some(path);
        connect(common, link);
    }

    /// Opens the sockets of all links again, because each class has a socket with its own mark. The
    /// closed sockets no longer report what the kernel holds, so these bytes are set to zero.
    pub(super) fn reconnect(&mut self, common: &mut Common) {
        for link in self.table.iter_mut().filter(|link| link.path.is_some()) {
            connect(common, link);
            let now = common.now();
            for class in Class::ALL {
                common.endpoint.link_mut(link.id).handle_in_flight(now, class, 0);
            }
        }
    }

    /// Reopens sockets that failed to open. Resets links of peers that are down and may initiate
    /// the next handshake from another address.
    pub(super) fn sweep(&mut self, common: &mut Common) {
        self.radios.forget_strangers();
        for link in &mut self.table {
            let is_up = common.endpoint.link(link.id).is_some_and(|view| view.up);
            if link.follows_initiator && !is_up {
                // The local address on the path to the peer may have changed as well.
                (link.path, link.sockets) = (None, Vec::new());
            } else if link.sockets.is_empty() {
                connect(common, link);
            }
        }
    }

    /// Begins, continues or ends the search of each link for another source port; called once per second.
    pub(super) fn sweep_ports(&mut self, common: &Common, now: Instant) {
        for link in &mut self.table {
            let seeks =
                matches!(link.entry, Some(FileEntry::WithAddress(_))) && !link.sockets.is_empty();
            if !seeks || link.is_heard(&common.endpoint) {
                link.end_trial();
                link.port.end_search();
                continue;
            }
            if let Some(trial) = link.port.next_trial(now) {
                link.begin_trial(&common.listen, common.config.marking.as_ref(), trial);
            }
        }
    }

    /// Makes the port of the trial the port of the link, because an authentic answer reached it.
    pub(super) fn adopt_trial(&mut self, common: &mut Common, index: usize) {
        let link = &mut self.table[index];
        let Some(port) = link.port.adopt(common.listen.address.port()) else { return };
        let Some(view) = common.endpoint.link(link.id) else { return };
        let peer = common.endpoint.peer(view.peer).name;
        tracing::info!(peer, port, "another source port is answered, the previous one was not");
        connect(common, link);
    }

    /// Checks the routes to peers that initiated the handshake: the local address may have changed.
    pub(super) fn refresh_followers(&mut self, common: &mut Common) {
        self.radios.forget_strangers();
        for index in 0..self.table.len() {
            let link = &self.table[index];
            let Some(path) = link.path.clone().filter(|_| link.follows_initiator) else { continue };
            if link.route(path.remote).is_ok_and(|now| now != path) {
                self.table[index].path = None;
                self.follow_initiator(common, index, path.remote);
                let now = common.now();
                common.endpoint.link_mut(self.table[index].id).announce_move(now);
            }
        }
    }

    /// Connects a link to the address to which the protocol sends, from the address at which the peer's
    /// packets arrive.
    pub(super) fn follow_addresses(
        &mut self,
        common: &mut Common,
        index: usize,
        remote: SocketAddr,
    ) {
        self.follow_initiator(common, index, remote);
        let link = &mut self.table[index];
        let source = common.endpoint.link(link.id).and_then(|view| view.local_address());
        if source == link.source {
            return;
        }
        // Sockets that already have this address stay open, and keep the datagrams in them.
        if source.is_some() && link.sockets.iter().all(|it| Some(it.socket.local) == source) {
            link.source = source;
        } else {
            connect(common, link);
        }
    }

    /// Connects a link to the address from which its peer initiated the handshake, or to which the
    /// peer moved.
    fn follow_initiator(&mut self, common: &mut Common, index: usize, remote: SocketAddr) {
        let link = &mut self.table[index];
        if link.path.as_ref().is_some_and(|p| p.remote == remote) {
            return;
        }
        (link.path, link.sockets) = (None, Vec::new());
        let id = link.id;
        let found = link.route(remote);
        if let Ok(path) = &found {
            let radio = self.radios.get_or_add(common, &path.interface);
            if common.endpoint.link(id).is_some_and(|link| link.avoids_radio(radio)) {
                let interface = &path.interface;
                tracing::info!(%remote, interface, "no direct path by an interface that costs money");
                let now = common.now();
                return common.endpoint.link_mut(id).forget_direct_path(now);
            }
        }
        let fits = found.map_err(|error| error.to_string()).and_then(|path| {
            let header_bytes = header_bytes(remote);
            let datagram_bytes = path.mtu.saturating_sub(header_bytes);
            let radio = self.radios.get_or_add(common, &path.interface);
            let set = common.endpoint.link_mut(id).set_route(radio, datagram_bytes, header_bytes);
            set.map(|()| path).map_err(|error| error.to_string())
        });
        match fits {
            Ok(path) => self.use_path(common, index, path),
            Err(error) => {
                let text = format!("{remote}: no route to this address: {error}");
                notice(common, &self.table[index], &text);
            }
        }
    }

    /// Sends a packet of a link that the protocol has removed.
    pub(super) fn send_last(&mut self, transmit: &Transmit) {
        let Some(id) = transmit.link else { return };
        let Some(link) = self.table.get_mut(id.0 as usize) else { return };
        if let Err(error) = link.send_last(transmit) {
            tracing::debug!(%error, remote = %transmit.remote, "a goodbye was not sent");
        }
    }
}

/// Opens the sockets of a link on its path.
fn connect(common: &mut Common, link: &mut Link) {
    let Some(path) = link.path.clone() else { return };
    link.sockets.clear();
    link.source = common.endpoint.link(link.id).and_then(|view| view.local_address());
    let marking = common.config.marking.as_ref();
    match link.open_sockets(&common.listen, marking, &path) {
        Ok(sockets) => {
            link.sockets = sockets;
            if let Some(own) = own_address(link, &common.listen) {
                common.endpoint.link_mut(link.id).set_own_address(own);
            }
            link.open_trial(&common.listen, marking);
        }
        Err(error) => {
            let text =
                format!("{} by {}: cannot open a socket: {error}", path.remote, path.interface);
            notice(common, link, &text);
        }
    }
}

/// Returns the address from which packets of a link leave.
fn own_address(link: &Link, listen: &Listen) -> Option<SocketAddr> {
    let first = link.sockets.first()?;
    Some(SocketAddr::new(first.socket.local.to_canonical(), link.node(listen).port()))
}

/// Adds a notice about a link under the name of its peer, because the peer determines where the link leads.
fn notice(common: &mut Common, link: &Link, text: &str) {
    let Some(view) = common.endpoint.link(link.id) else { return };
    common.shared.peer_notice(common.clock.now(), view.peer, text);
}
