// SPDX-License-Identifier: Apache-2.0
//! Google Congestion Control (draft-ietf-rmcat-gcc-02): one rate follows the trend of the delay, another
//! one the losses; the lower rate applies.
//!
//! The trend is estimated as in libwebrtc (trendline), with libwebrtc's gain and threshold, instead of by
//! the draft's Kalman filter. A report is one group of packets. The source sends at the estimate, as an
//! ideal encoder does. The draft does not say how to begin: as in libwebrtc, the rate doubles while most
//! of it arrives.

use super::flight::{Acked, Flight};
use std::collections::VecDeque;
use tautline_proto::rate::{Controller, PendingPacket, Release, Report};
use tautline_proto::{Duration, Instant};

/// Number of groups in the regression.
const TREND_WINDOW: usize = 20;
/// Weight of the previous value in the smoothed delay.
const TREND_SMOOTHING: f64 = 0.9;
/// Gain of the slope.
const TREND_GAIN: f64 = 4.0;
/// Limit of the number of groups by which the slope is multiplied.
const MAX_GROUPS: f64 = 60.0;
/// Initial threshold of the trend, in milliseconds.
const FIRST_THRESHOLD: f64 = 12.5;
/// Range of the threshold, in milliseconds.
const THRESHOLDS: std::ops::RangeInclusive<f64> = 6.0..=600.0;
/// Gain per millisecond with which the threshold follows a trend above it.
const K_UP: f64 = 0.0087;
/// Gain per millisecond with which the threshold follows a trend below it.
const K_DOWN: f64 = 0.039;
/// The threshold ignores a trend that exceeds it by more than this.
const MAX_ADAPT_OFFSET: f64 = 15.0;
/// Largest number of milliseconds in one adaptation of the threshold.
const MAX_ADAPT_MS: f64 = 100.0;
/// Milliseconds for which the trend must exceed the threshold to be an overuse.
const OVERUSE_TIME: f64 = 10.0;
/// The rate after an overuse, as a fraction of the received rate (section 5.5).
const BETA: f64 = 0.85;
/// Growth of the rate per second far from convergence (section 5.5).
const ETA: f64 = 1.08;
/// The estimate is at most this multiple of the received rate.
const MAX_OF_RECEIVED: f64 = 1.5;
/// Gain of the moving average of received rates at overuse.
const CONVERGENCE_GAIN: f64 = 0.05;
/// Standard deviations within which a received rate counts as near that average.
const CONVERGENCE_DEVIATIONS: f64 = 3.0;
/// Fraction of losses below which the rate by losses grows (section 6).
const LOW_LOSS: f64 = 0.02;
/// Fraction of losses above which the rate by losses falls (section 6).
const HIGH_LOSS: f64 = 0.1;
/// Factor by which the rate by losses grows in an interval (section 6).
const LOSS_GROWTH: f64 = 1.05;
/// Time between two updates of the rate by losses.
const LOSS_INTERVAL: Duration = Duration::from_secs(1);
/// Seconds over which the received rate is measured.
const RECEIVED_TIME: f64 = 0.5;
/// Initial rate in bits per second: libwebrtc begins at 300 kbps and probes at three times that rate.
const FIRST_RATE: f64 = 900e3;
/// Fraction of a probe that must arrive for another probe to follow.
const PROBE_ARRIVED: f64 = 0.7;
/// Fraction of the received rate that is used after the last probe.
const PROBE_RESULT: f64 = 0.95;
/// Duration of a probe in addition to the round trip.
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
    /// The rate doubles with each probe; the current probe began at this time.
    Start(Option<Instant>),
    Increase,
    Hold,
}

/// The slope of the delay over time.
#[derive(Debug, Default)]
struct Trend {
    /// Arrival and smoothed accumulated delay of each group, in milliseconds.
    points: VecDeque<(f64, f64)>,
    accumulated: f64,
    smoothed: f64,
    groups: f64,
    threshold: f64,
    over_for: f64,
    previous: f64,
    /// When the last group was sent, and when it arrived by the peer's clock, in microseconds.
    last: Option<(Instant, u32)>,
    arrival: f64,
}

impl Trend {
    /// Adds a group and returns the usage of the path; `None` for the first group.
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

    /// Returns the slope of the regression line.
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
    /// Rate that follows the delay, in bits per second.
    by_delay: f64,
    /// Rate that follows losses, in bits per second.
    by_loss: f64,
    last_update: Option<Instant>,
    /// Bytes acknowledged in the last half second, each with the seconds in which they arrived.
    arrivals: VecDeque<(f64, f64)>,
    last_arrival: Option<u32>,
    /// Average received rate at overuse, and its variance relative to the average.
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

    /// Returns the received rate in bits per second, by the peer's clock.
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

    /// Doubles the rate until most of it no longer arrives, or until an overuse.
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
            // Grow by about half a packet in a response time.
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
