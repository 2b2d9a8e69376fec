# SPDX-License-Identifier: Apache-2.0
"""Prints what is registered at the ROS master, `KIND NAME NODE` on each line, then `end`."""

import rosgraph

import flows
import ros1


def main():
    ros1.await_master()
    state = rosgraph.Master("/lab").getSystemState()
    for kind, entries in zip(("publisher", "subscriber", "service"), state):
        for name, nodes in entries:
            for node in nodes:
                flows.say("%s %s %s" % (kind, name, node))
    flows.say("end")


if __name__ == "__main__":
    main()
