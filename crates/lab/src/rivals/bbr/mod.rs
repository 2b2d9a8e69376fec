// SPDX-License-Identifier: Apache-2.0
//! BBRv3 (draft-ietf-ccwg-bbr, as of August 2026): a model of the path from delivery rates, round
//! trips and losses. Names are those of the draft.
//!
//! Differences: a report takes the place of an acknowledgement, so the losses of one report count as
//! one lost packet. There is no retransmission timeout.

mod model;
mod probe;

use super::flight::{Acked, Flight, MSS};
use fastrand::Rng;
use model::{Model, ShortTerm};
use probe::{AckPhase, Cycle};
use tautline_proto::rate::{Controller, PendingPacket, Release, Report};
use tautline_proto::{Duration, Instant};

const STARTUP_PACING_GAIN: f64 = 2.77;
const DRAIN_PACING_GAIN: f64 = 0.5;
const DEFAULT_CWND_GAIN: f64 = 2.0;
const PROBE_RTT_CWND_GAIN: f64 = 0.5;
const PACING_MARGIN: f64 = 0.01;
const LOSS_THRESH: f64 = 0.02;
const BETA: f64 = 0.7;
const HEADROOM: f64 = 0.15;
const MIN_PIPE_CWND: f64 = 4.0 * MSS;
const INITIAL_CWND: f64 = 10.0 * MSS;
/// Number of rows of lost packets in a round that ends Startup.
const STARTUP_FULL_LOSS_COUNT: u64 = 6;
const PROBE_RTT_DURATION: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

impl State {
    fn is_probe_bw(self) -> bool {
        matches!(self, Self::Down | Self::Cruise | Self::Refill | Self::Up)
    }

    /// Whether the state accelerates.
    fn is_probing(self) -> bool {
        matches!(self, Self::Startup | Self::Refill | Self::Up)
    }

    fn pacing_gain(self) -> f64 {
        match self {
            Self::Startup => STARTUP_PACING_GAIN,
            Self::Drain => DRAIN_PACING_GAIN,
            Self::Down => 0.9,
            Self::Cruise | Self::Refill | Self::ProbeRtt => 1.0,
            Self::Up => 1.25,
        }
    }

    fn cwnd_gain(self) -> f64 {
        match self {
            Self::Up => 2.25,
            Self::ProbeRtt => PROBE_RTT_CWND_GAIN,
            _ => DEFAULT_CWND_GAIN,
        }
    }
}

/// The state before a loss episode, to be restored if the losses prove to be spurious.
#[derive(Debug, Clone, Copy)]
struct Undo {
    short_term: ShortTerm,
    inflight_longterm: f64,
    /// The state that the losses ended.
    state: Option<State>,
    /// Packets lost in the episode, less those that arrived after all.
    lost: i64,
}

/// BBRv3.
#[derive(Debug)]
pub struct Bbr {
    flight: Flight,
    model: Model,
    cycle: Cycle,
    state: State,
    cwnd: f64,
    prior_cwnd: f64,
    /// Bytes per second.
    pacing_rate: f64,
    has_seen_rtt: bool,
    drain_start_round: u64,
    probe_rtt_done: Option<Instant>,
    probe_rtt_round_done: bool,
    idle_restart: bool,
    /// The window limited the sender in the previous round.
    was_cwnd_limited: bool,
    undo: Option<Undo>,
    random: Rng,
}

impl Bbr {
    pub fn new() -> Self {
        Self {
            flight: Flight::default(),
            model: Model::default(),
            cycle: Cycle::default(),
            state: State::Startup,
            cwnd: INITIAL_CWND,
            prior_cwnd: 0.0,
            pacing_rate: STARTUP_PACING_GAIN * INITIAL_CWND / 1e-3,
            has_seen_rtt: false,
            drain_start_round: 0,
            probe_rtt_done: None,
            probe_rtt_round_done: false,
            idle_restart: false,
            was_cwnd_limited: false,
            undo: None,
            random: Rng::with_seed(1),
        }
    }

    fn start_round(&mut self) {
        self.model.next_round_delivered = self.flight.delivered;
    }

