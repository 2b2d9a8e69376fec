// SPDX-License-Identifier: Apache-2.0
//! Limits how often a person is notified of a fault that every message may repeat.

use tautline_proto::{Duration, Instant};

/// Time after a notice in which no further notice about the same fault is due.
const TOLD_AGAIN: Duration = Duration::from_secs(30);

/// The time of the last notice. The next one is due after [`TOLD_AGAIN`].
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LastReport(Option<Instant>);

impl LastReport {
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.0.is_none_or(|at| now.since(at) >= TOLD_AGAIN);
        if is_due {
            self.0 = Some(now);
        }
        is_due
    }
}
