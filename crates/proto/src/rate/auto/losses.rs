// SPDX-License-Identifier: Apache-2.0
//! Distinguishes the losses of a path from those of a full queue. Loss is the path's as long as more
//! sent brings more delivered: where fewer packets are lost at a lower rate, the others were too many.
//! A dip in the rate shows that. Everything is tested for chance, with the length of the bursts in
//! which packets are lost.

use super::measure::Sample;
use crate::time::{Duration, Instant};

/// Packets over which the recent loss ratio is averaged, about. (As an average with exponential decay,
/// it is as certain as one of twice as many.) An excess over the baseline by this margin, and more
/// than chance explains, may show a full queue that is too short for a delay.
const LOSS_MEMORY: f64 = 64.0;
const LOSS_MARGIN: f64 = 0.03;
/// The same for a small excess that lasts.
const LONG_LOSS_MEMORY: f64 = 512.0;
const LONG_LOSS_MARGIN: f64 = 0.01;
/// The least excess is also this part of the baseline: less is not worth a test.
const RELATIVE_MARGIN: f64 = 0.15;
/// A path that loses more loses reports too.
const LOSSY: f64 = 0.005;
/// Standard deviations beyond which a difference is not chance.
const SIGNIFICANT: f64 = 2.0;
/// The same for a suspicion, which is tested often.
const SUSPICIOUS: f64 = 3.0;
/// Packets on which the baseline rests at most, so that it follows the path.
const BASELINE_PACKETS: f64 = 1024.0;
/// Lost packets over which the length of bursts is averaged, and the longest credible burst.
const ROW_MEMORY: f64 = 64.0;
const MAX_ROW: f64 = 8.0;
/// Losses that proved to be random suggest no congestion for this time; twice as long each time in
/// a row.
const RANDOM_LOSS_TIME: Duration = Duration::from_secs(3);
const MAX_RANDOM_LOSS_TIME: Duration = Duration::from_secs(24);
/// An excess of this size is always worth a test, after a short time.
const HEAVY_LOSS: f64 = 0.25;
const HEAVY_LOSS_TIME: Duration = Duration::from_secs(1);
/// Such a test is repeated if it shows nothing, at most this often in a row.
const MAX_INCONCLUSIVE_DIPS: u32 = 3;
/// Fewest packets of a dip that show a loss ratio.
const MIN_DIP_PACKETS: f64 = 16.0;
/// A dip goes this far below the rate at which the packets before it arrived, and not deeper than
/// the lower limit.
const DIP_BELOW_DELIVERED: f64 = 0.95;
const MIN_DIP_GAIN: f64 = 0.2;
pub(super) const MAX_DIP_GAIN: f64 = 0.8;

/// Lost packets out of some.
#[derive(Debug, Clone, Copy, Default)]
struct Ratio {
    lost: f64,
    packets: f64,
}

impl Ratio {
    fn new(value: f64, packets: f64) -> Self {
        Self { lost: value * packets, packets }
    }

    fn value(self) -> f64 {
        (self.lost / self.packets.max(1.0)).clamp(0.0, 1.0)
    }

    fn with(self, other: Self) -> Self {
        Self { lost: self.lost + other.lost, packets: self.packets + other.packets }
    }

    /// The same ratio, of at most this many packets.
    fn within(self, most: f64) -> Self {
        Self::new(self.value(), self.packets.min(most))
    }
}

/// The recent loss ratio, and the baseline: the loss ratio of the uncongested path.
#[derive(Debug)]
pub(super) struct Losses {
    recent: f64,
    long_term: f64,
    baseline: Ratio,
    /// Lost packets, and the rows of consecutive ones among them; recent ones count more.
    row_packets: f64,
    rows: f64,
    /// Losses that aroused the suspicion, those between the decision for a dip and its effect, and those
    /// since.
    before: Ratio,
    rising: Ratio,
    dip: Ratio,
    /// What a dip showed that ended without a conclusion.
    earlier_dip: Ratio,
    /// The rate of the dip over the rate before it.
    gain: f64,
    last_dip: Instant,
    /// Dips in a row without a conclusion.
    inconclusive_dips: u32,
    /// Losses count as random until then.
    random_until: Instant,
    random_time: Duration,
}

