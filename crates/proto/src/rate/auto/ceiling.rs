// SPDX-License-Identifier: Apache-2.0
//! The rate at which packets were last queued. Where stations contend for a channel, a queue shows
//! only when it is too late: at a rate a few percent lower, no queue is seen at all. Growth near
//! the ceiling is therefore slow, as on CUBIC's plateau (RFC 9438).

/// Growth is slow from this fraction of the ceiling.
const NEAR: f64 = 0.93;
/// An estimate beyond this multiple shows that the ceiling is outdated.
const OUTDATED: f64 = 1.2;

/// The ceiling in bits per second, if known.
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
    /// Records that packets were queued at this delivery rate. The first ceiling is the `estimate`,
    /// and only where the delay was `unusual`: otherwise the delay may not have been a queue.
    pub(super) fn follow(&mut self, delivery_rate: f64, gain: f64, estimate: f64, unusual: bool) {
        self.0 = match self.0 {
            Some(ceiling) => Some(ceiling + gain * (delivery_rate - ceiling)),
            None => unusual.then_some(estimate),
        };
    }

    pub(super) fn forget(&mut self) {
        self.0 = None;
    }

    /// How far the estimate may grow from `estimate`. If the path is `clear`, the estimate is not
    /// near the ceiling.
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

#[cfg(test)]
mod tests {
    use super::*;

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
