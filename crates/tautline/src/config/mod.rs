// SPDX-License-Identifier: Apache-2.0
//! The robot's file, validated: its types hold only valid values.
//!
//! YAML text becomes a tree with positions (`yaml`), and the tree a struct with a typed entry for each
//! key (`table`, `read`). The struct is checked as a whole (`cross`) and converted to [`Config`]
//! (`assemble`). One run reports all problems.

mod assemble;
mod budget;
pub mod channel;
mod cross;
mod entries;
pub mod kind;
mod launch;
mod model;
mod problem;
mod read;
pub mod relay;
pub mod setting;
pub mod starter;
mod surroundings;
pub mod table;
pub mod units;
pub mod value;
pub mod yaml;

pub use budget::Budget;
pub use channel::Channel;
pub use launch::Launch;
pub use model::{
    AuditConfig, Beacons, Config, DEFAULT_IN_FLIGHT, DEFAULT_PORT, Entries, Fixed, Group,
    LinkConfig, MAX_DOMAIN, MAX_MTU, MAX_PEERS, MAX_TOPIC_RULES, Member, PeerConfig, RadioConfig,
    Ros1Config, Ros2Config, Security, Show, TeamConfig, TopicExpectation,
};
pub use problem::{ConfigError, MAX_PROBLEMS, Position, Problem, Warning, nearest_name};
pub use relay::{MAX_MEMBERS, MAX_TEAMS};
pub use surroundings::{
    SYSTEM_CONTROL_FOLDER, SYSTEM_LOGS_FOLDER, SYSTEM_STATE_FOLDER, Surroundings,
};
pub use table::{Limits, Realtime, WatchdogConfig};
pub use yaml::{MAX_FILE_BYTES, MAX_NESTING};

use read::{Entry, Named};
use relay::table::RelayFile;
use std::io::Read;
use std::path::Path;
use table::RobotFile;
use tautline_proto::PublicKey;

/// A valid file.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    /// Values, with all defaults.
    pub config: Config,
    /// Values that are valid but probably not meant, in the file's order.
    pub warnings: Vec<Warning>,
    /// SHA-256 of the text, in hexadecimal digits.
    pub sha256: String,
    /// The positions at which the file gives the channels of radios, by interface.
    pub places_of_channels: Vec<(String, Position)>,
}

impl Checked {
    /// Adds a warning at its place.
    pub fn warn(&mut self, warning: Warning) {
        self.warnings.push(warning);
        self.warnings.sort_by_key(|it| (it.at.line, it.at.column));
    }
}

/// Reads and checks `file` in the surroundings of this process.
pub fn load(file: &Path) -> Result<Checked, ConfigError> {
    load_launched(file, &Launch::default())
}

/// Reads and checks `file`, for a process that was launched with these names.
pub fn load_launched(file: &Path, launch: &Launch) -> Result<Checked, ConfigError> {
    load_as(file, launch, None)
}

/// Reads and checks `file`, which must be of the given kind, if any. The process was launched with
/// these names.
pub fn load_as(
    file: &Path,
    launch: &Launch,
    kind: Option<FileKind>,
) -> Result<Checked, ConfigError> {
    let text = read(file)?;
    let invalid = |problems| ConfigError::Invalid { file: file.into(), problems };
    let (checked, owners) =
        check(&text, &Surroundings::current(file).launched(launch), kind).map_err(invalid)?;
    match own_key_problems(&checked.config, owners) {
        problems if problems.is_empty() => Ok(checked),
        problems => Err(invalid(problems)),
    }
}

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// The file of a robot, for `tautline run`.
    Robot,
    /// The file of a relay, for `tautline relay`. It has the key `teams`.
    Relay,
}

/// A peer or member whose public key is in the file.
struct KeyOwner {
    at: Position,
    /// Path of the key.
    path: String,
    name: String,
    key: PublicKey,
}

impl KeyOwner {
    fn new<N, S>(owner: &Named<N, S>, key: &Entry<PublicKey>) -> Option<Self> {
        let (path, name) = (owner.path_of(key), owner.text.clone());
        Some(Self { at: key.at, path, name, key: key.get()? })
    }
}

/// Returns a problem for each peer that has this node's own key. Errors of the key file are
/// reported elsewhere.
fn own_key_problems(config: &Config, owners: Vec<KeyOwner>) -> Vec<Problem> {
    let Security::Keys(path) = &config.security else { return Vec::new() };
    let Ok(own) = crate::keys::load_to_show(path).map(|key| key.public()) else {
        return Vec::new();
    };
    let node = if config.teams.is_some() { "the relay" } else { "this node" };
    let problem = |owner: KeyOwner| Problem {
        at: owner.at,
        key: owner.path,
        found: format!("{node}'s own key"),
        allowed: format!(
            "the key of '{}', which `tautline keygen --show FILE` prints there",
            owner.name
        ),
    };
    owners.into_iter().filter(|owner| owner.key == own).map(problem).collect()
}

