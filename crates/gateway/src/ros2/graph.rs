// SPDX-License-Identifier: Apache-2.0
//! Which node has which endpoints: `rmw_dds_common/msg/ParticipantEntitiesInfo`, which every
//! ROS 2 process publishes on [`TOPIC`] for all others (transient local, keep last 1).

use crate::types::transcode::cursor::{Reader, Writer};
use crate::types::transcode::{MAX_PADDING, TranscodeError, at_end, cdr_reader, cdr_writer};

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
