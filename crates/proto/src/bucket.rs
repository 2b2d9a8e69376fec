// SPDX-License-Identifier: Apache-2.0
//! Token buckets, for limits on the rate of events.

use crate::time::Instant;

const SECOND: i64 = 1_000_000_000;

/// The parameters of a token bucket.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// Tokens in a full bucket.
    pub burst: u32,
    /// Tokens added per second; at least 1.
    pub per_second: u32,
}

impl std::fmt::Debug for Allowance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at once, {} per second", self.burst, self.per_second)
    }
}

/// A token bucket, which is full at first.
#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    allowance: Allowance,
    /// The time at which all tokens taken so far have been replaced, in nanoseconds; in the distant
    /// past while the bucket is full.
    replaced_at: i64,
}

impl Bucket {
    pub(crate) fn new(allowance: Allowance) -> Self {
        Self { allowance, replaced_at: i64::MIN }
    }

    /// Takes a token; `false` if the bucket is empty.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let replaced_at = self.after_one_more(now);
        let has_token = replaced_at <= nanos(now);
        if has_token {
            self.replaced_at = replaced_at;
        }
        has_token
    }

    /// Takes a token even from an empty bucket, which then fills later.
    pub(crate) fn charge(&mut self, now: Instant) {
        self.replaced_at = self.after_one_more(now);
    }

    /// Whether there is a token.
    pub(crate) fn has_one(&self, now: Instant) -> bool {
        self.after_one_more(now) <= nanos(now)
    }

    fn after_one_more(&self, now: Instant) -> i64 {
        let each = SECOND / i64::from(self.allowance.per_second);
        let full = nanos(now) - each * i64::from(self.allowance.burst);
        self.replaced_at.max(full) + each
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
    fn a_burst_is_available_first_and_then_the_rate() {
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
