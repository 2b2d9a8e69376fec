# SPDX-License-Identifier: Apache-2.0
"""Maps from scans: log odds per cell, and each scan matched to the map so far."""

import numpy as np

import grid
import transforms

CROSSED, HIT, LOWEST, HIGHEST = -0.4, 1.2, -4.0, 6.0
FREE_BELOW, OCCUPIED_ABOVE = -0.5, 1.0
# Matching: steps of the search in metres and radians, from coarse to fine; then the standard deviation
# of a beam's end.
STEPS = [(0.04, 0.03), (0.02, 0.015), (0.01, 0.008), (0.005, 0.004)]
SIGMA_M = 0.07
FIELD_M = 0.5


class Mapper:
    """A map that grows with each scan; the first scan is at `pose`."""

    def __init__(self, shape, origin, pose):
        self.grid = grid.Grid(np.zeros(shape), origin)
        self.pose, self.odometry, self.field = pose, None, None

    def add(self, odometry, ranges, angles, longest):
        """Adds a scan; returns the pose at which it fits the map."""
        if self.odometry is not None:
            step = transforms.compose(transforms.inverse(self.odometry), odometry)
            self.pose = transforms.compose(self.pose, step)
            self.pose = self.match(self.pose, ranges, angles)
        self.odometry = odometry
        self.draw(ranges, angles, longest)
        walls = self.grid.centres(self.grid.values > OCCUPIED_ABOVE)
        self.field = self.grid.distances(walls, FIELD_M)
        return self.pose

    def match(self, pose, ranges, angles):
        """Climbs to the pose near `pose` at which the beams end on occupied cells."""
        finite = np.isfinite(ranges)
        ranges, angles = ranges[finite], angles[finite]
        best, score = pose, self.fit(pose, ranges, angles)
        for along, turn in STEPS:
            improved = True
            while improved:
                improved = False
                for dx, dy, dt in ((along, 0, 0), (-along, 0, 0), (0, along, 0), (0, -along, 0),
                                   (0, 0, turn), (0, 0, -turn)):
                    trial = (best[0] + dx, best[1] + dy, best[2] + dt)
                    found = self.fit(trial, ranges, angles)
                    if found > score:
                        best, score, improved = trial, found, True
        return best

    def fit(self, pose, ranges, angles):
        ends = beam_ends(pose, ranges, angles)
        rows, columns, inside = self.grid.cells(ends)
        distance = np.full(len(ends), FIELD_M)
        distance[inside] = self.field[rows[inside], columns[inside]]
        return np.exp(-0.5 * (distance / SIGMA_M) ** 2).sum()

    def draw(self, ranges, angles, longest):
        """Marks the cells that a beam crosses as free, and the cell at its end as occupied (Moravec and
    Elfes, 1985)."""
        odds, resolution = self.grid.values, self.grid.resolution
        finite = np.isfinite(ranges)
        lengths = np.where(finite, ranges, longest)
        steps = np.arange(0.0, longest, resolution / 2)
        directions = self.pose[2] + angles
        units = np.stack([np.cos(directions), np.sin(directions)], axis=-1)
        points = np.array(self.pose[:2]) + units[:, None, :] * steps[None, :, None]
        crossed = steps[None, :] < (lengths - resolution)[:, None]
        rows, columns, inside = self.grid.cells(points)
        seen = np.zeros(odds.shape, dtype=bool)
        seen[rows[inside & crossed], columns[inside & crossed]] = True
        rows, columns, inside = self.grid.cells(beam_ends(self.pose, lengths, angles))
        hit = np.zeros(odds.shape, dtype=bool)
        hit[rows[inside & finite], columns[inside & finite]] = True
        odds[seen & ~hit] += CROSSED
        odds[hit] += HIT
        np.clip(odds, LOWEST, HIGHEST, out=odds)

    def occupancy(self):
        """Returns the map with nav_msgs' values."""
        values = np.full(self.grid.shape, grid.UNKNOWN, dtype=np.int8)
        values[self.grid.values < FREE_BELOW] = grid.FREE
        values[self.grid.values > OCCUPIED_ABOVE] = grid.OCCUPIED
        return grid.Grid(values, self.grid.origin, self.grid.resolution)


def beams(scan):
    """Returns ranges and angles of a sensor_msgs/LaserScan."""
    ranges = np.array(scan.ranges, dtype=float)
    return ranges, scan.angle_min + scan.angle_increment * np.arange(len(ranges))


def beam_ends(pose, ranges, angles):
    """Returns the points (n x 2) at which beams end that leave from `pose`."""
    directions = pose[2] + angles
    units = np.stack([np.cos(directions), np.sin(directions)], axis=-1)
    return np.array(pose[:2]) + units * ranges[:, None]
