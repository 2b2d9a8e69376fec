// SPDX-License-Identifier: Apache-2.0
//! The file of a relay (`tautline relay`): teams, and the public keys of their members.
//!
//! A relay's file becomes a [`Config`] without ROS and topics. Each member becomes a peer
//! `TEAM/MEMBER` that belongs to a team. All other values are the defaults of the robot's file.

pub mod table;

use super::cross::Findings;
use super::model::{Config, Entries, PeerConfig, Security, Show, TeamConfig};
use super::problem::{Problem, nearest_name};
use super::surroundings::Surroundings;
use super::yaml::{self, Node, Yaml, quoted_text};
use super::{assemble, read};
use crate::treatment::peer_names::NameMap;
use std::collections::HashMap;
use std::path::PathBuf;
use table::{Member, RelayFile, Team};
use tautline_proto::wire::packet::MAX_NAME;
use tautline_proto::{PublicKey, limits};

/// Maximum number of teams of a relay.
pub const MAX_TEAMS: usize = 256;
/// Maximum total number of members over all teams.
pub const MAX_MEMBERS: usize = 1024;
/// Maximum bytes of queued and unacknowledged messages to one member.
const MEMBER_QUEUE_BYTES: usize = 16 << 20;
/// Maximum bytes of incomplete messages from one member. A relayed packet has at most 16 KiB.
pub const MEMBER_REASSEMBLY_BYTES: usize = 1 << 20;
/// Maximum bytes of a message from a member to the relay itself, which has no topics.
const MAX_MESSAGE: usize = limits::RELAYED_PACKET_BYTES * 4;

/// Returns the name of the peer that represents a member.
pub fn member_name(team: &str, member: &str) -> String {
    format!("{team}/{member}")
}

/// Whether a file is meant as the file of a relay.
pub(super) fn is_relay(root: &Node) -> bool {
    matches!(&root.yaml, Yaml::Map(keys) if keys.iter().any(|(key, _)| key.name == "teams"))
}

/// Returns the problem that a relay's file was found where a robot's is expected.
pub(super) fn relay_file_problem(root: &Node) -> Problem {
    Problem {
        at: root.at,
        key: "teams".into(),
        found: "the file of a relay".into(),
        allowed: "a robot's file; `tautline relay FILE` runs that of a relay".into(),
    }
}

/// Returns the problem that a file without teams was found where a relay's is expected.
pub(super) fn no_teams_problem(root: &Node) -> Problem {
    let names: Vec<&str> = match &root.yaml {
        Yaml::Map(keys) => keys.iter().map(|(key, _)| &*key.name).collect(),
        _ => Vec::new(),
    };
    let of_robot = names.iter().any(|name| ["peers", "topics", "ros1", "ros2"].contains(name));
    let slip = names.iter().find(|name| nearest_name(["teams"], name).is_some());
    let found = match slip {
        _ if of_robot => "the file of a robot".into(),
        Some(slip) => format!("{} instead of 'teams'", quoted_text(slip)),
        None => "no 'teams'".into(),
    };
    let allowed = "a relay's file, which has 'teams' (`tautline init --relay` writes one); \
                   `tautline run FILE` runs a robot's";
    Problem { at: root.at, key: String::new(), found, allowed: allowed.into() }
}

/// Runs the checks that involve several keys of a relay's file.
pub(super) fn findings(file: &RelayFile) -> Findings {
    let mut found = Findings::default();
    check_counts(&mut found, file);
    check_names(&mut found, file);
    check_keys(&mut found, file);
    teams_without_traffic(&mut found, file);
    found
}

fn check_counts(found: &mut Findings, file: &RelayFile) {
    for (what, count, most) in [
        ("teams", file.teams.entries().len(), MAX_TEAMS),
        ("members of all teams", file.members().count(), MAX_MEMBERS),
    ] {
        if count > most {
            let entries = format!("{count} {what}");
            found.add_error(file.teams.at, file.teams.key, entries, format!("at most {most}"));
        }
    }
}

