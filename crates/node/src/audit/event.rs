// SPDX-License-Identifier: Apache-2.0
//! Events of the audit log. [`EVENTS`] describes every event for docs/reference/audit.md; a test compares it
//! with the records.

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

/// One event. Its name in the record is the name of the variant in snake_case.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The daemon started.
    Started {
        /// Name of the node.
        node: Text,
        /// Version of the daemon.
        version: &'static str,
        /// Process id of the daemon.
        pid: u32,
        /// Public key of the node; none under `security: none`.
        #[serde(skip_serializing_if = "Option::is_none")]
        key: Option<Text>,
        /// Path of the robot's file.
        file: Text,
        /// SHA-256 of the robot's file.
        sha256: Text,
    },
    /// The daemon stops.
    Stopped {
        /// Reason, unless a signal stopped the daemon.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<Text>,
    },
    /// A peer is up.
    Came {
        /// Public key of the peer.
        key: Text,
        /// Address of the peer.
        address: Text,
        /// Whether the session is a new one.
        session: Session,
    },
    /// A peer is down.
    Went {
        /// Cause.
        reason: Parting,
    },
    /// The address of a peer changed.
    Moved {
        /// New address.
        address: Text,
    },
    /// A handshake failed. The other node is the initiator or the responder.
    HandshakeRefused {
        /// Reason.
        reason: Misfit,
        /// Address of the other node.
        address: Text,
        /// Name that the other node claims.
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<Text>,
        /// Public key of the other node.
        #[serde(skip_serializing_if = "Option::is_none")]
        key: Option<Text>,
    },
    /// A topic, service or call of a peer is refused.
    Refused {
        /// Kind of the refused object.
        kind: Kind,
        /// Name at the peer.
        name: Text,
        /// Type name.
        #[serde(rename = "type")]
        type_name: Text,
        /// Reason.
        reason: Text,
    },
    /// A peer's messages are dropped, because they exceed the rate that its rights allow.
    OverRateBegan {
        /// Topic of the first dropped message.
        topic: Text,
        /// Allowed rate, in bits per second.
        limit_bps: u64,
    },
    /// A peer's messages are within the allowed rate again.
    OverRateEnded {
        /// Dropped messages.
        messages: u64,
        /// Payload bytes of the dropped messages.
        bytes: u64,
    },
    /// The running node was changed.
    Changed {
        /// Author of the change.
        #[serde(flatten)]
        by: Actor,
        /// Description of each change.
        changes: Vec<Text>,
    },
    /// A requested change of the running node was refused.
    ChangeRefused {
        /// Author of the request.
        #[serde(flatten)]
        by: Actor,
        /// Reason.
        reason: Text,
    },
    /// A watchdog's topic timed out.
    SafeMessage {
        /// Topic of the watchdog.
        topic: Text,
        /// Time without a message.
        silence_ms: u64,
        /// Whether a safe message was published.
        published: bool,
    },
    /// Events that exceeded a quota.
    LeftOut {
        /// Description of the quota's cause.
        about: Text,
        /// Number of events.
        count: u64,
    },
    /// Events that could not be written.
    Lost {
        /// Number of events.
        count: u64,
    },
}

impl Event {
    /// Whether a single sender can repeat the event at will, so that a count is enough. For the
    /// other events each occurrence matters.
    pub(super) fn is_merged(&self) -> bool {
        matches!(self, Self::HandshakeRefused { .. } | Self::Refused { .. })
    }

