# SPDX-License-Identifier: Apache-2.0
"""Prints the name of every node the ROS master knows, one per line, then `end`."""

import rosgraph

import flows
import ros1


def main():
    ros1.await_master()
    names = set()
    for topics in rosgraph.Master("/lab").getSystemState():
        for _, nodes in topics:
            names.update(nodes)
    for name in sorted(names):
        flows.say(name)
    flows.say("end")


if __name__ == "__main__":
    main()
