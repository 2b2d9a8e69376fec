// SPDX-License-Identifier: Apache-2.0
//! The messages of local publishers that are kept for late joiners.

use super::topic::LocalTopic;
use crate::topics::message::Outgoing;
use crate::topics::origin::Presence;
use std::collections::VecDeque;
use tautline_gateway::Source;

/// Minimum number of messages kept per publisher, even if its depth is less: the depth may turn
/// out to be larger.
const MIN_LATCHED: usize = 16;

/// Maximum bytes kept per publisher for late joiners; a single larger message is kept as well.
const MAX_LATCHED_BYTES: usize = 16 << 20;

impl LocalTopic {
    /// Forgets the messages kept for late joiners: the gateway stops reading the topic, and a later
    /// subscription gets them from the publishers again.
    pub(super) fn forget_latched(&mut self) {
        self.latched.clear();
        self.held_back.clear();
        self.skipped_sources.clear();
        self.depths.clear();
        if let Some(transforms) = &mut self.transforms {
            transforms.forget();
        }
    }

    /// Whether messages are kept for late joiners, or are held back until they can be kept.
    pub(super) fn keeps_messages(&self) -> bool {
        !self.latched.is_empty() || !self.held_back.is_empty()
    }

    /// Returns the number of messages that a publisher keeps.
    pub(super) fn depth(&self, source: Source) -> u32 {
        self.depths.get(&source).copied().unwrap_or(1)
    }

    /// Returns the number of messages that receivers may keep of a publisher that keeps `depth`.
    /// Under a rate limit this is one: some messages before the last one were left out.
    pub(super) fn allowed_depth(&self, depth: u32) -> u32 {
        if self.treatment.period().is_some() { 1 } else { depth }
    }

    /// Gives a publisher another number.
    pub(super) fn renumber(&mut self, source: Source, successor: Source) {
        let known: Vec<Outgoing> = self.latched.remove(&source).into_iter().flatten().collect();
        if !known.is_empty() {
            let renamed =
                known.into_iter().map(|message| Outgoing { source: successor, ..message });
            self.latched.entry(successor).or_default().extend(renamed);
        }
        self.depths.remove(&source);
    }

    /// Keeps a message for late joiners, within [`MAX_LATCHED_BYTES`].
    pub(super) fn keep_latched(&mut self, mut message: Outgoing) {
        if let Some(kept) = &mut message.origin.kept {
            kept.is_for_late_joiners = false;
        }
        let most = (2 * self.depth(message.source) as usize).max(MIN_LATCHED);
        let kept = self.latched.entry(message.source).or_default();
        kept.push_back(message);
        let bytes =
            |kept: &VecDeque<Outgoing>| kept.iter().map(|it| it.payload.len()).sum::<usize>();
        while kept.len() > 1 && (kept.len() > most || bytes(kept) > MAX_LATCHED_BYTES) {
            kept.pop_front();
        }
    }

    /// Whether a message is a copy of a kept message. Publishers send such copies when they are
    /// connected again.
    pub(super) fn repeats_kept(&self, message: &Outgoing) -> bool {
        let is_same = |kept: &Outgoing, identity| {
            kept.origin.kept.is_some_and(|kept| kept.identity == identity)
        };
        let kept = message.origin.kept.filter(|kept| kept.is_repeatable);
        kept.is_some_and(|new| {
            let latched = self.latched.get(&message.source).into_iter().flatten();
            let held_back = self.held_back.iter().filter(|it| it.source == message.source);
            latched.chain(held_back).any(|kept| is_same(kept, new.identity))
        })
    }

    /// Returns the messages for a late joiner: from each publisher, as many as the publisher keeps.
    pub(super) fn messages_for_late_joiner(&self) -> Vec<Outgoing> {
        self.latched.keys().flat_map(|source| self.kept_messages_of(*source)).collect()
    }

    /// Returns the messages of one publisher for a late joiner.
    pub(super) fn kept_messages_of(&self, source: Source) -> Vec<Outgoing> {
        let Some(kept) = self.latched.get(&source) else { return Vec::new() };
        let surplus = kept.len().saturating_sub(self.depth(source) as usize);
        let mut messages: Vec<Outgoing> = kept.iter().skip(surplus).cloned().collect();
        for kept in messages.iter_mut().filter_map(|it| it.origin.kept.as_mut()) {
            kept.is_repeatable = true;
            kept.is_history = true;
        }
        messages
    }

    /// Returns which publishers have kept messages, under the next revision.
    pub(super) fn presence(&mut self) -> Presence {
        self.revision += 1;
        let bits = self.latched.keys().map(|source| 1u64.checked_shl(source.number).unwrap_or(0));
        Presence { revision: self.revision, sources: bits.fold(0, |all, bit| all | bit) }
    }
}
