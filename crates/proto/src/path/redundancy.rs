// SPDX-License-Identifier: Apache-2.0
//! Redundancy ahead of loss: on a lossy link, small urgent messages are sent again before a loss is
//! known. The copies cost rate that less urgent messages then lack.

use crate::rate::FULL_PACKET;
use crate::time::{Duration, Instant};

/// Links that lose less have no redundancy: there the 99th percentile of the delay is nearly that of messages
/// that are not lost. See decision 45 for 1 and 2 %.
const LEAST_LOSS: f64 = 0.015;
/// Copies are added until the probability that all of them are lost is at most this. The 99th percentile of
/// the delay is then at most that of the last copy.
const MAX_JOINT_LOSS: f64 = 0.01;
/// Maximum number of copies of a message, in addition to the first transmission.
const MAX_COPIES: u8 = 2;
/// Where longer bursts of losses are the rule, there is no redundancy: a copy within a burst is lost as
/// well, and a repair arrives before a copy that waits for the end of the burst.
const MAX_BURST: f64 = 2.0;
/// Part of the link's rate for copies: with it, bulk data keeps at least nine tenths of the rate.
const SHARE: f64 = 0.09;
/// Credit in a burst, in bytes: a few messages.
const MAX_CREDIT: f64 = 8000.0;
/// Maximum debt, in bytes. Every urgent message is charged one copy, so that the debt lasts while copies of
/// all urgent messages would need more than [`SHARE`]. Copies of only a few messages do not improve the 99th
/// percentile.
const MAX_DEBT: f64 = 8000.0;
/// Packets over which the loss is smoothed. At 3 % loss, eight of them are lost, so that an
/// estimate below [`LEAST_LOSS`] is rare. At 2 %, it is not rare. A short congestion weighs little.
const LOSS_MEMORY: f64 = 256.0;
/// Bursts over which their length is smoothed.
const BURST_MEMORY: f64 = 16.0;

/// Copies of a message that is sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Redundancy {
    pub(crate) copies: u8,
    /// Time between two copies, so that one burst of losses does not take both.
    pub(crate) interval: Duration,
}

/// The state of a link when a packet is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkState {
    /// Bytes per second.
    pub(crate) rate: f64,
    /// Time after which a loss is known and the repair arrives.
    pub(crate) repair: Duration,
}

/// The length of bursts of losses, and the credit for copies, of one link.
#[derive(Debug)]
pub(crate) struct RedundancyPlanner {
    /// Fraction of packets that are lost while the queue of the path is not filled on purpose.
    loss: f64,
    /// Average number of packets lost in a row.
    burst: f64,
    credit: f64,
    updated: Instant,
}

impl Default for RedundancyPlanner {
    fn default() -> Self {
        Self { loss: 0.0, burst: 1.0, credit: MAX_CREDIT, updated: Instant::default() }
    }
}

impl RedundancyPlanner {
    /// Records the outcome of packets. The lost packets form `runs` runs of consecutive packets.
    pub(crate) fn on_outcome(&mut self, acked: u64, lost: u64, runs: u64) {
        for (packets, is_lost) in [(acked, 0.0), (lost, 1.0)] {
            let weight = 1.0 - (-(packets as f64) / LOSS_MEMORY).exp();
            self.loss += (is_lost - self.loss) * weight;
        }
        let grown = (lost as f64 - runs as f64 * self.burst) / BURST_MEMORY;
        self.burst = (self.burst + grown).max(1.0);
    }

    /// Records that packets that were counted as lost arrived after all.
    pub(crate) fn on_spurious_losses(&mut self, packets: u64) {
        self.loss = (self.loss - packets as f64 / LOSS_MEMORY).max(0.0);
    }

    /// Whether [`Self::plan_copies`] returns `None` and earns nothing whatever the state of the link is. The
    /// caller can then save the time of determining that state for each packet.
    pub(crate) fn needs_no_state(&self) -> bool {
        self.credit >= MAX_CREDIT && !self.can_help()
    }

    /// Call this instead of [`Self::plan_copies`] if [`Self::needs_no_state`] returns `true`.
    pub(crate) fn skip(&mut self, now: Instant) {
        self.updated = now;
    }

