// SPDX-License-Identifier: Apache-2.0
//! The messages of a peer's topic that this robot's ROS keeps for late joiners: of each publisher as
//! many as it keeps itself. A peer repeats them after an outage or a restart; they are known then.

use super::super::origin::Presence;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tautline_gateway::Kept;

/// Publishers of one topic of a peer whose messages are kept; further ones share the last number.
const MAX_PUBLISHERS: u32 = 256;

/// What happens to a message that its publisher keeps.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is published for the publisher with this number.
    New(u32),
    /// It was published before.
    Repeated,
}

/// Publishers have numbers of this node's choice, which continue over sessions of the peer.
#[derive(Debug, Default)]
pub(super) struct KeptMessages {
    publishers: BTreeMap<u32, Publisher>,
    /// The numbers here by the numbers that the peer uses in its current session.
    numbers: BTreeMap<u32, u32>,
    /// The revision of the last presence message.
    revision: u32,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Publisher {
    /// Identities and lengths, oldest first.
    messages: VecDeque<(u64, usize)>,
}

impl KeptMessages {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.publishers.is_empty()
    }

    /// The peer has a new session, in which its publishers may have other numbers.
    pub(super) fn new_session(&mut self) {
        self.numbers.clear();
        self.revision = 0;
    }

    /// Judges a message of the publisher with the peer's number `theirs`.
    pub(super) fn judge(&mut self, theirs: u32, kept: &Kept) -> Verdict {
        let has = |it: &Publisher| it.messages.iter().any(|(known, _)| *known == kept.identity);
        if kept.is_repeatable {
            let known = self.publishers.iter().find(|(_, it)| has(it)).map(|(number, _)| *number);
            if let Some(number) = known {
                self.numbers.entry(theirs).or_insert(number);
                return Verdict::Repeated;
            }
        }
        if let Some(known) = self.numbers.get(&theirs) {
            return Verdict::New(*known);
        }
        let free = (0..MAX_PUBLISHERS).find(|number| !self.publishers.contains_key(number));
        let number = free.unwrap_or(MAX_PUBLISHERS - 1);
        self.numbers.insert(theirs, number);
        Verdict::New(number)
    }

    /// Returns the bytes that would be kept after another message of `len` bytes.
    pub(super) fn bytes_with(&self, number: u32, len: usize, depth: u32) -> usize {
        let known = self.publishers.get(&number);
        let surplus =
            known.map_or(0, |it| (it.messages.len() + 1).saturating_sub(depth.max(1) as usize));
        let oldest = known.into_iter().flat_map(|it| &it.messages).take(surplus);
        self.bytes - oldest.map(|(_, bytes)| bytes).sum::<usize>() + len
    }

    /// Counts another published message.
    pub(super) fn add(&mut self, number: u32, (identity, len): (u64, usize), depth: u32) {
        self.bytes = self.bytes_with(number, len, depth);
        let messages = &mut self.publishers.entry(number).or_default().messages;
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
            |theirs: u32| presence.sources.checked_shr(theirs).is_some_and(|bits| bits & 1 == 1);
        self.numbers.retain(|theirs, _| is_present(*theirs));
        let present: BTreeSet<u32> = self.numbers.values().copied().collect();
        let gone = self.publishers.extract_if(.., |number, _| !present.contains(number));
        let gone: Vec<(u32, Publisher)> = gone.collect();
        let bytes = gone.iter().flat_map(|(_, it)| &it.messages).map(|(_, bytes)| bytes);
        self.bytes -= bytes.sum::<usize>();
        gone.into_iter().map(|(number, _)| number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(identity: u64, is_repeatable: bool) -> Kept {
        Kept { identity, depth: 1, is_repeatable }
    }

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
    fn what_was_published_is_known_in_the_next_session_under_another_number() {
        let mut known = KeptMessages::default();
        assert_eq!(known.judge(3, &kept(30, false)), Verdict::New(0));
        known.add(0, (30, 1), 1);
        assert_eq!(known.judge(3, &kept(30, false)), Verdict::New(0), "published again");
        assert_eq!(known.judge(3, &kept(30, true)), Verdict::Repeated);
        known.new_session();
        assert_eq!(known.judge(7, &kept(30, true)), Verdict::Repeated);
        assert_eq!(known.judge(7, &kept(31, false)), Verdict::New(0));
        assert_eq!(known.judge(3, &kept(32, true)), Verdict::New(1), "another publisher");
    }

    #[test]
    fn messages_of_publishers_that_left_are_forgotten() {
        let mut known = KeptMessages::default();
        for theirs in [0, 5] {
            let Verdict::New(number) = known.judge(theirs, &kept(theirs.into(), false)) else {
                panic!("{theirs}")
            };
            known.add(number, (theirs.into(), 100), 1);
        }
        let presence = |revision, sources| Presence { revision, sources };
        assert_eq!(known.on_presence(presence(1, 0b10_0001)), [0; 0]);
        assert_eq!(known.on_presence(presence(3, 0b10_0000)), [0]);
        assert_eq!(known.on_presence(presence(2, 0)), [0; 0], "an older one");
        assert_eq!(known.bytes(), 100);
        known.new_session();
        assert_eq!(known.on_presence(presence(1, u64::MAX)), [1], "not confirmed in this session");
        assert!(known.is_empty() && known.bytes() == 0);
    }
}
