// SPDX-License-Identifier: Apache-2.0
//! The cycle of ProbeBW: sending more slowly than the path delivers, equally fast, and faster.

use super::model::ShortTerm;
use super::{Bbr, LOSS_THRESH, MSS, State, Undo};
use crate::rivals::flight::Acked;
use tautline_proto::{Duration, Instant};

/// A flow of at most this many packets probes as often as Reno.
const MAX_RENO_ROUNDS: f64 = 63.0;

/// What reports say about a probe for bandwidth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum AckPhase {
    #[default]
    Init,
    Refilling,
    ProbeStarting,
    ProbeFeedback,
    ProbeStopping,
}

/// The state of the cycle.
#[derive(Debug, Default)]
pub(super) struct Cycle {
    pub(super) ack_phase: AckPhase,
    pub(super) is_bw_probe_sample: bool,
    pub(super) rounds_since_probe_up: u64,
    stamp: Instant,
    bw_probe_wait: Duration,
    probe_up_acked_per_inc: f64,
    bw_probe_up_acked: f64,
    bw_probe_up_rounds: i32,
    prev_probe_too_high: bool,
    prev_probe_precautionary: bool,
}

impl Bbr {
    pub(super) fn start_down(&mut self, now: Instant) {
        self.model.reset_congestion_signals();
        self.cycle.probe_up_acked_per_inc = f64::INFINITY;
        self.cycle.rounds_since_probe_up = self.random.u64(0..=1);
        self.cycle.bw_probe_wait = Duration::from_secs_f64(2.0 + self.random.f64());
        self.cycle.stamp = now;
        self.cycle.ack_phase = AckPhase::ProbeStopping;
        self.start_round();
        self.state = State::Down;
    }

    pub(super) fn start_refill(&mut self) {
        self.model.short_term = ShortTerm::default();
        self.cycle.bw_probe_up_rounds = 0;
        self.cycle.bw_probe_up_acked = 0.0;
        self.cycle.prev_probe_precautionary = false;
        self.cycle.ack_phase = AckPhase::Refilling;
        self.start_round();
        self.state = State::Refill;
    }

    fn start_up(&mut self) {
        self.cycle.is_bw_probe_sample = true;
        self.cycle.ack_phase = AckPhase::ProbeStarting;
        self.start_round();
        self.model.reset_full_bw(self.model.delivery_rate);
        self.state = State::Up;
        self.raise_longterm_slope();
    }

    pub(super) fn update_cycle(&mut self, now: Instant, acked: &Acked) {
        if !self.model.full_bw_reached || self.adapt_longterm(acked) {
            return;
        }
        let state = self.state;
        match state {
            State::Down | State::Cruise if self.is_time_to_probe(now) => self.start_refill(),
            State::Down if self.is_time_to_cruise() => self.state = State::Cruise,
            State::Refill if self.model.round_start => self.start_up(),
            State::Up if self.is_time_to_go_down() => {
                self.cycle.prev_probe_too_high = false;
                self.start_down(now);
            }
            _ => {}
        }
    }

    fn is_time_to_probe(&self, now: Instant) -> bool {
        let rounds = (self.model.bdp().min(self.cwnd) / MSS).min(MAX_RENO_ROUNDS);
        now > self.cycle.stamp + self.cycle.bw_probe_wait
            || self.cycle.rounds_since_probe_up as f64 >= rounds
    }

    fn is_time_to_cruise(&self) -> bool {
        let in_flight = self.flight.in_flight();
        let bdp = self.with_quanta(self.model.max_bw() * self.model.min_rtt_seconds());
        in_flight <= self.model.inflight_with_headroom() && in_flight <= bdp
    }

    fn is_time_to_go_down(&mut self) -> bool {
        let longterm = self.model.inflight_longterm;
        if self.cycle.prev_probe_too_high && self.flight.in_flight() >= longterm {
            self.cycle.prev_probe_precautionary = true;
            return true;
        }
        if self.is_cwnd_limited() && self.cwnd >= longterm {
            self.model.reset_full_bw(self.model.delivery_rate);
            return false;
        }
        self.model.full_bw_now
    }

    fn is_cwnd_limited(&self) -> bool {
        self.was_cwnd_limited || self.flight.window_limited
    }

    fn raise_longterm_slope(&mut self) {
        let growth = 2f64.powi(self.cycle.bw_probe_up_rounds);
        self.cycle.bw_probe_up_rounds = (self.cycle.bw_probe_up_rounds + 1).min(30);
        self.cycle.probe_up_acked_per_inc = (self.cwnd / growth).max(MSS);
    }

    fn probe_longterm_upward(&mut self, acked: &Acked) {
        if !self.is_cwnd_limited() || self.cwnd < self.model.inflight_longterm {
            return;
        }
        self.cycle.bw_probe_up_acked += acked.bytes;
        let steps = (self.cycle.bw_probe_up_acked / self.cycle.probe_up_acked_per_inc).floor();
        if steps >= 1.0 {
            self.cycle.bw_probe_up_acked -= steps * self.cycle.probe_up_acked_per_inc;
            self.model.inflight_longterm += steps * MSS;
        }
        if self.model.round_start {
            self.raise_longterm_slope();
        }
    }

    /// Adapts the long-term model; returns whether that changed the state.
    fn adapt_longterm(&mut self, acked: &Acked) -> bool {
        let (round_start, phase) = (self.model.round_start, self.cycle.ack_phase);
        if phase == AckPhase::ProbeStarting && round_start {
            self.cycle.ack_phase = AckPhase::ProbeFeedback;
        }
        if phase == AckPhase::ProbeStopping && round_start {
            self.cycle.is_bw_probe_sample = false;
            self.cycle.ack_phase = AckPhase::Init;
            if self.state.is_probe_bw() && !acked.newest.app_limited {
                self.model.advance_max_bw();
            }
            let again = self.cycle.prev_probe_precautionary && !self.cycle.prev_probe_too_high;
            if self.state.is_probe_bw() && again {
                self.start_refill();
                return true;
            }
        }
        let in_flight = acked.newest.in_flight;
        let too_high = self.flight.lost - acked.newest.lost > in_flight * LOSS_THRESH;
        if !too_high && self.model.inflight_longterm.is_finite() {
            self.model.inflight_longterm = self.model.inflight_longterm.max(in_flight);
            if self.state == State::Up {
                self.probe_longterm_upward(acked);
            }
        }
        false
    }

    /// Handles a probe that lost more than the threshold: `in_flight` bytes were too much.
    pub(super) fn on_inflight_too_high(&mut self, acked: &Acked, in_flight: f64) {
        self.cycle.prev_probe_too_high = true;
        self.cycle.is_bw_probe_sample = false;
        if !acked.newest.app_limited {
            let least = self.model.bdp().min(self.cwnd) * super::BETA;
            self.model.inflight_longterm = in_flight.max(least);
        }
        if self.state == State::Up {
            self.undo = self.undo.map(|undo| Undo { state: Some(State::Up), ..undo });
            let now = self.model.now;
            self.start_down(now);
        }
    }
}
