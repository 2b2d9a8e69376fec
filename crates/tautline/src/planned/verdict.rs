// SPDX-License-Identifier: Apache-2.0
//! Verdicts about assumptions. An assumption fails, or holds again, only after a time in which
//! every reading says so.

use tautline_proto::{Duration, Instant};

/// What one reading says about an assumption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judgement {
    Holds,
    /// The value is between the limits: the verdict does not change.
    Between,
    Fails,
}

impl Judgement {
    /// Judges a value that must not exceed `fails_above`. It clearly holds only up to the lower
    /// limit `holds_to`.
    pub(super) fn with_limits(value: f64, fails_above: f64, holds_to: f64) -> Self {
        match value {
            it if it > fails_above => Self::Fails,
            it if it <= holds_to => Self::Holds,
            _ => Self::Between,
        }
    }
}

/// A change of a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VerdictChange {
    Failed,
    Holds,
}

/// The state of one assumption.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    failed_at: Option<Instant>,
    /// Time since which all readings contradict the verdict.
    contradicted_since: Option<Instant>,
}

impl Verdict {
    pub(super) fn failed_at(&self) -> Option<Instant> {
        self.failed_at
    }

    /// Notes that there was no reading: the time of contradiction begins again.
    pub(super) fn interrupt(&mut self) {
        self.contradicted_since = None;
    }

    /// Takes a reading. The verdict turns once all readings for the time `sustained` contradict it.
    pub(super) fn follow(
        &mut self,
        now: Instant,
        reading: Judgement,
        sustained: Duration,
    ) -> Option<VerdictChange> {
        let contrary = match self.failed_at {
            None => Judgement::Fails,
            Some(_) => Judgement::Holds,
        };
        if reading != contrary {
            self.interrupt();
            return None;
        }
        let since = *self.contradicted_since.get_or_insert(now);
        if now.since(since) < sustained {
            return None;
        }
        self.contradicted_since = None;
        match self.failed_at.take() {
            Some(_) => Some(VerdictChange::Holds),
            None => {
                self.failed_at = Some(now);
                Some(VerdictChange::Failed)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Judgement::{Between, Fails, Holds};

    const SUSTAINED: Duration = Duration::from_secs(20);

    /// Returns the turns, each with its second. There is one reading per second.
    fn turns(readings: impl IntoIterator<Item = Option<Judgement>>) -> Vec<(u64, VerdictChange)> {
        let mut verdict = Verdict::default();
        let mut turns = Vec::new();
        for (second, reading) in (0..).zip(readings) {
            let now = Instant(0) + Duration::from_secs(second);
            match reading {
                None => verdict.interrupt(),
                Some(it) => {
                    turns.extend(verdict.follow(now, it, SUSTAINED).map(|it| (second, it)));
                }
            }
        }
        turns
    }

    #[test]
    fn only_a_sustained_failure_is_reported_once() {
        let fails = [Some(Fails); 100];
        assert_eq!(turns(fails), [(20, VerdictChange::Failed)]);
        let mut short = fails;
        (0..100).step_by(20).for_each(|second| short[second] = Some(Holds));
        assert_eq!(turns(short), []);
        (0..100).step_by(20).for_each(|second| short[second] = None);
        assert_eq!(turns(short), []);
    }

    #[test]
    fn a_value_around_the_limit_does_not_change_the_verdict() {
        let begin = [Some(Fails); 30];
        let wavering = [Fails, Between, Holds].map(Some).repeat(100);
        let end = [Some(Holds); 30];
        let all = begin.into_iter().chain(wavering).chain(end);
        assert_eq!(turns(all), [(20, VerdictChange::Failed), (349, VerdictChange::Holds)]);
    }

    #[test]
    fn values_above_and_below_the_limits_fail() {
        let judge = |value| Judgement::with_limits(value, 1.1, 1.05);
        assert_eq!([1.05, 1.06, 1.1, 1.11].map(judge), [Holds, Between, Between, Fails]);
    }
}
