// SPDX-License-Identifier: Apache-2.0
//! Limits how often a fault that every message may repeat is reported.

use tautline_proto::{Duration, Instant};

/// Time after a notice in which no further notice about the same fault is due.
const MIN_REPORT_INTERVAL: Duration = Duration::from_secs(30);

/// The time of the last notice. The next one is due after [`MIN_REPORT_INTERVAL`].
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReportLimiter(Option<Instant>);

impl ReportLimiter {
    /// Returns whether a notice is due, and if so, counts it as given now.
    pub(super) fn allow(&mut self, now: Instant) -> bool {
        let is_due = self.0.is_none_or(|at| now.since(at) >= MIN_REPORT_INTERVAL);
        if is_due {
            self.0 = Some(now);
        }
        is_due
    }
}
