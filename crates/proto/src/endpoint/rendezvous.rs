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
use crate::endpoint::events::{Event, Notice};
use crate::endpoint::{Endpoint, Timer, Transmit};
use crate::ids::{LinkId, PeerId, RadioId};
use crate::limits;
use crate::path::link::{Candidate, Link};
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
/// Attempts in a row without a direct path after which a notice is emitted; they take 15 s.
const NOTICED_ATTEMPTS: u32 = 4;

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
    /// Attempts since a direct link was last heard.
    attempts: u32,
    /// The CANDIDATES frame that is to be sent.
    frame: Option<FrameKind>,
    /// Until when an answer counts.
    awaited_until: Option<Instant>,
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
            frame: None,
            awaited_until: None,
            begin: Instant::default(),
            received: Bucket::new(limits::CANDIDATES),
        }
    }

    /// A link was removed.
    pub(crate) fn forget(&mut self, id: LinkId) {
        self.link = self.link.filter(|(link, _)| *link != id);
    }
}

/// Setup, and inputs of the caller.
impl Endpoint {
    /// Sets when to seek a direct path to the peer of `link`, which has no relay and no configured
    /// address: the direct path belongs to this link.
    pub fn set_direct_path(&mut self, now: Instant, link: LinkId, when: DirectPath) {
        let peer = self.links[link].peer;
        let path = Some((link, when));
        if std::mem::replace(&mut self.peers[peer].rendezvous.link, path) != path {
            self.seek_direct_path(now, peer);
        }
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
        let due = self.peers[peer].rendezvous.begin.max(now);
        self.add_candidate(now, link, Candidate::new((radio, remote, None), CHALLENGES, due));
    }
}

/// Attempts.
impl Endpoint {
    /// Begins to seek a direct path to a peer; the attempts that were made do not count.
    pub(crate) fn seek_direct_path(&mut self, now: Instant, peer: PeerId) {
        let rendezvous = &mut self.peers[peer].rendezvous;
        if rendezvous.link.is_some() {
            rendezvous.attempts = 0;
            self.timers.set(Timer::Rendezvous(peer), Some(now + FIRST_ATTEMPT));
        }
    }

    pub(crate) fn on_rendezvous_timer(&mut self, now: Instant, peer: PeerId) {
        let Some((_, when)) = self.peers[peer].rendezvous.link else { return };
        let is_translated =
            self.hop_links(peer).any(|link| link.ends.is_translated() == Some(true));
        // Otherwise the peer asks, or another observed address begins the search again.
        let is_due = is_translated || when == DirectPath::Always;
        if self.relayed_link(peer).is_none() || self.is_heard(peer) || !is_due {
            return;
        }
        let rendezvous = &mut self.peers[peer].rendezvous;
        rendezvous.frame = Some(FrameKind::Question);
        rendezvous.awaited_until = Some(now + ANSWER_WAIT);
        let interval = MIN_INTERVAL * (1 << rendezvous.attempts.min(16));
        rendezvous.attempts = rendezvous.attempts.saturating_add(1);
        let is_noticed = rendezvous.attempts == NOTICED_ATTEMPTS + 1;
        self.timers.set(Timer::Rendezvous(peer), Some(now + interval.min(MAX_INTERVAL)));
        if is_noticed {
            self.notice(Notice::NoDirectPath { name: self.peers[peer].name.clone() });
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

    /// A CANDIDATES frame, which is handed to a relay.
    pub(crate) fn poll_candidates(&mut self, now: Instant) -> Option<Transmit> {
        let peer = self.peers.position(|peer| peer.rendezvous.frame.is_some())?;
        let kind = self.peers[peer].rendezvous.frame.take()?;
        let addresses = self.own_addresses(peer);
        let link = self.relayed_link(peer).filter(|_| !addresses.is_empty())?;
        let candidates = Candidates { is_answer: kind == FrameKind::Answer, addresses };
        let datagram =
            self.single_frame_packet(now, link, |out| put_candidates(&candidates, out))?;
        self.sent(now, link, datagram, None, Ecn::NotCapable)
    }

    /// Handles addresses at which a peer may be reached. Of a lying peer, they may be anybody's: the
    /// limits of frames, addresses and challenges bound what a stranger gets.
    pub(crate) fn handle_candidates(&mut self, now: Instant, peer: PeerId, frame: &Candidates) {
        let Some((link, _)) = self.peers[peer].rendezvous.link else { return };
        let one_way = self.relayed_link(peer).map_or(Duration::ZERO, |id| {
            self.links[id].sent_packets.rtt().smoothed().unwrap_or_default() / 2
        });
        let has_room = self.events.has_room(Some(peer));
        let rendezvous = &mut self.peers[peer].rendezvous;
        let admits = match frame.is_answer {
            true => rendezvous.awaited_until.take().is_some_and(|until| now <= until),
            false => rendezvous.received.take(now),
        };
        if !has_room || !admits {
            return self.refused.add(RefusedPacket::Bound);
        }
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
            self.seek_direct_path(now, peer);
        }
    }
}

/// Whether packets may be sent to an address that a peer names: no group, none of this machine, and
/// none whose interface is unknown.
fn is_usable(address: SocketAddr) -> bool {
    let is_host = match address.ip() {
        IpAddr::V4(v4) => {
            !(v4.is_unspecified() || v4.is_loopback() || v4.is_multicast() || v4.is_broadcast())
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
        endpoint.set_direct_path(start, link, DirectPath::Always);
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
