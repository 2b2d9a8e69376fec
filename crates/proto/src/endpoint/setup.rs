// SPDX-License-Identifier: Apache-2.0
//! Radios, peers and links: addition, changes and removal during operation.

use crate::address::Place;
use crate::config::{LinkConfig, MAX_LINKS_PER_PEER, MIN_DATAGRAM, RadioConfig, Rate};
use crate::crypto::keys::PublicKey;
use crate::endpoint::network::{Network, Transmit};
use crate::endpoint::peer::Peer;
use crate::endpoint::peer::packet::ReportKind;
use crate::endpoint::state::Endpoint;
use crate::endpoint::timer::Timer;
use crate::error::SetupError;
use crate::ids::{ChannelId, LinkId, PeerId, RadioId, TeamId};
use crate::path::radio::Radio;
use crate::path::relay_window::WINDOW;
use crate::stats::OutStats;
use crate::time::{Duration, Instant};
use crate::wire::packet::MAX_NAME;
use std::collections::BTreeSet;

/// The remains of a removed peer.
#[derive(Debug)]
pub struct RemovedPeer {
    /// Its goodbyes, one for each link that was up. Send them before closing its sockets.
    pub goodbyes: Vec<Transmit>,
    /// The last counters of the channels to it. No message is queued or outstanding any more.
    pub channels: Vec<(ChannelId, OutStats)>,
}

pub(crate) fn check_name(name: &str) -> Result<(), SetupError> {
    let fits = (1..=MAX_NAME).contains(&name.len());
    if fits { Ok(()) } else { Err(SetupError::Name(name.into())) }
}

pub(crate) fn check_datagram(found: usize) -> Result<(), SetupError> {
    if found < MIN_DATAGRAM { Err(SetupError::Datagram { found }) } else { Ok(()) }
}

/// The node.
impl Endpoint {
    /// Sets the time of day, in microseconds since 1970. Repeat this when the clock may have been set.
    pub fn set_wall(&mut self, now: Instant, wall_us: i64) {
        self.net.cx.set_wall(now, wall_us);
    }

    /// Changes limits: bytes queued for one peer, the time that they may take to drain, and the
    /// repair budget in percent.
    pub fn set_limits(&mut self, queue_bytes: usize, queue_time: Duration, repair_percent: u32) {
        let Network { cx, peers, .. } = &mut self.net;
        cx.config.queue_bytes = queue_bytes;
        cx.config.queue_time = queue_time;
        cx.config.repair_percent = repair_percent;
        for peer in peers.iter_mut() {
            peer.channels.outbox.set_repair_percent(repair_percent);
        }
    }

    /// Adds a radio.
    pub fn add_radio(&mut self, config: RadioConfig) -> RadioId {
        self.net.radios.push(Radio::new(config))
    }

    /// Changes the configuration of a radio.
    pub fn set_radio(&mut self, radio: RadioId, config: RadioConfig) {
        self.net.radios[radio].set_config(config);
        for id in self.links() {
            if self.net.peers[id].radio == radio {
                self.net.set_controller(id);
            }
        }
    }

    /// Sends a goodbye to all peers with the next packets.
    pub fn close(&mut self) {
        for peer in self.net.peers.iter_mut().filter(|peer| peer.up) {
            peer.goodbye_now = true;
        }
    }
}

/// Peers.
impl Endpoint {
    /// Adds a peer without links. Its key identifies it.
    pub fn add_peer(&mut self, name: &str, key: PublicKey) -> Result<PeerId, SetupError> {
        self.add_peer_to(None, name, key)
    }

