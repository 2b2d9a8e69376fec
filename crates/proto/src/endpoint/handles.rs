// SPDX-License-Identifier: Apache-2.0
//! Handles for acting on one peer, link or team of an endpoint.

use crate::address::Place;
use crate::class::Class;
use crate::config::{ChannelConfig, LinkConfig, Rights};
use crate::crypto::keys::PublicKey;
use crate::delivery::outbox::Message;
use crate::endpoint::membership::{RemovedPeer, check_datagram};
use crate::endpoint::rendezvous::{CHALLENGES, DirectPath};
use crate::endpoint::router::Router;
use crate::endpoint::state::Endpoint;
use crate::endpoint::teams::TeamLimits;
use crate::endpoint::timer::Timer;
use crate::error::{OfferError, SendError, SetupError};
use crate::ids::{ChannelId, LinkId, PeerId, RadioId, TeamId};
use crate::path::link::Candidate;
use crate::stats::OutStats;
use crate::time::Instant;
use std::net::SocketAddr;

/// A peer of an endpoint; see [`Endpoint::peer_mut`].
#[derive(Debug)]
pub struct PeerMut<'a> {
    pub(crate) endpoint: &'a mut Endpoint,
    pub(crate) id: PeerId,
}

/// Topics.
impl PeerMut<'_> {
    /// Offers a topic to the peer, in this session and in later ones.
    pub fn offer(&mut self, now: Instant, config: ChannelConfig) -> Result<ChannelId, OfferError> {
        self.endpoint
            .router
            .with_peer(now, self.id, |peer, cx| peer.channels.offer(cx, now, config))
    }

    /// Changes the offer of a channel: its type, priority, lifespan and so on.
    pub fn change_offer(
        &mut self,
        now: Instant,
        channel: ChannelId,
        config: ChannelConfig,
    ) -> Result<(), OfferError> {
        self.endpoint.router.with_peer(now, self.id, |peer, cx| {
            peer.channels.change_offer(cx, now, channel, config)
        })
    }

    /// Closes a channel to the peer and drops its queued messages. Returns its last counters.
    pub fn withdraw(&mut self, now: Instant, channel: ChannelId) -> Option<OutStats> {
        self.endpoint.router.net.peers[self.id].channels.withdraw(now, channel)
    }

    /// Subscribes to a channel that the peer offered, or ends the subscription.
    pub fn want(&mut self, now: Instant, channel: ChannelId, wanted: bool) {
        self.endpoint.router.net.peers[self.id].channels.want(now, channel, wanted);
    }

    /// Refuses a channel that the peer offered. A peer that does not acknowledge earlier control messages is
    /// not notified: otherwise each of its messages might queue another refusal.
    pub fn refuse(&mut self, now: Instant, channel: ChannelId, reason: String) {
        self.endpoint.router.net.peers[self.id].channels.refuse(now, channel, reason);
    }

    /// Queues a message on a channel to which the peer is subscribed.
    pub fn send(
        &mut self,
        now: Instant,
        channel: ChannelId,
        message: Message,
    ) -> Result<(), SendError> {
        let rate_bps = self.endpoint.router.net.fair_share_bps(self.id);
        self.endpoint.router.with_peer(now, self.id, |peer, cx| {
            peer.channels.send(cx, now, rate_bps, channel, message)
        })
    }

    /// Sets the largest message that the peer takes in this session ([`too_large::allowed`]), and drops
    /// larger ones that are queued.
    ///
    /// [`too_large::allowed`]: crate::too_large::allowed
    pub fn set_largest_message(&mut self, most: usize) {
        self.endpoint.router.net.peers[self.id].channels.outbox.set_peer_max_message(most);
    }

    /// Emits the offer of a channel again, as if it had just arrived.
    pub fn repeat_offer(&mut self, now: Instant, channel: ChannelId) {
        self.endpoint.router.with_peer(now, self.id, |peer, cx| {
            peer.channels.repeat_offer(cx, now, channel);
        });
    }
}

