// SPDX-License-Identifier: Apache-2.0
//! The rate at which packets were last lost in a queue that is too short to show in the delay, such as that
//! of a policer. Each loss at the same rate doubles the time until the next attempt to exceed that rate.

use super::backoff::Backoff;
use super::tuning::Tuning;
use crate::time::{Duration, Instant};

/// Losses at a rate within this part of the known limit count as losses at the same limit.
const LIMIT_TOLERANCE: f64 = 0.15;
/// After the pause, the estimate may briefly exceed the limit by at most this part. Later it grows by no more
/// than this part in one step, and by twice as much after each second without losses: the limit may be gone.
const CAREFUL_GROWTH: f64 = 0.1;
const FIRST_ATTEMPT: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
pub(super) struct Limit {
    rate: f64,
    attempts: Backoff,
}

impl Limit {
    /// Records that the path carries no more than `rate`, in bits per second.
    pub(super) fn on_congestion(&mut self, now: Instant, rate: f64, tuning: &Tuning) {
        if (rate - self.rate).abs() > LIMIT_TOLERANCE * self.rate {
            self.attempts = Backoff::default();
        }
        self.rate = rate;
        self.attempts.fail_within(now, tuning.min_rest() / 4, tuning.max_rest() / 2);
    }

    /// The highest rate to which an estimate may grow in one step.
    pub(super) fn max_rate(&self, now: Instant, estimate: f64) -> f64 {
        match self.attempts.time_since_due(now) {
            _ if self.rate == 0.0 => f64::INFINITY,
            None => self.rate,
            Some(since) if since < FIRST_ATTEMPT => self.rate * (1.0 + CAREFUL_GROWTH),
            Some(since) => {
                let seconds = (since - FIRST_ATTEMPT).as_secs_f64().floor();
                estimate * (1.0 + CAREFUL_GROWTH * seconds.exp2())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confirmed_limit_is_tested_at_growing_intervals() {
        let tuning = Tuning::default();
        let mut limit = Limit::default();
        let second = |seconds: f64| Instant((seconds * 1e9) as u64);
        assert_eq!(limit.max_rate(second(1.0), 2e6), f64::INFINITY);
        limit.on_congestion(second(10.0), 2e6, &tuning);
        assert_eq!(limit.max_rate(second(10.1), 1e6), 2e6);
        assert_eq!(limit.max_rate(second(10.6), 1.9e6), 2.2e6);
        assert_eq!(limit.max_rate(second(11.0), 2.2e6), 2.2e6 * 1.1);
        assert_eq!(limit.max_rate(second(12.0), 2e6), 2.4e6);
        (0..5).for_each(|_| limit.on_congestion(second(14.0), 2.1e6, &tuning));
        assert_eq!(limit.max_rate(second(29.0), 1e6), 2.1e6);
        limit.on_congestion(second(20.0), 1e6, &tuning);
        assert_eq!(limit.max_rate(second(21.0), 1e6), 1.1e6);
    }
}
