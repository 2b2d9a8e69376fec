// SPDX-License-Identifier: Apache-2.0
//! How sure a loss is, and how many repairs are futile.

use crate::limits;
use crate::time::{Duration, Instant};

/// A message is given up after [`limits::FUTILE_REPAIRS`] repairs, if these took at least this time.
/// Otherwise a message without a lifespan would be sent for ever to a peer that acknowledges nothing. The
/// time alone is no measure: a large message waits for more urgent ones. Nor is the number alone: after a
/// burst of losses, a fast link sends more repairs than that within a round trip.
const MAX_FUTILE_TIME: Duration = Duration::from_secs(10);
/// A longer pause between two repairs counts only as this time. Its cause is an outage, or more
/// urgent messages.
const MAX_FUTILE_PAUSE: Duration = Duration::from_secs(1);

/// How sure a sender is that a piece was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LossCertainty {
    /// A later packet was acknowledged, or the link is lost.
    Certain,
    /// The acknowledgement is overdue, and may still arrive.
    Overdue,
}

/// Consecutive repairs of a message of which none was acknowledged.
#[derive(Debug, Default)]
pub(super) struct FutileRepairs {
    count: u16,
    /// Time from the first to the last of these repairs. Each pause counts at most
    /// [`MAX_FUTILE_PAUSE`].
    time: Duration,
    last: Instant,
}

impl FutileRepairs {
    pub(super) fn on_repair(&mut self, now: Instant) {
        if self.count > 0 {
            self.time += now.since(self.last).min(MAX_FUTILE_PAUSE);
        }
        (self.count, self.last) = (self.count.saturating_add(1), now);
    }

    pub(super) fn is_limit_reached(&self) -> bool {
        self.count >= limits::FUTILE_REPAIRS && self.time >= MAX_FUTILE_TIME
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repairs(count: u64, interval_ms: u64) -> FutileRepairs {
        let mut futile = FutileRepairs::default();
        for n in 0..count {
            futile.on_repair(Instant((1000 + n * interval_ms) * 1_000_000));
        }
        futile
    }

    #[test]
    fn repairs_are_futile_after_both_their_number_and_their_time() {
        assert!(!repairs(10_000, 1).is_limit_reached(), "9.999 s");
        assert!(!repairs(255, 500).is_limit_reached(), "127 s");
        assert!(repairs(256, 40).is_limit_reached());
    }

    #[test]
    fn an_outage_does_not_count_as_a_futile_repair() {
        let mut futile = repairs(1000, 1);
        futile.on_repair(Instant(1_000_000_000_000));
        assert!(!futile.is_limit_reached());
        futile = repairs(300, 30);
        futile.on_repair(Instant(1_000_000_000_000));
        assert!(!futile.is_limit_reached(), "9 s and the pause");
        futile.on_repair(Instant(1_000_100_000_000));
        assert!(futile.is_limit_reached());
    }
}
