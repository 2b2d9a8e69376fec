// SPDX-License-Identifier: Apache-2.0
//! Handshakes: initiations, responses and cookie replies, sent and received.

use crate::address::Place;
use crate::config::METERED_HEARTBEAT;
use crate::crypto::cookies::Admission;
use crate::crypto::noise::ReceivedInitiation;
use crate::ecn::Ecn;
use crate::endpoint::arrival::ReturnPath;
use crate::endpoint::events::{Event, Notice};
use crate::endpoint::{Endpoint, Timer, Transmit};
use crate::ids::{LinkId, PeerId, RadioId};
use crate::path::link::Link;
use crate::session::{Epochs, HandshakeOutcome};
use crate::stats::RefusedPacket;
use crate::time::{Duration, Instant};
use crate::wire::packet::{CookieReply, Greeting, Initiation, Response, Verdict};

/// Interval at which a link that is down sends a PING or an initiation, in turn. A PING has 73
/// bytes of IP and an initiation at most 234: together 0.48 % of 1.5 Mbps. A link that works again
/// is found within 170 ms if the keys are still known, and within 340 ms if not.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(170);
/// The same for a peer that has been away for [`LONG_DOWN`].
const RECONNECT_INTERVAL_LONG_DOWN: Duration = Duration::from_millis(500);
const LONG_DOWN: Duration = Duration::from_secs(300);
/// A rekeying that did not complete is repeated after this time.
const REKEY_RETRY: Duration = Duration::from_millis(500);
/// Least time between notices of initiations for another key, which anybody can send.
const NOTICE_INTERVAL: Duration = Duration::from_millis(250);
/// Limit of queued responses, cookie replies and ECHO packets.
const MAX_REPLIES: usize = 64;

/// Sending.
impl Endpoint {
    pub(crate) fn on_reconnect_timer(&mut self, now: Instant, id: LinkId) {
        if self.is_given_up(now, id) {
            self.forget_direct_path(now, id);
        }
        let link = &mut self.links[id];
        let peer = &self.peers[link.peer];
        if link.is_heard() {
            return;
        }
        // Initiations and PINGs alternate, and each of them goes to both addresses.
        if !link.up && link.reconnect_attempts.is_multiple_of(2) {
            link.try_alternate_address();
        }
        let (via, reachable) = (link.via, link.remote.is_some());
        let reachable = reachable && via.is_none_or(|hop| self.is_heard(hop));
        let link = &mut self.links[id];
        link.reconnect_attempts = link.reconnect_attempts.wrapping_add(1);
        // While another link to the peer is heard, the keys are valid and a PING suffices.
        let heard = peer.links.iter().any(|other| self.links[*other].is_heard());
        let link = &mut self.links[id];
        if peer.session.keys().is_some() && (heard || link.reconnect_attempts.is_multiple_of(2)) {
            link.ping_now = reachable;
        } else {
            link.initiate_now = reachable;
        }
        let away = link.last_received.is_none_or(|at| now.since(at) > LONG_DOWN);
        let started = now.0 > LONG_DOWN.as_nanos() as u64;
        let wait = if self.is_spared(now, id) {
            METERED_HEARTBEAT
        } else if away && started {
            RECONNECT_INTERVAL_LONG_DOWN
        } else {
            RECONNECT_INTERVAL
        };
        self.timers.set(Timer::Reconnect(id), Some(now + wait));
    }

    /// Whether packets of a peer arrive without a relay.
    pub(crate) fn is_heard(&self, peer: PeerId) -> bool {
        self.direct_links(peer).any(Link::is_heard)
    }

    /// Renews the keys before they end, and forgets those that have ended.
    pub(crate) fn on_rekey_timer(&mut self, now: Instant, peer: PeerId) {
        let state = &mut self.peers[peer];
        state.session.expire_keys(now);
        let rekey_at = state.session.rekey_at();
        if rekey_at.is_none() {
            for id in state.links.clone() {
                self.mark_down(now, id);
            }
        } else if rekey_at.is_some_and(|at| at <= now) {
            let any = state.links.iter().find(|id| self.links[**id].up);
            if let Some(id) = any {
                self.links[*id].initiate_now = true;
            }
        }
        self.release_numbers(peer);
        let again = rekey_at.map(|at| at.max(now + REKEY_RETRY));
        self.timers.set(Timer::Rekey(peer), again);
    }