impl Default for Losses {
    fn default() -> Self {
        Self {
            recent: 0.0,
            long_term: 0.0,
            baseline: Ratio::default(),
            row_packets: 0.0,
            rows: 0.0,
            before: Ratio::default(),
            rising: Ratio::default(),
            dip: Ratio::default(),
            earlier_dip: Ratio::default(),
            gain: MAX_DIP_GAIN,
            last_dip: Instant::default(),
            inconclusive_dips: 0,
            random_until: Instant::default(),
            random_time: RANDOM_LOSS_TIME,
        }
    }
}

impl Losses {
    pub(super) fn add(&mut self, sample: &Sample) {
        let faded = 1.0 - sample.lost.clamp(0.0, ROW_MEMORY) / ROW_MEMORY;
        self.row_packets = self.row_packets * faded + sample.lost.max(0.0);
        self.rows = self.rows * faded + sample.loss_rows;
        let ratio = sample.lost / sample.packets.max(1.0);
        for (average, memory) in
            [(&mut self.recent, LOSS_MEMORY), (&mut self.long_term, LONG_LOSS_MEMORY)]
        {
            let weight = 1.0 - (-sample.packets / memory).exp();
            *average = (*average + weight * (ratio - *average)).clamp(0.0, 1.0);
        }
    }

    /// The variance of losses over that of independent ones: of bursts whose length is distributed
    /// geometrically, twice the mean length less one.
    fn dispersion(&self) -> f64 {
        let row = self.row_packets / self.rows.max(1.0);
        2.0 * row.clamp(1.0, MAX_ROW) - 1.0
    }

    pub(super) fn baseline(&self) -> f64 {
        self.baseline.value()
    }

    pub(super) fn is_lossy(&self) -> bool {
        self.recent.max(self.long_term).max(self.baseline()) > LOSSY
    }

    /// The standard deviation of the difference of two ratios that differ by chance alone.
    fn deviation(&self, one: Ratio, other: Ratio) -> f64 {
        self.deviation_at(one.with(other).value(), one.packets, other.packets)
    }

    /// The same of two ratios that are `expected`, of these numbers of packets.
    fn deviation_at(&self, expected: f64, one: f64, other: f64) -> f64 {
        let independent = expected.clamp(0.01, 0.99) * (1.0 - expected.clamp(0.01, 0.99));
        let shares = 1.0 / one.max(1.0) + 1.0 / other.max(1.0);
        (independent * self.dispersion() * shares).sqrt()
    }

    /// Whether a ratio exceeds the baseline by a margin, and by more than chance. Until a dip has shown
    /// another one, the baseline is that of a path without loss.
    fn is_above_baseline(&self, ratio: Ratio, margin: f64) -> bool {
        let baseline = self.baseline();
        let packets = self.baseline.packets.max(LONG_LOSS_MEMORY);
        let chance = SUSPICIOUS * self.deviation_at(baseline, ratio.packets, packets);
        ratio.value() - baseline > margin.max(RELATIVE_MARGIN * baseline) + chance
    }

    /// The recent losses, if they exceed the baseline.
    fn excess(&self) -> Option<f64> {
        let above = |ratio: f64, memory: f64, margin: f64| {
            self.is_above_baseline(Ratio::new(ratio, 2.0 * memory), margin).then_some(ratio)
        };
        above(self.recent, LOSS_MEMORY, LOSS_MARGIN)
            .or_else(|| above(self.long_term, LONG_LOSS_MEMORY, LONG_LOSS_MARGIN))
    }

    /// Packets that arrive at a loss ratio over packets that would arrive at the baseline.
    pub(super) fn delivered(&self, ratio: f64) -> f64 {
        ((1.0 - ratio) / (1.0 - self.baseline()).max(0.01)).min(1.0)
    }

    /// The same at the recent ratio, if that exceeds the baseline.
    pub(super) fn delivery_over_baseline(&self) -> f64 {
        if self.excess().is_some() { self.delivered(self.recent) } else { 1.0 }
    }

    pub(super) fn suggest_congestion(&self, now: Instant) -> bool {
        let tested_long_ago = now.since(self.last_dip) > HEAVY_LOSS_TIME;
        let may_test = now >= self.random_until || self.are_heavy() && tested_long_ago;
        may_test && self.excess().is_some()
    }

    pub(super) fn are_heavy(&self) -> bool {
        self.long_term > self.baseline() + HEAVY_LOSS
    }

