// SPDX-License-Identifier: Apache-2.0
//! Source ports of links. An address translator on the path may keep a dead entry for the source port
//! of a link alive for as long as packets leave from this port. A link with a configured address
//! that hears nothing therefore also tries other ports: a *trial* is a socket beside those of the link,
//! which sends copies of some PINGs and handshake initiations. The port that is answered becomes that
//! of the link.

use super::Driver;
use super::links::{ClassSocket, header_bytes, marks, tag};
use super::peers::FileEntry;
use crate::udp::LinkSocket;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use tautline_proto::{Duration, Instant, Transmit};

/// Time for which a link seeks its peer by its own port only. The link has then been without an
/// answer for about 1.5 to 3 s.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time until the second trial; the interval doubles with each trial up to [`MAX_INTERVAL`].
const MIN_INTERVAL: Duration = Duration::from_secs(2);
/// A translator keeps the entry of each port for at least 2 minutes, normally 5 (RFC 4787, REQ-5): it
/// then has at most 30 entries per link that seeks its peer.
const MAX_INTERVAL: Duration = Duration::from_secs(10);
/// Least time between two copies. A link that is down sends a PING or an initiation every 170 ms, in
/// turn (spec, section 10.2): each third packet is copied, so that both kinds are.
const COPY_INTERVAL: Duration = Duration::from_millis(400);

/// The source port of a link.
#[derive(Debug, Default)]
pub(super) struct SourcePort {
    /// The port that was answered, if it is not the node's.
    own: Option<u16>,
    /// The search for another port, while nothing is heard.
    search: Option<Search>,
    /// IP bytes of all copies.
    pub(super) copied_bytes: u64,
}

#[derive(Debug)]
struct Search {
    next_trial: Instant,
    interval: Duration,
    trials: u32,
    /// The port that is tried now.
    port: Option<u16>,
    next_copy: Instant,
}

/// Which port a trial uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trial {
    /// The port of the node, which may be the only one that the peer's firewall accepts.
    Node,
    /// A port for which no translator has an entry.
    Fresh,
}

impl SourcePort {
    /// The port from which the link sends; `node` is that of the node.
    pub(super) fn or_node(&self, node: u16) -> u16 {
        self.own.unwrap_or(node)
    }

    /// Returns the trial that is due on a link that hears nothing.
    fn next_trial(&mut self, now: Instant) -> Option<Trial> {
        let search = self.search.get_or_insert(Search {
            next_trial: now + PATIENCE,
            interval: MIN_INTERVAL,
            trials: 0,
            port: None,
            next_copy: now,
        });
        if now < search.next_trial {
            return None;
        }
        search.next_trial = now + search.interval;
        search.interval = (search.interval * 2).min(MAX_INTERVAL);
        search.trials += 1;
        let is_nodes_turn = self.own.is_some() && search.trials.is_multiple_of(2);
        Some(if is_nodes_turn { Trial::Node } else { Trial::Fresh })
    }

    /// Whether to copy a packet now, if there is a trial.
    fn takes_copy(&mut self, now: Instant) -> bool {
        let search = self.search.as_mut().filter(|it| it.port.is_some() && it.next_copy <= now);
        let Some(search) = search else { return false };
        search.next_copy = now + COPY_INTERVAL;
        true
    }

    fn tried(&self) -> Option<u16> {
        self.search.as_ref()?.port
    }

    /// Ends the search; the port that is tried becomes that of the link. Returns the port.
    fn adopt(&mut self, node: u16) -> Option<u16> {
        let port = self.search.take()?.port?;
        self.own = Some(port).filter(|it| *it != node);
        Some(port)
    }
}

/// Returns a port that no socket of this machine has. To a socket that shares its port (SO_REUSEPORT), the
/// kernel may give one that others of this user have.
fn fresh_port(is_ipv6: bool) -> io::Result<u16> {
    let any: IpAddr =
        if is_ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    Ok(UdpSocket::bind((any, 0))?.local_addr()?.port())
}

impl Driver {
    /// Whether packets arrive on a link and are acknowledged.
    pub(super) fn is_heard(&self, index: usize) -> bool {
        let view = self.endpoint.link(self.links[index].id);
        view.is_some_and(|view| view.up && !view.silent)
    }

    /// Begins, continues or ends the search of each link for another port; called once per second.
    pub(super) fn sweep_ports(&mut self, now: Instant) {
        for index in 0..self.links.len() {
            let link = &self.links[index];
            let seeks = matches!(link.entry, Some(FileEntry::To(_))) && !link.sockets.is_empty();
            if !seeks || self.is_heard(index) {
                let link = &mut self.links[index];
                link.sockets.retain(|it| !it.is_trial);
                link.port.search = None;
                continue;
            }
            if let Some(trial) = self.links[index].port.next_trial(now) {
                self.begin_trial(index, trial);
            }
        }
    }

    fn begin_trial(&mut self, index: usize, trial: Trial) {
        let link = &mut self.links[index];
        link.sockets.retain(|it| !it.is_trial);
        let Some((path, search)) = link.path.as_ref().zip(link.port.search.as_mut()) else {
            return;
        };
        search.port = match trial {
            Trial::Node => Some(self.address.port()),
            Trial::Fresh => fresh_port(path.remote.is_ipv6()).ok(),
        };
        self.open_trial(index);
    }

