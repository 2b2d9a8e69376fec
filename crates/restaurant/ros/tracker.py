# SPDX-License-Identifier: Apache-2.0
"""Drives a robot along the Bezier path from the base. tracker.py ros1|ros2 ROBOT SAMPLES.csv PATH.json

Every 50 ms: takes the newest /ROBOT/odom, extrapolates it to the present from its stamp and speeds, since
odometry that crossed the radio is old, and publishes /ROBOT/cmd_vel. Begins with the line `go`;
standard output: `ready` when odometry arrives and commands have a subscriber, `done` at the end of the
path. SAMPLES.csv gets the number and the time (CLOCK_MONOTONIC) of each command; the number is in the
field linear.z, which a differential drive does not use. PATH.json gets the points of the path.
"""

import json
import os
import sys
import time

import bezier
import middleware
import transforms
from geometry_msgs.msg import Twist
from nav_msgs.msg import Odometry

PERIOD_S = 0.05
# Odometry older than this says little about the robot's position, seconds.
MAX_AGE_S = 0.3
# Time for the robot to come to rest before `done` is printed.
REST_S = 1.0


class Tracker:
    def __init__(self, ros, robot):
        self.ros, self.reference = ros, bezier.Reference()
        self.odometry, self.start, self.is_ready, self.is_done, self.sent = None, None, False, False, []
        self.commands = ros.publisher("/%s/cmd_vel" % robot, Twist, depth=1)
        ros.subscribe("/%s/odom" % robot, Odometry, self.take_odometry, depth=1)
        ros.every(PERIOD_S, self.tick)

    def take_odometry(self, message):
        self.odometry = message

    def pose(self):
        """Returns the robot's present pose, assuming that its speeds have not changed."""
        age_s = (time.time_ns() - self.ros.ns_of(self.odometry.header.stamp)) / 1e9
        age_s = min(max(age_s, 0.0), MAX_AGE_S)
        speed = self.odometry.twist.twist
        turned = speed.angular.z * age_s
        # Along the chord of its arc.
        step = transforms.compose((0.0, 0.0, turned / 2), (speed.linear.x * age_s, 0.0, turned / 2))
        return transforms.compose(transforms.of_pose(self.odometry.pose.pose), step)

    def hear(self, line):
        if line == "go":
            self.start = time.monotonic()

    def tick(self):
        if not self.is_ready and self.odometry is not None and self.ros.is_heard(self.commands):
            self.is_ready = True
            print("ready", flush=True)
        if self.start is None or self.is_done:
            return
        t = time.monotonic() - self.start
        message = Twist()
        if t < self.reference.duration:
            v, w = bezier.command(self.reference.at(t), self.pose())
            message.linear.x, message.angular.z = v, w
        elif t > self.reference.duration + REST_S:
            self.is_done = True
            print("done", flush=True)
        message.linear.z = float(len(self.sent) + 1)
        self.sent.append(time.monotonic_ns())
        self.commands.publish(message)


def main():
    kind, robot, samples, path = sys.argv[1:5]
    ros = middleware.start(kind, "tracker")
    tracker = Tracker(ros, robot)
    ros.spin(tracker.hear)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(tracker.reference.xy.round(4).tolist(), file)
    with open(samples, "w", encoding="utf-8") as file:
        file.write("number,sent_ns\n")
        file.writelines("%d,%d\n" % (number + 1, at) for number, at in enumerate(tracker.sent))
    print("written", flush=True)


if __name__ == "__main__":
    main()
    os._exit(0)
