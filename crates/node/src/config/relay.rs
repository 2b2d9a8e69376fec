// SPDX-License-Identifier: Apache-2.0
//! The file of a relay (`tautline relay`): teams, and the public keys of their members.
//!
//! It becomes a [`Config`] without ROS and topics, in which each member is a peer `TEAM/MEMBER`
//! that has a team. All other values are the defaults of the robot's file.

pub mod table;

use super::kind::Value;
use super::problem::{Problem, Warning, nearest};
use super::surroundings::Surroundings;
use super::validate::{self, Named, Section};
use super::yaml::{self, Node, Yaml, quoted};
use super::{Config, PeerConfig, Security, Show, assemble, cross};
use crate::treatment::peer_names::NameMap;
use std::collections::HashMap;
use std::path::PathBuf;
use tautline_proto::wire::packet::MAX_NAME;
use tautline_proto::{PublicKey, limits};

/// Maximum number of teams of a relay.
pub const MAX_TEAMS: usize = 256;
/// Maximum number of members of all teams.
pub const MAX_MEMBERS: usize = 1024;
/// Bytes of messages to one member that are queued, or sent with unknown outcome.
const MEMBER_QUEUE_BYTES: usize = 16 << 20;
/// Bytes of incomplete messages from one member. A relayed packet has at most 16 KiB.
pub const MEMBER_REASSEMBLY_BYTES: usize = 1 << 20;
/// Bytes of a message of a member to the relay itself, which has no topics.
const MAX_MESSAGE: usize = limits::RELAYED_PACKET_BYTES * 4;

/// One team of a relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TeamConfig {
    /// Name in the relay's file.
    pub name: String,
    /// Most bits per second that are forwarded to all members together; `None` without a limit.
    pub max_rate_bps: Option<u64>,
    /// Most bytes of its packets that are queued.
    pub queue_bytes: u64,
}

/// Returns the name of a member's peer.
pub fn member_name(team: &str, member: &str) -> String {
    format!("{team}/{member}")
}

/// Whether a file is meant as that of a relay.
pub(super) fn is_relay(root: &Node) -> bool {
    matches!(&root.yaml, Yaml::Map(keys) if keys.iter().any(|(key, _)| key.name == "teams"))
}

/// The problem of a relay's file where a robot's is expected.
pub(super) fn not_of_robot(root: &Node) -> Problem {
    Problem {
        at: root.at,
        key: "teams".into(),
        found: "the file of a relay".into(),
        allowed: "a robot's file; `tautline relay FILE` runs that of a relay".into(),
    }
}

/// The problem of a file without teams where a relay's is expected.
pub(super) fn without_teams(root: &Node) -> Problem {
    let names: Vec<&str> = match &root.yaml {
        Yaml::Map(keys) => keys.iter().map(|(key, _)| &*key.name).collect(),
        _ => Vec::new(),
    };
    let of_robot = names.iter().any(|name| ["peers", "topics", "ros1", "ros2"].contains(name));
    let slip = names.iter().find(|name| nearest(["teams"], name).is_some());
    let found = match slip {
        _ if of_robot => "the file of a robot".into(),
        Some(slip) => format!("{} instead of 'teams'", quoted(slip)),
        None => "no 'teams'".into(),
    };
    let allowed = "a relay's file, which has 'teams' (`tautline init --relay` writes one); \
                   `tautline run FILE` runs a robot's";
    Problem { at: root.at, key: String::new(), found, allowed: allowed.into() }
}

/// Checks a relay's file and converts it.
pub(super) fn check(
    root: &Node,
    surroundings: &Surroundings,
    problems: &mut Vec<Problem>,
) -> (Option<Config>, Vec<Warning>, Section) {
    let file = validate::section(table::FILE, root, problems);
    let mut found = cross::Findings::default();
    counts(&mut found, &file);
    names(&mut found, &file);
    keys(&mut found, &file);
    teams_without_traffic(&mut found, &file);
    problems.append(&mut found.problems);
    let config = config(&file, surroundings, problems);
    (config, found.warnings, file)
}

/// All members, each with its team.
fn members(file: &Section) -> impl Iterator<Item = (&Named, &Named)> {
    let teams = file.named("teams").iter();
    teams.flat_map(|team| team.section.named("members").iter().map(move |member| (team, member)))
}

fn key_of(team: &Named, member: &Named) -> String {
    format!("teams.{}.members.{}", team.text, member.text)
}

fn counts(found: &mut cross::Findings, file: &Section) {
    for (what, count, most) in [
        ("teams", file.named("teams").len(), MAX_TEAMS),
        ("members of all teams", members(file).count(), MAX_MEMBERS),
    ] {
        if count > most {
            let entries = format!("{count} {what}");
            found.wrong(file.place("teams"), "teams", entries, format!("at most {most}"));
        }
    }
}

