// SPDX-License-Identifier: Apache-2.0
//! Inputs of an endpoint: received datagrams and timeouts.

use crate::address::Place;
use crate::class::Class;
use crate::delivery::inbox::PARTIAL_CHECK;
use crate::delivery::outbox::LossCertainty;
use crate::ecn::Ecn;
use crate::endpoint::arrival::{Arrival, Origin};
use crate::endpoint::events::{Event, Notice};
use crate::endpoint::frames::FromPeer;
use crate::endpoint::removal::NumberedLink;
use crate::endpoint::{Endpoint, Timer};
use crate::ids::{LinkId, PeerId, RadioId};
use crate::recovery::received::{AckTrigger, ReceivedPackets};
use crate::recovery::sent::Outcome;
use crate::session::{KeyOrigin, KeyStatus};
use crate::stats::RefusedPacket;
use crate::time::{Duration, Instant};
use crate::wire::cursor::Reader;
use crate::wire::frame::{Ack, Frame};
use crate::wire::packet::{Packet, SessionHeader, full_number};
use crate::wire::{VERSION, WireError};
use std::net::SocketAddr;

/// Interval at which messages that wait for repair budget are examined.
const REPAIR_POLL: Duration = Duration::from_millis(20);

/// A session packet that decrypted.
#[derive(Debug, Clone, Copy)]
struct Opened<'a> {
    header: &'a SessionHeader,
    number: u64,
    /// The expected packet number of the link.
    expected: u64,
    datagram_len: usize,
    /// The sender's clock.
    clock: Option<u32>,
}

