// SPDX-License-Identifier: Apache-2.0
//! Parts of the state of a link.

use serde::{Deserialize, Serialize};

/// The packets of a link since the last interruption. In an interruption, the link is down or the
/// peer acknowledges nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SteadyReport {
    /// Seconds since the interruption.
    pub seconds: f64,
    /// Packets that the peer has acknowledged in this time.
    pub acked_packets: u64,
    /// Packets that were lost in this time, without those that arrived late.
    pub lost_packets: u64,
}

impl SteadyReport {
    /// Returns the number of packets whose outcome is known.
    pub fn outcomes(&self) -> u64 {
        self.acked_packets.saturating_add(self.lost_packets)
    }

    /// Returns the fraction of packets that were lost, 0 to 1; `None` if no outcome is known.
    pub fn loss(&self) -> Option<f64> {
        let outcomes = self.outcomes();
        (outcomes > 0).then(|| self.lost_packets as f64 / outcomes as f64)
    }
}

/// The data budget of a link, at most a second old.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BudgetReport {
    /// IP bytes sent and received in the current period.
    pub used_bytes: u64,
    /// IP bytes that the budget allows in a period.
    pub total_bytes: u64,
    /// End of the period (RFC 3339, UTC).
    pub period_ends: String,
    /// Whether the budget is used up: only topics with `over_budget` use the link.
    pub spent: bool,
}

impl BudgetReport {
    /// Returns the fraction of the budget that is used.
    pub fn used(&self) -> f64 {
        self.used_bytes as f64 / self.total_bytes.max(1) as f64
    }

    /// Formats `82 % used, until 2026-12-25T08:00:00.000Z`.
    pub fn in_words(&self) -> String {
        let used = if self.spent {
            "used up".into()
        } else {
            format!("{:.0} % used", self.used() * 100.0)
        };
        format!("{used}, until {}", self.period_ends)
    }
}
