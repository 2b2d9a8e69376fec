# SPDX-License-Identifier: Apache-2.0
"""Publishes a stored map. map_server.py ros1|ros2 ROBOT MAP.yaml"""

import os
import sys

import middleware
from grid import Grid
from nav_msgs.msg import OccupancyGrid


def serve(ros, robot, path):
    maps = ros.publisher("/%s/map" % robot, OccupancyGrid, depth=1, latched=True)
    maps.publish(Grid.load(path).message(OccupancyGrid, ros.stamp()))


def main():
    kind, robot, path = sys.argv[1:4]
    ros = middleware.start(kind, robot + "_map_server")
    serve(ros, robot, path)
    ros.spin()


if __name__ == "__main__":
    main()
    os._exit(0)
