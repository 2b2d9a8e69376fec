// SPDX-License-Identifier: Apache-2.0
//! A sliding window over the numbers of packets or messages, which detects duplicates.

/// Numbers that a window remembers.
pub(crate) const WINDOW: u64 = 1024;

/// The recorded numbers among the last [`WINDOW`] up to the highest. Older ones count as recorded.
#[derive(Debug, Default)]
pub(crate) struct ReplayWindow {
    highest: u64,
    /// Bit `n % WINDOW` is set if number `n` within the window was recorded.
    bits: [u64; (WINDOW / 64) as usize],
}

impl ReplayWindow {
    /// The highest number recorded; 0 before the first.
    pub(crate) fn highest(&self) -> u64 {
        self.highest
    }

    /// Whether `number` was recorded, or is too old to tell.
    pub(crate) fn contains(&self, number: u64) -> bool {
        number.saturating_add(WINDOW) <= self.highest
            || (number <= self.highest && self.bits[word(number)] & bit(number) != 0)
    }

    pub(crate) fn insert(&mut self, number: u64) {
        if number > self.highest {
            let first = (self.highest + 1).max(number.saturating_sub(WINDOW - 1));
            for skipped in first..=number {
                self.bits[word(skipped)] &= !bit(skipped);
            }
            self.highest = number;
        }
        self.bits[word(number)] |= bit(number);
    }
}

fn word(number: u64) -> usize {
    (number % WINDOW / 64) as usize
}

fn bit(number: u64) -> u64 {
    1 << (number % 64)
}
