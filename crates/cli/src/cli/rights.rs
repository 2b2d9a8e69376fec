// SPDX-License-Identifier: Apache-2.0
//! `tautline check FILE --as PEER`: the rights of a peer on this robot.

use super::{Failure, output, words};
use serde::Serialize;
use serde_json::json;
use tautline::config::{Config, PeerConfig};
use tautline::treatment::peer_names::Accept;
use tautline_gateway::action_names::action_of;
use tautline_gateway::observations::OBSERVATIONS;
use tautline_gateway::pattern::Pattern;

/// Text that stands for all of [`OBSERVATIONS`].
const ALL_OBSERVATIONS: &str = "observations";

#[derive(Debug, Serialize)]
struct Row {
    /// `publish here`, `serve here`, `read` or `call`.
    may: &'static str,
    /// Name or pattern on the robot that owns it.
    name: String,
    /// Name or pattern on the other robot; `None`: the other robot's file determines it.
    #[serde(rename = "as")]
    local: Option<String>,
    /// Type names; empty means any type.
    types: Vec<String>,
}

pub fn show(config: &Config, peer: &str, as_json: bool) -> Result<(), Failure> {
    let Some(peer) = config.peers.iter().find(|it| it.name == peer) else {
        let known: Vec<&str> = config.peers.iter().map(|it| it.name.as_str()).collect();
        return Err(Failure::new(match known.join(", ") {
            none if none.is_empty() => "the file has no peers".into(),
            known => format!("no peer '{peer}' in the file; its peers are: {known}"),
        }));
    };
    let rows = rows(config, peer);
    if as_json {
        return output::print_json(&json!({
            "node": config.name,
            "peer": peer.name,
            "rights": rows,
            "max_rate_bps": peer.max_rate_bps,
            "max_priority": peer.max_priority,
            "relay": peer.relay,
            "show": peer.show.words(),
            "set_parameters": peer.set_parameters.iter().map(Pattern::as_str).collect::<Vec<_>>(),
        }));
    }
    output::print(&in_words(config, peer, &rows))
}

fn in_words(config: &Config, peer: &PeerConfig, rows: &[Row]) -> String {
    let (here, name) = (&config.name, &peer.name);
    let observations = observations();
    let types = |row: &Row| match &row.types[..] {
        [] => "any".into(),
        all if all == observations => ALL_OBSERVATIONS.into(),
        some => some.join(" "),
    };
    let local = |row: &Row| row.local.clone().unwrap_or_default();
    let cells = |row: &Row| [row.may.into(), row.name.clone(), local(row), types(row)];
    let table = output::table(["MAY", "NAME", "HERE", "TYPE"], rows.iter().map(cells));
    let or_nothing = |all: Vec<&str>| match all.is_empty() {
        true => "nothing".to_owned(),
        false => all.join(", "),
    };
    let show = or_nothing(peer.show.words());
    let set = or_nothing(peer.set_parameters.iter().map(Pattern::as_str).collect());
    let relay = if peer.relay { "are forwarded" } else { "are not forwarded" };
    let observations = match rows.iter().any(|row| row.types == observations) {
        true => format!("\n{ALL_OBSERVATIONS}: {}\n", observations.join(" ")),
        false => String::new(),
    };
    format!(
        "Rights of '{name}' at '{here}'\n\n{table}{observations}\nshow: {show}; set_parameters: {set}\nmax_rate {}: topics, calls and responses \
         of '{name}' after decompression\nmax_priority {}, relay {}: its packets for others {relay}\n",
        words::bit_rate(peer.max_rate_bps as f64),
        peer.max_priority,
        peer.relay,
    )
}

/// Returns the names of the types that are accepted under a prefix.
fn observations() -> Vec<String> {
    OBSERVATIONS.iter().map(|(name, ..)| (*name).to_owned()).collect()
}

fn rows(config: &Config, peer: &PeerConfig) -> Vec<Row> {
    let mut rows = accepted_rows(peer);
    let topics = config.topics.iter().map(|rule| (&rule.pattern, &rule.treatment.to));
    rows.extend(offered_rows("read", topics, peer, &peer.offer));
    if !peer.call.is_empty() {
        let services = config.services.iter().map(|rule| (&rule.pattern, &rule.treatment.to));
        for row in offered_rows("call", services, peer, &peer.offer) {
            let own = Pattern::new(&row.name).ok();
            let both = own.iter().flat_map(|own| overlaps(own, &peer.call));
            rows.extend(both.map(|name| own_row("call", name)));
        }
    }
    rows.dedup_by(|one, other| (one.may, &one.name) == (other.may, &other.name));
    rows
}

/// Returns the row of a topic or service of this robot: both names are the same.
fn own_row(may: &'static str, name: String) -> Row {
    Row { may, local: Some(name.clone()), name, types: Vec::new() }
}

/// Returns the peer's topics and services that are accepted here.
fn accepted_rows(peer: &PeerConfig) -> Vec<Row> {
    let names = &peer.names;
    let accepted = names.accept.iter().map(|entry: &Accept| Row {
        may: "publish or serve here",
        name: entry.pattern.as_str().into(),
        local: Some(names.local_name(entry.pattern.as_str())),
        types: entry.types.clone(),
    });
    let mut rows: Vec<Row> = accepted.collect();
    if !names.prefix.is_empty() {
        let all = format!("{}/**", names.prefix);
        let observations = observations();
        for (may, types) in [("publish here", observations), ("serve here", Vec::new())] {
            rows.push(Row { may, name: "/**".into(), local: Some(all.clone()), types });
        }
    }
    rows
}

/// Returns the topics or services in the rules of the file that this robot advertises to the peer.
fn offered_rows<'a>(
    may: &'static str,
    rules: impl Iterator<Item = (&'a Pattern, &'a Option<Vec<String>>)>,
    peer: &PeerConfig,
    offer: &[Pattern],
) -> Vec<Row> {
    let for_peer = |to: &Option<Vec<String>>| to.as_ref().is_none_or(|to| to.contains(&peer.name));
    let names = rules.filter(|(_, to)| for_peer(to)).flat_map(|(pattern, _)| match offer {
        [] => vec![pattern_or_action(pattern)],
        some => overlaps(pattern, some),
    });
    names.map(|name| own_row(may, name)).collect()
}

/// Returns the part of `pattern` that any of `others` covers, as names or patterns.
fn overlaps(pattern: &Pattern, others: &[Pattern]) -> Vec<String> {
    let action = action_of(pattern.as_str()).and_then(|action| Pattern::new(action).ok());
    let common = |other: &Pattern| {
        let whole = action.as_ref().is_some_and(|action| other.covers(action));
        if whole || other.covers(pattern) {
            Some(pattern_or_action(pattern))
        } else if pattern.covers(other) {
            Some(pattern_or_action(other))
        } else if pattern.is_name() || other.is_name() {
            None
        } else {
            Some(format!("{} and {}", pattern.as_str(), other.as_str()))
        }
    };
    let mut found: Vec<String> = others.iter().filter_map(common).collect();
    found.dedup();
    found
}

/// Returns the name of the action to which a topic or service belongs, or else the pattern.
fn pattern_or_action(pattern: &Pattern) -> String {
    action_of(pattern.as_str()).unwrap_or(pattern.as_str()).to_owned()
}
