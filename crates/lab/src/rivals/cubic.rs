// SPDX-License-Identifier: Apache-2.0
//! CUBIC (RFC 9438): the window grows as a cubic function of the time since the last loss. Paced as
//! Linux paces TCP: at 1.2 windows per round trip, 2 in slow start.

use super::flight::{Acked, Flight, MSS};
use tautline_proto::rate::{Controller, PendingPacket, Release, Report};
use tautline_proto::{Duration, Instant};

/// Scale of the cubic function (section 5).
const C: f64 = 0.4;
/// Fraction of the window that a loss leaves (section 4.6).
const BETA: f64 = 0.7;
/// Initial window in packets (RFC 6928).
const FIRST_WINDOW: f64 = 10.0;
/// Smallest window, in packets.
const MIN_WINDOW: f64 = 2.0;
/// Largest window, in packets.
const MAX_WINDOW: f64 = 1e6;
/// Windows sent per round trip.
const PACING: f64 = 1.2;
/// Windows sent per round trip in slow start.
const SLOW_START_PACING: f64 = 2.0;

/// CUBIC.
#[derive(Debug)]
pub struct Cubic {
    flight: Flight,
    /// Congestion window in packets.
    cwnd: f64,
    threshold: f64,
    /// The window before the last reduction.
    w_max: f64,
    /// Estimate of the window that Reno would have.
    w_est: f64,
    epoch: Option<Instant>,
    epoch_cwnd: f64,
    /// Time of the last reduction. Losses of packets sent before it belong to the same event.
    reduced_at: Instant,
    srtt: Option<f64>,
}

impl Cubic {
    pub fn new() -> Self {
        Self {
            flight: Flight::default(),
            cwnd: FIRST_WINDOW,
            threshold: f64::INFINITY,
            w_max: 0.0,
            w_est: 0.0,
            epoch: None,
            epoch_cwnd: 0.0,
            reduced_at: Instant::default(),
            srtt: None,
        }
    }

    fn window(&self) -> f64 {
        self.cwnd * MSS
    }

    fn pacing_rate(&self) -> f64 {
        let gain = if self.cwnd < self.threshold { SLOW_START_PACING } else { PACING };
        gain * self.window() / self.srtt.unwrap_or(0.001).max(1e-6)
    }

    fn on_loss(&mut self, now: Instant) {
        // Fast convergence: a flow whose window shrinks from loss to loss leaves room for others.
        let below = self.cwnd < self.w_max;
        self.w_max = if below { self.cwnd * (1.0 + BETA) / 2.0 } else { self.cwnd };
        self.cwnd = (self.cwnd * BETA).max(MIN_WINDOW);
        self.threshold = self.cwnd;
        (self.epoch, self.reduced_at) = (None, now);
    }

    fn grow(&mut self, now: Instant, acked: &Acked) {
        let packets = acked.bytes / MSS;
        if self.cwnd < self.threshold {
            self.cwnd = (self.cwnd + packets).min(MAX_WINDOW);
            return;
        }
        let start = *self.epoch.get_or_insert_with(|| {
            (self.epoch_cwnd, self.w_est) = (self.cwnd, self.cwnd);
            now
        });
        let k = ((self.w_max - self.epoch_cwnd) / C).cbrt();
        let rtt = self.srtt.unwrap_or(0.0);
        let cubic = |time: f64| C * (time - k).powi(3) + self.w_max;
        let time = now.since(start).as_secs_f64();
        let alpha = if self.w_est < self.w_max { 3.0 * (1.0 - BETA) / (1.0 + BETA) } else { 1.0 };
        self.w_est += alpha * packets / self.cwnd;
        if cubic(time) < self.w_est {
            self.cwnd = self.cwnd.max(self.w_est);
        } else {
            let target = cubic(time + rtt).clamp(self.cwnd, 1.5 * self.cwnd);
            self.cwnd += (target - self.cwnd) / self.cwnd * packets;
        }
        self.cwnd = self.cwnd.clamp(MIN_WINDOW, MAX_WINDOW);
    }
}

impl Controller for Cubic {
    fn release(&mut self, now: Instant, packet: PendingPacket, in_flight: usize) -> Release {
        let window = self.window();
        self.flight.release(now, packet, in_flight, window)
    }

    fn on_sent(&mut self, now: Instant, bytes: usize, in_flight: usize) {
        let (rate, window) = (self.pacing_rate(), self.window());
        self.flight.on_sent(now, bytes, in_flight, rate, window);
    }

    fn on_report(&mut self, now: Instant, report: &Report) {
        let Some(acked) = self.flight.on_report(now, report) else { return };
        let rtt = report.since_sent.max(Duration::from_micros(1)).as_secs_f64();
        self.srtt = Some(self.srtt.map_or(rtt, |srtt| srtt + (rtt - srtt) / 8.0));
        if report.lost_packets > report.spurious_losses && acked.newest.at >= self.reduced_at {
            self.on_loss(now);
        } else if !acked.newest.app_limited {
            self.grow(now, &acked);
        }
    }

    fn wants_report(&self, in_flight: usize) -> bool {
        in_flight as f64 + MSS > self.window()
    }

    fn signal(&self) -> &'static str {
        "cubic"
    }

    fn limit_bytes(&self) -> usize {
        self.window() as usize
    }

    fn rate_bps(&self) -> Option<u64> {
        Some((self.window() * 8.0 / self.srtt.unwrap_or(0.001).max(1e-6)) as u64)
    }

    fn fills_queue(&self) -> bool {
        true
    }
}
