// SPDX-License-Identifier: Apache-2.0
//! The ROS graph: nodes and their endpoints. Every ROS 2 process publishes its own in an
//! `rmw_dds_common/msg/ParticipantEntitiesInfo` on [`TOPIC`] (transient local, keep last 1).

use crate::types::transcode::cursor::{Reader, Writer};
use crate::types::transcode::{MAX_PADDING, TranscodeError, cdr_reader, cdr_writer, expect_end};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// The DDS topic of the graph; unlike others it has no prefix.
pub const TOPIC: &str = "ros_discovery_info";
/// The type of the topic in DDS.
pub const TYPE: &str = "rmw_dds_common::msg::dds_::ParticipantEntitiesInfo_";
/// Maximum number of nodes read from one message.
const MAX_NODES: usize = 4096;
/// Maximum bytes of a message that is read. The last message of each participant is kept.
const MAX_BYTES: usize = 1 << 20;

/// A GUID. Messages have it in 16 bytes since Iron, and in 24 before.
type Gid = [u8; 16];

/// Bytes of a GUID in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GidBytes {
    /// Since Iron.
    Sixteen = 16,
    /// Until Humble; the last eight are zero.
    TwentyFour = 24,
}

/// A node and its endpoints.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// `/` or `/robot1`.
    pub namespace: String,
    /// Without the namespace.
    pub name: String,
    /// GUIDs of its readers.
    pub readers: Vec<Gid>,
    /// GUIDs of its writers.
    pub writers: Vec<Gid>,
}

/// Paces our messages: one at once after a quiet time, and at most one per [`INTERVAL`].
#[derive(Debug)]
pub struct Pacer {
    /// Whether our endpoints differ from those in the last message.
    pub changed: bool,
    sent: Option<Instant>,
}

/// Least time between two messages, each of which has all our endpoints.
const INTERVAL: Duration = Duration::from_millis(100);

impl Default for Pacer {
    fn default() -> Self {
        Self { changed: true, sent: None }
    }
}

impl Pacer {
    /// The time of the next message, if there is a change.
    pub fn next_message_time(&self, now: Instant) -> Option<Instant> {
        self.changed.then(|| self.sent.map_or(now, |at| at + INTERVAL))
    }

    /// Whether to send a message now; if so, it counts as sent.
    pub fn take(&mut self, now: Instant) -> bool {
        let is_due = self.next_message_time(now).is_some_and(|due| due <= now);
        if is_due {
            *self = Self { changed: false, sent: Some(now) };
        }
        is_due
    }
}

/// The size of GUIDs in the messages of other participants. Cyclone DDS's thread reads them, and
/// notifies the actor once for any number of messages.
#[derive(Debug, Default)]
pub struct ObservedGidBytes {
    has_24_bytes: AtomicBool,
    notified: AtomicBool,
}

impl ObservedGidBytes {
    /// Records that a message has GUIDs of this size; `true`: notify the actor.
    pub fn on_message(&self, gid_bytes: GidBytes) -> bool {
        let new = gid_bytes == GidBytes::TwentyFour;
        self.has_24_bytes.swap(new, SeqCst) != new && !self.notified.swap(true, SeqCst)
    }

    /// The current size; later changes cause another notification.
    pub fn get(&self) -> GidBytes {
        // Before the load, so that no change is missed.
        self.notified.store(false, SeqCst);
        if self.has_24_bytes.load(SeqCst) { GidBytes::TwentyFour } else { GidBytes::Sixteen }
    }
}

/// A participant's nodes as CDR with its encapsulation.
pub fn write(
    participant: &Gid,
    nodes: &[Node],
    gid_bytes: GidBytes,
) -> Result<Vec<u8>, TranscodeError> {
    let mut cdr = cdr_writer(usize::MAX);
    let put_gid = |cdr: &mut Writer, gid: &Gid| {
        cdr.numbers(1, gid)?;
        cdr.numbers(1, &[0; 8][..gid_bytes as usize - gid.len()])
    };
    put_gid(&mut cdr, participant)?;
    cdr.length(nodes.len())?;
    for node in nodes {
        cdr.string(node.namespace.as_bytes())?;
        cdr.string(node.name.as_bytes())?;
        for gids in [&node.readers, &node.writers] {
            cdr.length(gids.len())?;
            gids.iter().try_for_each(|gid| put_gid(&mut cdr, gid))?;
        }
    }
    Ok(cdr.finish())
}

/// The content of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Participant {
    /// GUID of the participant.
    pub guid: Gid,
    /// The nodes of the participant.
    pub nodes: Vec<Node>,
    /// The size of GUIDs in the message.
    pub gid_bytes: GidBytes,
}

