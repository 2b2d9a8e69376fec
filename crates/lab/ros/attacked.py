# SPDX-License-Identifier: Apache-2.0
"""A node that listens to a topic of a peer, and has a service that peers may call.

It hears /attacked/text, whatever its type; the service is its /attacked/get_loggers, as every
node of rospy has it. It says `ready` when it has both, and ends with its standard input.
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
