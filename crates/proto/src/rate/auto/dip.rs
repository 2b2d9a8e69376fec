// SPDX-License-Identifier: Apache-2.0
//! Dips of the rate. As long as sending more delivers more, losses come from the path itself. If
//! fewer packets are lost at a lower rate, the rate was too high.

use super::losses::{Losses, Ratio};
use super::sample::Sample;
use super::tuning::Tuning;
use crate::time::{Duration, Instant};

/// A dip must have at least this many packets to show a loss ratio.
const MIN_PACKETS: f64 = 16.0;
/// The rate of a dip is this part of the rate at which packets arrived before the dip, but at least
/// [`MIN_GAIN`] of the estimate.
const BELOW_DELIVERED: f64 = 0.95;
/// The least rate of a dip, as a part of the estimate.
const MIN_GAIN: f64 = 0.2;
/// The longest extension of a dip that has too few packets.
const MAX_EXTENSION: Duration = Duration::from_millis(300);
/// A smaller difference of loss ratios does not show congestion.
const LEAST_FALL: f64 = 0.01;

/// A dip in progress.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Dip {
    /// When reports begin to show the lower rate.
    from: Instant,
    /// When reports have shown the lower rate for long enough.
    until: Instant,
    /// The rate during the dip, as a part of the estimate.
    pub(super) gain: f64,
    /// The estimate, in bits per second.
    estimate: f64,
    /// The rate at which packets arrived before the dip took effect, in bits per second.
    arrived: f64,
    /// The dip is deeper than usual, because an earlier dip may have been too shallow.
    deep: bool,
    /// Losses that aroused the suspicion.
    before: Ratio,
    /// Losses between the decision for the dip and its effect.
    rising_losses: Ratio,
    /// Losses since the dip took effect.
    dip_losses: Ratio,
}

/// What a dip showed.
#[derive(Debug, PartialEq)]
pub(super) enum DipResult {
    /// Fewer packets were lost. Before the dip, packets had arrived at the rate `arrived`, in bits
    /// per second.
    Congestion { arrived: f64 },
    /// Losses during the dip were still far above the baseline, but differed from those before it. The dip
    /// may have been too shallow.
    Rising(Ratio),
    /// The ratio of losses was the same: they come from the path.
    Path,
    /// The dip had too few packets.
    Nothing,
}

impl Dip {
    /// Begins a dip. `before`: the losses at the estimate. If a full queue caused these losses,
    /// nothing is lost during the dip.
    pub(super) fn begin(
        now: Instant,
        feedback_time: Duration,
        estimate: f64,
        before: Ratio,
        losses: &Losses,
        deep: bool,
        tuning: &Tuning,
    ) -> Self {
        Self {
            from: now + feedback_time,
            until: now + feedback_time * 2,
            gain: (Self::gain(before, tuning) * if deep { 0.5 } else { 1.0 }).max(MIN_GAIN),
            estimate,
            arrived: losses.delivery_rate(),
            deep,
            before,
            rising_losses: Ratio::default(),
            dip_losses: Ratio::default(),
        }
    }

    fn gain(before: Ratio, tuning: &Tuning) -> f64 {
        (BELOW_DELIVERED * (1.0 - before.value())).clamp(MIN_GAIN, tuning.dip_gain)
    }

