// SPDX-License-Identifier: Apache-2.0
//! A sliding window over the numbers of packets or messages. It detects duplicates.

/// How many message numbers of a source are remembered.
pub(crate) const MESSAGE_WINDOW: u64 = 1024;

/// The recorded numbers among the last `64 * WORDS` up to the highest. Older ones count as recorded.
#[derive(Debug)]
pub(crate) struct ReplayWindow<const WORDS: usize = { (MESSAGE_WINDOW / 64) as usize }> {
    highest: u64,
    /// Bit `n % (64 * WORDS)` is set if number `n` within the window was recorded.
    bits: [u64; WORDS],
}

impl<const WORDS: usize> Default for ReplayWindow<WORDS> {
    fn default() -> Self {
        Self { highest: 0, bits: [0; WORDS] }
    }
}

impl<const WORDS: usize> ReplayWindow<WORDS> {
    /// How many numbers the window remembers.
    pub(crate) const LEN: u64 = 64 * WORDS as u64;

    /// The highest number recorded; 0 before the first.
    pub(crate) fn highest(&self) -> u64 {
        self.highest
    }

    /// Whether `number` was recorded, or is too old to tell.
    pub(crate) fn contains(&self, number: u64) -> bool {
        number.saturating_add(Self::LEN) <= self.highest
            || (number <= self.highest && self.bits[Self::word(number)] & bit(number) != 0)
    }

    /// Returns the start of the run that ends with `last`, but at least `oldest`. The numbers of a
    /// run are all recorded or all missing. `oldest` and `last` are within the window.
    pub(crate) fn run_start(&self, oldest: u64, last: u64) -> u64 {
        let is_recorded = self.contains(last);
        let mut next = last;
        loop {
            let bits = self.bits[Self::word(next)];
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
            let first = (self.highest + 1).max(number.saturating_sub(Self::LEN - 1));
            for start in (first / 64..=number / 64).map(|word| (word * 64).max(first)) {
                let end = (start | 63).min(number);
                let skipped = (u64::MAX >> (63 - (end - start))) << (start % 64);
                self.bits[Self::word(start)] &= !skipped;
            }
            self.highest = number;
        }
        self.bits[Self::word(number)] |= bit(number);
    }

    fn word(number: u64) -> usize {
        (number % Self::LEN / 64) as usize
    }
}

fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_numbers_ends_at_the_first_difference() {
        // Runs of many lengths, around words and around the end of the window.
        let mut window = ReplayWindow::<16>::default();
        let mut number = 0;
        for length in 1..90 {
            number += length;
            (0..length % 7 * 30).for_each(|more| window.insert(number + more));
            number += length % 7 * 30;
            let highest = window.highest();
            let oldest = highest.saturating_sub(MESSAGE_WINDOW - 1).max(1);
            for last in oldest..=highest {
                let differs = |it: &u64| window.contains(*it) != window.contains(last);
                let start = (oldest..last).rev().find(differs).map_or(oldest, |it| it + 1);
                assert_eq!(window.run_start(oldest, last), start, "{oldest} to {last}");
            }
        }
    }

    #[test]
    fn the_highest_packet_numbers_are_accepted() {
        let mut window = ReplayWindow::<4>::default();
        for number in [5, u64::MAX - 1, u64::MAX] {
            window.insert(number);
            assert!(window.contains(number));
        }
        assert!(window.contains(5), "too old to tell");
    }

    #[test]
    fn a_window_equals_a_set_of_the_latest_numbers() {
        let mut window = ReplayWindow::<4>::default();
        let mut recorded = std::collections::BTreeSet::new();
        let (mut number, mut random) = (1_u64, 1_u64);
        for _ in 0..5000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let step = (random >> 33) % [2, 5, 70, 300][(random >> 60) as usize % 4];
            number =
                if random >> 63 == 0 { number + step } else { number.saturating_sub(step).max(1) };
            if number + 256 > window.highest() {
                window.insert(number);
                recorded.insert(number);
            }
            for it in (number.saturating_sub(300)..number + 300).filter(|it| *it > 0) {
                let expected = recorded.contains(&it) || it + 256 <= window.highest();
                assert_eq!(window.contains(it), expected, "{it} of {}", window.highest());
            }
        }
    }
}
