// SPDX-License-Identifier: Apache-2.0
//! SCReAMv2 (draft-ietf-ccwg-rfc8298bis-screamv2, as of August 2026), without ECN: a reference window
//! that follows queueing delay and losses. Names are those of the draft.
//!
//! Its source is a media encoder that obeys a target bitrate. Here packets are sent at the target
//! bitrate, as by an ideal encoder. Of the additional functions, backoff by loss rate and the limit
//! for policers are included; compensation for competing flows, which may be off, is not.

use super::flight::{Acked, Flight};
use tautline_proto::rate::{Controller, PendingPacket, Release, Report};
use tautline_proto::{Duration, Instant};

/// Target of the queueing delay, in seconds.
const QDELAY_TARGET: f64 = 0.06;
/// Virtual round trip, in seconds.
const VIRTUAL_RTT: f64 = 0.025;
const QDELAY_AVG_G: f64 = 0.25;
/// Smallest reference window, in bytes.
const MIN_REF_WND: f64 = 3000.0;
/// Size of a segment, in bytes.
const MSS: f64 = 1500.0;
const BYTES_IN_FLIGHT_HEAD_ROOM: f64 = 1.5;
const REF_WND_OVERHEAD_MIN: f64 = 1.5;
const BETA_LOSS: f64 = 0.7;
const POST_CONGESTION_DELAY_RTTS: f64 = 100.0;
const MUL_INCREASE_FACTOR: f64 = 0.02;
const LOSS_RATE_THRESHOLD: f64 = 0.01;
const LOSS_RATE_THRESHOLD_POLICER: f64 = 0.1;
const BETA_LOSS_POLICER: f64 = 0.9;
/// Growth of the limit for policers in a round trip.
const POLICED_GROWTH: f64 = 0.001;
/// The target bitrate is the window per round trip, divided by this: no queue grows in the sender.
const RATE_DOWNSCALE: f64 = 1.2;
/// Lowest target bitrate, in bytes per second.
const RATE_MIN: f64 = 50_000.0 / 8.0;

/// SCReAMv2.
#[derive(Debug)]
pub struct Scream {
    flight: Flight,
    /// Reference window, in bytes.
    ref_wnd: f64,
    ref_wnd_i: f64,
    ref_wnd_i_update_allowed: bool,
    max_policed_ref_wnd: f64,
    /// Maximum in this round trip and in the previous one.
    max_bytes_in_flight: [f64; 2],
    round_end: Instant,
    /// Smoothed round trip, in seconds.
    s_rtt: Option<f64>,
    qdelay_avg: f64,
    last_qdelay_update: Instant,
    loss_rate: f64,
    loss_detected: bool,
    last_congestion: Option<Instant>,
    last_reaction: Instant,
}

impl Scream {
    pub fn new() -> Self {
        Self {
            flight: Flight::default(),
            ref_wnd: MIN_REF_WND,
            ref_wnd_i: 1.0,
            ref_wnd_i_update_allowed: true,
            max_policed_ref_wnd: f64::INFINITY,
            max_bytes_in_flight: [0.0; 2],
            round_end: Instant::default(),
            s_rtt: None,
            qdelay_avg: 0.0,
            last_qdelay_update: Instant::default(),
            loss_rate: 0.0,
            loss_detected: false,
            last_congestion: None,
            last_reaction: Instant::default(),
        }
    }

    fn rtt(&self) -> f64 {
        self.s_rtt.unwrap_or(VIRTUAL_RTT).max(1e-6)
    }

    /// Returns the target bitrate in bytes per second, which is lower if the window is a few packets.
    fn target_rate(&self) -> f64 {
        let small = 1.0 - (MSS / self.ref_wnd - 0.1).clamp(0.0, 0.2);
        (small / RATE_DOWNSCALE * self.ref_wnd / self.rtt()).max(RATE_MIN)
    }

    fn window(&self) -> f64 {
        self.ref_wnd * REF_WND_OVERHEAD_MIN
    }

    fn measure(&mut self, now: Instant, report: &Report) {
        let rtt = report.since_sent.max(Duration::from_micros(1)).as_secs_f64();
        self.s_rtt = Some(self.s_rtt.map_or(rtt, |s_rtt| s_rtt + (rtt - s_rtt) / 8.0));
        let alpha = (LOSS_RATE_THRESHOLD / 4.0).min(MSS / self.ref_wnd / 2.0);
        for (packets, lost) in [(report.acked_packets, 0.0), (report.lost_packets, alpha)] {
            for _ in 0..packets.min(1000) {
                self.loss_rate = (1.0 - alpha) * self.loss_rate + lost;
            }
        }
        if now.since(self.last_qdelay_update).as_secs_f64() >= VIRTUAL_RTT.min(self.rtt()) {
            let qdelay = report.queueing_delay.as_secs_f64();
            self.qdelay_avg = if qdelay < self.qdelay_avg {
                qdelay
            } else {
                QDELAY_AVG_G * qdelay + (1.0 - QDELAY_AVG_G) * self.qdelay_avg
            };
            self.last_qdelay_update = now;
        }
        if now >= self.round_end {
            self.round_end = now + Duration::from_secs_f64(self.rtt());
            self.max_bytes_in_flight = [0.0, self.max_bytes_in_flight[0]];
            self.max_policed_ref_wnd *= 1.0 + POLICED_GROWTH;
        }
    }

