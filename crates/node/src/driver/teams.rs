// SPDX-License-Identifier: Apache-2.0
//! Teams of a relay according to the current file.

use super::Driver;
use crate::config::{PeerConfig, TeamConfig};
use crate::report::drops;
use crate::status::TeamReport;
use tautline_proto::{PeerId, PublicKey, SetupError, TeamId, TeamLimits};

impl Driver {
    /// Checks whether this node can have these peers, with their teams.
    pub(super) fn check_members(&self, peers: &[PeerConfig]) -> Result<(), SetupError> {
        let all: Vec<(Option<&str>, &str, PublicKey)> =
            peers.iter().map(|it| (it.team.as_deref(), &*it.name, it.key)).collect();
        self.endpoint.check_members(&all)
    }

    /// Adds the teams of the file that are missing, and gives all of them their limits.
    pub(super) fn follow_teams(&mut self) {
        let now = self.now();
        for team in self.config.teams.iter().flatten() {
            let limits = limits(team);
            match self.teams.get(&team.name) {
                Some(id) => self.endpoint.team_mut(*id).set_limits(now, limits),
                None => {
                    let id = self.endpoint.add_team(limits);
                    self.teams.insert(team.name.clone(), id);
                }
            }
        }
    }

    /// Removes the teams that are no longer in the file. They have no members any more.
    pub(super) fn drop_teams(&mut self) {
        let endpoint = &mut self.endpoint;
        let teams = self.config.teams.as_deref().unwrap_or_default();
        self.teams.retain(|name, id| {
            let stays = teams.iter().any(|team| team.name == *name);
            if !stays {
                endpoint.team_mut(*id).remove();
            }
            stays
        });
    }

    /// Whether a peer is in the team that the file gives it.
    pub(super) fn is_in_team(&self, id: PeerId, peer: &PeerConfig) -> bool {
        self.endpoint.peer(id).team == self.team_of(peer)
    }

    /// Adds a peer, to its team if it has one.
    pub(super) fn add_peer(&mut self, peer: &PeerConfig) -> Result<PeerId, SetupError> {
        let team = self.team_of(peer);
        let endpoint = &mut self.endpoint;
        match team {
            Some(team) => endpoint.team_mut(team).add_member(&peer.name, peer.key),
            None => endpoint.add_peer(&peer.name, peer.key),
        }
    }

    /// Returns the state of all teams, in the order of the file.
    pub(super) fn team_reports(&self) -> Vec<TeamReport> {
        let teams = self.config.teams.iter().flatten();
        teams
            .filter_map(|team| Some(self.team_report(team, *self.teams.get(&team.name)?)))
            .collect()
    }

    fn team_report(&self, team: &TeamConfig, id: TeamId) -> TeamReport {
        let endpoint = &self.endpoint;
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

    fn team_of(&self, peer: &PeerConfig) -> Option<TeamId> {
        self.teams.get(peer.team.as_ref()?).copied()
    }
}

fn limits(team: &TeamConfig) -> TeamLimits {
    TeamLimits { rate_bps: team.max_rate_bps, queue_bytes: team.queue_bytes }
}
