// SPDX-License-Identifier: Apache-2.0
//! Direct paths between two nodes behind address translators that have a relay in common.
//!
//! Each of the two knows from the relay at which address it is seen. They exchange their addresses
//! end to end through the relay, and then send a CHALLENGE to each other at the same time: the packet
//! that leaves opens the translator for those that come. Without a direct path, packets continue
//! through the relay. These are the ideas of RFC 8445 (ICE) in small; the simultaneous start is that
//! of RFC 5128, section 3.3.

use crate::address::Place;
use crate::bucket::Bucket;
use crate::ecn::Ecn;
use crate::endpoint::events::{Event, NoPath, Notice};
use crate::endpoint::{Endpoint, Timer, Transmit};
use crate::ids::{LinkId, PeerId, RadioId};
use crate::limits;
use crate::path::link::{Candidate, Link};
use crate::path::trial::Trial;
use crate::stats::RefusedPacket;
use crate::time::{Duration, Instant};
use crate::wire::address::{Candidates, MAX_CANDIDATES};
use crate::wire::frame::put_candidates;
use std::net::{IpAddr, SocketAddr};

/// Time from the first sign of the peer through the relay to the first attempt: the relay has told
/// by then at which address it sees this node.
const FIRST_ATTEMPT: Duration = Duration::from_millis(300);
/// Time after the first attempt until the second; doubled after each.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// An attempt takes about 2 kB of IP in both directions: 9 MB in 30 days at this interval.
const MAX_INTERVAL: Duration = Duration::from_secs(600);
/// Time for which an answer is expected.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// Challenges to each address, 100 ms apart: the ends start with a difference of less than half a
/// second also over a satellite.
const CHALLENGES: u8 = 6;
/// The attempt with which a notice is emitted, after 15 s.
const NOTICED_ATTEMPTS: u32 = 5;
/// Time until the conditions of an attempt are examined again.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Time after which a direct path has lasted: the search after its end begins with short intervals.
const LASTING: Duration = Duration::from_secs(30);
/// Time without a packet after which the address of a direct path is given up: it may be a stranger's.
const GIVE_UP: Duration = Duration::from_secs(30);

/// When a node seeks a direct path to a peer that it reaches through a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectPath {
    /// If an address translator is on the path to the relay, or on the peer's: otherwise an address in
    /// the configuration would do, and relays of a radio network are there because radios do not reach
    /// further.
    IfTranslated,
    /// Always.
    Always,
}

/// The search for a direct path to one peer.
#[derive(Debug)]
pub(crate) struct Rendezvous {
    /// The link that a direct path belongs to, and when to seek one; `None`: never.
    link: Option<(LinkId, DirectPath)>,
    /// Attempts of this search.
    attempts: u32,
    /// Since when the direct path is up.
    up_since: Option<Instant>,
    /// The CANDIDATES frame that is to be sent.
    frame: Option<FrameKind>,
    /// Until when an answer counts.
    awaited_until: Option<Instant>,
    /// Whether the peer has named addresses, and one of them has the IP address at which this node is seen.
    is_answered: bool,
    is_same_address: bool,
    /// Whether there was a direct path before.
    had_path: bool,
    /// When the challenges to the peer's addresses begin.
    begin: Instant,
    /// Limit of CANDIDATES frames from the peer.
    received: Bucket,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FrameKind {
    Question,
    Answer,
}

impl Rendezvous {
    pub(crate) fn new() -> Self {
        Self {
            link: None,
            attempts: 0,
            up_since: None,
            frame: None,
            awaited_until: None,
            is_answered: false,
            is_same_address: false,
            had_path: false,
            begin: Instant::default(),
            received: Bucket::new(limits::CANDIDATES),
        }
    }

    /// A link was removed.
    pub(crate) fn forget(&mut self, id: LinkId) {
        self.link = self.link.filter(|(link, _)| *link != id);
    }

