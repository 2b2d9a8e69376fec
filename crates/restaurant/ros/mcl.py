# SPDX-License-Identifier: Apache-2.0
"""Monte Carlo localisation with a likelihood field (Thrun, Burgard, Fox, Probabilistic Robotics,
tables 6.3 and 8.2), as AMCL does it with a fixed number of particles."""

import math

import numpy as np

from transforms import turned

PARTICLES = 300
BEAMS = 60
# Standard deviation of a beam's end, and the share of beams that hit something that the map lacks: the
# other robot, or guests.
SIGMA_M = 0.08
UNEXPLAINED = 0.25
FIELD_M = 1.0
# Motion noise: metres per metre, radians per radian, radians per metre. Wheels that slip by 3 % turn
# Kobuki, with its small track, by 0.17 rad per metre.
ALONG, TURNING, DRIFT = 0.08, 0.08, 0.2
# Exponent of a scan's likelihood: beams are not independent, so each counts less.
TEMPER = 0.3
# A scan is used after this much motion: metres, with 0.3 m for a radian.
LEAST_MOTION_M = 0.02
ROUGHENING = (0.005, 0.005, 0.005)


class Localiser:
    """Particles on a map; poses are (x, y, theta)."""

    def __init__(self, occupancy, pose, seed=1):
        self.grid = occupancy
        self.field = occupancy.wall_distances(FIELD_M)
        self.rng = np.random.default_rng(seed)
        self.odometry, self.moved = None, 0.0
        self.place(pose)

    def place(self, pose, spread=(0.1, 0.1, 0.1)):
        """Spreads the particles about a pose."""
        self.particles = np.array(pose) + self.rng.normal(0, spread, (PARTICLES, 3))

    def move(self, odometry):
        """Moves the particles by the odometry since the last call."""
        last, self.odometry = self.odometry, odometry
        if last is None:
            return
        dx, dy = odometry[0] - last[0], odometry[1] - last[1]
        way, turn = math.hypot(dx, dy), turned(odometry[2] - last[2])
        heading = math.atan2(dy, dx) - last[2] if way > 1e-6 else 0.0
        ways = way + self.rng.normal(0, ALONG * way + 1e-4, PARTICLES)
        turns = turn + self.rng.normal(0, TURNING * abs(turn) + DRIFT * way + 1e-4, PARTICLES)
        direction = self.particles[:, 2] + heading + (turns - turn) / 2
        self.particles[:, 0] += ways * np.cos(direction)
        self.particles[:, 1] += ways * np.sin(direction)
        self.particles[:, 2] += turns
        self.moved += way + 0.3 * abs(turn)

    def see(self, ranges, angles):
        """Weighs the particles by a scan, and resamples them, if the robot has moved."""
        some = np.flatnonzero(np.isfinite(ranges))
        if self.moved < LEAST_MOTION_M or len(some) < 8:
            return
        self.moved = 0.0
        weights = self.weigh(ranges, angles, some[:: max(1, len(some) // BEAMS)])
        at = (self.rng.random() + np.arange(PARTICLES)) / PARTICLES
        chosen = np.searchsorted(np.cumsum(weights), at).clip(0, PARTICLES - 1)
        self.particles = self.particles[chosen] + self.rng.normal(0, ROUGHENING, (PARTICLES, 3))

    def weigh(self, ranges, angles, some):
        directions = self.particles[:, 2:3] + angles[some]
        units = np.stack([np.cos(directions), np.sin(directions)], axis=-1)
        ends = self.particles[:, None, :2] + ranges[some][None, :, None] * units
        rows, columns, inside = self.grid.cells(ends)
        distance = np.full(rows.shape, FIELD_M)
        distance[inside] = self.field[rows[inside], columns[inside]]
        hit = np.exp(-0.5 * (distance / SIGMA_M) ** 2)
        likely = TEMPER * np.log((1 - UNEXPLAINED) * hit + UNEXPLAINED * 0.2).sum(axis=1)
        weights = np.exp(likely - likely.max())
        return weights / weights.sum()

    def pose(self):
        """Returns the mean of the particles."""
        x, y, theta = self.particles.T
        return float(x.mean()), float(y.mean()), math.atan2(np.sin(theta).mean(), np.cos(theta).mean())
