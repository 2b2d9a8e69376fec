// SPDX-License-Identifier: Apache-2.0
//! Requests of peers that the file does not allow, each with the line that would allow it.

use super::rights::Rights;
use crate::treatment::peer_names::{Accepted, is_type};
use tautline_gateway::action_names::action_of;
use tautline_proto::OfferedTopic;

/// Maximum bytes in the name, type or hash of an accepted topic or service, as for file names.
const MAX_NAME_BYTES: usize = 255;
/// Maximum number of characters of a type name that are shown.
const MAX_SHOWN_CHARS: usize = 128;
/// Text that says where a missing line belongs, for readers at this robot.
pub(super) const ADD_TO_THIS_FILE: &str = "; add to this file, under peers.";
/// Text that says where a missing line belongs, for readers at the peer.
pub(super) const ADD_TO_PEER_FILE: &str = "; add there, under peers.";

/// A kind of request of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// Publish a topic here.
    Publish,
    /// Serve one of its services here.
    Serve,
    /// Call a service or action of this robot.
    Call,
    /// Set a parameter of this robot.
    Set,
}

impl RequestKind {
    /// Returns the word that `status` shows.
    pub(crate) fn as_str(self) -> &'static str {
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
pub(crate) struct PendingRequest {
    pub(crate) kind: RequestKind,
    /// The name of a topic or service at the peer; or the name here of the service that the peer calls.
    pub(crate) name: String,
    pub(crate) type_name: String,
    /// The type to be written in the file; `None` means any type.
    pub(crate) allowed: Option<String>,
    /// The line to be added under peers.NAME.
    pub(crate) line: String,
    /// Set if nodes of this robot's ROS cannot use the name. The line then renames it.
    pub(crate) unusable: Option<UnusableName>,
}

/// A name that nodes of this robot's ROS cannot use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnusableName {
    pub(crate) problem: String,
    /// A name that the nodes can use.
    pub(crate) proposal: String,
}

/// The reason why an advertisement of a peer is not accepted.
#[derive(Debug)]
pub(super) enum Denied {
    /// The name, type or hash is impossible in ROS.
    Invalid(String),
    /// `accept` names other things.
    NotListed,
    /// No line of the file allows it.
    NotConfigured,
    /// Nodes of this robot's ROS cannot use the name here, for this reason.
    Unusable(String),
}

/// Checks the strings that reach the ROS master unchanged. A character that is invalid in XML, or a
/// name of unlimited length, would stop the master from answering anyone.
pub(super) fn check_offer_strings(offered: &OfferedTopic) -> Result<(), String> {
    let texts = [
        ("name", &offered.name),
        ("type", &offered.type_name),
        ("hash of its type", &offered.type_hash),
    ];
    if let Some((what, text)) = texts.iter().find(|(_, text)| text.len() > MAX_NAME_BYTES) {
        return Err(format!(
            "its {what} has {} bytes; allowed: at most {MAX_NAME_BYTES}",
            text.len()
        ));
    }
    let of_type = |it: &char| it.is_ascii_alphanumeric() || matches!(it, '_' | '/' | '*');
    match offered.type_name.chars().find(|it| !of_type(it)) {
        Some(odd) => Err(format!(
            "its type has the character {odd:?}; allowed: letters, digits, '_' and '/'"
        )),
        None => Ok(()),
    }
}

impl PendingRequest {
    /// Returns a request that needs a line under `accept`.
    pub(super) fn for_accept(
        rights: &Rights,
        kind: RequestKind,
        name: &str,
        type_name: &str,
    ) -> Self {
        let names = &rights.names;
        // The file may allow the right type, but in another version.
        let named = names.accepted(name, |allowed| is_type(allowed, name, type_name));
        let allowed = if named == Accepted::Yes { None } else { plain_type(type_name) };
        let shown = allowed.unwrap_or("any");
        Self {
            kind,
            name: name.to_owned(),
            // A peer chooses the name of its type freely, and terminals show the name.
            type_name: type_name.escape_debug().take(MAX_SHOWN_CHARS).collect(),
            line: format!("accept: {{ {name}: {shown} }}"),
            allowed: allowed.map(str::to_owned),
            unusable: None,
        }
    }

    /// Returns a request to call a service of this robot; `type_name` is the type of the service.
    pub(super) fn to_call(service: &str, type_name: Option<&str>) -> Self {
        let name = action_of(service).unwrap_or(service).to_owned();
        let type_name = match action_of(service) {
            Some(_) => "action".into(),
            None => type_name.unwrap_or_default().to_owned(),
        };
        let line = format!("call: {name}");
        Self { kind: RequestKind::Call, name, type_name, allowed: None, line, unusable: None }
    }
}

/// Returns a peer's type name if it can be written in a file.
fn plain_type(type_name: &str) -> Option<&str> {
    let plain = type_name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'/');
    let levels = type_name.split('/').filter(|level| !level.is_empty()).count();
    (plain && (2..=3).contains(&levels)).then_some(type_name)
}