    /// Time from now until the next attempt.
    fn wait(&self) -> Duration {
        match self.attempts.checked_sub(1) {
            None => FIRST_ATTEMPT,
            Some(doublings) => (MIN_INTERVAL * (1 << doublings.min(16))).min(MAX_INTERVAL),
        }
    }
}

/// Setup, and inputs of the caller.
impl Endpoint {
    /// Sets when to seek a direct path to the peer of `link`, which has no relay and no configured
    /// address: the direct path belongs to this link. `None`: never.
    pub fn set_direct_path(&mut self, now: Instant, link: LinkId, when: Option<DirectPath>) {
        let peer = self.links[link].peer;
        let path = when.map(|when| (link, when));
        if std::mem::replace(&mut self.peers[peer].rendezvous.link, path) == path {
            return;
        }
        self.links[link].trial = when.map(|_| Trial::new());
        self.peers[peer].rendezvous.attempts = 0;
        self.seek_direct_path(now, peer);
        self.follow_relays(peer);
    }

    /// Sets the local address from which packets of a link leave. The peer tells at which address it
    /// sees them.
    pub fn set_own_address(&mut self, link: LinkId, own: SocketAddr) {
        let state = &mut self.links[link];
        state.ping_now |= state.ends.set_own(own) && state.up;
    }

    /// Tries to reach the peer of `link` at an address of [`Event::Candidates`], to which packets leave
    /// by `radio`.
    pub fn try_address(&mut self, now: Instant, link: LinkId, radio: RadioId, remote: SocketAddr) {
        let peer = self.links[link].peer;
        // The link may be another one by now.
        if !self.is_direct_path(link) || self.shuns(link, radio) {
            return;
        }
        let due = self.peers[peer].rendezvous.begin.max(now);
        self.add_candidate(now, link, Candidate::new((radio, remote, None), CHALLENGES, due));
    }
}

/// The link that a direct path belongs to.
impl Endpoint {
    /// Whether a direct path that is found belongs to this link.
    pub fn is_direct_path(&self, id: LinkId) -> bool {
        let path = self.peers[self.links[id].peer].rendezvous.link;
        path.is_some_and(|(link, _)| link == id)
    }

    /// Whether only the other end seeks a direct path by this link, unless an address translator shows.
    pub(crate) fn awaits_translator(&self, id: LinkId) -> bool {
        let path = self.peers[self.links[id].peer].rendezvous.link;
        path == Some((id, DirectPath::IfTranslated))
    }

    /// Whether packets of a direct path must not leave by this radio: links of the radio cost money, and the
    /// direct path would not have their limits.
    pub fn shuns(&self, id: LinkId, radio: RadioId) -> bool {
        let mut links = self.links.iter().filter(|it| it.radio == radio && !it.removed);
        self.is_direct_path(id) && links.any(|it| it.config.metered && it.config.remote.is_some())
    }

    /// Whether a link carries no messages because another link of the peer is better.
    pub(crate) fn is_on_standby(&self, id: LinkId) -> bool {
        let link = &self.links[id];
        let is_replaced =
            link.via.is_some() && self.direct_links(link.peer).any(Link::carries_data);
        link.is_heard() && (is_replaced || link.trial.is_some_and(|it| it.defers()))
    }

    /// Gives up a direct path, until another is found.
    pub fn forget_direct_path(&mut self, now: Instant, id: LinkId) {
        if self.is_direct_path(id) {
            self.mark_down(now, id);
            self.links[id].remote = None;
            self.forget_learned_address(id);
        }
    }

    /// Whether a direct path was found, is down, and nothing has been heard of it for long, while a relay
    /// leads to the peer.
    pub(crate) fn is_given_up(&self, now: Instant, id: LinkId) -> bool {
        let link = &self.links[id];
        let is_old = link.last_received.is_none_or(|at| now.since(at) > GIVE_UP);
        let is_lost = link.remote.is_some() && !link.up && is_old;
        self.is_direct_path(id) && is_lost && self.relayed_link(link.peer).is_some()
    }

