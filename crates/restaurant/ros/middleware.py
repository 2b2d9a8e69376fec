# SPDX-License-Identifier: Apache-2.0
"""One interface to rospy and rclpy, so that each node of the restaurant is written once.

`start("ros1" or "ros2", name)` returns the node. Its callbacks never run at the same time.
"""

import itertools
import queue
import sys
import threading
import time

PATIENCE_S = 60.0
# Longest time until rclpy notices a line of standard input.
WAKE_S = 0.2


def start(kind, name):
    """Starts a node of that kind of ROS."""
    return {"ros1": Ros1, "ros2": Ros2}[kind](name)


def node_name(topic, suffix):
    """Returns the name of a node that serves one topic."""
    return topic.strip("/").replace("/", "_") + "_" + suffix


class Ros1:
    """rospy, with the master at ROS_MASTER_URI."""

    def __init__(self, name):
        import rosgraph
        import rospy

        give_up = time.monotonic() + PATIENCE_S
        while not rosgraph.is_master_online():
            if time.monotonic() > give_up:
                raise SystemExit("no ROS master at %s after %g s" % (rosgraph.get_master_uri(), PATIENCE_S))
            time.sleep(0.1)
        self.rospy, self.lock = rospy, threading.Lock()
        rospy.init_node(name.replace("-", "_"), disable_signals=True)

    def publisher(self, topic, message_class, depth=10, latched=False):
        return self.rospy.Publisher(topic, message_class, queue_size=depth, latch=latched)

    @staticmethod
    def is_heard(publisher):
        return publisher.get_num_connections() > 0

    def subscribe(self, topic, message_class, receive, depth=10, latched=False):
        del latched

        def locked(message):
            with self.lock:
                receive(message)

        self.rospy.Subscriber(topic, message_class, locked, queue_size=depth, tcp_nodelay=True)

    def every(self, period_s, call):
        """Calls `call` with this period, as a loop with rospy.Rate."""

        def loop():
            rate = self.rospy.Rate(1.0 / period_s)
            while True:
                rate.sleep()
                with self.lock:
                    call()

        threading.Thread(target=loop, daemon=True).start()

    def stamp(self):
        return self.rospy.Time.from_sec(time.time())

    def stamp_of(self, ns):
        return self.rospy.Time(ns // 1_000_000_000, ns % 1_000_000_000)

    @staticmethod
    def ns_of(stamp):
        return stamp.secs * 1_000_000_000 + stamp.nsecs

    def spin(self, heard=None, by_key=False):
        """Returns at the end of standard input; calls `heard` with each line (or key) of it."""
        for line in inputs(by_key):
            if heard:
                with self.lock:
                    heard(line)


class Ros2:
    """rclpy, over the DDS that the environment selects."""

    def __init__(self, name):
        import rclpy
        from rclpy.executors import SingleThreadedExecutor
        from rclpy.signals import SignalHandlerOptions

        rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
        self.node = rclpy.create_node(name.replace("-", "_"))
        self.executor = SingleThreadedExecutor()
        self.executor.add_node(self.node)

    def _quality(self, depth, latched):
        from rclpy.qos import DurabilityPolicy, QoSProfile

        durability = DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE
        return QoSProfile(depth=depth, durability=durability)

    def publisher(self, topic, message_class, depth=10, latched=False):
        return self.node.create_publisher(message_class, topic, self._quality(depth, latched))

    @staticmethod
    def is_heard(publisher):
        return publisher.get_subscription_count() > 0

    def subscribe(self, topic, message_class, receive, depth=10, latched=False):
        self.node.create_subscription(message_class, topic, receive, self._quality(depth, latched))

    def every(self, period_s, call):
        """Calls `call` with this period, by a timer."""
        self.node.create_timer(period_s, call)

    def stamp(self):
        return self.stamp_of(time.time_ns())

    @staticmethod
    def stamp_of(ns):
        from builtin_interfaces.msg import Time

        return Time(sec=ns // 1_000_000_000, nanosec=ns % 1_000_000_000)

    @staticmethod
    def ns_of(stamp):
        return stamp.sec * 1_000_000_000 + stamp.nanosec

    def spin(self, heard=None, by_key=False):
        """Returns at the end of standard input; calls `heard` with each line (or key) of it."""
        lines = queue.SimpleQueue()

        def read():
            for line in itertools.chain(inputs(by_key), [None]):
                lines.put(line)

        threading.Thread(target=read, daemon=True).start()
        while True:
            self.executor.spin_once(timeout_sec=WAKE_S)
            while not lines.empty():
                line = lines.get()
                if line is None:
                    return
                if heard:
                    heard(line)


def inputs(by_key):
    """Yields the lines of standard input or, with `by_key`, its characters; the character q ends it."""
    if not by_key:
        yield from (line.strip() for line in sys.stdin)
        return
    while (key := sys.stdin.read(1)) not in ("", "q"):
        yield key
