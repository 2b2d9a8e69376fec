// SPDX-License-Identifier: Apache-2.0
//! How much may be sent again: a share of what is sent first, so that repairs
//! cannot make congestion worse.

use crate::time::Instant;

/// Repairs that may be sent at once before the share counts, in bytes.
const BURST: i64 = 65_536;
/// What may be repaired with time alone, in bytes per second.
const TRICKLE: i64 = 8_000;

/// Bytes of repairs that one peer may be sent.
#[derive(Debug)]
pub(crate) struct RepairBudget {
    /// The last repair may overdraw it.
    credit: i64,
    percent: u32,
    trickled: Instant,
}

impl RepairBudget {
    /// Repairs may add `percent` of the bytes first sent.
    pub(crate) fn new(percent: u32) -> Self {
        Self { credit: BURST, percent, trickled: Instant::default() }
    }

    /// Changes the share; what is owed stays.
    pub(crate) fn set_percent(&mut self, percent: u32) {
        self.percent = percent;
    }

    pub(crate) fn is_left(&self) -> bool {
        self.credit > 0
    }

    /// Time has passed.
    pub(crate) fn trickle(&mut self, now: Instant) {
        let millis = i64::try_from(now.since(self.trickled).as_millis()).unwrap_or(i64::MAX);
        let gained = millis.saturating_mul(TRICKLE) / 1000;
        if gained > 0 {
            self.trickled = now;
            self.earn(gained);
        }
    }

    /// So many bytes were sent for the first time.
    pub(crate) fn on_first(&mut self, bytes: u32) {
        self.earn(i64::from(bytes) * i64::from(self.percent) / 100);
    }

    /// So many bytes were sent again.
    pub(crate) fn on_repair(&mut self, bytes: u32) {
        self.credit -= i64::from(bytes);
    }

    /// To send so many bytes again will cost nothing.
    pub(crate) fn refund(&mut self, bytes: u32) {
        self.credit += i64::from(bytes);
    }

    fn earn(&mut self, bytes: i64) {
        let earned = self.credit.saturating_add(bytes).min(BURST);
        self.credit = self.credit.max(earned);
    }
}
