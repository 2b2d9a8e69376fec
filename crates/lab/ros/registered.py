# SPDX-License-Identifier: Apache-2.0
"""Prints the registrations at the ROS master, one `KIND NAME NODE` per line, then `end`."""

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
