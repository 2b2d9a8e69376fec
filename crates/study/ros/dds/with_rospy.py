# SPDX-License-Identifier: Apache-2.0
"""rospy, with the master at ROS_MASTER_URI."""

import pathlib
import sys
import time

import rospy
from std_msgs.msg import UInt8MultiArray

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "lab/ros"))
import ros1  # noqa: E402  (the path is set first)

TOPIC = "/stream"


class Timed(UInt8MultiArray):
    """A message that notes how long its serialization takes."""

    client = None

    def serialize(self, buff):
        begin_ns = time.monotonic_ns()
        super().serialize(buff)
        self.client.serialize_ns = time.monotonic_ns() - begin_ns

    def deserialize(self, text):
        begin_ns = time.monotonic_ns()
        super().deserialize(text)
        self.client.arrival = begin_ns, time.monotonic_ns() - begin_ns
        return self


class Client:
    """A node with one topic."""

    missed_deadlines = 0
    serialize_ns = 0
    arrival = 0, 0

    def __init__(self, arguments):
        self.arguments = arguments
        self.timed = arguments.timed
        self.message_class = Timed if self.timed else UInt8MultiArray
        Timed.client = self
        ros1.await_master()
        rospy.init_node("probe", anonymous=True, disable_signals=True, disable_rosout=True)

    def advertise(self):
        # Without a queue, publish() returns when the kernel has taken the message.
        self.publisher = rospy.Publisher(
            TOPIC, self.message_class, queue_size=self.arguments.depth or None,
            latch=self.arguments.transient_local)
        self.publish = self.publisher.publish

    def message(self, size):
        message = self.message_class()
        message.data = bytearray(size)
        return message

    def data(self, message):
        return message.data

    def subscribe(self, receive):
        rospy.Subscriber(TOPIC, self.message_class, lambda message: receive(message.data))
