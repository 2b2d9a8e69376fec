// SPDX-License-Identifier: Apache-2.0
//! The model of the path: bandwidth, round trip, and how much may be in flight.

use super::{BETA, HEADROOM, INITIAL_CWND, MIN_PIPE_CWND, MSS};
use crate::rivals::flight::{Acked, Flight, WindowedExtreme};
use tautline_proto::{Duration, Instant};

const MIN_RTT_FILTER_LEN: Duration = Duration::from_secs(10);
const PROBE_RTT_INTERVAL: Duration = Duration::from_secs(5);
/// Length of the filter of extra acknowledged bytes, in rounds.
const EXTRA_ACKED_FILTER_LEN: u64 = 10;
/// Growth of the delivery rate below which a round of Startup is on a plateau.
const FULL_BW_GROWTH: f64 = 1.25;
/// Number of rounds on a plateau after which the bandwidth counts as full.
const FULL_BW_ROUNDS: u32 = 3;

/// Bounds that losses of recent rounds have lowered.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShortTerm {
    /// Bytes per second.
    bw: f64,
    /// Bytes.
    pub(super) inflight: f64,
}

impl Default for ShortTerm {
    fn default() -> Self {
        Self { bw: f64::INFINITY, inflight: f64::INFINITY }
    }
}

/// The model. Rates are in bytes per second.
#[derive(Debug)]
pub(super) struct Model {
    /// The time of the last report.
    pub(super) now: Instant,
    pub(super) round_count: u64,
    pub(super) round_start: bool,
    pub(super) next_round_delivered: f64,
    /// The last sample of the delivery rate; 0 if it spans less than the shortest round trip.
    pub(super) delivery_rate: f64,
    /// The greatest rate of this cycle and of the previous one.
    max_bw: [f64; 2],
    pub(super) short_term: ShortTerm,
    pub(super) inflight_longterm: f64,
    min_rtt: Duration,
    min_rtt_stamp: Instant,
    probe_rtt_min_delay: Duration,
    pub(super) probe_rtt_min_stamp: Instant,
    pub(super) probe_rtt_expired: bool,
    pub(super) full_bw_reached: bool,
    pub(super) full_bw_now: bool,
    full_bw: f64,
    full_bw_count: u32,
    pub(super) loss_round_start: bool,
    pub(super) loss_round_delivered: f64,
    pub(super) is_loss_in_round: bool,
    pub(super) loss_runs: u64,
    bw_latest: f64,
    pub(super) inflight_latest: f64,
    /// Bytes delivered between the sending of the newest acknowledged packet and its acknowledgement.
    delivered: f64,
    pub(super) extra_acked: f64,
    extra_acked_start: Instant,
    extra_acked_delivered: f64,
    extra_acked_filter: WindowedExtreme,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            now: Instant::default(),
            round_count: 0,
            round_start: false,
            next_round_delivered: 0.0,
            delivery_rate: 0.0,
            max_bw: [0.0; 2],
            short_term: ShortTerm::default(),
            inflight_longterm: f64::INFINITY,
            min_rtt: Duration::MAX,
            min_rtt_stamp: Instant::default(),
            probe_rtt_min_delay: Duration::MAX,
            probe_rtt_min_stamp: Instant::default(),
            probe_rtt_expired: false,
            full_bw_reached: false,
            full_bw_now: false,
            full_bw: 0.0,
            full_bw_count: 0,
            loss_round_start: false,
            loss_round_delivered: 0.0,
            is_loss_in_round: false,
            loss_runs: 0,
            bw_latest: 0.0,
            inflight_latest: 0.0,
            delivered: 0.0,
            extra_acked: 0.0,
            extra_acked_start: Instant::default(),
            extra_acked_delivered: 0.0,
            extra_acked_filter: WindowedExtreme::default(),
        }
    }
}

impl Model {
    pub(super) fn max_bw(&self) -> f64 {
        self.max_bw[0].max(self.max_bw[1])
    }

    /// Returns the bandwidth by which packets are paced.
    pub(super) fn bw(&self) -> f64 {
        self.max_bw().min(self.short_term.bw)
    }

    pub(super) fn min_rtt_seconds(&self) -> f64 {
        self.min_rtt.as_secs_f64()
    }

    /// Returns the bandwidth-delay product in bytes.
    pub(super) fn bdp(&self) -> f64 {
        match self.min_rtt {
            Duration::MAX => INITIAL_CWND,
            rtt => self.bw() * rtt.as_secs_f64(),
        }
    }

    pub(super) fn inflight_with_headroom(&self) -> f64 {
        let headroom = (HEADROOM * self.inflight_longterm).max(MSS);
        match self.inflight_longterm.is_finite() {
            true => (self.inflight_longterm - headroom).max(MIN_PIPE_CWND),
            false => f64::INFINITY,
        }
    }