    /// Updates the model and the state after a report.
    fn update_model(&mut self, now: Instant, report: &Report, acked: &Acked) {
        self.model.update_round(&self.flight, acked);
        if self.model.round_start {
            self.was_cwnd_limited = std::mem::take(&mut self.flight.window_limited);
            self.cycle.rounds_since_probe_up += 1;
        }
        self.note_losses(report, acked);
        self.model.update_latest_signals(self.flight.delivered, acked);
        if self.model.loss_round_start {
            self.leave_startup_on_loss(acked);
            let probing = self.state.is_probing();
            self.model.adapt_lower_bounds(probing, self.cwnd);
        }
        self.model.update_ack_aggregation(now, acked.bytes, self.cwnd);
        self.model.check_full_bw(acked.newest.app_limited);
        if self.state == State::Startup && self.model.full_bw_reached {
            self.state = State::Drain;
            self.drain_start_round = self.model.round_count;
        }
        let late = self.model.round_count > self.drain_start_round + 3;
        if self.state == State::Drain && (self.flight.in_flight() <= self.inflight(1.0) || late) {
            self.start_down(now);
        }
        self.update_cycle(now, acked);
        self.model.update_min_rtt(now, report.since_sent);
        self.check_probe_rtt(now);
        self.idle_restart = false;
        self.model.advance_latest_signals();
    }

    /// Handles losses. All losses in a report are one event.
    fn note_losses(&mut self, report: &Report, acked: &Acked) {
        if let Some(undo) = &mut self.undo {
            undo.lost += report.lost_packets as i64 - report.spurious_losses as i64;
            if report.spurious_losses > 0 && undo.lost <= 0 {
                return self.undo_losses();
            }
        }
        if report.lost_packets == 0 {
            return;
        }
        if !self.model.is_loss_in_round {
            self.model.loss_round_delivered = self.flight.delivered;
            self.save_cwnd();
            self.undo = Some(Undo {
                short_term: self.model.short_term,
                inflight_longterm: self.model.inflight_longterm,
                state: None,
                lost: report.lost_packets as i64 - report.spurious_losses as i64,
            });
        }
        self.model.is_loss_in_round = true;
        self.model.loss_runs += report.loss_runs;
        if !self.cycle.is_bw_probe_sample {
            return;
        }
        let (lost, in_flight) = (self.flight.lost - acked.newest.lost, acked.newest.in_flight);
        if lost > in_flight * LOSS_THRESH {
            let before = in_flight - acked.lost;
            let prefix = (LOSS_THRESH * before - (lost - acked.lost)) / (1.0 - LOSS_THRESH);
            self.on_inflight_too_high(acked, before + prefix);
        }
    }

    /// Restores the state before losses that proved to be spurious.
    fn undo_losses(&mut self) {
        let Some(undo) = self.undo.take() else { return };
        self.cwnd = self.cwnd.max(self.prior_cwnd);
        self.model.is_loss_in_round = false;
        self.model.reset_full_bw(0.0);
        self.model.raise_bounds(undo.short_term, undo.inflight_longterm);
        match undo.state {
            Some(State::Startup) if self.state != State::Startup => {
                self.model.full_bw_reached = false;
                if self.state != State::ProbeRtt {
                    self.state = State::Startup;
                }
            }
            Some(State::Up) if self.state.is_probe_bw() && self.state != State::Up => {
                self.start_refill();
            }
            _ => {}
        }
    }

    fn leave_startup_on_loss(&mut self, acked: &Acked) {
        let rows = std::mem::take(&mut self.model.loss_runs);
        let lost = self.flight.lost - acked.newest.lost;
        let high = lost > acked.newest.in_flight * LOSS_THRESH;
        if self.state == State::Startup && rows >= STARTUP_FULL_LOSS_COUNT && high {
            if let Some(undo) = &mut self.undo {
                undo.state = Some(State::Startup);
            }
            self.model.full_bw_reached = true;
            self.model.inflight_longterm = self.model.bdp().max(self.model.inflight_latest);
        }
    }

    fn check_probe_rtt(&mut self, now: Instant) {
        if self.state != State::ProbeRtt && self.model.probe_rtt_expired && !self.idle_restart {
            self.save_cwnd();
            self.state = State::ProbeRtt;
            self.probe_rtt_done = None;
            self.cycle.ack_phase = AckPhase::ProbeStopping;
            self.start_round();
        }
        if self.state != State::ProbeRtt {
            return;
        }
        let in_flight = self.flight.in_flight();
        self.flight.mark_app_limited(in_flight as usize);
        if self.probe_rtt_done.is_none() && in_flight <= self.probe_rtt_cwnd() {
            self.probe_rtt_done = Some(now + PROBE_RTT_DURATION);
            self.probe_rtt_round_done = false;
            self.start_round();
        } else if self.probe_rtt_done.is_some() {
            self.probe_rtt_round_done |= self.model.round_start;
            if self.probe_rtt_round_done {
                self.leave_probe_rtt(now);
            }
        }
    }

