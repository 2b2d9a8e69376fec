// SPDX-License-Identifier: Apache-2.0
//! The times at which the master is polled. The master reports new nodes, since all of them publish
//! one topic, but not new topics and services. So it is polled every second, and more often for a
//! second after a node has started: its first messages would be lost otherwise.

use std::time::{Duration, Instant};

/// The topic that every node of rospy and roscpp publishes from its start.
pub(super) const TOPIC_OF_ALL_NODES: &str = "/rosout";
const PERIOD: Duration = Duration::from_secs(1);
/// The period for [`START_TIME`] after a node has started.
const START_PERIOD: Duration = Duration::from_millis(100);
/// Time in which a node advertises its topics after its start.
const START_TIME: Duration = Duration::from_secs(1);

pub(super) struct PollSchedule {
    next: Instant,
    /// When the last poll started.
    started: Instant,
    /// How long the last poll took, if it succeeded.
    last_duration: Duration,
    /// Whether the last poll still runs.
    is_running: bool,
    /// Another poll was requested during this one.
    is_poll_queued: bool,
    /// Nodes may be starting until this time.
    starting_until: Instant,
}

impl PollSchedule {
    pub fn new(now: Instant) -> Self {
        let (last_duration, is_running, is_poll_queued) = (Duration::ZERO, false, false);
        Self {
            next: now,
            started: now,
            last_duration,
            is_running,
            is_poll_queued,
            starting_until: now,
        }
    }

    /// The time of the next poll; none while one runs.
    pub fn next_poll(&self) -> Option<Instant> {
        (!self.is_running).then_some(self.next)
    }

    /// Requests a poll. Returns whether to start it now; otherwise it is queued behind the running
    /// poll.
    pub fn start(&mut self, now: Instant) -> bool {
        self.is_poll_queued = self.is_running;
        if !self.is_running {
            (self.is_running, self.started) = (true, now);
        }
        !self.is_poll_queued
    }

    /// Records the end of the running poll.
    pub fn end_poll(&mut self, now: Instant, has_succeeded: bool) {
        self.is_running = false;
        self.last_duration = if has_succeeded { now - self.started } else { Duration::ZERO };
        let period = if now < self.starting_until { START_PERIOD } else { PERIOD };
        let at_once = std::mem::take(&mut self.is_poll_queued) && self.last_duration <= PERIOD;
        self.next = if at_once { now } else { self.earliest_poll(period) };
    }

    /// The list of nodes has changed. Even frequent changes cause few polls.
    pub fn on_nodes_changed(&mut self, now: Instant) {
        self.starting_until = now + START_TIME;
        self.next = self.next.min(self.earliest_poll(START_PERIOD));
    }

    /// The earliest time of the next poll with this period. A poll of long lists keeps a core busy: if it
    /// took longer than the period, the pause after it is as long as the poll.
    fn earliest_poll(&self, period: Duration) -> Instant {
        self.started + if self.last_duration > period { 2 * self.last_duration } else { period }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Runs polls of this duration until `end`, and returns the times at which they start.
    fn starts(
        polls: &mut PollSchedule,
        begin: Instant,
        end: Duration,
        duration: Duration,
    ) -> Vec<Duration> {
        let mut starts = Vec::new();
        while let Some(due) = polls.next_poll().filter(|due| *due < begin + end) {
            assert!(polls.start(due) && polls.next_poll().is_none());
            starts.push(due - begin);
            polls.end_poll(due + duration, true);
        }
        starts
    }

    #[test]
    fn polls_are_frequent_for_a_second_after_a_node_has_started() {
        let begin = Instant::now();
        let mut polls = PollSchedule::new(begin);
        assert_eq!(starts(&mut polls, begin, ms(3000), ms(5)), [ms(0), ms(1000), ms(2000)]);
        polls.on_nodes_changed(begin + ms(2300));
        assert!(polls.next_poll() < Some(begin + ms(2300)), "at once");
        assert!(polls.start(begin + ms(2300)));
        polls.end_poll(begin + ms(2305), true);
        let then = starts(&mut polls, begin, ms(5000), ms(5));
        let often = (1..=10).map(|n| ms(2300 + n * 100));
        assert_eq!(then, often.chain([ms(4300)]).collect::<Vec<_>>());
    }

    #[test]
    fn short_lived_nodes_cause_few_polls() {
        for (duration, most) in [(ms(5), 100), (ms(300), 17), (ms(3000), 2)] {
            let begin = Instant::now();
            let mut polls = PollSchedule::new(begin);
            let (mut running, mut count) = (None, 0);
            for now in (0..10_000).map(|n| begin + ms(n)) {
                if running.is_some_and(|start: Instant| now >= start + duration) {
                    running = None;
                    polls.end_poll(now, true);
                }
                polls.on_nodes_changed(now);
                if polls.next_poll().is_some_and(|due| due <= now) && polls.start(now) {
                    (running, count) = (Some(now), count + 1);
                }
            }
            assert!((1..=most).contains(&count), "{count} polls of {duration:?} in 10 s");
        }
    }

    #[test]
    fn a_poll_wanted_during_another_follows_it() {
        let begin = Instant::now();
        let mut polls = PollSchedule::new(begin);
        assert!(polls.start(begin) && !polls.start(begin + ms(1)));
        polls.end_poll(begin + ms(20), true);
        assert_eq!(polls.next_poll(), Some(begin + ms(20)));
        // Unless long lists make polls keep the master busy.
        assert!(polls.start(begin + ms(20)) && !polls.start(begin + ms(21)));
        polls.end_poll(begin + ms(1520), true);
        assert_eq!(polls.next_poll(), Some(begin + ms(3020)));
    }
}
