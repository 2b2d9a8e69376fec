// SPDX-License-Identifier: Apache-2.0
//! Token buckets: what may happen only so often.

use crate::time::Instant;

const SECOND: i64 = 1_000_000_000;

/// How many tokens a full bucket holds, and how many come back in a second.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// Tokens of a full bucket.
    pub burst: u32,
    /// Tokens that come back in a second; at least 1.
    pub per_second: u32,
}

impl std::fmt::Debug for Allowance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at once, {} per second", self.burst, self.per_second)
    }
}

/// A token bucket; full at first.
#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    allowance: Allowance,
    /// Time up to which tokens were used, in nanoseconds; before the beginning of time while full.
    used_to: i64,
}

impl Bucket {
    pub(crate) fn new(allowance: Allowance) -> Self {
        Self { allowance, used_to: i64::MIN }
    }

    /// Takes a token; `false` if there is none.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let used_to = self.with_one_more(now);
        let left = used_to <= nanos(now);
        if left {
            self.used_to = used_to;
        }
        left
    }

    /// Takes a token even if there is none: the bucket is filled later by that much.
    pub(crate) fn charge(&mut self, now: Instant) {
        self.used_to = self.with_one_more(now);
    }

    /// Whether there is a token.
    pub(crate) fn has_one(&self, now: Instant) -> bool {
        self.with_one_more(now) <= nanos(now)
    }

    fn with_one_more(&self, now: Instant) -> i64 {
        let each = SECOND / i64::from(self.allowance.per_second);
        let full = nanos(now) - each * i64::from(self.allowance.burst);
        self.used_to.max(full) + each
    }
}

fn nanos(now: Instant) -> i64 {
    i64::try_from(now.0).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;

    #[test]
    fn a_burst_is_taken_at_once_and_then_as_many_as_come_back() {
        let mut bucket = Bucket::new(Allowance { burst: 3, per_second: 10 });
        let start = Instant(5 * SECOND as u64);
        assert!((0..3).all(|_| bucket.take(start)));
        assert!(!bucket.has_one(start) && !bucket.take(start));
        let later = start + Duration::from_millis(100);
        assert!(bucket.has_one(later) && bucket.take(later) && !bucket.take(later));
        let much_later = start + Duration::from_secs(100);
        assert!((0..3).all(|_| bucket.take(much_later)) && !bucket.take(much_later));
    }
}