    /// Returns 1 far from the window at the last congestion, and less near that window.
    fn inflection_scale(&self) -> f64 {
        let distance = (self.ref_wnd - self.ref_wnd_i) / self.ref_wnd_i * 8.0;
        (distance * distance).clamp(0.1, 1.0)
    }

    fn reduce(&mut self, now: Instant) {
        if self.loss_detected {
            self.last_congestion = Some(now);
        }
        if now.since(self.last_reaction).as_secs_f64() < VIRTUAL_RTT.min(self.rtt()) {
            return;
        }
        let delayed = self.qdelay_avg > QDELAY_TARGET / 4.0;
        let lost = std::mem::take(&mut self.loss_detected);
        let is_loss = lost && (self.loss_rate > LOSS_RATE_THRESHOLD || delayed);
        if lost && self.loss_rate > LOSS_RATE_THRESHOLD_POLICER && !delayed {
            self.max_policed_ref_wnd = self.ref_wnd * BETA_LOSS_POLICER;
        }
        let half = QDELAY_TARGET / 2.0;
        let is_virtual_ce = !is_loss && self.qdelay_avg > half;
        if !is_loss && !is_virtual_ce {
            return;
        }
        if std::mem::take(&mut self.ref_wnd_i_update_allowed) {
            self.ref_wnd_i = self.ref_wnd;
        }
        self.ref_wnd *= if is_loss {
            BETA_LOSS
        } else {
            let alpha = ((self.qdelay_avg - half) / half).clamp(0.0, 1.0);
            1.0 - alpha / 2.0 / (self.rtt() / VIRTUAL_RTT).max(1.0)
        };
        self.ref_wnd = self.ref_wnd.max(MIN_REF_WND);
        self.last_reaction = now;
    }

    fn increase(&mut self, now: Instant, acked: &Acked) {
        let since = self.last_congestion.map_or(f64::INFINITY, |at| now.since(at).as_secs_f64());
        let calm =
            (since / (POST_CONGESTION_DELAY_RTTS * VIRTUAL_RTT.max(self.rtt()))).clamp(0.0, 1.0);
        let scale = self.inflection_scale();
        // Lost bytes count as well, since they have left the path.
        let mut increment = (acked.bytes + acked.lost) * (MSS / self.ref_wnd).min(1.0);
        increment *= (self.rtt() / VIRTUAL_RTT).min(1.0) * scale.max(0.25);
        increment *= 1.0 + MUL_INCREASE_FACTOR * self.ref_wnd / MSS * calm * scale;
        let in_flight = self.max_bytes_in_flight[0].max(self.max_bytes_in_flight[1]);
        if self.ref_wnd + increment <= MSS + in_flight * BYTES_IN_FLIGHT_HEAD_ROOM {
            self.ref_wnd += increment;
            self.ref_wnd_i_update_allowed |= increment > 0.0;
        }
        self.ref_wnd = self.ref_wnd.min(self.max_policed_ref_wnd.max(MIN_REF_WND));
    }
}

impl Controller for Scream {
    fn release(&mut self, now: Instant, packet: PendingPacket, in_flight: usize) -> Release {
        let window = self.window();
        self.flight.release(now, packet, in_flight, window)
    }

    fn on_sent(&mut self, now: Instant, bytes: usize, in_flight: usize) {
        let (rate, window) = (self.target_rate(), self.window());
        self.flight.on_sent(now, bytes, in_flight, rate, window);
        self.max_bytes_in_flight[0] = self.max_bytes_in_flight[0].max(in_flight as f64);
    }

    fn on_report(&mut self, now: Instant, report: &Report) {
        let Some(acked) = self.flight.on_report(now, report) else { return };
        self.measure(now, report);
        self.loss_detected |= report.lost_packets > report.spurious_losses;
        self.reduce(now);
        self.increase(now, &acked);
    }

    fn wants_report(&self, in_flight: usize) -> bool {
        in_flight as f64 + MSS > self.window()
    }

    fn signal(&self) -> &'static str {
        "scream2"
    }

    fn limit_bytes(&self) -> usize {
        self.window() as usize
    }

    fn rate_bps(&self) -> Option<u64> {
        Some((self.target_rate() * 8.0) as u64)
    }
}
