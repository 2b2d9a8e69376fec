// SPDX-License-Identifier: Apache-2.0
//! Positions of stations, and path loss between them.

use crate::config::{Motion, PathLoss};
use crate::ids::Nanos;

/// Smallest distance of the path-loss law, which has no near field.
const MIN_DISTANCE_M: f64 = 1.0;

impl Motion {
    /// Creates the motion of a station that never moves.
    #[must_use]
    pub fn at(place: [f64; 3]) -> Self {
        Self { waypoints: vec![(0, place)] }
    }

    /// Returns the position at a time.
    #[must_use]
    pub fn place(&self, now: Nanos) -> [f64; 3] {
        let next = self.waypoints.partition_point(|(at, _)| *at <= now);
        let Some(&(from_time, from)) = self.waypoints.get(next.saturating_sub(1)) else {
            return [0.0; 3];
        };
        let Some(&(to_time, to)) = self.waypoints.get(next).filter(|_| next > 0) else {
            return from;
        };
        let share = (now - from_time) as f64 / (to_time - from_time) as f64;
        [0, 1, 2].map(|axis| from[axis] + share * (to[axis] - from[axis]))
    }

    /// Whether the station ever moves.
    #[must_use]
    pub fn moves(&self) -> bool {
        self.waypoints.windows(2).any(|pair| pair[0].1 != pair[1].1)
    }
}

impl PathLoss {
    /// Returns the loss between two positions, dB, without shadowing.
    #[must_use]
    pub fn path_loss_db(&self, a: [f64; 3], b: [f64; 3]) -> f64 {
        let squares: f64 = (0..3).map(|axis| (a[axis] - b[axis]).powi(2)).sum();
        self.at_1m_db + 10.0 * self.exponent * squares.sqrt().max(MIN_DISTANCE_M).log10()
    }
}

/// Converts dBm to milliwatts.
pub fn milliwatts(dbm: f64) -> f64 {
    10_f64.powf(dbm / 10.0)
}

/// Converts a ratio to decibels.
pub fn decibels(ratio: f64) -> f64 {
    10.0 * ratio.log10()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_station_moves_straight_between_waypoints_and_rests_outside() {
        let motion = Motion { waypoints: vec![(10, [0.0; 3]), (20, [10.0, 20.0, 0.0])] };
        assert_eq!(motion.place(0), [0.0; 3]);
        assert_eq!(motion.place(15), [5.0, 10.0, 0.0]);
        assert_eq!(motion.place(99), [10.0, 20.0, 0.0]);
        assert!(motion.moves() && !Motion::at([1.0; 3]).moves());
    }

    #[test]
    fn power_falls_by_the_exponent_per_decade() {
        let law = PathLoss { at_1m_db: 40.0, exponent: 3.0, shadowing_db: 0.0 };
        assert_eq!(law.path_loss_db([0.0; 3], [10.0, 0.0, 0.0]), 70.0);
        assert_eq!(law.path_loss_db([0.0; 3], [0.0; 3]), 40.0);
    }
}
