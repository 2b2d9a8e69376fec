# SPDX-License-Identifier: Apache-2.0
"""A robot's driver: wheels, odometry and lidar, as a real robot's driver node has them.

driver.py ros1|ros2 ROBOT SOCKETS: takes /ROBOT/cmd_vel; publishes /ROBOT/odom at 50 Hz,
/ROBOT/scan at 10 Hz and the transform ROBOT/odom -> ROBOT/base_footprint.
"""

import json
import math
import os
import socket
import sys
import threading
import time

import arena
import middleware
import transforms
from geometry_msgs.msg import Twist
from nav_msgs.msg import Odometry
from sensor_msgs.msg import LaserScan

CONNECT_PATIENCE_S = 20.0
MAX_PACKET = 1 << 16


class Driver:
    def __init__(self, ros, robot, world):
        self.ros, self.robot, self.world = ros, robot, world
        name = "/" + robot.name
        self.odometry = ros.publisher(name + "/odom", Odometry)
        self.scans = ros.publisher(name + "/scan", LaserScan, depth=2)
        self.tf = transforms.Broadcaster(ros)
        mount = transforms.pose(0.0, 0.0, 0.0)
        self.tf.send_static(robot.name + "/base_footprint", robot.name + "/laser", mount)
        ros.subscribe(name + "/cmd_vel", Twist, self.drive, depth=1)

    def drive(self, twist):
        # A command's number, for measurement, is in a field that a differential drive does not use.
        command = {"drive": [twist.linear.x, twist.angular.z], "number": twist.linear.z}
        self.world.send(json.dumps(command).encode())

    def read(self):
        """Publishes what the world says; the node ends with the world."""
        while packet := self.world.recv(MAX_PACKET):
            self.take(json.loads(packet))
        print("the world has closed the connection", file=sys.stderr, flush=True)
        os._exit(1)

    def take(self, said):
        if "odom" in said:
            self.publish_odometry(said)
        else:
            self.publish_scan(said)

    def publish_odometry(self, said):
        x, y, theta, v, w = said["odom"]
        message = Odometry()
        message.header.stamp = self.ros.stamp_of(said["ns"])
        message.header.frame_id = self.robot.name + "/odom"
        message.child_frame_id = self.robot.name + "/base_footprint"
        transforms.set_pose(message.pose.pose, x, y, theta)
        message.twist.twist.linear.x, message.twist.twist.angular.z = v, w
        self.odometry.publish(message)
        self.tf.send(message.header, message.child_frame_id, message.pose.pose)

    def publish_scan(self, said):
        message = LaserScan()
        message.header.stamp = self.ros.stamp_of(said["ns"])
        message.header.frame_id = self.robot.name + "/laser"
        ranges = [math.inf if it is None else it for it in said["scan"]]
        message.angle_min = 0.0
        message.angle_increment = 2 * math.pi / len(ranges)
        message.angle_max = message.angle_increment * (len(ranges) - 1)
        message.scan_time = 1.0 / arena.SCAN_HZ
        message.range_min, message.range_max = 0.05, arena.LIDAR_RANGE_M
        message.ranges = ranges
        self.scans.publish(message)


def connect(path):
    give_up = time.monotonic() + CONNECT_PATIENCE_S
    while True:
        link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            link.connect(path)
            return link
        except OSError as error:
            link.close()
            if time.monotonic() > give_up:
                raise SystemExit("no world at %s: %s" % (path, error)) from error
            time.sleep(0.1)


def main():
    kind, name, folder = sys.argv[1:4]
    ros = middleware.start(kind, name + "_driver")
    world = connect(os.path.join(folder, name + "-wheels.sock"))
    driver = Driver(ros, arena.ROBOTS[name], world)
    threading.Thread(target=driver.read, daemon=True).start()
    ros.spin()


if __name__ == "__main__":
    main()
    os._exit(0)
