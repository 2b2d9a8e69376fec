// SPDX-License-Identifier: Apache-2.0
//! Processors of hosts: each is a single server that takes a constant time for a message.

use tautline_medium::{Nanos, StationId};

/// Messages that may wait for a processor, as many as the queue of a topic in the thesis of the
/// scaling study.
const MOST_WAITING: u64 = 1000;

/// What becomes of some work.
#[derive(Debug, PartialEq, Eq)]
pub enum Admission {
    /// It takes no time.
    AtOnce,
    /// It is finished at that time, when the caller reports it by [`Processors::finish`].
    At(Nanos),
    /// The queue is full.
    Refused,
}

#[derive(Debug, Clone, Copy, Default)]
struct Processor {
    /// Time at which the admitted work is finished.
    free: Nanos,
    waiting: u64,
    worked: Nanos,
}

/// The processors of all hosts, see the module.
#[derive(Debug, Default)]
pub struct Processors {
    message_cost: Nanos,
    all: Vec<Processor>,
}

impl Processors {
    /// Creates idle processors that take `message_cost` for each message received or published.
    pub fn new(message_cost: Nanos, hosts: usize) -> Self {
        Self { message_cost, all: vec![Processor::default(); hosts] }
    }

    /// Queues work on that number of messages behind all earlier work of the host.
    pub fn admit(&mut self, host: StationId, now: Nanos, messages: u64) -> Admission {
        let Some(processor) = self.all.get_mut(host.0).filter(|_| self.message_cost > 0) else {
            return Admission::AtOnce;
        };
        if processor.waiting >= MOST_WAITING {
            return Admission::Refused;
        }
        let cost = self.message_cost * messages;
        processor.waiting += 1;
        processor.worked += cost;
        processor.free = processor.free.max(now) + cost;
        Admission::At(processor.free)
    }

    /// Records that admitted work is finished.
    pub fn finish(&mut self, host: StationId) {
        if let Some(processor) = self.all.get_mut(host.0) {
            processor.waiting -= 1;
        }
    }

    /// Returns the time that a host's admitted work takes, waiting excluded.
    pub fn worked(&self, host: StationId) -> Nanos {
        self.all.get(host.0).map_or(0, |processor| processor.worked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: StationId = StationId(0);

    #[test]
    fn work_waits_for_earlier_work_of_the_same_host() {
        let mut processors = Processors::new(10, 2);
        assert_eq!(processors.admit(HOST, 100, 1), Admission::At(110));
        assert_eq!(processors.admit(HOST, 105, 2), Admission::At(130));
        assert_eq!(processors.admit(StationId(1), 105, 1), Admission::At(115));
        assert_eq!(processors.admit(HOST, 200, 1), Admission::At(210));
        assert_eq!(processors.worked(HOST), 40);
    }

    #[test]
    fn a_full_queue_admits_no_more_until_some_work_is_finished() {
        let mut processors = Processors::new(10, 1);
        for _ in 0..MOST_WAITING {
            assert!(matches!(processors.admit(HOST, 0, 1), Admission::At(_)));
        }
        assert_eq!(processors.admit(HOST, 0, 1), Admission::Refused);
        processors.finish(HOST);
        assert!(matches!(processors.admit(HOST, 0, 1), Admission::At(_)));
    }

    #[test]
    fn without_a_cost_work_is_done_at_once() {
        assert_eq!(Processors::new(0, 1).admit(HOST, 7, 1), Admission::AtOnce);
    }
}
