# SPDX-License-Identifier: Apache-2.0
"""ROS 2 for the programs of the bench: rclpy, over the DDS that the environment selects."""

import sys
import threading
import time

import rclpy
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.serialization import serialize_message as serialized
from rclpy.signals import SignalHandlerOptions

__all__ = ["serialized"]
MATCH_PATIENCE_S = 30.0


def start(name):
    """Starts a node with only its own topic, like the ROS 1 nodes here."""
    global node
    rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
    node = rclpy.create_node(name, enable_rosout=False, start_parameter_services=False)


def publisher(flow, arguments):
    """Returns an object with a method `publish`, after a subscriber is discovered."""
    made = node.create_publisher(flow.message_class, flow.topic, quality(arguments))
    give_up = time.monotonic() + MATCH_PATIENCE_S
    while made.get_subscription_count() == 0:
        if time.monotonic() > give_up:
            sys.exit("no subscriber of %s discovered in %g s" % (flow.topic, MATCH_PATIENCE_S))
        time.sleep(0.05)
    return made


def subscribe(flow, receive, arguments):
    """Makes rclpy call `receive` with each message, on a separate thread."""
    node.create_subscription(flow.message_class, flow.topic, receive, quality(arguments))
    threading.Thread(target=rclpy.spin, args=(node,), daemon=True).start()


def quality(arguments):
    reliability = ReliabilityPolicy.RELIABLE
    if arguments.best_effort:
        reliability = ReliabilityPolicy.BEST_EFFORT
    return QoSProfile(depth=arguments.queue, reliability=reliability)


def set_time(stamp, seconds, nanoseconds):
    stamp.sec, stamp.nanosec = seconds, nanoseconds


def get_time(stamp):
    return stamp.sec, stamp.nanosec
