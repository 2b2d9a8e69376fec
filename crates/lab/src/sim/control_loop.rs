// SPDX-License-Identifier: Apache-2.0
//! A controller and its plant on two hosts (Pound, figures 19 and 20).
//!
//! The plant is a series RLC circuit (R = 1 ohm, L = 0.1 H, C = 0.1 F) whose capacitor voltage `y`
//! follows the source voltage `u`. The controller is proportional with gain 1; its set point is 1
//! V. Every period the plant samples `y` and sends it. The controller responds to each sample with
//! a new `u`, which the plant holds.

use super::flows::Flows;
use super::net::Net;
use serde::Serialize;
use tautline_medium::Nanos;

/// Resistance of the paper's circuit.
const OHM: f64 = 1.0;
/// Inductance of the paper's circuit.
const HENRY: f64 = 0.1;
/// Capacitance of the paper's circuit.
const FARAD: f64 = 0.1;
/// Gain of the controller.
const GAIN: f64 = 1.0;
/// Set point of the controller, in volts.
const SET_POINT: f64 = 1.0;
/// Integration steps per period.
const STEPS: u32 = 64;
/// Share of the final value within which the loop counts as settled.
const SETTLED: f64 = 0.05;
/// Final value of the loop: `GAIN / (1 + GAIN)` of the set point.
const FINAL: f64 = SET_POINT * GAIN / (1.0 + GAIN);

/// State of the circuit: voltage at the capacitor, and current.
#[derive(Debug, Clone, Copy, Default)]
struct Circuit {
    volt: f64,
    ampere: f64,
}

impl Circuit {
    fn slope(self, source: f64) -> Self {
        Self { volt: self.ampere / FARAD, ampere: (source - OHM * self.ampere - self.volt) / HENRY }
    }

    fn plus(self, slope: Self, seconds: f64) -> Self {
        Self {
            volt: self.volt + slope.volt * seconds,
            ampere: self.ampere + slope.ampere * seconds,
        }
    }

    /// Integrates with the fourth-order Runge-Kutta method; the source voltage is constant.
    fn advance(mut self, source: f64, seconds: f64) -> Self {
        let step = seconds / f64::from(STEPS);
        for _ in 0..STEPS {
            let a = self.slope(source);
            let b = self.plus(a, step / 2.0).slope(source);
            let c = self.plus(b, step / 2.0).slope(source);
            let d = self.plus(c, step).slope(source);
            for (slope, weight) in [(a, 1.0), (b, 2.0), (c, 2.0), (d, 1.0)] {
                self = self.plus(slope, step * weight / 6.0);
            }
        }
        self
    }
}

/// Control performance of a loop.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Quality {
    /// Largest excess over the final value, percent.
    pub overshoot_percent: f64,
    /// Time from the step until the value stays within 5 % of the final one; `None` if never.
    pub settled_s: Option<f64>,
    /// Root mean square of the deviation from the same loop without a network, volts.
    pub deviation_v: f64,
}

impl Quality {
    /// Returns the performance of a loop with these voltages, one per period.
    pub fn new(volts: &[f64], period: Nanos) -> Self {
        let period = period as f64 / 1e9;
        let ideal = without_network(volts.len(), period);
        let squares = volts.iter().zip(&ideal).map(|(a, b)| (a - b).powi(2));
        let highest = volts.iter().copied().fold(0.0, f64::max);
        let outside = |volt: &f64| (volt - FINAL).abs() > SETTLED * FINAL;
        let last_outside = volts.iter().rposition(outside).map_or(0, |at| at + 1);
        Self {
            overshoot_percent: 100.0 * (highest / FINAL - 1.0).max(0.0),
            settled_s: (last_outside < volts.len()).then_some(last_outside as f64 * period),
            deviation_v: (squares.sum::<f64>() / volts.len().max(1) as f64).sqrt(),
        }
    }
}

/// A control loop, see the module.
pub struct ControlLoop {
    /// Flow of the plant's samples, and the value of each message.
    samples: (usize, Vec<f64>),
    /// Flow of the controller's commands, and the value of each message.
    answers: (usize, Vec<f64>),
    period: Nanos,
    start: Nanos,
    end: Nanos,
    circuit: Circuit,
    /// Time of the state in `circuit`.
    at: Nanos,
    source: f64,
    volts: Vec<f64>,
}

impl ControlLoop {
    /// Creates a loop over two flows that it publishes on demand: samples of the plant, and
    /// commands of the controller.
    pub fn new(
        [samples, answers]: [usize; 2],
        (start, end): (Nanos, Nanos),
        period: Nanos,
    ) -> Self {
        Self {
            samples: (samples, Vec::new()),
            answers: (answers, Vec::new()),
            period,
            start,
            end,
            circuit: Circuit::default(),
            at: start,
            source: 0.0,
            volts: Vec::new(),
        }
    }

    /// Returns the time of the first sample.
    pub fn start(&self) -> Nanos {
        self.start
    }

    /// Advances the circuit to the current time and sends its voltage. Returns the time of the next
    /// sample, if it is before the end.
    pub fn sample(&mut self, net: &mut Net, flows: &mut Flows) -> Option<Nanos> {
        self.advance(net.now());
        self.volts.push(self.circuit.volt);
        publish(net, flows, &mut self.samples, self.circuit.volt);
        Some(net.now() + self.period).filter(|next| *next < self.end)
    }

    /// Handles a received message: the controller responds to a sample, the plant applies a
    /// command.
    pub fn on_arrival(&mut self, net: &mut Net, flows: &mut Flows, (flow, sequence): (usize, u64)) {
        let value = |values: &[f64]| values.get(sequence as usize).copied();
        if flow == self.samples.0 {
            let Some(volt) = value(&self.samples.1) else { return };
            publish(net, flows, &mut self.answers, GAIN * (SET_POINT - volt));
        } else if flow == self.answers.0 {
            let source = value(&self.answers.1).unwrap_or(self.source);
            self.advance(net.now());
            self.source = source;
        }
    }

    /// Advances the circuit to `now` with a constant source voltage.
    fn advance(&mut self, now: Nanos) {
        let seconds = now.saturating_sub(self.at) as f64 / 1e9;
        self.circuit = self.circuit.advance(self.source, seconds);
        self.at = now.max(self.at);
    }

    /// Returns the voltage at each sample.
    pub fn volts(&self) -> &[f64] {
        &self.volts
    }

    /// Returns the control performance.
    pub fn quality(&self) -> Quality {
        Quality::new(&self.volts, self.period)
    }
}

/// Publishes a message that represents `value`.
fn publish(net: &mut Net, flows: &mut Flows, (flow, values): &mut (usize, Vec<f64>), value: f64) {
    let taken = flows.publish(net, *flow);
    if taken {
        values.push(value);
    }
}

/// Simulates the same loop without a network: each sample gets an immediate response.
fn without_network(samples: usize, period_s: f64) -> Vec<f64> {
    let mut circuit = Circuit::default();
    (0..samples)
        .map(|_| {
            let volt = circuit.volt;
            circuit = circuit.advance(GAIN * (SET_POINT - volt), period_s);
            volt
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_network_the_loop_settles_at_half_a_volt_with_35_percent_overshoot() {
        let volts = without_network(200, 0.02);
        let highest = volts.iter().copied().fold(0.0, f64::max);
        assert!((highest / FINAL - 1.35).abs() < 0.02, "{highest}");
        assert!((volts[199] - FINAL).abs() < 1e-3);
    }
}
