# SPDX-License-Identifier: Apache-2.0
"""ROS 1 and ROS 2 for echo.py: each class publishes and subscribes by its own client library."""

import json
import os
import sys
import threading
import time

# The modules ros1 and ros2 are in the laboratory's folder; on another host, they are in this folder.
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lab/ros"))

# Length of the queues, as in the thesis (section 4).
QUEUE = 1000


class Rospy:
    """rospy, with the master at ROS_MASTER_URI."""

    def __init__(self, name, arguments):
        import ros1
        import rospy

        self.rospy, self.nodelay = rospy, arguments.nodelay
        ros1.await_master()
        rospy.init_node(name, disable_signals=True, disable_rosout=True)

    def publisher(self, topic, message_class):
        return self.rospy.Publisher(topic, message_class, queue_size=QUEUE)

    def subscribe(self, topic, message_class, receive):
        self.rospy.Subscriber(topic, message_class, receive, tcp_nodelay=self.nodelay)

    def spin(self):
        """rospy calls callbacks on threads of its own."""


class Rclpy:
    """rclpy, over the DDS that the environment selects."""

    def __init__(self, name, arguments):
        import rclpy
        from rclpy.qos import QoSProfile, ReliabilityPolicy
        from rclpy.signals import SignalHandlerOptions

        self.rclpy = rclpy
        self.quality = QoSProfile(depth=QUEUE, reliability=ReliabilityPolicy.RELIABLE)
        rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
        self.node = rclpy.create_node(name, enable_rosout=False, start_parameter_services=False)

    def publisher(self, topic, message_class):
        return self.node.create_publisher(message_class, topic, self.quality)

    def subscribe(self, topic, message_class, receive):
        self.node.create_subscription(message_class, topic, receive, self.quality)

    def spin(self):
        threading.Thread(target=self.rclpy.spin, args=(self.node,), daemon=True).start()


class Zenoh:
    """zenoh's Python library with texts, over TCP connections that senders open to echoers."""

    def __init__(self, _name, arguments):
        import zenoh

        config = zenoh.Config()
        # Peers connect to given addresses only. Shared memory is off, since all hosts here share one memory.
        for key in ("scouting/multicast/enabled", "scouting/gossip/enabled",
                    "transport/shared_memory/enabled"):
            config.insert_json5(key, "false")
        for key, endpoints in (("listen", arguments.listen), ("connect", arguments.connect)):
            config.insert_json5(key + "/endpoints", json.dumps(endpoints))
        self.session = zenoh.open(config)
        self.subscribers = []

    def publisher(self, topic, message_class):
        return ZenohPublisher(self.session.declare_publisher(topic.strip("/")))

    def subscribe(self, topic, message_class, receive):
        def parse(sample):
            message = message_class()
            message.data = sample.payload.to_string()
            receive(message)

        self.subscribers.append(self.session.declare_subscriber(topic.strip("/"), parse))

    def spin(self):
        """zenoh calls callbacks on threads of its own."""


class ZenohPublisher:
    def __init__(self, publisher):
        self.inner = publisher

    def publish(self, message):
        self.inner.put(message.data)


LIBRARIES = {"rospy": Rospy, "rclpy": Rclpy, "zenoh": Zenoh}


def settle_memory():
    """Keeps Python's garbage collector out of the measured time."""
    import gc

    gc.collect()
    gc.freeze()
    gc.disable()


def sleep_until(at_ns):
    """Sleeps until a time of CLOCK_MONOTONIC; returns at once if the time has passed."""
    wait_ns = at_ns - time.monotonic_ns()
    if wait_ns > 0:
        time.sleep(wait_ns / 1e9)