    /// Opens the socket of the trial, if the link has one. Without the socket, only the trial fails.
    pub(super) fn open_trial(&mut self, index: usize) {
        let link = &mut self.links[index];
        let Some((path, port)) = link.path.clone().zip(link.port.tried()) else { return };
        // Packets without messages have the highest class.
        let Some((class, dscp)) = marks(self.config.marking.as_ref()).pop() else { return };
        let node = SocketAddr::new(self.address.ip(), port);
        let place = link.sockets.len();
        let open = || -> io::Result<ClassSocket> {
            let socket =
                LinkSocket::connect(path, (node, link.source), link.device.as_deref(), dscp)?;
            socket.register(&self.poll, tag(index, place))?;
            Ok(ClassSocket { class, socket, readable: true, is_trial: true })
        };
        match open() {
            Ok(socket) => link.sockets.push(socket),
            Err(error) => tracing::debug!(%error, port, "cannot try another source port"),
        }
    }

    /// Sends copies of packets without messages by the trial of a link that hears nothing. They
    /// follow the originals: where the link's own port works, the peer drops the copies as
    /// duplicates, and does not take them for a move.
    pub(super) fn copy_to_trial(&mut self, index: usize, packets: &[Transmit]) {
        if self.links[index].port.search.is_none() || self.is_heard(index) {
            return;
        }
        let now = self.clock.now();
        let link = &mut self.links[index];
        let trial = link.sockets.iter_mut().find(|it| it.is_trial);
        let (Some(trial), Some(packet)) = (trial, packets.first()) else { return };
        let header_bytes = header_bytes(packet.remote);
        if packet.priority.is_some()
            || trial.socket.path.remote != packet.remote
            || !link.port.takes_copy(now)
        {
            return;
        }
        match trial.socket.send(&[&packet.datagram], header_bytes, packet.ecn) {
            Ok(_) => link.port.copied_bytes += (packet.datagram.len() + header_bytes) as u64,
            Err(not_sent) => tracing::debug!(error = %not_sent.error, "a copy was not sent"),
        }
    }

    /// An authentic answer came by the trial of a link.
    pub(super) fn adopt_trial(&mut self, index: usize) {
        let Some(port) = self.links[index].port.adopt(self.address.port()) else { return };
        let Some(view) = self.endpoint.link(self.links[index].id) else { return };
        let peer = self.endpoint.peer(view.peer).name;
        tracing::info!(peer, port, "another source port is answered, the previous one was not");
        self.connect(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(0) + Duration::from_millis(ms)
    }

    /// The trials of a search of 60 s, with their second.
    fn trials(port: &mut SourcePort) -> Vec<(u64, Trial)> {
        (0..60).filter_map(|second| Some((second, port.next_trial(at(second * 1000))?))).collect()
    }

    #[test]
    fn fresh_ports_are_tried_at_a_bounded_rate() {
        let seconds: Vec<u64> = trials(&mut SourcePort::default())
            .into_iter()
            .map(|(second, trial)| (trial == Trial::Fresh).then_some(second).unwrap())
            .collect();
        assert_eq!(seconds, [1, 3, 7, 15, 25, 35, 45, 55]);
    }

    #[test]
    fn a_link_with_a_port_of_its_own_tries_that_of_the_node_in_turn() {
        let mut port = SourcePort { own: Some(40_000), ..SourcePort::default() };
        let order: Vec<Trial> = trials(&mut port).into_iter().map(|(_, trial)| trial).collect();
        assert_eq!(order[..4], [Trial::Fresh, Trial::Node, Trial::Fresh, Trial::Node]);
    }

    #[test]
    fn the_answered_port_is_kept_until_the_nodes_is_answered() {
        let mut port = SourcePort::default();
        for (tried, kept) in [(40_000, 40_000), (40_001, 40_001), (18470, 18470)] {
            assert_eq!(port.adopt(18470), None, "nothing is tried");
            assert_eq!(port.next_trial(at(0)), None);
            assert_eq!(port.adopt(18470), None, "nothing was tried yet");
            port.next_trial(at(0));
            port.search.as_mut().unwrap().port = Some(tried);
            assert_eq!(port.adopt(18470), Some(tried));
            assert_eq!(port.or_node(18470), kept);
        }
        assert_eq!(port.own, None, "the node's port is no port of its own");
    }

    #[test]
    fn both_kinds_of_packets_are_copied() {
        for (interval, count) in [(170, 12), (500, 30)] {
            let mut port = SourcePort::default();
            port.next_trial(at(0));
            assert!(!port.takes_copy(at(0)), "there is no trial");
            port.search.as_mut().unwrap().port = Some(40_000);
            let copied: Vec<u64> =
                (0..30).filter(|packet| port.takes_copy(at(packet * interval))).collect();
            assert!(copied.iter().any(|it| it % 2 == 0) && copied.iter().any(|it| it % 2 == 1));
            assert!(copied.len() <= count, "{copied:?}");
        }
    }
}
