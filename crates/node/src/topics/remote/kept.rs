// SPDX-License-Identifier: Apache-2.0
//! The messages of a peer's topic that this robot's ROS keeps for late joiners: of each publisher as
//! many as it keeps itself.

use super::super::origin::Presence;
use std::collections::{BTreeMap, VecDeque};
use tautline_gateway::Kept;

/// Publishers have the numbers of the peer's current session.
#[derive(Debug, Default)]
pub(super) struct KeptMessages {
    /// Identities and lengths of the messages of each publisher, oldest first.
    publishers: BTreeMap<u32, VecDeque<(u64, usize)>>,
    /// The revision of the last presence message.
    revision: u32,
    bytes: usize,
}

impl KeptMessages {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The publishers with messages.
    pub(super) fn publishers(&self) -> Vec<u32> {
        self.publishers.keys().copied().collect()
    }

    /// Whether a message repeats one that is kept.
    pub(super) fn has(&self, number: u32, kept: &Kept) -> bool {
        let mut messages = self.publishers.get(&number).into_iter().flatten();
        kept.is_repeatable && messages.any(|(identity, _)| *identity == kept.identity)
    }

    /// Returns the bytes that would be kept after another message of `len` bytes.
    pub(super) fn bytes_with(&self, number: u32, len: usize, depth: u32) -> usize {
        let known = self.publishers.get(&number);
        let surplus = known.map_or(0, |it| (it.len() + 1).saturating_sub(depth.max(1) as usize));
        let oldest = known.into_iter().flatten().take(surplus);
        self.bytes - oldest.map(|(_, bytes)| bytes).sum::<usize>() + len
    }

    /// Counts another published message.
    pub(super) fn add(&mut self, number: u32, (identity, len): (u64, usize), depth: u32) {
        self.bytes = self.bytes_with(number, len, depth);
        let messages = self.publishers.entry(number).or_default();
        messages.push_back((identity, len));
        while messages.len() > depth.max(1) as usize {
            messages.pop_front();
        }
    }

    /// Forgets the publishers that the peer does not have any more; returns their numbers.
    pub(super) fn on_presence(&mut self, presence: Presence) -> Vec<u32> {
        if presence.revision <= self.revision {
            return Vec::new();
        }
        self.revision = presence.revision;
        let is_present =
            |number: u32| presence.sources.checked_shr(number).is_some_and(|bits| bits & 1 == 1);
        let gone = self.publishers.extract_if(.., |number, _| !is_present(*number));
        let gone: Vec<(u32, VecDeque<_>)> = gone.collect();
        let bytes = gone.iter().flat_map(|(_, messages)| messages).map(|(_, bytes)| bytes);
        self.bytes -= bytes.sum::<usize>();
        gone.into_iter().map(|(number, _)| number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_messages_of_each_publisher_count() {
        let mut kept = KeptMessages::default();
        for len in [100, 200, 300] {
            kept.add(1, (0, len), 2);
        }
        assert_eq!(kept.bytes(), 500);
        assert_eq!(kept.bytes_with(1, 7, 2), 307);
        assert_eq!(kept.bytes_with(2, 7, 2), 507);
        kept.add(1, (0, 7), 1);
        assert_eq!(kept.bytes(), 7);
    }

    #[test]
    fn a_message_is_repeated_only_where_its_identity_is_certain() {
        let mut known = KeptMessages::default();
        known.add(3, (30, 1), 1);
        let kept =
            |identity, is_repeatable| Kept { identity, depth: 1, is_repeatable, ..Kept::default() };
        assert!(known.has(3, &kept(30, true)) && !known.has(3, &kept(30, false)));
        assert!(!known.has(3, &kept(31, true)) && !known.has(4, &kept(30, true)));
    }

    #[test]
    fn messages_of_publishers_that_left_are_forgotten() {
        let mut known = KeptMessages::default();
        known.add(0, (0, 100), 1);
        known.add(5, (5, 100), 1);
        let presence = |revision, sources| Presence { revision, sources };
        assert_eq!(known.on_presence(presence(1, 0b10_0001)), [0; 0]);
        assert_eq!(known.on_presence(presence(3, 0b10_0000)), [0]);
        assert_eq!(known.on_presence(presence(2, 0)), [0; 0], "an older one");
        assert_eq!((known.bytes(), known.publishers()), (100, vec![5]));
    }
}
