// SPDX-License-Identifier: Apache-2.0
//! Packets with messages: which peer, which message and which link come next on a radio, and the packet
//! built for them.
//!
//! [`Schedule::poll_radio`] takes the next candidate, asks the controllers whether it may be sent now, and
//! builds its packet. A packet is built only when it is sent.

use crate::crypto::seal::PacketBuilder;
use crate::delivery::Piece;
use crate::delivery::outbox::{Carrier, FrameKind, Scope, SendOrder};
use crate::endpoint::network::{AccountedPacket, Network};
use crate::endpoint::peer::Peer;
use crate::endpoint::teams::Teams;
use crate::endpoint::timer::Timer;
use crate::ids::{LinkId, PeerId, RadioId};
use crate::path::policy::LinkPolicy;
use crate::path::select::{Demand, Forecasts};
use crate::rate::{FULL_PACKET, PendingPacket, Release};
use crate::recovery::sent::AckRequest;
use crate::time::{Duration, Instant};
use crate::wire::packet::{SESSION_HEADER, SessionHeader, TAG, TIME_BYTES};

/// A message shares a packet with an earlier one only if it is smaller than the cost of a packet of
/// its own: at 6 Mbps about 300 us of preamble, contention and acknowledgement (IEEE 802.11 DCF), and
/// 53 bytes of headers.
const MAX_SHARED_BYTES: usize = 256;
/// Bytes of headers assumed for a packet before it is built.
const HEADER_ESTIMATE: usize = 64;
/// Rank of a peer's control messages beyond `limits::CONTROL_FIRST` among the messages to other
/// peers: below lasers and commands, above images.
const LATE_CONTROL_RANK: u16 = 128;
/// Interval at which messages that wait for another link are assigned again: the other link may turn out
/// slower than expected.
const REASSIGN_INTERVAL: Duration = Duration::from_millis(2);

/// The next message to a peer, and the link that carries it.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    peer: PeerId,
    link: LinkId,
    order: SendOrder,
    scope: Scope,
    /// The number of links that carry the message, if it begins now.
    copies: u8,
}

/// The controller that decides whether a packet may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limiter {
    /// The radio's, for all its peers.
    Radio,
    /// The link's, for the link's peer alone.
    Path,
}

/// Decides which peers and teams send next on the radios.
pub(crate) struct Schedule<'a> {
    pub(crate) net: &'a mut Network,
    pub(crate) teams: &'a mut Teams,
}

