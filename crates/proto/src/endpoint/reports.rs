// SPDX-License-Identifier: Apache-2.0
//! Packets without messages that are due: challenges, acknowledgements, PINGs, goodbyes, backlog reports
//! and probes.

use crate::ecn::Ecn;
use crate::endpoint::network::{AccountedPacket, Network, Transmit};
use crate::endpoint::peer::packet::ReportKind;
use crate::ids::{LinkId, PeerId};
use crate::path::link::Candidate;
use crate::time::Instant;

impl Network {
    /// A challenge to an address of a peer, before its validation.
    pub(crate) fn poll_challenge(&mut self, now: Instant) -> Option<AccountedPacket> {
        let is_due = |it: &Candidate| it.is_due(now);
        let id = self.peers.find_link(|link| link.candidates.iter().any(is_due))?;
        let capacity = self.datagram_bytes(id);
        let Self { cx, peers, .. } = self;
        let (to, datagram) = peers.peer_of_link(id)?.due_challenge(cx, now, id, capacity)?;
        let transmit = Transmit::unlinked(to.radio, (to.local, to.remote), datagram);
        Some(AccountedPacket::Datagram(transmit))
    }

    /// Acknowledgements, PINGs and goodbyes. They are small and precede data.
    pub(crate) fn poll_reports(&mut self, now: Instant) -> Option<AccountedPacket> {
        for id in self.peers.link_ids() {
            let Some(link) = self.peers.link_mut(id) else { continue };
            if link.ping_now && !link.has_pending_report() {
                link.ping_now = false;
                let (peer, leads) = (link.peer, link.remote.is_some());
                if leads && self.peers[peer].session.keys().is_some() {
                    return self.report(now, id, ReportKind::Ping);
                }
            }
        }
        let mut due: Vec<_> =
            self.peers.ids().filter_map(|peer| self.due_report(now, peer)).collect();
        due.sort_unstable();
        for (_, peer, arrival_link) in due {
            match self.peers[peer].links.report_link(self.cx.clock_now, arrival_link) {
                Some(link) if self.may_report(link) => {
                    return self.report(now, link, ReportKind::Reports);
                }
                Some(_) => {}
                None => self.peers[peer].goodbye_now = false,
            }
        }
        None
    }

    /// The time since which a report to a peer is due, the peer, and the link by which the reported
    /// packets came.
    fn due_report(&self, now: Instant, id: PeerId) -> Option<(Instant, PeerId, Option<LinkId>)> {
        let peer = &self.peers[id];
        let due = peer.received_packets.values().filter_map(|it| Some((it.ack_due()?, it.via)));
        let first = due.filter(|(at, _)| *at <= now).min();
        // Packets that the peer has to forward precede our goodbye to it: they may include goodbyes
        // to others.
        let leaves = peer.goodbye_now && !peer.channels.outbox.queues.has_relayed();
        let goodbye = leaves.then_some((Instant::default(), None));
        goodbye.or(first).map(|(at, arrival_link)| (at, id, arrival_link))
    }

    /// A packet with backlog reports to a neighbour, if one is due.
    pub(crate) fn poll_backlog_report(&mut self, now: Instant) -> Option<AccountedPacket> {
        for id in self.peers.ids() {
            let peer = &self.peers[id];
            if !peer.backlog_reports.is_due(now) {
                continue;
            }
            let open = peer.links.direct().find(|link| link.is_heard()).map(|link| link.id);
            match open {
                Some(link) if self.may_report(link) => {
                    return self.report(now, link, ReportKind::Reports);
                }
                Some(_) => {}
                None => self.peers[id].backlog_reports.clear(),
            }
        }
        None
    }

    /// A probe of the MTU of a path; everything else precedes it. A link on which nothing else would be sent
    /// is not probed: it is spared, or about to fall silent.
    pub(crate) fn poll_probe(&mut self, now: Instant) -> Option<AccountedPacket> {
        for id in self.peers.link_ids() {
            let Some(link) = self.peers.link(id) else { continue };
            let is_quiet = link.via.is_some() || link.is_suspect() || link.is_spent();
            if !link.carries_data() || is_quiet || !self.may_report(id) {
                continue;
            }
            let class = self.class(id, None);
            let Self { cx, peers, .. } = self;
            let peer = peers.peer_of_link(id)?;
            if let Some(ip_bytes) = peer.links[id].sent_packets.mtu.due_probe(now)
                && !peer.links.is_spared(now, id)
                && peer.mtu_probe_limit.take(now)
            {
                let datagram = peer.probe_packet(cx, now, id, ip_bytes, class)?;
                return self.record_sent(now, id, datagram, None, Ecn::NotCapable);
            }
        }
        None
    }
}