    pub(crate) fn poll_initiation(&mut self, now: Instant) -> Option<Transmit> {
        // While the radio still holds the last one, no other is queued. Otherwise a queue of them
        // would be older than the state that their responses need.
        let id = self.links.position(|link| link.initiate_now && !link.has_pending_report())?;
        let link = &mut self.links[id];
        link.initiate_now = false;
        let peer = link.peer;
        let (session, drawn) = (self.draw_session(peer), self.draw_key());
        let state = &mut self.peers[peer].session;
        let greeting = Greeting { epoch: state.own_epoch(), name: &self.config.name };
        let datagram = state.initiate(now, &self.config.key, &greeting, session, drawn);
        if state.pending_session() != Some(session) {
            state.released.push(session);
        }
        self.release_numbers(peer);
        self.sent(now, id, datagram?, None, Ecn::NotCapable)
    }

    fn release_numbers(&mut self, peer: PeerId) {
        for number in self.peers[peer].session.released.drain(..) {
            self.by_session.remove(&number);
        }
    }

    /// Queues a reply, which goes to the address from which its cause came.
    pub(crate) fn reply(&mut self, to: ReturnPath, datagram: Option<Vec<u8>>) {
        if let Some(datagram) = datagram.filter(|_| self.replies.len() < MAX_REPLIES) {
            // The newest reply replaces an older one, whose state is outdated.
            let address = |it: &ReturnPath| (it.radio, it.remote);
            self.replies.retain(|(other, _)| address(other) != address(&to));
            self.replies.push_back((to, datagram));
        }
    }

    pub(crate) fn poll_reply(&mut self, now: Instant) -> Option<Transmit> {
        let open = |to: &ReturnPath| {
            let link = self.link_of_reply(to.radio, to.remote);
            link.is_none_or(|id| !self.links[id].has_pending_report())
        };
        let index = self.replies.iter().position(|(to, _)| open(to))?;
        let (ReturnPath { radio, remote, local }, datagram) = self.replies.remove(index)?;
        match (self.link_of_reply(radio, remote), remote) {
            (Some(id), _) => {
                let transmit = self.sent(now, id, datagram, None, Ecn::NotCapable)?;
                Some(Transmit { local: local.or(transmit.local), ..transmit })
            }
            (None, Place::Udp(remote)) => {
                Some(Transmit::unlinked(radio, (local, remote), datagram))
            }
            (None, Place::Relay { .. }) => None,
        }
    }

    /// The link that leads to the address of a reply. A link's own socket sends by its own
    /// interface; a relay is reached by links alone.
    fn link_of_reply(&self, radio: RadioId, place: Place) -> Option<LinkId> {
        let leads = |link: &Link| link.remote == Some(place);
        let exact = self.links.position(|link| leads(link) && link.radio == radio);
        let any = || self.links.position(leads).filter(|_| matches!(place, Place::Relay { .. }));
        exact.or_else(any)
    }
}

