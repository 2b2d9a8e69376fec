# SPDX-License-Identifier: Apache-2.0
"""A node that subscribes to a topic of a peer, and has a service that peers may call.

The topic is /attacked/text, of any type; the service is /attacked/get_loggers, which every rospy
node has. The node prints `ready` when it has both, and ends when its standard input ends.
"""

import os
import sys

import rospy

import flows
import ros1


def main():
    ros1.start("attacked")
    rospy.Subscriber("/attacked/text", rospy.AnyMsg, lambda message: None, tcp_nodelay=True)
    flows.say("ready")
    sys.stdin.read()


if __name__ == "__main__":
    main()
    os._exit(0)
