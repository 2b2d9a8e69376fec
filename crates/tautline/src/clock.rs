// SPDX-License-Identifier: Apache-2.0
//! The clock of the data plane.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;
use tautline_proto::Instant;

/// Counts the time since this clock was started, including suspend. Peers compare their clocks by it.
pub(crate) struct Clock(Duration);

/// Time from the origin of [`Instant`] to the start of the clock. A latched message may have been
/// published before the daemon started, and its age counts from its publication.
const MAX_MESSAGE_AGE: Duration = Duration::from_secs(30 * 24 * 3600);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(since_boot())
    }

    fn elapsed(&self) -> Duration {
        since_boot().saturating_sub(self.0)
    }

    /// The time from the start to `now`.
    pub(crate) fn uptime(now: Instant) -> Duration {
        now.since(Instant::default() + MAX_MESSAGE_AGE)
    }

    pub(crate) fn now(&self) -> Instant {
        let since_origin = MAX_MESSAGE_AGE + self.elapsed();
        Instant(u64::try_from(since_origin.as_nanos()).unwrap_or(u64::MAX))
    }
}

fn since_boot() -> Duration {
    // Neither field is ever negative.
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
