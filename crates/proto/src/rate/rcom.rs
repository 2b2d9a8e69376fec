// SPDX-License-Identifier: Apache-2.0
//! The two controllers of RCom, as published (papers.md, section 2): to compare with.
//!
//! Both know losses and deliveries alone. RCom gives no step; these are the least that let its
//! gaps (0.15 to 8 ms for 1500 bytes) move by half within a second.

use super::{Ask, Controller, FULL_PACKET, Release, Report, following};
use crate::time::{Duration, Instant};

/// The gap at first, between packets of 1500 bytes: its 11 Mbps radio's.
const FIRST_GAP: f64 = 1.6e-3;
/// 54 Mbps are 0.2 ms; nothing faster was met.
const LEAST_GAP: f64 = 0.05e-3;
const MOST_GAP: f64 = 1.0;
/// By which a delivery shortens the gap, and (AID) a loss lengthens it, in seconds.
const STEP: f64 = 5e-6;
/// By which a loss lengthens the gap (AIMD): half the rate.
const FACTOR: f64 = 2.0;
/// Under way at once: what its sender's socket takes.
const LIMIT: usize = 212_992;

/// Late timers cost no rate up to this.
const CATCH_UP: Duration = Duration::from_millis(1);

/// A gap between packets that a delivery shortens by a step, and a loss lengthens.
#[derive(Debug)]
pub struct Rcom {
    /// Between packets of 1500 bytes, in seconds.
    gap: f64,
    next: Instant,
    /// A loss doubles the gap (AIMD), else it lengthens it by a step (AID).
    multiplies: bool,
}

impl Rcom {
    /// Additive increase, additive decrease, from RCom's middle rate on.
    pub fn aid() -> Self {
        Self { gap: FIRST_GAP, next: Instant::default(), multiplies: false }
    }

    /// Additive increase, multiplicative decrease, from there on.
    pub fn aimd() -> Self {
        Self { multiplies: true, ..Self::aid() }
    }
}

impl Controller for Rcom {
    fn release(&mut self, now: Instant, _ask: Ask, _under_way: usize) -> Release {
        if now < self.next { Release::At(self.next) } else { Release::Now }
    }

    fn on_sent(&mut self, now: Instant, bytes: usize, _under_way: usize) {
        let gap = Duration::from_secs_f64(self.gap * bytes as f64 / FULL_PACKET as f64);
        self.next = following(self.next, now, gap, CATCH_UP);
    }

    fn on_report(&mut self, _now: Instant, report: &Report) {
        let (acked, lost) = (report.acked_packets as f64, report.lost_packets);
        let gap = match self.multiplies {
            true => (self.gap - STEP * acked).max(LEAST_GAP) * FACTOR.powi(lost.min(32) as i32),
            false => self.gap + STEP * (lost as f64 - acked),
        };
        self.gap = gap.clamp(LEAST_GAP, MOST_GAP);
    }

    fn signal(&self) -> &'static str {
        if self.multiplies { "losses (AIMD)" } else { "losses (AID)" }
    }

    fn limit_bytes(&self) -> usize {
        LIMIT
    }

    fn rate_bps(&self) -> Option<u64> {
        Some((FULL_PACKET as f64 * 8.0 / self.gap) as u64)
    }
}
