// SPDX-License-Identifier: Apache-2.0
//! Losses of a link: the recent ones, and the baseline, which is the loss ratio of the uncongested
//! path. Everything is tested for chance, with the length of the bursts in which packets are lost.

use super::backoff::Backoff;
use super::sample::Sample;
use super::tuning::Tuning;
use crate::time::Instant;

/// Memory of lasting losses, as a multiple of that of recent losses.
const LASTING_FACTOR: f64 = 8.0;
/// Margin for recent losses, as a multiple of that for lasting losses.
const MARGIN_FACTOR: f64 = 3.0;
/// An excess must also be at least this part of the baseline: a smaller excess is not worth a dip.
const RELATIVE_MARGIN: f64 = 0.15;
/// A path that loses a larger fraction of packets loses reports, too.
const LOSSY_RATIO: f64 = 0.005;
/// Number of packets over which the arrival rate is averaged.
const ARRIVED_MEMORY: f64 = 32.0;
/// The longest credible burst of losses, in packets.
const MAX_RUN: f64 = 8.0;

/// A number of packets, and how many of them were lost.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Ratio {
    pub(super) lost: f64,
    pub(super) packets: f64,
}

impl Ratio {
    pub(super) fn new(value: f64, packets: f64) -> Self {
        Self { lost: value * packets, packets }
    }

    pub(super) fn value(self) -> f64 {
        (self.lost / self.packets.max(1.0)).clamp(0.0, 1.0)
    }

    pub(super) fn merged(self, other: Self) -> Self {
        Self { lost: self.lost + other.lost, packets: self.packets + other.packets }
    }
}

#[derive(Debug, Default)]
pub(super) struct Losses {
    recent: f64,
    lasting: f64,
    baseline: Ratio,
    /// Lost packets. Recent losses count more.
    lost: f64,
    /// Number of runs of consecutive packets among the lost packets.
    runs: f64,
    /// Bits that arrived. Recent arrivals count more.
    bits: f64,
    /// The seconds that these bits took to arrive.
    seconds: f64,
    /// Dips that show whether an excess is congestion.
    dips: Backoff,
}

impl Losses {
    /// Adds the losses of a sample. `overflows`: there is a standing queue, and the runs of lost packets may
    /// come from this queue, not from the path.
    pub(super) fn add(&mut self, sample: &Sample, overflows: bool, tuning: &Tuning) {
        let memory = tuning.loss_memory;
        if !overflows {
            let faded = 1.0 - sample.losses.lost.clamp(0.0, memory) / memory;
            self.lost = self.lost * faded + sample.losses.lost.max(0.0);
            self.runs = self.runs * faded + sample.loss_runs;
        }
        let Ratio { lost, packets } = sample.losses;
        for (average, memory) in
            [(&mut self.recent, memory), (&mut self.lasting, memory * LASTING_FACTOR)]
        {
            let weight = 1.0 - (-packets / memory).exp();
            *average = (*average + weight * (lost / packets.max(1.0) - *average)).clamp(0.0, 1.0);
        }
        // A baseline that is too high is corrected by later losses.
        let lasting = Ratio::new(self.lasting, 2.0 * memory * LASTING_FACTOR);
        let chance = 1.5 * tuning.significant * self.deviation(lasting, self.baseline);
        if self.baseline() - self.lasting > tuning.loss_margin + chance {
            self.baseline = lasting;
        }
        let faded = (-packets / ARRIVED_MEMORY).exp();
        let bits = 8.0 * sample.bytes;
        self.bits = self.bits * faded + bits * (1.0 - sample.losses.value());
        self.seconds = self.seconds * faded + bits / sample.delivery_rate;
    }

    pub(super) fn baseline(&self) -> f64 {
        self.baseline.value()
    }

    /// The recent arrival rate in bits per second, plus the losses of the baseline.
    pub(super) fn delivery_rate(&self) -> f64 {
        self.bits / self.seconds.max(1e-9) / (1.0 - self.baseline()).max(0.01)
    }

    /// Forgets the excess of losses, because it has been answered.
    pub(super) fn forget_excess(&mut self) {
        (self.recent, self.lasting) = (self.baseline(), self.baseline());
    }

