// SPDX-License-Identifier: Apache-2.0
//! Losses of a way that is calm, and those of a full queue.

use super::measure::Measured;
use crate::time::{Duration, Instant};

/// Losses are averaged over about so many packets.
const LOSS_MEMORY: f64 = 64.0;
/// More losses than this above those of a calm way, and twice their standard deviation, may
/// be those of a full queue that is too short to be seen in delays.
const LOSS_MARGIN: f64 = 0.03;
/// Losses found to be chance are not looked at again for so long.
const LOSS_TRUST: Duration = Duration::from_secs(3);
/// Packets that tell how lossy a calm way is.
const DIP_PACKETS: f64 = 32.0;

/// What share of packets is lost, and what share would be if nothing were in their way.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// Of late.
    now: f64,
    /// While less was sent than the way carries.
    calm: f64,
    /// The same when the present dip began.
    before: f64,
    /// Since the present dip began to show: lost, and all.
    dip: (f64, f64),
    /// Until then losses are taken for chance.
    trusted_until: Instant,
}

impl Losses {
    pub(super) fn add(&mut self, found: &Measured) {
        let weight = 1.0 - (-found.known / LOSS_MEMORY).exp();
        self.now += weight * (found.lost / found.known.max(1.0) - self.now);
    }

    /// Whether more is lost than of a calm way, beyond chance.
    fn are_many(&self) -> bool {
        let deviation = (self.calm.max(0.01) * (1.0 - self.calm) / LOSS_MEMORY).sqrt();
        self.now > self.calm + LOSS_MARGIN + 2.0 * deviation
    }

    /// What arrives of what would arrive if no more were lost than on a calm way.
    pub(super) fn excess(&self) -> f64 {
        if self.are_many() { (1.0 - self.now) / (1.0 - self.calm) } else { 1.0 }
    }

    pub(super) fn suspicious(&self, now: Instant) -> bool {
        self.are_many() && now >= self.trusted_until
    }

    pub(super) fn begin_dip(&mut self) {
        (self.before, self.dip) = (self.now, (0.0, 0.0));
    }

    pub(super) fn add_calm(&mut self, found: &Measured) {
        self.dip = (self.dip.0 + found.lost, self.dip.1 + found.known);
    }

    /// Whether the dip had packets enough: any, where nothing was lost before it.
    pub(super) fn told(&self) -> bool {
        self.dip.1 >= if self.before < 0.01 { 0.0 } else { DIP_PACKETS }
    }

    /// Whether packets of the dip were lost.
    pub(super) fn any_in_dip(&self) -> bool {
        self.dip.0 > 0.0
    }

    /// The dip is over.
    pub(super) fn conclude(&mut self, now: Instant) {
        let (lost, all) = self.dip;
        if all > 0.0 {
            // Few packets tell: what is known counts as well.
            self.calm = (self.calm * DIP_PACKETS + lost) / (DIP_PACKETS + all);
        }
        if self.before - self.calm < LOSS_MARGIN * 2.0 {
            self.trusted_until = now + LOSS_TRUST;
        }
        self.now = self.calm;
    }
}