    fn leave_probe_rtt(&mut self, now: Instant) {
        if self.probe_rtt_done.is_none_or(|done| now <= done) {
            return;
        }
        self.model.probe_rtt_min_stamp = now;
        self.cwnd = self.cwnd.max(self.prior_cwnd);
        self.model.short_term = ShortTerm::default();
        if self.model.full_bw_reached {
            self.start_down(now);
            self.state = State::Cruise;
        } else {
            self.state = State::Startup;
        }
    }

    fn save_cwnd(&mut self) {
        let modulated = self.model.is_loss_in_round || self.state == State::ProbeRtt;
        self.prior_cwnd = if modulated { self.prior_cwnd.max(self.cwnd) } else { self.cwnd };
    }

    fn probe_rtt_cwnd(&self) -> f64 {
        (PROBE_RTT_CWND_GAIN * self.model.bdp()).max(MIN_PIPE_CWND)
    }

    /// Returns `gain` bandwidth-delay products in bytes, with the quantization budget of the hosts.
    fn inflight(&self, gain: f64) -> f64 {
        self.with_quanta(self.model.bdp() * gain)
    }

    fn with_quanta(&self, cap: f64) -> f64 {
        let quantum = (self.pacing_rate * 1e-3).clamp(2.0 * MSS, 65_536.0);
        let more = if self.state == State::Up { 2.0 * MSS } else { 0.0 };
        cap.max(quantum).max(MIN_PIPE_CWND) + more
    }

    fn update_control(&mut self, report: &Report, acked: &Acked) {
        if !self.has_seen_rtt {
            self.has_seen_rtt = true;
            let rtt = report.since_sent.as_secs_f64().max(1e-6);
            self.pacing_rate = STARTUP_PACING_GAIN * INITIAL_CWND / rtt;
        }
        let rate = self.state.pacing_gain() * self.model.bw() * (1.0 - PACING_MARGIN);
        if self.model.full_bw_reached || rate > self.pacing_rate {
            self.pacing_rate = rate.max(1.0);
        }
        let cap = self.model.bdp() * self.state.cwnd_gain() + self.model.extra_acked;
        let max_inflight = self.with_quanta(cap);
        if self.model.full_bw_reached {
            self.cwnd = (self.cwnd + acked.bytes).min(max_inflight);
        } else if self.cwnd < max_inflight || self.flight.delivered < INITIAL_CWND {
            self.cwnd += acked.bytes;
        }
        self.cwnd = self.cwnd.max(MIN_PIPE_CWND);
        if self.state == State::ProbeRtt {
            self.cwnd = self.cwnd.min(self.probe_rtt_cwnd());
        }
        let cap = match self.state {
            State::Cruise | State::ProbeRtt => self.model.inflight_with_headroom(),
            state if state.is_probe_bw() => self.model.inflight_longterm,
            _ => f64::INFINITY,
        };
        let cap = cap.min(self.model.short_term.inflight).max(MIN_PIPE_CWND);
        self.cwnd = self.cwnd.min(cap);
    }
}

impl Controller for Bbr {
    fn release(&mut self, now: Instant, packet: PendingPacket, in_flight: usize) -> Release {
        self.flight.release(now, packet, in_flight, self.cwnd)
    }

    fn on_sent(&mut self, now: Instant, bytes: usize, in_flight: usize) {
        if in_flight <= bytes && self.flight.is_app_limited() {
            self.idle_restart = true;
            self.model.restart_ack_aggregation(now);
            if self.state.is_probe_bw() {
                self.pacing_rate = (self.model.bw() * (1.0 - PACING_MARGIN)).max(1.0);
            } else if self.state == State::ProbeRtt {
                self.leave_probe_rtt(now);
            }
        }
        self.flight.on_sent(now, bytes, in_flight, self.pacing_rate, self.cwnd);
    }

    fn on_report(&mut self, now: Instant, report: &Report) {
        let Some(acked) = self.flight.on_report(now, report) else { return };
        self.update_model(now, report, &acked);
        self.update_control(report, &acked);
    }

    fn wants_report(&self, in_flight: usize) -> bool {
        in_flight as f64 + MSS > self.cwnd
    }

    fn signal(&self) -> &'static str {
        "bbr3"
    }

    fn limit_bytes(&self) -> usize {
        self.cwnd as usize
    }

    fn rate_bps(&self) -> Option<u64> {
        Some((self.pacing_rate * 8.0) as u64)
    }
}
