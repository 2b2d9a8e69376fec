# SPDX-License-Identifier: Apache-2.0
"""A display that receives images and shows nothing. display.py ros1|ros2 TOPIC"""

import os
import sys

import middleware
from sensor_msgs.msg import CompressedImage


def main():
    kind, topic = sys.argv[1:3]
    ros = middleware.start(kind, middleware.node_name(topic, "display"))
    ros.subscribe(topic, CompressedImage, lambda _: None, depth=1)
    ros.spin()


if __name__ == "__main__":
    main()
    os._exit(0)
