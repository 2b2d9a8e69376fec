// SPDX-License-Identifier: Apache-2.0
//! Builds packets at the time when they are sent.

use crate::address::Place;
use crate::class::{Class, InFlight};
use crate::crypto::seal::PacketBuilder;
use crate::delivery::Piece;
use crate::delivery::outbox::{Carrier, FrameKind, LossCertainty, Scope, SendOrder, Urgency};
use crate::ecn::Ecn;
use crate::endpoint::{Endpoint, Timer, Transmit};
use crate::ids::{LinkId, PeerId, RadioId};
use crate::path::link::Link;
use crate::path::select::link_for;
use crate::rate::{PendingPacket, Release};
use crate::recovery::received::{ACK_RANGES, ReceivedPackets};
use crate::recovery::sent::AckRequest;
use crate::time::Instant;
use crate::wire::frame::{ClockReport, put_goodbye, put_held, put_observe, put_observed, put_ping};
use crate::wire::packet::{SESSION_HEADER, SessionHeader, TAG, TIME_BYTES};

/// A message shares a packet with an earlier one only if it is smaller than the cost of a packet of
/// its own: at 6 Mbps about 300 us of preamble, contention and acknowledgement (IEEE 802.11 DCF), and
/// 53 bytes of headers.
const MAX_SHARED_BYTES: usize = 256;
/// Bytes of headers assumed for a packet before it is built.
pub(crate) const HEADER_ESTIMATE: usize = 64;
/// Most bytes of an acknowledgement: type, length, link, number, delay, two queueing delays, two ECN
/// counts, and two varints of two bytes for each range (the numbers lie within a window of 1024).
const MAX_ACK_BYTES: usize = 2 + 1 + 10 + 5 + 5 + 5 + 10 + 10 + ACK_RANGES * 4;

/// Rank of a peer's control messages beyond `limits::CONTROL_FIRST` among the messages to other
/// peers: below lasers and commands, above images.
const LATE_CONTROL_RANK: u16 = 128;

/// Limit of packets without messages in the kernel for one radio: one on the air, and the next.
const MAX_REPORTS: usize = 2;

/// Most bytes of a relay backlog report.
const MAX_BACKLOG_REPORT_BYTES: usize = 2 + 3 + 10 + 3;

/// Bytes of an OBSERVE or OBSERVED frame.
const ADDRESS_FRAME_BYTES: usize = 2 + 18;

/// The next message to a peer, and the link that carries it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    pub(crate) peer: PeerId,
    pub(crate) link: LinkId,
    pub(crate) order: SendOrder,
    pub(crate) scope: Scope,
    /// The number of links that carry the message, if it begins now.
    pub(crate) copies: u8,
}

/// The purpose of a packet without messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReportKind {
    /// A PING, with pending acknowledgements.
    Ping,
    /// Acknowledgements, backlog reports and a goodbye, which are not ack-eliciting.
    Reports,
}

/// The controller that decides whether a packet may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    /// The radio's, for all its peers.
    Radio,
    /// The link's, for its peer alone.
    Path,
}