    /// Adds a sample. At the end of the dip, passes the result to `losses` and returns it.
    pub(super) fn add(
        &mut self,
        now: Instant,
        sample: &Sample,
        limited: bool,
        losses: &mut Losses,
        tuning: &Tuning,
    ) -> Option<DipResult> {
        // If the application sends less, losses say nothing about the rate.
        if limited && now < self.from {
            self.rising_losses = self.rising_losses.merged(sample.losses);
            self.arrived = losses.delivery_rate();
        } else if limited {
            self.dip_losses = self.dip_losses.merged(sample.losses);
        }
        let conclusive = self.is_conclusive(losses, tuning);
        if now < self.until || !conclusive && now < self.until + MAX_EXTENSION {
            return None;
        }
        let (loaded, during) = (self.losses_before(losses, tuning), self.dip_losses);
        if during.packets < MIN_PACKETS {
            losses.on_inconclusive_dip(now, tuning);
            return Some(DipResult::Nothing);
        }
        let expected = self.expected_fall(loaded, losses);
        let fall = loaded.value() - during.value();
        let deviation = losses.deviation(loaded, during);
        let congestion =
            expected > LEAST_FALL && fall > expected / 2.0 && fall > tuning.significant * deviation;
        let is_excess = during.value() - losses.baseline() > 2.0 * tuning.loss_margin;
        // Losses that come from the path stay the same at a lower rate. Losses from a rate far too
        // high do not.
        let stays_same = fall.abs() < (expected / 2.0).min(deviation);
        if !congestion && is_excess && !stays_same && !self.deep {
            return Some(DipResult::Rising(during));
        }
        let arrived = self.arrived;
        // A dip that stays above the rate at which packets arrived can show congestion, but not what
        // the path loses without congestion. If there is no congestion, the rate made no difference,
        // and the losses before and during the dip both show the path.
        match congestion {
            true if self.gain * self.estimate > arrived => losses.on_inconclusive_dip(now, tuning),
            true => losses.on_dip(now, during, true, tuning),
            false => losses.on_dip(now, during.merged(loaded), false, tuning),
        }
        Some(if congestion { DipResult::Congestion { arrived } } else { DipResult::Path })
    }

    /// By how much the loss ratio falls during the dip if the rate before it was too high: either
    /// as many packets arrive as before, or all packets except the losses of the baseline.
    fn expected_fall(&self, loaded: Ratio, losses: &Losses) -> f64 {
        let arrived = 1.0 - loaded.value();
        (arrived / self.gain).min(1.0 - losses.baseline()) - arrived
    }

    /// The losses at the rate before the dip. They may still have been rising when it began.
    fn losses_before(&self, losses: &Losses, tuning: &Tuning) -> Ratio {
        let rise = self.rising_losses.value() - self.before.value();
        let enough = self.rising_losses.packets >= MIN_PACKETS;
        if enough || rise > tuning.significant * losses.deviation(self.before, self.rising_losses) {
            self.rising_losses
        } else {
            self.before.merged(self.rising_losses)
        }
    }

