// SPDX-License-Identifier: Apache-2.0
//! Direct paths between two nodes behind address translators that have a relay in common.
//!
//! Each of the two knows from the relay at which address it is seen. They exchange their addresses
//! end to end through the relay, and then send a CHALLENGE to each other at the same time: the packet
//! that leaves opens the translator for those that come. Without a direct path, packets continue
//! through the relay. These are the ideas of RFC 8445 (ICE) in small; the simultaneous start is that
//! of RFC 5128, section 3.3.

use crate::bucket::Bucket;
use crate::ecn::Ecn;
use crate::endpoint::context::Context;
use crate::endpoint::events::{Event, NoPath, Notice};
use crate::endpoint::network::{Network, Sent};
use crate::endpoint::peer::Peer;
use crate::endpoint::timer::Timer;
use crate::ids::{LinkId, PeerId};
use crate::limits;
use crate::path::link::Link;
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
pub(crate) const CHALLENGES: u8 = 6;
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

    /// Whether a direct path is sought at all.
    pub(crate) fn is_on(&self) -> bool {
        self.link.is_some()
    }

    /// Whether a direct path that is found belongs to this link.
    pub(crate) fn is_for(&self, id: LinkId) -> bool {
        self.link.is_some_and(|(link, _)| link == id)
    }

    /// Whether only the other end seeks a direct path by this link, unless an address translator shows.
    pub(crate) fn awaits_translator(&self, id: LinkId) -> bool {
        self.link == Some((id, DirectPath::IfTranslated))
    }

    /// When challenges to an address of the peer begin.
    pub(crate) fn begin(&self, now: Instant) -> Instant {
        self.begin.max(now)
    }

    pub(crate) fn has_frame(&self) -> bool {
        self.frame.is_some()
    }

    /// Takes the CANDIDATES frame that is to be sent, with these addresses.
    pub(crate) fn take_frame(&mut self, addresses: Vec<SocketAddr>) -> Option<Candidates> {
        let kind = self.frame.take()?;
        Some(Candidates { is_answer: kind == FrameKind::Answer, addresses })
    }

    /// Time from now until the next attempt.
    fn wait(&self) -> Duration {
        match self.attempts.checked_sub(1) {
            None => FIRST_ATTEMPT,
            Some(doublings) => (MIN_INTERVAL * (1 << doublings.min(16))).min(MAX_INTERVAL),
        }
    }

    /// Begins an attempt. Returns the cause that is worth a notice, if the earlier attempts found no path.
    fn begin_attempt(&mut self, now: Instant) -> Option<NoPath> {
        self.frame = Some(FrameKind::Question);
        self.awaited_until = Some(now + ANSWER_WAIT);
        self.attempts = self.attempts.saturating_add(1);
        let is_noticed = self.attempts == NOTICED_ATTEMPTS && self.is_answered;
        let cause = match (self.had_path, self.is_same_address) {
            (true, _) => NoPath::Ended,
            (false, true) => NoPath::SameAddress,
            (false, false) => NoPath::Closed,
        };
        is_noticed.then_some(cause)
    }

    /// Takes addresses of the peer; returns whether they count. `one_way`: the delay of the path to the peer;
    /// `has_room`: the application can learn them.
    fn accept(
        &mut self,
        now: Instant,
        frame: &Candidates,
        own: &[SocketAddr],
        (one_way, has_room): (Duration, bool),
    ) -> bool {
        let admits = match frame.is_answer {
            true => self.awaited_until.take().is_some_and(|until| now <= until),
            false => self.received.take(now),
        };
        if !admits || !has_room {
            return false;
        }
        self.is_answered = true;
        // Private addresses may be equal in two homes: the first one is that which a relay sees.
        let first = own.first().zip(frame.addresses.first());
        self.is_same_address = first.is_some_and(|(own, it)| own.ip() == it.ip());
        if frame.is_answer {
            self.begin = now;
        } else {
            self.frame = Some(FrameKind::Answer);
            // The peer begins when it has the answer.
            self.begin = now + one_way;
        }
        true
    }
}

