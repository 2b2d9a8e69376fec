// SPDX-License-Identifier: Apache-2.0
//! Peers and links during operation: addition and removal.

use crate::address::Place;
use crate::config::{LinkConfig, MAX_LINKS_PER_PEER, MIN_DATAGRAM, RadioConfig, Rate};
use crate::crypto::keys::PublicKey;
use crate::endpoint::network::{Network, Transmit};
use crate::endpoint::peer::Peer;
use crate::endpoint::peer::packet::ReportKind;
use crate::endpoint::router::Router;
use crate::endpoint::timer::Timer;
use crate::error::SetupError;
use crate::ids::{ChannelId, LinkId, PeerId, RadioId, TeamId};
use crate::path::radio::Radio;
use crate::path::relay_window::WINDOW_BYTES;
use crate::stats::OutStats;
use crate::time::Instant;
use crate::wire::packet::MAX_NAME;

/// The remains of a removed peer.
#[derive(Debug)]
pub struct RemovedPeer {
    /// The goodbyes, one for each link that was up. Send them before closing the peer's sockets.
    pub goodbyes: Vec<Transmit>,
    /// The last counters of the channels to the peer. No message is queued or outstanding any more.
    pub channels: Vec<(ChannelId, OutStats)>,
}

pub(crate) fn check_name(name: &str) -> Result<(), SetupError> {
    let fits = (1..=MAX_NAME).contains(&name.len());
    if fits { Ok(()) } else { Err(SetupError::Name(name.into())) }
}

pub(crate) fn check_datagram(found: usize) -> Result<(), SetupError> {
    if found < MIN_DATAGRAM { Err(SetupError::Datagram { found }) } else { Ok(()) }
}

/// Addition.
impl Router {
    /// Adds a peer without links, as a member of a team of a relay or without a team.
    pub(crate) fn add_peer(
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
        if key == cx.public || peers.find_by_key(&key).is_some() {
            return Err(SetupError::KeyTaken(name.into()));
        }
        let short_name = key.short_name();
        if short_name == cx.short_name || peers.find_by_short_name(team, short_name).is_some() {
            return Err(SetupError::ShortNameTaken(name.into()));
        }
        let epoch = cx.draw_token();
        let mut peer = Peer::new(name, (key, cx.public), epoch, &cx.config);
        peer.team = team;
        let (id, is_reused) = peers.add(peer);
        if is_reused {
            self.beacons.renew(&self.net, id);
        }
        Ok(id)
    }

    /// Adds a link to a peer, and seeks the peer by that link if its address is known.
    pub(crate) fn add_link(
        &mut self,
        now: Instant,
        peer: PeerId,
        radio: RadioId,
        config: LinkConfig,
    ) -> Result<LinkId, SetupError> {
        check_datagram(config.datagram_bytes)?;
        let owner = &mut self.net.peers[peer];
        if owner.removed {
            return Err(SetupError::PeerRemoved);
        }
        if owner.links.len() == MAX_LINKS_PER_PEER {
            return Err(SetupError::TooManyLinks(owner.name.clone()));
        }
        let id = match owner.links.reopen(radio, &config) {
            Some(id) => id,
            None => {
                // This shows which links of removed peers still have packets queued at a relay.
                self.relay.process_backlog_changes(&mut self.net, now);
                self.net.peers.add_link(peer, radio, config)
            }
        };
        self.net.set_controller(id);
        self.net.cx.timers.set(Timer::Reconnect(id), Some(now));
        Ok(id)
    }

    /// Adds a link to a peer through another peer.
    pub(crate) fn add_relayed_link(
        &mut self,
        now: Instant,
        peer: PeerId,
        via: PeerId,
    ) -> Result<LinkId, SetupError> {
        if self.net.peers[peer].removed {
            return Err(SetupError::PeerRemoved);
        }
        // Packets of this link are not marked. The packets to the relay that carry them are marked
        // instead.
        let (rate, marking) = (Rate::BACK_PRESSURE, None);
        let default = RadioConfig::default();
        let config = RadioConfig { rate, in_flight_bytes: WINDOW_BYTES, marking, ..default };
        let radio = self.take_vacant_radio(config);
        self.net.radios[radio].make_relayed(WINDOW_BYTES);
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
        match self.net.vacant_radios.pop_first() {
            Some(id) => {
                self.net.radios[id] = Radio::new(config);
                id
            }
            None => self.net.radios.push(Radio::new(config)),
        }
    }
}

/// Removal.
impl Router {
    /// Removes a peer: says goodbye, forgets its keys, and drops the messages for it
    /// ([`PeerGone`](crate::stats::DropReason::PeerGone)). Links of other peers through it are
    /// removed as well. From now on its key is unknown.
    pub(crate) fn remove_peer(&mut self, now: Instant, peer: PeerId) -> RemovedPeer {
        self.net.cx.clock_now = now;
        let goodbyes = self.say_goodbye(now, peer);
        let through = self.net.peers.links().filter(|link| link.via == Some(peer));
        for id in through.map(|link| link.id).collect::<Vec<_>>() {
            self.remove_link(now, id);
        }
        for id in self.net.peers[peer].links.ids().to_vec() {
            self.remove_link(now, id);
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

    /// Removes a link. The session continues on other links, and the outstanding packets are
    /// repaired there.
    pub(crate) fn remove_link(&mut self, now: Instant, id: LinkId) {
        if self.net.peers[id].removed {
            return;
        }
        self.with_link(now, id, |peer, cx| peer.mark_down(cx, now, id));
        self.with_link(now, id, |peer, cx| peer.mark_all_lost(cx, now, id));
        let radio = self.with_link(now, id, |peer, cx| {
            peer.forget_link(cx, id);
            peer.links.remove(id)
        });
        self.net.vacant_radios.extend(radio.flatten());
    }
}
