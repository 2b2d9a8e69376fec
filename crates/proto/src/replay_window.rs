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

    /// The start of the run that ends with `last`, whose numbers are all recorded or all missing,
    /// but not before `oldest`. Both are within the window.
    pub(crate) fn run_start(&self, oldest: u64, last: u64) -> u64 {
        let is_recorded = self.contains(last);
        let mut next = last;
        loop {
            let bits = self.bits[word(next)];
            let same = if is_recorded { bits } else { !bits };
            let up_to_next = next % 64 + 1;
            let run = u64::from((same << (64 - up_to_next)).leading_ones());
            if run == 0 {
                return next + 1;
            }
            let start = next - (run - 1);
            if start <= oldest || run < up_to_next {
                return start.max(oldest);
            }
            next = start - 1;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_where_numbers_begin_to_differ() {
        // Runs of many lengths, around words and around the end of the window.
        let mut window = ReplayWindow::default();
        let mut number = 0;
        for length in 1..90 {
            number += length;
            (0..length % 7 * 30).for_each(|more| window.insert(number + more));
            number += length % 7 * 30;
            let highest = window.highest();
            let oldest = highest.saturating_sub(WINDOW - 1).max(1);
            for last in oldest..=highest {
                let differs = |it: &u64| window.contains(*it) != window.contains(last);
                let start = (oldest..last).rev().find(differs).map_or(oldest, |it| it + 1);
                assert_eq!(window.run_start(oldest, last), start, "{oldest} to {last}");
            }
        }
    }
}
