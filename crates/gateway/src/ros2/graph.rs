// SPDX-License-Identifier: Apache-2.0
//! Which node has which endpoints: `rmw_dds_common/msg/ParticipantEntitiesInfo`, which every
//! ROS 2 process publishes on [`TOPIC`] for all others (transient local, keep last 1).

use crate::types::transcode::cursor::{Reader, Writer};
use crate::types::transcode::{MAX_PADDING, TranscodeError, at_end, cdr_reader, cdr_writer};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Its DDS topic; unlike others it has no prefix.
pub const TOPIC: &str = "ros_discovery_info";
/// Its type in DDS.
pub const TYPE: &str = "rmw_dds_common::msg::dds_::ParticipantEntitiesInfo_";
/// Nodes that are read from one message.
const MAX_NODES: usize = 4096;

/// A GUID, in as many bytes as the ROS at hand gives it: 16 since Iron, 24 before.
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

/// When our node is shown again: at once after a quiet time, and at most every [`INTERVAL`].
#[derive(Debug)]
pub struct Pace {
    /// It has other endpoints than it shows.
    pub changed: bool,
    shown: Option<Instant>,
}

/// Least time between two messages of ours, each of which has all our endpoints.
const INTERVAL: Duration = Duration::from_millis(100);

impl Default for Pace {
    /// It is not shown yet.
    fn default() -> Self {
        Self { changed: true, shown: None }
    }
}

impl Pace {
    /// When the node is to be shown, if it has changed.
    pub fn due(&self, now: Instant) -> Option<Instant> {
        self.changed.then(|| self.shown.map_or(now, |at| at + INTERVAL))
    }

    /// Whether the node is to be shown now; if so, it counts as shown.
    pub fn take(&mut self, now: Instant) -> bool {
        let is_due = self.due(now).is_some_and(|due| due <= now);
        if is_due {
            *self = Self { changed: false, shown: Some(now) };
        }
        is_due
    }
}

/// What participants' messages tell of the ROS at hand. They are read on Cyclone DDS's thread: the
/// thread that shows our node is told once of any number of them.
#[derive(Debug, Default)]
pub struct Heard {
    twenty_four: AtomicBool,
    told: AtomicBool,
}

impl Heard {
    /// Takes a message in; `true`: the other thread is to be told to look.
    pub fn take(&self, message: &[u8]) -> bool {
        let Some((_, _, gid_bytes)) = read(message) else { return false };
        let new = gid_bytes == GidBytes::TwentyFour;
        self.twenty_four.swap(new, SeqCst) != new && !self.told.swap(true, SeqCst)
    }

    /// The size of a GUID. From now on the other thread is told of a change anew.
    pub fn look(&self) -> GidBytes {
        // Before it looks, so that no change is missed.
        self.told.store(false, SeqCst);
        if self.twenty_four.load(SeqCst) { GidBytes::TwentyFour } else { GidBytes::Sixteen }
    }
}

/// A participant's nodes as CDR, the encapsulation included.
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
        cdr.text(node.namespace.as_bytes())?;
        cdr.text(node.name.as_bytes())?;
        for gids in [&node.readers, &node.writers] {
            cdr.length(gids.len())?;
            gids.iter().try_for_each(|gid| put_gid(&mut cdr, gid))?;
        }
    }
    Ok(cdr.finish())
}

/// What a participant's message says; `None` if it is no such message. The size of a GUID is
/// found by trying both.
pub fn read(cdr: &[u8]) -> Option<(Gid, Vec<Node>, GidBytes)> {
    [GidBytes::Sixteen, GidBytes::TwentyFour].into_iter().find_map(|gid_bytes| {
        let message = Message { cdr: cdr_reader(cdr).ok()?, gid_bytes };
        message.whole().map(|(participant, nodes)| (participant, nodes, gid_bytes))
    })
}

struct Message<'a> {
    cdr: Reader<'a>,
    gid_bytes: GidBytes,
}

impl Message<'_> {
    fn whole(mut self) -> Option<(Gid, Vec<Node>)> {
        let participant = self.gid()?;
        let count = self.cdr.length().ok()?;
        let nodes = (0..count.min(MAX_NODES)).map(|_| self.node()).collect::<Option<_>>()?;
        at_end(&self.cdr, MAX_PADDING).ok()?;
        (count <= MAX_NODES).then_some((participant, nodes))
    }

    fn node(&mut self) -> Option<Node> {
        let (namespace, name) = (self.text()?, self.text()?);
        Some(Node { namespace, name, readers: self.gids()?, writers: self.gids()? })
    }

    fn gids(&mut self) -> Option<Vec<Gid>> {
        let count = self.cdr.length().ok()?;
        // A count that the bytes cannot hold ends at the first that is missing.
        (0..count).map(|_| self.gid()).collect()
    }

    fn gid(&mut self) -> Option<Gid> {
        self.cdr.numbers(1, self.gid_bytes as usize).ok()?.first_chunk().copied()
    }

    /// Always with its NUL, even if it is empty.
    fn text(&mut self) -> Option<String> {
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
    fn the_node_is_shown_at_once_then_at_intervals_and_never_left_as_it_was() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        assert_eq!(pace.due(start), Some(start));
        let mut shown = Vec::new();
        for ms in 0..1000 {
            pace.changed = true;
            shown.extend(pace.take(start + Duration::from_millis(ms)).then_some(ms));
        }
        assert_eq!(shown, (0..1000).step_by(100).collect::<Vec<_>>());
        let last = start + 10 * INTERVAL;
        assert_eq!(pace.due(start), Some(last), "the last change is shown as well");
        assert!(pace.take(last) && pace.due(last).is_none());
        pace.changed = true;
        assert!(pace.take(last + 2 * INTERVAL), "at once after a quiet time");
    }

    #[test]
    fn a_flood_of_messages_is_told_once_and_the_last_counts() {
        let heard = Heard::default();
        let message = |size| write(&[7; 16], &nodes(), size).unwrap();
        let (short, long) = (message(GidBytes::Sixteen), message(GidBytes::TwentyFour));
        assert!(!heard.take(&short) && !heard.take(b"nonsense"), "as was assumed");
        assert!(heard.take(&long));
        let flood = [&short, &long].repeat(100);
        assert!(!flood.iter().any(|it| heard.take(it)), "told already");
        assert_eq!(heard.look(), GidBytes::TwentyFour);
        assert!(!heard.take(&long) && heard.take(&short));
        assert_eq!(heard.look(), GidBytes::Sixteen);
    }

    #[test]
    fn what_was_written_is_read_whatever_the_size_of_guids() {
        for gid_bytes in [GidBytes::Sixteen, GidBytes::TwentyFour] {
            for nodes in [nodes(), Vec::new()] {
                let cdr = write(&[7; 16], &nodes, gid_bytes).unwrap();
                assert_eq!(read(&cdr), Some(([7; 16], nodes.clone(), gid_bytes)));
                let padded = [&cdr[..], &[0, 0, 0]].concat();
                assert_eq!(read(&padded), Some(([7; 16], nodes, gid_bytes)));
            }
        }
    }

    #[test]
    fn what_is_cut_or_claims_too_much_is_not_read() {
        let cdr = write(&[7; 16], &nodes(), GidBytes::Sixteen).unwrap();
        for length in 0..cdr.len() {
            assert_eq!(read(&cdr[..length]), None, "{length}");
        }
        let mut greedy = cdr.clone();
        greedy[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(read(&greedy), None);
        assert_eq!(read(&[cdr, vec![0; 4]].concat()), None);
    }
}
