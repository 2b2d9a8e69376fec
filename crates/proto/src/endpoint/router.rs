// SPDX-License-Identifier: Apache-2.0
//! Routes packets and timers to peers, gives radios their turns, and does what peers ask for.

use crate::endpoint::arrival::Origin;
use crate::endpoint::context::{Context, Request};
use crate::endpoint::discovery::Beacons;
use crate::endpoint::events::{Event, Notice};
use crate::endpoint::handshake::{Handshakes, handle_cookie_reply};
use crate::endpoint::network::{AccountedPacket, Network, Transmit};
use crate::endpoint::peer::Peer;
use crate::endpoint::peer::frames::{PacketContext, PacketCost};
use crate::endpoint::relay::{ForwardOutcome, Relay, may_relay};
use crate::endpoint::schedule::Schedule;
use crate::endpoint::teams::Teams;
use crate::endpoint::timer::Timer;
use crate::ids::{LinkId, PeerId};
use crate::stats::RefusedPacket;
use crate::time::Instant;
use crate::wire::VERSION;
use crate::wire::frame::Frame;
use crate::wire::packet::{Packet, SessionHeader};

/// The parts of an endpoint that handle packets and timers.
pub(crate) struct Router {
    pub(crate) net: Network,
    pub(crate) relay: Relay,
    pub(crate) teams: Teams,
    pub(crate) beacons: Beacons,
    pub(crate) handshakes: Handshakes,
    /// Buffer in which packets are decrypted.
    scratch: Vec<u8>,
}

/// Received packets.
impl Router {
    pub(crate) fn new(cx: Context) -> Self {
        Self {
            handshakes: Handshakes::new(&cx.config.key),
            net: Network::new(cx),
            relay: Relay::default(),
            teams: Teams::new(),
            beacons: Beacons::new(),
            scratch: Vec::new(),
        }
    }

    /// Handles a packet.
    pub(crate) fn receive(&mut self, now: Instant, origin: Origin, bytes: &[u8]) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        scratch.extend_from_slice(bytes);
        self.receive_in_place(now, origin, &mut scratch);
        self.scratch = scratch;
    }

    /// Handles a packet and decrypts it in place.
    pub(crate) fn receive_in_place(&mut self, now: Instant, origin: Origin, bytes: &mut [u8]) {
        let Origin { radio, from, .. } = origin;
        let path = origin.return_path();
        let net = &mut self.net;
        net.cx.clock_now = now;
        let result = match Packet::parse(bytes) {
            Ok(Packet::Session(header, _)) => self.handle_session(now, origin, &header, bytes),
            Ok(Packet::Initiation(it)) => self.handshakes.handle_initiation(net, now, path, &it),
            Ok(Packet::Response(it)) => self.handshakes.handle_response(net, now, path, &it),
            Ok(Packet::CookieReply(cookie)) => handle_cookie_reply(net, now, from, &cookie),
            Ok(Packet::Beacon(beacon)) => self.beacons.handle(net, now, radio, from, &beacon),
            Ok(Packet::OtherVersion(theirs)) => {
                net.cx.emit_notice(Notice::Version { from, theirs, ours: VERSION });
                Err(RefusedPacket::Version)
            }
            Err(_) => Err(RefusedPacket::Malformed),
        };
        self.process_requests(now);
        if let Err(reason) = result {
            self.net.cx.refused.add(reason);
        }
    }

    fn handle_session(
        &mut self,
        now: Instant,
        mut origin: Origin,
        header: &SessionHeader,
        datagram: &mut [u8],
    ) -> Result<(), RefusedPacket> {
        let known = self.net.peers.find_by_session(header.session);
        let id = known.ok_or(RefusedPacket::UnknownSession)?;
        origin.is_metered = self.net.must_avoid_radio(id, origin.radio);
        let Network { cx, peers, .. } = &mut self.net;
        let received = peers[id].receive(cx, now, origin, header, datagram);
        peers.release_numbers(id);
        self.process_requests(now);
        let (mut packet, frames) = received?;
        let has_relayed = frames.iter().any(|frame| matches!(frame, Frame::Relay(..)));
        packet.may_relay = has_relayed && may_relay(&self.net, id);
        self.handle_frames(id, &packet, &frames)
    }

    fn handle_frames(
        &mut self,
        id: PeerId,
        packet: &PacketContext,
        frames: &[Frame<'_>],
    ) -> Result<(), RefusedPacket> {
        let mut cost = PacketCost::default();
        for frame in frames {
            let Network { cx, peers, .. } = &mut self.net;
            if let Err(reason) = peers[id].handle_frame(cx, packet, &mut cost, frame) {
                cx.refused.add(reason);
            }
            self.process_requests(packet.now);
            if let Frame::Goodbye = frame {
                return Ok(());
            }
        }
        // One notice for the whole packet, since a notice costs more than the rest.
        if cost.has_forbidden_relay {
            let name = self.net.peers[id].name.clone();
            self.net.cx.emit_notice(Notice::NotRelayed { name });
            return Err(RefusedPacket::NotRelayed);
        }
        Ok(())
    }
}

