// SPDX-License-Identifier: Apache-2.0
//! The two published controllers of RCom (Axelrod and Envarli), for comparison.
//!
//! Both react only to losses and deliveries. RCom specifies no step. The steps here are the
//! smallest that let its gaps (0.15 to 8 ms for 1500 bytes) change by half within a second.

use super::flight::MSS;
use tautline_proto::rate::{Controller, PendingPacket, Release, Report};
use tautline_proto::{Duration, Instant};

/// The initial gap between packets of 1500 bytes, in seconds: that of RCom's 11 Mbps radio.
const FIRST_GAP: f64 = 1.6e-3;
/// Smallest gap, in seconds: 54 Mbps needs 0.2 ms, and RCom's radios were not faster.
const MIN_GAP: f64 = 0.05e-3;
const MAX_GAP: f64 = 1.0;
/// Decrease of the gap per delivery, and its increase per loss (AID), in seconds.
const STEP: f64 = 5e-6;
/// Factor of the gap per loss (AIMD), which halves the rate.
const FACTOR: f64 = 2.0;
/// Maximum number of bytes in flight: the socket buffer of RCom's sender.
const LIMIT: usize = 212_992;

/// A timer that is late by no more than this time does not lower the rate.
const CATCH_UP: Duration = Duration::from_millis(1);

/// A gap between packets that shrinks by a step per delivery and grows with each loss.
#[derive(Debug)]
pub struct Rcom {
    /// Gap between packets of 1500 bytes, in seconds.
    gap: f64,
    next: Instant,
    decrease: Decrease,
}

/// How a loss decreases the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decrease {
    /// The gap grows by a step (AID).
    Additive,
    /// The gap doubles (AIMD).
    Multiplicative,
}

impl Rcom {
    /// Additive increase, additive decrease, from RCom's middle rate.
    pub fn aid() -> Self {
        Self { gap: FIRST_GAP, next: Instant::default(), decrease: Decrease::Additive }
    }

    /// Additive increase, multiplicative decrease, from RCom's middle rate.
    pub fn aimd() -> Self {
        Self { decrease: Decrease::Multiplicative, ..Self::aid() }
    }
}

impl Controller for Rcom {
    fn release(&mut self, now: Instant, _ask: PendingPacket, _in_flight: usize) -> Release {
        if now < self.next { Release::At(self.next) } else { Release::Now }
    }

    fn on_sent(&mut self, now: Instant, bytes: usize, _in_flight: usize) {
        let gap = Duration::from_secs_f64(self.gap * bytes as f64 / MSS);
        self.next = self.next.max(now.before(CATCH_UP)) + gap;
    }

    fn on_report(&mut self, _now: Instant, report: &Report) {
        let (acked, lost) = (report.acked_packets as f64, report.lost_packets);
        let gap = match self.decrease {
            Decrease::Multiplicative => {
                (self.gap - STEP * acked).max(MIN_GAP) * FACTOR.powi(lost.min(32) as i32)
            }
            Decrease::Additive => self.gap + STEP * (lost as f64 - acked),
        };
        self.gap = gap.clamp(MIN_GAP, MAX_GAP);
    }

    fn signal(&self) -> &'static str {
        match self.decrease {
            Decrease::Additive => "losses (AID)",
            Decrease::Multiplicative => "losses (AIMD)",
        }
    }

    fn limit_bytes(&self) -> usize {
        LIMIT
    }

    fn rate_bps(&self) -> Option<u64> {
        Some((MSS * 8.0 / self.gap) as u64)
    }
}
