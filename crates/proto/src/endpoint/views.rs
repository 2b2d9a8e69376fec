// SPDX-License-Identifier: Apache-2.0
//! Views of the state of an endpoint, its peers, links, radios and teams, and access to their
//! handles.

use crate::address::Place;
use crate::clock::ClockView;
use crate::config::ChannelConfig;
use crate::crypto::keys::PublicKey;
use crate::ecn::EcnUse;
use crate::endpoint::handles::{LinkMut, PeerMut, TeamMut};
use crate::endpoint::network::Network;
use crate::endpoint::peer::Peer;
use crate::endpoint::state::Endpoint;
use crate::endpoint::teams::{TeamLimits, TeamStats};
use crate::ids::{ChannelId, LinkId, PeerId, RadioId, TeamId};
use crate::path::link::Link;
use crate::path::mtu::MtuState;
use crate::stats::{Forwarded, InStats, LinkStats, OutStats, RefusedPackets};
use crate::time::Duration;
use crate::wire::control::OfferedTopic;
use std::net::IpAddr;

/// State of a peer.
#[derive(Debug, Clone, Copy)]
pub struct PeerView<'a> {
    /// The name.
    pub name: &'a str,
    /// The public key.
    pub key: PublicKey,
    /// The team, at a relay.
    pub team: Option<TeamId>,
    /// Whether a link to the peer is up.
    pub up: bool,
    /// Whether there has been a session with the peer.
    pub met: bool,
    /// The comparison of the peer's clock with ours; `None` until known.
    pub clock: Option<ClockView>,
    /// Messages queued for the peer.
    pub queued_messages: usize,
    /// Bytes queued for the peer.
    pub queued_bytes: u64,
    peer: &'a Peer,
}

impl<'a> PeerView<'a> {
    /// A channel to the peer: its configuration, whether the peer is subscribed, its counters.
    pub fn channel_out(
        &self,
        channel: ChannelId,
    ) -> Option<(&'a ChannelConfig, bool, &'a OutStats)> {
        let outbox = &self.peer.channels.outbox;
        let config = outbox.queues.config(channel.0)?;
        Some((config, outbox.queues.is_wanted(channel.0), outbox.queues.stats(channel.0)?))
    }

    /// Source and payload of the messages on a channel that are queued, or sent with unknown outcome. If an
    /// outage interrupts the session, these messages arrive after the outage.
    pub fn pending(
        &self,
        channel: ChannelId,
    ) -> impl Iterator<Item = (u32, &'a bytes::Bytes)> + use<'a> {
        self.peer.channels.outbox.queues.pending(channel.0)
    }

    /// A channel from the peer: its topic, whether this node is subscribed, its counters.
    pub fn channel_in(&self, channel: ChannelId) -> Option<(&'a OfferedTopic, bool, &'a InStats)> {
        let open = self.peer.channels.inbox.channel(channel.0)?;
        Some((&open.topic, open.wanted, &open.stats))
    }

    /// Channels from the peer.
    pub fn channels_in(&self) -> impl Iterator<Item = ChannelId> + use<'a> {
        self.peer.channels.inbox.topics().map(|(channel, _)| ChannelId(channel))
    }

    /// Counters of relayed packets to this neighbour: those of other nodes and those of this node.
    pub fn relayed(&self) -> OutStats {
        self.peer.channels.outbox.queues.relayed_stats()
    }

    /// Counters of relayed packets of other nodes to this neighbour.
    pub fn forwarded(&self) -> Forwarded {
        self.peer.channels.outbox.forwarded
    }
}

