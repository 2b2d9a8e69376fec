# SPDX-License-Identifier: Apache-2.0
"""Plans routes to goals. navigator.py ros1|ros2 ROBOT

Goals come on /ROBOT/move_base_simple/goal, whose outcome is on /ROBOT/move_base/status, and in ROS 2
also by the action /ROBOT/navigate_to_pose. A new goal replaces the last one. Publishes /ROBOT/plan for
the controller and /ROBOT/global_costmap/costmap.
"""

import os
import sys
import time

import numpy as np

import arena
import drive
import grid
import middleware
import route
import transforms
from actionlib_msgs.msg import GoalStatus, GoalStatusArray
from geometry_msgs.msg import PoseStamped
from grid import Grid
from nav_msgs.msg import OccupancyGrid, Path
from perception import Perception

PERIOD_S = 0.2
PLAN_EVERY_S = 1.0
# Things that the map lacks count as obstacles for this time after they were seen, within this range.
SEEN_S, SEEN_M = 1.5, 2.5
# A point that is nearer than this to an obstacle of the map belongs to that obstacle.
ON_MAP_M = 0.2
FIELD_M = 1.0


class Goal:
    """A goal and its outcome; `ended` is called once, with the status of actionlib."""

    def __init__(self, pose, identity, ended=None):
        self.pose, self.identity, self.status = pose, identity, GoalStatus.ACTIVE
        self.ended = ended

    def end(self, status):
        if self.status == GoalStatus.ACTIVE:
            self.status = status
            if self.ended:
                self.ended(status)


class Navigator:
    def __init__(self, ros, robot):
        self.ros, self.robot = ros, robot
        self.perception = Perception(ros, robot)
        self.map = self.field = self.goal = None
        self.planned, self.seen = 0.0, []
        name = "/" + robot.name
        self.plans = ros.publisher(name + "/plan", Path, depth=1)
        self.costmaps = ros.publisher(name + "/global_costmap/costmap", OccupancyGrid, depth=1)
        self.statuses = ros.publisher(name + "/move_base/status", GoalStatusArray, depth=1)
        ros.subscribe(name + "/map", OccupancyGrid, self.take_map, depth=1, latched=True)
        ros.subscribe(name + "/move_base_simple/goal", PoseStamped, self.take_goal, depth=5)
        ros.every(PERIOD_S, self.tick)

    def take_map(self, message):
        self.map = Grid.of_message(message)
        self.field = self.map.wall_distances(FIELD_M)

    def take_goal(self, message):
        stamp = message.header.stamp
        if self.goal is None or self.ros.ns_of(self.goal.identity) != self.ros.ns_of(stamp):
            self.go_to(message.pose, stamp)

    def go_to(self, pose, identity, ended=None):
        """Replaces the present goal by a geometry_msgs/Pose; returns the new goal."""
        if self.goal is not None:
            self.goal.end(GoalStatus.PREEMPTED)
        self.goal, self.planned = Goal(transforms.of_pose(pose), identity, ended), 0.0
        return self.goal

    def cancel(self, goal):
        goal.end(GoalStatus.PREEMPTED)
        self.stop()

    def stop(self):
        self.plans.publish(self.path([]))

    def tick(self):
        self.publish_status()
        pose, now = self.perception.pose(), time.monotonic()
        if self.goal is None or self.goal.status != GoalStatus.ACTIVE or pose is None:
            return
        if self.map is None:
            return
        self.remember(now)
        if drive.at_goal(pose, self.goal.pose) and abs(self.perception.speed) < 0.05:
            self.goal.end(GoalStatus.SUCCEEDED)
            self.stop()
        elif now - self.planned > PLAN_EVERY_S:
            self.planned = now
            self.plan(pose)

    def remember(self, now):
        """Keeps points that the lidar sees and the map lacks, such as the other robot, for a while."""
        points, pose = self.perception.obstacles(), self.perception.pose()
        near = np.hypot(points[:, 0] - pose[0], points[:, 1] - pose[1]) < SEEN_M
        rows, columns, inside = self.map.cells(points)
        near &= inside
        near[near] = self.field[rows[near], columns[near]] > ON_MAP_M
        self.seen = [it for it in self.seen if now - it[0] < SEEN_S] + [(now, points[near])]

    def plan(self, pose):
        distance = self.field
        seen = np.concatenate([points for _, points in self.seen])
        if len(seen):
            # One point for each cell is enough.
            seen = np.unique(np.round(seen / self.map.resolution), axis=0) * self.map.resolution
            distance = np.minimum(distance, self.map.distances(seen, FIELD_M))
        cost = route.costs(distance, self.robot.radius)
        self.publish_costmap(cost)
        cells = route.find(cost, self.map.cell(*pose[:2]), self.map.cell(*self.goal.pose[:2]))
        if cells is None and len(seen):
            # Somebody stands in the way: the controller goes as far as it can, and waits there.
            cost = route.costs(self.field, self.robot.radius)
            cells = route.find(cost, self.map.cell(*pose[:2]), self.map.cell(*self.goal.pose[:2]))
        if cells is None:
            self.goal.end(GoalStatus.ABORTED)
            self.stop()
            return
        points = [self.map.centre(*cell) for cell in cells[1:-1]]
        self.plans.publish(self.path([*points, self.goal.pose[:2]]))

    def path(self, points):
        message = Path()
        message.header.stamp, message.header.frame_id = self.ros.stamp(), "map"
        for x, y in points:
            step = PoseStamped()
            step.header = message.header
            transforms.set_pose(step.pose, x, y, 0.0)
            message.poses.append(step)
        if points:
            transforms.set_pose(message.poses[-1].pose, *self.goal.pose)
        return message

    def publish_costmap(self, cost):
        shown = np.where(np.isfinite(cost), np.clip((cost - 1) * 15, 0, 98), grid.OCCUPIED)
        made = Grid(shown, self.map.origin, self.map.resolution)
        self.costmaps.publish(made.message(OccupancyGrid, self.ros.stamp()))

    def publish_status(self):
        message = GoalStatusArray()
        message.header.stamp = self.ros.stamp()
        if self.goal is not None and self.goal.identity is not None:
            status = GoalStatus(status=self.goal.status)
            status.goal_id.stamp = self.goal.identity
            status.goal_id.id = "%d" % self.ros.ns_of(self.goal.identity)
            message.status_list.append(status)
        self.statuses.publish(message)


def main():
    kind, name = sys.argv[1:3]
    ros = middleware.start(kind, name + "_navigator")
    navigator = Navigator(ros, arena.ROBOTS[name])
    if kind == "ros2":
        import action

        action.serve(ros, navigator)
    ros.spin()


if __name__ == "__main__":
    main()
    os._exit(0)
