# SPDX-License-Identifier: Apache-2.0
"""The path of Park, Delgado, Choi (2020), section V: a Bezier curve from (0, 0, 0) to (2, 3, 0), driven
at 0.5 m/s with 0.5 m/s2, and a controller that follows it (Kanayama et al., 1990)."""

import math

import numpy as np

from transforms import turned

SPEED, ACCELERATION = 0.5, 0.5
# The paper does not state the inner control points; here they are on the tangents at both ends.
POINTS = np.array([(0.0, 0.0), (1.5, 0.0), (0.5, 3.0), (2.0, 3.0)])
SAMPLES = 2001
# Gains of x, y and theta: 1/s, 1/m2, 1/m.
K_X, K_Y, K_THETA = 1.0, 8.0, 4.0


class Reference:
    """Where the robot should be, by time."""

    def __init__(self):
        t = np.linspace(0.0, 1.0, SAMPLES)[:, None]
        p = POINTS
        self.xy = ((1 - t) ** 3 * p[0] + 3 * (1 - t) ** 2 * t * p[1]
                   + 3 * (1 - t) * t ** 2 * p[2] + t ** 3 * p[3])
        steps = np.diff(self.xy, axis=0)
        self.lengths = np.concatenate([[0.0], np.hypot(*steps.T).cumsum()])
        slope = 3 * ((1 - t) ** 2 * (p[1] - p[0]) + 2 * (1 - t) * t * (p[2] - p[1]) + t ** 2 * (p[3] - p[2]))
        self.theta = np.unwrap(np.arctan2(slope[:, 1], slope[:, 0]))
        self.length = float(self.lengths[-1])
        self.ramp = SPEED / ACCELERATION
        self.duration = self.length / SPEED + self.ramp

    def way(self, t):
        """Returns the distance travelled and the speed at a time, by a trapezoid of the speed."""
        t = min(max(t, 0.0), self.duration)
        if t < self.ramp:
            return ACCELERATION * t * t / 2, ACCELERATION * t
        left = self.duration - t
        if left < self.ramp:
            return self.length - ACCELERATION * left * left / 2, ACCELERATION * left
        return SPEED * (t - self.ramp / 2), SPEED

    def at(self, t):
        """Returns x, y, theta, speed and turn at a time."""
        way, speed = self.way(t)
        x, y = (float(np.interp(way, self.lengths, self.xy[:, axis])) for axis in (0, 1))
        theta = float(np.interp(way, self.lengths, self.theta))
        ahead = float(np.interp(way + 0.01, self.lengths, self.theta))
        return x, y, theta, speed, (ahead - theta) / 0.01 * speed


def command(reference, pose):
    """Returns the speed and the turn that lead from `pose` back to the reference."""
    x, y, theta, speed, turn = reference
    dx, dy = x - pose[0], y - pose[1]
    along = math.cos(pose[2]) * dx + math.sin(pose[2]) * dy
    across = -math.sin(pose[2]) * dx + math.cos(pose[2]) * dy
    off = turned(theta - pose[2])
    return (speed * math.cos(off) + K_X * along,
            turn + speed * (K_Y * across + K_THETA * math.sin(off)))
