// SPDX-License-Identifier: Apache-2.0
//! Lines of the log that a peer can bring about, by topics that come and go: at most so many
//! from one place in the code, and how many there were beyond.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines from one place within [`PERIOD`].
const MAX_LINES: u32 = 20;
const PERIOD: Duration = Duration::from_secs(30);

/// Of one place in the code, as a `static`.
#[derive(Debug)]
pub(crate) struct Sparing(Mutex<Lines>);

#[derive(Debug)]
struct Lines {
    begun: Option<Instant>,
    written: u32,
    left_out: u64,
}

impl Sparing {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Lines { begun: None, written: 0, left_out: 0 }))
    }

    /// How many lines were left out before this one, if this one may be written.
    pub(crate) fn next(&self) -> Option<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).next(Instant::now())
    }
}

impl Lines {
    fn next(&mut self, now: Instant) -> Option<u64> {
        if self.begun.is_none_or(|begun| now.saturating_duration_since(begun) >= PERIOD) {
            (self.begun, self.written) = (Some(now), 0);
        }
        if self.written == MAX_LINES {
            self.left_out = self.left_out.saturating_add(1);
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_lines_are_written_and_the_next_says_how_many_were_not() {
        let mut lines = Sparing::new().0.into_inner().unwrap();
        let now = Instant::now();
        let written = (0..1000).filter(|_| lines.next(now).is_some()).count();
        assert_eq!(written as u32, MAX_LINES);
        let later = now + PERIOD;
        assert_eq!([lines.next(later), lines.next(later)], [Some(980), Some(0)]);
    }
}
