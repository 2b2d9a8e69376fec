# SPDX-License-Identifier: Apache-2.0
"""Publishes a stored map. map_server.py ros1|ros2 ROBOT MAP.yaml"""

import os
import sys

import middleware
from grid import Grid
from nav_msgs.msg import OccupancyGrid


def main():
    kind, robot, path = sys.argv[1:4]
    ros = middleware.start(kind, robot + "_map_server")
    maps = ros.publisher("/%s/map" % robot, OccupancyGrid, depth=1, latched=True)
    maps.publish(Grid.load(path).message(OccupancyGrid, ros.stamp()))
    ros.spin()


main()
os._exit(0)