    /// Takes the rate sample of a report, and counts rounds.
    pub(super) fn update_round(&mut self, flight: &Flight, acked: &Acked) {
        self.delivered = acked.delivered;
        let is_long = acked.interval >= self.min_rtt || self.min_rtt == Duration::MAX;
        let rate = acked.delivered / acked.interval.as_secs_f64().max(1e-6);
        self.delivery_rate = if is_long { rate } else { 0.0 };
        self.round_start = acked.newest.delivered >= self.next_round_delivered;
        if self.round_start {
            self.next_round_delivered = flight.delivered;
            self.round_count += 1;
        }
        if self.delivery_rate >= self.max_bw() || !acked.newest.app_limited {
            self.max_bw[0] = self.max_bw[0].max(self.delivery_rate);
        }
    }

    /// Begins a cycle of ProbeBW: the maximum of the last cycle becomes that of the previous one.
    pub(super) fn advance_max_bw(&mut self) {
        if self.max_bw[0] > 0.0 {
            self.max_bw = [0.0, self.max_bw[0]];
        }
    }

    pub(super) fn update_latest_signals(&mut self, delivered: f64, acked: &Acked) {
        self.bw_latest = self.bw_latest.max(self.delivery_rate);
        self.inflight_latest = self.inflight_latest.max(self.delivered);
        self.loss_round_start = acked.newest.delivered >= self.loss_round_delivered;
        if self.loss_round_start {
            self.loss_round_delivered = delivered;
        }
    }

    pub(super) fn advance_latest_signals(&mut self) {
        if self.loss_round_start {
            (self.bw_latest, self.inflight_latest) = (self.delivery_rate, self.delivered);
        }
    }

    pub(super) fn reset_congestion_signals(&mut self) {
        self.is_loss_in_round = false;
        (self.bw_latest, self.inflight_latest) = (0.0, 0.0);
    }

    /// Ends a round: lowers the short-term bounds if there were losses without a probe.
    pub(super) fn adapt_lower_bounds(&mut self, probing: bool, cwnd: f64) {
        if self.is_loss_in_round && !probing {
            let ShortTerm { bw, inflight } = self.short_term;
            let bw = if bw.is_finite() { bw } else { self.max_bw() };
            let inflight = if inflight.is_finite() { inflight } else { cwnd };
            self.short_term = ShortTerm {
                bw: self.bw_latest.max(BETA * bw),
                inflight: self.inflight_latest.max(BETA * inflight),
            };
        }
        self.is_loss_in_round = false;
    }

    /// Raises the bounds to at least their earlier values.
    pub(super) fn raise_bounds(&mut self, before: ShortTerm, inflight_longterm: f64) {
        self.short_term = ShortTerm {
            bw: self.short_term.bw.max(before.bw),
            inflight: self.short_term.inflight.max(before.inflight),
        };
        self.inflight_longterm = self.inflight_longterm.max(inflight_longterm);
    }

    pub(super) fn reset_full_bw(&mut self, baseline: f64) {
        (self.full_bw, self.full_bw_count, self.full_bw_now) = (baseline, 0, false);
    }

    pub(super) fn check_full_bw(&mut self, app_limited: bool) {
        if self.full_bw_now || !self.round_start || app_limited {
            return;
        }
        if self.delivery_rate >= self.full_bw * FULL_BW_GROWTH {
            return self.reset_full_bw(self.delivery_rate);
        }
        self.full_bw_count += 1;
        self.full_bw_now = self.full_bw_count >= FULL_BW_ROUNDS;
        self.full_bw_reached |= self.full_bw_now;
    }

    pub(super) fn update_min_rtt(&mut self, now: Instant, rtt: Duration) {
        self.probe_rtt_expired = now > self.probe_rtt_min_stamp + PROBE_RTT_INTERVAL;
        let is_first = self.probe_rtt_min_delay == Duration::MAX;
        if rtt < self.probe_rtt_min_delay || self.probe_rtt_expired {
            (self.probe_rtt_min_delay, self.probe_rtt_min_stamp) = (rtt, now);
        }
        // The clock begins with the connection.
        self.probe_rtt_expired &= !is_first;
        let expired = now > self.min_rtt_stamp + MIN_RTT_FILTER_LEN;
        if self.probe_rtt_min_delay < self.min_rtt || expired {
            self.min_rtt = self.probe_rtt_min_delay;
            self.min_rtt_stamp = self.probe_rtt_min_stamp;
        }
    }

    pub(super) fn restart_ack_aggregation(&mut self, now: Instant) {
        self.extra_acked_start = now;
    }

    pub(super) fn update_ack_aggregation(&mut self, now: Instant, acked: f64, cwnd: f64) {
        self.now = now;
        let mut expected = self.bw() * now.since(self.extra_acked_start).as_secs_f64();
        if self.extra_acked_delivered <= expected {
            (self.extra_acked_delivered, self.extra_acked_start, expected) = (0.0, now, 0.0);
        }
        self.extra_acked_delivered += acked;
        let extra = (self.extra_acked_delivered - expected).min(cwnd);
        let len = if self.full_bw_reached { EXTRA_ACKED_FILTER_LEN } else { 1 };
        let from = (self.round_count + 1).saturating_sub(len);
        self.extra_acked =
            self.extra_acked_filter.greatest(self.round_count as f64, extra, from as f64);
    }
}
