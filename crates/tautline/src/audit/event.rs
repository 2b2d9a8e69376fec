// SPDX-License-Identifier: Apache-2.0
//! Events of the audit log. [`EVENTS`] describes every event for docs/reference/audit.md; a test
//! compares it with the records.

use serde::Serialize;
use tautline_gateway::plain::plain;

/// Maximum bytes of one text in a record; longer texts are cut.
pub const MAX_TEXT: usize = 300;
/// Maximum number of changes named in one record; further changes are counted.
pub const MAX_CHANGES: usize = 100;

/// Text from any source, bounded in length and without control characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Text(String);

impl Text {
    /// Returns at most [`MAX_TEXT`] bytes of `text`.
    pub fn new(text: &str) -> Self {
        Self(plain(text, MAX_TEXT))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<T: AsRef<str>> From<T> for Text {
    fn from(text: T) -> Self {
        Self::new(text.as_ref())
    }
}

/// Defines the events. Their doc comments are also the reference: [`EVENTS`].
macro_rules! events {
    ($(
        #[doc = $doc:literal]
        $variant:ident $name:literal, peer: $peer:literal $(, by: $by:ty)? {
            $(#[doc = $meaning:literal] $(#[serde($($serde:tt)*)])? $field:ident: $type:ty,)*
        }
    )*) => {
        /// One event. Its name in the record is the name of the variant in snake_case.
        #[derive(Debug, Clone, PartialEq, Serialize)]
        #[serde(tag = "event", rename_all = "snake_case")]
        pub enum Event {$(
            #[doc = $doc]
            $variant {
                $(
                    /// author of the change
                    #[serde(flatten)]
                    by: $by,
                )?
                $(#[doc = $meaning] $(#[serde($($serde)*)])? $field: $type,)*
            },
        )*}

        impl Event {
            /// Returns the event's name in the record.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => $name,)*
                }
            }
        }

        /// All events.
        pub const EVENTS: &[EventEntry] = &[$(EventEntry {
            name: $name,
            peer: $peer,
            doc: $doc,
            has_author: !<[&str]>::is_empty(&[$(stringify!($by))?]),
            own_fields: &[$((stringify!($field), $meaning)),*],
        }),*];
    };
}

events! {
    /// The daemon started.
    Started "started", peer: "never" {
        /// name of this node
        node: Text,
        /// version of Tautline
        version: &'static str,
        /// process id of the daemon
        pid: u32,
        /// public key of this node; absent under `security: none`
        #[serde(skip_serializing_if = "Option::is_none")]
        key: Option<Text>,
        /// path of the robot's file
        file: Text,
        /// SHA-256 of the file
        sha256: Text,
    }
    /// The daemon stopped. If this event is missing before `started`, the daemon was killed or crashed.
    Stopped "stopped", peer: "never" {
        /// reason; absent after SIGTERM or SIGINT
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<Text>,
    }
    /// A peer came up.
    Came "came", peer: "always" {
        /// its public key; under `security: none` a key derived from its name
        key: Text,
        /// its address; `via NAME`: behind that relay; empty while unknown
        address: Text,
        /// `new`: one of the two nodes was restarted; `same`: the peer was unreachable
        session: Session,
    }
    /// A peer went down.
    Went "went", peer: "always" {
        /// `goodbye`: the peer said goodbye; `silence`: no packets arrive from it; `removed`: it was removed from the file
        reason: DownReason,
    }
    /// The address of a peer changed.
    Moved "moved", peer: "always" {
        /// its new address
        address: Text,
    }
    /// A handshake failed. The other node is the initiator or the responder.
    HandshakeRefused "handshake_refused", peer: "if the key belongs to one" {
        /// `unknown_key`: its key belongs to no peer; `other_key`: the handshake is for a key other than this node's; `wrong_name`: its key belongs to a peer with another name; `twin`: two nodes use the same key; `other_version`: it has another protocol version; `refused_by_peer`: the peer refuses this node
        reason: HandshakeFailure,
        /// its address. Until a handshake succeeds, the sender of a packet can forge this
        address: Text,
        /// its name, if it was sent
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<Text>,
        /// its public key, if it was sent
        #[serde(skip_serializing_if = "Option::is_none")]
        key: Option<Text>,
    }
    /// A topic, a service or calls of a peer were refused.
    Refused "refused", peer: "always" {
        /// `topic`; `service`: a service of the peer; `call`: calls of a service of this robot
        kind: Kind,
        /// its name at the peer
        name: Text,
        /// its type at the peer
        r#type: Text,
        /// reason, as text
        reason: Text,
    }
    /// A peer refused a topic, a service or calls of this node.
    RefusedByPeer "refused_by_peer", peer: "always" {
        /// `topic`; `service`: a service of this node; `call`: calls of a service of the peer
        kind: Kind,
        /// its name as advertised to the peer
        name: Text,
        /// its type
        r#type: Text,
        /// reason, as the peer states it
        reason: Text,
    }
    /// Messages of a peer are dropped because they exceed `peers.NAME.max_rate`.
    OverRateBegan "over_rate_began", peer: "always" {
        /// topic of the first dropped message
        topic: Text,
        /// allowed rate in bits per second
        limit_bps: u64,
    }
    /// No message of the peer was dropped for ten seconds.
    OverRateEnded "over_rate_ended", peer: "always" {
        /// dropped messages
        messages: u64,
        /// their payload bytes
        bytes: u64,
    }
    /// The running node was changed, by `tautline set` or by a reload of its file.
    Changed "changed", peer: "never", by: Actor {
        /// one text for each change; at most 100
        changes: Vec<Text>,
    }
    /// A requested change was refused. Nothing was changed.
    ChangeRefused "change_refused", peer: "never", by: Actor {
        /// reason, as text
        reason: Text,
    }
    /// A watchdog's topic timed out. Repetitions during the same timeout are not recorded.
    SafeMessage "safe_message", peer: "never" {
        /// topic of the watchdog
        topic: Text,
        /// time without a message from any peer (`watchdogs.TOPIC.after`)
        silence_ms: u64,
        /// `true`: the safe message was published; `false`: it could not be composed
        published: bool,
    }
    /// Events that exceeded a quota were not recorded.
    LeftOut "left_out", peer: "never" {
        /// cause of the events
        about: Text,
        /// number of events
        count: u64,
    }
    /// Events were not written: the disk is full or too slow, or journald accepts none.
    Lost "lost", peer: "never" {
        /// number of events
        count: u64,
    }
}

impl Event {
    /// Whether a single sender can repeat the event at will, so that a count is enough. For the
    /// other events each occurrence matters.
    pub(super) fn is_merged(&self) -> bool {
        matches!(
            self,
            Self::HandshakeRefused { .. } | Self::Refused { .. } | Self::RefusedByPeer { .. }
        )
    }
}

/// Whether a peer's session is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Session {
    /// One of the two nodes restarted.
    New,
    /// The peer was unreachable.
    Same,
}

/// The reason why a peer went down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DownReason {
    /// The peer sent a goodbye.
    Goodbye,
    /// No packet arrives from the peer.
    Silence,
    /// The peer was removed from the robot's file.
    Removed,
}

