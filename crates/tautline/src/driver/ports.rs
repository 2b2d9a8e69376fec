// SPDX-License-Identifier: Apache-2.0
//! Source ports of links. An address translator on the path may have a dead entry for the source
//! port of a link, and keeps it for as long as packets leave from this port. A link with a
//! configured address that hears nothing therefore also tries other ports. A *trial* is a further
//! socket of the link, which sends copies of some PINGs and handshake initiations. If the peer
//! answers to the port of the trial, this port becomes the port of the link.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use tautline_proto::{Duration, Instant};

/// Time for which a link tries to reach its peer from its own port only. By the end of this time, the link has
/// had no answer for about 1.5 to 3 s.
const OWN_PORT_TIMEOUT: Duration = Duration::from_secs(1);
/// Time between the first two trials. The interval doubles with each trial up to [`MAX_INTERVAL`].
const MIN_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum interval between trials. A translator keeps the entry of each port for at least 2 minutes,
/// normally 5 (RFC 4787, REQ-5). It therefore has at most 30 entries for each link that seeks its peer.
const MAX_INTERVAL: Duration = Duration::from_secs(10);
/// Minimum time between two copies. A link that is down sends a PING or an initiation every 170 ms,
/// alternately (spec, section 10.2). Every third packet is copied, so that both kinds are copied.
const COPY_INTERVAL: Duration = Duration::from_millis(400);

/// The source port of a link.
#[derive(Debug, Default)]
pub(super) struct SourcePort {
    /// The port to which the peer answered, if it is not the node's port.
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

/// The kind of port that a trial uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trial {
    /// The port of the node, which may be the only one that the peer's firewall accepts.
    Node,
    /// A port for which no translator has an entry.
    Fresh,
}

impl SourcePort {
    /// Returns the port from which the link sends: its own port, or else `node`, the port of the node.
    pub(super) fn port_or(&self, node: u16) -> u16 {
        self.own.unwrap_or(node)
    }

    /// Returns the trial that is due now. To be called while no packets arrive on the link.
    pub(super) fn next_trial(&mut self, now: Instant) -> Option<Trial> {
        let search = self.search.get_or_insert(Search {
            next_trial: now + OWN_PORT_TIMEOUT,
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

    /// Sets the port that is tried, if there is a search.
    pub(super) fn try_port(&mut self, port: Option<u16>) {
        if let Some(search) = &mut self.search {
            search.port = port;
        }
    }

    /// Whether a search for another port is under way.
    pub(super) fn is_searching(&self) -> bool {
        self.search.is_some()
    }

    pub(super) fn end_search(&mut self) {
        self.search = None;
    }

    /// Whether to copy a packet now. `false` without a trial.
    pub(super) fn takes_copy(&mut self, now: Instant) -> bool {
        let search = self.search.as_mut().filter(|it| it.port.is_some() && it.next_copy <= now);
        let Some(search) = search else { return false };
        search.next_copy = now + COPY_INTERVAL;
        true
    }

    pub(super) fn tried_port(&self) -> Option<u16> {
        self.search.as_ref()?.port
    }

    /// Ends the search and returns the port of the trial, which becomes the port of the link.
    /// `node` is the port of the node. `None` without a trial.
    pub(super) fn adopt(&mut self, node: u16) -> Option<u16> {
        let port = self.search.take()?.port?;
        self.own = Some(port).filter(|it| *it != node);
        Some(port)
    }
}

/// Returns a port that no socket of this machine uses. The socket that asks for it does not set
/// SO_REUSEPORT: otherwise the kernel might return a port that other sockets of this user have.
pub(super) fn fresh_port(is_ipv6: bool) -> io::Result<u16> {
    let any: IpAddr =
        if is_ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    Ok(UdpSocket::bind((any, 0))?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(0) + Duration::from_millis(ms)
    }

    /// Returns the trials in a search of 60 s, each with its second.
    fn trials(port: &mut SourcePort) -> Vec<(u64, Trial)> {
        (0..60).filter_map(|second| Some((second, port.next_trial(at(second * 1000))?))).collect()
    }

    #[test]
    pub(super) fn fresh_ports_are_tried_at_a_bounded_rate() {
        let seconds: Vec<u64> = trials(&mut SourcePort::default())
            .into_iter()
            .map(|(second, trial)| (trial == Trial::Fresh).then_some(second).unwrap())
            .collect();
        assert_eq!(seconds, [1, 3, 7, 15, 25, 35, 45, 55]);
    }

    #[test]
    fn a_link_with_its_own_port_also_tries_the_nodes_port() {
        let mut port = SourcePort { own: Some(40_000), ..SourcePort::default() };
        let order: Vec<Trial> = trials(&mut port).into_iter().map(|(_, trial)| trial).collect();
        assert_eq!(order[..4], [Trial::Fresh, Trial::Node, Trial::Fresh, Trial::Node]);
    }

    #[test]
    fn the_answered_port_is_used_until_the_nodes_port_answers() {
        let mut port = SourcePort::default();
        for (tried, kept) in [(40_000, 40_000), (40_001, 40_001), (18470, 18470)] {
            assert_eq!(port.adopt(18470), None, "nothing is tried");
            assert_eq!(port.next_trial(at(0)), None);
            assert_eq!(port.adopt(18470), None, "nothing was tried yet");
            port.next_trial(at(0));
            port.search.as_mut().unwrap().port = Some(tried);
            assert_eq!(port.adopt(18470), Some(tried));
            assert_eq!(port.port_or(18470), kept);
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
