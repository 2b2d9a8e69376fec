# SPDX-License-Identifier: Apache-2.0
"""The flows of the test bench: their messages, and the place of the sequence number
and the time sent in each message.

rospy overwrites header.seq and ROS 2 has none. Therefore frame_id carries the number.
A Twist has no header and carries both in its fields. Times are CLOCK_MONOTONIC
nanoseconds, which all processes of one machine share.

`ros1.py` and `ros2.py` contain the differences between the two; the messages have the
same names in both.
"""

import argparse
import array
import importlib
import random
import struct

from geometry_msgs.msg import Twist
from sensor_msgs.msg import CompressedImage, LaserScan
from std_msgs.msg import UInt8MultiArray

NANOSECONDS = 1_000_000_000
PHOTOGRAPH = "/usr/share/matplotlib/mpl-data/sample_data/grace_hopper.jpg"
# Header with its frame_id (28), seven floats (28) and two array lengths (8) make 64 bytes in
# ROS 1. In ROS 2 the header has no number and a padded text, and is equally long.
LASER_BEAMS = (1024 - 64) // 4
# Bytes of a message as given to DDS, and of its head: encapsulation, an empty layout and the
# length of the data.
LARGE_BYTES, LARGE_HEAD = 4_000_000, 16


class Flow:
    """A topic: `empty()` makes a message, `mark` and `read` write and read its stamp."""

    topic = ""
    message_class = None

    def __init__(self, ros):
        self.ros = ros

    def empty(self):
        return self.message_class()

    def mark(self, message, sequence, sent_ns):
        message.header.frame_id = "%012d" % sequence
        self.ros.set_time(message.header.stamp, *divmod(sent_ns, NANOSECONDS))

    def read(self, message):
        seconds, nanoseconds = self.ros.get_time(message.header.stamp)
        return int(message.header.frame_id), seconds * NANOSECONDS + nanoseconds

    def is_intact(self, message):
        """Whether `message` has the contents that a publisher of this flow gave it."""
        original = self.empty()
        self.mark(original, *self.read(message))
        if hasattr(message, "header") and hasattr(message.header, "seq"):
            original.header.seq = message.header.seq
        return self.ros.serialized(original) == self.ros.serialized(message)


class Laser(Flow):
    """A scan of 1 KB whose ranges do not compress."""

    topic = "/scan"
    message_class = LaserScan

    def empty(self):
        noise = random.Random(1)
        ranges = [noise.uniform(0.1, 30.0) for _ in range(LASER_BEAMS)]
        return LaserScan(range_min=0.1, range_max=30.0, ranges=ranges)


class Image(Flow):
    """A real photograph, as a camera driver compresses it."""

    topic = "/camera/image/compressed"
    message_class = CompressedImage

    def empty(self):
        with open(PHOTOGRAPH, "rb") as photograph:
            return CompressedImage(format="jpeg", data=photograph.read())


class Command(Flow):
    """A velocity command."""

    topic = "/cmd_vel"
    message_class = Twist

    def mark(self, message, sequence, sent_ns):
        seconds, nanoseconds = divmod(sent_ns, NANOSECONDS)
        message.linear.x = float(sequence)
        message.linear.y, message.linear.z = float(seconds), float(nanoseconds)

    def read(self, message):
        seconds, nanoseconds = int(message.linear.y), int(message.linear.z)
        return int(message.linear.x), seconds * NANOSECONDS + nanoseconds


class Large(Flow):
    """4 MB of bytes, with the stamp at the start as in `tautline-lab dds-end`; ROS 2 only."""

    topic = "/stream"
    message_class = UInt8MultiArray
    stamp = struct.Struct("<QQ")

    def empty(self):
        return UInt8MultiArray(data=array.array("B", bytes(LARGE_BYTES - LARGE_HEAD)))

    def mark(self, message, sequence, sent_ns):
        self.stamp.pack_into(message.data, 0, sequence, sent_ns)

    def read(self, message):
        return self.stamp.unpack_from(message.data)


FLOWS = {"laser": Laser, "image": Image, "command": Command, "large": Large}
WARM_UP = 999_999_999_999
"""Sequence number of messages that only show that the path works."""


def parser_of(description):
    """Returns the parser of the arguments that publishers and subscribers share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("ros", choices=["ros1", "ros2"])
    parser.add_argument("flow", choices=FLOWS)
    parser.add_argument("output", help="file of raw samples")
    parser.add_argument(
        "--queue", type=int, default=100,
        help="ROS 1: the publisher's queue_size; ROS 2: depth of the history at both ends",
    )
    parser.add_argument("--nodelay", action="store_true", help="ROS 1: subscribe with TCP_NODELAY")
    parser.add_argument("--best-effort", action="store_true", help="ROS 2: instead of reliable")
    return parser


def start(arguments, role):
    """Starts a node; returns its ROS and its flow."""
    ros = importlib.import_module(arguments.ros)
    ros.start("%s_%s" % (arguments.flow, role))
    return ros, FLOWS[arguments.flow](ros)


def say(word):
    """Prints one line on standard output for the bench."""
    print(word, flush=True)


def settle_memory():
    """Keeps Python's collector out of the measured time."""
    import gc

    gc.collect()
    gc.freeze()
    gc.disable()
