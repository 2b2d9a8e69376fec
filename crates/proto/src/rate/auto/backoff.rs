// SPDX-License-Identifier: Apache-2.0
//! Decides when a failed attempt may be repeated.

use super::tuning::Tuning;
use crate::time::{Duration, Instant};

/// The pause between attempts. It doubles with each failure in a row.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Backoff {
    next: Instant,
    pause: Duration,
}

impl Backoff {
    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.next
    }

    /// Time for which an attempt has been due; `None` if no attempt is due.
    pub(super) fn time_since_due(&self, now: Instant) -> Option<Duration> {
        self.is_due(now).then(|| now.since(self.next))
    }

    /// Records a success. The next attempt may follow immediately.
    pub(super) fn succeed(&mut self, now: Instant) {
        *self = Self { next: now, pause: Duration::ZERO };
    }

    /// Records an attempt whose result differs from the previous one. The pause is as long as after a first
    /// failure.
    pub(super) fn restart(&mut self, now: Instant, tuning: &Tuning) {
        self.pause = Duration::ZERO;
        self.postpone(now, tuning);
    }

    /// Records an inconclusive attempt.
    pub(super) fn postpone(&mut self, now: Instant, tuning: &Tuning) {
        self.next = now + self.pause.max(tuning.min_rest());
    }

    pub(super) fn fail(&mut self, now: Instant, tuning: &Tuning) {
        self.fail_within(now, tuning.min_rest(), tuning.max_rest());
    }

    /// Records a failure. The pause lasts at least `least` and at most `most`.
    pub(super) fn fail_within(&mut self, now: Instant, least: Duration, most: Duration) {
        self.pause = (self.pause * 2).clamp(least, most);
        self.next = now + self.pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_between_attempts_doubles_up_to_its_limit() {
        let tuning = Tuning::default();
        let (mut backoff, mut now) = (Backoff::default(), Instant(1));
        let mut pauses = Vec::new();
        for _ in 0..6 {
            backoff.fail(now, &tuning);
            let is_due = |s: &u64| backoff.is_due(now + Duration::from_secs(*s));
            pauses.push((0..100).find(is_due).unwrap());
            now = now + Duration::from_secs(*pauses.last().unwrap());
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 32]);
        backoff.succeed(now);
        assert!(backoff.is_due(now));
        backoff.postpone(now, &tuning);
        assert!(!backoff.is_due(now + Duration::from_secs(1)));
        assert!(backoff.is_due(now + Duration::from_secs(2)));
    }
}
