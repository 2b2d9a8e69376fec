# SPDX-License-Identifier: Apache-2.0
"""ROS 2 for the programs of the bench: rclpy, over whichever DDS the environment names."""

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
    """Becomes a node with nothing but its own topic, as the nodes of ROS 1 are here."""
    global node
    rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
    node = rclpy.create_node(name, enable_rosout=False, start_parameter_services=False)


def publisher(flow, arguments):
    """Something with a method `publish`, which has a subscriber already."""
    made = node.create_publisher(flow.message_class, flow.topic, quality(arguments))
    give_up = time.monotonic() + MATCH_PATIENCE_S
    while made.get_subscription_count() == 0:
        if time.monotonic() > give_up:
            sys.exit("no subscriber of %s discovered in %g s" % (flow.topic, MATCH_PATIENCE_S))
        time.sleep(0.05)
    return made


def subscribe(flow, receive, arguments):
    """Has `receive` called with each message, on a thread of its own."""
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
