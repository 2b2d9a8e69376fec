// SPDX-License-Identifier: Apache-2.0
//! Google Congestion Control (draft-ietf-rmcat-gcc-02): a rate by the trend of the delay, and one by
//! losses; the lesser one applies.
//!
//! The trend is that of libwebrtc (trendline), which took the place of the draft's Kalman filter, with
//! its gain and adaptation of the threshold. A report is one group of packets. The source sends at
//! the estimate, as an ideal encoder. The draft does not say how to begin: as in libwebrtc, the rate
//! doubles while most of it arrives.

use super::flight::{Acked, Flight};
use std::collections::VecDeque;
use tautline_proto::rate::{Controller, PendingPacket, Release, Report};
use tautline_proto::{Duration, Instant};

/// Groups of the regression, the smoothing of delays, and the gain of the slope.
const TREND_WINDOW: usize = 20;
const TREND_SMOOTHING: f64 = 0.9;
const TREND_GAIN: f64 = 4.0;
const MAX_GROUPS: f64 = 60.0;
/// The threshold in milliseconds, and its adaptation per millisecond.
const FIRST_THRESHOLD: f64 = 12.5;
const THRESHOLDS: std::ops::RangeInclusive<f64> = 6.0..=600.0;
const K_UP: f64 = 0.0087;
const K_DOWN: f64 = 0.039;
const MAX_ADAPT_OFFSET: f64 = 15.0;
const MAX_ADAPT_MS: f64 = 100.0;
/// Milliseconds for which the trend is above the threshold.
const OVERUSE_TIME: f64 = 10.0;
/// Section 5.5.
const BETA: f64 = 0.85;
const ETA: f64 = 1.08;
/// The estimate is at most this multiple of the received rate.
const MAX_OF_RECEIVED: f64 = 1.5;
/// The weight of a received rate at which the path was full, and the deviations that end the search
/// near it.
const CONVERGENCE_GAIN: f64 = 0.05;
const CONVERGENCE_DEVIATIONS: f64 = 3.0;
/// Section 6.
const LOW_LOSS: f64 = 0.02;
const HIGH_LOSS: f64 = 0.1;
const LOSS_GROWTH: f64 = 1.05;
const LOSS_INTERVAL: Duration = Duration::from_secs(1);
/// Seconds over which the received rate is measured.
const RECEIVED_TIME: f64 = 0.5;
/// Bits per second. libwebrtc begins at 300 kbps with probes of three times that.
const FIRST_RATE: f64 = 900e3;
/// The part of a probe that must arrive for the next one, and the part of the received rate that is
/// used after the last one.
const PROBE_ARRIVED: f64 = 0.7;
const PROBE_RESULT: f64 = 0.95;
/// Time of a probe beyond the round trip.
const PROBE_TIME: Duration = Duration::from_millis(100);
const MIN_RATE: f64 = 10e3;
const MAX_RATE: f64 = 1e9;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Usage {
    Normal,
    Over,
    Under,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Doubling, since this time.
    Start(Option<Instant>),
    Increase,
    Hold,
}

/// The slope of the delay over time.
#[derive(Debug, Default)]
struct Trend {
    /// Arrival in milliseconds, smoothed accumulated delay in milliseconds.
    points: VecDeque<(f64, f64)>,
    accumulated: f64,
    smoothed: f64,
    groups: f64,
    threshold: f64,
    over_for: f64,
    previous: f64,
    /// When the last group was sent, when it arrived by the peer's clock.
    last: Option<(Instant, u32)>,
    arrival: f64,
}

impl Trend {
    /// Adds a group; `None` before there is a trend.
    fn add(&mut self, sent: Instant, arrival_micros: u32) -> Option<Usage> {
        let (last_sent, last_arrival) = self.last.replace((sent, arrival_micros))?;
        let arrived = f64::from(arrival_micros.wrapping_sub(last_arrival) as i32) / 1e3;
        let sent = sent.since(last_sent).as_secs_f64() * 1e3;
        self.arrival += arrived;
        self.groups = (self.groups + 1.0).min(MAX_GROUPS);
        self.accumulated += arrived - sent;
        self.smoothed =
            TREND_SMOOTHING * self.smoothed + (1.0 - TREND_SMOOTHING) * self.accumulated;
        if self.points.len() == TREND_WINDOW {
            self.points.pop_front();
        }
        self.points.push_back((self.arrival, self.smoothed));
        let slope = if self.points.len() == TREND_WINDOW { self.slope() } else { 0.0 };
        Some(self.classify(slope, sent))
    }

