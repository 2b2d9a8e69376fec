// SPDX-License-Identifier: Apache-2.0
//! Bytes that a latched topic of a peer makes this robot's ROS keep for late joiners: the last
//! messages of each publisher, as many as the topic's depth.

use std::collections::{BTreeMap, VecDeque};
use tautline_gateway::Source;

#[derive(Debug, Default)]
pub(super) struct Kept {
    lengths: BTreeMap<Source, VecDeque<usize>>,
    bytes: usize,
}

impl Kept {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the bytes that would be kept after another message of `len` bytes.
    pub(super) fn bytes_with(&self, source: Source, len: usize, depth: u32) -> usize {
        let known = self.lengths.get(&source);
        let surplus = known.map_or(0, |it| (it.len() + 1).saturating_sub(depth.max(1) as usize));
        let replaced: usize = known.into_iter().flatten().take(surplus).sum();
        self.bytes - replaced + len
    }

    /// Counts another published message.
    pub(super) fn add(&mut self, source: Source, len: usize, depth: u32) {
        self.bytes = self.bytes_with(source, len, depth);
        let lengths = self.lengths.entry(source).or_default();
        lengths.push_back(len);
        while lengths.len() > depth.max(1) as usize {
            lengths.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_messages_of_each_publisher_count() {
        let mut kept = Kept::default();
        for len in [100, 200, 300] {
            kept.add(Source::at_peer(0, 1), len, 2);
        }
        assert_eq!(kept.bytes(), 500);
        assert_eq!(kept.bytes_with(Source::at_peer(0, 1), 7, 2), 307);
        assert_eq!(kept.bytes_with(Source::at_peer(0, 2), 7, 2), 507);
        kept.add(Source::at_peer(0, 1), 7, 1);
        assert_eq!(kept.bytes(), 7);
    }
}
