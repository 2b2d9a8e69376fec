// SPDX-License-Identifier: Apache-2.0
//! Handshakes: initiations, responses and cookie replies, sent and received.

use crate::address::Place;
use crate::crypto::cookies::{Admission, CookieChecker};
use crate::crypto::keys::SecretKey;
use crate::crypto::noise::ReceivedInitiation;
use crate::ecn::Ecn;
use crate::endpoint::arrival::ReturnPath;
use crate::endpoint::context::Context;
use crate::endpoint::events::Notice;
use crate::endpoint::network::{AccountedPacket, Network, Transmit};
use crate::endpoint::peer::Peer;
use crate::ids::{LinkId, PeerId, RadioId};
use crate::path::link::Link;
use crate::session::{Epochs, HandshakeOutcome};
use crate::stats::RefusedPacket;
use crate::time::{Duration, Instant};
use crate::wire::packet::{CookieReply, Greeting, Initiation, Response, Verdict};

/// Least time between notices of initiations for another key. Anybody can send such initiations.
const NOTICE_INTERVAL: Duration = Duration::from_millis(250);

/// Sending.
impl Network {
    pub(crate) fn poll_initiation(&mut self, now: Instant) -> Option<AccountedPacket> {
        // While the radio still holds the last initiation, no other is queued. Queued initiations
        // would outlive the state that is needed to accept their responses.
        let id = self.peers.find_link(|link| link.initiate_now && !link.has_pending_report())?;
        let link = &mut self.peers[id];
        link.initiate_now = false;
        let peer = link.peer;
        let (session, drawn) = (self.peers.draw_session(&mut self.cx, peer), self.cx.draw_key());
        let state = &mut self.peers[peer].session;
        let config = &self.cx.config;
        let greeting = Greeting { epoch: state.own_epoch(), name: &config.name };
        let datagram = state.initiate(now, &config.key, &greeting, session, drawn);
        if state.pending_session() != Some(session) {
            state.released_numbers.push(session);
        }
        self.peers.release_numbers(peer);
        self.record_sent(now, id, datagram?, None, Ecn::NotCapable)
    }

    /// The next reply. A reply to a peer behind a relay is handed to the relay.
    pub(crate) fn poll_reply(&mut self, now: Instant) -> Option<AccountedPacket> {
        let open = |to: &ReturnPath| {
            let link = self.link_of_reply(to.radio, to.remote);
            link.is_none_or(|id| !self.peers[id].has_pending_report())
        };
        let index = self.cx.replies.iter().position(|(to, _)| open(to))?;
        let (ReturnPath { radio, remote, local, .. }, datagram) = self.cx.replies.remove(index)?;
        match (self.link_of_reply(radio, remote), remote) {
            (Some(id), _) => match self.record_sent(now, id, datagram, None, Ecn::NotCapable)? {
                AccountedPacket::Datagram(transmit) => {
                    let local = local.or(transmit.local);
                    Some(AccountedPacket::Datagram(Transmit { local, ..transmit }))
                }
                to_relay => Some(to_relay),
            },
            (None, Place::Udp(remote)) => {
                let transmit = Transmit::unlinked(radio, (local, remote), datagram);
                Some(AccountedPacket::Datagram(transmit))
            }
            (None, Place::Relay { .. }) => None,
        }
    }

    /// The link that leads to the address of a reply. A link's own socket sends by the link's
    /// interface, and only links lead to a relay.
    fn link_of_reply(&self, radio: RadioId, place: Place) -> Option<LinkId> {
        let leads = |link: &&Link| link.remote == Some(place);
        let exact = self.peers.find_link(|link| leads(link) && link.radio == radio);
        let any = || self.peers.find_link(leads).filter(|_| matches!(place, Place::Relay { .. }));
        exact.or_else(any)
    }
}

/// What handshakes need beyond the sessions of peers.
#[derive(Debug)]
pub(crate) struct Handshakes {
    cookie_checker: CookieChecker,
    /// No notice of initiations for another key before this time.
    next_stranger_notice: Instant,
}

