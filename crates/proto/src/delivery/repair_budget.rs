// SPDX-License-Identifier: Apache-2.0
//! The repair budget: a fraction of the bytes that are sent for the first time, so that repairs do
//! not increase congestion.

use crate::time::{Duration, Instant};

/// Bytes of repairs in a burst, unless the messages that are being sent have earned more.
const BURST: i64 = 65_536;
/// Minimum number of repair bytes per second that are allowed regardless of other data.
const MIN_REPAIR_RATE: i64 = 8_000;
/// After this time with nothing but repairs to send, repairs get a share of the link's rate.
const IDLE_AFTER: Duration = Duration::from_secs(1);

/// The repair budget of one peer.
#[derive(Debug)]
pub(crate) struct RepairBudget {
    /// Remaining bytes; the last repair may overdraw it.
    credit: i64,
    percent: u32,
    /// Bytes of the messages that are begun and not yet delivered or dropped.
    begun_bytes: i64,
    last_replenished: Instant,
    last_first_transmission: Instant,
    /// Bytes per second that are allowed regardless of other data.
    repair_rate: i64,
}

impl RepairBudget {
    /// A budget of `percent` of the bytes sent for the first time.
    pub(crate) fn new(percent: u32) -> Self {
        Self {
            credit: BURST,
            percent,
            begun_bytes: 0,
            last_first_transmission: Instant::default(),
            last_replenished: Instant::default(),
            repair_rate: MIN_REPAIR_RATE,
        }
    }

    /// Changes the percentage; debt remains.
    pub(crate) fn set_percent(&mut self, percent: u32) {
        self.percent = percent;
    }

    pub(crate) fn has_credit(&self) -> bool {
        self.credit > 0
    }

    /// Sets whether there are only repairs to send from now on, at a link rate of `idle_bps`, or also other
    /// data (`None`). Repairs alone may take the same share of the link as they would alongside other data.
    pub(crate) fn set_idle(&mut self, now: Instant, idle_bps: Option<u64>) {
        self.replenish(now);
        let idle_bps = idle_bps.filter(|_| now.since(self.last_first_transmission) >= IDLE_AFTER);
        let idle = idle_bps.map_or(0, |bps| i64::try_from(bps / 8).unwrap_or(i64::MAX));
        self.repair_rate = self.share(idle).max(MIN_REPAIR_RATE);
    }

    /// Adds the budget of the time since the last call.
    pub(crate) fn replenish(&mut self, now: Instant) {
        let millis =
            i64::try_from(now.since(self.last_replenished).as_millis()).unwrap_or(i64::MAX);
        let gained = millis.saturating_mul(self.repair_rate) / 1000;
        if gained > 0 {
            self.last_replenished = now;
            self.earn(gained);
        }
    }

    /// Records that a message is begun. The budget that its bytes earn is kept until the message
    /// ends, since losses may become known late.
    pub(crate) fn begin_message(&mut self, bytes: u32) {
        self.begun_bytes += i64::from(bytes);
    }

    /// Records that a begun message was delivered or dropped.
    pub(crate) fn end_message(&mut self, bytes: u32) {
        self.begun_bytes -= i64::from(bytes);
        let excess = (self.credit - self.burst_limit()).max(0);
        self.credit -= excess.min(self.share(i64::from(bytes)));
    }

    /// Adds the budget for bytes that were sent for the first time.
    pub(crate) fn on_first_transmission(&mut self, now: Instant, bytes: u32) {
        self.last_first_transmission = now;
        self.earn(self.share(i64::from(bytes)));
    }

    /// Charges bytes that were sent as a repair.
    pub(crate) fn on_repair(&mut self, bytes: u32) {
        self.credit -= i64::from(bytes);
    }

    /// Returns the cost of a repair in advance.
    pub(crate) fn refund(&mut self, bytes: u32) {
        self.credit += i64::from(bytes);
    }

    fn share(&self, bytes: i64) -> i64 {
        bytes.saturating_mul(i64::from(self.percent)) / 100
    }

    fn burst_limit(&self) -> i64 {
        self.share(self.begun_bytes).max(BURST)
    }

    fn earn(&mut self, bytes: i64) {
        let earned = self.credit.saturating_add(bytes).min(self.burst_limit());
        self.credit = self.credit.max(earned);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_that_a_large_message_earns_lasts_until_its_end() {
        let mut budget = RepairBudget::new(30);
        budget.begin_message(4_000_000);
        (0..4000).for_each(|_| budget.on_first_transmission(Instant(1), 1000));
        assert_eq!(budget.credit, 1_200_000);
        budget.on_repair(200_000);
        budget.replenish(Instant(100_000_000_000));
        assert_eq!(budget.credit, 1_200_000, "no more than its share");
        // A refund outlasts this.
        budget.refund(100_000);
        budget.end_message(4_000_000);
        assert_eq!(budget.credit, 100_000);
        for _ in 0..1000 {
            budget.begin_message(10_000);
            budget.on_first_transmission(Instant(1), 10_000);
            budget.end_message(10_000);
        }
        assert_eq!((budget.credit, budget.begun_bytes), (BURST, 0), "small ones share a burst");
    }

    #[test]
    fn repairs_alone_take_their_share_of_the_link() {
        let at = |ms: u64| Instant(ms * 1_000_000);
        let mut budget = RepairBudget::new(30);
        budget.replenish(at(1000));
        budget.on_repair(165_536);
        budget.set_idle(at(1000), Some(8_000_000));
        budget.set_idle(at(1100), None);
        budget.on_first_transmission(at(1100), 0);
        assert_eq!(budget.credit, -70_000);
        budget.set_idle(at(1200), Some(8_000_000));
        budget.set_idle(at(2100), Some(0));
        assert_eq!(budget.credit, -62_000, "not idle for long enough");
        budget.replenish(at(3100));
        assert_eq!(budget.credit, -54_000);
    }
}