    /// The slope of the regression line.
    fn slope(&self) -> f64 {
        let count = self.points.len() as f64;
        let (x, y) = self.points.iter().fold((0.0, 0.0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
        let (x, y) = (x / count, y / count);
        let (above, below) = self.points.iter().fold((0.0, 0.0), |sum, it| {
            (sum.0 + (it.0 - x) * (it.1 - y), sum.1 + (it.0 - x).powi(2))
        });
        if below > 0.0 { above / below } else { 0.0 }
    }

    fn classify(&mut self, slope: f64, span_ms: f64) -> Usage {
        if self.threshold == 0.0 {
            self.threshold = FIRST_THRESHOLD;
        }
        let trend = self.groups * slope * TREND_GAIN;
        let usage = if trend > self.threshold {
            self.over_for += span_ms;
            if self.over_for > OVERUSE_TIME && slope >= self.previous {
                self.over_for = 0.0;
                Usage::Over
            } else {
                Usage::Normal
            }
        } else {
            self.over_for = 0.0;
            if trend < -self.threshold { Usage::Under } else { Usage::Normal }
        };
        self.previous = slope;
        if trend.abs() <= self.threshold + MAX_ADAPT_OFFSET {
            let gain = if trend.abs() < self.threshold { K_DOWN } else { K_UP };
            let change = gain * (trend.abs() - self.threshold) * span_ms.min(MAX_ADAPT_MS);
            self.threshold =
                (self.threshold + change).clamp(*THRESHOLDS.start(), *THRESHOLDS.end());
        }
        usage
    }
}

/// GCC.
#[derive(Debug)]
pub struct Gcc {
    flight: Flight,
    trend: Trend,
    state: State,
    /// Bits per second: by delay, and by losses.
    by_delay: f64,
    by_loss: f64,
    last_update: Option<Instant>,
    /// The acknowledged bytes of the last half second, with the spans in which they arrived.
    arrivals: VecDeque<(f64, f64)>,
    last_arrival: Option<u32>,
    /// The average received rate at which the path was full, and its relative variance.
    full: Option<(f64, f64)>,
    packets: [u64; 2],
    loss_round: Instant,
}

impl Gcc {
    pub fn new() -> Self {
        Self {
            flight: Flight::default(),
            trend: Trend::default(),
            state: State::Start(None),
            by_delay: FIRST_RATE,
            by_loss: MAX_RATE,
            last_update: None,
            arrivals: VecDeque::new(),
            last_arrival: None,
            full: None,
            packets: [0; 2],
            loss_round: Instant::default(),
        }
    }

    fn rate(&self) -> f64 {
        self.by_delay.min(self.by_loss)
    }

    /// The received rate in bits per second, by the peer's clock.
    fn received(&mut self, report: &Report, acked: &Acked) -> Option<f64> {
        let last = self.last_arrival.replace(report.arrival_micros)?;
        let span = f64::from(report.arrival_micros.wrapping_sub(last) as i32).max(0.0) / 1e6;
        self.arrivals.push_back((acked.bytes, span));
        let mut total = self.arrivals.iter().map(|it| it.1).sum::<f64>();
        while self.arrivals.len() > 1 && total - self.arrivals[0].1 > RECEIVED_TIME {
            total -= self.arrivals.pop_front().map_or(0.0, |it| it.1);
        }
        let bytes = self.arrivals.iter().map(|it| it.0).sum::<f64>();
        (total > 0.0).then(|| bytes * 8.0 / total)
    }

    /// Doubles the rate until it does not arrive.
    fn probe(&mut self, now: Instant, rtt: Duration, received: f64, usage: Usage) {
        let State::Start(since) = self.state else { return };
        let Some(since) = since else {
            // What arrived before was the application's rate.
            self.state = State::Start(Some(now));
            self.arrivals.clear();
            return;
        };
        if usage != Usage::Over && now.since(since) < rtt + PROBE_TIME {
            return;
        }
        if usage == Usage::Over || received < PROBE_ARRIVED * self.by_delay {
            self.by_delay = self.by_delay.min(PROBE_RESULT * received);
            self.state = State::Hold;
        } else {
            self.by_delay *= 2.0;
            self.state = State::Start(Some(now));
        }
        self.arrivals.clear();
    }

    fn decrease(&mut self, received: f64) {
        self.by_delay = (BETA * received).min(self.by_delay);
        self.full = Some(match self.full {
            Some((mean, variance)) if (received - mean).abs() <= Self::width(mean, variance) => {
                let mean = mean + CONVERGENCE_GAIN * (received - mean);
                let error = (received - mean).powi(2) / mean;
                (mean, variance + CONVERGENCE_GAIN * (error - variance))
            }
            // libwebrtc's first variance, relative to the mean in kbps.
            _ => (received, 0.4e3),
        });
        self.state = State::Hold;
    }

    fn width(mean: f64, variance: f64) -> f64 {
        CONVERGENCE_DEVIATIONS * (variance * mean).sqrt()
    }

    fn increase(&mut self, seconds: f64, rtt: Duration, received: f64) {
        let near =
            self.full.filter(|(mean, variance)| received <= mean + Self::width(*mean, *variance));
        if near.is_some() {
            // About a packet in a response time.
            let frame = self.by_delay / 30.0;
            let packet = frame / (frame / 9600.0).ceil().max(1.0);
            let response = 0.1 + rtt.as_secs_f64();
            self.by_delay += (0.5 * (seconds / response).min(1.0) * packet).max(1000.0 * seconds);
        } else {
            self.full = None;
            self.by_delay *= ETA.powf(seconds.min(1.0));
        }
        let most = (MAX_OF_RECEIVED * received).max(MIN_RATE);
        // A source that sends less than the estimate says nothing about the path.
        self.by_delay = self.by_delay.min(most.max(FIRST_RATE));
    }

    fn on_losses(&mut self, now: Instant, report: &Report) {
        self.packets[0] += report.acked_packets;
        self.packets[1] += report.lost_packets;
        if now.since(self.loss_round) < LOSS_INTERVAL {
            return;
        }
        let [acked, lost] = std::mem::take(&mut self.packets).map(|it| it as f64);
        self.loss_round = now;
        let loss = lost / (acked + lost).max(1.0);
        let before = self.by_loss.min(self.by_delay);
        self.by_loss = if loss > HIGH_LOSS {
            before * (1.0 - 0.5 * loss)
        } else if loss < LOW_LOSS {
            LOSS_GROWTH * (self.by_loss + 1000.0)
        } else {
            self.by_loss
        };
        self.by_loss = self.by_loss.clamp(MIN_RATE, MAX_RATE);
    }
}

impl Controller for Gcc {
    fn release(&mut self, now: Instant, packet: PendingPacket, in_flight: usize) -> Release {
        self.flight.release(now, packet, in_flight, f64::INFINITY)
    }

    fn on_sent(&mut self, now: Instant, bytes: usize, in_flight: usize) {
        let rate = self.rate() / 8.0;
        self.flight.on_sent(now, bytes, in_flight, rate, f64::INFINITY);
    }

    fn on_report(&mut self, now: Instant, report: &Report) {
        let Some(acked) = self.flight.on_report(now, report) else { return };
        self.on_losses(now, report);
        let received = self.received(report, &acked);
        let usage = self.trend.add(acked.newest.at, report.arrival_micros);
        let seconds =
            self.last_update.replace(now).map_or(0.0, |last| now.since(last).as_secs_f64());
        let Some((received, usage)) = received.zip(usage) else { return };
        if matches!(self.state, State::Start(_)) {
            if !acked.newest.app_limited {
                self.probe(now, report.rtt, received, usage);
            }
            return;
        }
        match usage {
            Usage::Over => self.decrease(received),
            Usage::Under => self.state = State::Hold,
            Usage::Normal if self.state == State::Hold => self.state = State::Increase,
            Usage::Normal if acked.newest.app_limited => {}
            Usage::Normal => self.increase(seconds, report.rtt, received),
        }
        self.by_delay = self.by_delay.clamp(MIN_RATE, MAX_RATE);
    }

    fn signal(&self) -> &'static str {
        "gcc"
    }

    fn limit_bytes(&self) -> usize {
        usize::MAX
    }

    fn rate_bps(&self) -> Option<u64> {
        Some(self.rate() as u64)
    }
}