/// Receiving.
impl Handshakes {
    pub(crate) fn new(key: &SecretKey) -> Self {
        Self { cookie_checker: CookieChecker::new(key), next_stranger_notice: Instant::default() }
    }

    pub(crate) fn handle_initiation(
        &mut self,
        net: &mut Network,
        now: Instant,
        origin: ReturnPath,
        initiation: &Initiation<'_>,
    ) -> Result<(), RefusedPacket> {
        let from = origin.remote;
        let address = (&from.bytes()[..], &from.owner()[..]);
        let Network { cx, peers, .. } = net;
        match self.cookie_checker.check(now, address, initiation, || cx.draw_key()) {
            Admission::Admit => {}
            Admission::BadMac => {
                self.notice_other_key(net, now, from);
                return Err(RefusedPacket::Unauthentic);
            }
            Admission::Flood => return Err(RefusedPacket::Flood),
            Admission::NeedsCookie(reply) => {
                cx.reply(origin, Some(reply));
                return Err(RefusedPacket::Flood);
            }
        }
        let repeated = peers.iter_mut().find_map(|p| p.session.repeat_response(initiation, from));
        if repeated.is_some() {
            cx.reply(origin, repeated);
            return Ok(());
        }
        let drawn = cx.draw_key();
        let received = ReceivedInitiation::read(&cx.config.key, drawn, initiation.noise)
            .map_err(|_| RefusedPacket::Unauthentic)?;
        let payload = received.payload.clone();
        let greeting = Greeting::parse(&payload).map_err(|_| RefusedPacket::Malformed)?;
        let id = known_initiator(net, from, &received, &greeting)?;
        let Network { cx, peers, .. } = net;
        let verdict = check_greeting(cx, &peers[id], from, &greeting);
        let session = peers.draw_session(cx, id);
        let state = &mut peers[id].session;
        let epochs = Epochs { own: state.own_epoch(), peer: greeting.epoch };
        let response = if verdict == Verdict::Welcome {
            state.respond(now, from, received, initiation, epochs, session)
        } else {
            state.released_numbers.push(session);
            state.refuse(received, initiation, session, verdict)
        };
        peers.release_numbers(id);
        cx.reply(origin, response);
        if verdict == Verdict::Welcome { Ok(()) } else { Err(RefusedPacket::WrongKey) }
    }

    /// Reports an initiation for another key than ours while a peer is away: the sender may be that
    /// peer with a wrong configuration.
    fn notice_other_key(&mut self, net: &mut Network, now: Instant, from: Place) {
        let Network { cx, peers, .. } = net;
        if now < self.next_stranger_notice || peers.iter().all(|peer| peer.up || peer.removed) {
            return;
        }
        self.next_stranger_notice = now + NOTICE_INTERVAL;
        let link = peers.links().find(|link| link.remote == Some(from) && !link.is_heard());
        let name = link.map(|link| peers[link.peer].name.clone());
        cx.emit_notice(Notice::OtherKey { name, from });
    }

