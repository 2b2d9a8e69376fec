// SPDX-License-Identifier: Apache-2.0
//! Cellular links drawn from a seed: the rate walks within bounds, and stops in outages.

use fastrand::Rng;
use tautline_medium::{OPPORTUNITY_BYTES, Trace};

/// Length of the trace, which then repeats: a whole run.
const LENGTH_MS: u32 = 65_000;
/// The rate changes this often.
const STEP_MS: u32 = 100;
/// Largest change in one step, as a logarithm.
const STEP: f64 = 0.25;
/// Bounds of the rate, as multiples of the first one.
const BOUNDS: [f64; 2] = [0.1, 2.5];
/// Probability that an outage begins in a step: one in 20 s.
const OUTAGE: f64 = 0.005;
/// Longest outage, in steps.
const OUTAGE_STEPS: u32 = 20;
/// The cell serves the modem in turns of up to this many milliseconds.
const TURN_MS: u32 = 8;

/// Draws the trace of a seed.
pub fn trace(seed: u64) -> Option<Trace> {
    let mut random = Rng::with_seed(seed);
    let first_mbps = (0.8_f64.ln() + random.f64() * (20.0_f64 / 0.8).ln()).exp();
    let turn_ms = random.u32(1..=TURN_MS);
    let (mut rate, mut outage, mut bytes, mut at_ms) = (1.0_f64, 0, 0.0, Vec::new());
    for ms in 0..LENGTH_MS {
        if ms % STEP_MS == 0 {
            rate *= ((random.f64() * 2.0 - 1.0) * STEP).exp();
            rate = rate.clamp(BOUNDS[0], BOUNDS[1]);
            let begins = outage == 0 && random.f64() < OUTAGE;
            outage = if begins { random.u32(2..=OUTAGE_STEPS) } else { outage.saturating_sub(1) };
        }
        if outage == 0 {
            bytes += first_mbps * rate * 1e3 / 8.0;
        }
        while ms % turn_ms == 0 && bytes >= OPPORTUNITY_BYTES as f64 {
            bytes -= OPPORTUNITY_BYTES as f64;
            at_ms.push(ms);
        }
    }
    Trace::new(&at_ms)
}