/// The next packet of a radio.
impl Schedule<'_> {
    /// Drops the messages that would come too late. Call this before asking radios for packets.
    pub(crate) fn discard_late(&mut self, now: Instant) {
        for peer in self.net.peers.iter_mut() {
            let outbox = &mut peer.channels.outbox;
            outbox.discard_late(now, Scope::All);
            // Looking past relayed packets takes time for each of them. It is done only where it is
            // of use.
            if peer.links.iter().any(|link| link.via.is_some()) {
                outbox.discard_late(now, Scope::Unrelayed);
            }
        }
        self.net.forget_forecasts();
    }

    /// The next packet with messages that a radio sends now.
    pub(crate) fn poll_radio(&mut self, now: Instant, radio: RadioId) -> Option<AccountedPacket> {
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
                self.net.cx.timers.set(Timer::Pace(radio), due);
            }
            match limit {
                // The radio holds back all peers.
                Limiter::Radio => return None,
                // A far bottleneck, or a peer that sends no reports, holds back only this link.
                Limiter::Path => limited_by_path.push(next.link),
            }
        }
        if limited_by_path.is_empty() {
            self.net.radios[radio].on_idle();
        }
        None
    }

    /// The peer to serve next, leaving out the links `held_back`: the peer with the highest priority, and
    /// among equals the peer that was served least.
    fn next_candidate(
        &mut self,
        now: Instant,
        radio: RadioId,
        held_back: &[LinkId],
    ) -> Option<Candidate> {
        let mut best: Option<(u16, Candidate)> = None;
        for peer in self.net.peers.ids() {
            let Some(next) = self.next_of_peer(now, radio, peer, held_back) else { continue };
            let first = &self.net.peers[peer].control_priority_limit;
            let late = next.order.is_control() && !first.has_token_at(now);
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

    /// Whether a message of `rank` to `peer` precedes the message `other`. Teams take turns, whatever the
    /// priorities of their packets.
    fn precedes(&self, radio: RadioId, (rank, peer): (u16, PeerId), other: (u16, PeerId)) -> bool {
        let (other_rank, other) = other;
        let radio = &self.net.radios[radio];
        match (self.net.peers[peer].team, self.net.peers[other].team) {
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
        let team = self.net.peers[peer].team;
        if team.is_some() {
            let is_control =
                self.net.peers[peer].channels.outbox.next_in_order(Scope::All)?.is_control();
            if self.teams.holds_back(&mut self.net.cx, now, team, is_control) {
                return None;
            }
        }
        if self.net.peers[peer].links.need_policies() {
            return self.next_by_policy(now, radio, peer, held_back);
        }
        let state = &self.net.peers[peer];
        for scope in [Scope::All, Scope::Unrelayed] {
            let order = state.channels.outbox.next_in_order(scope)?;
            let class = self.net.radios[radio].class(Some(order.priority()));
            let heard = |hop| self.net.peers.is_heard(hop);
            let link = state.links.first_usable_link((radio, class), None, heard)?;
            if scope == Scope::Unrelayed || self.net.peers[link].via.is_none() {
                let candidate = Candidate { peer, link, order, scope, copies: 1 };
                return (!held_back.contains(&link)).then_some(candidate);
            }
        }
        None
    }
}

/// Permission.
impl Schedule<'_> {
    /// Asks the controllers of the radio and of the link whether a packet may be sent.
    fn release(&mut self, now: Instant, radio: RadioId, next: &Candidate) -> (Limiter, Release) {
        let priority = next.order.priority();
        if self.net.peers[next.link].via.is_some() {
            let admits = self.net.peers[next.link].relay_window.admits(priority);
            return (Limiter::Radio, if admits { Release::Now } else { Release::Drained });
        }
        let waiting = self.net.peers[next.peer].channels.outbox.queues.waiting_bytes() as usize;
        let datagram = (waiting + HEADER_ESTIMATE).min(self.packet_bytes(next.link, priority));
        let ahead = self.net.in_flight(radio).ahead_of(self.net.class(next.link, Some(priority)));
        let link = &mut self.net.peers[next.link];
        let bytes = datagram + link.config.header_bytes;
        let packet = PendingPacket { bytes, urgent: link.is_urgent(priority) };
        let local = self.net.radios[radio].pacer.release(now, packet, ahead);
        let outstanding = link.sent_packets.outstanding_bytes();
        let (limit, release) = match &mut link.controller {
            Some(controller) if local == Release::Now => {
                (Limiter::Path, controller.release(now, packet, outstanding))
            }
            _ => (Limiter::Radio, local),
        };
        let by_path = limit == Limiter::Path;
        // A controller may start again on an idle path.
        let mut is_changed = by_path && outstanding == 0;
        if release != Release::Now {
            is_changed |= std::mem::replace(&mut link.headroom.limited_by_path, by_path) != by_path;
            self.net.radios[radio].on_held_back(by_path);
        }
        if is_changed {
            self.net.forget_forecasts();
        }
        (limit, release)
    }

    /// Largest datagram whose first message has this priority.
    fn packet_bytes(&self, id: LinkId, priority: u8) -> usize {
        let link = &self.net.peers[id];
        let limit = link.interleaving.limit(priority).unwrap_or(usize::MAX);
        self.net.datagram_bytes(id).min(limit.saturating_sub(link.config.header_bytes))
    }
}

/// The packet.
impl Schedule<'_> {
    fn data_packet(
        &mut self,
        now: Instant,
        radio: RadioId,
        next: &Candidate,
    ) -> Option<AccountedPacket> {
        let Candidate { peer: peer_id, link: id, order, .. } = *next;
        let capacity = self.net.datagram_bytes(id);
        let Network { cx, peers, .. } = &mut *self.net;
        let peer = &mut peers[peer_id];
        let mut packet = peer.start_packet(cx, now, id, capacity, false)?;
        let urgency = peer.channels.outbox.queues.urgency(order);
        if order.is_control() {
            peer.control_priority_limit.take(now);
        }
        let (pieces, more) = self.fill_packet(now, radio, next, &mut packet);
        let class = self.net.class(id, Some(urgency.priority));
        let Network { cx, peers, radios, .. } = &mut *self.net;
        let peer = &mut peers[peer_id];
        let link = &mut peer.links[id];
        let ip_bytes = packet.sealed_len() + link.config.header_bytes;
        let outstanding = link.sent_packets.outstanding_bytes() + ip_bytes;
        let asked = link.controller.as_ref().is_some_and(|it| it.wants_report(outstanding));
        let ack_soon = asked || !more;
        if ack_soon {
            SessionHeader::mark_ack_soon(packet.plaintext());
        }
        link.last_ack_eliciting = now;
        let eliciting = !pieces.is_empty();
        debug_assert!(eliciting || packet.sealed_len() > SESSION_HEADER + TIME_BYTES + TAG);
        radios[radio].on_data_sent(now, (peer.team, peer_id), ip_bytes);
        if !order.is_control() {
            self.teams.on_forwarded(now, peer.team, ip_bytes);
        }
        peer.channels.arm_expiry(cx, now);
        let request = match (eliciting, ack_soon) {
            (false, _) => AckRequest::None,
            (true, false) => AckRequest::Delayed,
            (true, true) => AckRequest::Soon,
        };
        let packet = peer.finish_packet(now, id, packet, pieces, (request, class))?;
        self.net.record_sealed(now, id, packet, Some(urgency))
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
        let mut max_whole_bytes = None;
        let mut repairs_control = false;
        let mut next = Some(*first);
        while let Some(Candidate { order, scope, copies, .. }) = next {
            let redundancy = self.net.redundancy(now, id);
            let Peer { links, channels, .. } = &mut self.net.peers[peer];
            let link = &mut links[id];
            let room = datagram_bytes.saturating_sub(packet.sealed_len());
            let carrier = Carrier { link: link.number, scope, copies, redundancy };
            let cut = channels.outbox.next_frame(now, carrier, order, room, max_whole_bytes);
            let Some(cut) = cut else { break };
            repairs_control |= cut.is_control_repair();
            let copies = redundancy.map_or(1, |it| u32::from(it.copies));
            link.redundancy_planner.charge(copies * cut.urgent_bytes);
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
            max_whole_bytes = Some(MAX_SHARED_BYTES);
            next = self.next_on_link(now, radio, first);
        }
        if repairs_control {
            self.net.peers[peer]
                .channels
                .outbox
                .control_repairs
                .on_sent(now, self.net.cx.draw_token());
        }
        (pieces, next.is_some())
    }

    /// The next message to add to a packet on this link. Without a choice of links, it is the next
    /// message of all, even if the link is stalled for its class: in a packet that is sent anyway
    /// it costs nothing, and the peer need not acknowledge early while more messages wait.
    fn next_on_link(
        &mut self,
        now: Instant,
        radio: RadioId,
        first: &Candidate,
    ) -> Option<Candidate> {
        let Candidate { peer, link, scope, .. } = *first;
        if self.net.peers[peer].links.need_policies() {
            let next = self.next_by_policy(now, radio, peer, &[]);
            return next.filter(|next| next.link == link && next.scope == scope);
        }
        let order = self.net.peers[peer].channels.outbox.next_in_order(scope)?;
        Some(Candidate { order, ..*first })
    }
}

