// SPDX-License-Identifier: Apache-2.0
//! The messages of a peer's topic that this robot's ROS keeps for late joiners. For each publisher,
//! it keeps as many as the publisher itself keeps.

use crate::topics::origin::Presence;
use std::collections::{BTreeMap, VecDeque};
use tautline_gateway::{Kept, MAX_SOURCES};

/// The kept messages of one topic, by publisher. Publishers have the numbers of the peer's current session.
#[derive(Debug, Default)]
pub(super) struct KeptMessages {
    publishers: BTreeMap<u32, Publisher>,
    /// The revision of the last presence message.
    revision: u32,
    /// For each publisher number, the last revision that did not list it.
    absent: BTreeMap<u32, u32>,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Publisher {
    /// Identities and lengths of the publisher's messages, oldest first.
    messages: VecDeque<(u64, usize)>,
    /// The revision of the publisher's last message.
    revision: u32,
}

impl KeptMessages {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the numbers of the publishers with messages.
    pub(super) fn publishers(&self) -> Vec<u32> {
        self.publishers.keys().copied().collect()
    }

    /// Whether a message repeats a kept message of the same publisher.
    pub(super) fn has(&self, number: u32, kept: &Kept) -> bool {
        let mut messages = self.publishers.get(&number).into_iter().flat_map(|it| &it.messages);
        kept.is_repeatable && messages.any(|(identity, _)| *identity == kept.identity)
    }

    /// Whether a message is kept under the number of another publisher.
    pub(super) fn has_under_other_number(&self, number: u32, identity: u64) -> bool {
        let others = self.publishers.iter().filter(|(other, _)| **other != number);
        others.flat_map(|(_, it)| &it.messages).any(|(other, _)| *other == identity)
    }

    /// Returns the bytes that would be kept after another message of `len` bytes.
    pub(super) fn bytes_after_adding(&self, number: u32, len: usize, depth: u32) -> usize {
        let known = self.publishers.get(&number).map(|it| &it.messages);
        let surplus = known.map_or(0, |it| (it.len() + 1).saturating_sub(depth.max(1) as usize));
        let oldest = known.into_iter().flatten().take(surplus);
        self.bytes - oldest.map(|(_, bytes)| bytes).sum::<usize>() + len
    }

    /// Whether the peer has reported that a publisher left after it sent a message.
    pub(super) fn has_left(&self, number: u32, revision: u32) -> bool {
        self.absent.get(&number).is_some_and(|absent| revision < *absent)
    }

    /// Counts another published message, which was sent under `revision`.
    pub(super) fn add(
        &mut self,
        number: u32,
        (identity, len): (u64, usize),
        depth: u32,
        revision: u32,
    ) {
        self.bytes = self.bytes_after_adding(number, len, depth);
        let publisher = self.publishers.entry(number).or_default();
        publisher.revision = publisher.revision.max(revision);
        let messages = &mut publisher.messages;
        messages.push_back((identity, len));
        while messages.len() > depth.max(1) as usize {
            messages.pop_front();
        }
    }

    /// Forgets the publishers that the peer no longer has, and returns their numbers.
    pub(super) fn on_presence(&mut self, presence: Presence) -> Vec<u32> {
        if presence.revision <= self.revision {
            return Vec::new();
        }
        self.revision = presence.revision;
        let absent = (0..MAX_SOURCES).filter(|number| !presence.has(*number));
        self.absent.extend(absent.map(|number| (number, presence.revision)));
        let has_left = |number: &u32, it: &mut Publisher| {
            it.revision < presence.revision && !presence.has(*number)
        };
        let gone: Vec<(u32, Publisher)> = self.publishers.extract_if(.., has_left).collect();
        let bytes = gone.iter().flat_map(|(_, it)| &it.messages).map(|(_, bytes)| bytes);
        self.bytes -= bytes.sum::<usize>();
        gone.into_iter().map(|(number, _)| number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_messages_of_each_publisher_are_kept() {
        let mut kept = KeptMessages::default();
        for len in [100, 200, 300] {
            kept.add(1, (0, len), 2, 0);
        }
        assert_eq!(kept.bytes(), 500);
        assert_eq!(kept.bytes_after_adding(1, 7, 2), 307);
        assert_eq!(kept.bytes_after_adding(2, 7, 2), 507);
        kept.add(1, (0, 7), 1, 0);
        assert_eq!(kept.bytes(), 7);
    }

    #[test]
    fn a_message_is_repeated_only_where_its_identity_is_certain() {
        let mut known = KeptMessages::default();
        known.add(3, (30, 1), 1, 0);
        let kept =
            |identity, is_repeatable| Kept { identity, depth: 1, is_repeatable, ..Kept::default() };
        assert!(known.has(3, &kept(30, true)) && !known.has(3, &kept(30, false)));
        assert!(!known.has(3, &kept(31, true)) && !known.has(4, &kept(30, true)));
    }

    #[test]
    fn messages_of_departed_publishers_are_removed() {
        let mut known = KeptMessages::default();
        known.add(0, (0, 100), 1, 0);
        known.add(5, (5, 100), 1, 0);
        let presence = |revision, sources| Presence { revision, sources };
        assert_eq!(known.on_presence(presence(1, 0b10_0001)), [0; 0]);
        assert_eq!(known.on_presence(presence(3, 0b10_0000)), [0]);
        assert_eq!(known.on_presence(presence(2, 0)), [0; 0], "an older one");
        assert!(known.has_left(0, 2), "sent before");
        assert!(!known.has_left(0, 3) && !known.has_left(5, 0));
        // A new publisher takes the number, and its message overtakes the presence message.
        known.add(0, (0, 100), 1, 4);
        assert_eq!(known.on_presence(presence(4, 0b10_0000)), [0; 0]);
        assert_eq!(known.on_presence(presence(5, 0b10_0000)), [0]);
        assert_eq!(known.on_presence(presence(6, 0b10_0001)), [0; 0]);
        assert!(known.has_left(0, 4), "of an earlier publisher with the number");
        assert!(known.has_under_other_number(0, 5) && !known.has_under_other_number(5, 5));
        assert_eq!((known.bytes(), known.publishers()), (100, vec![5]));
    }
}
