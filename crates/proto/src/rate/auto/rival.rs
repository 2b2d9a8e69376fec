// SPDX-License-Identifier: Apache-2.0
//! One who fills a queue whatever others do, as a download by TCP does. Whoever gives way to
//! that gets nothing, and whoever does not leaves nothing: so between a quarter and a half of
//! what the way carried is sent, more by a packet per round trip, and less when the queue
//! overflows, as TCP does.

use crate::rate::FULL_PACKET;
use crate::time::{Duration, Instant};

/// At least this part of what the way carried before is sent,
const CLAIM: f64 = 0.25;
/// as long as the rival was seen so lately, even if less was sent since;
const KEPT: Duration = Duration::from_secs(120);
/// and at most so many times that.
const MOST_CLAIMS: f64 = 2.0;
/// When it overflows both send less, by CUBIC's factor (RFC 9438).
const GIVE_WAY: f64 = 0.7;

/// What is claimed beside such a one. Rates are in bits per second.
#[derive(Debug)]
pub(super) struct Rival {
    claim: f64,
    seen: Instant,
    /// The rival was there first, and its queue has not overflowed yet: the way may carry more,
    /// or less.
    guessed: bool,
}

impl Default for Rival {
    fn default() -> Self {
        Self { claim: 0.0, seen: Instant::default(), guessed: true }
    }
}

impl Rival {
    /// What is sent at least.
    pub(super) fn least(&self) -> f64 {
        self.claim
    }

    /// What is sent at most, so that the other has as much: no bound while nothing is known.
    pub(super) fn most(&self) -> f64 {
        if self.guessed { f64::INFINITY } else { self.claim * MOST_CLAIMS }
    }

    /// By how much what is sent may grow in a round trip of `time`, as with TCP (RFC 5681), once
    /// anything is known.
    pub(super) fn growth(&self, time: Duration) -> Option<f64> {
        (!self.guessed).then(|| FULL_PACKET as f64 * 8.0 / time.as_secs_f64())
    }

    /// Packets were lost for want of room: of `share` so much had `arrived`. What is to be sent now.
    pub(super) fn overflow(&mut self, share: f64, arrived: f64) -> f64 {
        self.claim = match self.guessed {
            true => arrived / MOST_CLAIMS,
            false => self.claim.min(arrived),
        };
        self.guessed = false;
        share * GIVE_WAY
    }

    /// While there is no rival it becomes known what the way carries.
    pub(super) fn is_away(&mut self) {
        self.guessed = false;
    }

    /// Found out, and until then the way carried `share`: or more, if the rival was there already.
    pub(super) fn found(&mut self, now: Instant, share: f64) {
        let kept = if now.since(self.seen) < KEPT { self.claim } else { 0.0 };
        (self.claim, self.seen) = ((share * CLAIM).max(kept), now);
    }

    /// Seen while little was sent: the way may carry `guess`.
    pub(super) fn sighted(&mut self, now: Instant, guess: f64) {
        *self = Self { claim: guess * CLAIM, seen: now, ..Self::default() };
    }
}
