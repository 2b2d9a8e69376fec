// SPDX-License-Identifier: Apache-2.0
//! Removal of peers and links during operation.
//!
//! Ids are indices. A removed peer, link or radio leaves its place to the next one that is added.
//! Nothing may refer to the old one by then: its timers, events, session numbers and fair-queuing
//! state are forgotten with it. The place of a link is not reused while a packet of the link is
//! still queued at a relay.

use crate::config::{LinkConfig, RadioConfig};
use crate::crypto::keys::PublicKey;
use crate::delivery::outbox::RelayOrigin;
use crate::endpoint::peer::Peer;
use crate::endpoint::transmit::ReportKind;
use crate::endpoint::{Endpoint, Timer, Transmit, check_name};
use crate::error::SetupError;
use crate::ids::{ChannelId, LinkId, PeerId, RadioId};
use crate::path::link::Link;
use crate::path::radio::Radio;
use crate::stats::OutStats;
use crate::time::{Duration, Instant};
use std::collections::BTreeSet;

/// The remains of a removed peer.
#[derive(Debug)]
pub struct RemovedPeer {
    /// Its goodbyes, one for each link that was up. Send them before closing its sockets.
    pub goodbyes: Vec<Transmit>,
    /// The last counters of the channels to it. No message is queued or outstanding any more.
    pub channels: Vec<(ChannelId, OutStats)>,
}

/// The places of removed peers, links and radios.
#[derive(Debug, Default)]
pub(crate) struct Vacant {
    peers: BTreeSet<PeerId>,
    links: BTreeSet<LinkId>,
    /// Radios of links through relays.
    radios: BTreeSet<RadioId>,
}

/// The link that a peer names by a number of ours.
pub(crate) enum NumberedLink {
    Open(LinkId),
    Removed,
    Unknown,
}

/// Removal.
impl Endpoint {
    /// Removes a peer: says goodbye, forgets its keys, and drops the messages for it
    /// ([`PeerGone`](crate::stats::DropReason::PeerGone)). Links of other peers through it are
    /// removed as well. From now on its key is unknown.
    pub fn remove_peer(&mut self, now: Instant, peer: PeerId) -> RemovedPeer {
        self.clock_now = now;
        let goodbyes = self.say_goodbye(now, peer);
        let through = self.links().filter(|id| self.links[*id].via == Some(peer));
        for id in through.collect::<Vec<_>>() {
            self.remove_link(now, id);
        }
        for id in self.peers[peer].links.clone() {
            self.remove_link(now, id);
        }
        let closed = self.peers[peer].outbox.close();
        // Neighbours whose packets were queued for this peer get a report.
        self.process_backlog_changes(now);
        self.forget_routes(now, peer);
        self.keep_team_counters(peer);
        self.forget_peer(peer);
        let channels = closed.into_iter().map(|(it, stats)| (ChannelId(it), stats)).collect();
        RemovedPeer { goodbyes, channels }
    }

    fn say_goodbye(&mut self, now: Instant, peer: PeerId) -> Vec<Transmit> {
        let links = self.peers[peer].links.clone();
        let up = links.into_iter().filter(|id| self.links[*id].up);
        let mut goodbyes = Vec::new();
        for id in up.collect::<Vec<_>>() {
            self.peers[peer].goodbye_now = true;
            goodbyes.extend(self.report_packet(now, id, ReportKind::Reports));
        }
        goodbyes
    }

    /// Forgets all state of a peer without links, and leaves its place empty.
    fn forget_peer(&mut self, peer: PeerId) {
        for timer in
            [Timer::Held(peer), Timer::Rekey(peer), Timer::Expiry(peer), Timer::Rendezvous(peer)]
        {
            self.timers.set(timer, None);
        }
        self.timers.set(Timer::Partials(peer), None);
        self.timers.set(Timer::Order(peer), None);
        (0..=u8::MAX).for_each(|number| self.timers.set(Timer::Ack(peer, number), None));
        self.radios.iter_mut().for_each(|radio| radio.forget(peer));
        self.by_session.retain(|_, owner| *owner != peer);
        let state = &self.peers[peer];
        self.by_key.remove(&state.session.key);
        self.by_short_name.remove(&(state.team, state.short_name));
        let links: BTreeSet<LinkId> = state.retired.iter().copied().collect();
        self.events.forget(peer);
        let next_channel = state.next_channel;
        let mut empty = Peer::new("", (self.public, self.public), 0, &self.config);
        // Channel numbers continue, so that counters by peer and channel stay distinct.
        (empty.removed, empty.next_channel) = (true, next_channel);
        self.peers[peer] = empty;
        self.vacant.links.extend(links);
        self.vacant.peers.insert(peer);
    }

    /// Removes a link. The session continues on other links, which repair outstanding packets.
    pub fn remove_link(&mut self, now: Instant, id: LinkId) {
        if self.links[id].removed {
            return;
        }
        self.mark_down(now, id);
        self.mark_all_lost(now, id);
        let timers = [Timer::Reconnect, Timer::Path, Timer::Ping, Timer::Silent, Timer::Loss];
        timers.into_iter().for_each(|timer| self.timers.set(timer(id), None));
        self.timers.set(Timer::Stall(id), None);
        self.timers.set(Timer::Probe(id), None);
        let link = &mut self.links[id];
        let (peer, radio, relayed) = (link.peer, link.radio, link.via.is_some());
        let config = LinkConfig { remote: None, ..link.config.clone() };
        *link = Link::successor(link, radio, config);
        link.removed = true;
        let state = &mut self.peers[peer];
        state.links.retain(|other| *other != id);
        state.rendezvous.forget(id);
        state.retired.push(id);
        for received in state.received_packets.values_mut().filter(|it| it.via == Some(id)) {
            received.via = None;
        }
        if relayed {
            self.vacant.radios.insert(radio);
        }
    }
}

