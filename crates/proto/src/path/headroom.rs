// SPDX-License-Identifier: Apache-2.0
//! What a link has room for, and when the application is told that this is another.

use crate::time::{Duration, Instant};

/// The application is told of a change of more than this part of what it was told last: one over
/// so much. Less is what a controller does all the time.
const MATERIAL: u64 = 4;
/// Least time between two such events of one link.
const REPORT_INTERVAL: Duration = Duration::from_millis(250);
/// What a radio carried when it was last busy says less and less: with each second since, it may
/// be so much more.
const GROWTH: f64 = 1.25;
/// More than this is no bound.
const MOST: f64 = 1e10;

/// What one link was held back by, and what was told of it.
#[derive(Debug, Default)]
pub(crate) struct Headroom {
    /// Its own controller held a packet back last, not its radio.
    pub(crate) limited_by_path: bool,
    last_report: Option<LastReport>,
}

#[derive(Debug, Clone, Copy)]
struct LastReport {
    at: Instant,
    bps: Option<u64>,
}

impl Headroom {
    /// The link is down: when it is up again, all is told anew.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Whether `bps` is to be told now; then it counts as told.
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
        (Some(before), Some(now)) => before.abs_diff(now) > before / MATERIAL,
        (before, now) => before != now,
    }
}

/// The bound that a measured rate still is, so long after; `None` once it is none.
pub(crate) fn faded(bps: u64, since: Duration) -> Option<u64> {
    let bound = bps as f64 * GROWTH.powf(since.as_secs_f64());
    (bound < MOST).then_some(bound as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn only_changes_of_more_than_a_quarter_are_told_and_not_more_than_four_a_second() {
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
        assert!(headroom.should_report(now, None), "it is not known any more");
        assert!(!headroom.should_report(now + MS * 500, None));
        headroom.forget();
        assert!(headroom.should_report(now, None));
    }

    #[test]
    fn what_was_measured_fades_into_no_bound() {
        assert_eq!(faded(1_000_000, Duration::ZERO), Some(1_000_000));
        assert_eq!(faded(1_000_000, MS * 2000), Some(1_562_500));
        assert_eq!(faded(1_000_000, MS * 60_000), None);
        assert_eq!(faded(u64::MAX, Duration::MAX), None);
    }
}
