// SPDX-License-Identifier: Apache-2.0
//! Methods of [`Endpoint`] that name a peer, a link or a team with each call. They do what
//! [`crate::PeerMut`], [`crate::LinkMut`] and the views do.

use crate::class::Class;
use crate::config::{ChannelConfig, LinkConfig, Rights};
use crate::crypto::keys::PublicKey;
use crate::delivery::outbox::Message;
use crate::endpoint::membership::RemovedPeer;
use crate::endpoint::rendezvous::DirectPath;
use crate::endpoint::state::Endpoint;
use crate::endpoint::teams::TeamLimits;
use crate::error::{OfferError, SendError, SetupError};
use crate::ids::{ChannelId, LinkId, PeerId, RadioId, TeamId};
use crate::stats::{Forwarded, InStats, OutStats};
use crate::time::Instant;
use crate::wire::control::OfferedTopic;
use std::net::{IpAddr, SocketAddr};

/// Peers: see [`crate::PeerMut`] and [`crate::PeerView`].
impl Endpoint {
    /// Offers a topic to a peer, in this session and in later ones.
    pub fn offer(
        &mut self,
        now: Instant,
        peer: PeerId,
        config: ChannelConfig,
    ) -> Result<ChannelId, OfferError> {
        self.peer_mut(peer).offer(now, config)
    }

    /// Changes the offer of a channel.
    pub fn change_offer(
        &mut self,
        now: Instant,
        peer: PeerId,
        channel: ChannelId,
        config: ChannelConfig,
    ) -> Result<(), OfferError> {
        self.peer_mut(peer).change_offer(now, channel, config)
    }

    /// Closes a channel to a peer and drops its queued messages. Returns its last counters.
    pub fn withdraw(&mut self, now: Instant, peer: PeerId, channel: ChannelId) -> Option<OutStats> {
        self.peer_mut(peer).withdraw(now, channel)
    }

    /// Subscribes to a channel that a peer offered, or ends the subscription.
    pub fn want(&mut self, now: Instant, peer: PeerId, channel: ChannelId, wanted: bool) {
        self.peer_mut(peer).want(now, channel, wanted);
    }

    /// Refuses a channel that a peer offered.
    pub fn refuse(&mut self, now: Instant, peer: PeerId, channel: ChannelId, reason: String) {
        self.peer_mut(peer).refuse(now, channel, reason);
    }

    /// Queues a message on a channel to which the peer is subscribed.
    pub fn send(
        &mut self,
        now: Instant,
        peer: PeerId,
        channel: ChannelId,
        message: Message,
    ) -> Result<(), SendError> {
        self.peer_mut(peer).send(now, channel, message)
    }

    /// Emits the offer of a channel again, as if it had just arrived.
    pub fn repeat_offer(&mut self, now: Instant, peer: PeerId, channel: ChannelId) {
        self.peer_mut(peer).repeat_offer(now, channel);
    }

    /// Renames a peer, which then has to use the new name itself.
    pub fn rename_peer(&mut self, peer: PeerId, name: &str) {
        self.peer_mut(peer).rename(name);
    }

    /// Sets the order of preference of a peer's links; links that are not listed come last.
    pub fn order_links(&mut self, peer: PeerId, order: &[LinkId]) {
        self.peer_mut(peer).order_links(order);
    }

    /// Sets the rights of a peer.
    pub fn set_rights(&mut self, peer: PeerId, rights: Rights) {
        self.peer_mut(peer).set_rights(rights);
    }

    /// Counters of relayed packets to a neighbour, of others and of this node.
    pub fn relayed(&self, peer: PeerId) -> OutStats {
        self.peer(peer).relayed()
    }

    /// Counters of relayed packets of others to a neighbour.
    pub fn forwarded(&self, peer: PeerId) -> Forwarded {
        self.peer(peer).forwarded()
    }

    /// A channel to a peer: its configuration, whether the peer is subscribed, its counters.
    pub fn channel_out(
        &self,
        peer: PeerId,
        channel: ChannelId,
    ) -> Option<(&ChannelConfig, bool, &OutStats)> {
        self.peer(peer).channel_out(channel)
    }

    /// Source and payload of the messages to a peer on a channel that are queued, or sent with unknown
    /// outcome.
    pub fn pending(
        &self,
        peer: PeerId,
        channel: ChannelId,
    ) -> impl Iterator<Item = (u32, &bytes::Bytes)> {
        self.peer(peer).pending(channel)
    }

    /// A channel from a peer: its topic, whether this node is subscribed, its counters.
    pub fn channel_in(
        &self,
        peer: PeerId,
        channel: ChannelId,
    ) -> Option<(&OfferedTopic, bool, &InStats)> {
        self.peer(peer).channel_in(channel)
    }

    /// Channels from a peer.
    pub fn channels_in(&self, peer: PeerId) -> impl Iterator<Item = ChannelId> + '_ {
        self.peer(peer).channels_in()
    }
}

/// Links: see [`crate::LinkMut`] and [`crate::LinkView`].
impl Endpoint {
    /// Changes the path of a link.
    pub fn set_link_path(
        &mut self,
        now: Instant,
        id: LinkId,
        radio: RadioId,
        config: LinkConfig,
    ) -> Result<(), SetupError> {
        self.link_mut(id).set_path(now, radio, config)
    }

