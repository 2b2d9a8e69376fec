// SPDX-License-Identifier: Apache-2.0
//! Sets of byte ranges, and the reassembly of messages from fragments.

use std::ops::Range;

/// Maximum number of ranges in a set. A fragment that would exceed the limit is refused, so that hostile
/// fragments of one byte cannot make every insertion slow.
pub(crate) const MAX_RANGES: usize = 4096;

/// Disjoint, non-adjacent ranges in ascending order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RangeSet {
    ranges: Vec<Range<u32>>,
}

impl RangeSet {
    /// Adds `range`; returns the number of its bytes that are new, or `None` at the limit of ranges.
    pub(crate) fn insert(&mut self, range: Range<u32>) -> Option<u32> {
        if range.is_empty() {
            return Some(0);
        }
        let from = self.ranges.partition_point(|r| r.end < range.start);
        let to = self.ranges.partition_point(|r| r.start <= range.end);
        if from == to && self.ranges.len() == MAX_RANGES {
            return None;
        }
        let mut merged = range.clone();
        let mut known = 0;
        for r in &self.ranges[from..to] {
            merged.start = merged.start.min(r.start);
            merged.end = merged.end.max(r.end);
            known += r.end.min(range.end).saturating_sub(r.start.max(range.start));
        }
        self.ranges.splice(from..to, [merged]);
        Some(range.end - range.start - known)
    }

    /// Removes `range`.
    pub(crate) fn remove(&mut self, range: &Range<u32>) {
        if range.is_empty() {
            return;
        }
        let from = self.ranges.partition_point(|r| r.end <= range.start);
        let to = self.ranges.partition_point(|r| r.start < range.end);
        if from >= to {
            return;
        }
        let left = self.ranges[from].start..range.start;
        let right = range.end..self.ranges[to - 1].end;
        let rest = [left, right].into_iter().filter(|r| r.start < r.end);
        self.ranges.splice(from..to, rest.collect::<Vec<_>>());
    }

    pub(crate) fn first(&self) -> Option<Range<u32>> {
        self.ranges.first().cloned()
    }

    pub(crate) fn contains(&self, range: &Range<u32>) -> bool {
        let at = self.ranges.partition_point(|r| r.end < range.end);
        self.ranges.get(at).is_some_and(|r| r.start <= range.start && r.end >= range.end)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Range<u32>> {
        self.ranges.iter()
    }

    /// Bytes in the set.
    pub(crate) fn len(&self) -> u64 {
        self.ranges.iter().map(|r| u64::from(r.end - r.start)).sum()
    }
}

/// An incomplete message.
#[derive(Debug)]
pub(crate) struct ReassemblyBuffer {
    /// While no gap has been seen: the bytes that arrived, from the beginning. After the first gap: the whole
    /// message, with zeros where nothing has arrived.
    buffer: Vec<u8>,
    total: u32,
    arrived: RangeSet,
    missing: u32,
}

/// The effect of a fragment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum InsertOutcome {
    /// The fragment has no new bytes.
    Duplicate,
    /// The message is still incomplete.
    Incomplete,
    /// The message is complete.
    Complete,
    /// The fragment contradicts earlier ones or exceeds the limit of ranges.
    Refused,
}

impl ReassemblyBuffer {
    /// Expects `total` bytes, at least 1. The memory is not touched until fragments arrive.
    pub(crate) fn new(total: u32) -> Self {
        let buffer = Vec::with_capacity(total as usize);
        Self { buffer, total, arrived: RangeSet::default(), missing: total }
    }

    pub(crate) fn total(&self) -> u32 {
        self.total
    }

    pub(crate) fn insert(&mut self, total: u32, offset: u32, piece: &[u8]) -> InsertOutcome {
        let end = offset as usize + piece.len();
        if total != self.total || end > self.total as usize {
            return InsertOutcome::Refused;
        }
        match self.arrived.insert(offset..end as u32) {
            None => InsertOutcome::Refused,
            Some(0) => InsertOutcome::Duplicate,
            Some(new) => {
                self.write(offset as usize, piece);
                self.missing -= new;
                if self.missing == 0 { InsertOutcome::Complete } else { InsertOutcome::Incomplete }
            }
        }
    }

    /// Writes a fragment. Most fragments arrive in order: each is appended, and no byte is written twice. A
    /// gap costs no more than the bytes that arrived, however far ahead its fragment is.
    fn write(&mut self, offset: usize, piece: &[u8]) {
        if offset > self.buffer.len() {
            let mut whole = vec![0; self.total as usize];
            whole[..self.buffer.len()].copy_from_slice(&self.buffer);
            self.buffer = whole;
        }
        let known = piece.len().min(self.buffer.len() - offset);
        self.buffer[offset..offset + known].copy_from_slice(&piece[..known]);
        self.buffer.extend_from_slice(&piece[known..]);
    }

    pub(crate) fn into_buffer(self) -> Vec<u8> {
        self.buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn members(set: &RangeSet) -> Vec<u32> {
        set.iter().flat_map(Clone::clone).collect()
    }

    proptest! {
        #[test]
        fn a_range_set_matches_a_set_of_bytes(ops in prop::collection::vec((any::<bool>(), 0u32..60, 0u32..20), 0..40)) {
            let mut set = RangeSet::default();
            let mut model = std::collections::BTreeSet::new();
            for (insert, start, len) in ops {
                let range = start..start + len;
                if insert {
                    let new = range.clone().filter(|b| model.insert(*b)).count();
                    prop_assert_eq!(set.insert(range.clone()), Some(new as u32));
                    prop_assert!(range.is_empty() || set.contains(&range));
                } else {
                    set.remove(&range);
                    model.retain(|b| !range.contains(b));
                }
                prop_assert_eq!(members(&set), model.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!(set.len(), model.len() as u64);
                let adjacent = set.ranges.windows(2).any(|w| w[0].end >= w[1].start);
                prop_assert!(!adjacent, "ranges touch: {:?}", set);
            }
        }

        #[test]
        fn fragments_in_any_order_with_repetitions_form_the_message(
            message in prop::collection::vec(any::<u8>(), 1..3000),
            size in 1usize..400,
            order in any::<prop::sample::Index>(),
            again in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
        ) {
            let mut pieces: Vec<_> = message.chunks(size).enumerate().map(|(i, p)| ((i * size) as u32, p)).collect();
            let middle = order.index(pieces.len());
            pieces.rotate_left(middle);
            for index in again {
                let piece = pieces[index.index(pieces.len())];
                pieces.insert(0, piece);
            }
            let total = message.len() as u32;
            let mut partial = ReassemblyBuffer::new(total);
            let mut whole = 0;
            for (offset, piece) in pieces {
                whole += usize::from(partial.insert(total, offset, piece) == InsertOutcome::Complete);
            }
            prop_assert_eq!(whole, 1);
            prop_assert_eq!(partial.into_buffer(), message);
        }
    }

    #[test]
    fn holes_are_bounded() {
        let mut set = RangeSet::default();
        for i in 0..MAX_RANGES as u32 {
            assert_eq!(set.insert(i * 2..i * 2 + 1), Some(1));
        }
        let beyond = MAX_RANGES as u32 * 2;
        assert_eq!(set.insert(beyond..beyond + 1), None);
        assert_eq!(set.insert(1..2), Some(1), "a fragment that fills a hole is still accepted");
    }
}
