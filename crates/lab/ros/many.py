# SPDX-License-Identifier: Apache-2.0
"""A ROS 2 node with many topics on which nothing is published.

Arguments: `both` or `subscribe`, and the number of topics. The node prints `ready` when it has
them, and ends when its standard input ends.
"""

import os
import sys

import ros2
from std_msgs.msg import String

import flows


def main():
    role, count = sys.argv[1], int(sys.argv[2])
    ros2.start("many_" + role)
    endpoints = []
    for number in range(count):
        topic = "/many/topic_%d" % number
        endpoints.append(ros2.node.create_subscription(String, topic, print, 10))
        if role == "both":
            endpoints.append(ros2.node.create_publisher(String, topic, 10))
    flows.say("ready")
    sys.stdin.read()


if __name__ == "__main__":
    main()
    os._exit(0)