    /// Returns the event's name in the record.
    pub fn name(&self) -> String {
        let record = serde_json::to_value(self).unwrap_or_default();
        record["event"].as_str().unwrap_or_default().to_owned()
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

/// The cause of a peer down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Parting {
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
pub enum Misfit {
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

/// The kind of object that a peer is refused.
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
    /// Meaning of the event.
    pub doc: &'static str,
    /// Fields: name and meaning.
    pub fields: &'static [(&'static str, &'static str)],
}

const AUTHOR: [(&str, &str); 5] = [
    (
        "by",
        "`user`: a local user, through the control socket; `signal`: SIGHUP; `program`: the program that embeds the node",
    ),
    ("uid", "user id of the requesting process, as reported by the kernel (`SO_PEERCRED`)"),
    ("gid", "its group id"),
    ("pid", "its process id, 0 if it is in another PID namespace"),
    ("user", "name of the user in /etc/passwd, if there is one"),
];

/// All events.
pub const EVENTS: &[EventEntry] = &[
    EventEntry {
        name: "started",
        peer: "never",
        doc: "The daemon started.",
        fields: &[
            ("node", "name of this node"),
            ("version", "version of Tautline"),
            ("pid", "process id of the daemon"),
            ("key", "public key of this node; absent under `security: none`"),
            ("file", "path of the robot's file"),
            ("sha256", "SHA-256 of the file"),
        ],
    },
    EventEntry {
        name: "stopped",
        peer: "never",
        doc: "The daemon stopped. If this event is missing before `started`, the daemon was killed or crashed.",
        fields: &[("error", "reason; absent after SIGTERM or SIGINT")],
    },
    EventEntry {
        name: "came",
        peer: "always",
        doc: "A peer came up.",
        fields: &[
            ("key", "its public key; under `security: none` a key derived from its name"),
            ("address", "its address; `via NAME`: behind that relay; empty while unknown"),
            (
                "session",
                "`new`: one of the two nodes was restarted; `same`: the peer was unreachable",
            ),
        ],
    },
    EventEntry {
        name: "went",
        peer: "always",
        doc: "A peer went down.",
        fields: &[(
            "reason",
            "`goodbye`: the peer said goodbye; `silence`: no packets arrive from it; `removed`: it was removed from the file",
        )],
    },
    EventEntry {
        name: "moved",
        peer: "always",
        doc: "The address of a peer changed.",
        fields: &[("address", "its new address")],
    },
    EventEntry {
        name: "handshake_refused",
        peer: "if the key belongs to one",
        doc: "A handshake failed. The other node is the initiator or the responder.",
        fields: &[
            (
                "reason",
                "`unknown_key`: its key belongs to no peer; `other_key`: the handshake is for a key other than this node's; `wrong_name`: its key belongs to a peer with another name; `twin`: two nodes use the same key; `other_version`: it has another protocol version; `refused_by_peer`: the peer refuses this node",
            ),
            (
                "address",
                "its address. Until a handshake succeeds, the sender of a packet can forge this",
            ),
            ("name", "its name, if it was sent"),
            ("key", "its public key, if it was sent"),
        ],
    },
    EventEntry {
        name: "refused",
        peer: "always",
        doc: "A topic, a service or calls of a peer were refused.",
        fields: &[
            (
                "kind",
                "`topic`; `service`: a service of the peer; `call`: calls of a service of this robot",
            ),
            ("name", "its name at the peer"),
            ("type", "its type at the peer"),
            ("reason", "reason, as text"),
        ],
    },
    EventEntry {
        name: "over_rate_began",
        peer: "always",
        doc: "Messages of a peer are dropped because they exceed `peers.NAME.max_rate`.",
        fields: &[
            ("topic", "topic of the first dropped message"),
            ("limit_bps", "allowed rate in bits per second"),
        ],
    },
    EventEntry {
        name: "over_rate_ended",
        peer: "always",
        doc: "No message of the peer was dropped for ten seconds.",
        fields: &[("messages", "dropped messages"), ("bytes", "their payload bytes")],
    },
    EventEntry {
        name: "changed",
        peer: "never",
        doc: "The running node was changed, by `tautline set` or by a reload of its file.",
        fields: &[
            AUTHOR[0],
            AUTHOR[1],
            AUTHOR[2],
            AUTHOR[3],
            AUTHOR[4],
            ("changes", "one text for each change; at most 100"),
        ],
    },
    EventEntry {
        name: "change_refused",
        peer: "never",
        doc: "A requested change was refused. Nothing was changed.",
        fields: &[
            AUTHOR[0],
            AUTHOR[1],
            AUTHOR[2],
            AUTHOR[3],
            AUTHOR[4],
            ("reason", "reason, as text"),
        ],
    },
    EventEntry {
        name: "safe_message",
        peer: "never",
        doc: "A watchdog's topic timed out. Repetitions during the same timeout are not recorded.",
        fields: &[
            ("topic", "topic of the watchdog"),
            ("silence_ms", "time without a message from any peer (`watchdogs.TOPIC.after`)"),
            (
                "published",
                "`true`: the safe message was published; `false`: it could not be composed",
            ),
        ],
    },
    EventEntry {
        name: "left_out",
        peer: "never",
        doc: "Events that exceeded a quota were not recorded.",
        fields: &[("about", "cause of the events"), ("count", "number of events")],
    },
    EventEntry {
        name: "lost",
        peer: "never",
        doc: "Events were not written: the disk is full or too slow, or journald accepts none.",
        fields: &[("count", "number of events")],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;

    /// One event of each kind with all of its fields, in the order of the reference.
    fn all() -> Vec<Event> {
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
            Event::Went { reason: Parting::Silence },
            Event::Moved { address: text() },
            Event::HandshakeRefused {
                reason: Misfit::Twin,
                address: text(),
                name: some(),
                key: some(),
            },
            Event::Refused { kind: Kind::Call, name: text(), type_name: text(), reason: text() },
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
    fn the_reference_names_every_event_and_field_that_is_written() {
        let written: Vec<(String, BTreeSet<String>)> = all()
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
                let fields = entry.fields.iter().map(|(name, _)| (*name).to_owned());
                (entry.name.to_owned(), fields.collect())
            })
            .collect();
        assert_eq!(written, described);
    }

    #[test]
    fn every_word_that_a_field_may_hold_is_in_the_reference() {
        let words = [
            serde_json::to_value([Session::New, Session::Same]),
            serde_json::to_value([Parting::Goodbye, Parting::Silence, Parting::Removed]),
            serde_json::to_value([
                Misfit::UnknownKey,
                Misfit::OtherKey,
                Misfit::WrongName,
                Misfit::Twin,
                Misfit::OtherVersion,
                Misfit::RefusedByPeer,
            ]),
            serde_json::to_value([Kind::Topic, Kind::Service, Kind::Call]),
        ];
        let docs: String =
            EVENTS.iter().flat_map(|entry| entry.fields).map(|(_, doc)| *doc).collect();
        for word in words.into_iter().flat_map(|words| words.unwrap().as_array().unwrap().clone()) {
            assert!(docs.contains(&format!("`{}`", word.as_str().unwrap())), "{word}");
        }
    }
}