    pub(crate) fn handle_response(
        &self,
        net: &mut Network,
        now: Instant,
        mut origin: ReturnPath,
        response: &Response<'_>,
    ) -> Result<(), RefusedPacket> {
        let from = origin.remote;
        let known = net.peers.find_by_session(response.your_session);
        let id = known.ok_or(RefusedPacket::UnknownSession)?;
        if !self.cookie_checker.has_valid_mac1(response) {
            return Err(RefusedPacket::Unauthentic);
        }
        origin.is_metered = net.must_avoid_radio(id, origin.radio);
        let Network { cx, peers, .. } = net;
        let peer = &mut peers[id];
        if peer.session.pending_session() != Some(response.your_session) {
            return Err(RefusedPacket::Duplicate);
        }
        if !peer.session.may_open_response(now) {
            return Err(RefusedPacket::Flood);
        }
        let outcome = peer.session.on_response(now, response, peer.up);
        peers.release_numbers(id);
        let peer = &mut peers[id];
        match outcome.ok_or(RefusedPacket::Unauthentic)? {
            HandshakeOutcome::Keys { new_epoch } => {
                peer.start_keys(cx, now, new_epoch);
                let link = peer.links.link_towards(origin.radio, from);
                let link = link.ok_or(RefusedPacket::UnknownSession)?;
                if peer.links[link].remote == Some(from) {
                    peer.mark_received(cx, now, link, 0);
                } else {
                    // An attacker may have recorded the response and replayed it from another
                    // address.
                    peer.challenge(cx, now, link, origin);
                }
                // The responder sends under these keys after the first packet under them.
                peer.links[link].ping_now = true;
                Ok(())
            }
            HandshakeOutcome::Refused(verdict) => {
                cx.emit_notice(Notice::TheyRefuse { name: peer.name.clone(), from, verdict });
                Ok(())
            }
            HandshakeOutcome::EarlierEpoch => {
                notice_duplicate_key(cx, peer, from);
                Err(RefusedPacket::WrongKey)
            }
        }
    }
}

/// Handles a cookie for the pending initiation to a peer.
pub(crate) fn handle_cookie_reply(
    net: &mut Network,
    now: Instant,
    from: Place,
    cookie: &CookieReply<'_>,
) -> Result<(), RefusedPacket> {
    let known = net.peers.find_by_session(cookie.your_session);
    let peer = &mut net.peers[known.ok_or(RefusedPacket::UnknownSession)?];
    if peer.session.pending_session() != Some(cookie.your_session) {
        return Err(RefusedPacket::Duplicate);
    }
    match peer.session.accept_cookie(now, cookie) {
        Some(true) => {}
        Some(false) => return Err(RefusedPacket::Flood),
        None => return Err(RefusedPacket::Unauthentic),
    }
    let link = peer.links.iter().find(|link| link.remote == Some(from)).map(|link| link.id);
    if let Some(id) = link {
        peer.links[id].initiate_now = true;
    }
    Ok(())
}

/// The initiator, if it is a peer.
fn known_initiator(
    net: &mut Network,
    from: Place,
    received: &ReceivedInitiation,
    greeting: &Greeting<'_>,
) -> Result<PeerId, RefusedPacket> {
    let Network { cx, peers, .. } = net;
    if let Some(peer) = peers.find_by_key(&received.initiator) {
        return Ok(peer);
    }
    let name = greeting.name.to_owned();
    if received.initiator != cx.public {
        let known_name = peers.iter().any(|peer| peer.name == name);
        cx.emit_notice(Notice::UnknownKey { name, key: received.initiator, from, known_name });
        return Err(RefusedPacket::UnknownKey);
    }
    // If the epoch is one of this node's, the packet is our own initiation, reflected.
    if peers.iter().all(|peer| peer.session.own_epoch() != greeting.epoch) {
        cx.emit_notice(Notice::Twins { name, from, other: None });
    }
    Err(RefusedPacket::WrongKey)
}

/// Decides whether a peer is welcome.
fn check_greeting(cx: &mut Context, peer: &Peer, from: Place, greeting: &Greeting<'_>) -> Verdict {
    // A relay has its own names for the members of its teams, so these names are not compared.
    if greeting.name != peer.name && peer.team.is_none() {
        let (name, theirs) = (peer.name.clone(), greeting.name.to_owned());
        cx.emit_notice(Notice::OtherName { name, theirs, from });
        Verdict::Name
    } else if peer.up && peer.session.is_past_epoch(greeting.epoch) {
        notice_duplicate_key(cx, peer, from);
        Verdict::Twin
    } else {
        Verdict::Welcome
    }
}

fn notice_duplicate_key(cx: &mut Context, peer: &Peer, from: Place) {
    let other = peer.links.iter().filter(|link| link.up).find_map(|link| link.remote);
    cx.emit_notice(Notice::Twins { name: peer.name.clone(), from, other });
}
