// SPDX-License-Identifier: Apache-2.0
//! Scheduling delay of the machine itself on the victims' processor, independent of the load there.
//!
//! A thread with a higher priority than all ordinary threads asks to be woken every millisecond.
//! The attacked daemon and the publishers are ordinary threads: they cannot delay it, whatever
//! processor time they use. Only interrupts can, and a host that takes the processor away.

use crate::rig::clock::monotonic_ns;
use crate::rig::punctual::{Rank, be_punctual};
use crate::rig::stats::{Lateness, lateness};
use crate::rig::worker::join;
use anyhow::Result;
use std::ops::Range;
use std::thread::JoinHandle;
use std::time::Duration;

const EVERY_NS: u64 = 1_000_000;
/// The machine is late if the 99th percentile of its scheduling delay exceeds this limit.
pub const LATE_OVER_MS: f64 = 0.5;

/// The measuring thread.
pub struct Probe(JoinHandle<Result<Option<Lateness>>>);

impl Probe {
    /// Measures the calling thread's processor during a span of monotonic nanoseconds.
    pub fn start(span: Range<u64>) -> Self {
        Self(std::thread::spawn(move || watch(span)))
    }

    /// Waits for the end of the span; returns the scheduling delays in ms, `None` if no thread can get
    /// the priority.
    pub fn end(self) -> Result<Option<Lateness>> {
        join(self.0)
    }
}

fn watch(span: Range<u64>) -> Result<Option<Lateness>> {
    if !be_punctual(Rank::Emulator)? {
        return Ok(None);
    }
    // A wake-up that was due before the thread had its priority shows nothing.
    let mut due = span.start.max(monotonic_ns() + EVERY_NS);
    let mut late_ms = Vec::new();
    while due < span.end {
        std::thread::sleep(Duration::from_nanos(due.saturating_sub(monotonic_ns())));
        due = note(due..span.end, monotonic_ns(), &mut late_ms);
    }
    Ok(lateness(late_ms))
}

/// Records the delay of each wake-up due by now; returns the next due time.
fn note(due: Range<u64>, now: u64, late_ms: &mut Vec<f64>) -> u64 {
    let Range { start: mut next, end } = due;
    while next < end && next <= now {
        late_ms.push((now - next) as f64 / 1e6);
        next += EVERY_NS;
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_timers_within_a_pause_are_late() {
        let mut late_ms = Vec::new();
        assert_eq!(note(0..EVERY_NS, 0, &mut late_ms), EVERY_NS);
        assert_eq!(note(EVERY_NS..9 * EVERY_NS, 4 * EVERY_NS, &mut late_ms), 5 * EVERY_NS);
        assert_eq!(late_ms, [0.0, 3.0, 2.0, 1.0, 0.0]);
        // Nothing is due after the end.
        assert_eq!(note(5 * EVERY_NS..6 * EVERY_NS, 50 * EVERY_NS, &mut late_ms), 6 * EVERY_NS);
        assert_eq!(late_ms.len(), 6);
    }
}
