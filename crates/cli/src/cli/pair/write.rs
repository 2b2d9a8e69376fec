// SPDX-License-Identifier: Apache-2.0
//! The change of the own file, and the files on the disk.

use super::local::LocalMachine;
use super::store::PreparedFiles;
use crate::cli::Failure;
use std::fmt::Write;
use std::path::PathBuf;
use tautline::config::{Config, PeerConfig};
use tautline::keys;
use tautline_cli::pairing::exchange::Role;
use tautline_cli::pairing::extend::{Additions, Extended, extend};
use tautline_cli::pairing::file::{FileInput, TopicLine};
use tautline_cli::pairing::plan::prefix;
use tautline_proto::wire;

/// Key of `base` in the file that `tautline init` writes. Nobody has the secret key.
const EXAMPLE_KEY: &str = "cHVibGljIGtleSBvZiBiYXNlLCBhbiBleGFtcGxlLi4=";
/// Mode of the file. It has no secrets, and the daemon's user reads it.
const FILE_MODE: u32 = 0o644;
const KEY_MODE: u32 = 0o600;

/// The change of this machine's file.
#[derive(Debug, Default)]
pub struct Change {
    /// The whole new text, or the lines to merge.
    pub text: String,
    pub is_new: bool,
    /// Whether nothing changes.
    pub is_same: bool,
    /// The lines that change, each behind `+` or `-`; of a new file, all lines.
    pub lines: Vec<String>,
    /// Whether the text is only lines for a person to merge.
    pub needs_merge: bool,
    /// The peer that would be replaced, as a sentence.
    pub replaces: Option<String>,
    /// Notes for a person.
    pub notes: Vec<String>,
}

/// Determines the change of this machine's file. With `replace`, the lines of a known peer are written again.
pub fn change(local: &LocalMachine, end: &FileInput, replace: bool) -> Result<Change, Failure> {
    let mut change = Change { notes: notes(end), ..Change::default() };
    let Some(old) = &local.old else {
        let text = end.new_file();
        return Ok(Change { lines: lines_of_new_file(&text), text, is_new: true, ..change });
    };
    let (name, key) = (&end.other.name, &end.other.key);
    if let Some(other) = peer_with_key(&old.config, key).filter(|it| it.name != *name) {
        return Err(Failure::new(format!(
            "{}: this key is already that of peers.{}. Give the other machine this name (--name {}), \
             or remove the peer from the file. Nothing was written",
            local.file.display(),
            other.name,
            other.name
        )));
    }
    if let Some(other) = peer_with_prefix(&old.config, end) {
        return Err(Failure::new(format!(
            "{}: the names of peers.{} are under {} already, where those of {name} would be. Give the \
             robot another name (--name there). Nothing was written",
            local.file.display(),
            other.name,
            other.names.prefix
        )));
    }
    let known = old.config.peers.iter().find(|it| it.name == *name);
    let has_key = known.is_some_and(|it| it.key.to_string() == *key);
    if let Some(known) = known.filter(|it| !has_key && it.key.to_string() != EXAMPLE_KEY) {
        let file = local.file.display();
        change.replaces = Some(format!("{file} has another key for peers.{name} ({})", known.key));
    }
    let topics = lines_of_missing_topics(&old.config, end.topic_lines(), name, &mut change.notes);
    let keeps_peer = has_key && !replace;
    if keeps_peer && topics.is_empty() {
        return Ok(Change { text: old.text.clone(), is_same: true, ..change });
    }
    if keeps_peer {
        change.notes.push(format!(
            "peers.{name} has this key already: its lines stay. --replace writes them again"
        ));
    }
    let lines = end.peer_lines();
    let peer_lines = (!keeps_peer).then_some(lines.as_slice());
    let additions = Additions { peer: name, peer_lines, topics: &topics };
    match extend(&old.text, &additions) {
        Ok(Extended { text, changes: lines }) => {
            Ok(Change { is_same: text == old.text, text, lines, ..change })
        }
        Err(error) => {
            let place = merge_file(local);
            change.notes.push(format!(
                "{} cannot be extended safely: {error}. Merge the lines of {} by hand",
                local.file.display(),
                place.display()
            ));
            let text = merge_text(name, &lines, &topics);
            Ok(Change { lines: lines_of_new_file(&text), text, needs_merge: true, ..change })
        }
    }
}

