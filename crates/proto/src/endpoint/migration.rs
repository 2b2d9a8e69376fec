// SPDX-License-Identifier: Apache-2.0
//! Address changes of a peer. A packet from a new address starts a path validation, and the address
//! is used once the peer has shown that it receives there (RFC 9000, section 8.2).

use crate::address::Place;
use crate::endpoint::arrival::ReturnPath;
use crate::endpoint::events::Event;
use crate::endpoint::{Endpoint, Timer, Transmit};
use crate::ids::{LinkId, PeerId, RadioId};
use crate::path::link::Candidate;
use crate::stats::RefusedPacket;
use crate::time::{Duration, Instant};
use crate::wire::frame::{put_challenge, put_echo};
use std::cmp::Reverse;

/// A challenge without an echo is repeated after this time.
const CHALLENGE_RETRY: Duration = Duration::from_millis(100);
/// Challenges to one address; the next packet from there starts again.
const MAX_CHALLENGES: u8 = 4;

impl Endpoint {
    /// The link that leads to the address of a packet.
    pub(crate) fn link_from(&self, peer: PeerId, radio: RadioId, from: Place) -> Option<LinkId> {
        let links = &self.peers[peer].links;
        let leads = |id: &&LinkId| self.links[**id].remote == Some(from);
        let exact = |id: &&LinkId| leads(id) && self.links[**id].radio == radio;
        links.iter().find(exact).or_else(|| links.iter().find(leads)).copied()
    }

    /// The link to which an address of a peer belongs, whether or not a link leads there: preferably
    /// one of the same radio on which nothing is received.
    pub(crate) fn link_towards(&self, peer: PeerId, radio: RadioId, from: Place) -> Option<LinkId> {
        let known = self.link_from(peer, radio, from);
        if known.is_some() || matches!(from, Place::Relay { .. }) {
            return known;
        }
        let links = self.peers[peer].links.iter();
        let direct = links.filter(|id| self.links[**id].via.is_none());
        let worth = |id: &&LinkId| {
            let link = &self.links[**id];
            let open = link.remote.is_none() || link.config.remote.is_none();
            (link.radio == radio, !link.is_heard(), open, Reverse(link.number))
        };
        direct.max_by_key(worth).copied()
    }

    /// Validates an address from which packets of a link come and to which no link leads.
    pub(crate) fn challenge(&mut self, now: Instant, id: LinkId, to: ReturnPath) {
        let ReturnPath { radio, remote, local } = to;
        // Only the configuration determines which relays lead to a peer.
        let Place::Udp(remote) = remote else { return };
        if self.shuns(id, radio) {
            return;
        }
        let known = self.links[id].candidates.iter().find(|it| it.leads_to(radio, remote));
        // The peer named the address, and its turn has not come: it is worth a challenge now.
        let is_early = |it: &Candidate| it.local.is_none() && local.is_some();
        if known.is_none_or(|it| it.left == 0 || is_early(it)) {
            self.add_candidate(
                now,
                id,
                Candidate::new((radio, remote, local), MAX_CHALLENGES, now),
            );
        }
    }

    /// Adds an address of the peer, or begins its validation again.
    pub(crate) fn add_candidate(&mut self, now: Instant, id: LinkId, candidate: Candidate) {
        let token = self.draw_token();
        self.links[id].add_candidate(now, Candidate { token, ..candidate });
        self.arm_candidates(id);
    }

    /// Sets when the next challenge is due, or an address is given up.
    fn arm_candidates(&mut self, id: LinkId) {
        let next = self.links[id].candidates.iter().map(Candidate::timer).min();
        self.timers.set(Timer::Path(id), next);
    }

    /// Forgets what a link learned from packets before its address was configured. They may have come
    /// from the address of another link, whose own was not known yet either: this one must not
    /// move there.
    pub(crate) fn forget_learned_address(&mut self, id: LinkId) {
        self.links[id].candidates.clear();
        self.timers.set(Timer::Path(id), None);
        let peer = self.links[id].peer;
        let received = self.peers[peer].received_packets.values_mut();
        received.filter(|it| it.via == Some(id)).for_each(|it| it.via = None);
    }

    /// Gives up addresses that were challenged in vain; polling for packets finds what is due.
    pub(crate) fn on_path_timer(&mut self, now: Instant, id: LinkId) {
        let candidates = &mut self.links[id].candidates;
        candidates.retain(|it| it.left > 0 || it.timer() > now);
        if candidates.iter().all(|it| it.timer() > now) {
            self.arm_candidates(id);
        }
    }

    pub(crate) fn poll_challenge(&mut self, now: Instant) -> Option<Transmit> {
        let is_due = |it: &Candidate| it.left > 0 && it.due <= now;
        let id = self.links.position(|link| link.candidates.iter().any(is_due))?;
        let candidate = self.links[id].candidates.iter_mut().find(|it| is_due(it))?;
        candidate.left -= 1;
        candidate.due = now + CHALLENGE_RETRY;
        let Candidate { radio, remote, local, token, .. } = *candidate;
        self.arm_candidates(id);
        let datagram = self.single_frame_packet(now, id, |out| put_challenge(token, out))?;
        Some(Transmit::unlinked(radio, (local, remote), datagram))
    }

    /// Echoes a challenge to the address from which it came.
    pub(crate) fn echo(&mut self, now: Instant, id: LinkId, to: ReturnPath, token: u64) {
        let peer = self.links[id].peer;
        if !self.peers[peer].echoes.take(now) {
            return self.refused.add(RefusedPacket::Bound);
        }
        if self.shuns(id, to.radio) {
            return;
        }
        // The peer sees this node elsewhere.
        self.links[id].ends.ask_again();
        let datagram = self.single_frame_packet(now, id, |out| put_echo(token, out));
        self.reply(to, datagram);
    }

    /// Handles an echo: if its token and address match a challenge, the link moves there.
    pub(crate) fn handle_echo(
        &mut self,
        now: Instant,
        peer: PeerId,
        radio: RadioId,
        from: Place,
        token: u64,
    ) {
        let links = &self.peers[peer].links;
        let validated = links.iter().copied().find(|id| {
            let mut candidates = self.links[*id].candidates.iter();
            candidates.any(|it| (it.token, it.radio, Place::Udp(it.remote)) == (token, radio, from))
        });
        if let Some(id) = validated {
            self.move_link(now, id, radio, from);
            self.mark_received(now, id, 0);
        }
    }

    /// Moves a link to the address at which the peer receives now.
    pub(crate) fn move_link(&mut self, now: Instant, id: LinkId, radio: RadioId, remote: Place) {
        if self.shuns(id, radio) {
            return;
        }
        let link = &mut self.links[id];
        link.candidates.clear();
        self.timers.set(Timer::Path(id), None);
        if link.remote == Some(remote) {
            return;
        }
        let moved = link.remote.is_some();
        (link.remote, link.radio) = (Some(remote), radio);
        if moved {
            // Packets in flight to the old address will hardly arrive.
            self.mark_all_lost(now, id);
            self.links[id].forget_path();
            self.emit(Event::LinkMoved { link: id, to: remote });
        }
    }
}
