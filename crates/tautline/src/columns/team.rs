// SPDX-License-Identifier: Apache-2.0
//! The columns of the teams of a relay.

use super::column::Width::Flexible;
use super::column::{Cell, Column, Columns, Tone, Value};
use crate::rates::TeamRates;
use crate::status::TeamReport;
use Value::{BitRate, Bytes, Count, Number, PartOfBytes, Text};

type Team = Column<TeamReport, TeamRates>;

/// The columns of the teams of a relay.
pub const TEAMS: Columns<TeamReport, TeamRates> = Columns(&[
    Team::new("Name", |team| Text(team.now.name.clone()))
        .in_status(10, "TEAM")
        .cell(10, Cell::left_aligned("TEAM", Flexible(3))),
    Team::new("Members that are up, of all members", |team| {
        Text(format!("{} of {}", team.now.up, team.now.members))
    })
    .in_status(20, "UP")
    .cell(20, Cell::right_aligned("UP", 11))
    .tone(|team| if team.now.up < team.now.members { Tone::Fault } else { Tone::Normal }),
    Team::new("Members of the team", |team| Count(team.now.members))
        .gauge(10, "tautline_team_members"),
    Team::new("Members of the team that are up", |team| Count(team.now.up))
        .gauge(20, "tautline_team_members_up"),
    Team::new("Its max_rate, in words if there is none", |team| {
        team.now.max_bps.map_or_else(|| Text("no limit".into()), |bps| BitRate(bps as f64))
    })
    .in_status(30, "MAX RATE"),
    Team::new("Its max_rate", |team| Value::bit_rate(team.now.max_bps))
        .cell(30, Cell::right_aligned("MAX RATE", 9)),
    Team::new("Packets of members that were forwarded and arrived", |team| {
        Count(team.now.forwarded_packets)
    })
    .in_status(40, "FORWARDED")
    .counter(30, "tautline_team_forwarded_packets"),
    Team::new("Forwarded packets per second", |team| team.change(|it| it.forwarded_pps, Number))
        .cell(50, Cell::right_aligned("PACKETS/s", 9)),
    Team::new("IP bytes of the packets that carried them", |team| Bytes(team.now.sent_bytes))
        .in_status(50, "SENT")
        .counter(40, "tautline_team_sent_bytes"),
    Team::new("IP bits sent per second", |team| team.change(|it| it.sent_bps, BitRate))
        .cell(40, Cell::right_aligned("SENDS", 9)),
    Team::new("Bytes of the team's packets that are queued, of the maximum", |team| {
        PartOfBytes(team.now.queued_bytes, team.now.max_queued_bytes)
    })
    .in_status(60, "QUEUED"),
    Team::new("Bytes of the team's packets that are queued", |team| Bytes(team.now.queued_bytes))
        .cell(60, Cell::right_aligned("QUEUED", 8))
        .gauge(50, "tautline_team_queued_bytes"),
    Team::new("Packets of members that were not forwarded, by reason", |team| {
        Value::Dropped(None, team.now.dropped.clone())
    })
    .in_status(70, "DROPPED")
    .cell(70, Cell::left_aligned("DROPPED", Flexible(4)))
    .tone(|team| match team.rates.is_some_and(|rates| rates.dropped_now > 0) {
        true => Tone::Notice,
        false => Tone::Normal,
    }),
]);
