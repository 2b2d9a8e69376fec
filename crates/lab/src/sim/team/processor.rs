// SPDX-License-Identifier: Apache-2.0
//! Processors in virtual time: each program of a robot has one, which does its work in turn.

use tautline_medium::Nanos;

/// One program's processor, or the core that it has for itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Processor {
    /// Time at which all admitted work is finished.
    free: Nanos,
    admitted: Nanos,
}

impl Processor {
    /// Queues work of this duration behind all earlier work; returns when it is finished.
    pub fn admit(&mut self, now: Nanos, cost: Nanos) -> Nanos {
        self.admitted += cost;
        self.free = self.free.max(now) + cost;
        self.free
    }

    /// Returns the time for which the processor has worked by `now`.
    pub fn worked(&self, now: Nanos) -> Nanos {
        self.admitted - self.free.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_waits_for_earlier_work_and_only_finished_work_counts() {
        let mut processor = Processor::default();
        assert_eq!(processor.admit(100, 10), 110);
        assert_eq!(processor.admit(105, 20), 130);
        assert_eq!((processor.worked(120), processor.worked(130)), (20, 30));
        assert_eq!(processor.admit(200, 10), 210);
        assert_eq!((processor.worked(200), processor.worked(300)), (30, 40));
    }
}