/// Setup.
impl PeerMut<'_> {
    /// Renames the peer. The peer then has to use the new name itself. Call [`Endpoint::check_peers`] first:
    /// several peers may exchange names.
    pub fn rename(&mut self, name: &str) {
        name.clone_into(&mut self.endpoint.router.net.peers[self.id].name);
    }

    /// Sets the rights of the peer.
    pub fn set_rights(&mut self, rights: Rights) {
        self.endpoint.router.net.peers[self.id].rights = rights;
    }

    /// Adds a link, and seeks the peer by that link if its address is known.
    pub fn add_link(
        &mut self,
        now: Instant,
        radio: RadioId,
        config: LinkConfig,
    ) -> Result<LinkId, SetupError> {
        self.endpoint.router.add_link(now, self.id, radio, config)
    }

    /// Adds a link through another peer.
    pub fn add_relayed_link(&mut self, now: Instant, via: PeerId) -> Result<LinkId, SetupError> {
        self.endpoint.router.add_relayed_link(now, self.id, via)
    }

    /// Sets the order of preference of the links; links that are not listed come last.
    pub fn order_links(&mut self, order: &[LinkId]) {
        self.endpoint.router.net.peers[self.id].links.set_preference_order(order);
    }

    /// Removes the peer: says goodbye, forgets its keys, and drops the messages for it
    /// ([`PeerGone`](crate::stats::DropReason::PeerGone)). Links of other peers through it are
    /// removed as well. From now on its key is unknown.
    pub fn remove(self, now: Instant) -> RemovedPeer {
        self.endpoint.router.remove_peer(now, self.id)
    }
}

/// A link of an endpoint; see [`Endpoint::link_mut`]. If its peer was removed, the methods do
/// nothing: the caller may learn of the removal later.
#[derive(Debug)]
pub struct LinkMut<'a> {
    pub(crate) endpoint: &'a mut Endpoint,
    pub(crate) id: LinkId,
}

/// The path of the link.
impl LinkMut<'_> {
    /// Changes the path of the link, for example after a host name was resolved or routes changed.
    pub fn set_path(
        &mut self,
        now: Instant,
        radio: RadioId,
        config: LinkConfig,
    ) -> Result<(), SetupError> {
        check_datagram(config.datagram_bytes)?;
        let id = self.id;
        if !self.exists() {
            return Ok(());
        }
        self.endpoint.router.net.set_link_radio(id, radio);
        self.endpoint.router.with_link(now, id, |peer, cx| {
            // If the configured address is unchanged, an address from which the peer has sent since
            // is newer.
            let link = &mut peer.links[id];
            if link.config.remote != config.remote {
                link.remote = config.remote.map(Place::Udp);
                link.forget_path();
                peer.forget_learned_address(cx, id);
            }
            peer.links[id].set_config(config);
        });
        self.announce_move(now);
        Ok(())
    }

    /// Changes the radio by which the link reaches an address that it learned from the peer, and the
    /// largest size of its datagrams.
    pub fn set_route(
        &mut self,
        radio: RadioId,
        datagram_bytes: usize,
        header_bytes: usize,
    ) -> Result<(), SetupError> {
        check_datagram(datagram_bytes)?;
        if !self.exists() {
            return Ok(());
        }
        self.endpoint.router.net.set_link_radio(self.id, radio);
        let link = &mut self.endpoint.router.net.peers[self.id];
        link.set_config(LinkConfig { datagram_bytes, header_bytes, ..link.config.clone() });
        Ok(())
    }

    /// Handles a possible change of our own address on the link. The peer learns the new address
    /// from a packet.
    pub fn announce_move(&mut self, now: Instant) {
        let net = &mut self.endpoint.router.net;
        let Some(link) = net.peers.link_mut(self.id) else { return };
        if link.up {
            link.ping_now = true;
        } else {
            net.cx.timers.set(Timer::Reconnect(self.id), Some(now));
        }
    }

    /// Sets the local address from which packets of the link leave. The peer then tells from which address it
    /// sees them come.
    pub fn set_own_address(&mut self, own: SocketAddr) {
        let Some(link) = self.endpoint.router.net.peers.link_mut(self.id) else { return };
        link.ping_now |= link.address_discovery.set_own(own) && link.up;
    }

    /// Sets the number of IP bytes, sent and received from now on, after which the link carries only channels
    /// with [`LinkUse::over_budget`](crate::LinkUse::over_budget), control messages, acknowledgements and
    /// heartbeats. Other messages wait for another link, as they do while a link is down. `None`: no limit.
    pub fn set_allowance(&mut self, bytes: Option<u64>) {
        let Some(link) = self.endpoint.router.net.peers.link_mut(self.id) else { return };
        link.allowed_bytes = bytes.map(|bytes| link.used_bytes().saturating_add(bytes));
    }

    /// Removes the link. The session continues on other links, and the outstanding packets are
    /// repaired there.
    pub fn remove(self, now: Instant) {
        if self.exists() {
            self.endpoint.router.remove_link(now, self.id);
        }
    }
}

