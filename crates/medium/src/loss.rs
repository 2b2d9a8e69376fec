// SPDX-License-Identifier: Apache-2.0
//! Loss not caused by collisions or distance.

use crate::config::Loss;
use fastrand::Rng;
use std::collections::BTreeMap;

/// State of one network's [`Loss`], with a separate Markov chain per directed pair.
#[derive(Debug)]
pub struct Losses {
    loss: Loss,
    bad: BTreeMap<(usize, usize), bool>,
}

impl Losses {
    pub fn new(loss: Loss) -> Self {
        Self { loss, bad: BTreeMap::new() }
    }

    /// Runs one trial from one radio to another; returns whether the frame or attempt is lost.
    pub fn draw_loss(&mut self, from: usize, to: usize, random: &mut Rng) -> bool {
        match self.loss {
            Loss::None => false,
            Loss::Uniform { probability } => random.f64() < probability,
            Loss::GilbertElliott { enter, leave } => {
                let bad = self.bad.entry((from, to)).or_insert_with(|| {
                    // The chain starts in its stationary distribution, so that short runs do not
                    // lose less.
                    random.f64() * (enter + leave) < enter
                });
                let changes = random.f64() < if *bad { leave } else { enter };
                *bad ^= changes;
                *bad
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(loss: Loss, trials: usize) -> Vec<bool> {
        let (mut losses, mut random) = (Losses::new(loss), Rng::with_seed(1));
        (0..trials).map(|_| losses.draw_loss(0, 1, &mut random)).collect()
    }

    fn share(outcomes: &[bool]) -> f64 {
        outcomes.iter().filter(|lost| **lost).count() as f64 / outcomes.len() as f64
    }

    #[test]
    fn uniform_loss_has_its_probability() {
        let outcomes = run(Loss::Uniform { probability: 0.2 }, 100_000);
        assert!((share(&outcomes) - 0.2).abs() < 0.01);
    }

    #[test]
    fn bursts_have_their_length_and_share() {
        let outcomes = run(Loss::GilbertElliott { enter: 0.02, leave: 0.2 }, 200_000);
        assert!((share(&outcomes) - 0.02 / 0.22).abs() < 0.01);
        let bursts = outcomes.windows(2).filter(|pair| pair[0] && !pair[1]).count();
        let mean = outcomes.iter().filter(|lost| **lost).count() as f64 / bursts as f64;
        assert!((mean - 5.0).abs() < 0.3, "mean burst {mean}");
    }
}