    pub(crate) fn add_peer_to(
        &mut self,
        team: Option<TeamId>,
        name: &str,
        key: PublicKey,
    ) -> Result<PeerId, SetupError> {
        check_name(name)?;
        let Network { cx, peers, .. } = &mut self.net;
        if name == cx.config.name || peers.iter().any(|p| !p.removed && p.name == name) {
            return Err(SetupError::NameTaken(name.into()));
        }
        if key == cx.public || peers.with_key(&key).is_some() {
            return Err(SetupError::KeyTaken(name.into()));
        }
        let short_name = key.short_name();
        if short_name == cx.short_name || peers.with_short_name(team, short_name).is_some() {
            return Err(SetupError::ShortNameTaken(name.into()));
        }
        let epoch = cx.draw_token();
        let mut peer = Peer::new(name, (key, cx.public), epoch, &cx.config);
        peer.team = team;
        let (id, takes_place) = peers.add(peer);
        if takes_place {
            self.beacons.renew(&self.net, id);
        }
        Ok(id)
    }

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
        let mut names = BTreeSet::from([self.name()]);
        let mut keys = BTreeSet::from([self.key()]);
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
            if !is_new || key.short_name() == self.net.cx.short_name {
                return Err(SetupError::ShortNameTaken(name.into()));
            }
        }
        Ok(())
    }

    /// Removes a peer: says goodbye, forgets its keys, and drops the messages for it
    /// ([`PeerGone`](crate::stats::DropReason::PeerGone)). Links of other peers through it are
    /// removed as well. From now on its key is unknown.
    pub fn remove_peer(&mut self, now: Instant, peer: PeerId) -> RemovedPeer {
        self.net.cx.clock_now = now;
        let goodbyes = self.say_goodbye(now, peer);
        let through = self.links().filter(|id| self.net.peers[*id].via == Some(peer));
        for id in through.collect::<Vec<_>>() {
            self.remove_link_of(now, id);
        }
        for id in self.net.peers[peer].links.ids().to_vec() {
            self.remove_link_of(now, id);
        }
        let closed = self.net.peers[peer].channels.outbox.close();
        // Neighbours whose packets were queued for this peer get a report.
        self.relay.process_backlog_changes(&mut self.net, now);
        self.relay.forget_routes(&mut self.net, now, peer);
        self.teams.keep_counters(&self.net.peers[peer]);
        self.forget_peer(peer);
        let channels = closed.into_iter().map(|(it, stats)| (ChannelId(it), stats)).collect();
        RemovedPeer { goodbyes, channels }
    }

    fn say_goodbye(&mut self, now: Instant, peer: PeerId) -> Vec<Transmit> {
        let links = &self.net.peers[peer].links;
        let up: Vec<_> = links.iter().filter(|link| link.up).map(|link| link.id).collect();
        let mut goodbyes = Vec::new();
        for id in up {
            self.net.peers[peer].goodbye_now = true;
            let sent = self.net.report_packet(now, id, ReportKind::Reports);
            goodbyes.extend(sent.and_then(|sent| self.dispatch(now, sent)));
        }
        goodbyes
    }

    /// Forgets all state of a peer without links, and leaves its place empty.
    fn forget_peer(&mut self, peer: PeerId) {
        let Network { cx, peers, radios, .. } = &mut self.net;
        peers[peer].forget_timers(cx);
        radios.iter_mut().for_each(|radio| radio.forget(peer));
        cx.events.forget(peer);
        let empty = Peer::new("", (cx.public, cx.public), 0, &cx.config);
        peers.remove(peer, empty);
    }
}

/// Links.
impl Endpoint {
    /// Adds a link to a peer, and seeks the peer there if its address is known.
    pub fn add_link(
        &mut self,
        now: Instant,
        peer: PeerId,
        radio: RadioId,
        config: LinkConfig,
    ) -> Result<LinkId, SetupError> {
        check_datagram(config.datagram_bytes)?;
        let owner = &mut self.net.peers[peer];
        if owner.links.len() == MAX_LINKS_PER_PEER {
            return Err(SetupError::TooManyLinks(owner.name.clone()));
        }
        let id = match owner.links.reopen(radio, &config) {
            Some(id) => id,
            None => {
                // It shows which links of removed peers are still queued at a relay.
                self.relay.process_backlog_changes(&mut self.net, now);
                self.net.peers.add_link(peer, radio, config)
            }
        };
        self.net.set_controller(id);
        self.net.cx.timers.set(Timer::Reconnect(id), Some(now));
        Ok(id)
    }

    /// Adds a link to a peer through another peer.
    pub fn add_relayed_link(
        &mut self,
        now: Instant,
        peer: PeerId,
        via: PeerId,
    ) -> Result<LinkId, SetupError> {
        // The packets that carry its packets are marked instead.
        let (rate, marking) = (Rate::BackPressure, None);
        let default = RadioConfig::default();
        let config = RadioConfig { rate, in_flight_bytes: WINDOW, marking, ..default };
        let radio = self.take_vacant_radio(config);
        self.net.radios[radio].make_relayed(WINDOW);
        let config = LinkConfig {
            remote: None,
            datagram_bytes: MIN_DATAGRAM,
            header_bytes: 0,
            metered: false,
        };
        let id = self.add_link(now, peer, radio, config)?;
        let end = self.net.peers[peer].short_name;
        let link = &mut self.net.peers[id];
        link.via = Some(via);
        link.controller = None;
        link.sent_packets = link.sent_packets.successor(true);
        link.remote = Some(Place::Relay { hop: via, end });
        Ok(id)
    }

    /// A radio for a link through a relay.
    fn take_vacant_radio(&mut self, config: RadioConfig) -> RadioId {
        match self.vacant_radios.pop_first() {
            Some(id) => {
                self.net.radios[id] = Radio::new(config);
                id
            }
            None => self.add_radio(config),
        }
    }

    /// Removes a link. The session continues on other links, which repair outstanding packets.
    pub(crate) fn remove_link_of(&mut self, now: Instant, id: LinkId) {
        if self.net.peers[id].removed {
            return;
        }
        self.with_link(now, id, |peer, cx| peer.mark_down(cx, now, id));
        self.with_link(now, id, |peer, cx| peer.mark_all_lost(cx, now, id));
        let radio = self.with_link(now, id, |peer, cx| {
            peer.forget_link(cx, id);
            peer.links.remove(id)
        });
        self.vacant_radios.extend(radio);
    }
}
