# SPDX-License-Identifier: Apache-2.0
"""Publishes one latched text, or waits for one.

`latched.py publish TOPIC TEXT` prints `ready` and runs until a line or the end of
standard input; `latched.py await TOPIC TEXT` prints `first` when exactly TEXT has arrived.
"""

import os
import sys
import threading

import rospy
from std_msgs.msg import String

import flows
import ros1


def publish(topic, text):
    publisher = rospy.Publisher(topic, String, queue_size=1, latch=True)
    publisher.publish(String(data=text))
    flows.say("ready")
    sys.stdin.readline()


def await_text(topic, text):
    arrived = threading.Event()
    rospy.Subscriber(topic, String, lambda message: message.data == text and arrived.set())
    arrived.wait()
    flows.say("first")
    sys.stdin.readline()


def main():
    role, topic, text = sys.argv[1:]
    ros1.await_master()
    rospy.init_node("latched_%s" % role, anonymous=True, disable_signals=True, disable_rosout=True)
    {"publish": publish, "await": await_text}[role](topic, text)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)
