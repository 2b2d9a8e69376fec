# SPDX-License-Identifier: Apache-2.0
"""Localises a robot on its map. localisation.py ros1|ros2 ROBOT

Takes /ROBOT/map, /ROBOT/scan, /ROBOT/odom and /ROBOT/initialpose; publishes /ROBOT/amcl_pose and the
transform map -> ROBOT/odom. The robot begins at its dock.
"""

import os
import sys

import arena
import mapping
import middleware
import transforms
from geometry_msgs.msg import PoseWithCovarianceStamped
from grid import Grid
from mcl import Localiser
from nav_msgs.msg import OccupancyGrid, Odometry
from sensor_msgs.msg import LaserScan


class Localisation:
    def __init__(self, ros, robot):
        self.ros, self.robot = ros, robot
        self.localiser, self.odometry = None, None
        name = "/" + robot.name
        self.poses = ros.publisher(name + "/amcl_pose", PoseWithCovarianceStamped)
        self.tf = transforms.Broadcaster(ros)
        ros.subscribe(name + "/map", OccupancyGrid, self.take_map, depth=1, latched=True)
        ros.subscribe(name + "/odom", Odometry, self.take_odometry)
        ros.subscribe(name + "/scan", LaserScan, self.take_scan, depth=2)
        ros.subscribe(name + "/initialpose", PoseWithCovarianceStamped, self.place)

    def take_map(self, message):
        self.localiser = Localiser(Grid.of_message(message), self.robot.dock)

    def place(self, message):
        if self.localiser:
            self.localiser.place(transforms.of_pose(message.pose.pose))

    def take_odometry(self, message):
        self.odometry = transforms.of_pose(message.pose.pose)

    def take_scan(self, message):
        if self.localiser is None or self.odometry is None:
            return
        self.localiser.move(self.odometry)
        self.localiser.see(*mapping.beams(message))
        self.publish(message.header.stamp)

    def publish(self, stamp):
        pose = self.localiser.pose()
        message = PoseWithCovarianceStamped()
        message.header.stamp, message.header.frame_id = stamp, "map"
        transforms.set_pose(message.pose.pose, *pose)
        variances = self.localiser.particles.var(axis=0)
        covariance = [0.0] * 36
        covariance[0], covariance[7], covariance[35] = (float(it) for it in variances)
        message.pose.covariance = covariance
        self.poses.publish(message)
        origin = transforms.compose(pose, transforms.inverse(self.odometry))
        self.tf.send(message.header, self.robot.name + "/odom", transforms.pose(*origin))


def main():
    kind, name = sys.argv[1:3]
    ros = middleware.start(kind, name + "_localisation")
    Localisation(ros, arena.ROBOTS[name])
    ros.spin()


if __name__ == "__main__":
    main()
    os._exit(0)
