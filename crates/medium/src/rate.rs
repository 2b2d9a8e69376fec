// SPDX-License-Identifier: Apache-2.0
//! Selection of the rate of data frames: fixed, or adaptive as in Minstrel (the default of Linux's
//! mac80211). Success is averaged per rate, the rate with the most success per airtime is used, and
//! one frame in ten samples another rate.

use crate::{Nanos, Phy, RateControl};
use fastrand::Rng;

/// Interval at which averages are updated.
const INTERVAL: Nanos = 100_000_000;
/// Weight of the previous average in each update.
const PAST: f64 = 0.75;
/// Share of frames that sample another rate.
const SAMPLED: f64 = 0.1;
/// Attempts at each stage of the retry chain: best throughput, second best, most reliable, slowest.
const ATTEMPTS_PER_STAGE: u32 = 2;
/// Length of the IP packet for which airtimes of rates are compared, bytes (as in Minstrel).
const COMPARED_BYTES: u32 = 1200;
/// Minimum success of a rate that is used for throughput.
const LEAST_SUCCESS: f64 = 0.1;

#[derive(Debug, Clone, Copy)]
struct Seen {
    success: f64,
    tried: u32,
    worked: u32,
}

/// Rate selection for one receiver.
#[derive(Debug)]
pub struct RateChoice {
    phy: Phy,
    fixed: Option<usize>,
    seen: Vec<Seen>,
    stages: [usize; 4],
    renew_at: Nanos,
}

impl RateChoice {
    pub fn new(phy: Phy, control: RateControl) -> Self {
        let rates = phy.rates().len();
        let fixed = match control {
            RateControl::Fixed(bps) => Some(phy.rate_number(bps).unwrap_or(0)),
            RateControl::Adaptive => None,
        };
        let seen = vec![Seen { success: 1.0, tried: 0, worked: 0 }; rates];
        // Initial stages, without measurements: from the middle down.
        let stages = [rates / 2, rates / 4, 0, 0];
        Self { phy, fixed, seen, stages, renew_at: 0 }
    }

    /// Returns the rate of a frame's attempt (0 is the first).
    pub fn choose(&self, attempt: u32, random: &mut Rng) -> usize {
        if let Some(fixed) = self.fixed {
            return fixed;
        }
        if attempt < 2 && random.f64() < SAMPLED {
            let sampled = random.usize(0..self.seen.len());
            // Faster rates are sampled by the first attempt. A slower one is sampled only after the
            // best rate has failed, because it costs airtime.
            let best = self.stages[0];
            if attempt == 0 && sampled > best || attempt == 1 && sampled < best {
                return sampled;
            }
        }
        let stage = (attempt / ATTEMPTS_PER_STAGE) as usize;
        self.stages[stage.min(self.stages.len() - 1)]
    }

    /// Records the result of an attempt.
    pub fn report(&mut self, now: Nanos, rate: usize, worked: bool) {
        self.seen[rate].tried += 1;
        self.seen[rate].worked += u32::from(worked);
        if now >= self.renew_at {
            self.renew_at = now + INTERVAL;
            self.renew();
        }
    }

    fn renew(&mut self) {
        for seen in &mut self.seen {
            if seen.tried > 0 {
                let recent = f64::from(seen.worked) / f64::from(seen.tried);
                seen.success = PAST * seen.success + (1.0 - PAST) * recent;
                (seen.tried, seen.worked) = (0, 0);
            }
        }
        let mut order: Vec<usize> = (0..self.seen.len()).collect();
        order.sort_by(|a, b| self.throughput(*b).total_cmp(&self.throughput(*a)));
        let second = if self.throughput(order[1]) > 0.0 { order[1] } else { order[0] };
        let surest = (0..self.seen.len())
            .max_by(|a, b| self.seen[*a].success.total_cmp(&self.seen[*b].success))
            .unwrap_or(0);
        self.stages = [order[0], second, surest, 0];
    }

    fn throughput(&self, rate: usize) -> f64 {
        let success = self.seen[rate].success;
        let airtime = self.phy.data_airtime(rate, COMPARED_BYTES, 0);
        if success < LEAST_SUCCESS { 0.0 } else { success / airtime as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_rate_is_found_and_followed() {
        let mut random = Rng::with_seed(3);
        let mut choice = RateChoice::new(Phy::Ofdm, RateControl::Adaptive);
        let mut settle = |choice: &mut RateChoice, from: u64, works_up_to: usize| {
            for n in 0..3000 {
                for attempt in 0..8 {
                    let rate = choice.choose(attempt, &mut random);
                    choice.report((from + n) * 2_000_000, rate, rate <= works_up_to);
                    if rate <= works_up_to {
                        break;
                    }
                }
            }
            choice.stages[0]
        };
        assert_eq!(settle(&mut choice, 0, 5), 5);
        assert_eq!(settle(&mut choice, 3000, 2), 2);
        assert_eq!(settle(&mut choice, 6000, 7), 7);
    }
}
