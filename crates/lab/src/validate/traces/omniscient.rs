// SPDX-License-Identifier: Apache-2.0
//! The limit for a sender that knows all capacity in advance: every urgent message leaves at the
//! first opportunities to send after its publication, and other messages get exactly what is left.

use tautline_medium::{Nanos, OPPORTUNITY_BYTES, Trace};

/// The opportunities to send of a trace within a span, and what is left of each.
pub struct Capacity {
    /// Time of each opportunity, and the bytes that it can still send.
    left: Vec<(Nanos, u64)>,
}

impl Capacity {
    /// Returns the opportunities of `trace` from `start` on for `length`; their times count from `start`.
    pub fn new(trace: &Trace, start: Nanos, length: Nanos) -> Self {
        let numbers = trace.first_at_or_after(start)..trace.first_at_or_after(start + length);
        let left = numbers.map(|number| (trace.at(number) - start, OPPORTUNITY_BYTES));
        Self { left: left.collect() }
    }

    /// Sends messages of `bytes` in order of publication, each of them only if its last byte leaves at
    /// most `within` after its publication. Returns the delay until then of each message; `None` if
    /// it cannot leave in time.
    pub fn send(&mut self, published: &[Nanos], bytes: u64, within: Nanos) -> Vec<Option<Nanos>> {
        published.iter().map(|at| self.send_one(*at, bytes, within)).collect()
    }

    fn send_one(&mut self, at: Nanos, bytes: u64, within: Nanos) -> Option<Nanos> {
        let first = self.left.partition_point(|(time, _)| *time < at);
        let mut missing = bytes;
        let in_time = self.left[first..].iter().take_while(|(time, _)| *time <= at + within);
        let used = in_time.take_while(|(_, left)| {
            let goes_on = missing > 0;
            missing = missing.saturating_sub(*left);
            goes_on
        });
        let last = first + used.count();
        if missing > 0 {
            return None;
        }
        let mut rest = bytes;
        for (_, left) in &mut self.left[first..last] {
            let sent = rest.min(*left);
            (*left, rest) = (*left - sent, rest - sent);
        }
        Some(self.left[last - 1].0 - at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    #[test]
    fn bulk_gets_the_capacity_that_the_laser_leaves() {
        // One opportunity every 10 ms, and an outage from 30 to 90 ms.
        let trace = Trace::new(&[10, 20, 30, 90, 100]).unwrap();
        let mut capacity = Capacity::new(&trace, 0, 101 * MS);
        let laser = capacity.send(&[5 * MS, 12 * MS, 31 * MS], 1000, 20 * MS);
        assert_eq!(laser, [Some(5 * MS), Some(8 * MS), None]);
        // 500 bytes are left at 10 and at 20 ms, and 1500 at 30, 90 and 100 ms.
        let bulk = capacity.send(&[0, 0, 0, 85 * MS], 2000, 100 * MS);
        assert_eq!(bulk, [Some(30 * MS), Some(90 * MS), None, None]);
    }
}