    /// Begins a dip that follows `previous` dips directly. Returns the fraction of the rate to which
    /// the dip goes: if the losses before it are those of a full queue, nothing is lost during it.
    pub(super) fn begin_dip(&mut self, previous: u32) -> f64 {
        self.before = match previous {
            0 => Ratio::new(self.excess().unwrap_or(self.recent), 2.0 * LOSS_MEMORY),
            _ => self.loaded(),
        };
        self.rising = Ratio::default();
        self.dip = std::mem::take(&mut self.earlier_dip);
        self.gain = self.dip_gain();
        self.gain
    }

    fn dip_gain(&self) -> f64 {
        (DIP_BELOW_DELIVERED * self.delivered(self.loaded().value()))
            .clamp(MIN_DIP_GAIN, MAX_DIP_GAIN)
    }

    /// Adds a sample of packets that were sent before the dip took effect: the losses may still have
    /// been rising when it began.
    pub(super) fn add_before_dip(&mut self, sample: &Sample) {
        self.rising = self.rising.with(sample.losses());
    }

    /// The losses at the rate before the dip.
    fn loaded(&self) -> Ratio {
        let Self { before, rising, .. } = *self;
        let rise = rising.value() - before.value();
        if rise > SIGNIFICANT * self.deviation(before, rising) {
            rising
        } else {
            before.with(rising)
        }
    }

    pub(super) fn add_to_dip(&mut self, sample: &Sample) {
        self.dip = self.dip.with(sample.losses());
    }

    /// Whether the dip has enough packets to tell an excess from chance. Where nothing was lost before
    /// it, none are needed.
    pub(super) fn dip_is_conclusive(&self) -> bool {
        let loaded = self.loaded();
        if loaded.value() < 0.01 {
            return true;
        }
        let expected = (loaded.value() - self.baseline()).max(LONG_LOSS_MARGIN);
        let fall = loaded.value() - self.dip.value();
        let is_enough = self.dip.packets >= MIN_DIP_PACKETS;
        is_enough && (fall - expected / 2.0).abs() > SIGNIFICANT * self.deviation(loaded, self.dip)
    }

    pub(super) fn dip_has_losses(&self) -> bool {
        self.dip.lost > 0.0
    }

    /// Whether the dip was too shallow to tell: packets were lost, and more of them than its rate took
    /// into account.
    pub(super) fn dip_was_too_shallow(&mut self) -> bool {
        let loaded = self.loaded();
        if self.dip.value() > loaded.value() + SIGNIFICANT * self.deviation(loaded, self.dip) {
            (self.before, self.rising) = (self.dip, Ratio::default());
        }
        let is_above = self.is_above_baseline(self.dip, LOSS_MARGIN);
        is_above && self.dip_gain() < DIP_BELOW_DELIVERED * self.gain
    }

    /// Ends the dip. If the losses before it were congestion, returns the packets that arrived
    /// then over those that would have arrived at the baseline.
    pub(super) fn end_dip(&mut self, now: Instant) -> Option<f64> {
        let (before, dip) = (self.loaded(), self.dip);
        let fall = before.value() - dip.value();
        let expected = before.value() - self.baseline();
        let is_congestion = dip.packets > 0.0
            && expected > LONG_LOSS_MARGIN
            && fall > expected / 2.0
            && fall > SIGNIFICANT * self.deviation(before, dip);
        self.last_dip = now;
        let is_worth_more = before.value() > self.baseline() + HEAVY_LOSS
            && self.inconclusive_dips < MAX_INCONCLUSIVE_DIPS;
        let has_losses = before.value() >= LOSSY;
        let is_too_short = has_losses && dip.packets < MIN_DIP_PACKETS;
        if is_too_short || is_worth_more && !self.dip_is_conclusive() {
            self.inconclusive_dips += 1;
            self.earlier_dip = dip.within(LONG_LOSS_MEMORY);
            self.random_until = now + HEAVY_LOSS_TIME;
            return None;
        }
        self.inconclusive_dips = 0;
        let known = self.baseline.within(BASELINE_PACKETS);
        // The rate made no difference unless it is congestion: then both show the path.
        let shown = if is_congestion { dip } else { dip.with(before) };
        let baseline = known.with(shown);
        self.baseline = Ratio::new(baseline.value(), baseline.packets);
        if is_congestion {
            self.random_time = RANDOM_LOSS_TIME;
        } else if expected > LONG_LOSS_MARGIN {
            self.random_until = now + self.random_time;
            self.random_time = (self.random_time * 2).min(MAX_RANDOM_LOSS_TIME);
        }
        (self.recent, self.long_term) = (self.baseline(), self.baseline());
        is_congestion.then(|| self.delivered(before.value()))
    }
}