    /// Whether copies arrive earlier than repairs would, and are not lost with the message.
    fn can_help(&self) -> bool {
        self.loss >= LEAST_LOSS && self.burst <= MAX_BURST
    }

    /// Copies of a message that is sent now; `None` where a repair arrives as early, losses are rare,
    /// or the share is spent.
    pub(crate) fn plan_copies(&mut self, now: Instant, link: LinkState) -> Option<Redundancy> {
        let elapsed = now.since(self.updated).as_secs_f64();
        (self.credit, self.updated) =
            ((self.credit + elapsed * link.rate * SHARE).min(MAX_CREDIT), now);
        if self.credit <= 0.0 || !self.can_help() {
            return None;
        }
        let spacing = (0.5 + self.burst) * FULL_PACKET as f64 / link.rate;
        let interval = Duration::from_secs_f64(spacing.min(1.0));
        let enough = (MAX_JOINT_LOSS.ln() / self.loss.ln()).ceil() as u8;
        // The first copy helps most. Further copies must not use up the credit for first copies.
        let most = if self.credit > MAX_CREDIT / 2.0 { MAX_COPIES } else { 1 };
        let copies = enough.saturating_sub(1).clamp(1, most);
        (interval < link.repair).then_some(Redundancy { copies, interval })
    }

    /// Charges an urgent message, or a further copy of one.
    pub(crate) fn charge(&mut self, bytes: u32) {
        self.credit = (self.credit - f64::from(bytes)).max(-MAX_DEBT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link of 6 Mbps.
    const LINK: LinkState = LinkState { rate: 750e3, repair: Duration::from_millis(20) };

    fn with_loss(loss: f64) -> RedundancyPlanner {
        RedundancyPlanner { loss, ..RedundancyPlanner::default() }
    }

    fn interval(state: &mut RedundancyPlanner) -> Option<Duration> {
        state.plan_copies(Instant(1), LINK).map(|it| it.interval)
    }

    #[test]
    fn more_losses_need_more_copies() {
        let next = |loss| with_loss(loss).plan_copies(Instant(1), LINK).map(|it| it.copies);
        assert_eq!([0.0, 0.005, 0.02, 0.2, 0.9].map(next), [None, None, Some(1), Some(2), Some(2)]);
    }

    #[test]
    fn losses_that_are_undone_need_no_copies() {
        let mut state = RedundancyPlanner::default();
        state.on_outcome(97, 3, 3);
        assert!(state.loss > 0.01);
        state.on_spurious_losses(3);
        assert!(state.loss < 0.001, "{}", state.loss);
        state.on_spurious_losses(100);
        assert_eq!(state.loss, 0.0);
    }

    #[test]
    fn a_copy_waits_for_the_end_of_a_burst_and_comes_before_the_repair() {
        let mut state = with_loss(0.05);
        let single = interval(&mut state);
        assert_eq!(single.map(|it| it.as_millis()), Some(3), "one and a half full packets");
        (0..9).for_each(|_| state.on_outcome(38, 2, 1));
        assert!(interval(&mut state) > single, "after a burst of two");
        state.on_outcome(100, 30, 1);
        assert_eq!(interval(&mut state), None, "a burst takes the copies too");
        let fast = LinkState { repair: Duration::from_millis(3), ..LINK };
        assert_eq!(with_loss(0.05).plan_copies(Instant(1), fast), None, "a repair is as early");
    }

    /// Returns the fraction of messages that get copies, when messages of 1000 bytes are sent at
    /// this interval.
    fn share_with_copies(interval: Duration) -> f64 {
        let mut state = with_loss(0.05);
        let mut now = Instant(1);
        let mut copied = 0;
        for _ in 0..1000 {
            now = now + interval;
            copied += u32::from(state.plan_copies(now, LINK).is_some());
            state.charge(1000);
        }
        f64::from(copied) / 1000.0
    }

    #[test]
    fn copies_are_made_of_all_messages_or_of_none() {
        assert_eq!(share_with_copies(Duration::from_millis(20)), 1.0, "7 % of the rate");
        assert!(share_with_copies(Duration::from_millis(10)) < 0.05, "13 %");
    }
}
