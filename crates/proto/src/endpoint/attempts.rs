// SPDX-License-Identifier: Apache-2.0
//! Attempts to reach a peer directly, by the addresses at which relays see both ends.

use crate::ecn::Ecn;
use crate::endpoint::events::{Event, Notice};
use crate::endpoint::network::{AccountedPacket, Network};
use crate::endpoint::rendezvous::DirectPath;
use crate::endpoint::timer::Timer;
use crate::ids::PeerId;
use crate::path::link::Link;
use crate::stats::RefusedPacket;
use crate::time::{Duration, Instant};
use crate::wire::address::{Candidates, MAX_CANDIDATES};
use crate::wire::frame::put_candidates;
use std::net::{IpAddr, SocketAddr};

/// Time until the conditions of an attempt are examined again.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

impl Network {
    pub(crate) fn on_rendezvous_timer(&mut self, now: Instant, id: PeerId) {
        let peer = &self.peers[id];
        let Some((_, when)) = peer.rendezvous.link() else { return };
        if peer.links.is_heard() {
            return;
        }
        let is_translated =
            self.hop_links(id).any(|link| link.address_discovery.is_translated() == Some(true));
        let is_due = is_translated || when == DirectPath::Always;
        let is_possible = peer.links.relayed_link().is_some() && !self.own_addresses(id).is_empty();
        if !is_due || !is_possible {
            // The relay may be silent for a moment, or has not yet reported the address at which it sees this
            // node.
            return self.cx.timers.set(Timer::Rendezvous(id), Some(now + CHECK_INTERVAL));
        }
        let peer = &mut self.peers[id];
        let cause = peer.rendezvous.begin_attempt(now);
        self.cx.timers.set(Timer::Rendezvous(id), Some(now + peer.rendezvous.attempt_interval()));
        if let Some(cause) = cause {
            self.cx.emit_notice(Notice::NoDirectPath { name: peer.name.clone(), cause });
        }
    }

    /// The links to the relays of a peer. Metered links are left out: a direct path would not have
    /// their limits.
    fn hop_links(&self, peer: PeerId) -> impl Iterator<Item = &Link> {
        let hops = self.peers[peer].links.iter().filter_map(|link| link.via);
        let links = hops.flat_map(|hop| self.peers[hop].links.direct());
        links.filter(|link| link.is_heard() && !link.config.metered)
    }

    /// The addresses at which the peer may reach this node.
    fn own_addresses(&self, peer: PeerId) -> Vec<SocketAddr> {
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for address in
            self.hop_links(peer).flat_map(|link| link.address_discovery.addresses()).flatten()
        {
            if is_usable(address) && !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        addresses.truncate(MAX_CANDIDATES);
        addresses
    }

    /// Takes the next packet with a CANDIDATES frame, to be handed to a relay.
    pub(crate) fn poll_candidates(&mut self, now: Instant) -> Option<AccountedPacket> {
        while let Some(id) = self.peers.position(|peer| peer.rendezvous.has_frame()) {
            let addresses = self.own_addresses(id);
            let peer = &mut self.peers[id];
            let is_empty = addresses.is_empty();
            let candidates = peer.rendezvous.take_frame(addresses)?;
            let Some(link) = peer.links.relayed_link().filter(|_| !is_empty) else { continue };
            let capacity = self.datagram_bytes(link);
            let put = |out: &mut Vec<u8>| put_candidates(&candidates, out);
            let peer = &mut self.peers[id];
            let packet = peer.single_frame_packet(&mut self.cx, now, link, capacity, put);
            let sent = packet.and_then(|it| self.record_sent(now, link, it, None, Ecn::NotCapable));
            if sent.is_some() {
                return sent;
            }
        }
        None
    }

    /// Handles addresses at which a peer may be reached. A lying peer may name anybody's addresses. The
    /// limits of frames, addresses and challenges bound what a stranger receives.
    pub(crate) fn handle_candidates(&mut self, now: Instant, id: PeerId, frame: &Candidates) {
        let own = self.own_addresses(id);
        let peer = &mut self.peers[id];
        let Some((link, _)) = peer.rendezvous.link() else { return };
        let one_way = peer.links.relayed_link().map_or(Duration::ZERO, |id| {
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

    /// Seeks direct paths to the peers behind the relay `hop`. The relay has reported the address at which it
    /// sees this node.
    pub(crate) fn seek_direct_paths_via(&mut self, now: Instant, hop: PeerId) {
        for peer in self.peers.iter_mut() {
            let is_behind = peer.links.iter().any(|link| link.via == Some(hop));
            if is_behind && !peer.links.is_heard() {
                peer.rendezvous.restart_search(&mut self.cx, now);
            }
        }
    }
}

/// Whether packets may be sent to an address that a peer names. Excluded are multicast groups,
/// addresses of this machine, and addresses whose interface is unknown.
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
    fn multicast_and_local_addresses_are_no_candidates() {
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
        let link = endpoint.peer_mut(peer).add_link(start, radio, config).unwrap();
        let addresses: Vec<SocketAddr> =
            (0..8).map(|n| SocketAddr::from(([198, 51, 100, n], 53))).collect();
        let frame = |is_answer| Candidates { is_answer, addresses: addresses.clone() };
        endpoint.router.net.handle_candidates(start, peer, &frame(false));
        assert_eq!(endpoint.poll_event(), None, "no direct path is sought");
        endpoint.link_mut(link).set_direct_path(start, Some(DirectPath::Always));
        let mut count = 0;
        for round in 0..1000 {
            let now = start + Duration::from_millis(10) * round;
            endpoint.router.net.handle_candidates(now, peer, &frame(round % 2 == 0));
            while let Some(event) = endpoint.poll_event() {
                assert!(matches!(event, Event::Candidates { .. }), "{event:?}");
                addresses
                    .iter()
                    .for_each(|it| endpoint.link_mut(link).try_address(now, radio, *it));
                count += 1;
            }
            assert!(endpoint.router.net.peers[link].candidates.len() <= MAX_CANDIDATES);
        }
        assert!(
            (4..=14).contains(&count),
            "{count} in 10 s; answers that nobody awaits have no effect"
        );
    }
}