/// The protocol limits the length of a peer's name.
fn check_names(found: &mut Findings, file: &RelayFile) {
    for (team, member) in file.members() {
        let bytes = member_name(&team.text, &member.text).len();
        if bytes > MAX_NAME {
            let has = format!("{bytes} bytes of TEAM/MEMBER");
            found.add_error(member.at, &*member.path, has, format!("at most {MAX_NAME} bytes"));
        }
    }
}

/// Each key must identify one member of one team.
fn check_keys(found: &mut Findings, file: &RelayFile) {
    let mut owners: HashMap<PublicKey, String> = HashMap::new();
    for (team, member) in file.members() {
        let Some((at, key)) = member.keys.key.with_place() else { continue };
        let own_name = member_name(&team.text, &member.text);
        if let Some(other) = owners.insert(*key, own_name) {
            let has = format!("the key of {}", quoted_text(&other));
            let path = member.path_of(&member.keys.key);
            found.add_error(at, path, has, "a key that no other member has");
        }
    }
}

fn teams_without_traffic(found: &mut Findings, file: &RelayFile) {
    if file.teams.entries().is_empty() {
        found.warn(file.teams.at, file.teams.key, "no team: nothing is forwarded");
    }
    for team in file.teams.entries() {
        let members = &team.keys.members;
        let count = members.entries().len();
        if count < 2 {
            let text = format!("{count} of the two members without whom nothing is forwarded");
            found.warn(team.at, team.path_of(members), text);
        }
    }
}

/// Converts a relay's file.
pub(super) fn config(
    file: &RelayFile,
    from: &Surroundings,
    problems: &mut Vec<Problem>,
) -> Option<Config> {
    let name = file.name.get()?;
    let mut config = defaults(&name, from, problems)?;
    config.listen = file.listen.get()?;
    config.control =
        file.control.get().map_or_else(|| from.relay_control_socket(&name), PathBuf::from);
    config.metrics = file.metrics.get();
    config.audit = assemble::audit(&file.audit, from, &name)?;
    if let Some(path) = file.key.get() {
        config.security = Security::Keys(from.folder.join(path));
    }
    config.limits.max_message = MAX_MESSAGE;
    config.limits.queue_bytes = MEMBER_QUEUE_BYTES;
    config.limits.reassembly_bytes = MEMBER_REASSEMBLY_BYTES;
    config.teams = Some(file.teams.entries().iter().map(team).collect::<Option<_>>()?);
    let all = file.members().map(|(team, it)| member(team, it));
    config.peers = all.collect::<Option<_>>()?;
    config.entries = Entries::from_relay_file(file, &config);
    Some(config)
}

/// Returns the configuration of a node without ROS, peers and topics. It has no DSCP marks: they
/// set priorities among the members of a team that share a radio. In the kernel of the relay, they
/// would let one team overtake another.
fn defaults(name: &str, from: &Surroundings, problems: &mut Vec<Problem>) -> Option<Config> {
    let text = format!("name: \"{name}\"\nros1: false\ndiagnostics: false\ndscp: false\n");
    let root = yaml::read(&text, problems).ok()?;
    assemble::config(&read::file(&root, problems), from, problems)
}

fn team(team: &Team) -> Option<TeamConfig> {
    Some(TeamConfig {
        name: team.text.clone(),
        max_rate_bps: team.keys.max_rate.get(),
        queue_bytes: team.keys.queue_bytes.get()?,
    })
}

fn member(team: &Team, member: &Member) -> Option<PeerConfig> {
    Some(PeerConfig {
        name: member_name(&team.text, &member.text),
        key: member.keys.key.get()?,
        team: Some(team.text.clone()),
        links: Vec::new(),
        mtu: member.keys.mtu.get(),
        via: Vec::new(),
        direct: None,
        relay: true,
        names: NameMap::default(),
        call: Vec::new(),
        offer: Vec::new(),
        // No topic of a member is accepted.
        max_rate_bps: 1000,
        max_priority: member.keys.max_priority.get()?,
        move_stamps: false,
        show: Show::default(),
        set_parameters: Vec::new(),
    })
}