    /// Handles a possible change of our own address on a link.
    pub fn announce_move(&mut self, now: Instant, id: LinkId) {
        self.link_mut(id).announce_move(now);
    }

    /// Changes the radio by which a link reaches an address that it learned from the peer.
    pub fn set_link_route(
        &mut self,
        id: LinkId,
        radio: RadioId,
        datagram_bytes: usize,
        header_bytes: usize,
    ) -> Result<(), SetupError> {
        self.link_mut(id).set_route(radio, datagram_bytes, header_bytes)
    }

    /// Sets the number of IP bytes after which a link is spent.
    pub fn set_allowance(&mut self, id: LinkId, bytes: Option<u64>) {
        self.link_mut(id).set_allowance(bytes);
    }

    /// Sets when to seek a direct path to the peer of `link`.
    pub fn set_direct_path(&mut self, now: Instant, link: LinkId, when: Option<DirectPath>) {
        self.link_mut(link).set_direct_path(now, when);
    }

    /// Sets the local address from which packets of a link leave.
    pub fn set_own_address(&mut self, link: LinkId, own: SocketAddr) {
        self.link_mut(link).set_own_address(own);
    }

    /// Tries to reach the peer of `link` at an address.
    pub fn try_address(&mut self, now: Instant, link: LinkId, radio: RadioId, remote: SocketAddr) {
        self.link_mut(link).try_address(now, radio, remote);
    }

    /// Gives up a direct path, until another is found.
    pub fn forget_direct_path(&mut self, now: Instant, id: LinkId) {
        self.link_mut(id).forget_direct_path(now);
    }

    /// Removes a link. The session continues on other links, which repair outstanding packets.
    pub fn remove_link(&mut self, now: Instant, id: LinkId) {
        self.link_mut(id).remove(now);
    }

    /// Reports the IP bytes of `link` and `class` that are in the kernel.
    pub fn handle_in_flight(&mut self, now: Instant, link: LinkId, class: Class, bytes: usize) {
        self.link_mut(link).handle_in_flight(now, class, bytes);
    }

    /// The kernel refused a datagram on `link`, because its interface sends none of this size.
    pub fn handle_refused(&mut self, now: Instant, link: LinkId, datagram: &[u8]) {
        self.link_mut(link).handle_refused(now, datagram);
    }

    /// Returns the rate at which a link's own controller paces its packets; see
    /// [`LinkView::rate_bps`](crate::LinkView::rate_bps).
    pub fn pacing_rate(&self, id: LinkId) -> Option<u64> {
        self.router.net.peers[id].controller.as_ref()?.rate_bps()
    }

    /// Whether the packets of a link leave at once now, after an idle time, instead of at its pacing rate.
    pub fn is_in_burst(&self, id: LinkId) -> bool {
        self.router.net.peers[id].controller.as_ref().is_some_and(|it| it.is_in_burst())
    }

    /// Returns the local address at which packets arrive from the address to which a link leads, if they
    /// have shown it.
    pub fn local_address(&self, id: LinkId) -> Option<IpAddr> {
        let link = &self.router.net.peers[id];
        link.source.address(link.remote)
    }

    /// Whether a direct path that is found belongs to this link.
    pub fn is_direct_path(&self, id: LinkId) -> bool {
        self.link(id).is_direct_path()
    }

    /// Whether packets of a direct path must not leave by this radio.
    pub fn shuns(&self, id: LinkId, radio: RadioId) -> bool {
        self.link(id).shuns(radio)
    }
}

/// Additions and removals: see [`crate::PeerMut`] and [`crate::TeamMut`].
impl Endpoint {
    /// Adds a link to a peer, and seeks the peer there if its address is known.
    pub fn add_link(
        &mut self,
        now: Instant,
        peer: PeerId,
        radio: RadioId,
        config: LinkConfig,
    ) -> Result<LinkId, SetupError> {
        self.peer_mut(peer).add_link(now, radio, config)
    }

    /// Adds a link to a peer through another peer.
    pub fn add_relayed_link(
        &mut self,
        now: Instant,
        peer: PeerId,
        via: PeerId,
    ) -> Result<LinkId, SetupError> {
        self.peer_mut(peer).add_relayed_link(now, via)
    }

    /// Removes a peer.
    pub fn remove_peer(&mut self, now: Instant, peer: PeerId) -> RemovedPeer {
        self.peer_mut(peer).remove(now)
    }

    /// Changes the limits of a team. What is queued beyond a smaller limit stays.
    pub fn set_team_limits(&mut self, now: Instant, id: TeamId, limits: TeamLimits) {
        self.team_mut(id).set_limits(now, limits);
    }

    /// Removes a team. Its members have to be removed before.
    pub fn remove_team(&mut self, id: TeamId) {
        self.team_mut(id).remove();
    }

    /// Adds a member of a team, whose packets to other members are forwarded.
    pub fn add_member(
        &mut self,
        team: TeamId,
        name: &str,
        key: PublicKey,
    ) -> Result<PeerId, SetupError> {
        self.team_mut(team).add_member(name, key)
    }
}