/// The reason of a failed handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HandshakeFailure {
    /// The key belongs to no peer.
    UnknownKey,
    /// The handshake is for a key other than this node's.
    OtherKey,
    /// The key belongs to a peer with another name.
    WrongName,
    /// Two nodes use the same key.
    Twin,
    /// The other node has another protocol version.
    OtherVersion,
    /// The peer refuses this node.
    RefusedByPeer,
}

/// The kind of object that is refused to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A topic that the peer advertises.
    Topic,
    /// A service that the peer advertises.
    Service,
    /// Calls of a service of this robot.
    Call,
}

/// The author of a change of the running node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum Actor {
    /// A local user on the control socket, as the kernel reports it (SO_PEERCRED).
    User {
        /// User id.
        uid: u32,
        /// Group id.
        gid: u32,
        /// Process id; 0 where the process is in another PID namespace.
        pid: u32,
        /// User name in /etc/passwd.
        #[serde(skip_serializing_if = "Option::is_none")]
        user: Option<Text>,
    },
    /// A signal, which carries no identity.
    Signal,
    /// The program that embeds the node.
    Program,
}

/// The description of one event in the reference.
#[derive(Debug)]
pub struct EventEntry {
    /// Name of the event.
    pub name: &'static str,
    /// Whether the record names a peer: always, sometimes or never.
    pub peer: &'static str,
    doc: &'static str,
    has_author: bool,
    own_fields: &'static [(&'static str, &'static str)],
}