/// Reads the text of `file`, which must be UTF-8 of at most [`MAX_FILE_BYTES`].
pub fn read(file: &Path) -> Result<String, ConfigError> {
    let unreadable = |cause| ConfigError::Unreadable { file: file.into(), cause };
    let open = std::fs::File::open(file).map_err(unreadable)?;
    let mut bytes = Vec::new();
    // One byte over the limit suffices to refuse the file without reading all of it.
    open.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    utf8_text(bytes).map_err(|problems| ConfigError::Invalid { file: file.into(), problems })
}

fn utf8_text(bytes: Vec<u8>) -> Result<String, Vec<Problem>> {
    if bytes.len() > MAX_FILE_BYTES {
        return Err(vec![yaml::too_large()]);
    }
    String::from_utf8(bytes)
        .map_err(|e| vec![invalid_utf8(e.as_bytes(), e.utf8_error().valid_up_to())])
}

fn invalid_utf8(bytes: &[u8], valid: usize) -> Problem {
    let before = String::from_utf8_lossy(&bytes[..valid]);
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|&c| c != '\n').count() + 1;
    Problem {
        at: Position { line, column },
        key: String::new(),
        found: "bytes that are not UTF-8".into(),
        allowed: "UTF-8 text".into(),
    }
}

/// Checks the text of a file. The error lists every problem, at least one, in the file's order.
pub fn parse(text: &str, surroundings: &Surroundings) -> Result<Checked, Vec<Problem>> {
    check(text, surroundings, None).map(|(checked, _)| checked)
}

/// The results of a check: the configuration, if there is no problem, and further findings.
struct Findings {
    config: Option<Config>,
    warnings: Vec<Warning>,
    /// Keys of other nodes.
    owners: Vec<KeyOwner>,
    places_of_channels: Vec<(String, Position)>,
}

fn check(
    text: &str,
    surroundings: &Surroundings,
    kind: Option<FileKind>,
) -> Result<(Checked, Vec<KeyOwner>), Vec<Problem>> {
    let mut problems = Vec::new();
    let root = yaml::read(text, &mut problems).map_err(|problem| vec![problem])?;
    let is_relay = relay::is_relay(&root);
    if kind == Some(FileKind::Relay) && !is_relay {
        problems.push(relay::no_teams_problem(&root));
        return Err(problems);
    }
    let Findings { config, mut warnings, owners, places_of_channels } = match kind {
        Some(FileKind::Robot) if is_relay => return Err(vec![relay::relay_file_problem(&root)]),
        _ if is_relay => relay(&root, surroundings, &mut problems),
        _ => robot(&root, surroundings, &mut problems),
    };
    problems.sort_by_key(|problem| (problem.at.line, problem.at.column));
    warnings.sort_by_key(|warning| (warning.at.line, warning.at.column));
    match config {
        Some(config) if problems.is_empty() => {
            Ok((Checked { config, warnings, sha256: sha256(text), places_of_channels }, owners))
        }
        _ => Err(problems),
    }
}

fn relay(root: &yaml::Node, surroundings: &Surroundings, problems: &mut Vec<Problem>) -> Findings {
    let file: RelayFile = read::file(root, problems);
    let cross::Findings { problems: more, warnings } = relay::findings(&file);
    problems.extend(more);
    let config = relay::config(&file, surroundings, problems);
    let members = file.members();
    let owners = members.filter_map(|(_, member)| KeyOwner::new(member, &member.keys.key));
    Findings { config, warnings, owners: owners.collect(), places_of_channels: Vec::new() }
}

fn robot(root: &yaml::Node, surroundings: &Surroundings, problems: &mut Vec<Problem>) -> Findings {
    let file: RobotFile = read::file(root, problems);
    let cross::Findings { problems: more, warnings } = cross::check(&file, surroundings);
    problems.extend(more);
    let config = assemble::config(&file, surroundings, problems);
    let peers = file.peers.entries().iter();
    let owners = peers.filter_map(|peer| KeyOwner::new(peer, &peer.keys.key)).collect();
    let radios = file.radios.entries().iter().filter(|radio| radio.keys.channel.is_given);
    let channels = radios.map(|radio| (radio.text.clone(), radio.keys.channel.at));
    Findings { config, warnings, owners, places_of_channels: channels.collect() }
}

fn sha256(text: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
