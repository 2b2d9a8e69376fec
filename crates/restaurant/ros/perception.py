# SPDX-License-Identifier: Apache-2.0
"""Where a robot is and what its lidar sees, for the nodes that drive it."""

import numpy as np

import mapping
import transforms
from nav_msgs.msg import Odometry
from sensor_msgs.msg import LaserScan
from tf2_msgs.msg import TFMessage


class Perception:
    """Follows /ROBOT/odom, /ROBOT/scan and the transform map -> ROBOT/odom."""

    def __init__(self, ros, robot):
        self.frame = robot.name + "/odom"
        self.origin = self.odometry = self.points = None
        self.speed = 0.0
        ros.subscribe("/tf", TFMessage, self.take_transforms, depth=50)
        ros.subscribe("/%s/odom" % robot.name, Odometry, self.take_odometry, depth=2)
        ros.subscribe("/%s/scan" % robot.name, LaserScan, self.take_scan, depth=1)

    def take_transforms(self, message):
        for one in message.transforms:
            if one.header.frame_id == "map" and one.child_frame_id == self.frame:
                self.origin = transforms.of_transform(one.transform)

    def take_odometry(self, message):
        self.odometry = transforms.of_pose(message.pose.pose)
        self.speed = message.twist.twist.linear.x

    def take_scan(self, message):
        if self.odometry is None:
            return
        ranges, angles = mapping.beams(message)
        finite = np.isfinite(ranges)
        self.points = mapping.beam_ends(self.odometry, ranges[finite], angles[finite])

    def pose(self):
        """Returns the pose on the map, or None before it is known."""
        if self.origin is None or self.odometry is None:
            return None
        return transforms.compose(self.origin, self.odometry)

    def obstacles(self):
        """Returns the points (n x 2) of the last scan on the map."""
        if self.origin is None or self.points is None:
            return np.empty((0, 2))
        x, y, theta = self.origin
        turn = np.array([[np.cos(theta), np.sin(theta)], [-np.sin(theta), np.cos(theta)]])
        return self.points @ turn + (x, y)
