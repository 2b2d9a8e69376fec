// SPDX-License-Identifier: Apache-2.0
//! Requests of peers that the file does not allow, each with the line that would allow it.

use super::remote::unusable;
use super::rights::{Right, TypeOf};
use super::{ChannelKey, Topics};
use crate::limits::MAX_WAITING_PER_PEER;
use crate::notices;
use crate::treatment::peer_names::{Accepted, is_type};
use std::collections::BTreeSet;
use tautline_gateway::action_names::action_of;
use tautline_gateway::names::{check_local_name, check_peer_name, is_below, plain_name};
use tautline_gateway::types::translate::dialect_of;
use tautline_proto::{Instant, OfferedTopic, PeerId};

/// Maximum bytes of an accepted name of a topic or type; file names have the same limit.
const MAX_NAME: usize = 255;
/// Maximum characters shown of a type's name.
const MAX_SHOWN: usize = 128;
/// The place of a missing line, for readers here.
const HERE: &str = "; add to this file, under peers.";
/// The same for readers at the peer.
const THERE: &str = "; add there, under peers.";

/// A kind of request of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// Publish a topic here.
    Publish,
    /// Serve one of its services here.
    Serve,
    /// Call a service or action of this robot.
    Call,
    /// Set a parameter of this robot.
    Set,
}

impl Act {
    /// Returns the word that `status` shows.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Serve => "serve",
            Self::Call => "call",
            Self::Set => "set",
        }
    }
}

/// A request that needs a line in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) act: Act,
    /// The name at the peer, of a topic or service; the name here, of a call.
    pub(crate) name: String,
    pub(crate) type_name: String,
    /// The type to be written in the file; `None` is any.
    pub(crate) allowed: Option<String>,
    /// The line to be added under peers.NAME.
    pub(crate) line: String,
    /// Present if nodes of this robot's ROS cannot use the name; then the line renames it.
    pub(crate) unusable: Option<Unusable>,
}

/// A name that nodes of this robot's ROS cannot use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unusable {
    pub(crate) problem: String,
    /// A name that they can use.
    pub(crate) proposal: String,
}

/// The reason why an advertisement of a peer is not accepted.
#[derive(Debug)]
pub(super) enum Denied {
    /// Its name, type or hash is impossible in ROS.
    Invalid(String),
    /// `accept` names only other things.
    LeftOut,
    /// No line allows it.
    Waits,
    /// Nodes of this robot's ROS cannot use its name here, for this reason.
    Unusable(String),
}

/// Checks texts that reach the ROS master unchanged: a character that XML cannot hold, or a name of
/// unlimited length, would keep the master from answering anybody.
fn check_texts(offered: &OfferedTopic) -> Result<(), String> {
    let texts = [
        ("name", &offered.name),
        ("type", &offered.type_name),
        ("hash of its type", &offered.type_hash),
    ];
    if let Some((what, text)) = texts.iter().find(|(_, text)| text.len() > MAX_NAME) {
        return Err(format!("its {what} has {} bytes; allowed: at most {MAX_NAME}", text.len()));
    }
    let of_type = |it: &char| it.is_ascii_alphanumeric() || matches!(it, '_' | '/' | '*');
    match offered.type_name.chars().find(|it| !of_type(it)) {
        Some(odd) => Err(format!(
            "its type has the character {odd:?}; allowed: letters, digits, '_' and '/'"
        )),
        None => Ok(()),
    }
}

impl Topics {
    /// Returns the local name of a topic or service that a peer advertises, if the file allows it.
    pub(super) fn accepted_name(
        &self,
        peer: PeerId,
        act: Act,
        offered: &OfferedTopic,
    ) -> Result<String, Denied> {
        let rights = self.rights(peer);
        let (name, hash) = (offered.type_name.as_str(), offered.type_hash.as_str());
        let is_foreign = self.dialect.is_some_and(|own| dialect_of(name) != own);
        let found = TypeOf { offered: name, name, hash, is_foreign };
        let right = match act {
            Act::Publish => rights.publish(&offered.name, found),
            _ => rights.serve(&offered.name, found),
        };
        // A name without a leading '/' would not stay under the peer's prefix.
        if !rights.names.renames(&offered.name) {
            check_peer_name(&offered.name).map_err(|error| Denied::Invalid(error.to_string()))?;
        }
        match right {
            Right::LeftOut => Err(Denied::LeftOut),
            Right::Waits => Err(Denied::Waits),
            Right::Given => {
                check_texts(offered).map_err(Denied::Invalid)?;
                if act == Act::Publish && rights.log_prefix(&offered.name, name, hash).is_some() {
                    return Ok(offered.name.clone());
                }
                let local = rights.names.local_name(&offered.name);
                check_local_name(&local, self.dialect)
                    .map_err(|error| Denied::Unusable(error.to_string()))?;
                match self.prefix_conflict(peer, &offered.name, &local) {
                    Some(reason) => Err(Denied::Invalid(reason)),
                    None => Ok(local),
                }
            }
        }
    }