/// State of a link.
#[derive(Debug, Clone, Copy)]
pub struct LinkView<'a> {
    /// The peer to which the link leads.
    pub peer: PeerId,
    /// The link number in packets to the peer, 0 to 15.
    pub number: u8,
    /// The radio that the link uses.
    pub radio: RadioId,
    /// The address of the peer, if known.
    pub remote: Option<Place>,
    /// Whether an address translator (NAT) on this node's side is on the path; `None` until known.
    pub is_translated: Option<bool>,
    /// Whether an address translator on the peer's side is on the path; `None` until known.
    pub is_peer_translated: Option<bool>,
    /// Whether packets arrive.
    pub up: bool,
    /// Whether the peer acknowledges nothing. The link then carries only PINGs and handshakes.
    pub silent: bool,
    /// Whether the driver has sent no packet of the link for too long.
    pub stalled: bool,
    /// Whether the link carries no messages because another link of the peer is better. That is so for a
    /// relay while a direct path works, and for a direct path on trial.
    pub standby: bool,
    /// Whether the link costs money, by the configuration.
    pub metered: bool,
    /// Whether the link's [allowance](crate::LinkMut::set_allowance) is used up.
    pub spent: bool,
    /// Largest IP packet that the path is known to carry, in bytes. Through a relay, the largest
    /// packet that the relay carries.
    pub mtu: usize,
    /// How `mtu` is known. Without meaning on a link through a relay.
    pub mtu_state: MtuState,
    /// Fraction of its packets that are lost, smoothed over 64 packets.
    pub loss: f64,
    /// Smoothed round trip time.
    pub rtt: Option<Duration>,
    /// The pacing rate that the controller derives from the peer's reports, in bits per second of
    /// IP packets; `None` without such a controller.
    pub rate_bps: Option<u64>,
    /// The available rate in bits per second of IP packets, shared with the other links of its radio: the
    /// least of the configured rate, the pacing rate, and the rate at which its radio was last busy (a
    /// quarter more for each second since then). The available rate grows with use. `None`: no limit is
    /// known.
    pub available_bps: Option<u64>,
    /// The signal that last held back a packet.
    pub signal: &'static str,
    /// Whether the link's packets are ECN-capable.
    pub ecn: EcnUse,
    /// Counters.
    pub stats: &'a LinkStats,
    link: &'a Link,
    net: &'a Network,
}

impl LinkView<'_> {
    /// Whether a direct path that is found belongs to the link.
    pub fn is_direct_path(&self) -> bool {
        self.net.peers[self.peer].rendezvous.is_for(self.link.id)
    }

    /// Whether packets of a direct path must not leave by this radio: links of the radio cost money, and the
    /// direct path would not have their limits.
    pub fn avoids_radio(&self, radio: RadioId) -> bool {
        self.is_direct_path() && self.net.is_metered(radio)
    }

    /// The local address at which packets from the link's remote address arrive; `None` if no packet has
    /// shown it.
    pub fn local_address(&self) -> Option<IpAddr> {
        self.link.local_address.address(self.link.remote)
    }
}

/// State of a radio.
#[derive(Debug, Clone, Copy)]
pub struct RadioView {
    /// The signal that governs the radio.
    pub signal: &'static str,
    /// Configured rate in bits per second.
    pub configured_bps: Option<u64>,
    /// Rate of IP bytes while the queue was never empty, in bits per second.
    pub measured_bps: Option<u64>,
    /// Bytes of IP packets in the kernel.
    pub in_flight_bytes: usize,
    /// The in-flight budget in bytes.
    pub in_flight_limit_bytes: usize,
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes of IP packets sent.
    pub sent_bytes: u64,
}

/// The node.
impl Endpoint {
    /// This node's name.
    pub fn name(&self) -> &str {
        &self.router.net.cx.config.name
    }

    /// This node's public key.
    pub fn key(&self) -> PublicKey {
        self.router.net.cx.public
    }

    /// Packets refused, by reason.
    pub fn refused_packets(&self) -> &RefusedPackets {
        &self.router.net.cx.refused
    }

    /// Whether the queues for all peers that are up are empty, and the outcome of each message of a topic
    /// is known.
    pub fn is_drained(&self) -> bool {
        let mut peers = self.router.net.peers.iter();
        peers.all(|peer| {
            let queues = &peer.channels.outbox.queues;
            !peer.up || queues.waiting_messages() == 0 && queues.unsettled() == 0
        })
    }

    /// The number of messages of topics to all peers that are queued, or sent with unknown outcome.
    pub fn unsettled(&self) -> u64 {
        self.router.net.peers.iter().map(|peer| peer.channels.outbox.queues.unsettled()).sum()
    }

    /// A beacon for the local network, to be sent from the address at which this node receives; `None`
    /// without peers. If there are more peers than a beacon has tags, successive beacons address the peers in
    /// turn.
    pub fn beacon(&mut self) -> Option<Vec<u8>> {
        self.router.beacons.make(&mut self.router.net)
    }
}