/// What peers ask for.
impl Router {
    /// Lets the peer of a link act, and does what it asks for.
    pub(crate) fn with_link<T>(
        &mut self,
        now: Instant,
        id: LinkId,
        act: impl FnOnce(&mut Peer, &mut Context) -> T,
    ) -> Option<T> {
        let peer = self.net.peers.link(id)?.peer;
        Some(self.with_peer(now, peer, act))
    }

    /// Lets a peer act, and does what it asks for.
    pub(crate) fn with_peer<T>(
        &mut self,
        now: Instant,
        id: PeerId,
        act: impl FnOnce(&mut Peer, &mut Context) -> T,
    ) -> T {
        let Network { cx, peers, .. } = &mut self.net;
        let done = act(&mut peers[id], cx);
        self.process_requests(now);
        done
    }

    /// Processes the requests that peers have made.
    pub(crate) fn process_requests(&mut self, now: Instant) {
        while let Some(request) = self.net.cx.requests.pop_front() {
            let net = &mut self.net;
            match request {
                Request::Relay { hop, radio, priority, packet } => {
                    let way = (hop, priority);
                    match self.relay.forward(net, &self.teams, now, way, &packet) {
                        Ok(ForwardOutcome::Forwarded) => {}
                        Ok(ForwardOutcome::Local(from, bytes)) => {
                            self.receive(now, Origin::relayed(now, radio, from, packet.age), bytes);
                        }
                        Err(reason) => {
                            net.cx.refused.add(reason);
                            self.teams.count_refusal(net.peers[hop].team, reason);
                        }
                    }
                    let Network { cx, peers, .. } = &mut self.net;
                    peers[hop].channels.after_fragment(cx, now);
                }
                Request::Backlog { hop, held } => self.relay.handle_report(net, now, hop, &held),
                Request::ForgetRoutes(peer) => self.relay.forget_routes(net, now, peer),
                Request::IdleRate(peer) => net.set_idle_rate(now, peer),
                Request::AvailableRate(link) => net.report_available_rate(now, link),
                Request::Candidates { peer, candidates } => {
                    net.handle_candidates(now, peer, &candidates);
                }
                Request::SeekDirectPaths(hop) => net.seek_direct_paths_via(now, hop),
                Request::EndSession { peer, said_goodbye } => {
                    self.end_session(now, peer, said_goodbye);
                }
            }
        }
    }

    /// Ends a session after a goodbye was sent or received. The next session has other epochs.
    fn end_session(&mut self, now: Instant, id: PeerId, said_goodbye: bool) {
        self.net.peers[id].said_goodbye = said_goodbye;
        for link in self.net.peers[id].links.ids().to_vec() {
            let Network { cx, peers, .. } = &mut self.net;
            peers[id].mark_down(cx, now, link);
            self.process_requests(now);
        }
        let Network { cx, peers, .. } = &mut self.net;
        peers[id].end_session(cx);
        peers.release_numbers(id);
        self.relay.forget_routes(&mut self.net, now, id);
        let Network { cx, peers, .. } = &mut self.net;
        peers[id].reset_session(cx, now);
        cx.timers.set(Timer::Rekey(id), None);
        cx.emit(id, Event::PeerLeft { peer: id });
        peers[id].said_goodbye = false;
    }
}

