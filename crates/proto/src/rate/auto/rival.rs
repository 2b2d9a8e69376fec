// SPDX-License-Identifier: Apache-2.0
//! One who fills a queue whatever others do, as a download by TCP does. Whoever gives way to
//! that gets nothing, and whoever does not leaves nothing: so between a quarter and a half of
//! what the way carried is sent, more by a packet per round trip, and less when the queue
//! overflows, as TCP does.

use crate::rate::FULL_PACKET;
use crate::time::{Duration, Instant};

/// At least this part of what the way carried before is sent,
const CLAIM: f64 = 0.25;
/// of which no test takes away more than this leaves
const KEEP: f64 = 0.9;
/// before so much time has passed,
const KEPT: Duration = Duration::from_secs(60);
/// and at most so many times that.
const MOST_CLAIMS: f64 = 2.0;
/// When the queue overflows both send less, by CUBIC's factor (RFC 9438).
const GIVE_WAY: f64 = 0.7;

/// What is claimed beside such a one. Rates are in bits per second.
#[derive(Debug, Default)]
pub(super) struct Rival {
    claim: f64,
    claimed: Instant,
    /// It is of a rate that the way is known to carry, and no guess.
    known: bool,
}

impl Rival {
    /// What is sent at least.
    pub(super) fn least(&self) -> f64 {
        self.claim
    }

    /// What is sent at most, so that the other has as much: no bound while nothing is known.
    pub(super) fn most(&self) -> f64 {
        if self.known { self.claim * MOST_CLAIMS } else { f64::INFINITY }
    }

    /// By how much what is sent may grow in a round trip of `time`, as with TCP (RFC 5681), once
    /// anything is known.
    pub(super) fn growth(&self, time: Duration) -> Option<f64> {
        self.known.then(|| FULL_PACKET as f64 * 8.0 / time.as_secs_f64())
    }

    /// Packets were lost for want of room while `share` was sent: what is to be sent now.
    pub(super) fn overflow(&mut self, share: f64) -> f64 {
        self.claim = self.claim.max(share / MOST_CLAIMS);
        self.known = true;
        share * GIVE_WAY
    }

    /// While there is no rival it becomes known what the way carries.
    pub(super) fn is_away(&mut self) {
        self.known = true;
    }

    /// Found by a test, until which the way carried `share`: or more, if the rival was there
    /// before it.
    pub(super) fn found(&mut self, now: Instant, share: f64) {
        let kept = if now.since(self.claimed) < KEPT { self.claim * KEEP } else { 0.0 };
        (self.claim, self.claimed) = ((share * CLAIM).max(kept), now);
    }

    /// Seen without a test, while little was sent: the way may carry `guess`.
    pub(super) fn sighted(&mut self, now: Instant, guess: f64) {
        (self.claim, self.claimed, self.known) = (guess * CLAIM, now, false);
    }
}
