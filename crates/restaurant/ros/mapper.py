# SPDX-License-Identifier: Apache-2.0
"""Maps while somebody drives. mapper.py ros1|ros2 ROBOT STEM

Takes /ROBOT/scan and /ROBOT/odom, publishes /ROBOT/map, and writes STEM.pgm and STEM.yaml at the end
of standard input.
"""

import os
import sys

import arena
import grid
import mapping
import middleware
import transforms
from nav_msgs.msg import OccupancyGrid, Odometry
from sensor_msgs.msg import LaserScan

MARGIN_M = 0.2
SCANS_PER_MAP = 10


class Mapping:
    def __init__(self, ros, robot):
        self.ros, self.odometry, self.scans = ros, None, 0
        shape = tuple(round((side + 2 * MARGIN_M) / grid.RESOLUTION)
                      for side in (arena.LENGTH, arena.WIDTH))
        self.mapper = mapping.Mapper(shape, (-MARGIN_M, -MARGIN_M), robot.dock)
        name = "/" + robot.name
        self.maps = ros.publisher(name + "/map", OccupancyGrid, depth=1, latched=True)
        ros.subscribe(name + "/odom", Odometry, self.take_odometry)
        ros.subscribe(name + "/scan", LaserScan, self.take_scan, depth=1)

    def take_odometry(self, message):
        self.odometry = transforms.of_pose(message.pose.pose)

    def take_scan(self, message):
        if self.odometry is None:
            return
        ranges, angles = mapping.beams(message)
        self.mapper.add(self.odometry, ranges, angles, message.range_max)
        self.scans += 1
        if self.scans % SCANS_PER_MAP == 1:
            self.maps.publish(self.mapper.occupancy().message(OccupancyGrid, self.ros.stamp()))


def main():
    kind, name, stem = sys.argv[1:4]
    ros = middleware.start(kind, name + "_mapper")
    node = Mapping(ros, arena.ROBOTS[name])
    ros.spin()
    node.mapper.occupancy().save(stem)
    print("written", flush=True)


if __name__ == "__main__":
    main()
    os._exit(0)