impl Endpoint {
    /// Handles a datagram that comes now from `from` by `radio`. Returns its sender if it decrypted
    /// under the keys of a session with a peer, whatever its content.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        radio: RadioId,
        from: SocketAddr,
        bytes: &[u8],
    ) -> Option<PeerId> {
        self.handle_received_packet(now, Arrival::default(), radio, from, bytes)
    }

    /// As [`Self::handle_packet`], for a datagram about whose arrival the caller knows more.
    pub fn handle_received_packet(
        &mut self,
        now: Instant,
        arrival: Arrival,
        radio: RadioId,
        from: SocketAddr,
        bytes: &[u8],
    ) -> Option<PeerId> {
        self.receive(now, arrival.origin(now, radio, from), bytes);
        self.authenticated_peer.take()
    }

    /// As [`Self::handle_received_packet`]. Decrypts the datagram where it is, without a copy.
    pub fn handle_packet_in_place(
        &mut self,
        now: Instant,
        arrival: Arrival,
        radio: RadioId,
        from: SocketAddr,
        bytes: &mut [u8],
    ) -> Option<PeerId> {
        self.receive_in_place(now, arrival.origin(now, radio, from), bytes);
        self.authenticated_peer.take()
    }

    /// Handles a packet.
    pub(crate) fn receive(&mut self, now: Instant, origin: Origin, bytes: &[u8]) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        scratch.extend_from_slice(bytes);
        self.receive_in_place(now, origin, &mut scratch);
        self.scratch = scratch;
    }

    /// Handles a packet, which is decrypted where it is.
    fn receive_in_place(&mut self, now: Instant, origin: Origin, bytes: &mut [u8]) {
        let Origin { radio, from, .. } = origin;
        self.clock_now = now;
        let result = match Packet::parse(bytes) {
            Ok(Packet::Session(header, _)) => self.handle_session(now, origin, &header, bytes),
            Ok(Packet::Initiation(it)) => self.handle_initiation(now, origin.return_path(), &it),
            Ok(Packet::Response(it)) => self.handle_response(now, origin.return_path(), &it),
            Ok(Packet::CookieReply(cookie)) => self.handle_cookie_reply(now, from, &cookie),
            Ok(Packet::Beacon(beacon)) => self.handle_beacon(now, radio, from, &beacon),
            Ok(Packet::OtherVersion(theirs)) => {
                self.notice(Notice::Version { from, theirs, ours: VERSION });
                Err(RefusedPacket::Version)
            }
            Err(_) => Err(RefusedPacket::Malformed),
        };
        if let Err(reason) = result {
            self.refused.add(reason);
        }
    }

    /// The peer from which a datagram claims to come: it has the session number of this peer.
    /// Anybody who hears the session can make this claim.
    pub fn claimed_sender(&self, bytes: &[u8]) -> Option<PeerId> {
        match Packet::parse(bytes) {
            Ok(Packet::Session(header, _)) => self.by_session.get(&header.session).copied(),
            _ => None,
        }
    }

    /// Whether a datagram has a session number that this node drew. No other datagram can move a
    /// link, so that the radio by which it came does not matter.
    pub fn bears_our_number(&self, bytes: &[u8]) -> bool {
        let number = match Packet::parse(bytes) {
            Ok(Packet::Session(header, _)) => header.session,
            Ok(Packet::Response(response)) => response.your_session,
            _ => return false,
        };
        self.by_session.contains_key(&number)
    }

    /// Reports the IP bytes of `link` and `class` that are in the kernel.
    pub fn handle_in_flight(&mut self, now: Instant, link: LinkId, class: Class, bytes: usize) {
        let state = &mut self.links[link];
        let drained = state.in_flight.of(class).saturating_sub(bytes);
        state.on_in_flight(now, class, bytes);
        if drained > 0 && state.up {
            self.radios[state.radio].pacer.on_drained(now, drained);
        }
        self.arm_link(link);
    }

    /// Handles all timers that are due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.clock_now = now;
        while let Some(timer) = self.timers.pop(now) {
            match timer {
                Timer::Reconnect(link) => self.on_reconnect_timer(now, link),
                Timer::Path(link) => self.on_path_timer(now, link),
                Timer::Rendezvous(peer) => self.on_rendezvous_timer(now, peer),
                Timer::Rekey(peer) => self.on_rekey_timer(now, peer),
                Timer::Ping(link) => self.links[link].ping_now = true,
                Timer::Probe(link) => self.on_probe_timer(link),
                Timer::Silent(link) => self.on_silent_timer(now, link),
                Timer::Loss(link) => {
                    let outcome = self.links[link].sent_packets.on_timer(now);
                    self.links[link].count_losses(&outcome, true);
                    self.apply_outcome(now, link, outcome);
                }
                Timer::Stall(link) => self.mark_stalled(now, link),
                Timer::Expiry(peer) => {
                    self.peers[peer].outbox.expire(now);
                    self.arm_expiry(now, peer);
                }
                Timer::Partials(peer) => {
                    let state = &mut self.peers[peer];
                    state.inbox.expire(now);
                    self.arm_partials(now, peer);
                    self.deliver_ready(now, peer);
                }
                Timer::Order(peer) => {
                    self.peers[peer].inbox.end_waits(now);
                    self.deliver_ready(now, peer);
                }
                // Polling for packets finds what is due.
                Timer::Ack(..) | Timer::Pace(_) | Timer::Held(_) | Timer::Team(_) => {}
            }
        }
    }

    fn handle_session(
        &mut self,
        now: Instant,
        origin: Origin,
        header: &SessionHeader,
        datagram: &mut [u8],
    ) -> Result<(), RefusedPacket> {
        let Origin { radio, from, local, arrived, relayed_age, ecn } = origin;
        let peer = *self.by_session.get(&header.session).ok_or(RefusedPacket::UnknownSession)?;
        let (packet, body) = self.open(now, peer, header, datagram)?;
        let status = self.peers[peer].session.confirm(header.session);
        if let KeyStatus::Confirmed { new_epoch, to } = status {
            self.start_keys(now, peer, new_epoch);
            // The peer received our response, so that it receives at the address of the response.
            let link = self.link_towards(peer, radio, from).filter(|_| from == to);
            if let Some(link) = link {
                self.move_link(now, link, radio, from);
            }
        }
        let frames = parse_frames(body).map_err(|_| RefusedPacket::Malformed)?;
        if matches!(from, Place::Relay { .. }) && frames.iter().any(is_for_neighbours) {
            return Err(RefusedPacket::Malformed);
        }
        self.admit(now, peer, &frames)?;
        let link = self.attribute(now, peer, origin, &packet)?;
        self.record_received((now, arrived, ecn), peer, link, &packet, &frames);
        if self.links[link].remote == Some(from) {
            if packet.number >= packet.expected {
                self.links[link].source.on_packet(now, from, local);
            }
            self.mark_received(now, link, packet.datagram_len);
        }
        let clock = packet.clock;
        let rtt = self.links[link].sent_packets.rtt().smoothed().unwrap_or_default();
        let transit = self.peers[peer].transit(now, clock, rtt, relayed_age);
        self.handle_frames(&FromPeer { now, peer, link, origin, clock, transit }, &frames)
    }

    /// Decrypts a packet of a peer, in place; returns it and its frames.
    fn open<'a>(
        &mut self,
        now: Instant,
        peer: PeerId,
        header: &'a SessionHeader,
        datagram: &'a mut [u8],
    ) -> Result<(Opened<'a>, &'a [u8]), RefusedPacket> {
        let state = &self.peers[peer];
        let (keys, key_origin) =
            state.session.find(now, header.session).ok_or(RefusedPacket::UnknownSession)?;
        let is_in_use = key_origin == KeyOrigin::InUse;
        let received = state.received_packets.get(&header.link);
        let received = received.filter(|_| is_in_use || state.session.continues(keys));
        let expected = received.map_or(1, ReceivedPackets::expected);
        let number = full_number(header.number, expected);
        if received.is_some_and(|received| !received.is_new(number)) {
            self.count_duplicate(peer, header.link);
            return Err(RefusedPacket::Duplicate);
        }
        let datagram_len = datagram.len();
        let opened = keys.sealer.open(header.link, number, datagram);
        let body: &[u8] = opened.ok_or(RefusedPacket::Unauthentic)?;
        // From here on the packet is the peer's, whatever its content. A relayed packet counts for
        // the relay.
        self.authenticated_peer.get_or_insert(peer);
        let epoch = keys.epoch;
        if !is_in_use && !self.peers[peer].session.may_use_epoch(now, epoch) {
            return Err(RefusedPacket::Flood);
        }
        let (clock, body) = match header.relayed {
            true => (None, body),
            false => body.split_first_chunk().map_or((None, body), |(it, rest)| (Some(*it), rest)),
        };
        let clock = clock.map(u32::from_le_bytes);
        Ok((Opened { header, number, expected, datagram_len, clock }, body))
    }

    fn count_duplicate(&mut self, peer: PeerId, number: u8) {
        let received = self.peers[peer].received_packets.get(&number);
        if let Some(via) = received.and_then(|received| received.via) {
            self.links[via].stats.duplicate_packets += 1;
        }
    }

    /// Checks that there is capacity for the frames' data.
    fn admit(&self, now: Instant, peer: PeerId, frames: &[Frame<'_>]) -> Result<(), RefusedPacket> {
        let state = &self.peers[peer];
        let data = frames.iter().filter_map(|frame| match frame {
            Frame::Data(data, bytes) | Frame::Parity(data, bytes) => Some((data, bytes.len())),
            _ => None,
        });
        let mut data = data.peekable();
        let has_room = data.peek().is_none() || self.events.has_room(Some(peer));
        let admits = has_room && state.inbox.admits(data, state.control.has_one(now));
        if admits { Ok(()) } else { Err(RefusedPacket::Bound) }
    }

    /// The link to which a packet belongs. A packet from an address to which no link leads suggests
    /// that the peer moved, if its number is the highest so far.
    fn attribute(
        &mut self,
        now: Instant,
        peer: PeerId,
        origin: Origin,
        packet: &Opened<'_>,
    ) -> Result<LinkId, RefusedPacket> {
        let Origin { radio, from, .. } = origin;
        if let Some(link) = self.link_from(peer, radio, from) {
            return Ok(link);
        }
        // Only the configuration determines which relays lead to a peer.
        if matches!(from, Place::Relay { .. }) {
            return Err(RefusedPacket::UnknownSession);
        }
        let their_link = packet.header.link;
        let received = &self.peers[peer].received_packets;
        let last = received.get(&their_link).and_then(|received| received.via);
        // Two links of the peer lead to one of ours only while one of them is attributed wrongly.
        let mut others = received.iter().filter(|(number, _)| **number != their_link);
        let last = last.filter(|_| others.all(|(_, other)| other.via != last));
        let link = last.or_else(|| self.link_towards(peer, radio, from));
        let link = link.ok_or(RefusedPacket::UnknownSession)?;
        if packet.number >= packet.expected {
            self.challenge(now, link, origin.return_path());
        }
        Ok(link)
    }

    /// Records the packet number and the clock, and plans an acknowledgement. The times are now, and
    /// that of the packet's arrival with this ECN field.
    fn record_received(
        &mut self,
        (now, arrived, ecn): (Instant, Instant, Ecn),
        peer: PeerId,
        link: LinkId,
        packet: &Opened<'_>,
        frames: &[Frame<'_>],
    ) {
        let &Opened { header, number, datagram_len, clock, .. } = packet;
        let state = &mut self.peers[peer];
        let received =
            state.received_packets.entry(header.link).or_insert_with(ReceivedPackets::new);
        let gap = number != received.expected();
        let trigger = AckTrigger { ack_soon: header.ack_soon, gap };
        let overtaken = number < received.expected();
        received.insert(arrived, number, ecn);
        if let Some(clock) = clock {
            state.clock.on_packet(arrived, clock);
            received.on_clock(arrived, clock, overtaken);
        }
        received.via = Some(link);
        let carries =
            |f: &Frame<'_>| matches!(f, Frame::Data(..) | Frame::Parity(..) | Frame::Relay(..));
        let is_message = frames.iter().any(carries);
        if is_message {
            self.links[link].last_message = Some(now);
        }
        if is_message || frames.iter().any(|f| matches!(f, Frame::Ping)) {
            if header.relayed {
                received.plan_relayed_ack(now);
            } else if frames.iter().any(|f| matches!(f, Frame::Relay(..))) {
                received.plan_hop_ack(now, trigger);
            } else {
                let ip_bytes = datagram_len + self.links[link].config.header_bytes;
                received.plan_ack(now, ip_bytes, trigger);
            }
            let due = received.ack_due();
            self.timers.set(Timer::Ack(peer, header.link), due);
        }
    }

    /// A packet came from the address to which the link leads: the link is up.
    pub(crate) fn mark_received(&mut self, now: Instant, id: LinkId, datagram_len: usize) {
        let link = &mut self.links[id];
        link.last_received = Some(now);
        if datagram_len > 0 {
            link.stats.received_packets += 1;
            link.stats.received_bytes += (datagram_len + link.config.header_bytes) as u64;
        }
        let (was_up, is_metered) = (link.up, link.config.metered);
        self.await_packet(now, id);
        if was_up {
            if is_metered {
                self.arm_link(id);
            }
            return;
        }
        let link = &mut self.links[id];
        link.up = true;
        link.sent_packets.mtu.on_up();
        link.confirm_address();
        link.last_eliciting = now;
        // During the outage, translators may have forgotten it.
        link.ends.ask_again();
        link.ping_now |= link.ends.asks();
        let peer = link.peer;
        self.on_link_up(now, id);
        self.arm_link(id);
        self.emit(Event::LinkUp { link: id });
        let peer_state = &mut self.peers[peer];
        if !std::mem::replace(&mut peer_state.up, true) {
            self.emit(Event::PeerUp { peer, new_session: false });
        }
    }

    pub(crate) fn mark_down(&mut self, now: Instant, id: LinkId) {
        let link = &mut self.links[id];
        if !std::mem::replace(&mut link.up, false) {
            return;
        }
        link.silent = false;
        link.headroom.forget();
        // The machine may have lost the address from which the link sends.
        link.source.forget();
        self.mark_all_lost(now, id);
        self.links[id].sent_packets.test_ecn();
        self.timers.set(Timer::Ping(id), None);
        self.timers.set(Timer::Silent(id), None);
        self.timers.set(Timer::Reconnect(id), Some(now));
        self.emit(Event::LinkDown { link: id });
        let peer = self.links[id].peer;
        let state = &mut self.peers[peer];
        if state.up && !state.links.iter().any(|l| self.links[*l].up) {
            state.up = false;
            let said_goodbye = state.said_goodbye;
            self.emit(Event::PeerDown { peer, said_goodbye });
        }
        if !self.direct_links(peer).any(|link| link.up) {
            self.forget_routes(now, peer);
        }
        self.on_link_lost(now, id);
        self.rouse_metered_links(now, peer);
    }

    /// Applies an acknowledgement. `clock` is that of its packet.
    pub(crate) fn handle_ack(&mut self, now: Instant, peer: PeerId, clock: Option<u32>, ack: &Ack) {
        let id = match self.link_by_number(peer, ack.link) {
            NumberedLink::Open(id) => id,
            // It acknowledges packets that were in flight when the link was removed.
            NumberedLink::Removed => return,
            NumberedLink::Unknown => return self.refused.add(RefusedPacket::Malformed),
        };
        let link = &mut self.links[id];
        match link.sent_packets.acknowledge(now, ack) {
            Ok(outcome) => {
                link.measure_delay(now, clock, ack, &outcome);
                link.count_losses(&outcome, false);
                link.report_to_controller(now, clock, ack, &outcome);
                self.apply_outcome(now, id, outcome);
                self.follow_path_mtu(id);
                self.report_available_rate(now, id);
            }
            Err(()) => self.refused.add(RefusedPacket::Malformed),
        }
    }

    pub(crate) fn apply_outcome(&mut self, now: Instant, id: LinkId, outcome: Outcome) {
        let link = &mut self.links[id];
        link.stats.acked_packets += outcome.acked_packets;
        link.stats.lost_packets += outcome.lost_packets;
        link.stats.spurious_losses += outcome.spurious_losses;
        link.stats.marked_packets += outcome.marked_packets;
        let silent = link.sent_packets.is_silent();
        let was_silent = link.silent;
        let fell_silent = silent && !was_silent;
        link.silent = silent;
        // Send a PING immediately, since the peer may be away.
        let is_overdue = outcome.overdue && outcome.lost_packets > 0;
        link.ping_now |= link.up && (fell_silent || is_overdue && link.may_ping_again(now));
        let peer = link.peer;
        let outbox = &mut self.peers[peer].outbox;
        for piece in &outcome.acked {
            outbox.acked(now, piece);
        }
        let certainty =
            if outcome.overdue { LossCertainty::Overdue } else { LossCertainty::Certain };
        for piece in &outcome.lost {
            let _ = outbox.lost(now, piece, certainty);
        }
        if fell_silent {
            self.mark_all_lost(now, id);
            self.links[id].sent_packets.test_ecn();
            // The peer may have restarted without our keys.
            self.timers.set(Timer::Reconnect(id), Some(now));
            self.rouse_metered_links(now, peer);
            self.on_link_lost(now, id);
        } else if was_silent && !silent {
            self.on_link_heard(now, id);
        }
        self.arm_link(id);
        self.arm_expiry(now, peer);
    }

    /// The driver has sent nothing for too long. The messages on the link go to others.
    fn mark_stalled(&mut self, now: Instant, id: LinkId) {
        self.links[id].stalled = true;
        if self.has_other_link(id) {
            self.mark_all_lost(now, id);
        }
    }

    /// Declares all outstanding packets of a link lost. Their repair does not charge the budget,
    /// since the loss is not caused by congestion.
    pub(crate) fn mark_all_lost(&mut self, now: Instant, id: LinkId) {
        let link = &mut self.links[id];
        let outcome = link.lose_all();
        link.stats.lost_packets += outcome.lost_packets;
        let (peer, number) = (link.peer, link.number);
        let outbox = &mut self.peers[peer].outbox;
        for piece in &outcome.lost {
            if outbox.lost(now, piece, LossCertainty::Certain) {
                outbox.refund(piece);
            }
        }
        outbox.abandon_copies(number);
        self.arm_link(id);
        self.arm_expiry(now, peer);
    }

    /// Emits a notice, unless the event queue is full.
    pub(crate) fn notice(&mut self, notice: Notice) {
        if self.events.has_room(self.authenticated_peer) {
            self.emit(Event::Notice(notice));
        }
    }
}

/// Whether a frame is for neighbours only. Relayed packets must not have such frames; otherwise
/// packets could be nested without end.
fn is_for_neighbours(frame: &Frame<'_>) -> bool {
    matches!(frame, Frame::Relay(..) | Frame::Held(_))
}

fn parse_frames(bytes: &[u8]) -> Result<Vec<Frame<'_>>, WireError> {
    let mut reader = Reader::new(bytes);
    let mut frames = Vec::with_capacity(4);
    while !reader.is_empty() {
        frames.push(Frame::parse(&mut reader)?);
    }
    Ok(frames)
}