/// Receiving.
impl Endpoint {
    pub(crate) fn handle_initiation(
        &mut self,
        now: Instant,
        origin: ReturnPath,
        initiation: &Initiation<'_>,
    ) -> Result<(), RefusedPacket> {
        let from = origin.remote;
        match self.check_initiation(now, from, initiation) {
            Admission::Admit => {}
            Admission::BadMac => {
                self.notice_other_key(now, from);
                return Err(RefusedPacket::Unauthentic);
            }
            Admission::Flood => return Err(RefusedPacket::Flood),
            Admission::NeedsCookie(reply) => {
                self.reply(origin, Some(reply));
                return Err(RefusedPacket::Flood);
            }
        }
        let repeated =
            self.peers.iter_mut().find_map(|p| p.session.repeat_response(initiation, from));
        if repeated.is_some() {
            self.reply(origin, repeated);
            return Ok(());
        }
        let drawn = self.draw_key();
        let received = ReceivedInitiation::read(&self.config.key, drawn, initiation.noise)
            .map_err(|_| RefusedPacket::Unauthentic)?;
        let payload = received.payload.clone();
        let greeting = Greeting::parse(&payload).map_err(|_| RefusedPacket::Malformed)?;
        let peer = self.known_initiator(from, &received, &greeting)?;
        let state = &self.peers[peer];
        // A relay has names of its own for the members of its teams.
        let verdict = if greeting.name != state.name && state.team.is_none() {
            let (name, theirs) = (state.name.clone(), greeting.name.to_owned());
            self.notice(Notice::OtherName { name, theirs, from });
            Verdict::Name
        } else if state.up && state.session.is_past_epoch(greeting.epoch) {
            self.notice_duplicate_key(peer, from);
            Verdict::Twin
        } else {
            Verdict::Welcome
        };
        let session = self.draw_session(peer);
        let state = &mut self.peers[peer].session;
        let epochs = Epochs { own: state.own_epoch(), peer: greeting.epoch };
        let response = if verdict == Verdict::Welcome {
            state.respond(now, from, received, initiation, epochs, session)
        } else {
            state.released.push(session);
            state.refuse(received, initiation, session, verdict)
        };
        self.release_numbers(peer);
        self.reply(origin, response);
        if verdict == Verdict::Welcome { Ok(()) } else { Err(RefusedPacket::WrongKey) }
    }

    /// The initiator, if it is a peer.
    fn known_initiator(
        &mut self,
        from: Place,
        received: &ReceivedInitiation,
        greeting: &Greeting<'_>,
    ) -> Result<PeerId, RefusedPacket> {
        if let Some(&peer) = self.by_key.get(&received.initiator) {
            return Ok(peer);
        }
        let name = greeting.name.to_owned();
        if received.initiator != self.public {
            let known_name = self.peers.iter().any(|peer| peer.name == name);
            self.notice(Notice::UnknownKey { name, key: received.initiator, from, known_name });
            return Err(RefusedPacket::UnknownKey);
        }
        // With an epoch of this node, the packet is a reflection of our own initiation.
        if self.peers.iter().all(|peer| peer.session.own_epoch() != greeting.epoch) {
            self.notice(Notice::Twins { name, from, other: None });
        }
        Err(RefusedPacket::WrongKey)
    }

    /// Reports an initiation for another key than ours: the sender may be a peer whose
    /// configuration is wrong, while a peer is away.
    fn notice_other_key(&mut self, now: Instant, from: Place) {
        if now < self.next_stranger_notice || self.peers.iter().all(|peer| peer.up || peer.removed)
        {
            return;
        }
        self.next_stranger_notice = now + NOTICE_INTERVAL;
        let link = self.links.iter().find(|link| link.remote == Some(from) && !link.is_heard());
        let name = link.map(|link| self.peers[link.peer].name.clone());
        self.notice(Notice::OtherKey { name, from });
    }

    fn notice_duplicate_key(&mut self, peer: PeerId, from: Place) {
        let state = &self.peers[peer];
        let links = state.links.iter().map(|id| &self.links[*id]);
        let other = links.filter(|link| link.up).find_map(|link| link.remote);
        let name = state.name.clone();
        self.notice(Notice::Twins { name, from, other });
    }

