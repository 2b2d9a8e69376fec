# SPDX-License-Identifier: Apache-2.0
"""rclpy, over the DDS that the environment selects."""

import array
import threading
import time

import rclpy
from rclpy.duration import Duration
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy
from rclpy.serialization import deserialize_message, serialize_message
from rclpy.signals import SignalHandlerOptions
from std_msgs.msg import UInt8MultiArray

TOPIC = "/stream"


class Client:
    """A node with one topic."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.timed = arguments.timed
        self.missed_deadlines = 0
        self.serialize_ns = 0
        self.arrival = 0, 0
        self.real_less_monotonic_ns = time.time_ns() - time.monotonic_ns()
        rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
        self.node = rclpy.create_node(
            "probe", enable_rosout=False, start_parameter_services=False)

    def quality(self):
        wanted = self.arguments
        profile = QoSProfile(
            depth=wanted.depth or 1,
            history=HistoryPolicy.KEEP_LAST if wanted.depth else HistoryPolicy.KEEP_ALL,
            reliability=(ReliabilityPolicy.BEST_EFFORT if wanted.best_effort
                         else ReliabilityPolicy.RELIABLE),
            durability=(DurabilityPolicy.TRANSIENT_LOCAL if wanted.transient_local
                        else DurabilityPolicy.VOLATILE))
        if wanted.deadline_ms:
            profile.deadline = Duration(nanoseconds=wanted.deadline_ms * 1_000_000)
        return profile

    def advertise(self):
        self.publisher = self.node.create_publisher(UInt8MultiArray, TOPIC, self.quality())
        self.publish = self.publish_timed if self.timed else self.publisher.publish

    def publish_timed(self, message):
        begin_ns = time.monotonic_ns()
        serialized = serialize_message(message)
        self.serialize_ns = time.monotonic_ns() - begin_ns
        self.publisher.publish(serialized)

    def message(self, size):
        return UInt8MultiArray(data=array.array("B", bytes(size)))

    def data(self, message):
        return message.data

    def subscribe(self, receive):
        def receive_timed(serialized, info):
            begin_ns = time.monotonic_ns()
            message = deserialize_message(serialized, UInt8MultiArray)
            deserialize_ns = time.monotonic_ns() - begin_ns
            arrived_ns = info["received_timestamp"] - self.real_less_monotonic_ns
            self.arrival = arrived_ns, deserialize_ns
            receive(message.data)

        callback = receive_timed if self.timed else lambda message: receive(message.data)
        events = None
        if self.arguments.deadline_ms:
            events = SubscriptionEventCallbacks(deadline=self.miss)
        self.node.create_subscription(
            UInt8MultiArray, TOPIC, callback, self.quality(), raw=self.timed,
            event_callbacks=events)
        threading.Thread(target=rclpy.spin, args=(self.node,), daemon=True).start()

    def miss(self, event):
        self.missed_deadlines += event.total_count_change
