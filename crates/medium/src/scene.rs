// SPDX-License-Identifier: Apache-2.0
//! Stations: positions, and outages between them.

use crate::config::{Motion, PathLoss, WifiConfig};
use crate::ids::{Nanos, NetworkId, StationId};
use crate::motion::milliwatts;
use crate::outage::Outage;
use fastrand::Rng;
use std::collections::BTreeSet;

/// Interval at which positions are updated: at 10 m/s a station moves by 0.1 m in between.
pub const POSITION_INTERVAL: Nanos = 10_000_000;

#[derive(Debug)]
pub struct Scene {
    seed: u64,
    motions: Vec<Motion>,
    outages: BTreeSet<Outage>,
    /// Counter of power changes without motion.
    pub version: u64,
    pub moves: bool,
}

impl Scene {
    pub fn new(seed: u64) -> Self {
        Self { seed, motions: Vec::new(), outages: BTreeSet::new(), version: 0, moves: false }
    }

    pub fn add(&mut self, motion: Motion) -> StationId {
        self.moves |= motion.moves();
        self.motions.push(motion);
        StationId(self.motions.len() - 1)
    }

    pub fn place(&self, station: StationId, now: Nanos) -> [f64; 3] {
        self.motions[station.0].place(now)
    }

    pub fn outage(&mut self, outage: Outage, out: bool) {
        self.version += 1;
        let outage = outage.ordered();
        if out {
            self.outages.insert(outage);
        } else {
            self.outages.remove(&outage);
        }
    }

    /// Whether an outage separates two stations on a network.
    pub fn are_separated(&self, network: NetworkId, a: StationId, b: StationId) -> bool {
        let everywhere = [Outage::at(a), Outage::at(b), Outage::between(a, b).ordered()];
        let is_out =
            |it: &Outage| self.outages.contains(it) || self.outages.contains(&it.on(network));
        !self.outages.is_empty() && everywhere.iter().any(is_out)
    }

    /// Returns the power of one station's signal at another, milliwatts: 0 if an outage separates
    /// them, 1 on a network without path loss.
    pub fn power_mw(
        &self,
        (network, wifi): (NetworkId, &WifiConfig),
        now: Nanos,
        from: StationId,
        to: StationId,
    ) -> f64 {
        if self.are_separated(network, from, to) {
            return 0.0;
        }
        let Some(law) = &wifi.path_loss else { return 1.0 };
        let loss = law.path_loss_db(self.place(from, now), self.place(to, now));
        milliwatts(wifi.power_dbm - loss + self.shadowing_db(law, from, to))
    }

    /// Returns the power of a signal from a position without a station.
    pub fn power_from_mw(
        &self,
        wifi: &WifiConfig,
        now: Nanos,
        from: [f64; 3],
        to: StationId,
    ) -> f64 {
        wifi.path_loss.map_or(1.0, |law| {
            milliwatts(wifi.power_dbm - law.path_loss_db(from, self.place(to, now)))
        })
    }

    /// Returns the shadowing of a pair, equal in both directions and in every run of a seed.
    fn shadowing_db(&self, law: &PathLoss, a: StationId, b: StationId) -> f64 {
        if law.shadowing_db == 0.0 {
            return 0.0;
        }
        let pair = (a.0.min(b.0) as u64) << 32 | a.0.max(b.0) as u64;
        let mut random = Rng::with_seed(self.seed ^ pair.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        // Box and Muller, 1958.
        let (u, v) = (1.0 - random.f64(), random.f64());
        law.shadowing_db * (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }
}
