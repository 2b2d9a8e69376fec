// SPDX-License-Identifier: Apache-2.0
//! Selection of the rate of data frames: fixed, or adaptive as in Minstrel (the default of Linux's
//! mac80211). Success is averaged per rate, the rate with the most success per airtime is used, and
//! one frame in ten samples another rate.

use crate::config::{Phy, RateControl};
use crate::ids::Nanos;
use fastrand::Rng;

/// Interval at which averages are updated.
const INTERVAL: Nanos = 100_000_000;
/// Weight of the previous average in each update.
const EWMA_WEIGHT: f64 = 0.75;
/// Share of frames that sample another rate.
const SAMPLE_SHARE: f64 = 0.1;
/// Number of attempts at each stage of the retry chain: best throughput, second best, most reliable,
/// slowest.
const ATTEMPTS_PER_STAGE: u32 = 2;
/// Length of the IP packet for which airtimes of rates are compared, bytes (as in Minstrel).
const COMPARED_BYTES: u32 = 1200;
/// Minimum success of a rate that is used for throughput.
const MIN_SUCCESS: f64 = 0.1;

#[derive(Debug, Clone, Copy)]
struct Statistics {
    /// Average probability.
    success: f64,
    /// Attempts since the last update.
    attempts: u32,
    successes: u32,
}

/// Rate selection for one receiver.
#[derive(Debug)]
pub struct RateChoice {
    phy: Phy,
    fixed: Option<usize>,
    statistics: Vec<Statistics>,
    stages: [usize; 4],
    update_at: Nanos,
}

impl RateChoice {
    pub fn new(phy: Phy, control: RateControl) -> Self {
        let rates = phy.rates().len();
        let fixed = match control {
            RateControl::Fixed(bps) => Some(phy.rate_index(bps).unwrap_or(0)),
            RateControl::Adaptive => None,
        };
        let statistics = vec![Statistics { success: 1.0, attempts: 0, successes: 0 }; rates];
        // Initial stages, without measurements: from the middle down.
        let stages = [rates / 2, rates / 4, 0, 0];
        Self { phy, fixed, statistics, stages, update_at: 0 }
    }

    /// Returns the rate of a frame's attempt (0 is the first).
    pub fn choose(&self, attempt: u32, random: &mut Rng) -> usize {
        if let Some(fixed) = self.fixed {
            return fixed;
        }
        if attempt < 2 && random.f64() < SAMPLE_SHARE {
            let sampled = random.usize(0..self.statistics.len());
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
    pub fn report(&mut self, now: Nanos, rate: usize, success: bool) {
        self.statistics[rate].attempts += 1;
        self.statistics[rate].successes += u32::from(success);
        if now >= self.update_at {
            self.update_at = now + INTERVAL;
            self.update();
        }
    }

    fn update(&mut self) {
        for rate in &mut self.statistics {
            if rate.attempts > 0 {
                let recent = f64::from(rate.successes) / f64::from(rate.attempts);
                rate.success = EWMA_WEIGHT * rate.success + (1.0 - EWMA_WEIGHT) * recent;
                (rate.attempts, rate.successes) = (0, 0);
            }
        }
        let mut order: Vec<usize> = (0..self.statistics.len()).collect();
        order.sort_by(|a, b| self.throughput(*b).total_cmp(&self.throughput(*a)));
        let second = if self.throughput(order[1]) > 0.0 { order[1] } else { order[0] };
        let most_reliable = (0..self.statistics.len())
            .max_by(|a, b| self.statistics[*a].success.total_cmp(&self.statistics[*b].success))
            .unwrap_or(0);
        self.stages = [order[0], second, most_reliable, 0];
    }

    fn throughput(&self, rate: usize) -> f64 {
        let success = self.statistics[rate].success;
        let airtime = self.phy.data_airtime(rate, COMPARED_BYTES, 0);
        if success < MIN_SUCCESS { 0.0 } else { success / airtime as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_rate_is_found_and_tracked() {
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