impl Sample {
    fn losses(&self) -> Ratio {
        Ratio { lost: self.lost, packets: self.packets }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends packets at a rate over a path that loses the fraction `random` of them, in bursts of `row`
    /// packets, and all beyond `capacity`. Losses are spread evenly.
    struct Path {
        random: f64,
        row: f64,
        capacity: f64,
    }

    impl Path {
        fn sample(&self, rate: f64) -> Sample {
            let packets = 20.0;
            let excess = (1.0 - self.capacity / rate).max(0.0);
            let lost = packets * (excess + (1.0 - excess) * self.random);
            Sample {
                since: Instant::default(),
                delivery_rate: rate,
                queueing_delay: Duration::ZERO,
                total_delay: Duration::ZERO,
                standing_bytes: 0.0,
                never_empty: false,
                bytes: packets * 1500.0,
                packets,
                lost,
                loss_rows: lost / self.row,
            }
        }

        /// Sends at `rate` until losses suggest congestion, then in dips. Returns the verdict.
        fn test(&self, losses: &mut Losses, now: Instant, rate: f64) -> Option<f64> {
            for _ in 0..200 {
                losses.add(&self.sample(rate));
                if losses.suggest_congestion(now) {
                    break;
                }
            }
            assert!(losses.suggest_congestion(now));
            for previous in 0..3 {
                let gain = losses.begin_dip(previous);
                if previous == 0 {
                    (0..5).for_each(|_| losses.add_before_dip(&self.sample(rate)));
                }
                for _ in 0..15 {
                    losses.add_to_dip(&self.sample(rate * gain));
                    if losses.dip_is_conclusive() {
                        break;
                    }
                }
                if !losses.dip_was_too_shallow() {
                    break;
                }
            }
            losses.end_dip(now)
        }
    }

    #[test]
    fn losses_that_end_at_a_lower_rate_are_congestion() {
        for rate in [1.2, 2.0, 4.0] {
            let path = Path { random: 0.0, row: 1.0, capacity: 1.0 };
            let delivered = path.test(&mut Losses::default(), Instant(1), rate).unwrap();
            assert!((delivered * rate - 1.0).abs() < 0.1, "{rate}: {delivered}");
        }
    }

    #[test]
    fn losses_that_stay_at_a_lower_rate_are_the_path() {
        for (random, row) in [(0.05, 1.0), (0.2, 1.0), (0.3, 1.0), (0.2, 5.0)] {
            let path = Path { random, row, capacity: f64::INFINITY };
            let mut losses = Losses::default();
            assert_eq!(path.test(&mut losses, Instant(1), 1.0), None, "{random}, {row}");
            let found = losses.baseline();
            assert!((found - random).abs() < 0.03, "{random}, {row}: {found}");
            (0..100).for_each(|_| losses.add(&path.sample(1.0)));
            assert!(!losses.suggest_congestion(Instant(1_000_000_000_000)));
        }
    }

    #[test]
    fn congestion_of_a_lossy_path_is_found() {
        let free = Path { random: 0.1, row: 1.0, capacity: f64::INFINITY };
        let mut losses = Losses::default();
        assert_eq!(free.test(&mut losses, Instant(1), 1.0), None);
        let full = Path { capacity: 1.0, ..free };
        let delivered = full.test(&mut losses, Instant(1_000_000_000_000), 2.0).unwrap();
        assert!((delivered - 0.5).abs() < 0.07, "{delivered}");
    }

    #[test]
    fn packets_that_arrive_after_all_were_not_lost() {
        let mut losses = Losses::default();
        let late = Path { random: 0.1, row: 1.0, capacity: f64::INFINITY };
        for _ in 0..100 {
            let sample = late.sample(1.0);
            losses.add(&Sample { loss_rows: 0.0, lost: -sample.lost, ..sample });
            losses.add(&sample);
        }
        assert!(!losses.suggest_congestion(Instant(1)));
    }
}