/// Timers.
impl Router {
    /// Handles all timers that are due at `now`.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.net.cx.clock_now = now;
        while let Some(timer) = self.net.cx.timers.pop(now) {
            self.on_timer(now, timer);
            self.process_requests(now);
        }
    }

    fn on_timer(&mut self, now: Instant, timer: Timer) {
        let Network { cx, peers, .. } = &mut self.net;
        match timer {
            Timer::Rendezvous(peer) => self.net.on_rendezvous_timer(now, peer),
            Timer::Rekey(peer) => {
                peers[peer].on_rekey_timer(cx, now);
                peers.release_numbers(peer);
            }
            Timer::Expiry(peer) => peers[peer].channels.on_expiry_timer(cx, now),
            Timer::Reassembly(peer) => peers[peer].channels.on_partials_timer(cx, now),
            Timer::Order(peer) => peers[peer].channels.on_order_timer(cx, now),
            Timer::Reconnect(link)
            | Timer::PathValidation(link)
            | Timer::Ping(link)
            | Timer::LinkTimeout(link)
            | Timer::Loss(link)
            | Timer::Probe(link)
            | Timer::Stall(link) => self.on_link_timer(now, timer, link),
            // Polling for packets finds what is due.
            Timer::Ack(..) | Timer::Pace(_) | Timer::BacklogReport(_) | Timer::Team(_) => {}
        }
    }

    fn on_link_timer(&mut self, now: Instant, timer: Timer, id: LinkId) {
        let Network { cx, peers, .. } = &mut self.net;
        let Some(link) = peers.link(id) else { return };
        let has_relay = link.via.is_none_or(|hop| peers.is_heard(hop));
        let Some(peer) = peers.peer_of_link(id) else { return };
        match timer {
            Timer::Reconnect(_) => peer.on_reconnect_timer(cx, now, id, has_relay),
            Timer::PathValidation(_) => peer.links.on_path_timer(cx, now, id),
            Timer::Ping(_) => peer.links[id].ping_now = true,
            Timer::Probe(_) => peer.links[id].on_probe_timer(),
            Timer::LinkTimeout(_) => peer.on_silent_timer(cx, now, id),
            Timer::Loss(_) => peer.on_loss_timer(cx, now, id),
            Timer::Stall(_) => peer.mark_stalled(cx, now, id),
            _ => {}
        }
    }
}

/// Outputs.
impl Router {
    /// The next datagram to send now. Call until it returns `None`, and again after the next input or
    /// timeout.
    pub(crate) fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        loop {
            self.relay.process_backlog_changes(&mut self.net, now);
            let transmit = self.poll_handshakes(now).or_else(|| self.poll_session_packets(now));
            // A packet that was handed to a relay is now queued for that relay, and may be sent
            // immediately.
            if transmit.is_some() || !self.relay.take_pending() {
                return transmit;
            }
        }
    }

    /// Replies, initiations, and challenges that validate addresses.
    fn poll_handshakes(&mut self, now: Instant) -> Option<Transmit> {
        let polls = [Network::poll_reply, Network::poll_initiation, Network::poll_challenge];
        polls.into_iter().find_map(|poll| self.poll(now, poll))
    }

    /// Packets of sessions. Small packets precede messages, and probes come last.
    fn poll_session_packets(&mut self, now: Instant) -> Option<Transmit> {
        while let Some(sent) = self.net.poll_candidates(now) {
            let _ = self.dispatch(now, sent);
        }
        let reports = [Network::poll_reports, Network::poll_backlog_report];
        let report = reports.into_iter().find_map(|poll| self.poll(now, poll));
        report.or_else(|| self.poll_data(now)).or_else(|| self.poll(now, Network::poll_probe))
    }

    fn poll_data(&mut self, now: Instant) -> Option<Transmit> {
        let Self { net, teams, .. } = self;
        Schedule { net, teams }.discard_late(now);
        self.net.radios.ids().find_map(|radio| {
            let Self { net, teams, .. } = self;
            let sent = Schedule { net, teams }.poll_radio(now, radio);
            self.process_requests(now);
            self.dispatch(now, sent?)
        })
    }

    fn poll(
        &mut self,
        now: Instant,
        poll: fn(&mut Network, Instant) -> Option<AccountedPacket>,
    ) -> Option<Transmit> {
        let sent = poll(&mut self.net, now);
        let transmit = sent.and_then(|sent| self.dispatch(now, sent));
        self.process_requests(now);
        transmit
    }

    /// Returns the datagram to send. A packet for a relay is queued as a message to the relay
    /// instead.
    pub(crate) fn dispatch(&mut self, now: Instant, sent: AccountedPacket) -> Option<Transmit> {
        match sent {
            AccountedPacket::Datagram(transmit) => Some(transmit),
            AccountedPacket::ToRelay(packet) => {
                self.relay.hand_over(&mut self.net, now, packet);
                self.process_requests(now);
                None
            }
        }
    }
}