/// The link that a direct path belongs to.
impl Peer {
    /// Sets when to seek a direct path by a link. `None`: never.
    pub(crate) fn set_direct_path(
        &mut self,
        cx: &mut Context,
        now: Instant,
        id: LinkId,
        when: Option<DirectPath>,
    ) {
        let path = when.map(|when| (id, when));
        if std::mem::replace(&mut self.rendezvous.link, path) == path {
            return;
        }
        self.links[id].trial = when.map(|_| Trial::new());
        self.seek_again(cx, now);
        self.follow_relays();
    }

    /// Gives up a direct path, until another is found.
    pub(crate) fn forget_direct_path(&mut self, cx: &mut Context, now: Instant, id: LinkId) {
        if self.rendezvous.is_for(id) {
            self.mark_down(cx, now, id);
            self.links[id].remote = None;
            self.forget_learned_address(cx, id);
        }
    }

    /// Whether a direct path was found, is down, and nothing has been heard of it for long, while a relay
    /// leads to the peer.
    pub(crate) fn is_given_up(&self, now: Instant, id: LinkId) -> bool {
        let link = &self.links[id];
        let is_old = link.last_received.is_none_or(|at| now.since(at) > GIVE_UP);
        let is_lost = link.remote.is_some() && !link.up && is_old;
        self.rendezvous.is_for(id) && is_lost && self.links.relayed().is_some()
    }

    /// A link is no longer silent.
    pub(crate) fn on_link_heard(&mut self, now: Instant, id: LinkId) {
        let link = &mut self.links[id];
        link.stats.resume(now);
        if link.trial.is_some() {
            // Losses of the interruption are none of the path that works now.
            link.loss = 0.0;
        }
        self.follow_relays();
    }

    /// A link came up.
    pub(crate) fn on_link_up(&mut self, cx: &mut Context, now: Instant, id: LinkId) {
        if self.rendezvous.is_for(id) {
            (self.rendezvous.up_since, self.rendezvous.had_path) = (Some(now), true);
        } else if self.links[id].via.is_some() {
            self.seek_direct_path(cx, now);
        }
        self.on_link_heard(now, id);
    }

    /// A link went down or fell silent.
    pub(crate) fn on_link_lost(&mut self, cx: &mut Context, now: Instant, id: LinkId) {
        if let Some(trial) = &mut self.links[id].trial {
            trial.restart();
        }
        self.follow_relays();
        if !self.rendezvous.is_for(id) || self.links[id].up {
            return;
        }
        // A path that does not last is sought less and less often.
        let up_since = self.rendezvous.up_since.take();
        if up_since.is_some_and(|since| now.since(since) > LASTING) {
            self.rendezvous.attempts = 0;
        }
        self.seek_direct_path(cx, now);
    }

    /// Whether relays carry messages to the peer may have changed.
    fn follow_relays(&mut self) {
        let has_relay = self.links.relayed().is_some();
        if let Some((id, _)) = self.rendezvous.link
            && let Some(trial) = &mut self.links[id].trial
        {
            trial.has_relay = has_relay;
        }
    }

    /// Begins the search for a direct path.
    pub(crate) fn seek_again(&mut self, cx: &mut Context, now: Instant) {
        self.rendezvous.attempts = 0;
        self.seek_direct_path(cx, now);
    }

    /// Continues to seek a direct path, soon if that is due.
    fn seek_direct_path(&self, cx: &mut Context, now: Instant) {
        if self.rendezvous.link.is_some() {
            let at = now + self.rendezvous.wait();
            cx.timers.bring_forward(Timer::Rendezvous(self.id), at);
        }
    }
}

/// Attempts.
impl Network {
    pub(crate) fn on_rendezvous_timer(&mut self, now: Instant, id: PeerId) {
        let peer = &self.peers[id];
        let Some((_, when)) = peer.rendezvous.link else { return };
        if peer.links.is_heard() {
            return;
        }
        let is_translated = self.hop_links(id).any(|link| link.ends.is_translated() == Some(true));
        let is_due = is_translated || when == DirectPath::Always;
        let is_possible = peer.links.relayed().is_some() && !self.own_addresses(id).is_empty();
        if !is_due || !is_possible {
            // The relay may be silent for a moment, or has not told yet where it sees this node.
            return self.cx.timers.set(Timer::Rendezvous(id), Some(now + CHECK_INTERVAL));
        }
        let peer = &mut self.peers[id];
        let cause = peer.rendezvous.begin_attempt(now);
        self.cx.timers.set(Timer::Rendezvous(id), Some(now + peer.rendezvous.wait()));
        if let Some(cause) = cause {
            self.cx.notice(Notice::NoDirectPath { name: peer.name.clone(), cause });
        }
    }

