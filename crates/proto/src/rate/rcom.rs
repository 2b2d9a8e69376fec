// SPDX-License-Identifier: Apache-2.0
//! The two controllers of RCom, as published (papers.md, section 2): to compare with.
//!
//! Both know losses and deliveries alone. RCom gives no step; these are the least that let its
//! gaps (0.15 to 8 ms for 1500 bytes) move by half within a second.

use super::{Ask, Controller, FULL_PACKET, Release, Report};
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

#[derive(Debug)]
struct Gap {
    seconds: f64,
    next: Instant,
}

impl Gap {
    fn new() -> Self {
        Self { seconds: FIRST_GAP, next: Instant::default() }
    }

    fn release(&self, now: Instant) -> Release {
        if now < self.next { Release::At(self.next) } else { Release::Now }
    }

    fn on_sent(&mut self, now: Instant, bytes: usize) {
        let gap = self.seconds * bytes as f64 / FULL_PACKET as f64;
        self.next =
            self.next.max(now.before(Duration::from_millis(1))) + Duration::from_secs_f64(gap);
    }

    fn set(&mut self, seconds: f64) {
        self.seconds = seconds.clamp(LEAST_GAP, MOST_GAP);
    }

    fn rate_bps(&self) -> u64 {
        (FULL_PACKET as f64 * 8.0 / self.seconds) as u64
    }
}

/// Additive increase, additive decrease: a loss lengthens the gap by a step, a delivery
/// shortens it by one.
#[derive(Debug)]
pub struct Aid(Gap);

/// Additive increase, multiplicative decrease: a loss doubles the gap.
#[derive(Debug)]
pub struct Aimd(Gap);

impl Aid {
    /// At RCom's middle rate.
    pub fn new() -> Self {
        Self(Gap::new())
    }
}

impl Aimd {
    /// At RCom's middle rate.
    pub fn new() -> Self {
        Self(Gap::new())
    }
}

impl Default for Aid {
    fn default() -> Self {
        Self::new()
    }
}

impl Default for Aimd {
    fn default() -> Self {
        Self::new()
    }
}

impl Controller for Aid {
    fn release(&mut self, now: Instant, _ask: Ask, _under_way: usize) -> Release {
        self.0.release(now)
    }

    fn on_sent(&mut self, now: Instant, bytes: usize, _under_way: usize) {
        self.0.on_sent(now, bytes);
    }

    fn on_report(&mut self, _now: Instant, report: &Report) {
        let steps = report.lost_packets as f64 - report.acked_packets as f64;
        self.0.set(self.0.seconds + STEP * steps);
    }

    fn signal(&self) -> &'static str {
        "losses (AID)"
    }

    fn limit_bytes(&self) -> usize {
        LIMIT
    }

    fn rate_bps(&self) -> Option<u64> {
        Some(self.0.rate_bps())
    }
}

impl Controller for Aimd {
    fn release(&mut self, now: Instant, _ask: Ask, _under_way: usize) -> Release {
        self.0.release(now)
    }

    fn on_sent(&mut self, now: Instant, bytes: usize, _under_way: usize) {
        self.0.on_sent(now, bytes);
    }

    fn on_report(&mut self, _now: Instant, report: &Report) {
        let factor = FACTOR.powi(report.lost_packets.min(32) as i32);
        self.0.set((self.0.seconds - STEP * report.acked_packets as f64).max(LEAST_GAP) * factor);
    }

    fn signal(&self) -> &'static str {
        "losses (AIMD)"
    }

    fn limit_bytes(&self) -> usize {
        LIMIT
    }

    fn rate_bps(&self) -> Option<u64> {
        Some(self.0.rate_bps())
    }
}
