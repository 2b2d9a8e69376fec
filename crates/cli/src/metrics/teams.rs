// SPDX-License-Identifier: Apache-2.0
//! Metrics of the teams of a relay.

use super::Value::{Counter, Level};
use super::{Metric, Page};
use std::fmt;
use tautline::status::TeamReport;

pub(super) const TEAMS: &[Metric<TeamReport>] = &[
    Metric("tautline_team_members", "Members of the team", Level(|t| t.members)),
    Metric("tautline_team_members_up", "Members of the team that are up", Level(|t| t.up)),
    Metric(
        "tautline_team_forwarded_packets",
        "Packets of members that were forwarded and arrived",
        Counter(|t| t.forwarded_packets),
    ),
    Metric(
        "tautline_team_sent_bytes",
        "IP bytes of the packets that carried them",
        Counter(|t| t.sent_bytes),
    ),
    Metric(
        "tautline_team_queued_bytes",
        "Bytes of the team's packets that are queued",
        Level(|t| t.queued_bytes),
    ),
];

impl Page<'_> {
    pub(super) fn team_drops(&mut self, teams: &[TeamReport]) -> Result<(), fmt::Error> {
        let drops = teams.iter().flat_map(|team| {
            let reasons = team.dropped.iter();
            reasons
                .map(|(reason, count)| (vec![("team", &*team.name), ("reason", &**reason)], *count))
        });
        let help = "Packets of members that were not forwarded, by reason";
        self.counters("tautline_team_dropped", help, drops)
    }
}
