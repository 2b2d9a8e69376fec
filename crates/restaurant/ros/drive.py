# SPDX-License-Identifier: Apache-2.0
"""Local controller: the dynamic window approach along a path (Fox, Burgard, Thrun, 1997)."""

import math

import numpy as np

from transforms import turned

HORIZON_S, STEP_S = 1.2, 0.1
SPEEDS, TURNS = 7, 21
# The target on the path is this far ahead: metres, plus seconds at the present speed.
AHEAD_M, AHEAD_S = 0.45, 0.5
# Distance kept to obstacles: metres, plus seconds at the speed, since the lidar's data are old.
CLEARANCE_M, CLEARANCE_S = 0.05, 0.15
# Obstacles further away than this are ignored.
HORIZON_M = 2.5
NEAR_GOAL_M, NEAR_GOAL_RAD = 0.06, 0.1
TURN_FIRST_RAD = 1.0
BACK_SPEED, BACK_TURN = 0.2, 0.8
# Retreat: room above ROOM_M counts as ROOM_M, and a way forward is worth less by FORWARD; metres.
ROOM_M, FORWARD = 0.4, 0.15
# Share of the braking power that is used in the approach to the goal.
BRAKING = 0.5
# Weights of the score.
REMAINING, AIM, SPACE, CALM = 2.0, 0.35, 0.5, 0.02


def target_on(path, pose, speed):
    """Returns the point of the path (n x 2) to aim at."""
    nearest = int(np.argmin(np.hypot(path[:, 0] - pose[0], path[:, 1] - pose[1])))
    rest = path[nearest:]
    lengths = np.hypot(*np.diff(rest, axis=0).T).cumsum()
    beyond = int(np.searchsorted(lengths, AHEAD_M + AHEAD_S * abs(speed)))
    return rest[min(beyond + 1, len(rest) - 1)]


def at_goal(pose, goal):
    """Whether a pose is that of the goal."""
    away = math.hypot(goal[0] - pose[0], goal[1] - pose[1])
    return away < NEAR_GOAL_M * 1.5 and abs(turned(goal[2] - pose[2])) < NEAR_GOAL_RAD * 1.5


def is_near(pose, goal):
    """Whether only the turn to the goal's angle is left."""
    return math.hypot(goal[0] - pose[0], goal[1] - pose[1]) < NEAR_GOAL_M * 1.5


def command(robot, pose, speed, path, goal, obstacles):
    """Returns the next speed and turn (m/s, rad/s).

    `speed` is the present speed, `path` (n x 2) leads to `goal`, `obstacles` (n x 2) are what the
    lidar sees, all in one frame.
    """
    left = math.hypot(goal[0] - pose[0], goal[1] - pose[1])
    if left < NEAR_GOAL_M:
        error = turned(goal[2] - pose[2])
        turn = 0.0 if abs(error) < NEAR_GOAL_RAD else math.copysign(min(1.2, 2.0 * abs(error) + 0.1), error)
        return 0.0, turn
    target = target_on(path, pose, speed)
    bearing = turned(math.atan2(target[1] - pose[1], target[0] - pose[0]) - pose[2])
    if abs(bearing) > TURN_FIRST_RAD and speed < 0.15:
        return 0.0, math.copysign(min(robot.turn, 1.2), bearing)
    v, w = candidates(robot, speed, left)
    x, y, heading = trajectories(pose, v, w)
    clearance = clearances(robot, pose, x, y, obstacles)
    # A robot has to be able to stop before an obstacle that it sees.
    safe = clearance > CLEARANCE_M + CLEARANCE_S * v
    if not safe.any():
        return 0.0, math.copysign(0.6, bearing)
    score = scores(target, x, y, heading, clearance) - CALM * np.abs(w)
    best = int(np.argmax(np.where(safe, score, -np.inf)))
    return float(v[best]), float(w[best])


def retreat(robot, pose, obstacles):
    """Returns a speed and a turn that lead backward, or forward if only that is free, to where there is
    more room; (0, 0) if nothing is free."""
    w = np.tile(np.linspace(-BACK_TURN, BACK_TURN, TURNS), 2)
    v = np.repeat([-BACK_SPEED, BACK_SPEED], TURNS)
    x, y, _ = trajectories(pose, v, w)
    least = clearances(robot, pose, x, y, obstacles)
    last = clearances(robot, pose, x[:, -1:], y[:, -1:], obstacles)
    # A robot that is too near to something already may move away from it.
    here = clearances(robot, pose, np.array([[pose[0]]]), np.array([[pose[1]]]), obstacles)[0]
    free = least > min(CLEARANCE_M, here - 0.01)
    score = np.minimum(last, ROOM_M) - 0.01 * np.abs(w) - FORWARD * (v > 0)
    best = int(np.argmax(np.where(free, score, -np.inf)))
    return (float(v[best]), float(w[best])) if free[best] else (0.0, 0.0)


def candidates(robot, speed, left):
    """Returns the speeds and turns that can be reached soon, as flat arrays."""
    reach = robot.acceleration * HORIZON_S / 2
    fastest = min(robot.cruise, math.sqrt(2 * BRAKING * robot.acceleration * left) + 0.03)
    highest = max(0.05, min(speed + reach, fastest))
    v = np.linspace(max(0.0, min(speed - reach, highest)), highest, SPEEDS)
    w = np.linspace(-robot.turn, robot.turn, TURNS)
    v, w = np.meshgrid(v, w)
    return v.ravel(), w.ravel()


def trajectories(pose, v, w):
    """Returns x, y (candidates x steps) and the last heading of each candidate."""
    times = np.arange(STEP_S, HORIZON_S + 1e-9, STEP_S)
    headings = pose[2] + w[:, None] * (times - STEP_S / 2)
    x = pose[0] + np.cumsum(v[:, None] * np.cos(headings), axis=1) * STEP_S
    y = pose[1] + np.cumsum(v[:, None] * np.sin(headings), axis=1) * STEP_S
    return x, y, pose[2] + w * HORIZON_S


def clearances(robot, pose, x, y, obstacles):
    """Returns the least distance between the robot's edge and an obstacle on each trajectory."""
    near = obstacles[np.hypot(obstacles[:, 0] - pose[0], obstacles[:, 1] - pose[1]) < HORIZON_M]
    if not len(near):
        return np.full(len(x), HORIZON_M)
    squares = (x[:, :, None] - near[:, 0]) ** 2 + (y[:, :, None] - near[:, 1]) ** 2
    return np.sqrt(squares.min(axis=(1, 2))) - robot.radius


def scores(target, x, y, heading, clearance):
    to_x, to_y = target[0] - x[:, -1], target[1] - y[:, -1]
    remaining = np.hypot(to_x, to_y)
    aim = np.abs((np.arctan2(to_y, to_x) - heading + np.pi) % (2 * np.pi) - np.pi)
    return (-REMAINING * remaining - AIM * aim * np.clip(remaining / 0.3, 0.0, 1.0)
            + SPACE * np.minimum(clearance, 0.3))
