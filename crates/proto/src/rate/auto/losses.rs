// SPDX-License-Identifier: Apache-2.0
//! Distinguishes the random losses of a path from those of a full queue.

use super::measure::Sample;
use crate::time::{Duration, Instant};

/// Packets over which the loss ratio is averaged, about.
const LOSS_MEMORY: f64 = 64.0;
/// A loss ratio that exceeds the baseline by this margin and twice their standard deviation may
/// show a full queue that is too short to show in the delay.
const LOSS_MARGIN: f64 = 0.03;
/// Samples over which the dispersion of losses is averaged, about, and its limit.
const DISPERSION_MEMORY: f64 = 32.0;
const MAX_DISPERSION: f64 = 16.0;
/// Losses that proved to be random suggest no congestion for this time.
const RANDOM_LOSS_TIME: Duration = Duration::from_secs(3);
/// Packets of a dip that suffice for the baseline, where losses are single.
const DIP_PACKETS: f64 = 32.0;

/// The recent loss ratio, and the baseline: the loss ratio of the uncongested path.
#[derive(Debug)]
pub(super) struct Losses {
    recent: f64,
    baseline: f64,
    /// Packets on which the baseline rests.
    baseline_packets: f64,
    /// Index of dispersion: the variance of the losses over that of independent losses. It exceeds
    /// 1 where losses come in bursts.
    dispersion: f64,
    /// Loss ratio at the start of the present dip.
    before_dip: f64,
    dip: DipLosses,
    /// Losses count as random until then.
    random_until: Instant,
}

/// Losses since the present dip took effect.
#[derive(Debug, Clone, Copy, Default)]
struct DipLosses {
    lost: f64,
    packets: f64,
}

impl Default for Losses {
    fn default() -> Self {
        Self {
            recent: 0.0,
            baseline: 0.0,
            baseline_packets: 0.0,
            dispersion: 1.0,
            before_dip: 0.0,
            dip: DipLosses::default(),
            random_until: Instant::default(),
        }
    }
}

impl Losses {
    pub(super) fn add(&mut self, sample: &Sample) {
        self.update_dispersion(sample);
        let weight = 1.0 - (-sample.packets / LOSS_MEMORY).exp();
        self.recent += weight * (sample.lost / sample.packets.max(1.0) - self.recent);
    }

    fn update_dispersion(&mut self, sample: &Sample) {
        let ratio = self.recent.max(0.01);
        let deviation = sample.lost - self.recent * sample.packets;
        let independent = (ratio * (1.0 - ratio) * sample.packets).max(0.1);
        let dispersion = (deviation * deviation / independent).min(MAX_DISPERSION);
        self.dispersion += (dispersion - self.dispersion) / DISPERSION_MEMORY;
    }

    pub(super) fn is_lossy(&self) -> bool {
        self.recent.max(self.baseline) > 0.005
    }

    /// Whether recent losses exceed the baseline significantly.
    fn exceeds_baseline(&self) -> bool {
        self.is_above_baseline(self.recent)
    }

    fn is_above_baseline(&self, ratio: f64) -> bool {
        let independent = self.baseline.max(0.01) * (1.0 - self.baseline);
        let variance =
            independent * (1.0 / LOSS_MEMORY + 1.0 / self.baseline_packets.max(LOSS_MEMORY));
        let deviation = (variance * self.dispersion.max(1.0)).sqrt();
        ratio > self.baseline + LOSS_MARGIN + 2.0 * deviation
    }

    /// Packets that arrive over packets that would arrive at the baseline.
    pub(super) fn delivery_over_baseline(&self) -> f64 {
        if self.exceeds_baseline() { (1.0 - self.recent) / (1.0 - self.baseline) } else { 1.0 }
    }

    pub(super) fn suggest_congestion(&self, now: Instant) -> bool {
        self.exceeds_baseline() && now >= self.random_until
    }

    /// Begins a dip that follows `previous` dips directly.
    pub(super) fn begin_dip(&mut self, previous: u32) {
        if previous == 0 {
            self.before_dip = self.recent;
        }
        self.dip = DipLosses::default();
    }

    pub(super) fn add_to_dip(&mut self, sample: &Sample) {
        self.dip.lost += sample.lost;
        self.dip.packets += sample.packets;
    }

    /// Whether the dip has enough packets. Where nothing was lost before it, none are needed.
    pub(super) fn dip_is_conclusive(&self) -> bool {
        self.dip.packets >= if self.before_dip < 0.01 { 0.0 } else { self.dip_packets() }
    }

    fn dip_packets(&self) -> f64 {
        DIP_PACKETS * self.dispersion.clamp(1.0, 4.0)
    }

    pub(super) fn dip_has_losses(&self) -> bool {
        self.dip.lost > 0.0
    }

    /// Ends the dip. If the losses before it were congestion, returns the packets that arrived
    /// then over those that would have arrived at the baseline.
    pub(super) fn end_dip(&mut self, now: Instant) -> Option<f64> {
        let DipLosses { lost, packets } = self.dip;
        if packets > 0.0 {
            let known = self.baseline_packets.min(self.dip_packets());
            self.baseline = (self.baseline * known + lost) / (known + packets);
            self.baseline_packets = known + packets;
        }
        let is_congestion = self.is_above_baseline(self.before_dip);
        if !is_congestion {
            self.random_until = now + RANDOM_LOSS_TIME;
        }
        self.recent = self.baseline;
        is_congestion.then(|| (1.0 - self.before_dip) / (1.0 - self.baseline))
    }
}