/// A choice of links.
impl Schedule<'_> {
    /// The first message that the policies assign to a link of this radio.
    fn next_by_policy(
        &mut self,
        now: Instant,
        radio: RadioId,
        peer: PeerId,
        held_back: &[LinkId],
    ) -> Option<Candidate> {
        if self.net.peers[peer].channels.outbox.queues.waiting_messages() == 0 {
            return None;
        }
        let mut forecasts = self.net.take_forecasts(now, peer);
        for forecast in &mut forecasts.links {
            forecast.is_held_back = held_back.contains(&forecast.link);
            forecast.assigned_bytes = 0.0;
        }
        let next = self.next_by_forecasts(now, radio, peer, held_back, &mut forecasts);
        self.net.peers[peer].forecasts = forecasts;
        next
    }

    /// The first message that the policies assign to a link of this radio, by these forecasts.
    fn next_by_forecasts(
        &mut self,
        now: Instant,
        radio: RadioId,
        peer: PeerId,
        held_back: &[LinkId],
        forecasts: &mut Forecasts,
    ) -> Option<Candidate> {
        let is_spent = forecasts.links.iter().all(|forecast| forecast.spent);
        if forecasts.links.is_empty() || is_spent && self.net.peers[peer].links.has_unspent_link() {
            return self.next_on_restricted_link(radio, peer, held_back);
        }
        if !forecasts.links.iter().any(|forecast| forecast.radio == radio) {
            return None;
        }
        let mut waits = false;
        let mut chosen = None;
        for message in self.net.peers[peer].channels.outbox.ready_messages() {
            let rest = message.remaining_bytes() + HEADER_ESTIMATE;
            let mut demand = Demand {
                link_use: *message.link_use,
                rest,
                packet: rest.min(FULL_PACKET),
                draw: message.draw(),
            };
            if !message.is_copied() && matches!(demand.link_use.policy, LinkPolicy::Duplicate(_)) {
                demand.link_use.policy = LinkPolicy::Best;
            }
            let copy_bytes = |number| Some(message.bytes_on(number)).filter(|bytes| *bytes > 0);
            if let Some(link) = forecasts.assign(radio, &demand, copy_bytes) {
                let copies = forecasts.copies(&demand.link_use);
                let (order, scope) = (message.order, Scope::All);
                chosen = Some(Candidate { peer, link, order, scope, copies });
                break;
            }
            waits |= forecasts.can_carry(&demand.link_use);
        }
        if chosen.is_none() && waits {
            self.net.cx.timers.bring_forward(Timer::Pace(radio), now + REASSIGN_INTERVAL);
        }
        chosen
    }

    /// The first message that this radio can carry while no direct link carries all classes and
    /// channels: on a link on which only lower classes are stuck, on a spent link, or through a
    /// relay.
    fn next_on_restricted_link(
        &self,
        radio: RadioId,
        peer: PeerId,
        held_back: &[LinkId],
    ) -> Option<Candidate> {
        let state = &self.net.peers[peer];
        state.channels.outbox.ready_messages().find_map(|message| {
            let class = self.net.radios[radio].class(Some(message.order.priority()));
            let heard = |hop| self.net.peers.is_heard(hop);
            let link_use = Some(message.link_use);
            let link = state.links.first_usable_link((radio, class), link_use, heard)?;
            let is_relayed = self.net.peers[link].via.is_some();
            let scope = if is_relayed { Scope::Unrelayed } else { Scope::All };
            let fits = message.bytes_on(self.net.peers[link].number) > 0
                && !(is_relayed && message.is_relayed())
                && !held_back.contains(&link);
            fits.then_some(Candidate { peer, link, order: message.order, scope, copies: 1 })
        })
    }
}