/// Addition in the place of a removed peer or link.
impl Endpoint {
    /// Adds a peer.
    pub(crate) fn place_peer(&mut self, mut peer: Peer) -> PeerId {
        match self.vacant.peers.pop_first() {
            Some(id) => {
                peer.next_channel = self.peers[id].next_channel;
                self.peers[id] = peer;
                self.renew_shared_secret(id);
                id
            }
            None => self.peers.push(peer),
        }
    }

    /// Adds a link after the other links of its peer.
    pub(crate) fn place_link(
        &mut self,
        now: Instant,
        peer: PeerId,
        radio: RadioId,
        config: LinkConfig,
    ) -> LinkId {
        let owner = &mut self.peers[peer];
        if let Some(id) = owner.retired.pop() {
            owner.links.push(id);
            let link = &mut self.links[id];
            *link = Link::successor(link, radio, config);
            return id;
        }
        let link = Link::new(peer, radio, owner.links.len() as u8, config);
        let id = match self.take_vacant_link(now) {
            Some(id) => {
                self.links[id] = link;
                id
            }
            None => self.links.push(link),
        };
        self.peers[peer].links.push(id);
        id
    }

    fn take_vacant_link(&mut self, now: Instant) -> Option<LinkId> {
        self.process_backlog_changes(now);
        let has_packets =
            |id: &LinkId| self.peers.iter().any(|it| it.outbox.held(RelayOrigin::Own(*id)) > 0);
        let id = self.vacant.links.iter().find(|id| !has_packets(id)).copied()?;
        self.vacant.links.remove(&id);
        Some(id)
    }

    /// A radio for a link through a relay.
    pub(crate) fn take_vacant_radio(&mut self, config: RadioConfig) -> RadioId {
        match self.vacant.radios.pop_first() {
            Some(id) => {
                self.radios[id] = Radio::new(config);
                id
            }
            None => self.add_radio(config),
        }
    }
}

/// Changes.
impl Endpoint {
    /// Checks a complete list of peers, with the errors of [`Self::add_peer`].
    pub fn check_peers(&self, peers: &[(&str, PublicKey)]) -> Result<(), SetupError> {
        let peers: Vec<_> = peers.iter().map(|(name, key)| (None, *name, *key)).collect();
        self.check_members(&peers)
    }

    /// The same for peers with the names of their teams.
    pub fn check_members(
        &self,
        peers: &[(Option<&str>, &str, PublicKey)],
    ) -> Result<(), SetupError> {
        let mut names = BTreeSet::from([self.config.name.as_str()]);
        let mut keys = BTreeSet::from([self.public]);
        let mut short_names = BTreeSet::new();
        for &(team, name, key) in peers {
            check_name(name)?;
            if !names.insert(name) {
                return Err(SetupError::NameTaken(name.into()));
            }
            if !keys.insert(key) {
                return Err(SetupError::KeyTaken(name.into()));
            }
            let is_new = short_names.insert((team, key.short_name()));
            if !is_new || key.short_name() == self.short_name {
                return Err(SetupError::ShortNameTaken(name.into()));
            }
        }
        Ok(())
    }

    /// Renames a peer, which then has to use the new name itself. Call [`Self::check_peers`] first:
    /// several peers may exchange names.
    pub fn rename_peer(&mut self, peer: PeerId, name: &str) {
        name.clone_into(&mut self.peers[peer].name);
    }

    /// Sets the order of preference of a peer's links; links that are not listed come last.
    pub fn order_links(&mut self, peer: PeerId, order: &[LinkId]) {
        let place = |id: &LinkId| order.iter().position(|it| it == id).unwrap_or(order.len());
        self.peers[peer].links.sort_by_key(place);
    }

    /// Changes limits: bytes queued for one peer, the time that they may take to drain, and the
    /// repair budget in percent.
    pub fn set_limits(&mut self, queue_bytes: usize, queue_time: Duration, repair_percent: u32) {
        self.config.queue_bytes = queue_bytes;
        self.config.queue_time = queue_time;
        self.config.repair_percent = repair_percent;
        for peer in self.peers.iter_mut() {
            peer.outbox.set_repair_percent(repair_percent);
        }
    }

    /// Emits the offer of a channel again, as if it had just arrived.
    pub fn repeat_offer(&mut self, now: Instant, peer: PeerId, channel: ChannelId) {
        let known = self.channel_in(peer, channel).map(|(topic, ..)| topic.clone());
        if let Some(topic) = known {
            self.resolve_definition(now, peer, channel.0, topic);
        }
    }

    /// The link that a peer names by our link number.
    pub(crate) fn link_by_number(&self, peer: PeerId, number: u8) -> NumberedLink {
        let state = &self.peers[peer];
        let has_it = |id: &&LinkId| self.links[**id].number == number;
        match state.links.iter().find(has_it) {
            Some(id) => NumberedLink::Open(*id),
            None if state.retired.iter().any(|id| has_it(&id)) => NumberedLink::Removed,
            None => NumberedLink::Unknown,
        }
    }
}
