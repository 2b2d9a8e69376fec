# SPDX-License-Identifier: Apache-2.0
"""ROS 1 for the programs of the bench: rospy, by the master at ROS_MASTER_URI."""

import io
import sys
import time

import rosgraph
import rospy

MASTER_PATIENCE_S = 30.0


def start(name):
    """Becomes a node when the master answers."""
    await_master()
    rospy.init_node(name, disable_signals=True, disable_rosout=True)


def publisher(flow, arguments):
    """Something with a method `publish`."""
    return rospy.Publisher(flow.topic, flow.message_class, queue_size=arguments.queue)


def subscribe(flow, receive, arguments):
    """Has `receive` called with each message, on a thread of rospy's."""
    rospy.Subscriber(flow.topic, flow.message_class, receive, tcp_nodelay=arguments.nodelay)


def set_time(stamp, seconds, nanoseconds):
    stamp.secs, stamp.nsecs = seconds, nanoseconds


def get_time(stamp):
    return stamp.secs, stamp.nsecs


def serialized(message):
    """The bytes of `message` as they travel, without a length before them."""
    buffer = io.BytesIO()
    message.serialize(buffer)
    return buffer.getvalue()


def await_master():
    """Returns when the ROS master named by ROS_MASTER_URI answers."""
    give_up = time.monotonic() + MASTER_PATIENCE_S
    while not rosgraph.is_master_online():
        if time.monotonic() > give_up:
            master = rosgraph.get_master_uri()
            sys.exit("no ROS master at %s after %g s" % (master, MASTER_PATIENCE_S))
        time.sleep(0.05)