impl EventEntry {
    /// Returns the meaning of the event.
    pub fn doc(&self) -> &'static str {
        self.doc.trim()
    }

    /// Returns the name and meaning of each field.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let author = if self.has_author { ACTOR_FIELDS } else { &[] };
        let fields = author.iter().chain(self.own_fields);
        fields.map(|(name, meaning)| (name.trim_start_matches("r#"), meaning.trim()))
    }
}

/// Fields of an [`Actor`].
const ACTOR_FIELDS: &[(&str, &str)] = &[
    (
        "by",
        "`user`: a local user, through the control socket; `signal`: SIGHUP; `program`: the program that embeds the node",
    ),
    ("uid", "user id of the requesting process, as reported by the kernel (`SO_PEERCRED`)"),
    ("gid", "its group id"),
    ("pid", "its process id, 0 if it is in another PID namespace"),
    ("user", "name of the user in /etc/passwd, if there is one"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;

    /// One event of each kind with all of its fields, in the order of the reference.
    fn one_of_each_kind() -> Vec<Event> {
        let text = || Text::new("x");
        let some = || Some(text());
        let by = || Actor::User { uid: 0, gid: 0, pid: 1, user: some() };
        vec![
            Event::Started {
                node: text(),
                version: "1",
                pid: 1,
                key: some(),
                file: text(),
                sha256: text(),
            },
            Event::Stopped { error: some() },
            Event::Came { key: text(), address: text(), session: Session::New },
            Event::Went { reason: DownReason::Silence },
            Event::Moved { address: text() },
            Event::HandshakeRefused {
                reason: HandshakeFailure::Twin,
                address: text(),
                name: some(),
                key: some(),
            },
            Event::Refused { kind: Kind::Call, name: text(), r#type: text(), reason: text() },
            Event::RefusedByPeer {
                kind: Kind::Service,
                name: text(),
                r#type: text(),
                reason: text(),
            },
            Event::OverRateBegan { topic: text(), limit_bps: 1 },
            Event::OverRateEnded { messages: 1, bytes: 1 },
            Event::Changed { by: by(), changes: vec![text()] },
            Event::ChangeRefused { by: by(), reason: text() },
            Event::SafeMessage { topic: text(), silence_ms: 1, published: true },
            Event::LeftOut { about: text(), count: 1 },
            Event::Lost { count: 1 },
        ]
    }

    #[test]
    fn the_reference_lists_every_audit_event_and_field() {
        let written: Vec<(String, BTreeSet<String>)> = one_of_each_kind()
            .iter()
            .map(|event| {
                let Value::Object(mut fields) = serde_json::to_value(event).unwrap() else {
                    panic!("{event:?}")
                };
                let name = fields.remove("event").unwrap().as_str().unwrap().to_owned();
                assert_eq!(name, event.name());
                (name, fields.into_iter().map(|(key, _)| key).collect())
            })
            .collect();
        let described: Vec<(String, BTreeSet<String>)> = EVENTS
            .iter()
            .map(|entry| {
                let fields = entry.fields().map(|(name, _)| name.to_owned());
                (entry.name.to_owned(), fields.collect())
            })
            .collect();
        assert_eq!(written, described);
    }

    #[test]
    fn the_reference_lists_every_value_of_audit_fields() {
        let words = [
            serde_json::to_value([Session::New, Session::Same]),
            serde_json::to_value([DownReason::Goodbye, DownReason::Silence, DownReason::Removed]),
            serde_json::to_value([
                HandshakeFailure::UnknownKey,
                HandshakeFailure::OtherKey,
                HandshakeFailure::WrongName,
                HandshakeFailure::Twin,
                HandshakeFailure::OtherVersion,
                HandshakeFailure::RefusedByPeer,
            ]),
            serde_json::to_value([Kind::Topic, Kind::Service, Kind::Call]),
        ];
        let docs: String =
            EVENTS.iter().flat_map(EventEntry::fields).map(|(_, meaning)| meaning).collect();
        for word in words.into_iter().flat_map(|words| words.unwrap().as_array().unwrap().clone()) {
            assert!(docs.contains(&format!("`{}`", word.as_str().unwrap())), "{word}");
        }
    }
}
