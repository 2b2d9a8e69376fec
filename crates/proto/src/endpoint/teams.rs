// SPDX-License-Identifier: Apache-2.0
//! Teams of a relay: groups of peers whose packets it forwards among themselves and to nobody else.
//!
//! Each team has a rate and a queue of its own, and the teams of a radio are served by fair queuing
//! before priorities count. A team can therefore neither reach nor delay another, whatever its members
//! send. A peer without a team and the peers without a team count as one more team without limits.

use crate::arena::id;
use crate::bucket::ByteBucket;
use crate::crypto::keys::PublicKey;
use crate::endpoint::{Endpoint, Timer};
use crate::error::SetupError;
use crate::ids::PeerId;
use crate::limits;
use crate::stats::{Drops, RefusedPacket, RefusedPackets};
use crate::time::Instant;

/// A team of this relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TeamId(pub u32);

id!(TeamId);

/// The limits of a team.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TeamLimits {
    /// Most bits per second of IP packets with forwarded packets, to all members together; `None`
    /// without a limit.
    pub rate_bps: Option<u64>,
    /// Most bytes of packets that are queued, or sent and not acknowledged, with
    /// [`limits::RELAYED_OVERHEAD_BYTES`] for each.
    pub queue_bytes: u64,
}

impl Default for TeamLimits {
    fn default() -> Self {
        Self { rate_bps: None, queue_bytes: limits::TEAM_QUEUE_BYTES }
    }
}

/// Counters of a team.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TeamStats {
    /// Forwarded packets that members have acknowledged.
    pub packets: u64,
    /// Bytes of IP packets that carried forwarded packets, repairs included.
    pub sent_bytes: u64,
    /// Forwarded packets that were dropped from the queue, by reason.
    pub dropped: Drops,
    /// Packets of members that were not accepted to be forwarded, by reason.
    pub refused: RefusedPackets,
    /// Bytes that count as `queue_bytes` now, with the overhead of each packet.
    pub queued_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Team {
    limits: TeamLimits,
    rate: ByteBucket,
    /// Counters without those of present members.
    stats: TeamStats,
    /// The team was removed; the next one may take its place.
    removed: bool,
}

impl Team {
    fn new(limits: TeamLimits) -> Self {
        let rate = ByteBucket::new(limits.rate_bps);
        Self { limits, rate, stats: TeamStats::default(), removed: false }
    }
}

/// Setup and views.
impl Endpoint {
    /// Adds a team without members.
    pub fn add_team(&mut self, limits: TeamLimits) -> TeamId {
        match self.teams.position(|team| team.removed) {
            Some(id) => {
                self.teams[id] = Team::new(limits);
                id
            }
            None => self.teams.push(Team::new(limits)),
        }
    }

    /// Changes the limits of a team. What is queued beyond a smaller limit stays.
    pub fn set_team_limits(&mut self, now: Instant, id: TeamId, limits: TeamLimits) {
        let team = &mut self.teams[id];
        if team.limits.rate_bps != limits.rate_bps {
            team.rate = ByteBucket::new(limits.rate_bps);
            self.timers.set(Timer::Team(id), Some(now));
        }
        self.teams[id].limits = limits;
    }

    /// Removes a team. Its members have to be removed before.
    pub fn remove_team(&mut self, id: TeamId) {
        debug_assert!(self.peers.iter().all(|peer| peer.removed || peer.team != Some(id)));
        self.teams[id].removed = true;
        self.timers.set(Timer::Team(id), None);
        self.radios.iter_mut().for_each(|radio| radio.forget_team(id));
    }

    /// Adds a member of a team, whose packets to other members are forwarded. Its key identifies it; it
    /// may have another name for itself.
    pub fn add_member(
        &mut self,
        team: TeamId,
        name: &str,
        key: PublicKey,
    ) -> Result<PeerId, SetupError> {
        self.add_peer_to(Some(team), name, key)
    }

    /// Counters of a team.
    pub fn team_stats(&self, id: TeamId) -> TeamStats {
        let mut stats = self.teams[id].stats;
        for peer in self.peers.iter().filter(|peer| !peer.removed && peer.team == Some(id)) {
            let forwarded = peer.outbox.forwarded();
            stats.packets += forwarded.packets;
            stats.dropped.add_all(&forwarded.dropped);
        }
        TeamStats { queued_bytes: self.team_queue_bytes(id), ..stats }
    }

    fn team_queue_bytes(&self, id: TeamId) -> u64 {
        let members = self.peers.iter().filter(|peer| peer.team == Some(id));
        members.map(|peer| peer.outbox.taken_bytes()).fold(0, u64::saturating_add)
    }
}

/// Forwarding.
impl Endpoint {
    /// Whether the queue of a peer's team has room for a packet of this many bytes.
    pub(crate) fn team_has_room(&self, peer: PeerId, bytes: usize) -> bool {
        let Some(id) = self.peers[peer].team else { return true };
        let wanted = bytes as u64 + limits::RELAYED_OVERHEAD_BYTES;
        self.team_queue_bytes(id).saturating_add(wanted) <= self.teams[id].limits.queue_bytes
    }

    /// Counts a packet of a member that is not forwarded.
    pub(crate) fn count_team_refusal(&mut self, hop: PeerId, reason: RefusedPacket) {
        if let Some(id) = self.peers[hop].team {
            self.teams[id].stats.refused.add(reason);
        }
    }

    /// Whether the rate of its team holds back the next packet to a peer. Control messages, which precede
    /// relayed packets, are not held back.
    pub(crate) fn team_holds_back(&mut self, now: Instant, peer: PeerId, is_control: bool) -> bool {
        let Some(id) = self.peers[peer].team.filter(|_| !is_control) else { return false };
        let Some(at) = self.teams[id].rate.next(now) else { return false };
        self.timers.set(Timer::Team(id), Some(at));
        true
    }

    /// A packet with forwarded packets was sent to a peer.
    pub(crate) fn on_forwarded(&mut self, now: Instant, peer: PeerId, ip_bytes: usize) {
        if let Some(id) = self.peers[peer].team {
            let team = &mut self.teams[id];
            team.rate.charge(now, ip_bytes);
            team.stats.sent_bytes += ip_bytes as u64;
        }
    }

    /// Keeps the counters of a member that is removed.
    pub(crate) fn keep_team_counters(&mut self, peer: PeerId) {
        let state = &self.peers[peer];
        let Some(id) = state.team else { return };
        let forwarded = state.outbox.forwarded();
        let stats = &mut self.teams[id].stats;
        stats.packets += forwarded.packets;
        stats.dropped.add_all(&forwarded.dropped);
    }
}
