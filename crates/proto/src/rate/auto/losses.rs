// SPDX-License-Identifier: Apache-2.0
//! Losses of a way that is calm, and those of a full queue.

use super::measure::Measured;
use crate::time::{Duration, Instant};

/// Losses are averaged over about so many packets.
const LOSS_MEMORY: f64 = 64.0;
/// More losses than this above those of a calm way, and twice their standard deviation, may
/// be those of a full queue that is too short to be seen in delays.
const LOSS_MARGIN: f64 = 0.03;
/// Bursts are told from single losses by about so many measurements, and count so much at most.
const DISPERSION_MEMORY: f64 = 32.0;
const MOST_DISPERSION: f64 = 16.0;
/// Losses found to be chance are not looked at again for so long.
const LOSS_TRUST: Duration = Duration::from_secs(3);
/// Packets that tell how lossy a calm way is.
const DIP_PACKETS: f64 = 32.0;

/// What share of packets is lost, and what share would be if nothing were in their way.
#[derive(Debug)]
pub(super) struct Losses {
    /// Of late.
    now: f64,
    /// While less was sent than the way carries, and of how many packets that is known.
    calm: f64,
    calm_packets: f64,
    /// How many times the variance of single losses theirs is: more than 1 where they come in
    /// bursts (the index of dispersion).
    dispersion: f64,
    /// The same when the present dip began.
    before: f64,
    /// Since the present dip began to show: lost, and all.
    dip: (f64, f64),
    /// Until then losses are taken for chance.
    trusted_until: Instant,
}

impl Default for Losses {
    fn default() -> Self {
        let trusted_until = Instant::default();
        Self {
            now: 0.0,
            calm: 0.0,
            calm_packets: 0.0,
            dispersion: 1.0,
            before: 0.0,
            dip: (0.0, 0.0),
            trusted_until,
        }
    }
}

impl Losses {
    pub(super) fn add(&mut self, found: &Measured) {
        self.disperse(found);
        let weight = 1.0 - (-found.known / LOSS_MEMORY).exp();
        self.now += weight * (found.lost / found.known.max(1.0) - self.now);
    }

    fn disperse(&mut self, found: &Measured) {
        let share = self.now.max(0.01);
        let off = found.lost - self.now * found.known;
        let single = (share * (1.0 - share) * found.known).max(0.1);
        let here = (off * off / single).min(MOST_DISPERSION);
        self.dispersion += (here - self.dispersion) / DISPERSION_MEMORY;
    }

    pub(super) fn are_some(&self) -> bool {
        self.now.max(self.calm) > 0.005
    }

    /// Whether more is lost than of a calm way, beyond chance.
    fn are_many(&self) -> bool {
        self.is_more(self.now)
    }

    fn is_more(&self, lost: f64) -> bool {
        let single = self.calm.max(0.01) * (1.0 - self.calm);
        let variance = single * (1.0 / LOSS_MEMORY + 1.0 / self.calm_packets.max(LOSS_MEMORY));
        let deviation = (variance * self.dispersion.max(1.0)).sqrt();
        lost > self.calm + LOSS_MARGIN + 2.0 * deviation
    }

    /// What arrives of what would arrive if no more were lost than on a calm way.
    pub(super) fn excess(&self) -> f64 {
        if self.are_many() { (1.0 - self.now) / (1.0 - self.calm) } else { 1.0 }
    }

    pub(super) fn suspicious(&self, now: Instant) -> bool {
        self.are_many() && now >= self.trusted_until
    }

    /// `again`: the dips right before this one, in a row.
    pub(super) fn begin_dip(&mut self, again: u32) {
        if again == 0 {
            self.before = self.now;
        }
        self.dip = (0.0, 0.0);
    }

    pub(super) fn add_calm(&mut self, found: &Measured) {
        self.dip = (self.dip.0 + found.lost, self.dip.1 + found.known);
    }

    /// Whether the dip had packets enough: any, where nothing was lost before it.
    pub(super) fn told(&self) -> bool {
        self.dip.1 >= if self.before < 0.01 { 0.0 } else { self.dip_packets() }
    }

    fn dip_packets(&self) -> f64 {
        DIP_PACKETS * self.dispersion.clamp(1.0, 4.0)
    }

    /// Whether packets of the dip were lost.
    pub(super) fn any_in_dip(&self) -> bool {
        self.dip.0 > 0.0
    }

    /// The dip is over: what arrived before it of what would have, if packets were lost for want
    /// of room.
    pub(super) fn conclude(&mut self, now: Instant) -> Option<f64> {
        let (lost, all) = self.dip;
        if all > 0.0 {
            let known = self.calm_packets.min(self.dip_packets());
            self.calm = (self.calm * known + lost) / (known + all);
            self.calm_packets = known + all;
        }
        let room = self.is_more(self.before);
        if !room {
            self.trusted_until = now + LOSS_TRUST;
        }
        self.now = self.calm;
        room.then(|| (1.0 - self.before) / (1.0 - self.calm))
    }
}
