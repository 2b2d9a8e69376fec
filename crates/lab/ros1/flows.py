# SPDX-License-Identifier: Apache-2.0
"""The flows of the test bench: what is published, and where a message carries
its sequence number and the time it was sent.

rospy overwrites header.seq, so the number travels in frame_id; a Twist has no
header and carries both in its numbers. Times are CLOCK_MONOTONIC nanoseconds,
which every process of one machine shares.
"""

import io
import random
import sys
import time

from geometry_msgs.msg import Twist
from sensor_msgs.msg import CompressedImage, LaserScan

NANOSECONDS = 1_000_000_000
PHOTOGRAPH = "/usr/share/matplotlib/mpl-data/sample_data/grace_hopper.jpg"
# Header with its frame_id (28), seven floats (28) and two array lengths (8) make 64 bytes.
LASER_BEAMS = (1024 - 64) // 4


class Flow:
    """One topic: `empty()` makes a message, `mark` and `read` write and read its stamp."""

    topic = ""
    message_class = None

    def empty(self):
        return self.message_class()

    def mark(self, message, sequence, sent_ns):
        message.header.frame_id = "%012d" % sequence
        message.header.stamp.secs, message.header.stamp.nsecs = divmod(sent_ns, NANOSECONDS)

    def read(self, message):
        stamp = message.header.stamp
        return int(message.header.frame_id), stamp.secs * NANOSECONDS + stamp.nsecs

    def is_intact(self, message):
        """Whether `message` holds what a publisher of this flow put into it."""
        original = self.empty()
        self.mark(original, *self.read(message))
        if hasattr(message, "header"):
            original.header.seq = message.header.seq
        return serialized(original) == serialized(message)


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
        message.linear.x = sequence
        message.linear.y, message.linear.z = divmod(sent_ns, NANOSECONDS)

    def read(self, message):
        seconds, nanoseconds = int(message.linear.y), int(message.linear.z)
        return int(message.linear.x), seconds * NANOSECONDS + nanoseconds


FLOWS = {"laser": Laser, "image": Image, "command": Command}
WARM_UP = 999_999_999_999
"""Sequence number of messages that only show that the path works."""


def serialized(message):
    """The bytes of `message` as they travel, without a length before them."""
    buffer = io.BytesIO()
    message.serialize(buffer)
    return buffer.getvalue()


def say(word):
    """Tells the bench one word on standard output."""
    print(word, flush=True)


def await_master(deadline_s=30.0):
    """Returns when the ROS master named by ROS_MASTER_URI answers."""
    import rosgraph

    give_up = time.monotonic() + deadline_s
    while not rosgraph.is_master_online():
        if time.monotonic() > give_up:
            sys.exit("no ROS master at %s after %g s" % (rosgraph.get_master_uri(), deadline_s))
        time.sleep(0.05)


def settle_memory():
    """Keeps Python's collector out of the measured time."""
    import gc

    gc.collect()
    gc.freeze()
    gc.disable()