/// Reads a participant's message. It tries both sizes of a GUID.
pub fn read(cdr: &[u8]) -> Option<Participant> {
    let sizes = [GidBytes::Sixteen, GidBytes::TwentyFour].into_iter();
    sizes
        .filter(|_| cdr.len() <= MAX_BYTES)
        .find_map(|gid_bytes| Message { cdr: cdr_reader(cdr).ok()?, gid_bytes }.participant())
}

struct Message<'a> {
    cdr: Reader<'a>,
    gid_bytes: GidBytes,
}

impl Message<'_> {
    fn participant(mut self) -> Option<Participant> {
        let (guid, gid_bytes) = (self.gid()?, self.gid_bytes);
        let count = self.cdr.length().ok()?;
        let nodes = (0..count.min(MAX_NODES)).map(|_| self.node()).collect::<Option<_>>()?;
        expect_end(&self.cdr, MAX_PADDING).ok()?;
        (count <= MAX_NODES).then_some(Participant { guid, nodes, gid_bytes })
    }

    fn node(&mut self) -> Option<Node> {
        let (namespace, name) = (self.read_text()?, self.read_text()?);
        Some(Node { namespace, name, readers: self.gids()?, writers: self.gids()? })
    }

    fn gids(&mut self) -> Option<Vec<Gid>> {
        let count = self.cdr.length().ok()?;
        // A count that is too large ends at the first missing GUID.
        (0..count).map(|_| self.gid()).collect()
    }

    fn gid(&mut self) -> Option<Gid> {
        self.cdr.numbers(1, self.gid_bytes as usize).ok()?.first_chunk().copied()
    }

    /// Reads a text with its final NUL; an empty text has a NUL as well.
    fn read_text(&mut self) -> Option<String> {
        let length = self.cdr.length().ok()?;
        let text = self.cdr.numbers(1, length).ok()?;
        String::from_utf8(text.strip_suffix(&[0])?.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes() -> Vec<Node> {
        vec![
            Node {
                namespace: "/".into(),
                name: "tautline".into(),
                readers: vec![[1; 16], [2; 16]],
                writers: vec![[3; 16]],
            },
            Node { namespace: "/robot1".into(), name: "n".into(), ..Node::default() },
        ]
    }

    #[test]
    fn messages_are_rate_limited_and_the_last_is_sent() {
        let (mut pace, start) = (Pacer::default(), Instant::now());
        assert_eq!(pace.next_message_time(start), Some(start));
        let mut sent = Vec::new();
        for ms in 0..1000 {
            pace.changed = true;
            sent.extend(pace.take(start + Duration::from_millis(ms)).then_some(ms));
        }
        assert_eq!(sent, (0..1000).step_by(100).collect::<Vec<_>>());
        let last = start + 10 * INTERVAL;
        assert_eq!(pace.next_message_time(start), Some(last), "the last change is sent as well");
        assert!(pace.take(last) && pace.next_message_time(last).is_none());
        pace.changed = true;
        assert!(pace.take(last + 2 * INTERVAL), "at once after a quiet time");
    }

    #[test]
    fn a_flood_of_messages_causes_one_notification_with_the_last_size() {
        let observed = ObservedGidBytes::default();
        let (short, long) = (GidBytes::Sixteen, GidBytes::TwentyFour);
        assert!(!observed.on_message(short), "the default");
        assert!(observed.on_message(long));
        let flood = [short, long].repeat(100);
        assert!(!flood.iter().any(|it| observed.on_message(*it)), "notified already");
        assert_eq!(observed.get(), GidBytes::TwentyFour);
        assert!(!observed.on_message(long) && observed.on_message(short));
        assert_eq!(observed.get(), GidBytes::Sixteen);
    }

    #[test]
    fn messages_are_read_as_written_with_either_size_of_guids() {
        for gid_bytes in [GidBytes::Sixteen, GidBytes::TwentyFour] {
            for nodes in [nodes(), Vec::new()] {
                let cdr = write(&[7; 16], &nodes, gid_bytes).unwrap();
                let expected = Participant { guid: [7; 16], nodes, gid_bytes };
                assert_eq!(read(&cdr), Some(expected.clone()));
                let padded = [&cdr[..], &[0, 0, 0]].concat();
                assert_eq!(read(&padded), Some(expected));
            }
        }
    }

    #[test]
    fn truncated_messages_and_excessive_counts_are_not_read() {
        let cdr = write(&[7; 16], &nodes(), GidBytes::Sixteen).unwrap();
        for length in 0..cdr.len() {
            assert_eq!(read(&cdr[..length]), None, "{length}");
        }
        let many = Node { writers: vec![[1; 16]; MAX_BYTES / 16], ..Node::default() };
        assert_eq!(read(&write(&[7; 16], &[many], GidBytes::Sixteen).unwrap()), None);
        let mut greedy = cdr.clone();
        greedy[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(read(&greedy), None);
        assert_eq!(read(&[cdr, vec![0; 4]].concat()), None);
    }
}
