// SPDX-License-Identifier: Apache-2.0
//! Numbers that distinguish the publishers of one topic.

use crate::{MAX_SOURCES, Source};
use std::collections::BTreeMap;

/// The source numbers in use, and the publishers of each.
#[derive(Debug, Default)]
pub struct SourceNumbers {
    users: BTreeMap<u32, u32>,
    /// The number after the one that was taken last.
    next: u32,
    /// Whether releases are not reported.
    pub silent: bool,
}

impl SourceNumbers {
    /// Takes the next free number after the last one taken: at peers, a number that has just been
    /// released may still stand for its last publisher. When all are in use, the highest is shared.
    pub fn take(&mut self) -> Source {
        let mut all = (self.next..MAX_SOURCES).chain(0..self.next);
        let free = all.find(|number| !self.users.contains_key(number));
        let number = free.unwrap_or(MAX_SOURCES - 1);
        self.next = (number + 1) % MAX_SOURCES;
        *self.users.entry(number).or_default() += 1;
        Source::local(number)
    }

    /// Releases a number; `true`: it is free, and the release is to be reported.
    pub fn release(&mut self, source: Source) -> bool {
        let users = self.users.entry(source.number).or_default();
        *users = users.saturating_sub(1);
        let gone = *users == 0;
        if gone {
            self.users.remove(&source.number);
        }
        gone && !self.silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_numbers_are_the_next_free_and_the_last_is_shared() {
        let mut numbers = SourceNumbers::default();
        let first = numbers.take();
        assert!(numbers.release(first));
        assert_ne!(numbers.take(), first, "a number is not taken again at once");
        let mut numbers = SourceNumbers::default();
        for expected in 0..MAX_SOURCES {
            assert_eq!(numbers.take(), Source::local(expected));
        }
        assert_eq!(numbers.take(), Source::local(MAX_SOURCES - 1));
        assert!(!numbers.release(Source::local(MAX_SOURCES - 1)), "still shared");
        assert!(numbers.release(Source::local(MAX_SOURCES - 1)));
        assert!(numbers.release(Source::local(3)));
        assert_eq!(numbers.take(), Source::local(3));
    }
}