/// A direct path to a peer behind a relay.
impl LinkMut<'_> {
    /// Sets when to seek a direct path to the peer of this link; `None`: never. The link must have no relay
    /// and no configured address. A direct path that is found belongs to this link.
    pub fn set_direct_path(&mut self, now: Instant, when: Option<DirectPath>) {
        let id = self.id;
        self.endpoint.router.with_link(now, id, |peer, cx| {
            peer.rendezvous.set(cx, now, &mut peer.links, (id, when));
        });
    }

    /// Tries to reach the peer at an address of [`Event::Candidates`](crate::Event::Candidates). Packets to
    /// this address leave by `radio`.
    pub fn try_address(&mut self, now: Instant, radio: RadioId, remote: SocketAddr) {
        let id = self.id;
        // The id may belong to another link by now.
        if !self.endpoint.link(id).is_some_and(|link| link.is_direct_path()) {
            return;
        }
        if self.endpoint.router.net.is_metered(radio) {
            return;
        }
        self.endpoint.router.with_link(now, id, |peer, cx| {
            let due = peer.rendezvous.challenges_start(now);
            let candidate = Candidate::new((radio, remote, None), CHALLENGES, due);
            peer.links.add_candidate(cx, now, id, candidate);
        });
    }

    /// Gives up the direct path, until another is found.
    pub fn forget_direct_path(&mut self, now: Instant) {
        let id = self.id;
        self.endpoint.router.with_link(now, id, |peer, cx| peer.forget_direct_path(cx, now, id));
    }
}

/// What the driver reports.
impl LinkMut<'_> {
    /// Whether the link still has a peer.
    fn exists(&self) -> bool {
        self.endpoint.router.net.peers.link(self.id).is_some()
    }

    /// Reports the IP bytes of the link and `class` that are in the kernel.
    pub fn handle_in_flight(&mut self, now: Instant, class: Class, bytes: usize) {
        self.endpoint.router.net.handle_in_flight(now, self.id, class, bytes);
    }

    /// Reports that the kernel refused a datagram of [`Endpoint::poll_transmit`] on the link, because the
    /// datagram is too large for the interface (EMSGSIZE). The messages of the datagram are sent again in
    /// smaller packets.
    pub fn handle_refused(&mut self, now: Instant, datagram: &[u8]) {
        let id = self.id;
        self.endpoint.router.with_link(now, id, |peer, cx| {
            peer.handle_refused(cx, now, id, datagram);
        });
    }
}

/// A team of a relay; see [`Endpoint::team_mut`].
#[derive(Debug)]
pub struct TeamMut<'a> {
    pub(crate) endpoint: &'a mut Endpoint,
    pub(crate) id: TeamId,
}

impl TeamMut<'_> {
    /// Changes the limits of the team. Packets queued beyond a smaller limit stay.
    pub fn set_limits(&mut self, now: Instant, limits: TeamLimits) {
        let Router { net, teams, .. } = &mut self.endpoint.router;
        teams.set_limits(&mut net.cx, now, self.id, limits);
    }

    /// Adds a member. Its packets to other members are forwarded. Its key identifies it: the name that it
    /// uses for itself may differ from `name`.
    pub fn add_member(&mut self, name: &str, key: PublicKey) -> Result<PeerId, SetupError> {
        self.endpoint.router.add_peer(Some(self.id), name, key)
    }

    /// Removes the team. Remove its members first.
    pub fn remove(self) {
        let Router { net, teams, .. } = &mut self.endpoint.router;
        debug_assert!(net.peers.iter().all(|peer| peer.removed || peer.team != Some(self.id)));
        teams.remove(&mut net.cx, self.id);
        net.radios.iter_mut().for_each(|radio| radio.forget_team(self.id));
    }
}