/// Peers, links and radios.
impl Endpoint {
    /// State of a peer.
    pub fn peer(&self, id: PeerId) -> PeerView<'_> {
        let peer = &self.router.net.peers[id];
        PeerView {
            name: &peer.name,
            team: peer.team,
            up: peer.up,
            clock: peer.clock.view(self.router.net.cx.clock_now),
            met: peer.session.was_established(),
            key: peer.session.key,
            queued_messages: peer.channels.outbox.queues.waiting_messages(),
            queued_bytes: peer.channels.outbox.queues.waiting_bytes(),
            peer,
        }
    }

    /// A handle for acting on a peer.
    pub fn peer_mut(&mut self, id: PeerId) -> PeerMut<'_> {
        PeerMut { endpoint: self, id }
    }

    /// All peers.
    pub fn peers(&self) -> impl Iterator<Item = PeerId> + use<> {
        let present = self.router.net.peers.iter().filter(|peer| !peer.removed);
        present.map(|peer| peer.id).collect::<Vec<_>>().into_iter()
    }

    /// State of a link; `None` if its peer was removed.
    pub fn link(&self, id: LinkId) -> Option<LinkView<'_>> {
        let link = self.router.net.peers.link(id)?;
        let (available_bps, signal) =
            self.router.net.available_rate(self.router.net.cx.clock_now, id);
        Some(LinkView {
            peer: link.peer,
            number: link.number,
            radio: link.radio,
            remote: link.remote,
            up: link.up,
            silent: link.silent,
            stalled: link.stalled,
            standby: self.router.net.peers[link.peer].links.is_on_standby(id),
            metered: link.config.metered,
            spent: link.is_spent(),
            mtu: self.router.net.datagram_bytes(id) + link.config.header_bytes,
            mtu_state: link.sent_packets.mtu.state(),
            is_translated: link.address_discovery.is_translated(),
            is_peer_translated: link.address_discovery.is_peer_translated(),
            loss: link.loss,
            rtt: link.sent_packets.rtt().smoothed(),
            rate_bps: link.controller.as_ref().and_then(|it| it.rate_bps()),
            available_bps,
            signal,
            ecn: link.sent_packets.ecn.state(),
            stats: &link.stats,
            link,
            net: &self.router.net,
        })
    }

    /// The rate in bits per second at which packets of a link leave now. It is available without the rest of
    /// the link's state, since the driver asks for each packet. `None` if packets leave at once, for example
    /// after an idle time.
    pub fn pacing_rate(&self, id: LinkId) -> Option<u64> {
        let controller = self.router.net.peers.link(id)?.controller.as_ref()?;
        if controller.is_in_burst() { None } else { controller.rate_bps() }
    }

    /// A handle for acting on a link.
    pub fn link_mut(&mut self, id: LinkId) -> LinkMut<'_> {
        LinkMut { endpoint: self, id }
    }

    /// All links.
    pub fn links(&self) -> impl Iterator<Item = LinkId> + use<> {
        let present = self.router.net.peers.links().filter(|link| !link.removed);
        present.map(|link| link.id).collect::<Vec<_>>().into_iter()
    }

    /// State of a radio.
    pub fn radio(&self, id: RadioId) -> RadioView {
        let radio = &self.router.net.radios[id];
        RadioView {
            signal: radio.pacer.signal(),
            configured_bps: radio.config.rate.fixed_bps(),
            measured_bps: radio.measured_bps(),
            in_flight_bytes: self.router.net.in_flight(id).total(),
            in_flight_limit_bytes: radio.pacer.limit_bytes(),
            sent_packets: radio.sent_packets,
            sent_bytes: radio.sent_bytes,
        }
    }

    /// All radios.
    pub fn radios(&self) -> impl Iterator<Item = RadioId> + use<> {
        self.router.net.radios.ids()
    }
}

/// Teams.
impl Endpoint {
    /// Adds a team without members.
    pub fn add_team(&mut self, limits: TeamLimits) -> TeamId {
        self.router.teams.add(limits)
    }

    /// A handle for acting on a team.
    pub fn team_mut(&mut self, id: TeamId) -> TeamMut<'_> {
        TeamMut { endpoint: self, id }
    }

    /// Counters of a team.
    pub fn team_stats(&self, id: TeamId) -> TeamStats {
        self.router.teams.stats(&self.router.net.peers, id)
    }
}