impl Endpoint {
    /// The next datagram to send now. Call until it returns `None`, and again after the next input or
    /// timeout.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        loop {
            self.process_backlog_changes(now);
            let transmit = self
                .poll_reply(now)
                .or_else(|| self.poll_initiation(now))
                .or_else(|| self.poll_challenge(now))
                .or_else(|| self.poll_candidates(now))
                .or_else(|| self.poll_reports(now))
                .or_else(|| self.poll_backlog_report(now))
                .or_else(|| self.poll_data(now))
                .or_else(|| self.poll_probe(now));
            // A packet handed to a relay is in the queue for it, and may be sent at once.
            if transmit.is_some() || !std::mem::take(&mut self.relay_pending) {
                return transmit;
            }
        }
    }

    /// Accounts for a datagram on a link. `urgency` is `None` for a packet without messages, to which
    /// the radio's budget does not apply.
    pub(crate) fn sent(
        &mut self,
        now: Instant,
        id: LinkId,
        datagram: Vec<u8>,
        urgency: Option<Urgency>,
        ecn: Ecn,
    ) -> Option<Transmit> {
        let place = self.links[id].remote?;
        let radio = self.links[id].radio;
        let in_flight = self.in_flight(radio).total();
        let priority = urgency.map(|it| it.priority);
        let class = self.class(id, priority);
        let link = &mut self.links[id];
        let ip_bytes = datagram.len() + link.config.header_bytes;
        link.on_sent(now, class, ip_bytes);
        match priority {
            Some(priority) => link.on_priority_sent(now, priority),
            None => link.on_report_sent(class),
        }
        self.radios[radio].on_sent(now, ip_bytes, in_flight);
        self.arm_link(id);
        match place {
            Place::Udp(remote) => {
                let (link, dscp) = (Some(id), self.radios[radio].dscp(class));
                let local = self.local_address(id);
                Some(Transmit { radio, link, remote, local, datagram, priority, class, dscp, ecn })
            }
            Place::Relay { hop, end } => {
                self.hand_to_relay(now, id, (hop, end), datagram, urgency);
                None
            }
        }
    }

    /// Acknowledgements, PINGs and goodbyes, which are small and precede data.
    fn poll_reports(&mut self, now: Instant) -> Option<Transmit> {
        for id in self.links.ids() {
            let link = &mut self.links[id];
            if link.ping_now && !link.has_pending_report() {
                link.ping_now = false;
                if link.remote.is_some() && self.has_keys(id) {
                    return self.report(now, id, ReportKind::Ping);
                }
            }
        }
        let mut due: Vec<_> =
            self.peers.ids().filter_map(|peer| self.due_report(now, peer)).collect();
        due.sort_unstable();
        for (_, peer, came_by) in due {
            match self.report_link(peer, came_by) {
                Some(link) if self.may_report(link) => {
                    return self.report(now, link, ReportKind::Reports);
                }
                Some(_) => {}
                None => self.peers[peer].goodbye_now = false,
            }
        }
        None
    }

    /// Since when a report to a peer is due, and the link by which the reported packets came.
    fn due_report(&self, now: Instant, peer: PeerId) -> Option<(Instant, PeerId, Option<LinkId>)> {
        let state = &self.peers[peer];
        let due = state.received_packets.values().filter_map(|it| Some((it.ack_due()?, it.via)));
        let first = due.filter(|(at, _)| *at <= now).min();
        // Packets that the peer is to forward precede our goodbye; they may include goodbyes.
        let leaves = state.goodbye_now && !state.outbox.has_relayed();
        let goodbye = leaves.then_some((Instant::default(), None));
        goodbye.or(first).map(|(at, came_by)| (at, peer, came_by))
    }

    /// Whether another packet without messages may go to the kernel. While the radio's queue is
    /// blocked, hold reports in our queue: a later report is current, and covers the earlier ones.
    pub(crate) fn may_report(&self, id: LinkId) -> bool {
        let link = &self.links[id];
        if self.peers[link.peer].goodbye_now || link.via.is_some() {
            return true;
        }
        let is_pending =
            |it: &&Link| it.radio == link.radio && it.has_pending_report() && !it.stalled;
        !link.has_pending_report() && self.links.iter().filter(is_pending).count() < MAX_REPORTS
    }

    /// The link of a report: the one by which the packets came, if it is up and not much slower than
    /// another; otherwise any.
    fn report_link(&self, peer: PeerId, came_by: Option<LinkId>) -> Option<LinkId> {
        let up = |id: &LinkId| self.links[*id].up;
        let carries = |id: &LinkId| self.links[*id].carries_data();
        let links = &self.peers[peer].links;
        let any = || links.iter().find(|l| carries(l)).or_else(|| links.iter().find(|l| up(l)));
        match came_by.filter(up) {
            Some(came_by) => Some(self.report_link_of(came_by)),
            None => any().copied(),
        }
    }

    fn has_keys(&self, id: LinkId) -> bool {
        self.peers[self.links[id].peer].session.keys().is_some()
    }

    /// A packet with one frame that is not ack-eliciting, to an address to which no link leads.
    pub(crate) fn single_frame_packet(
        &mut self,
        now: Instant,
        id: LinkId,
        put_frame: impl FnOnce(&mut Vec<u8>),
    ) -> Option<Vec<u8>> {
        let mut packet = self.start_header(now, id)?;
        put_frame(packet.plaintext());
        let datagram = packet.seal()?;
        let (request, ecn) = (AckRequest::None, Ecn::NotCapable);
        self.links[id].sent_packets.record(now, Class::BestEffort, Vec::new(), request, 0, ecn);
        Some(datagram)
    }

    /// A packet without messages. With a goodbye it ends the session.
    pub(crate) fn report(
        &mut self,
        now: Instant,
        id: LinkId,
        kind: ReportKind,
    ) -> Option<Transmit> {
        let peer = self.links[id].peer;
        let leaves = self.peers[peer].goodbye_now;
        let transmit = self.report_packet(now, id, kind);
        if leaves && !self.peers[peer].goodbye_now {
            self.end_session(now, peer);
        }
        transmit
    }

    pub(crate) fn report_packet(
        &mut self,
        now: Instant,
        id: LinkId,
        kind: ReportKind,
    ) -> Option<Transmit> {
        let peer = self.links[id].peer;
        let ping = kind == ReportKind::Ping;
        let mut packet = self.start_packet(now, id, !ping)?;
        if ping {
            put_ping(packet.plaintext());
            let least = self.peers[peer].clock.least();
            ClockReport { least, wall: self.wall(now) }.emit(packet.plaintext());
            SessionHeader::mark_ack_soon(packet.plaintext());
            self.links[id].last_eliciting = now;
        }
        if std::mem::take(&mut self.peers[peer].goodbye_now) {
            put_goodbye(packet.plaintext());
        }
        let request = if ping { AckRequest::Soon } else { AckRequest::None };
        self.finish_packet(now, id, packet, Vec::new(), request, None)
    }

    /// Starts a packet with header and clock.
    pub(crate) fn start_header(&mut self, now: Instant, id: LinkId) -> Option<PacketBuilder> {
        let capacity = self.datagram_bytes(id);
        let link = &self.links[id];
        let keys = self.peers[link.peer].session.keys()?;
        let number = link.sent_packets.next_number();
        let header = SessionHeader {
            ack_soon: false,
            relayed: link.via.is_some(),
            link: link.number,
            session: keys.remote,
            number: number as u32,
        };
        let buffer = self.spare_datagrams.take(capacity);
        let mut packet = PacketBuilder::new(keys.sealer.clone(), &header, number, buffer);
        if link.via.is_none() {
            packet.plaintext().extend_from_slice(&now.wire_micros().to_le_bytes());
        }
        Some(packet)
    }

    /// Starts a packet with header, clock, and pending acknowledgements to this peer, except those of
    /// another link that is up. `alone`: the packet carries no data.
    fn start_packet(&mut self, now: Instant, id: LinkId, alone: bool) -> Option<PacketBuilder> {
        let mut packet = self.start_header(now, id)?;
        let link = &self.links[id];
        let peer = link.peer;
        let capacity = self.datagram_bytes(id);
        if link.via.is_none() {
            for held in self.due_backlog_reports(now, peer) {
                if packet.sealed_len() + MAX_BACKLOG_REPORT_BYTES <= capacity {
                    put_held(&held, packet.plaintext());
                }
            }
        }
        if packet.sealed_len() + 2 * ADDRESS_FRAME_BYTES <= capacity {
            let ends = &mut self.links[id].ends;
            let (question, answer) = (ends.take_question(now), ends.take_answer());
            question.into_iter().for_each(|it| put_observe(it, packet.plaintext()));
            answer.into_iter().for_each(|it| put_observed(it, packet.plaintext()));
        }
        let takes = |received: &ReceivedPackets| {
            let via = received.via.filter(|via| self.links[*via].up);
            received.ack_due().is_some() && via.is_none_or(|via| self.report_link_of(via) == id)
        };
        let received = self.peers[peer].received_packets.iter();
        let due: Vec<u8> =
            received.filter(|(_, it)| takes(it)).map(|(number, _)| *number).collect();
        for number in due {
            if packet.sealed_len() + MAX_ACK_BYTES > capacity {
                break;
            }
            let received = self.peers[peer].received_packets.get_mut(&number);
            if let Some(ack) = received.and_then(|it| it.take_ack(now, number, alone)) {
                ack.emit(packet.plaintext());
                self.timers.set(Timer::Ack(peer, number), None);
            }
        }
        Some(packet)
    }

    fn finish_packet(
        &mut self,
        now: Instant,
        id: LinkId,
        packet: PacketBuilder,
        pieces: Vec<Piece>,
        request: AckRequest,
        urgency: Option<Urgency>,
    ) -> Option<Transmit> {
        let datagram = packet.seal()?;
        let class = self.class(id, urgency.map(|it| it.priority));
        let link = &mut self.links[id];
        let peer = link.peer;
        let ip_bytes = datagram.len() + link.config.header_bytes;
        let ecn = link.sent_packets.next_ecn(request);
        let evicted = link.sent_packets.record(now, class, pieces, request, ip_bytes, ecn);
        for piece in &evicted {
            let _ = self.peers[peer].outbox.lost(now, piece, LossCertainty::Certain);
        }
        self.forget_forecasts();
        self.sent(now, id, datagram, urgency, ecn)
    }

    fn poll_data(&mut self, now: Instant) -> Option<Transmit> {
        for peer in self.peers.iter_mut() {
            peer.outbox.discard_late(now, Scope::All);
            // To look past relayed packets takes time for each of them: only where it is of use.
            if peer.links.iter().any(|id| self.links[*id].via.is_some()) {
                peer.outbox.discard_late(now, Scope::Unrelayed);
            }
        }
        self.forget_forecasts();
        self.radios.ids().find_map(|radio| self.poll_radio(now, radio))
    }

    fn poll_radio(&mut self, now: Instant, radio: RadioId) -> Option<Transmit> {
        let mut limited_by_path: Vec<LinkId> = Vec::new();
        let mut due = None;
        while let Some(next) = self.next_candidate(now, radio, &limited_by_path) {
            let (limit, release) = self.release(now, radio, &next);
            match release {
                Release::Now => return self.data_packet(now, radio, &next),
                Release::At(at) => due = Some(due.map_or(at, |before: Instant| before.min(at))),
                Release::Drained => {}
            }
            if due.is_some() {
                self.timers.set(Timer::Pace(radio), due);
            }
            match limit {
                // The radio holds back all peers.
                Limit::Radio => return None,
                // A far bottleneck, or a peer without reports, holds back that link alone.
                Limit::Path => limited_by_path.push(next.link),
            }
        }
        if limited_by_path.is_empty() {
            self.radios[radio].on_idle();
        }
        None
    }

    /// Asks the controllers of the radio and of the link whether a packet may be sent.
    fn release(&mut self, now: Instant, radio: RadioId, next: &Candidate) -> (Limit, Release) {
        let priority = next.order.priority();
        if self.links[next.link].via.is_some() {
            let admits = self.links[next.link].relay_window.admits(priority);
            return (Limit::Radio, if admits { Release::Now } else { Release::Drained });
        }
        let waiting = self.peers[next.peer].outbox.waiting_bytes() as usize;
        let datagram = (waiting + HEADER_ESTIMATE).min(self.packet_bytes(next.link, priority));
        let ahead = self.in_flight(radio).ahead_of(self.class(next.link, Some(priority)));
        let link = &mut self.links[next.link];
        let bytes = datagram + link.config.header_bytes;
        let packet = PendingPacket { bytes, urgent: link.is_urgent(priority) };
        let local = self.radios[radio].pacer.release(now, packet, ahead);
        let outstanding = link.sent_packets.outstanding_bytes();
        let (limit, release) = match &mut link.controller {
            Some(controller) if local == Release::Now => {
                (Limit::Path, controller.release(now, packet, outstanding))
            }
            _ => (Limit::Radio, local),
        };
        let by_path = limit == Limit::Path;
        // A controller may begin anew on an idle path.
        let mut is_changed = by_path && outstanding == 0;
        if release != Release::Now {
            is_changed |= std::mem::replace(&mut link.headroom.limited_by_path, by_path) != by_path;
            self.radios[radio].on_held_back(by_path);
        }
        if is_changed {
            self.forget_forecasts();
        }
        (limit, release)
    }

    /// Largest datagram whose first message has this priority.
    fn packet_bytes(&self, id: LinkId, priority: u8) -> usize {
        let link = &self.links[id];
        let limit = link.interleaving.limit(priority).unwrap_or(usize::MAX);
        self.datagram_bytes(id).min(limit.saturating_sub(link.config.header_bytes))
    }

    /// Bytes in the kernel that count against a radio's budget.
    pub(crate) fn in_flight(&self, radio: RadioId) -> InFlight {
        let mut sum = InFlight::default();
        let on_radio = self.links.iter().filter(|l| l.radio == radio);
        on_radio.for_each(|link| sum.add(&link.counted_in_flight()));
        sum
    }

    /// The class of a packet whose messages have at most this priority; `None` without messages.
    pub(crate) fn class(&self, link: LinkId, priority: Option<u8>) -> Class {
        let radio = self.links[link].radio;
        self.radios[radio].class(priority)
    }

    /// The peer to serve next, except on the links `held_back`: the highest priority first, then the
    /// peer that was served least.
    fn next_candidate(
        &mut self,
        now: Instant,
        radio: RadioId,
        held_back: &[LinkId],
    ) -> Option<Candidate> {
        let mut best: Option<(u16, Candidate)> = None;
        for peer in self.peers.ids() {
            let Some(next) = self.next_of_peer(now, radio, peer, held_back) else { continue };
            let first = &self.peers[peer].control_first;
            let late = next.order.is_control() && !first.has_one(now);
            let rank = if late { LATE_CONTROL_RANK } else { next.order.rank.0 };
            let is_better = best.is_none_or(|(best_rank, other)| {
                self.precedes(radio, (rank, peer), (best_rank, other.peer))
            });
            if is_better {
                best = Some((rank, next));
            }
        }
        best.map(|(_, next)| next)
    }

    /// Whether a peer's message of a rank precedes another's. Teams take turns whatever the priorities of
    /// their packets.
    fn precedes(&self, radio: RadioId, (rank, peer): (u16, PeerId), other: (u16, PeerId)) -> bool {
        let (other_rank, other) = other;
        let radio = &self.radios[radio];
        match (self.peers[peer].team, self.peers[other].team) {
            (team, others) if team != others => radio.is_team_served_before(team, others),
            _ => rank > other_rank || rank == other_rank && radio.is_served_before(peer, other),
        }
    }

    /// The first message that this radio can carry to a peer, and its link.
    fn next_of_peer(
        &mut self,
        now: Instant,
        radio: RadioId,
        peer: PeerId,
        held_back: &[LinkId],
    ) -> Option<Candidate> {
        if self.peers[peer].team.is_some() {
            let is_control = self.peers[peer].outbox.next_in_order(Scope::All)?.is_control();
            if self.team_holds_back(now, peer, is_control) {
                return None;
            }
        }
        if self.policies_decide(peer) {
            return self.next_by_policy(now, radio, peer, held_back);
        }
        let state = &self.peers[peer];
        for scope in [Scope::All, Scope::Unrelayed] {
            let order = state.outbox.next_in_order(scope)?;
            let class = self.radios[radio].class(Some(order.priority()));
            let heard = |hop| self.is_heard(hop);
            let link = link_for(&state.links, &self.links, (radio, class), None, heard)?;
            if scope == Scope::Unrelayed || self.links[link].via.is_none() {
                let candidate = Candidate { peer, link, order, scope, copies: 1 };
                return (!held_back.contains(&link)).then_some(candidate);
            }
        }
        None
    }

    fn data_packet(&mut self, now: Instant, radio: RadioId, next: &Candidate) -> Option<Transmit> {
        let Candidate { peer, link: id, order, .. } = *next;
        let mut packet = self.start_packet(now, id, false)?;
        let urgency = self.peers[peer].outbox.urgency(order);
        if order.is_control() {
            self.peers[peer].control_first.take(now);
        }
        let (pieces, more) = self.fill_packet(now, radio, next, &mut packet);
        let link = &mut self.links[id];
        let ip_bytes = packet.sealed_len() + link.config.header_bytes;
        let outstanding = link.sent_packets.outstanding_bytes() + ip_bytes;
        let asked = link.controller.as_ref().is_some_and(|it| it.wants_report(outstanding));
        let ack_soon = asked || !more;
        if ack_soon {
            SessionHeader::mark_ack_soon(packet.plaintext());
        }
        link.last_eliciting = now;
        let eliciting = !pieces.is_empty();
        debug_assert!(eliciting || packet.sealed_len() > SESSION_HEADER + TIME_BYTES + TAG);
        self.radios[radio].on_data_sent(now, (self.peers[peer].team, peer), ip_bytes);
        if !order.is_control() {
            self.on_forwarded(now, peer, ip_bytes);
        }
        self.arm_expiry(now, peer);
        let request = match (eliciting, ack_soon) {
            (false, _) => AckRequest::None,
            (true, false) => AckRequest::Delayed,
            (true, true) => AckRequest::Soon,
        };
        self.finish_packet(now, id, packet, pieces, request, Some(urgency))
    }

    /// Fills a packet with the candidate's message and with further messages of the same link that
    /// fit completely. Returns its pieces, and whether the link has more to send.
    fn fill_packet(
        &mut self,
        now: Instant,
        radio: RadioId,
        first: &Candidate,
        packet: &mut PacketBuilder,
    ) -> (Vec<Piece>, bool) {
        let (peer, id) = (first.peer, first.link);
        let datagram_bytes = self.packet_bytes(id, first.order.priority());
        let mut pieces = Vec::new();
        let mut whole_within = None;
        let mut repairs_control = false;
        let mut next = Some(*first);
        while let Some(Candidate { order, scope, copies, .. }) = next {
            let redundancy = self.redundancy(now, id);
            let link = &mut self.links[id];
            let room = datagram_bytes.saturating_sub(packet.sealed_len());
            let carrier = Carrier { link: link.number, scope, copies, redundancy };
            let outbox = &mut self.peers[peer].outbox;
            let Some(cut) = outbox.next_frame(now, carrier, order, room, whole_within) else {
                break;
            };
            repairs_control |= cut.is_control_repair();
            let copies = redundancy.map_or(1, |it| u32::from(it.copies));
            link.redundancies.charge(copies * cut.urgent_bytes);
            if cut.redundant {
                link.stats.redundant_bytes += cut.bytes.len() as u64;
            } else if cut.repair {
                link.stats.repair_bytes += cut.bytes.len() as u64;
            }
            match cut.kind {
                FrameKind::Data => cut.data.emit(&cut.bytes, packet.plaintext()),
                FrameKind::Relay => cut.data.emit_relay(&cut.bytes, packet.plaintext()),
                FrameKind::Parity => cut.data.emit_parity(&cut.bytes, packet.plaintext()),
            }
            pieces.push(cut.piece);
            whole_within = Some(MAX_SHARED_BYTES);
            next = self.next_on_link(now, radio, first);
        }
        if repairs_control {
            self.peers[peer].outbox.control_repairs.on_sent(now, (self.random)());
        }
        (pieces, next.is_some())
    }

    /// The message after those of a packet, for the same link. Without a choice of links it is the
    /// next of all, also where the link is stalled for its class: it costs nothing in a packet that
    /// leaves, and the peer need not hurry to report while more waits.
    fn next_on_link(
        &mut self,
        now: Instant,
        radio: RadioId,
        first: &Candidate,
    ) -> Option<Candidate> {
        let Candidate { peer, link, scope, .. } = *first;
        if self.policies_decide(peer) {
            let next = self.next_by_policy(now, radio, peer, &[]);
            return next.filter(|next| next.link == link && next.scope == scope);
        }
        let order = self.peers[peer].outbox.next_in_order(scope)?;
        Some(Candidate { order, ..*first })
    }
}
