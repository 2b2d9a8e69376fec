// SPDX-License-Identifier: Apache-2.0
//! ECN marks of a bottleneck. They show congestion directly, so that no dip has to test it.

use super::sample::Sample;
use crate::time::{Duration, Instant};

/// For this time after a mark, the bottleneck counts as one that marks packets. A TCP alongside fills the
/// queue again within this time.
const MARK_MEMORY: Duration = Duration::from_secs(10);

/// The time at which the controller last answered marks with a lower rate.
#[derive(Debug, Default)]
pub(super) struct Marks(Option<Instant>);

impl Marks {
    /// Takes a sample. Returns the share of its packets that were marked, if the marks call for an answer.
    /// Marks of packets sent before the last answer do not.
    pub(super) fn on_sample(
        &mut self,
        now: Instant,
        sample: &Sample,
        feedback_time: Duration,
    ) -> Option<f64> {
        let is_new = self.0.is_none_or(|at| sample.since.since(at) >= feedback_time);
        let share = sample.marked / sample.losses.packets.max(1.0);
        let answers = is_new && share > 0.0;
        if answers {
            self.0 = Some(now);
        }
        answers.then(|| share.min(1.0))
    }

    pub(super) fn are_recent(&self, now: Instant) -> bool {
        self.0.is_some_and(|at| now.since(at) < MARK_MEMORY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_answered_once_for_each_feedback_time() {
        let ms = Duration::from_millis;
        let mut marks = Marks::default();
        let mut answered = |at: u64, marked: f64| {
            let since = Instant(1) + ms(at);
            let sample = Sample { since, marked, ..Sample::steady(1e6) };
            marks.on_sample(since + ms(5), &sample, ms(20))
        };
        assert_eq!(answered(0, 0.0), None);
        assert_eq!(answered(10, 5.0), Some(0.25));
        assert_eq!((answered(15, 20.0), answered(30, 20.0)), (None, None));
        assert_eq!(answered(35, 1e9), Some(1.0));
        assert!(marks.are_recent(Instant(1) + ms(9000)));
        assert!(!marks.are_recent(Instant(1) + ms(11_000)));
    }
}
