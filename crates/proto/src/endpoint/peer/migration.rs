// SPDX-License-Identifier: Apache-2.0
//! Address changes of a peer. A packet from a new address starts a path validation, and the address
//! is used once the peer has shown that it receives packets there (RFC 9000, section 8.2).

use crate::address::Place;
use crate::endpoint::arrival::ReturnPath;
use crate::endpoint::context::Context;
use crate::endpoint::events::Event;
use crate::endpoint::peer::Peer;
use crate::endpoint::timer::Timer;
use crate::ids::LinkId;
use crate::path::link::Candidate;
use crate::path::links::Links;
use crate::stats::RefusedPacket;
use crate::time::{Duration, Instant};
use crate::wire::frame::{put_challenge, put_echo};

/// A challenge without an echo is repeated after this time.
const CHALLENGE_RETRY: Duration = Duration::from_millis(100);
/// Maximum number of challenges to one address. The next packet from there starts the validation again.
const MAX_CHALLENGES: u8 = 4;

impl Links {
    /// Adds an address of the peer, or begins its validation again.
    pub(crate) fn add_candidate(
        &mut self,
        cx: &mut Context,
        now: Instant,
        id: LinkId,
        candidate: Candidate,
    ) {
        let token = cx.draw_token();
        self[id].add_candidate(now, Candidate { token, ..candidate });
        self.arm_candidates(cx, id);
    }

    /// Sets when the next challenge is due, or an address is given up.
    fn arm_candidates(&self, cx: &mut Context, id: LinkId) {
        let next = self[id].candidates.iter().map(Candidate::timer).min();
        cx.timers.set(Timer::PathValidation(id), next);
    }

    /// Gives up addresses that did not answer their challenges. Polling for packets finds challenges that are
    /// due.
    pub(crate) fn on_path_timer(&mut self, cx: &mut Context, now: Instant, id: LinkId) {
        let candidates = &mut self[id].candidates;
        candidates.retain(|it| it.challenges_left > 0 || it.timer() > now);
        if candidates.iter().all(|it| it.timer() > now) {
            self.arm_candidates(cx, id);
        }
    }

    /// Takes one of the addresses of a link to which a challenge is due.
    fn take_challenge(&mut self, cx: &mut Context, now: Instant, id: LinkId) -> Option<Candidate> {
        let candidate = self[id].candidates.iter_mut().find(|it| it.is_due(now))?;
        candidate.challenges_left -= 1;
        candidate.due = now + CHALLENGE_RETRY;
        let taken = candidate.clone();
        self.arm_candidates(cx, id);
        Some(taken)
    }
}

impl Peer {
    /// Whether packets of a direct path must not leave by the radio of a path: links of the radio cost
    /// money, and the direct path would not have their limits.
    fn avoids_radio(&self, id: LinkId, path: ReturnPath) -> bool {
        path.is_metered && self.rendezvous.is_for(id)
    }

    /// Validates an address from which packets of a link come and to which no link leads.
    pub(crate) fn challenge(&mut self, cx: &mut Context, now: Instant, id: LinkId, to: ReturnPath) {
        let ReturnPath { radio, remote, local, .. } = to;
        // Only the configuration determines which relays lead to a peer.
        let Place::Udp(remote) = remote else { return };
        if self.avoids_radio(id, to) {
            return;
        }
        let known = self.links[id].candidates.iter().find(|it| it.leads_to(radio, remote));
        // The peer named the address, and its challenge is not due yet. A packet from there makes a
        // challenge worthwhile now.
        let is_early = |it: &Candidate| it.local.is_none() && local.is_some();
        if known.is_none_or(|it| it.challenges_left == 0 || is_early(it)) {
            let candidate = Candidate::new((radio, remote, local), MAX_CHALLENGES, now);
            self.links.add_candidate(cx, now, id, candidate);
        }
    }

    /// Returns the packet of a challenge that is due, and the address to which the packet goes.
    pub(crate) fn due_challenge(
        &mut self,
        cx: &mut Context,
        now: Instant,
        id: LinkId,
        capacity: usize,
    ) -> Option<(Candidate, Vec<u8>)> {
        let to = self.links.take_challenge(cx, now, id)?;
        let put = |out: &mut Vec<u8>| put_challenge(to.token, out);
        let datagram = self.single_frame_packet(cx, now, id, capacity, put)?;
        Some((to, datagram))
    }

    /// Forgets what a link learned from packets before its address was configured. These packets may have
    /// come from the address of another link, whose address was not known yet either. This link must not move
    /// to that address.
    pub(crate) fn forget_learned_address(&mut self, cx: &mut Context, id: LinkId) {
        self.links[id].candidates.clear();
        cx.timers.set(Timer::PathValidation(id), None);
        let received = self.received_packets.values_mut();
        received.filter(|it| it.via == Some(id)).for_each(|it| it.via = None);
    }

    /// Echoes a challenge to the address from which it came.
    pub(super) fn echo(
        &mut self,
        cx: &mut Context,
        now: Instant,
        id: LinkId,
        to: ReturnPath,
        token: u64,
    ) {
        if !self.echo_limit.take(now) {
            return cx.refused.add(RefusedPacket::Bound);
        }
        if self.avoids_radio(id, to) {
            return;
        }
        // The peer sees this node at a new address.
        self.links[id].address_discovery.ask_again();
        let capacity = self.links[id].sent_packets.mtu.datagram_bytes();
        let put = |out: &mut Vec<u8>| put_echo(token, out);
        let datagram = self.single_frame_packet(cx, now, id, capacity, put);
        cx.reply(to, datagram);
    }

    /// Handles an echo: if its token and address match a challenge, the link moves there.
    pub(super) fn handle_echo(
        &mut self,
        cx: &mut Context,
        now: Instant,
        from: ReturnPath,
        token: u64,
    ) {
        let answers = |it: &Candidate| {
            (it.token, it.radio, Place::Udp(it.remote)) == (token, from.radio, from.remote)
        };
        let validated = self.links.iter().find(|link| link.candidates.iter().any(answers));
        if let Some(id) = validated.map(|link| link.id) {
            self.move_link(cx, now, id, from);
            self.mark_received(cx, now, id, 0);
        }
    }

    /// Moves a link to the address at which the peer now receives.
    pub(super) fn move_link(&mut self, cx: &mut Context, now: Instant, id: LinkId, to: ReturnPath) {
        if self.avoids_radio(id, to) {
            return;
        }
        let ReturnPath { radio, remote, .. } = to;
        let link = &mut self.links[id];
        link.candidates.clear();
        cx.timers.set(Timer::PathValidation(id), None);
        if link.remote == Some(remote) {
            return;
        }
        let moved = link.remote.is_some();
        (link.remote, link.radio) = (Some(remote), radio);
        if moved {
            // Packets in flight to the old address will rarely arrive.
            self.mark_all_lost(cx, now, id);
            self.links[id].forget_path();
            cx.emit(self.id, Event::LinkMoved { link: id, to: remote });
        }
    }
}