/// Timers.
impl Endpoint {
    pub(crate) fn arm_link(&mut self, id: LinkId) {
        let lost_at = self.links[id].sent_packets.timer();
        self.timers.set(Timer::Loss(id), lost_at);
        let link = &self.links[id];
        self.timers.set(Timer::Stall(id), link.stall_at(self.has_other_link(id)));
        let ping_at = link.last_eliciting + self.ping_interval(self.clock_now, id);
        let ping_at = Some(ping_at).filter(|_| link.up);
        self.timers.set(Timer::Ping(id), ping_at.filter(|_| !link.ping_now));
    }

    pub(crate) fn arm_expiry(&mut self, now: Instant, peer: PeerId) {
        let outbox = &self.peers[peer].outbox;
        let mut at = outbox.next_expiry();
        let waits = outbox.waits_for_budget();
        let idle_bps = waits.then(|| self.fair_share_bps(peer)).flatten();
        self.peers[peer].outbox.set_idle_rate(now, idle_bps);
        if waits {
            at = Some(at.map_or(now + REPAIR_POLL, |at| at.min(now + REPAIR_POLL)));
        }
        self.timers.set(Timer::Expiry(peer), at);
    }

    pub(crate) fn arm_partials(&mut self, now: Instant, peer: PeerId) {
        let inbox = &self.peers[peer].inbox;
        if inbox.has_partials() && !self.timers.is_set(&Timer::Partials(peer)) {
            self.timers.set(Timer::Partials(peer), Some(now + PARTIAL_CHECK));
        }
    }
}
