// SPDX-License-Identifier: Apache-2.0
//! Teams of a relay according to the current file.

use super::common::Common;
use crate::config::{PeerConfig, TeamConfig};
use crate::report::drops;
use crate::status::TeamReport;
use std::collections::BTreeMap;
use tautline_proto::{Endpoint, PeerId, PublicKey, SetupError, TeamId, TeamLimits};

/// The teams, by name.
#[derive(Debug, Default)]
pub(super) struct Teams(BTreeMap<String, TeamId>);

/// Checks whether this node can have these peers, in their teams.
pub(super) fn check_members(endpoint: &Endpoint, peers: &[PeerConfig]) -> Result<(), SetupError> {
    let members: Vec<(Option<&str>, &str, PublicKey)> =
        peers.iter().map(|it| (it.team.as_deref(), &*it.name, it.key)).collect();
    endpoint.check_members(&members)
}

impl Teams {
    /// Adds the teams of the file that are missing, and sets the limits of all teams.
    pub(super) fn follow(&mut self, common: &mut Common) {
        let now = common.now();
        for team in common.config.teams.iter().flatten() {
            let limits = limits(team);
            match self.0.get(&team.name) {
                Some(id) => common.endpoint.team_mut(*id).set_limits(now, limits),
                None => {
                    let id = common.endpoint.add_team(limits);
                    self.0.insert(team.name.clone(), id);
                }
            }
        }
    }

    /// Removes the teams that are no longer in the file. By then they have no members.
    pub(super) fn drop_unnamed(&mut self, common: &mut Common) {
        let endpoint = &mut common.endpoint;
        let teams = common.config.teams.as_deref().unwrap_or_default();
        self.0.retain(|name, id| {
            let stays = teams.iter().any(|team| team.name == *name);
            if !stays {
                endpoint.team_mut(*id).remove();
            }
            stays
        });
    }

    /// Returns the peers that are no longer in the file, or are there in another team.
    pub(super) fn removed_peers(&self, endpoint: &Endpoint, peers: &[PeerConfig]) -> Vec<PeerId> {
        let is_same = |id: PeerId, it: &PeerConfig| {
            let view = endpoint.peer(id);
            it.key == view.key && view.team == self.of_peer(it)
        };
        let stays = |id: &PeerId| peers.iter().any(|it| is_same(*id, it));
        endpoint.peers().filter(|id| !stays(id)).collect()
    }

    /// Adds a peer, to its team if it has one.
    pub(super) fn add_peer(
        &self,
        endpoint: &mut Endpoint,
        peer: &PeerConfig,
    ) -> Result<PeerId, SetupError> {
        match self.of_peer(peer) {
            Some(team) => endpoint.team_mut(team).add_member(&peer.name, peer.key),
            None => endpoint.add_peer(&peer.name, peer.key),
        }
    }

    /// Returns the state of all teams, in the order of the file.
    pub(super) fn reports(&self, common: &Common) -> Vec<TeamReport> {
        let teams = common.config.teams.iter().flatten();
        teams
            .filter_map(|team| Some(report(&common.endpoint, team, *self.0.get(&team.name)?)))
            .collect()
    }

    fn of_peer(&self, peer: &PeerConfig) -> Option<TeamId> {
        self.0.get(peer.team.as_ref()?).copied()
    }
}

fn report(endpoint: &Endpoint, team: &TeamConfig, id: TeamId) -> TeamReport {
    let stats = endpoint.team_stats(id);
    let views = endpoint.peers().map(|peer| endpoint.peer(peer));
    let members: Vec<_> = views.filter(|view| view.team == Some(id)).collect();
    let mut dropped = drops(&stats.dropped);
    dropped.extend(stats.refused.iter().map(|(reason, count)| (reason.as_str().into(), count)));
    TeamReport {
        name: team.name.clone(),
        members: members.len() as u64,
        up: members.iter().filter(|view| view.up).count() as u64,
        max_bps: team.max_rate_bps,
        forwarded_packets: stats.packets,
        sent_bytes: stats.sent_bytes,
        queued_bytes: stats.queued_bytes,
        max_queued_bytes: team.queue_bytes,
        dropped,
    }
}

fn limits(team: &TeamConfig) -> TeamLimits {
    TeamLimits { rate_bps: team.max_rate_bps, queue_bytes: team.queue_bytes }
}
