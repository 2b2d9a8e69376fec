# SPDX-License-Identifier: Apache-2.0
"""Subscribes to the robots' topics in the kitchen. viewer.py ros1|ros2 RECORDING|- ROBOT ...

Takes camera, scan, plan, pose, odometry, map and transforms of each robot, and the waiter's state.
RECORDING, a folder that must not exist, gets all but the images as rosbag2 with MCAP. Standard output
at the end of the input: `counts JSON`, the number of messages by topic.
"""

import collections
import io
import json
import os
import pathlib
import sys
import time

import middleware
from geometry_msgs.msg import PoseWithCovarianceStamped
from nav_msgs.msg import OccupancyGrid, Odometry, Path
from sensor_msgs.msg import CompressedImage, LaserScan
from std_msgs.msg import String
from tf2_msgs.msg import TFMessage

TOPICS = [("scan", LaserScan), ("plan", Path), ("amcl_pose", PoseWithCovarianceStamped),
          ("odom", Odometry)]
IMAGES = "camera/image/compressed"
# rosbags and its dependencies, for the Python of ROS 1.
LIBRARIES = pathlib.Path(__file__).parents[3] / "target/restaurant/lib/python3.11/site-packages"


class Recording:
    """A rosbag2 with MCAP; messages of ROS 1 are converted."""

    def __init__(self, kind, folder):
        sys.path.append(str(LIBRARIES))
        from rosbags.rosbag2 import StoragePlugin, Writer
        from rosbags.typesys import Stores, get_types_from_msg, get_typestore

        self.kind, self.connections = kind, {}
        self.types = get_typestore(Stores.ROS2_KILTED)
        self.ros1_types = get_typestore(Stores.ROS1_NOETIC)
        # The only type used here that the store lacks.
        self.ros1_types.register(get_types_from_msg("geometry_msgs/TransformStamped[] transforms",
                                                    type_name(TFMessage())))
        self.writer = Writer(folder, version=9, storage_plugin=StoragePlugin.MCAP)
        self.writer.open()

    def add(self, topic, message):
        name = type_name(message)
        if topic not in self.connections:
            self.connections[topic] = self.writer.add_connection(topic, name, typestore=self.types)
        self.writer.write(self.connections[topic], time.time_ns(), self.cdr(message, name))

    def cdr(self, message, name):
        if self.kind == "ros2":
            from rclpy.serialization import serialize_message

            return serialize_message(message)
        buffer = io.BytesIO()
        message.serialize(buffer)
        return self.types.serialize_cdr(self.ros1_types.deserialize_ros1(buffer.getvalue(), name), name)

    def close(self):
        self.writer.close()


def type_name(message):
    """Returns package/msg/Name."""
    package = type(message).__module__.split(".")[0]
    return "%s/msg/%s" % (package, type(message).__name__)


def main():
    kind, recording, *robots = sys.argv[1:]
    ros = middleware.start(kind, "viewer")
    counts = collections.Counter()
    record = None if recording == "-" else Recording(kind, recording)

    def watch(topic, message_class, latched=False):
        def receive(message):
            counts[topic] += 1
            if record and not topic.endswith(IMAGES):
                record.add(topic, message)

        ros.subscribe(topic, message_class, receive, depth=1, latched=latched)

    watch("/tf", TFMessage)
    watch("/restaurant/state", String)
    for robot in robots:
        watch("/%s/map" % robot, OccupancyGrid, latched=True)
        watch("/%s/%s" % (robot, IMAGES), CompressedImage)
        for topic, message_class in TOPICS:
            watch("/%s/%s" % (robot, topic), message_class)
    ros.spin()
    if record:
        record.close()
    print("counts " + json.dumps(counts), flush=True)


if __name__ == "__main__":
    main()
    os._exit(0)
