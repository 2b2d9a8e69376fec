// SPDX-License-Identifier: Apache-2.0
//! Drops of the teams of a relay.

use super::Page;
use std::fmt;
use tautline::status::TeamReport;

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
