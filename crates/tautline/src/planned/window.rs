// SPDX-License-Identifier: Apache-2.0
//! Growth of counters over a time window, computed from samples.

use std::collections::VecDeque;
use tautline_proto::{Duration, Instant};

/// Number of samples in a full window.
const SAMPLES: u32 = 10;

/// Samples of counters that grow.
#[derive(Debug)]
pub(super) struct Window<const COUNTERS: usize> {
    length: Duration,
    /// Samples, oldest first. Once the window is full, the oldest sample is as old as the window.
    samples: VecDeque<(Instant, [u64; COUNTERS])>,
}

/// The growth of the counters over a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Growth<const COUNTERS: usize> {
    pub(super) seconds: f64,
    pub(super) counts: [u64; COUNTERS],
}

impl<const COUNTERS: usize> Window<COUNTERS> {
    pub(super) fn new(length: Duration) -> Self {
        Self { length, samples: VecDeque::new() }
    }

    pub(super) fn length(&self) -> Duration {
        self.length
    }

    /// Takes a sample. Returns the growth over the window, once it is full. A counter that fell has
    /// restarted; the window then restarts as well.
    pub(super) fn add(
        &mut self,
        now: Instant,
        counts: [u64; COUNTERS],
    ) -> Option<Growth<COUNTERS>> {
        let fell = |last: &[u64; COUNTERS]| last.iter().zip(&counts).any(|(last, it)| it < last);
        if self.samples.back().is_some_and(|(_, last)| fell(last)) {
            self.samples.clear();
        }
        let is_old = |at: Instant| now.since(at) >= self.length;
        while self.samples.get(1).is_some_and(|(at, _)| is_old(*at)) {
            self.samples.pop_front();
        }
        let oldest = self.samples.front().filter(|(at, _)| is_old(*at)).copied();
        let step = self.length / SAMPLES;
        if self.samples.back().is_none_or(|(at, _)| now.since(*at) >= step) {
            self.samples.push_back((now, counts));
        }
        let (at, before) = oldest?;
        let grown = std::array::from_fn(|it| counts[it] - before[it]);
        Some(Growth { seconds: now.since(at).as_secs_f64(), counts: grown })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant(0) + Duration::from_secs(seconds)
    }

    #[test]
    fn growth_is_that_of_the_window_and_memory_is_bounded() {
        let mut window = Window::new(Duration::from_secs(20));
        for second in 0..1000 {
            let grown = window.add(at(second), [second * 7]);
            match grown {
                None => assert!(second < 20),
                Some(Growth { seconds, counts: [count] }) => {
                    assert!((20.0..22.0).contains(&seconds), "{seconds}");
                    assert_eq!(count as f64, 7.0 * seconds);
                }
            }
            assert!(window.samples.len() <= 12);
        }
    }

    #[test]
    fn a_counter_that_restarts_begins_a_new_window() {
        let mut window = Window::new(Duration::from_secs(10));
        assert!((0..=9).all(|second| window.add(at(second), [100 + second]).is_none()));
        assert_eq!(window.add(at(10), [3]), None);
        assert_eq!(window.add(at(19), [4]), None);
        assert_eq!(window.add(at(20), [5]), Some(Growth { seconds: 10.0, counts: [2] }));
    }
}
