// SPDX-License-Identifier: Apache-2.0
//! Active queue management of a pipe: it marks packets of senders that obey marks (ECN, RFC 3168), and
//! drops others.

use crate::config::Aqm;
use crate::ids::Nanos;

/// Standing delay that CoDel allows (RFC 8289, section 4.4).
const TARGET: Nanos = 5_000_000;
/// Time for which the delay must exceed [`TARGET`] before CoDel acts.
const INTERVAL: Nanos = 100_000_000;
/// After this many intervals, the rate of earlier marks is outdated (RFC 8289, section 5.6).
const MARK_RATE_LIFETIME: Nanos = 16 * INTERVAL;

/// What happens to the packet at the head of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Pass,
    Mark,
    Drop,
}

/// The state of one queue.
#[derive(Debug, Clone, Default)]
pub(crate) struct AqmState {
    /// Time at which the delay has exceeded the target for an interval (RFC 8289: `first_above_time_`).
    first_above_time: Option<Nanos>,
    /// Whether CoDel is marking or dropping.
    acting: bool,
    next: Nanos,
    count: u32,
    last_count: u32,
}

/// A packet at the head of the queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    /// Time since it was queued.
    pub(crate) waited: Nanos,
    /// Whether more than a full packet is queued behind this packet.
    pub(crate) is_followed: bool,
    /// Whether the sender obeys marks.
    pub(crate) capable: bool,
}

impl AqmState {
    /// Decides the fate of a packet. After [`Fate::Drop`], call it for the next packet at the same
    /// time.
    pub(crate) fn decide(&mut self, aqm: Aqm, now: Nanos, head: Head) -> Fate {
        match aqm {
            Aqm::None => Fate::Pass,
            Aqm::Step(threshold) if head.waited > threshold && head.capable => Fate::Mark,
            Aqm::Step(_) => Fate::Pass,
            Aqm::Codel if !self.should_act(now, head) => Fate::Pass,
            Aqm::Codel if head.capable => Fate::Mark,
            Aqm::Codel => Fate::Drop,
        }
    }

    /// Whether CoDel acts on this packet.
    fn should_act(&mut self, now: Nanos, head: Head) -> bool {
        if head.waited < TARGET || !head.is_followed {
            (self.first_above_time, self.acting) = (None, false);
            return false;
        }
        let until = *self.first_above_time.get_or_insert(now + INTERVAL);
        if now < until {
            self.acting = false;
            return false;
        }
        if !self.acting {
            let recent = now.saturating_sub(self.next) < MARK_RATE_LIFETIME;
            let delta = self.count.saturating_sub(self.last_count);
            self.count = if recent && delta > 1 { delta } else { 1 };
            (self.acting, self.last_count, self.next) = (true, self.count, now);
        } else if now >= self.next {
            self.count += 1;
        } else {
            return false;
        }
        self.next += (INTERVAL as f64 / f64::from(self.count).sqrt()) as Nanos;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    /// Passes a packet every millisecond for a second, each with this delay; returns the times at
    /// which CoDel acted.
    fn action_times(waited: Nanos, capable: bool) -> Vec<Nanos> {
        let mut manager = AqmState::default();
        let head = Head { waited, is_followed: true, capable };
        let expected = if capable { Fate::Mark } else { Fate::Drop };
        let mut fate = |at: &Nanos| manager.decide(Aqm::Codel, *at * MS, head);
        (0..1000).filter(|at| fate(at) == expected).collect()
    }

    #[test]
    fn codel_acts_after_an_interval_and_then_more_often() {
        for capable in [true, false] {
            assert_eq!(action_times(4 * MS, capable), []);
            // 100 ms later, then after 100/sqrt(1), 100/sqrt(2), ...: RFC 8289, section 5.5.
            let times = action_times(6 * MS, capable);
            assert_eq!(times[..5], [100, 200, 271, 329, 379]);
            assert!(times.len() > 20, "{times:?}");
        }
    }

    #[test]
    fn codel_ends_when_the_delay_falls_or_nothing_follows() {
        for (waited, is_followed) in [(4 * MS, true), (20 * MS, false)] {
            let mut manager = AqmState::default();
            let long = Head { waited: 20 * MS, is_followed: true, capable: true };
            let fate = |at| manager.decide(Aqm::Codel, at * MS, long);
            assert_eq!((0..=100).map(fate).last(), Some(Fate::Mark));
            let short = Head { waited, is_followed, ..long };
            assert_eq!(manager.decide(Aqm::Codel, 101 * MS, short), Fate::Pass);
            assert_eq!(manager.decide(Aqm::Codel, 300 * MS, long), Fate::Pass, "a new interval");
        }
    }

    #[test]
    fn a_step_marks_every_capable_packet_above_it_and_drops_none() {
        let mut manager = AqmState::default();
        for (waited, capable, expected) in
            [(2 * MS, true, Fate::Mark), (MS, true, Fate::Pass), (2 * MS, false, Fate::Pass)]
        {
            let head = Head { waited, is_followed: false, capable };
            assert_eq!(manager.decide(Aqm::Step(MS), 0, head), expected);
        }
    }
}
