# SPDX-License-Identifier: Apache-2.0
"""ROS 1 for the programs of the bench: rospy, with the master at ROS_MASTER_URI."""

import io
import sys
import time

import rosgraph
import rospy

MASTER_PATIENCE_S = 30.0


def start(name):
    """Starts the node when the master responds."""
    await_master()
    rospy.init_node(name, disable_signals=True, disable_rosout=True)


def publisher(flow, arguments):
    """Returns an object with a method `publish`."""
    return rospy.Publisher(flow.topic, flow.message_class, queue_size=arguments.queue)


def subscribe(flow, receive, arguments):
    """Makes rospy call `receive` with each message, on one of its threads."""
    rospy.Subscriber(flow.topic, flow.message_class, receive, tcp_nodelay=arguments.nodelay)


def set_time(stamp, seconds, nanoseconds):
    stamp.secs, stamp.nsecs = seconds, nanoseconds


def get_time(stamp):
    return stamp.secs, stamp.nsecs


def serialized(message):
    """Returns the bytes of `message` as sent, without the length before them."""
    buffer = io.BytesIO()
    message.serialize(buffer)
    return buffer.getvalue()


def await_master():
    """Waits until the ROS master at ROS_MASTER_URI responds."""
    give_up = time.monotonic() + MASTER_PATIENCE_S
    while not rosgraph.is_master_online():
        if time.monotonic() > give_up:
            master = rosgraph.get_master_uri()
            sys.exit("no ROS master at %s after %g s" % (master, MASTER_PATIENCE_S))
        time.sleep(0.05)
