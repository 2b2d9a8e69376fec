// SPDX-License-Identifier: Apache-2.0
//! The trial of a direct path that was found. Nobody has chosen this path, and a relay can carry the messages
//! without it. The path therefore replaces the relay only while it loses few packets.

/// Number of packets in a round. Without messages they are PINGs, so that a round takes a second.
const PACKETS: u64 = 10;
/// Maximum number of lost packets in a round that is passed.
const MAX_LOST: u64 = 1;
/// Smoothed loss below which the path may be used. At a higher loss, the relay is better: losses on its route
/// are repaired hop by hop.
const ADMITTED_LOSS: f64 = 0.1;
/// Smoothed loss above which the trial of a path in use begins again.
const MAX_LOSS: f64 = 0.2;
/// Number of rounds with frequent PINGs.
const FREQUENT_PING_ROUNDS: u32 = 3;
/// Acknowledged packets after which a path has proved itself. A path that is interrupted earlier needs twice
/// as many rounds the next time, at most [`MAX_NEEDED`].
const PROVEN_PACKETS: u64 = 600;
const MAX_NEEDED: u32 = 64;

/// The trial of one link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trial {
    /// Number of rounds passed in a row after which the trial ends.
    needed_rounds: u32,
    /// Rounds passed in a row so far.
    passed: u32,
    rounds: u32,
    /// Packets acknowledged in this round, or since the end of the trial.
    acked: u64,
    /// Packets lost in this round, or since the end of the trial.
    lost: u64,
    /// Whether a relay carries the messages in the meantime.
    pub(crate) has_relay: bool,
}

impl Trial {
    pub(crate) fn new() -> Self {
        Self { needed_rounds: 1, passed: 0, rounds: 0, acked: 0, lost: 0, has_relay: false }
    }

    fn is_over(&self) -> bool {
        self.passed >= self.needed_rounds
    }

    /// Whether messages wait for the end of the trial.
    pub(crate) fn defers_messages(&self) -> bool {
        !self.is_over() && self.has_relay
    }

    /// Whether the trial needs frequent PINGs.
    pub(crate) fn needs_frequent_pings(&self) -> bool {
        !self.is_over() && self.rounds < FREQUENT_PING_ROUNDS
    }

    /// Counts packets whose outcome is known. `loss` is the loss smoothed over earlier packets.
    pub(crate) fn on_outcome(&mut self, acked: u64, lost: u64, loss: f64) {
        (self.acked, self.lost) = (self.acked + acked, self.lost + lost);
        if self.is_over() {
            if loss > MAX_LOSS {
                self.restart();
            }
        } else if self.acked + self.lost >= PACKETS {
            let is_passed = self.lost <= MAX_LOST && loss < ADMITTED_LOSS;
            self.passed = if is_passed { self.passed + 1 } else { 0 };
            (self.acked, self.lost) = (0, 0);
            self.rounds = self.rounds.saturating_add(1);
        }
    }

    /// Begins the trial again: the path was interrupted, or loses too much.
    pub(crate) fn restart(&mut self) {
        if self.is_over() {
            let has_proved = self.acked >= PROVEN_PACKETS;
            self.needed_rounds =
                if has_proved { 1 } else { (self.needed_rounds * 2).min(MAX_NEEDED) };
            self.rounds = 0;
        }
        (self.passed, self.acked, self.lost) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_direct_path_replaces_the_relay_while_its_loss_is_low() {
        let mut trial = Trial { has_relay: true, ..Trial::new() };
        trial.on_outcome(9, 0, 0.0);
        assert!(trial.defers_messages());
        trial.on_outcome(0, 1, 0.02);
        assert!(!trial.defers_messages(), "one of ten is lost");
        trial.on_outcome(700, 10, 0.19);
        assert!(!trial.defers_messages());
        trial.on_outcome(50, 20, 0.21);
        assert!(trial.defers_messages() && trial.needs_frequent_pings());
        for (acked, lost, loss) in [(8, 2, 0.05), (10, 0, 0.15), (8, 2, 0.05)] {
            trial.on_outcome(acked, lost, loss);
        }
        assert!(trial.defers_messages() && !trial.needs_frequent_pings(), "no round was passed");
        trial.on_outcome(10, 0, 0.05);
        assert!(!trial.defers_messages());
        trial.restart();
        assert!(trial.defers_messages());
        trial.has_relay = false;
        assert!(!trial.defers_messages(), "there is no other path");
    }

    #[test]
    fn a_path_that_does_not_last_is_tried_for_longer() {
        let mut trial = Trial { has_relay: true, ..Trial::new() };
        for needed_rounds in [1, 2, 4, 8, 16, 32, 64, 64] {
            let rounds = (1..).find(|_| {
                trial.on_outcome(10, 0, 0.0);
                !trial.defers_messages()
            });
            assert_eq!(rounds, Some(needed_rounds));
            trial.restart();
        }
        (0..64).for_each(|_| trial.on_outcome(10, 0, 0.0));
        trial.on_outcome(PROVEN_PACKETS, 0, 0.0);
        trial.restart();
        trial.on_outcome(10, 0, 0.0);
        assert!(!trial.defers_messages());
    }
}