    /// A link is no longer silent.
    pub(crate) fn on_link_heard(&mut self, now: Instant, id: LinkId) {
        let link = &mut self.links[id];
        link.stats.resume(now);
        if link.trial.is_some() {
            // Losses of the interruption are none of the path that works now.
            link.loss = 0.0;
        }
        let peer = link.peer;
        self.follow_relays(peer);
    }

    /// A link came up.
    pub(crate) fn on_link_up(&mut self, now: Instant, id: LinkId) {
        let peer = self.links[id].peer;
        if self.is_direct_path(id) {
            let rendezvous = &mut self.peers[peer].rendezvous;
            (rendezvous.up_since, rendezvous.had_path) = (Some(now), true);
        } else if self.links[id].via.is_some() {
            self.seek_direct_path(now, peer);
        }
        self.on_link_heard(now, id);
    }

    /// A link went down or fell silent.
    pub(crate) fn on_link_lost(&mut self, now: Instant, id: LinkId) {
        let peer = self.links[id].peer;
        if let Some(trial) = &mut self.links[id].trial {
            trial.restart();
        }
        self.follow_relays(peer);
        if !self.is_direct_path(id) || self.links[id].up {
            return;
        }
        // A path that does not last is sought less and less often.
        let rendezvous = &mut self.peers[peer].rendezvous;
        if rendezvous.up_since.take().is_some_and(|since| now.since(since) > LASTING) {
            rendezvous.attempts = 0;
        }
        self.seek_direct_path(now, peer);
    }

    /// Whether relays carry messages to the peer may have changed.
    pub(crate) fn follow_relays(&mut self, peer: PeerId) {
        let has_relay = self.relayed_link(peer).is_some();
        if let Some((id, _)) = self.peers[peer].rendezvous.link
            && let Some(trial) = &mut self.links[id].trial
        {
            trial.has_relay = has_relay;
        }
    }
}

/// Attempts.
impl Endpoint {
    /// Continues to seek a direct path to a peer, soon if that is due.
    fn seek_direct_path(&mut self, now: Instant, peer: PeerId) {
        let rendezvous = &self.peers[peer].rendezvous;
        if rendezvous.link.is_some() {
            let at = now + rendezvous.wait();
            self.timers.bring_forward(Timer::Rendezvous(peer), at);
        }
    }

    pub(crate) fn on_rendezvous_timer(&mut self, now: Instant, peer: PeerId) {
        let Some((_, when)) = self.peers[peer].rendezvous.link else { return };
        if self.is_heard(peer) {
            return;
        }
        let is_translated =
            self.hop_links(peer).any(|link| link.ends.is_translated() == Some(true));
        let is_due = is_translated || when == DirectPath::Always;
        let is_possible = self.relayed_link(peer).is_some() && !self.own_addresses(peer).is_empty();
        if !is_due || !is_possible {
            // The relay may be silent for a moment, or has not told yet where it sees this node.
            return self.timers.set(Timer::Rendezvous(peer), Some(now + CHECK_INTERVAL));
        }
        let rendezvous = &mut self.peers[peer].rendezvous;
        rendezvous.frame = Some(FrameKind::Question);
        rendezvous.awaited_until = Some(now + ANSWER_WAIT);
        rendezvous.attempts = rendezvous.attempts.saturating_add(1);
        let is_noticed = rendezvous.attempts == NOTICED_ATTEMPTS && rendezvous.is_answered;
        let next = now + rendezvous.wait();
        self.timers.set(Timer::Rendezvous(peer), Some(next));
        let cause = match (rendezvous.had_path, rendezvous.is_same_address) {
            (true, _) => NoPath::Ended,
            (false, true) => NoPath::SameAddress,
            (false, false) => NoPath::Closed,
        };
        if is_noticed {
            self.notice(Notice::NoDirectPath { name: self.peers[peer].name.clone(), cause });
        }
    }

