// SPDX-License-Identifier: Apache-2.0
//! Token buckets, for limits on the rate of events.

use crate::time::{Duration, Instant};

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

/// A token bucket. It is full at first.
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
        let replaced_at = self.replacement_time(now);
        let has_token = replaced_at <= nanos(now);
        if has_token {
            self.replaced_at = replaced_at;
        }
        has_token
    }

    /// Takes a token even from an empty bucket. The bucket then takes longer to fill.
    pub(crate) fn charge(&mut self, now: Instant) {
        self.replaced_at = self.replacement_time(now);
    }

    /// Whether there is a token.
    pub(crate) fn has_token_at(&self, now: Instant) -> bool {
        self.replacement_time(now) <= nanos(now)
    }

    /// When the tokens taken so far and one more will have been replaced, in nanoseconds.
    fn replacement_time(&self, now: Instant) -> i64 {
        let each = SECOND / i64::from(self.allowance.per_second);
        let full = nanos(now) - each * i64::from(self.allowance.burst);
        self.replaced_at.max(full) + each
    }
}

/// A token bucket in bytes. While the bucket is not empty, a packet of any size may be sent. A large packet
/// puts the bucket into debt.
#[derive(Debug, Clone)]
pub(crate) struct ByteBucket {
    rate_bps: Option<u64>,
    /// The time at which all bytes sent so far are paid for.
    paid_at: Instant,
}

impl ByteBucket {
    /// Time for which an idle bucket fills.
    const BURST: Duration = Duration::from_millis(50);

    /// A full bucket; `None` without a limit.
    pub(crate) fn new(rate_bps: Option<u64>) -> Self {
        Self { rate_bps, paid_at: Instant::default() }
    }

    /// Returns the time at which the next packet may be sent; `None`: now.
    pub(crate) fn next_departure(&self, now: Instant) -> Option<Instant> {
        (self.rate_bps.is_some() && self.paid_at > now).then_some(self.paid_at)
    }

    /// Charges the bucket for a packet of `bytes` that is sent now.
    pub(crate) fn charge(&mut self, now: Instant, bytes: usize) {
        let Some(rate_bps) = self.rate_bps else { return };
        let time = Duration::from_secs_f64(bytes as f64 * 8.0 / rate_bps.max(1) as f64);
        self.paid_at = self.paid_at.max(now.before(Self::BURST)) + time;
    }
}

fn nanos(now: Instant) -> i64 {
    i64::try_from(now.0).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_at_the_rate_after_a_burst() {
        let mut bucket = ByteBucket::new(Some(8_000_000));
        let start = Instant(5 * SECOND as u64);
        let (mut now, mut bytes) = (start, 0);
        while now < start + Duration::from_secs(2) {
            match bucket.next_departure(now) {
                Some(at) => now = at,
                None => {
                    bucket.charge(now, 1500);
                    bytes += 1500;
                }
            }
        }
        assert!((2_049_000..2_054_000).contains(&bytes), "2 MB, and 50 ms of it first: {bytes}");
        let mut open = ByteBucket::new(None);
        open.charge(start, usize::MAX);
        assert_eq!(open.next_departure(start), None);
    }

    #[test]
    fn a_burst_is_available_first_and_then_the_rate() {
        let mut bucket = Bucket::new(Allowance { burst: 3, per_second: 10 });
        let start = Instant(5 * SECOND as u64);
        assert!((0..3).all(|_| bucket.take(start)));
        assert!(!bucket.has_token_at(start) && !bucket.take(start));
        let later = start + Duration::from_millis(100);
        assert!(bucket.has_token_at(later) && bucket.take(later) && !bucket.take(later));
        let much_later = start + Duration::from_secs(100);
        assert!((0..3).all(|_| bucket.take(much_later)) && !bucket.take(much_later));
    }
}
