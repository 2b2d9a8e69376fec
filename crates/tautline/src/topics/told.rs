// SPDX-License-Identifier: Apache-2.0
//! When a person was told last about a fault that every message may repeat.

use tautline_proto::{Duration, Instant};

/// Time without notices about malformed messages of a topic after one of them.
const TOLD_AGAIN: Duration = Duration::from_secs(30);

/// When a person was told last: the next time is due after a while.
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
