// SPDX-License-Identifier: Apache-2.0
//! A recorded capacity, in the format of the link emulator mahimahi (Netravali and others, 2015): the
//! times at which the link could send. Each of them is an opportunity.

use crate::ids::Nanos;
use std::sync::Arc;

/// Bytes that the link can send at one opportunity.
pub const OPPORTUNITY_BYTES: u64 = 1500;
const MS: Nanos = 1_000_000;

/// Times at which a pipe can send up to [`OPPORTUNITY_BYTES`]; they repeat after the last one.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// Milliseconds since the start, in rising order, at least one of them above 0.
    at_ms: Arc<[u32]>,
}

impl Trace {
    /// Creates a trace of these milliseconds; `None` if they decrease or the last one is 0.
    pub fn new(at_ms: &[u32]) -> Option<Self> {
        let is_valid = at_ms.is_sorted() && at_ms.last().is_some_and(|last| *last > 0);
        is_valid.then(|| Self { at_ms: at_ms.into() })
    }

    fn period(&self) -> Nanos {
        self.at_ms.last().map_or(MS, |last| Nanos::from(*last) * MS)
    }

    /// Returns the mean capacity in bits per second.
    pub fn mean_bps(&self) -> u64 {
        let bits = u128::from(OPPORTUNITY_BYTES) * 8 * self.at_ms.len() as u128;
        (bits * 1_000_000_000 / u128::from(self.period())) as u64
    }

    /// Returns the time of an opportunity, by its number from 0.
    pub fn at(&self, number: u64) -> Nanos {
        let count = self.at_ms.len() as u64;
        let within = Nanos::from(self.at_ms[(number % count) as usize]) * MS;
        (number / count).saturating_mul(self.period()).saturating_add(within)
    }

    /// Returns the number of the first opportunity that is not before `now`.
    pub fn first_at_or_after(&self, now: Nanos) -> u64 {
        let period = self.period();
        // The last opportunity of a period is at its end, where the next one begins.
        let cycle = (now / period).saturating_sub(u64::from(now.is_multiple_of(period) && now > 0));
        let within = now - cycle * period;
        let before = self.at_ms.partition_point(|ms| Nanos::from(*ms) * MS < within);
        cycle * self.at_ms.len() as u64 + before as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opportunities_repeat_after_the_last_one() {
        let trace = Trace::new(&[2, 2, 5, 10]).unwrap();
        let times: Vec<_> = (0..9).map(|number| trace.at(number) / MS).collect();
        assert_eq!(times, [2, 2, 5, 10, 12, 12, 15, 20, 22]);
        for (now, expected) in [(0, 0), (2, 0), (3, 2), (10, 3), (11, 4), (20, 7), (21, 8)] {
            assert_eq!(trace.first_at_or_after(now * MS), expected, "{now} ms");
        }
        assert_eq!(trace.mean_bps(), 4_800_000);
    }

    #[test]
    fn a_trace_without_capacity_or_order_is_refused() {
        for bad in [&[][..], &[0], &[3, 2]] {
            assert_eq!(Trace::new(bad), None, "{bad:?}");
        }
    }
}