/// Returns the lines of a new file, each behind `+`.
fn lines_of_new_file(text: &str) -> Vec<String> {
    text.lines().map(|line| format!("+{line}")).collect()
}

/// Returns another peer whose prefix at the base is that of the robot, or is below or above it.
fn peer_with_prefix<'a>(config: &'a Config, end: &FileInput) -> Option<&'a PeerConfig> {
    let wanted = prefix(&end.other.name);
    let is_below = |name: &str, above: &str| {
        name.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let collides = |it: &&PeerConfig| {
        let taken = it.names.prefix.as_str();
        let is_same = is_below(taken, &wanted) || is_below(&wanted, taken);
        it.name != end.other.name && !taken.is_empty() && is_same
    };
    config.peers.iter().find(collides).filter(|_| end.role == Role::Base)
}

fn peer_with_key<'a>(config: &'a Config, key: &str) -> Option<&'a PeerConfig> {
    config.peers.iter().find(|it| it.key.to_string() == key)
}

fn notes(end: &FileInput) -> Vec<String> {
    let mut notes = Vec::new();
    let other = end.other;
    if other.wire != wire::VERSION {
        notes.push(format!(
            "the two wire formats differ ({} here, {} at {}): the files are right, but no message \
             crosses until both machines have the same version of Tautline",
            wire::VERSION,
            other.wire,
            other.name
        ));
    } else if other.version != end.own.version {
        notes.push(format!(
            "the versions of Tautline differ ({} here, {} at {}), with the same wire format",
            end.own.version, other.version, other.name
        ));
    }
    if other.services > 0 {
        notes.push(format!(
            "{} services at {} are not opened; 'services:' there and 'call:' under its peer open \
             them",
            other.services, other.name
        ));
    }
    notes
}

/// The lines for topics that no rule of the file matches. A rule that exists is the owner's choice.
fn lines_of_missing_topics(
    config: &Config,
    lines: Vec<TopicLine>,
    peer: &str,
    notes: &mut Vec<String>,
) -> Vec<TopicLine> {
    let mut needed = Vec::new();
    for line in lines {
        match config.topics.iter().find(|rule| rule.pattern.matches(&line.name)) {
            None => needed.push(line),
            Some(rule) => {
                let is_sent =
                    rule.treatment.to.as_ref().is_none_or(|to| to.iter().any(|it| it == peer));
                if !is_sent {
                    notes.push(format!(
                        "topics.{} in the file is not sent to {peer} ('to'); add {peer} there",
                        rule.pattern.as_str()
                    ));
                }
            }
        }
    }
    needed
}

fn merge_text(peer: &str, lines: &[String], topics: &[TopicLine]) -> String {
    let mut text = format!("# Merge these lines into the file.\npeers:\n  {peer}:\n");
    lines.iter().for_each(|line| text.extend(["    ", line, "\n"]));
    if !topics.is_empty() {
        text.push_str("topics:\n");
    }
    for TopicLine { name, treatment } in topics {
        let _ = writeln!(text, "  {name}: {treatment}");
    }
    text
}

/// The file of lines that a person merges.
pub fn merge_file(local: &LocalMachine) -> PathBuf {
    let name = local.file.file_name().unwrap_or_default().to_string_lossy();
    local.file.with_file_name(format!("{name}.new"))
}

/// The file that gets the text of a change.
pub fn target_file(local: &LocalMachine, change: &Change) -> PathBuf {
    if change.needs_merge { merge_file(local) } else { local.file.clone() }
}

/// Writes the files under temporary names next to their places.
pub fn prepare(local: &LocalMachine, change: &Change) -> Result<PreparedFiles, Failure> {
    let mut prepared = PreparedFiles::default();
    if local.key_is_new {
        let text = keys::key_file_text(&local.key);
        let place = local.place_of(&local.key_file)?;
        prepared.add(place, &text, None, (KEY_MODE, local.owner))?;
    }
    if change.is_same {
        return Ok(prepared);
    }
    let file = target_file(local, change);
    let (folder, name) = local.place_of(&file)?;
    let old = match change.needs_merge {
        true => folder.read(name).ok().and_then(|bytes| String::from_utf8(bytes).ok()),
        false => local.old.as_ref().map(|it| it.text.clone()),
    };
    prepared.add((folder, name), &change.text, old, (FILE_MODE, None))?;
    Ok(prepared)
}
