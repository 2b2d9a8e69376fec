// SPDX-License-Identifier: Apache-2.0
//! Queued messages of a station that precede another message.

use super::delays::{log_number, log_sum};
use super::traffic::Packets;

/// Messages with equal packets.
#[derive(Debug, Clone)]
pub(super) struct Queued {
    pub(super) number: Number,
    pub(super) packets: Packets,
}

/// A random number of messages.
#[derive(Debug, Clone)]
pub(super) enum Number {
    /// The mean: its whole part is certain, and its fraction is the probability of one more.
    Mean(f64),
    /// The probabilities of 0, 1, 2, ...
    Chances(Vec<f64>),
}

impl Number {
    /// Returns the sum of independent numbers with these means, limited to `most`.
    pub(super) fn bounded_sum(most: usize, means: impl Iterator<Item = f64>) -> Self {
        let mut chances = vec![1.0];
        for mean in means {
            let mut rest = mean.min(most as f64);
            while rest > 0.0 {
                add_bernoulli(&mut chances, rest.min(1.0), most);
                rest -= 1.0;
            }
        }
        Self::Chances(chances)
    }

    /// Returns ln E[exp(N x)].
    pub(super) fn log_mean(&self, x: f64) -> f64 {
        let chances = match self {
            Self::Mean(mean) => return log_number(*mean, x),
            Self::Chances(chances) => chances,
        };
        let possible = (0u32..).zip(chances).filter(|(_, chance)| **chance > 0.0);
        let term = |(number, chance): (u32, &f64)| {
            // Avoid infinity times zero.
            chance.ln() + if number > 0 { f64::from(number) * x } else { 0.0 }
        };
        possible.map(term).fold(f64::NEG_INFINITY, log_sum)
    }
}

/// Adds one to a random number with this probability, up to `most`. `chances` are the probabilities of the
/// numbers 0, 1, 2, ...
pub(super) fn add_bernoulli(chances: &mut Vec<f64>, probability: f64, most: usize) {
    if chances.len() <= most {
        chances.push(0.0);
    }
    for number in (0..chances.len()).rev() {
        let fewer = if number > 0 { chances[number - 1] } else { 0.0 };
        let stays = if number == most { 1.0 } else { 1.0 - probability };
        chances[number] = chances[number] * stays + fewer * probability;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chances(most: usize, means: &[f64]) -> Vec<f64> {
        match Number::bounded_sum(most, means.iter().copied()) {
            Number::Chances(chances) => chances,
            Number::Mean(_) => vec![],
        }
    }

    #[test]
    fn a_bounded_sum_is_limited() {
        assert_eq!(chances(2, &[0.5, 0.5, 0.5]), [0.125, 0.375, 0.5]);
        assert_eq!(chances(2, &[5.0]), [0.0, 0.0, 1.0]);
        assert_eq!(chances(2, &[0.25]), [0.75, 0.25]);
        assert_eq!(chances(2, &[]), [1.0]);
    }

    #[test]
    fn a_mean_and_its_chances_are_the_same_number() {
        let (mean, chances) = (Number::Mean(1.25), Number::Chances(vec![0.0, 0.75, 0.25]));
        assert!((mean.log_mean(0.7) - chances.log_mean(0.7)).abs() < 1e-12);
        assert_eq!(Number::Chances(vec![1.0, 0.0]).log_mean(f64::INFINITY), 0.0);
    }
}