    /// A link through a relay by which packets arrive.
    fn relayed_link(&self, peer: PeerId) -> Option<LinkId> {
        let mut links = self.peers[peer].links.iter().copied();
        links.find(|id| self.links[*id].via.is_some() && self.links[*id].is_heard())
    }

    /// The links to the relays of a peer. A direct path would not have the limits of a metered one.
    fn hop_links(&self, peer: PeerId) -> impl Iterator<Item = &Link> {
        let hops = self.peers[peer].links.iter().filter_map(|id| self.links[*id].via);
        let links = hops.flat_map(|hop| self.direct_links(hop));
        links.filter(|link| link.is_heard() && !link.config.metered)
    }

    /// The addresses at which the peer may reach this node.
    fn own_addresses(&self, peer: PeerId) -> Vec<SocketAddr> {
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for address in self.hop_links(peer).flat_map(|link| link.ends.addresses()).flatten() {
            if is_usable(address) && !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        addresses.truncate(MAX_CANDIDATES);
        addresses
    }

    /// CANDIDATES frames, which are handed to relays.
    pub(crate) fn poll_candidates(&mut self, now: Instant) -> Option<Transmit> {
        while let Some(peer) = self.peers.position(|peer| peer.rendezvous.frame.is_some()) {
            let kind = self.peers[peer].rendezvous.frame.take()?;
            let addresses = self.own_addresses(peer);
            let Some(link) = self.relayed_link(peer).filter(|_| !addresses.is_empty()) else {
                continue;
            };
            let candidates = Candidates { is_answer: kind == FrameKind::Answer, addresses };
            let put = |out: &mut Vec<u8>| put_candidates(&candidates, out);
            if let Some(datagram) = self.single_frame_packet(now, link, put) {
                let _ = self.sent(now, link, datagram, None, Ecn::NotCapable);
            }
        }
        None
    }

    /// Handles addresses at which a peer may be reached. Of a lying peer, they may be anybody's: the
    /// limits of frames, addresses and challenges bound what a stranger gets.
    pub(crate) fn handle_candidates(&mut self, now: Instant, peer: PeerId, frame: &Candidates) {
        let Some((link, _)) = self.peers[peer].rendezvous.link else { return };
        let one_way = self.relayed_link(peer).map_or(Duration::ZERO, |id| {
            self.links[id].sent_packets.rtt().smoothed().unwrap_or_default() / 2
        });
        let has_room = self.events.has_room(Some(peer));
        let own: Vec<IpAddr> = self.own_addresses(peer).iter().map(SocketAddr::ip).collect();
        let rendezvous = &mut self.peers[peer].rendezvous;
        let admits = match frame.is_answer {
            true => rendezvous.awaited_until.take().is_some_and(|until| now <= until),
            false => rendezvous.received.take(now),
        };
        if !has_room || !admits {
            return self.refused.add(RefusedPacket::Bound);
        }
        rendezvous.is_answered = true;
        // Private addresses may be equal in two homes: the first one is that which a relay sees.
        rendezvous.is_same_address =
            own.first().zip(frame.addresses.first()).is_some_and(|(own, it)| *own == it.ip());
        if frame.is_answer {
            rendezvous.begin = now;
        } else {
            rendezvous.frame = Some(FrameKind::Answer);
            // The peer begins when it has the answer.
            rendezvous.begin = now + one_way;
        }
        let usable = frame.addresses.iter().copied().filter(|it| is_usable(*it));
        let addresses: Vec<SocketAddr> = usable.take(MAX_CANDIDATES).collect();
        self.emit(Event::Candidates { peer, link, addresses });
    }
}

/// What lies between the ends of a link.
impl Endpoint {
    /// The peer asks at which address this node sees it. A packet from elsewhere shows nothing: the peer may
    /// be about to move.
    pub(crate) fn handle_observe(&mut self, link: LinkId, from: Place, own: SocketAddr) {
        let state = &mut self.links[link];
        if let Place::Udp(address) = from
            && state.remote == Some(from)
        {
            state.ends.on_question(address, own);
        }
    }

