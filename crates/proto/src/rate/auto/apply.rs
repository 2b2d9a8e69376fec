// SPDX-License-Identifier: Apache-2.0
//! Applies the verdict on a sample.

use super::ceiling::Growth;
use super::compete::Compete;
use super::dip::Dip;
use super::external::Drain;
use super::probe::Probe;
use super::state::{State, Verdict};
use super::{Auto, MAX_RATE};
use crate::time::Instant;

/// An external delay beyond this part of a packet's serialization time has other causes than
/// channel contention.
const CONTENTION_PART: f64 = 0.5;
/// Growth near the ceiling, with each round, as a part of the estimate.
const GENTLE_GROWTH: f64 = 0.001;

impl Auto {
    /// Changes the estimate and the state. Nothing else changes them, except that a test in
    /// progress updates its own state.
    pub(super) fn apply(&mut self, now: Instant, verdict: Verdict) {
        match verdict {
            Verdict::Hold => {}
            Verdict::Double { rate } => {
                self.estimate = self.estimate.max(rate);
                if let State::Startup { window, .. } = &mut self.state {
                    *window = window.saturating_mul(2);
                }
            }
            Verdict::Track { estimate } => {
                if self.is_starting() {
                    self.probes.postpone(now, &self.tuning);
                }
                (self.state, self.estimate, self.spare_rounds) = (State::Track, estimate, 0);
                self.times.last_congested = now;
            }
            Verdict::Follow { rate, gain, is_unusual } => {
                self.estimate += gain * (rate - self.estimate);
                self.spare_rounds = 0;
                if gain == 1.0 {
                    self.ceiling.forget();
                } else {
                    self.ceiling.follow(rate, gain, self.estimate, is_unusual);
                }
            }
            Verdict::Grow { capacity, is_empty, is_clear } => {
                self.times.last_growth = now;
                // Where losses, other senders or turns make arrivals a poor measure, the ceiling is
                // a poor measure as well.
                let others = self.packet_time().mul_f64(CONTENTION_PART);
                let is_shared = self.external.delay() > others;
                if self.losses.is_lossy() || is_shared || self.capacity_varies() {
                    self.ceiling.forget();
                }
                match self.ceiling.growth(self.estimate, is_clear) {
                    Growth::UpTo(max) => self.grow(now, max.min(2.0 * capacity), is_empty),
                    Growth::Gently => {
                        self.estimate *= 1.0 + GENTLE_GROWTH;
                        (self.spare_rounds, self.times.last_congested) = (0, now);
                    }
                }
            }
            Verdict::Cut { rate } => {
                self.limit.on_congestion(now, rate, &self.tuning);
                (self.state, self.estimate, self.spare_rounds) = (State::Track, rate, 0);
                self.times.last_congested = now;
            }
            Verdict::BackOff { delivered } => {
                self.external.on_overflow(delivered);
                self.estimate *= self.tuning.backoff;
                self.losses.forget_excess();
                self.times.last_backoff = now;
                if let State::Compete(compete) = &mut self.state {
                    compete.reduce(now, &self.tuning);
                }
            }
            begins => self.begin(now, begins),
        }
        let floor = self.external.floor(&self.tuning).max(self.tuning.min_rate);
        self.estimate = self.estimate.max(floor).min(MAX_RATE);
    }

    /// Begins a test, or begins to compete.
    fn begin(&mut self, now: Instant, verdict: Verdict) {
        match verdict {
            Verdict::Dip { estimate, before } => {
                let deep = matches!(self.state, State::Dip(_));
                let (time, losses, tuning) = (self.feedback_time(), &self.losses, &self.tuning);
                let dip = Dip::begin(now, time, estimate, before, losses, deep, tuning);
                (self.state, self.estimate) = (State::Dip(dip), estimate);
            }
            Verdict::Probe => {
                let delay = self.jitter.mean() + self.external.delay();
                let deviation = self.jitter.long_term_deviation();
                let time = self.feedback_time();
                let (successful_probes, tuning) = (self.successful_probes, &self.tuning);
                let probe = Probe::begin(
                    now,
                    self.estimate,
                    time,
                    delay,
                    deviation,
                    successful_probes,
                    tuning,
                );
                self.state = State::Probe(probe);
            }
            Verdict::Drain { time } => {
                let (competes, marked) = (self.state.as_compete(), self.marks.are_recent(now));
                let drain = Drain::begin(now, time, self.feedback_time(), competes, marked);
                self.state = State::Drain(drain);
                self.pause_until(drain.until);
            }
            Verdict::Compete { arrived, rtt } => {
                let least = self.feedback.min_rtt();
                let begin = || Compete::begin(now, arrived, rtt, least, &self.tuning);
                let mut compete = self.state.as_compete().unwrap_or_else(begin);
                self.estimate = compete.grow(now, arrived, rtt, &self.tuning);
                self.state = State::Compete(compete);
            }
            Verdict::Hold
            | Verdict::Double { .. }
            | Verdict::Track { .. }
            | Verdict::Follow { .. }
            | Verdict::Grow { .. }
            | Verdict::Cut { .. }
            | Verdict::BackOff { .. } => {}
        }
    }
}
