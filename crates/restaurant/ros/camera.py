# SPDX-License-Identifier: Apache-2.0
"""A camera as load: noise of the size of a compressed image.

camera.py ros1|ros2 TOPIC BYTES PERIOD_MS: publishes a sensor_msgs/CompressedImage.
"""

import os
import random
import sys

import middleware
from sensor_msgs.msg import CompressedImage


def main():
    kind, topic, size, period_ms = sys.argv[1:5]
    ros = middleware.start(kind, middleware.node_name(topic, "camera"))
    images = ros.publisher(topic, CompressedImage, depth=1)
    noise = random.Random(topic).randbytes(int(size))

    def publish():
        message = CompressedImage(format="jpeg", data=noise)
        message.header.stamp, message.header.frame_id = ros.stamp(), "camera"
        images.publish(message)

    ros.every(int(period_ms) / 1e3, publish)
    ros.spin()


if __name__ == "__main__":
    main()
    os._exit(0)
