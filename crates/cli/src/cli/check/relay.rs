// SPDX-License-Identifier: Apache-2.0
//! The file of a relay, explained.

use super::{describe_audit, describe_key};
use crate::cli::{output, words};
use serde_json::{Value as Json, json};
use std::fmt::Write;
use tautline::config::{Config, TeamConfig};

/// Explains the file of a relay.
pub fn in_words(config: &Config, teams: &[TeamConfig]) -> String {
    let mut text = String::new();
    let mut fact = |name: &str, value: String| {
        let _ = writeln!(text, "{name:9} {value}");
    };
    fact("relay", format!("{}, listens on UDP {}", config.name, config.listen));
    fact("key", describe_key(config));
    fact("control", config.control.display().to_string());
    let metrics = config.metrics.map(|address| format!("http://{address}/metrics"));
    fact("metrics", metrics.unwrap_or_else(|| "none".into()));
    fact("audit", describe_audit(&config.audit));
    let rows = teams.iter().map(|team| {
        let members = config.peers.iter().filter(|it| it.team.as_ref() == Some(&team.name));
        let rate = team.max_rate_bps.map(|bps| words::bit_rate(bps as f64));
        [
            team.name.clone(),
            members.count().to_string(),
            rate.unwrap_or_else(|| "no limit".into()),
            words::bytes(team.queue_bytes as f64),
        ]
    });
    let table = output::table(["TEAM", "MEMBERS", "MAX RATE", "QUEUE"], rows);
    let _ = write!(text, "\nTeams, whose members reach each other and nobody else\n{table}");
    let rows = config.peers.iter().map(|member| {
        let mtu = member.mtu.map_or_else(|| "any".into(), |mtu| mtu.to_string());
        [member.name.clone(), member.key.to_string(), member.max_priority.to_string(), mtu]
    });
    let table = output::table(["MEMBER", "KEY", "MAX PRIORITY", "MTU"], rows);
    let _ = write!(text, "\nMembers\n{table}");
    text
}

/// Returns a team as JSON, without its members: they are listed among the peers.
pub fn as_json(team: &TeamConfig) -> Json {
    json!({
        "name": team.name,
        "max_rate_bps": team.max_rate_bps,
        "queue_bytes": team.queue_bytes,
    })
}
