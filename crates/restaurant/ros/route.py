# SPDX-License-Identifier: Apache-2.0
"""Global planner: the cheapest route over a costmap, by Dijkstra's algorithm."""

import heapq
import math

import numpy as np

# Cells within this distance beyond the robot's radius cost more, so that routes keep to the middle.
COMFORT_M = 0.25
NEAR_COST = 5.0
# Robots that meet keep to the right: a step against the traffic of a lane costs more.
AGAINST_COST = 1.5
# Cost of a cell where the robot does not fit: a robot that is too near to an obstacle may leave it.
FORBIDDEN_COST = 60.0

NEIGHBOURS = [(row, column, math.hypot(row, column))
              for row in (-1, 0, 1) for column in (-1, 0, 1) if row or column]


def costs(distance, radius):
    """Returns the cost of each cell, infinite where the robot does not fit."""
    margin = distance - radius
    cost = 1.0 + NEAR_COST * np.clip(1.0 - margin / COMFORT_M, 0.0, 1.0) ** 2
    return np.where(margin > 0.0, cost, np.inf)


def find(cost, start, goal):
    """Returns the cells (row, column) from start to goal, or None.

    Going up (increasing rows), the right half of the map is the lane; going down, the left half.
    """
    height, width = cost.shape
    if not math.isfinite(cost[goal]):
        return None
    values = np.where(np.isfinite(cost), cost, FORBIDDEN_COST).tolist()
    free = np.isfinite(cost).tolist()
    best = {start: 0.0}
    before = {}
    queue = [(0.0, start)]
    while queue:
        spent, at = heapq.heappop(queue)
        if at == goal:
            return trace(before, goal)
        if spent > best[at]:
            continue
        row, column = at
        for down, right, length in NEIGHBOURS:
            next_row, next_column = row + down, column + right
            if not (0 <= next_row < height and 0 <= next_column < width):
                continue
            if not free[next_row][next_column] and free[row][column]:
                continue
            against = down != 0 and (down > 0) == (next_column < width // 2)
            weight = values[next_row][next_column] * length * (AGAINST_COST if against else 1.0)
            there = (next_row, next_column)
            if spent + weight < best.get(there, math.inf):
                best[there] = spent + weight
                before[there] = at
                heapq.heappush(queue, (spent + weight, there))
    return None


def trace(before, goal):
    cells = [goal]
    while cells[-1] in before:
        cells.append(before[cells[-1]])
    return cells[::-1]