    /// The peer tells at which address it sees this node.
    pub(crate) fn handle_observed(&mut self, now: Instant, link: LinkId, observed: SocketAddr) {
        if !self.links[link].ends.on_answer(observed) {
            return;
        }
        let hop = self.links[link].peer;
        let reached = |peer: &PeerId| {
            let mut links = self.peers[*peer].links.iter();
            !self.is_heard(*peer) && links.any(|id| self.links[*id].via == Some(hop))
        };
        for peer in self.peers.ids().filter(reached).collect::<Vec<_>>() {
            self.peers[peer].rendezvous.attempts = 0;
            self.seek_direct_path(now, peer);
        }
    }
}

/// Whether packets may be sent to an address that a peer names: no group, none of this machine, and
/// none whose interface is unknown.
fn is_usable(address: SocketAddr) -> bool {
    let is_host = match address.ip() {
        IpAddr::V4(v4) => {
            !(v4.is_unspecified()
                || v4.is_loopback()
                || v4.is_multicast()
                || v4.is_broadcast()
                || v4.is_link_local())
        }
        IpAddr::V6(v6) => {
            !(v6.is_unspecified()
                || v6.is_loopback()
                || v6.is_multicast()
                || v6.is_unicast_link_local())
        }
    };
    is_host && address.port() != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, LinkConfig, RadioConfig};
    use crate::crypto::keys::SecretKey;

    #[test]
    fn nothing_is_sent_to_groups_or_to_this_machine() {
        for (text, expected) in [
            ("192.168.1.2:18470", true),
            ("[2001:db8::1]:18470", true),
            ("203.0.113.7:0", false),
            ("0.0.0.0:18470", false),
            ("127.0.0.1:18470", false),
            ("224.0.0.1:18470", false),
            ("169.254.169.254:80", false),
            ("255.255.255.255:18470", false),
            ("[::]:18470", false),
            ("[::1]:18470", false),
            ("[ff02::1]:18470", false),
            ("[fe80::1]:18470", false),
        ] {
            assert_eq!(is_usable(text.parse().unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn a_peer_causes_a_bounded_number_of_attempts() {
        let config = Config::new("robot", SecretKey::insecure("robot"));
        let mut endpoint = Endpoint::new(config, Box::new(|| 7)).unwrap();
        let radio = endpoint.add_radio(RadioConfig::default());
        let key = SecretKey::insecure("base").public();
        let peer = endpoint.add_peer("base", key).unwrap();
        let config =
            LinkConfig { remote: None, datagram_bytes: 1472, header_bytes: 28, metered: false };
        let start = Instant::default();
        let link = endpoint.add_link(start, peer, radio, config).unwrap();
        let addresses: Vec<SocketAddr> =
            (0..8).map(|n| SocketAddr::from(([198, 51, 100, n], 53))).collect();
        let frame = |is_answer| Candidates { is_answer, addresses: addresses.clone() };
        endpoint.handle_candidates(start, peer, &frame(false));
        assert_eq!(endpoint.poll_event(), None, "no direct path is sought");
        endpoint.set_direct_path(start, link, Some(DirectPath::Always));
        let mut count = 0;
        for round in 0..1000 {
            let now = start + Duration::from_millis(10) * round;
            endpoint.handle_candidates(now, peer, &frame(round % 2 == 0));
            while let Some(event) = endpoint.poll_event() {
                assert!(matches!(event, Event::Candidates { .. }), "{event:?}");
                addresses.iter().for_each(|it| endpoint.try_address(now, link, radio, *it));
                count += 1;
            }
            assert!(endpoint.links[link].candidates.len() <= MAX_CANDIDATES);
        }
        assert!(
            (4..=14).contains(&count),
            "{count} in 10 s; answers that nobody awaits have no effect"
        );
    }
}