    /// Returns why `local` is not a name for this peer: it lies under the more specific prefix of another
    /// peer, whose topics and services local nodes expect there. A line of the file that names it
    /// without a star allows it.
    fn prefix_conflict(&self, peer: PeerId, theirs: &str, local: &str) -> Option<String> {
        let own = self.rights(peer);
        let (other, prefix) = self.prefixes().find(|(other, prefix)| {
            *other != peer && prefix.len() > own.names.prefix.len() && is_below(local, prefix)
        })?;
        (!own.names.is_named(theirs)).then(|| {
            let other = self.peer_name(other);
            let here = self.endpoint.name();
            format!(
                "refused, since its name at '{here}' would be {local}, under the prefix {prefix} of \
                 '{other}'; a line {theirs} without a star under 'accept' there allows it"
            )
        })
    }

    /// Refuses an advertisement; both ends get the reason, unless `accept` names only other things.
    pub(super) fn deny(
        &mut self,
        now: Instant,
        key: ChannelKey,
        act: Act,
        offered: &OfferedTopic,
        denied: &Denied,
    ) {
        let waiting = self.waiting_to(act, key.peer, &offered.name, &offered.type_name);
        match denied {
            Denied::Invalid(reason) => self.refuse(now, key, &offered.name, reason),
            Denied::Waits => self.wait_for_line(now, key, waiting),
            Denied::Unusable(reason) => {
                let name = action_of(&offered.name).unwrap_or(&offered.name).to_owned();
                let plain = Some(plain_name(&name)).filter(|plain| *plain != name);
                let proposal = plain.unwrap_or("/ANOTHER_NAME".into());
                let line = format!("remap: {{ {name}: {proposal} }}");
                let unusable = Some(Unusable { problem: reason.clone(), proposal });
                self.wait_for_line(now, key, Waiting { name, line, unusable, ..waiting });
            }
            // `accept` states the accepted names; `status` lists the rest.
            Denied::LeftOut => {
                self.endpoint.want(now, key.peer, key.channel, false);
                self.keep_waiting(key, waiting);
            }
        }
    }

