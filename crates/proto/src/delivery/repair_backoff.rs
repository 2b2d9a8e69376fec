// SPDX-License-Identifier: Apache-2.0
//! Pauses between repairs of control messages that bring no acknowledgement.
//!
//! The repair budget does not limit control messages, because everything waits for them. Without
//! a limit, two stations that do not hear each other and both send definitions in the voice
//! category collide without end: its contention window ends at seven slots (IEEE 802.11-2016,
//! table 9-137). As in RFC 9002, section 6.2.1, the pause doubles until something arrives.

use crate::time::{Duration, Instant};

/// Number of packets with repairs that are sent without a pause. Single losses need no more.
const PACKETS_WITHOUT_PAUSE: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(4);
const MAX_PAUSE: Duration = Duration::from_millis(256);

/// Decides when control messages may be sent again to one peer.
#[derive(Debug, Default)]
pub(crate) struct RepairBackoff {
    now: Instant,
    next: Instant,
    /// Packets with repairs of control messages since the last acknowledgement of a control
    /// message.
    unanswered: u32,
}

impl RepairBackoff {
    /// Sets the present time.
    pub(crate) fn update(&mut self, now: Instant) {
        self.now = now;
    }

    pub(crate) fn is_allowed(&self) -> bool {
        self.now >= self.next
    }

    /// Records that a packet with repairs was sent. `random` keeps two nodes from repeating in
    /// step.
    pub(crate) fn on_sent(&mut self, now: Instant, random: u64) {
        self.unanswered = self.unanswered.saturating_add(1);
        let Some(doublings) = self.unanswered.checked_sub(PACKETS_WITHOUT_PAUSE) else { return };
        let pause = (FIRST_PAUSE * (1 << doublings.min(16))).min(MAX_PAUSE);
        let jitter = Duration::from_nanos(random % pause.as_nanos() as u64);
        self.next = now + pause / 2 + jitter;
    }

    /// Ends the pauses. A control message was acknowledged, or the link was lost: there is no sign
    /// of collisions.
    pub(crate) fn reset(&mut self) {
        (self.unanswered, self.next) = (0, self.now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repairs_without_acknowledgements_become_rare() {
        let mut backoff = RepairBackoff::default();
        let mut pauses = Vec::new();
        for n in 0..20 {
            assert!(backoff.is_allowed());
            let now = backoff.now;
            backoff.on_sent(now, n * 12_345_678_901);
            pauses.push(backoff.next.since(now));
            backoff.update(backoff.next);
        }
        let first = PACKETS_WITHOUT_PAUSE as usize - 1;
        assert!(pauses[..first].iter().all(|pause| pause.is_zero()), "{pauses:?}");
        assert!(pauses[first] >= FIRST_PAUSE / 2, "{pauses:?}");
        assert!(pauses.iter().all(|pause| *pause <= MAX_PAUSE * 2), "{pauses:?}");
        assert!(pauses[19] >= MAX_PAUSE / 2, "{pauses:?}");
        backoff.on_sent(backoff.now, 0);
        assert!(!backoff.is_allowed());
        backoff.reset();
        assert!(backoff.is_allowed());
    }
}
