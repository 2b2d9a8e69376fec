# SPDX-License-Identifier: Apache-2.0
"""A node with a period: a loop with rospy.Rate, or an rclpy timer.

Standard input: `start COUNT` begins COUNT counted cycles. Standard output: `ready`, and `done` after
the samples `cycle,woke_ns` are written; times are CLOCK_MONOTONIC.
"""

import gc
import os
import sys
import time

# The modules ros1 and ros2 are in the laboratory's folder; on another host, they are in this folder.
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lab/ros"))

WARM_UP = 20
"""Cycles at the start that are not counted."""


def run_ros1(name, period_s, total):
    import rospy

    import ros1

    ros1.await_master()
    rospy.init_node(name, disable_signals=True, disable_rosout=True)
    count = await_start(total)
    rate = rospy.Rate(1.0 / period_s)
    woke = []
    while len(woke) < count:
        rate.sleep()
        woke.append(time.monotonic_ns())
    return woke


def run_ros2(name, period_s, total):
    import rclpy
    from rclpy.signals import SignalHandlerOptions

    rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
    node = rclpy.create_node(name, enable_rosout=False, start_parameter_services=False)
    count = await_start(total)
    woke = []
    node.create_timer(period_s, lambda: woke.append(time.monotonic_ns()))
    while len(woke) < count:
        rclpy.spin_once(node)
    return woke


def await_start(total):
    """Prints `ready`, waits for the start command, and returns its number of cycles."""
    print("ready", flush=True)
    if not sys.stdin.readline():
        os._exit(0)
    gc.collect()
    gc.freeze()
    gc.disable()
    return WARM_UP + total


def main():
    ros, period_us, count, output = sys.argv[1:5]
    run = {"ros1": run_ros1, "ros2": run_ros2}[ros]
    woke = run("period_%s_us" % period_us, int(period_us) / 1e6, int(count))[WARM_UP:]
    with open(output, "w", encoding="utf-8") as file:
        file.write("cycle,woke_ns\n")
        file.writelines("%d,%d\n" % sample for sample in enumerate(woke))
    print("done", flush=True)


main()
sys.stdout.flush()
os._exit(0)
