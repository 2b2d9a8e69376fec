# SPDX-License-Identifier: Apache-2.0
"""The restaurant: walls, tables, the kitchen, and the two robots (metres, radians).

Park, Delgado, Choi (2020), section V: an arena of 3.2 x 8.0 m with six tables; Kobuki2 with 0.7 m/s
and a track of 250 mm, Tetra DS-IV with 2.0 m/s and 380 mm; lidars of 5 to 12 Hz. Places of the
tables, radii and accelerations are not in the paper.
"""

import dataclasses
import math

WIDTH, LENGTH = 3.2, 8.0
TABLE_SIDE = 0.5
TABLES = {
    "1": (0.4, 2.4), "2": (2.8, 2.4),
    "3": (0.4, 4.4), "4": (2.8, 4.4),
    "5": (0.4, 6.4), "6": (2.8, 6.4),
}
SERVING_DISTANCE = 0.65
"""Distance between the centres of a table and of the robot that serves it."""

LIDAR_RANGE_M = 6.0
SCAN_HZ = 10.0
ODOMETRY_HZ = 50.0


@dataclasses.dataclass(frozen=True)
class Robot:
    name: str
    radius: float
    track: float
    # Limits: m/s, m/s2, rad/s, rad/s2.
    speed: float
    acceleration: float
    turn: float
    turn_acceleration: float
    cruise: float
    """Speed among guests, m/s."""
    patience: float
    """Time for which the robot waits for somebody in its way before it steps back, seconds."""
    dock: tuple
    """Pose in the kitchen at which the robot starts, and to which it returns."""


ROBOTS = {
    "kobuki": Robot("kobuki", 0.18, 0.25, 0.7, 0.8, 2.0, 6.0, 0.6, 5.0, (2.1, 0.6, math.pi / 2)),
    "tetra": Robot("tetra", 0.25, 0.38, 2.0, 1.2, 2.0, 6.0, 1.0, 2.0, (1.1, 0.6, math.pi / 2)),
}


def serving_pose(table):
    """Returns where a robot stands to serve a table: in the aisle, facing it."""
    x, y = TABLES[table]
    left = x < WIDTH / 2
    return (x + SERVING_DISTANCE if left else x - SERVING_DISTANCE, y, math.pi if left else 0.0)


def walls():
    """Returns the outer walls as segments."""
    corners = [(0, 0), (WIDTH, 0), (WIDTH, LENGTH), (0, LENGTH)]
    return list(zip(corners, corners[1:] + corners[:1]))


def table_corners(table):
    x, y = TABLES[table]
    half = TABLE_SIDE / 2
    return [(x - half, y - half), (x + half, y - half), (x + half, y + half), (x - half, y + half)]