/// The protocol limits the name of a peer.
fn names(found: &mut cross::Findings, file: &Section) {
    for (team, member) in members(file) {
        let bytes = member_name(&team.text, &member.text).len();
        if bytes > MAX_NAME {
            let has = format!("{bytes} bytes of TEAM/MEMBER");
            let key = key_of(team, member);
            found.wrong(member.at, key, has, format!("at most {MAX_NAME} bytes"));
        }
    }
}

/// A key identifies one member of one team.
fn keys(found: &mut cross::Findings, file: &Section) {
    let mut owners: HashMap<PublicKey, String> = HashMap::new();
    for (team, member) in members(file) {
        let Some((at, Value::Key(key))) = member.section.single("key") else { continue };
        let own_name = member_name(&team.text, &member.text);
        if let Some(other) = owners.insert(*key, own_name) {
            let (key, has) = (key_of(team, member), format!("the key of {}", quoted(&other)));
            found.wrong(at, format!("{key}.key"), has, "a key that no other member has");
        }
    }
}

fn teams_without_traffic(found: &mut cross::Findings, file: &Section) {
    if file.named("teams").is_empty() {
        found.odd(file.place("teams"), "teams", "no team: nothing is forwarded");
    }
    for team in file.named("teams") {
        let count = team.section.named("members").len();
        if count < 2 {
            let key = format!("teams.{}.members", team.text);
            let text = format!("{count} of the two members without whom nothing is forwarded");
            found.odd(team.at, key, text);
        }
    }
}

/// Returns the problem of a member with this node's own key, once the key is known.
pub(super) fn own_key_of_members(file: &Section, own: &PublicKey) -> Vec<Problem> {
    let has_own = |(_, member): &(&Named, &Named)| {
        member.section.get::<PublicKey>("key").is_some_and(|key| key == *own)
    };
    let problem = |(team, member): (&Named, &Named)| Problem {
        at: member.section.place("key"),
        key: format!("{}.key", key_of(team, member)),
        found: "the relay's own key".into(),
        allowed: format!(
            "the key of '{}', which `tautline keygen --show FILE` prints there",
            member.text
        ),
    };
    members(file).filter(has_own).map(problem).collect()
}

fn config(file: &Section, from: &Surroundings, problems: &mut Vec<Problem>) -> Option<Config> {
    let name: String = file.get("name")?;
    let mut config = defaults(&name, from, problems)?;
    config.listen = file.get("listen")?;
    config.control =
        file.text("control").map_or_else(|| from.relay_control_socket(&name), PathBuf::from);
    config.metrics = file.get("metrics");
    config.audit = assemble::audit(file, from, &name)?;
    if let Some(path) = file.text("key") {
        config.security = Security::Keys(from.folder.join(path));
    }
    config.limits.max_message = MAX_MESSAGE;
    config.limits.queue_bytes = MEMBER_QUEUE_BYTES;
    config.limits.reassembly_bytes = MEMBER_REASSEMBLY_BYTES;
    let teams = file.named("teams");
    config.teams = Some(teams.iter().map(team).collect::<Option<_>>()?);
    let all = members(file).map(|(team, it)| member(team, it));
    config.peers = all.collect::<Option<_>>()?;
    Some(config)
}

/// The configuration of a node without ROS, peers and topics. Marks of priorities are for the radio of the
/// one team that shares it; here they would let a team overtake another in the kernel.
fn defaults(name: &str, from: &Surroundings, problems: &mut Vec<Problem>) -> Option<Config> {
    let text = format!("name: \"{name}\"\nros1: false\ndiagnostics: false\ndscp: false\n");
    let root = yaml::read(&text, problems).ok()?;
    let file = validate::section(super::table::FILE, &root, problems);
    assemble::config(&file, from, problems)
}

fn team(named: &Named) -> Option<TeamConfig> {
    Some(TeamConfig {
        name: named.text.clone(),
        max_rate_bps: named.section.get("max_rate"),
        queue_bytes: named.section.get("queue_bytes")?,
    })
}

fn member(team: &Named, named: &Named) -> Option<PeerConfig> {
    Some(PeerConfig {
        name: member_name(&team.text, &named.text),
        key: named.section.get("key")?,
        team: Some(team.text.clone()),
        links: Vec::new(),
        mtu: named.section.number("mtu"),
        via: Vec::new(),
        direct: None,
        relay: true,
        names: NameMap::default(),
        call: Vec::new(),
        offer: Vec::new(),
        // No topic of a member is accepted.
        max_rate_bps: 1000,
        max_priority: named.section.number("max_priority")?,
        move_stamps: false,
        show: Show::default(),
        set_parameters: Vec::new(),
    })
}