    /// Whether there are enough packets to tell an excess from chance.
    fn is_conclusive(&self, losses: &Losses, tuning: &Tuning) -> bool {
        let loaded = self.losses_before(losses, tuning);
        let expected = self.expected_fall(loaded, losses).max(LEAST_FALL);
        let fall = loaded.value() - self.dip_losses.value();
        let chance = tuning.significant * losses.deviation(loaded, self.dip_losses);
        self.dip_losses.packets >= MIN_PACKETS && (fall - expected / 2.0).abs() > chance
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: Instant = Instant(1_000_000_000_000);

    /// A path that loses the part `random` of the packets, in bursts of `row` packets, and all
    /// packets beyond `capacity`. Losses are spread evenly.
    struct Path {
        random: f64,
        row: f64,
        capacity: f64,
    }

    impl Path {
        fn sample(&self, rate: f64) -> Sample {
            let excess = (1.0 - self.capacity / rate).max(0.0);
            let ratio = excess + (1.0 - excess) * self.random;
            let losses = Ratio::new(ratio, 20.0);
            Sample { losses, loss_runs: losses.lost / self.row, ..Sample::steady(rate) }
        }

        /// Sends at `rate` until losses arouse a suspicion, then in dips. Returns what the last dip showed.
        fn test(&self, losses: &mut Losses, begin: Instant, rate: f64) -> DipResult {
            let tuning = Tuning::default();
            let before = (0..200).find_map(|_| {
                losses.add(&self.sample(rate), false, &tuning);
                losses.suspected_losses(begin, &tuning)
            });
            let (mut before, mut deep) = (before.expect("a suspicion"), false);
            let time = Duration::from_millis(20);
            let mut now = begin;
            loop {
                let mut dip = Dip::begin(now, time, rate, before, losses, deep, &tuning);
                let shown = loop {
                    let gain = if now < dip.from { 1.0 } else { dip.gain };
                    now = now + Duration::from_millis(5);
                    let sample = self.sample(rate * gain);
                    if let Some(shown) = dip.add(now, &sample, true, losses, &tuning) {
                        break shown;
                    }
                };
                match shown {
                    DipResult::Rising(during) => (before, deep) = (during, true),
                    shown => return shown,
                }
            }
        }
    }

    #[test]
    fn losses_that_end_at_a_lower_rate_are_congestion() {
        for rate in [1.2, 2.0, 4.0] {
            let path = Path { random: 0.0, row: 1.0, capacity: 1.0 };
            let shown = path.test(&mut Losses::default(), Instant(1), rate);
            let DipResult::Congestion { arrived } = shown else { panic!("{rate}: {shown:?}") };
            assert!((arrived - 1.0).abs() < 0.1, "{rate}: {arrived}");
        }
    }

    #[test]
    fn losses_that_remain_at_a_lower_rate_are_no_congestion() {
        let tuning = Tuning::default();
        for (random, row) in [(0.05, 1.0), (0.2, 1.0), (0.3, 1.0), (0.2, 5.0)] {
            let path = Path { random, row, capacity: f64::INFINITY };
            let mut losses = Losses::default();
            assert_eq!(path.test(&mut losses, Instant(1), 1.0), DipResult::Path, "{random}, {row}");
            let found = losses.baseline();
            assert!((found - random).abs() < 0.03, "{random}, {row}: {found}");
            (0..100).for_each(|_| losses.add(&path.sample(1.0), false, &tuning));
            assert_eq!(losses.suspected_losses(LATER, &tuning), None);
        }
    }

    #[test]
    fn losses_that_stay_the_same_need_no_deeper_dip() {
        let tuning = Tuning::default();
        let mut losses = Losses::default();
        let path = Path { random: 0.1, row: 1.0, capacity: f64::INFINITY };
        (0..100).for_each(|_| losses.add(&path.sample(1.0), false, &tuning));
        let (before, time) =
            (losses.suspected_losses(LATER, &tuning).unwrap(), Duration::from_millis(20));
        let mut dip = Dip::begin(LATER, time, 1.0, before, &losses, false, &tuning);
        let shown = (1..100).find_map(|n| {
            let now = LATER + Duration::from_millis(5 * n);
            dip.add(now, &path.sample(dip.gain), true, &mut losses, &tuning)
        });
        assert_eq!(shown, Some(DipResult::Path));
    }

    #[test]
    fn congestion_of_a_lossy_path_is_found() {
        let free = Path { random: 0.1, row: 1.0, capacity: f64::INFINITY };
        let mut losses = Losses::default();
        assert_eq!(free.test(&mut losses, Instant(1), 1.0), DipResult::Path);
        let full = Path { capacity: 1.0, ..free };
        let shown = full.test(&mut losses, LATER, 2.0);
        let DipResult::Congestion { arrived } = shown else { panic!("{shown:?}") };
        assert!((arrived - 1.0).abs() < 0.1, "{arrived}");
    }

    #[test]
    fn a_wrong_baseline_does_not_confirm_itself() {
        let tuning = Tuning::default();
        let mut losses = Losses::default();
        losses.on_dip(Instant(1), Ratio::new(0.4, 500.0), false, &tuning);
        let policer = Path { random: 0.0, row: 1.0, capacity: 1.0 };
        let shown = policer.test(&mut losses, LATER, 2.5);
        assert!(matches!(shown, DipResult::Congestion { .. }), "{shown:?}");
        assert!(losses.baseline() < 0.2, "{}", losses.baseline());
    }

    #[test]
    fn a_dip_of_few_packets_is_inconclusive() {
        let tuning = Tuning::default();
        let mut losses = Losses::default();
        let time = Duration::from_millis(20);
        let mut dip =
            Dip::begin(Instant(1), time, 1.0, Ratio::new(0.3, 128.0), &losses, false, &tuning);
        let sample = Sample { losses: Ratio::new(0.0, 4.0), ..Sample::steady(1.0) };
        let shown = (1..100).find_map(|n| {
            let now = Instant(1) + Duration::from_millis(5 * n);
            dip.add(now, &sample, false, &mut losses, &tuning)
        });
        assert_eq!((shown, losses.baseline()), (Some(DipResult::Nothing), 0.0));
    }
}
