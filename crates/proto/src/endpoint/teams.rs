// SPDX-License-Identifier: Apache-2.0
//! Teams of a relay: groups of peers whose packets the relay forwards within the group and to
//! nobody else.
//!
//! Each team has a rate and a queue of its own, and the teams of a radio are served by fair queuing before
//! priorities count. A team can therefore neither reach nor delay another, whatever its members send. All
//! peers without a team count as one more team, which has no limits.

use crate::arena::Arena;
use crate::bucket::ByteBucket;
use crate::endpoint::context::Context;
use crate::endpoint::peer::Peer;
use crate::endpoint::peers::Peers;
use crate::endpoint::timer::Timer;
use crate::ids::{PeerId, TeamId};
use crate::limits;
use crate::stats::{Drops, RefusedPacket, RefusedPackets};
use crate::time::Instant;

/// The limits of a team.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TeamLimits {
    /// Highest rate of IP packets that carry forwarded packets, to all members together, in bits
    /// per second; `None` without a limit.
    pub rate_bps: Option<u64>,
    /// Maximum bytes of packets that are queued, or sent and not acknowledged, including
    /// [`limits::RELAYED_OVERHEAD_BYTES`] for each packet.
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
    /// Bytes that now count against `queue_bytes`, with the overhead of each packet.
    pub queued_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Team {
    limits: TeamLimits,
    rate: ByteBucket,
    /// Counters of former members and of the team itself. The counters of present members are not included.
    stats: TeamStats,
    /// The team was removed. A new team may take its place.
    removed: bool,
}

impl Team {
    fn new(limits: TeamLimits) -> Self {
        let rate = ByteBucket::new(limits.rate_bps);
        Self { limits, rate, stats: TeamStats::default(), removed: false }
    }
}

/// All teams of this relay.
#[derive(Debug)]
pub(crate) struct Teams(Arena<TeamId, Team>);

/// Setup and views.
impl Teams {
    pub(crate) fn new() -> Self {
        Self(Arena::new())
    }

    /// Adds a team without members.
    pub(crate) fn add(&mut self, limits: TeamLimits) -> TeamId {
        match self.0.position(|team| team.removed) {
            Some(id) => {
                self.0[id] = Team::new(limits);
                id
            }
            None => self.0.push(Team::new(limits)),
        }
    }

    /// Changes the limits of a team. Packets queued beyond a smaller limit stay.
    pub(crate) fn set_limits(
        &mut self,
        cx: &mut Context,
        now: Instant,
        id: TeamId,
        limits: TeamLimits,
    ) {
        let team = &mut self.0[id];
        if team.limits.rate_bps != limits.rate_bps {
            team.rate = ByteBucket::new(limits.rate_bps);
            cx.timers.set(Timer::Team(id), Some(now));
        }
        team.limits = limits;
    }

    /// Removes a team without members.
    pub(crate) fn remove(&mut self, cx: &mut Context, id: TeamId) {
        self.0[id].removed = true;
        cx.timers.set(Timer::Team(id), None);
    }

    /// Counters of a team.
    pub(crate) fn stats(&self, peers: &Peers, id: TeamId) -> TeamStats {
        let mut stats = self.0[id].stats;
        for peer in peers.iter().filter(|peer| !peer.removed && peer.team == Some(id)) {
            let forwarded = peer.channels.outbox.forwarded;
            stats.packets += forwarded.packets;
            stats.dropped.add_all(&forwarded.dropped);
        }
        TeamStats { queued_bytes: queue_bytes(peers, id), ..stats }
    }

    /// Adds the counters of a member that is removed to those of the team.
    pub(crate) fn keep_counters(&mut self, member: &Peer) {
        let Some(id) = member.team else { return };
        let forwarded = member.channels.outbox.forwarded;
        let stats = &mut self.0[id].stats;
        stats.packets += forwarded.packets;
        stats.dropped.add_all(&forwarded.dropped);
    }
}

/// Forwarding.
impl Teams {
    /// Whether the queue of a peer's team has room for a packet of this many bytes.
    pub(crate) fn has_room(&self, peers: &Peers, peer: PeerId, bytes: usize) -> bool {
        let Some(id) = peers[peer].team else { return true };
        let wanted = bytes as u64 + limits::RELAYED_OVERHEAD_BYTES;
        queue_bytes(peers, id).saturating_add(wanted) <= self.0[id].limits.queue_bytes
    }

    /// Counts a packet of a member that is not forwarded.
    pub(crate) fn count_refusal(&mut self, team: Option<TeamId>, reason: RefusedPacket) {
        if let Some(id) = team {
            self.0[id].stats.refused.add(reason);
        }
    }

    /// Whether the rate of a team holds back the next packet to a member. Control messages are not held back.
    /// They precede relayed packets.
    pub(crate) fn holds_back(
        &mut self,
        cx: &mut Context,
        now: Instant,
        team: Option<TeamId>,
        is_control: bool,
    ) -> bool {
        let Some(id) = team.filter(|_| !is_control) else { return false };
        let Some(at) = self.0[id].rate.next_departure(now) else { return false };
        cx.timers.set(Timer::Team(id), Some(at));
        true
    }

    /// Records that a packet with forwarded packets was sent to a member.
    pub(crate) fn on_forwarded(&mut self, now: Instant, team: Option<TeamId>, ip_bytes: usize) {
        if let Some(id) = team {
            let team = &mut self.0[id];
            team.rate.charge(now, ip_bytes);
            team.stats.sent_bytes += ip_bytes as u64;
        }
    }
}

fn queue_bytes(peers: &Peers, id: TeamId) -> u64 {
    let members = peers.iter().filter(|peer| peer.team == Some(id));
    members
        .map(|peer| peer.channels.outbox.queues.memory_of_messages())
        .fold(0, u64::saturating_add)
}
