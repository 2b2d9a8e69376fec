// SPDX-License-Identifier: Apache-2.0
//! Limits the data plane's time that each peer may use.
//!
//! The time that a peer's packets and their effects take is measured and charged to the peer. After
//! a peer has used up its share, its packets are dropped before decryption. They are not
//! acknowledged, so the peer detects losses. A packet that fails authentication under the peer's
//! keys is charged to no peer, so that others cannot use up its budget.

use crate::limits::{TIME_BURST, TIME_SHARE};
use std::time::Duration;
use tautline_proto::{Instant, PeerId};

/// Time without drops after which the next drop is reported again.
const QUIET_PERIOD: Duration = Duration::from_secs(10);

/// The time that each peer may still use.
#[derive(Debug, Default)]
pub(super) struct Usage(Vec<Budget>);

#[derive(Debug)]
struct Budget {
    /// Remaining time in nanoseconds. Negative after a packet that took longer than the time that was left.
    left_ns: i64,
    filled: Instant,
    dropped: u64,
    dropped_at: Option<Instant>,
}

/// Whether a packet of a peer is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    Granted,
    /// The peer has used up its budget.
    Denied {
        /// Whether this is the first drop after a time without drops.
        is_first: bool,
    },
}

fn nanos(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

impl Budget {
    fn new(now: Instant) -> Self {
        Self { left_ns: nanos(TIME_BURST), filled: now, dropped: 0, dropped_at: None }
    }

    fn fill(&mut self, now: Instant) {
        let earned = nanos(now.since(self.filled).mul_f64(TIME_SHARE));
        self.left_ns = self.left_ns.saturating_add(earned).min(nanos(TIME_BURST));
        self.filled = now;
    }
}

impl Usage {
    fn budget(&mut self, now: Instant, peer: PeerId) -> &mut Budget {
        let index = peer.0 as usize;
        while self.0.len() <= index {
            self.0.push(Budget::new(now));
        }
        &mut self.0[index]
    }

    /// Decides whether a packet that claims to be from `peer` is handled at `now`.
    pub(super) fn admit(&mut self, now: Instant, peer: PeerId) -> Admission {
        let budget = self.budget(now, peer);
        budget.fill(now);
        if budget.left_ns > 0 {
            return Admission::Granted;
        }
        budget.dropped += 1;
        let before = budget.dropped_at.replace(now);
        Admission::Denied { is_first: before.is_none_or(|at| now.since(at) > QUIET_PERIOD) }
    }

    /// Charges `peer` for the time from `since` to `now`.
    pub(super) fn charge(&mut self, since: Instant, now: Instant, peer: PeerId) {
        let spent = nanos(now.since(since));
        let budget = self.budget(now, peer);
        budget.left_ns = budget.left_ns.saturating_sub(spent);
    }

    /// Returns the number of packets dropped because their peers had used up their shares.
    pub(super) fn dropped_packets(&self) -> u64 {
        self.0.iter().map(|budget| budget.dropped).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: PeerId = PeerId(2);

    fn at(micros: u64) -> Instant {
        Instant(1_000_000_000) + Duration::from_micros(micros)
    }

    #[test]
    fn a_peer_uses_its_burst_and_then_its_share() {
        let mut usage = Usage::default();
        let (mut now, mut admitted) = (0, 0);
        // Each packet takes 100 us, and one arrives every 100 us: the whole time of the loop.
        for _ in 0..20_000 {
            if usage.admit(at(now), PEER) == Admission::Granted {
                usage.charge(at(now), at(now + 100), PEER);
                admitted += 1;
            }
            now += 100;
        }
        let expected = (TIME_BURST.as_secs_f64() + 2.0 * TIME_SHARE) / 100e-6;
        assert!(
            (admitted as f64 - expected).abs() < 20.0,
            "{admitted} of 20000, {expected} expected"
        );
        assert_eq!(usage.dropped_packets(), 20_000 - admitted);
        assert_eq!(usage.admit(at(now), PeerId(1)), Admission::Granted);
    }

    #[test]
    fn the_first_drop_after_a_pause_is_reported() {
        let mut usage = Usage::default();
        usage.admit(at(0), PEER);
        usage.charge(at(0), at(60_000_000), PEER);
        let denied = |is_first| Admission::Denied { is_first };
        assert_eq!(usage.admit(at(1000), PEER), denied(true));
        assert_eq!(usage.admit(at(2000), PEER), denied(false));
        assert_eq!(usage.admit(at(20_000_000), PEER), denied(true));
    }
}
