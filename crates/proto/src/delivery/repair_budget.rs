// SPDX-License-Identifier: Apache-2.0
//! The repair budget: a fraction of the bytes that are sent for the first time, so that repairs do
//! not increase congestion.

use crate::time::Instant;

/// Bytes of repairs in a burst.
const BURST: i64 = 65_536;
/// Bytes of repairs per second that are allowed regardless of other data.
const TRICKLE: i64 = 8_000;

/// The repair budget of one peer.
#[derive(Debug)]
pub(crate) struct RepairBudget {
    /// Remaining bytes; the last repair may overdraw it.
    credit: i64,
    percent: u32,
    last_trickle: Instant,
}

impl RepairBudget {
    /// A budget of `percent` of the bytes sent for the first time.
    pub(crate) fn new(percent: u32) -> Self {
        Self { credit: BURST, percent, last_trickle: Instant::default() }
    }

    /// Changes the percentage; debt remains.
    pub(crate) fn set_percent(&mut self, percent: u32) {
        self.percent = percent;
    }

    pub(crate) fn is_left(&self) -> bool {
        self.credit > 0
    }

    /// Adds the budget of the time since the last call.
    pub(crate) fn trickle(&mut self, now: Instant) {
        let millis = i64::try_from(now.since(self.last_trickle).as_millis()).unwrap_or(i64::MAX);
        let gained = millis.saturating_mul(TRICKLE) / 1000;
        if gained > 0 {
            self.last_trickle = now;
            self.earn(gained);
        }
    }

    /// Adds the budget for bytes that were sent for the first time.
    pub(crate) fn on_first(&mut self, bytes: u32) {
        self.earn(i64::from(bytes) * i64::from(self.percent) / 100);
    }

    /// Charges bytes that were sent as a repair.
    pub(crate) fn on_repair(&mut self, bytes: u32) {
        self.credit -= i64::from(bytes);
    }

    /// Returns the cost of a repair in advance.
    pub(crate) fn refund(&mut self, bytes: u32) {
        self.credit += i64::from(bytes);
    }

    fn earn(&mut self, bytes: i64) {
        let earned = self.credit.saturating_add(bytes).min(BURST);
        self.credit = self.credit.max(earned);
    }
}
