// SPDX-License-Identifier: Apache-2.0
//! Copa (Arun and Balakrishnan, NSDI 2018), with mode switching: the window moves towards the rate
//! at which 1/δ packets of the flow are queued.

use super::flight::{Acked, Flight, MSS, WindowedExtreme, seconds};
use tautline_proto::rate::{Controller, PendingPacket, Release, Report};
use tautline_proto::{Duration, Instant};

/// δ of the default mode; its inverse is the target queue in packets.
const DELTA: f64 = 0.5;
/// Initial window, in packets.
const FIRST_WINDOW: f64 = 10.0;
/// Smallest window, in packets.
const MIN_WINDOW: f64 = 2.0;
/// Largest window, in packets.
const MAX_WINDOW: f64 = 1e6;
/// Seconds over which the shortest round trip is taken.
const MIN_RTT_TIME: f64 = 10.0;
/// Number of round trips over which the longest one is taken.
const MAX_RTT_ROUNDS: f64 = 4.0;
/// If the queue was not nearly empty for this many round trips, other flows fill it.
const EMPTY_ROUNDS: f64 = 5.0;
/// A queue is nearly empty up to this fraction of the range of recent round trips.
const NEARLY_EMPTY: f64 = 0.1;
/// Windows in the same direction before the velocity doubles.
const STEADY_WINDOWS: u32 = 3;

/// Copa.
#[derive(Debug)]
pub struct Copa {
    flight: Flight,
    /// Congestion window in packets.
    cwnd: f64,
    slow_start: bool,
    velocity: f64,
    is_up: bool,
    same_direction: u32,
    /// Start of the current window. The velocity is updated at the end of each window.
    window_start: Instant,
    /// 1/δ.
    inverse_delta: f64,
    round_start: Instant,
    lost_in_round: bool,
    last_empty: Instant,
    srtt: Option<f64>,
    min_rtt: WindowedExtreme,
    standing_rtt: WindowedExtreme,
    max_rtt: WindowedExtreme,
    /// The shortest round trip of the last 10 s, in seconds.
    least: f64,
    /// The shortest round trip of the last half round trip, in seconds.
    standing: f64,
}

impl Copa {
    pub fn new() -> Self {
        Self {
            flight: Flight::default(),
            cwnd: FIRST_WINDOW,
            slow_start: true,
            velocity: 1.0,
            is_up: true,
            same_direction: 0,
            window_start: Instant::default(),
            inverse_delta: 1.0 / DELTA,
            round_start: Instant::default(),
            lost_in_round: false,
            last_empty: Instant::default(),
            srtt: None,
            min_rtt: WindowedExtreme::default(),
            standing_rtt: WindowedExtreme::default(),
            max_rtt: WindowedExtreme::default(),
            least: f64::INFINITY,
            standing: 0.1,
        }
    }

    fn window(&self) -> f64 {
        self.cwnd * MSS
    }

    /// Returns bytes per second: twice the window per round trip, so that packets are spread.
    fn pacing_rate(&self) -> f64 {
        2.0 * self.window() / self.standing
    }

    /// Returns the queueing delay in seconds. Of the packets that a report acknowledges, the least
    /// delayed one is the sample.
    fn measure(&mut self, now: Instant, report: &Report) -> f64 {
        let rtt = report.rtt.max(Duration::from_micros(1)).as_secs_f64();
        let rtt = rtt.min(self.least + report.min_queueing_delay.as_secs_f64());
        let srtt = self.srtt.map_or(rtt, |srtt| srtt + (rtt - srtt) / 8.0);
        self.srtt = Some(srtt);
        let at = seconds(now);
        let least = self.min_rtt.least(at, rtt, at - MIN_RTT_TIME);
        self.standing = self.standing_rtt.least(at, rtt, at - srtt / 2.0);
        let most = self.max_rtt.greatest(at, rtt, at - MAX_RTT_ROUNDS * srtt);
        self.least = least;
        let queueing = (self.standing - least).max(0.0);
        if queueing <= NEARLY_EMPTY * (most - least) || self.last_empty == Instant::default() {
            self.last_empty = now;
        }
        queueing
    }

    /// Chooses the mode: while the queue is never nearly empty, the competitive one, in which 1/δ grows
    /// and falls as Reno's window does.
    fn choose_mode(&mut self, now: Instant, acked: &Acked) {
        let rtt = self.srtt.unwrap_or(self.standing);
        let is_alone = now.since(self.last_empty).as_secs_f64() <= EMPTY_ROUNDS * rtt;
        if acked.newest.at >= self.round_start {
            if is_alone {
                self.inverse_delta = 1.0 / DELTA;
            } else if self.lost_in_round {
                self.inverse_delta = (self.inverse_delta / 2.0).max(1.0 / DELTA);
            } else {
                self.inverse_delta += 1.0;
            }
            (self.round_start, self.lost_in_round) = (now, false);
        }
    }

    /// Once per window, doubles the velocity if the window moves in the same direction.
    fn update_velocity(&mut self, now: Instant, acked: &Acked) {
        if acked.newest.at < self.window_start {
            return;
        }
        self.window_start = now;
        let is_up = self.window() > acked.newest.window;
        if is_up == self.is_up {
            self.same_direction += 1;
            if self.same_direction >= STEADY_WINDOWS {
                self.velocity = (self.velocity * 2.0).min(MAX_WINDOW);
            }
        } else {
            (self.is_up, self.same_direction, self.velocity) = (is_up, 0, 1.0);
        }
    }

    fn move_window(&mut self, packets: f64, queueing: f64) {
        let rate = self.cwnd / self.standing;
        let below = rate * queueing <= self.inverse_delta;
        if self.slow_start && below {
            self.cwnd += packets;
        } else {
            if self.slow_start {
                (self.slow_start, self.velocity, self.is_up) = (false, 1.0, false);
            }
            // A change of direction resets the velocity at once; otherwise the window would overshoot.
            if below != self.is_up && self.velocity > 1.0 {
                (self.is_up, self.same_direction, self.velocity) = (below, 0, 1.0);
            }
            let step = self.velocity * self.inverse_delta * packets / self.cwnd;
            // A report stands for many acknowledgements, which together move the window no further
            // than it is wide.
            let step = step.min(self.cwnd / 2.0);
            self.cwnd += if below { step } else { -step };
        }
        self.cwnd = self.cwnd.clamp(MIN_WINDOW, MAX_WINDOW);
    }
}

impl Controller for Copa {
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
        let queueing = self.measure(now, report);
        self.lost_in_round |= report.lost_packets > 0;
        self.choose_mode(now, &acked);
        // A window that the application does not fill must not grow.
        if !acked.newest.app_limited || self.cwnd / self.standing * queueing > self.inverse_delta {
            if !self.slow_start {
                self.update_velocity(now, &acked);
            }
            self.move_window(acked.bytes / MSS, queueing);
        }
    }

    fn wants_report(&self, in_flight: usize) -> bool {
        in_flight as f64 + MSS > self.window()
    }

    fn signal(&self) -> &'static str {
        "copa"
    }

    fn limit_bytes(&self) -> usize {
        self.window() as usize
    }

    fn rate_bps(&self) -> Option<u64> {
        Some((self.window() * 8.0 / self.standing.max(1e-6)) as u64)
    }
}