    /// Returns all requests that need a line, with their peers.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (PeerId, &Waiting)> {
        self.waiting.iter().map(|(key, waiting)| (key.peer, waiting))
    }

    /// Keeps a peer's request on a channel, and reports the missing line at both ends.
    pub(super) fn wait_for_line(&mut self, now: Instant, key: ChannelKey, waiting: Waiting) {
        let here = self.line_text(key.peer, &waiting, HERE);
        let there = self.line_text(key.peer, &waiting, THERE);
        self.endpoint.want(now, key.peer, key.channel, false);
        self.record_refusal(key, &here);
        self.peer_notice(now, key.peer, &here);
        self.endpoint.refuse(now, key.peer, key.channel, there);
        self.keep_waiting(key, waiting);
    }

    /// Returns the text about a missing line, for readers here or at the peer.
    fn line_text(&self, peer: PeerId, waiting: &Waiting, place: &str) -> String {
        let Waiting { act, name, type_name, line, unusable, .. } = waiting;
        let (here, peer) = (self.endpoint.name(), self.peer_name(peer));
        let reason = match act {
            Act::Publish => format!(
                "{name} ({type_name}) of '{peer}': '{here}' publishes it only if its file allows it"
            ),
            Act::Serve => format!(
                "service {name} ({type_name}) of '{peer}': '{here}' serves it only if its file \
                 allows it"
            ),
            Act::Set => format!(
                "the parameter {name} of '{here}': '{peer}' may set it only if the file of '{here}' \
                 allows it"
            ),
            Act::Call => format!(
                "{name} of '{here}': '{peer}' may call it only if the file of '{here}' allows it"
            ),
        };
        let reason = match unusable {
            None => reason,
            Some(Unusable { problem, .. }) => {
                format!(
                    "{name} ({type_name}) of '{peer}' needs another name at '{here}': {problem}"
                )
            }
        };
        format!("{reason}{place}{peer}: {line}")
    }

    /// Removes notices about missing lines that no request needs any more.
    pub(super) fn drop_notices_of_given_rights(&mut self) {
        if !self.notices.of_peers().any(|text| text.contains(HERE)) {
            return;
        }
        let needed = self.waiting.iter();
        let needed = needed.map(|(key, waiting)| self.line_text(key.peer, waiting, HERE));
        let needed: BTreeSet<String> = needed.map(|text| notices::plain(&text)).collect();
        self.notices.retain_of_peers(|text| !text.contains(HERE) || needed.contains(text));
    }

    /// Removes the notice that a peer's file lacks a line or that a name cannot be used there, since
    /// the peer takes the channel now.
    pub(super) fn drop_refusal(&mut self, key: ChannelKey) {
        let Some((config, ..)) = self.endpoint.channel_out(key.peer, key.channel) else { return };
        let name = &config.topic.name;
        let (name, here) = (action_of(name).unwrap_or(name), self.endpoint.name());
        let peer = self.peer_name(key.peer);
        let begins = [
            format!("'{peer}' refuses {name} ("),
            format!("'{peer}' refuses service {name} ("),
            format!("'{peer}' refuses {name} of '{peer}'"),
        ];
        let ends = format!("{THERE}{here}: ");
        let unusable = unusable(name, here, peer);
        let is_untrue = |text: &str| {
            begins.iter().any(|it| text.starts_with(it)) && text.contains(&ends)
                || text.contains(&unusable)
        };
        self.notices.retain(&self.cause(key.peer), |text| !is_untrue(text));
    }

    /// Reports at both ends that a peer may not set a parameter; it may try others.
    pub(super) fn deny_setting(&mut self, now: Instant, key: ChannelKey, name: &str) {
        let waiting = Waiting {
            act: Act::Set,
            name: name.to_owned(),
            type_name: "parameter".into(),
            allowed: None,
            line: format!("set_parameters: {name}"),
            unusable: None,
        };
        let here = self.line_text(key.peer, &waiting, HERE);
        let there = self.line_text(key.peer, &waiting, THERE);
        self.record_refusal(key, &here);
        self.peer_notice(now, key.peer, &here);
        self.endpoint.refuse(now, key.peer, key.channel, there);
        self.keep_waiting(key, waiting);
    }

    fn keep_waiting(&mut self, key: ChannelKey, waiting: Waiting) {
        let of_peer = self.waiting.range(ChannelKey::all_of(key.peer));
        if of_peer.count() < MAX_WAITING_PER_PEER || self.waiting.contains_key(&key) {
            self.waiting.insert(key, waiting);
        }
    }

    /// Returns a request that needs a line under `accept`.
    pub(super) fn waiting_to(
        &self,
        act: Act,
        peer: PeerId,
        name: &str,
        type_name: &str,
    ) -> Waiting {
        let names = &self.rights(peer).names;
        // The file may name the right type in another version.
        let named = names.accepted(name, |allowed| is_type(allowed, name, type_name));
        let allowed = if named == Accepted::Yes { None } else { plain_type(type_name) };
        let shown = allowed.unwrap_or("any");
        Waiting {
            act,
            name: name.to_owned(),
            // A peer chooses its type's name freely, and the name is shown on terminals.
            type_name: type_name.escape_debug().take(MAX_SHOWN).collect(),
            line: format!("accept: {{ {name}: {shown} }}"),
            allowed: allowed.map(str::to_owned),
            unusable: None,
        }
    }

    pub(super) fn waiting_to_call(&self, service: &str) -> Waiting {
        let name = action_of(service).unwrap_or(service).to_owned();
        let type_name = match action_of(service) {
            Some(_) => "action".into(),
            None => self.type_of_service(service).unwrap_or_default().to_owned(),
        };
        let line = format!("call: {name}");
        Waiting { act: Act::Call, name, type_name, allowed: None, line, unusable: None }
    }
}

/// Returns a peer's type name if it can be written in a file.
fn plain_type(type_name: &str) -> Option<&str> {
    let plain = type_name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'/');
    let levels = type_name.split('/').filter(|level| !level.is_empty()).count();
    (plain && (2..=3).contains(&levels)).then_some(type_name)
}
