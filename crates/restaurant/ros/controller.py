# SPDX-License-Identifier: Apache-2.0
"""Follows the plan with the local controller. controller.py ros1|ros2 ROBOT [PERIODS.csv]

Every 50 ms: takes /ROBOT/plan, whose last pose is the goal and which is empty while there is none, and
publishes /ROBOT/cmd_vel. While the last message on /ROBOT/enable is false, the robot stands.
Publishes /ROBOT/local_costmap/costmap. At the end of standard input, the times (CLOCK_MONOTONIC) at
which the loop woke go to PERIODS.csv.
"""

import math
import os
import sys
import time

import numpy as np

import arena
import drive
import grid
import middleware
import transforms
from geometry_msgs.msg import Twist
from nav_msgs.msg import OccupancyGrid, Path
from perception import Perception
from std_msgs.msg import Bool

PERIOD_S = 0.05
COSTMAP_EVERY = 20
COSTMAP_M = 3.0
# Distance below which a robot counts as not moving, and duration of a step back.
STEP_M, RETREAT_S = 0.1, 1.5
# Number of wake-up times that are kept: about 14 hours.
MAX_PERIODS = 1_000_000


class Controller:
    def __init__(self, ros, robot):
        self.ros, self.robot = ros, robot
        self.perception = Perception(ros, robot)
        self.path, self.goal, self.enabled = None, None, True
        self.moving, self.woke, self.ticks = False, [], 0
        self.place, self.placed, self.retreat_until = (0.0, 0.0, 0.0), time.monotonic(), 0.0
        name = "/" + robot.name
        self.commands = ros.publisher(name + "/cmd_vel", Twist, depth=1)
        self.costmaps = ros.publisher(name + "/local_costmap/costmap", OccupancyGrid, depth=1)
        ros.subscribe(name + "/plan", Path, self.take_plan, depth=1)
        ros.subscribe(name + "/enable", Bool, self.enable, depth=1)
        ros.every(PERIOD_S, self.tick)

    def take_plan(self, message):
        if not message.poses:
            self.path = self.goal = None
            return
        self.path = np.array([(it.pose.position.x, it.pose.position.y) for it in message.poses])
        goal = transforms.of_pose(message.poses[-1].pose)
        if goal != self.goal:
            self.goal, self.placed = goal, time.monotonic()

    def enable(self, message):
        self.enabled = message.data

    def tick(self):
        if len(self.woke) < MAX_PERIODS:
            self.woke.append(time.monotonic_ns())
        self.ticks += 1
        if self.ticks % COSTMAP_EVERY == 0:
            self.publish_costmap()
        v, w = self.next_command()
        # A single command of zero stops the robot. Without a plan, other nodes may drive it.
        moves = self.goal is not None or (v, w) != (0.0, 0.0)
        if moves or self.moving:
            message = Twist()
            message.linear.x, message.angular.z = v, w
            self.commands.publish(message)
        self.moving = moves

    def next_command(self):
        pose = self.perception.pose()
        if not self.enabled or self.goal is None or pose is None:
            return 0.0, 0.0
        obstacles = self.perception.obstacles()
        if self.is_stuck(pose):
            return drive.retreat(self.robot, pose, obstacles)
        return drive.command(self.robot, pose, self.perception.speed, self.path, self.goal, obstacles)

    def is_stuck(self, pose):
        """Whether the robot should step back: it has not moved for its patience. Robots that meet have
        different patience, so that one of them makes room."""
        now = time.monotonic()
        if now < self.retreat_until:
            return True
        moved = math.dist(pose[:2], self.place[:2]) + 0.2 * abs(transforms.turned(pose[2] - self.place[2]))
        if moved > STEP_M or drive.is_near(pose, self.goal):
            self.place, self.placed = pose, now
        elif now - self.placed > self.robot.patience:
            self.retreat_until = now + RETREAT_S
            self.place, self.placed = pose, now + RETREAT_S
        return False

    def publish_costmap(self):
        pose = self.perception.pose()
        if pose is None:
            return
        side = round(COSTMAP_M / grid.RESOLUTION)
        origin = (pose[0] - COSTMAP_M / 2, pose[1] - COSTMAP_M / 2)
        local = grid.Grid(np.zeros((side, side), dtype=np.int8), origin)
        rows, columns, inside = local.cells(self.perception.obstacles())
        local.values[rows[inside], columns[inside]] = grid.OCCUPIED
        self.costmaps.publish(local.message(OccupancyGrid, self.ros.stamp()))


def main():
    kind, name, *output = sys.argv[1:]
    ros = middleware.start(kind, name + "_controller")
    controller = Controller(ros, arena.ROBOTS[name])
    ros.spin()
    for path in output:
        with open(path, "w", encoding="utf-8") as file:
            file.write("woke_ns\n")
            file.writelines("%d\n" % at for at in controller.woke)
    print("written", flush=True)


if __name__ == "__main__":
    main()
    os._exit(0)