    /// The links to the relays of a peer. A direct path would not have the limits of a metered one.
    fn hop_links(&self, peer: PeerId) -> impl Iterator<Item = &Link> {
        let hops = self.peers[peer].links.iter().filter_map(|link| link.via);
        let links = hops.flat_map(|hop| self.peers[hop].links.direct());
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

    /// The next CANDIDATES frame, which is handed to a relay.
    pub(crate) fn poll_candidates(&mut self, now: Instant) -> Option<Sent> {
        while let Some(id) = self.peers.position(|peer| peer.rendezvous.has_frame()) {
            let addresses = self.own_addresses(id);
            let peer = &mut self.peers[id];
            let is_empty = addresses.is_empty();
            let candidates = peer.rendezvous.take_frame(addresses)?;
            let Some(link) = peer.links.relayed().filter(|_| !is_empty) else { continue };
            let capacity = self.datagram_bytes(link);
            let put = |out: &mut Vec<u8>| put_candidates(&candidates, out);
            let peer = &mut self.peers[id];
            let packet = peer.single_frame_packet(&mut self.cx, now, link, capacity, put);
            if let Some(datagram) = packet {
                return self.sent(now, link, datagram, None, Ecn::NotCapable);
            }
        }
        None
    }

    /// Handles addresses at which a peer may be reached. Of a lying peer, they may be anybody's: the
    /// limits of frames, addresses and challenges bound what a stranger gets.
    pub(crate) fn handle_candidates(&mut self, now: Instant, id: PeerId, frame: &Candidates) {
        let own = self.own_addresses(id);
        let peer = &mut self.peers[id];
        let Some((link, _)) = peer.rendezvous.link else { return };
        let one_way = peer.links.relayed().map_or(Duration::ZERO, |id| {
            peer.links[id].sent_packets.rtt().smoothed().unwrap_or_default() / 2
        });
        let has_room = self.cx.events.has_room(Some(id));
        if !peer.rendezvous.accept(now, frame, &own, (one_way, has_room)) {
            return self.cx.refused.add(RefusedPacket::Bound);
        }
        let usable = frame.addresses.iter().copied().filter(|it| is_usable(*it));
        let addresses: Vec<SocketAddr> = usable.take(MAX_CANDIDATES).collect();
        self.cx.emit(id, Event::Candidates { peer: id, link, addresses });
    }

    /// The peer told at which address it sees this node: it may help to reach those that are behind it.
    pub(crate) fn seek_behind(&mut self, now: Instant, hop: PeerId) {
        for peer in self.peers.iter_mut() {
            let is_behind = peer.links.iter().any(|link| link.via == Some(hop));
            if is_behind && !peer.links.is_heard() {
                peer.seek_again(&mut self.cx, now);
            }
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
    use crate::Endpoint;
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
        endpoint.net.handle_candidates(start, peer, &frame(false));
        assert_eq!(endpoint.poll_event(), None, "no direct path is sought");
        endpoint.set_direct_path(start, link, Some(DirectPath::Always));
        let mut count = 0;
        for round in 0..1000 {
            let now = start + Duration::from_millis(10) * round;
            endpoint.net.handle_candidates(now, peer, &frame(round % 2 == 0));
            while let Some(event) = endpoint.poll_event() {
                assert!(matches!(event, Event::Candidates { .. }), "{event:?}");
                addresses.iter().for_each(|it| endpoint.try_address(now, link, radio, *it));
                count += 1;
            }
            assert!(endpoint.net.peers[link].candidates.len() <= MAX_CANDIDATES);
        }
        assert!(
            (4..=14).contains(&count),
            "{count} in 10 s; answers that nobody awaits have no effect"
        );
    }
}
