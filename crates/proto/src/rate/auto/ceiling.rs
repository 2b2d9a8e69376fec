// SPDX-License-Identifier: Apache-2.0
//! The rate at which packets were last queued. Where stations contend for a channel, a queue shows
//! only when it is too late: at a rate a few percent lower, none is seen at all. Growth near the
//! ceiling is therefore slow, as on CUBIC's plateau (RFC 9438).

use crate::time::{Duration, Instant};

/// Growth is slow from this fraction of the ceiling.
const NEAR: f64 = 0.93;
/// An estimate beyond this multiple shows that the ceiling is outdated.
const OUTDATED: f64 = 1.2;

/// In bits per second, if known.
#[derive(Debug, Default)]
pub(super) struct Ceiling(Option<f64>);

/// How far the estimate may grow.
#[derive(Debug, PartialEq)]
pub(super) enum Growth {
    Gently,
    /// Up to this rate in bits per second.
    UpTo(f64),
}

impl Ceiling {
    /// Packets were queued at this delivery rate. The first ceiling is the `estimate`, and only
    /// where the delay was `unusual`: otherwise the delay may not have been a queue.
    pub(super) fn follow(&mut self, delivery_rate: f64, gain: f64, estimate: f64, unusual: bool) {
        self.0 = match self.0 {
            Some(ceiling) => Some(ceiling + gain * (delivery_rate - ceiling)),
            None => unusual.then_some(estimate),
        };
    }

    pub(super) fn forget(&mut self) {
        self.0 = None;
    }

    /// Growth from `estimate`. A path that is `clear` is not near its ceiling.
    pub(super) fn growth(&mut self, estimate: f64, clear: bool) -> Growth {
        match self.0 {
            Some(ceiling) if estimate < NEAR * ceiling => Growth::UpTo(NEAR * ceiling),
            Some(ceiling) if !clear && estimate <= OUTDATED * ceiling => Growth::Gently,
            _ => {
                self.0 = None;
                Growth::UpTo(f64::INFINITY)
            }
        }
    }
}

/// The least and the longest time without growth beyond a rate at which packets were lost.
const MIN_HOLD: Duration = Duration::from_millis(500);
const MAX_HOLD: Duration = Duration::from_secs(16);
/// Losses within this fraction of the last such rate are those of the same limit.
const SAME_LIMIT: f64 = 0.15;
/// After that time, the estimate grows by no more than this fraction at once, and by twice as much
/// after each second without losses: the limit may be gone.
const CAREFUL_GROWTH: f64 = 0.1;
const CAREFUL_TIME: Duration = Duration::from_secs(5);

/// The rate at which packets were last lost in a queue too short to show in the delay, as that of a
/// policer. Each loss at the same rate doubles the time until the next attempt to exceed it.
#[derive(Debug, Default)]
pub(super) struct LossCeiling {
    rate: f64,
    hold: Duration,
    until: Instant,
}

impl LossCeiling {
    /// The path carries no more than `rate`, in bits per second.
    pub(super) fn on_congestion(&mut self, now: Instant, rate: f64) {
        let is_same = (rate - self.rate).abs() < SAME_LIMIT * self.rate;
        self.hold = if is_same { (self.hold * 2).min(MAX_HOLD) } else { MIN_HOLD };
        (self.rate, self.until) = (rate, now + self.hold);
    }

    /// The highest rate to which an estimate may grow at once.
    pub(super) fn max_rate(&self, now: Instant, estimate: f64) -> f64 {
        if now < self.until {
            self.rate
        } else if now < self.until + CAREFUL_TIME && self.rate > 0.0 {
            let doublings = now.since(self.until).as_secs_f64().floor().exp2();
            estimate * (1.0 + CAREFUL_GROWTH * doublings)
        } else {
            f64::INFINITY
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_found_again_is_tried_ever_less_often() {
        let mut ceiling = LossCeiling::default();
        let second = |seconds: u64| Instant(seconds * 1_000_000_000);
        assert_eq!(ceiling.max_rate(second(1), 2e6), f64::INFINITY);
        ceiling.on_congestion(second(10), 2e6);
        assert_eq!(ceiling.max_rate(second(10), 1e6), 2e6);
        assert_eq!(ceiling.max_rate(second(11), 2e6), 2.2e6);
        assert_eq!(ceiling.max_rate(second(12), 2e6), 2.4e6);
        for _ in 0..5 {
            ceiling.on_congestion(second(14), 2.1e6);
        }
        assert_eq!(ceiling.max_rate(second(29), 1e6), 2.1e6);
        ceiling.on_congestion(second(20), 1e6);
        assert_eq!(ceiling.max_rate(second(21), 1e6), 1.1e6);
        assert_eq!(ceiling.max_rate(second(90), 1e6), f64::INFINITY);
    }

    #[test]
    fn growth_is_gentle_near_the_last_congested_rate() {
        let mut ceiling = Ceiling::default();
        assert_eq!(ceiling.growth(1e6, false), Growth::UpTo(f64::INFINITY));
        ceiling.follow(2e6, 0.25, 2e6, false);
        assert_eq!(ceiling.growth(1e6, false), Growth::UpTo(f64::INFINITY), "usual delay");
        ceiling.follow(2e6, 0.25, 2e6, true);
        assert_eq!(ceiling.growth(1e6, false), Growth::UpTo(0.93 * 2e6));
        assert_eq!(ceiling.growth(0.93 * 2e6, false), Growth::Gently);
        assert_eq!(ceiling.growth(1.2 * 2e6, false), Growth::Gently);
        assert_eq!(ceiling.growth(1.21 * 2e6, false), Growth::UpTo(f64::INFINITY));
        assert_eq!(ceiling.growth(2e6, false), Growth::UpTo(f64::INFINITY), "forgotten");
    }

    #[test]
    fn a_clear_path_is_not_near_its_ceiling() {
        let mut ceiling = Ceiling::default();
        ceiling.follow(2e6, 0.25, 2e6, true);
        assert_eq!(ceiling.growth(2e6, true), Growth::UpTo(f64::INFINITY));
    }
}