    pub(super) fn is_lossy(&self) -> bool {
        self.recent.max(self.lasting).max(self.baseline()) > LOSSY_RATIO
    }

    /// The standard deviation of the difference of two ratios that differ only by chance. If the length of
    /// loss bursts is distributed geometrically, the variance is that of single losses,
    /// multiplied by twice the mean length less one.
    pub(super) fn deviation(&self, one: Ratio, other: Ratio) -> f64 {
        let expected = one.merged(other).value().clamp(0.01, 0.99);
        let dispersion = 2.0 * (self.lost / self.runs.max(1.0)).clamp(1.0, MAX_RUN) - 1.0;
        let shares = 1.0 / one.packets.max(1.0) + 1.0 / other.packets.max(1.0);
        (expected * (1.0 - expected) * dispersion * shares).sqrt()
    }

    /// The recent losses, if they exceed the baseline by a margin and by more than chance. The threshold is
    /// one and a half times the significant difference, since this is examined often. (An average with
    /// exponential decay is as certain as one of twice as many packets.)
    pub(super) fn excess(&self, tuning: &Tuning) -> Option<Ratio> {
        let Tuning { loss_memory: memory, loss_margin: margin, .. } = *tuning;
        let spans = [
            (self.recent, memory, margin),
            (self.lasting, memory * LASTING_FACTOR, margin / MARGIN_FACTOR),
        ];
        spans.into_iter().find_map(|(value, memory, margin)| {
            let ratio = Ratio::new(value, 2.0 * memory);
            // Until a dip has shown another baseline, it is that of a path without loss.
            let certain = self.baseline.packets.max(LASTING_FACTOR * tuning.loss_memory);
            let baseline = Ratio::new(self.baseline(), certain);
            // Chance within the baseline: the excess itself does not count.
            let chance = self.deviation(Ratio::new(baseline.value(), ratio.packets), baseline);
            let least = margin.max(RELATIVE_MARGIN * baseline.value());
            (value - baseline.value() > least + 1.5 * tuning.significant * chance).then_some(ratio)
        })
    }

    /// The recent losses, if they may be congestion and no dip has tested this recently.
    pub(super) fn suspected_losses(&self, now: Instant, tuning: &Tuning) -> Option<Ratio> {
        self.excess(tuning).filter(|_| self.dips.is_due(now))
    }

    /// The fraction of packets that arrive at a loss ratio, divided by the fraction that would
    /// arrive at the baseline.
    pub(super) fn delivered_fraction(&self, ratio: f64) -> f64 {
        ((1.0 - ratio) / (1.0 - self.baseline()).max(0.01)).min(1.0)
    }

    /// Records that a dip ended without a result.
    pub(super) fn on_inconclusive_dip(&mut self, now: Instant, tuning: &Tuning) {
        self.dips.postpone(now, tuning);
    }

    /// Records that a dip showed in which ratio the path loses packets without congestion.
    pub(super) fn on_dip(&mut self, now: Instant, shown: Ratio, congestion: bool, tuning: &Tuning) {
        // Only a part of the earlier baseline counts, and none of it if fewer packets are lost. The
        // baseline then follows the path.
        let most = 2.0 * LASTING_FACTOR * tuning.loss_memory;
        let fall = self.baseline() - shown.value();
        let is_wrong = fall > tuning.significant * self.deviation(shown, self.baseline);
        let before = if is_wrong { 0.0 } else { self.baseline.packets.min(most) };
        let known = Ratio::new(self.baseline(), before).merged(shown);
        self.baseline = Ratio::new(known.value(), known.packets);
        (self.recent, self.lasting) = (known.value(), known.value());
        if congestion {
            self.dips.succeed(now);
        } else {
            self.dips.fail(now, tuning);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_packets_are_subtracted_from_losses() {
        let tuning = Tuning::default();
        let mut losses = Losses::default();
        for _ in 0..100 {
            for ratio in [-0.1, 0.1] {
                let sample = Sample { losses: Ratio::new(ratio, 20.0), ..Sample::steady(1.0) };
                losses.add(&sample, false, &tuning);
            }
        }
        assert_eq!(losses.suspected_losses(Instant(1), &tuning), None);
    }
}
