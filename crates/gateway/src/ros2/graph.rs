// SPDX-License-Identifier: Apache-2.0
//! Which node has which endpoints: `rmw_dds_common/msg/ParticipantEntitiesInfo`, which every
//! ROS 2 process publishes on [`TOPIC`] for all others (transient local, keep last 1).

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
pub fn write(participant: &Gid, nodes: &[Node], gid_bytes: GidBytes) -> Vec<u8> {
    let mut cdr = vec![0, 1, 0, 0];
    put_gid(&mut cdr, participant, gid_bytes);
    put_number(&mut cdr, nodes.len());
    for node in nodes {
        put_text(&mut cdr, &node.namespace);
        put_text(&mut cdr, &node.name);
        for gids in [&node.readers, &node.writers] {
            put_number(&mut cdr, gids.len());
            gids.iter().for_each(|gid| put_gid(&mut cdr, gid, gid_bytes));
        }
    }
    cdr
}

/// Of bytes the length is a multiple of four, so nothing needs padding.
fn put_gid(cdr: &mut Vec<u8>, gid: &Gid, bytes: GidBytes) {
    cdr.extend_from_slice(gid);
    cdr.resize(cdr.len() + bytes as usize - gid.len(), 0);
}

/// Aligned to four; the encapsulation's four bytes change nothing in that.
fn put_number(cdr: &mut Vec<u8>, number: usize) {
    cdr.resize(cdr.len().next_multiple_of(4), 0);
    cdr.extend_from_slice(&(number as u32).to_le_bytes());
}

fn put_text(cdr: &mut Vec<u8>, text: &str) {
    put_number(cdr, text.len() + 1);
    cdr.extend_from_slice(text.as_bytes());
    cdr.push(0);
}

/// What a participant's message says; `None` if it is no such message. The size of a GUID is
/// found by trying both.
pub fn read(cdr: &[u8]) -> Option<(Gid, Vec<Node>)> {
    let sizes = [GidBytes::Sixteen, GidBytes::TwentyFour];
    sizes.into_iter().find_map(|gid_bytes| Reader { cdr, at: 4, gid_bytes }.whole())
}

struct Reader<'a> {
    cdr: &'a [u8],
    at: usize,
    gid_bytes: GidBytes,
}

impl<'a> Reader<'a> {
    fn whole(mut self) -> Option<(Gid, Vec<Node>)> {
        if self.cdr.get(..2)? != [0, 1] {
            return None;
        }
        let participant = self.gid()?;
        let count = self.number()?;
        let nodes = (0..count.min(MAX_NODES)).map(|_| self.node()).collect::<Option<_>>()?;
        // Padding to a multiple of four may follow.
        (count <= MAX_NODES && self.cdr.len() < self.at + 4).then_some((participant, nodes))
    }

    fn node(&mut self) -> Option<Node> {
        let (namespace, name) = (self.text()?, self.text()?);
        Some(Node { namespace, name, readers: self.gids()?, writers: self.gids()? })
    }

    fn gids(&mut self) -> Option<Vec<Gid>> {
        let count = self.number()?;
        // A count that the bytes cannot hold ends at the first that is missing.
        (0..count).map(|_| self.gid()).collect()
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.cdr.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    fn gid(&mut self) -> Option<Gid> {
        self.take(self.gid_bytes as usize)?.first_chunk().copied()
    }

    fn number(&mut self) -> Option<usize> {
        self.at = self.at.next_multiple_of(4);
        Some(u32::from_le_bytes(*self.take(4)?.first_chunk()?) as usize)
    }

    fn text(&mut self) -> Option<String> {
        let length = self.number()?;
        let text = self.take(length)?.strip_suffix(&[0])?;
        String::from_utf8(text.to_vec()).ok()
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
                let cdr = write(&[7; 16], &nodes, gid_bytes);
                assert_eq!(read(&cdr), Some(([7; 16], nodes.clone())));
                let padded = [&cdr[..], &[0, 0, 0]].concat();
                assert_eq!(read(&padded), Some(([7; 16], nodes)));
            }
        }
    }

    #[test]
    fn what_is_cut_or_claims_too_much_is_not_read() {
        let cdr = write(&[7; 16], &nodes(), GidBytes::Sixteen);
        for length in 0..cdr.len() {
            assert_eq!(read(&cdr[..length]), None, "{length}");
        }
        let mut greedy = cdr.clone();
        greedy[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(read(&greedy), None);
        assert_eq!(read(&[cdr, vec![0; 4]].concat()), None);
    }
}