    pub(crate) fn handle_response(
        &mut self,
        now: Instant,
        origin: ReturnPath,
        response: &Response<'_>,
    ) -> Result<(), RefusedPacket> {
        let ReturnPath { radio, remote: from, .. } = origin;
        let known = self.by_session.get(&response.your_session).copied();
        let peer = known.ok_or(RefusedPacket::UnknownSession)?;
        if !self.cookie_checker.has_valid_mac1(response) {
            return Err(RefusedPacket::Unauthentic);
        }
        let state = &mut self.peers[peer];
        if state.session.pending_session() != Some(response.your_session) {
            return Err(RefusedPacket::Duplicate);
        }
        if !state.session.may_open_response(now) {
            return Err(RefusedPacket::Flood);
        }
        let outcome = state.session.on_response(now, response, state.up);
        self.release_numbers(peer);
        match outcome.ok_or(RefusedPacket::Unauthentic)? {
            HandshakeOutcome::Keys { new_epoch } => {
                self.start_keys(now, peer, new_epoch);
                let link = self.link_towards(peer, radio, from);
                let link = link.ok_or(RefusedPacket::UnknownSession)?;
                if self.links[link].remote == Some(from) {
                    self.mark_received(now, link, 0);
                } else {
                    // A response may be recorded and replayed from another address.
                    self.challenge(now, link, origin);
                }
                // The responder sends under these keys after the first packet under them.
                self.links[link].ping_now = true;
                Ok(())
            }
            HandshakeOutcome::Refused(verdict) => {
                let name = self.peers[peer].name.clone();
                self.notice(Notice::TheyRefuse { name, from, verdict });
                Ok(())
            }
            HandshakeOutcome::EarlierEpoch => {
                self.notice_duplicate_key(peer, from);
                Err(RefusedPacket::WrongKey)
            }
        }
    }

    pub(crate) fn handle_cookie_reply(
        &mut self,
        now: Instant,
        from: Place,
        cookie: &CookieReply<'_>,
    ) -> Result<(), RefusedPacket> {
        let known = self.by_session.get(&cookie.your_session).copied();
        let peer = known.ok_or(RefusedPacket::UnknownSession)?;
        let state = &mut self.peers[peer];
        if state.session.pending_session() != Some(cookie.your_session) {
            return Err(RefusedPacket::Duplicate);
        }
        match state.session.accept_cookie(now, cookie) {
            Some(true) => {}
            Some(false) => return Err(RefusedPacket::Flood),
            None => return Err(RefusedPacket::Unauthentic),
        }
        let links = &self.peers[peer].links;
        let link = links.iter().find(|id| self.links[**id].remote == Some(from));
        if let Some(id) = link {
            self.links[*id].initiate_now = true;
        }
        Ok(())
    }

    /// A key set came into use.
    pub(crate) fn start_keys(&mut self, now: Instant, peer: PeerId, new_epoch: bool) {
        if new_epoch {
            self.start_session(now, peer);
        }
        self.release_numbers(peer);
        let at = self.peers[peer].session.rekey_at();
        self.timers.set(Timer::Rekey(peer), at);
    }

    /// A new session began: the state of the earlier one is obsolete.
    fn start_session(&mut self, now: Instant, peer: PeerId) {
        self.reset_session(now, peer);
        let state = &mut self.peers[peer];
        state.announce_all(now);
        state.up = true;
        self.emit(Event::PeerUp { peer, new_session: true });
    }

    /// A goodbye was sent or received: the next session has other epochs.
    pub(crate) fn end_session(&mut self, now: Instant, peer: PeerId) {
        for id in self.peers[peer].links.clone() {
            self.mark_down(now, id);
        }
        let epoch = self.draw_token();
        self.peers[peer].session.end(epoch);
        self.release_numbers(peer);
        self.forget_routes(now, peer);
        self.reset_session(now, peer);
        self.timers.set(Timer::Rekey(peer), None);
        self.emit(Event::PeerLeft { peer });
    }

    fn reset_session(&mut self, now: Instant, peer: PeerId) {
        // Complete messages of the session are not lost.
        self.peers[peer].inbox.end_order(None);
        self.deliver_ready(now, peer);
        let state = &mut self.peers[peer];
        state.end_session(&self.config);
        for link in state.links.clone() {
            self.links[link].reset();
            self.timers.set(Timer::Loss(link), None);
            self.timers.set(Timer::Silent(link), None);
            self.timers.set(Timer::Path(link), None);
            self.timers.set(Timer::Reconnect(link), Some(now));
        }
    }
}
