// SPDX-License-Identifier: Apache-2.0
//! The available rate of a link, and when to report a change to the application.

use crate::time::{Duration, Instant};

/// A change is reported if it exceeds the last reported rate divided by this number. Smaller
/// changes are normal for a controller.
const MATERIAL_DIVISOR: u64 = 4;
/// Least time between two reports of one link.
const REPORT_INTERVAL: Duration = Duration::from_millis(250);
/// Factor per second by which a limit grows that comes from the rate at which a radio was last
/// busy. The measurement becomes less significant with time.
const GROWTH_PER_SECOND: f64 = 1.25;
/// A rate above this counts as no limit.
const MAX_RATE: f64 = 1e10;

/// What limits a link, and the rate last reported to the application.
#[derive(Debug, Default)]
pub(crate) struct Headroom {
    /// The link's controller, not its radio, held back the last packet.
    pub(crate) limited_by_path: bool,
    last_report: Option<LastReport>,
}

#[derive(Debug, Clone, Copy)]
struct LastReport {
    at: Instant,
    bps: Option<u64>,
}

impl Headroom {
    /// Forgets the last report, because the link is down. The next rate is then reported in any
    /// case.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Whether to report `bps` now. If so, `bps` counts as reported.
    pub(crate) fn should_report(&mut self, now: Instant, bps: Option<u64>) -> bool {
        let should_report = self.last_report.is_none_or(|last_report| {
            now.since(last_report.at) >= REPORT_INTERVAL && is_material(last_report.bps, bps)
        });
        if should_report {
            self.last_report = Some(LastReport { at: now, bps });
        }
        should_report
    }
}

fn is_material(before: Option<u64>, now: Option<u64>) -> bool {
    match (before, now) {
        (Some(before), Some(now)) => before.abs_diff(now) > before / MATERIAL_DIVISOR,
        (before, now) => before != now,
    }
}

/// The limit that follows from a rate measured `since` ago; `None` if that is no limit any more.
pub(crate) fn aged_limit(bps: u64, since: Duration) -> Option<u64> {
    let bound = bps as f64 * GROWTH_PER_SECOND.powf(since.as_secs_f64());
    (bound < MAX_RATE).then_some(bound as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn only_changes_of_more_than_a_quarter_are_reported_and_at_most_four_a_second() {
        let mut headroom = Headroom::default();
        let mut now = Instant(1_000_000_000);
        assert!(headroom.should_report(now, Some(4000)), "the first");
        now = now + MS * 250;
        assert!(
            !headroom.should_report(now, Some(5000)) && !headroom.should_report(now, Some(3000))
        );
        assert!(headroom.should_report(now, Some(5001)));
        assert!(!headroom.should_report(now + MS * 249, Some(100)), "too soon");
        assert!(headroom.should_report(now + MS * 250, Some(100)));
        now = now + MS * 500;
        assert!(headroom.should_report(now, None), "the rate is unknown now");
        assert!(!headroom.should_report(now + MS * 500, None));
        headroom.forget();
        assert!(headroom.should_report(now, None));
    }

    #[test]
    fn an_old_measured_rate_is_no_limit() {
        assert_eq!(aged_limit(1_000_000, Duration::ZERO), Some(1_000_000));
        assert_eq!(aged_limit(1_000_000, MS * 2000), Some(1_562_500));
        assert_eq!(aged_limit(1_000_000, MS * 60_000), None);
        assert_eq!(aged_limit(u64::MAX, Duration::MAX), None);
    }
}
