# SPDX-License-Identifier: Apache-2.0
"""Drives a robot by keyboard. teleop.py ros1|ros2 ROBOT

Keys, each followed by Enter where input is not a terminal: i forward, j and l turn left and right,
, backward, u and o forward in a curve, k or anything else stop, q quit. A key holds until the next.
"""

import os
import sys
import termios
import tty

import arena
import middleware
from geometry_msgs.msg import Twist

PERIOD_S = 0.1
# Shares of the robot's speed and turn.
KEYS = {"i": (0.5, 0.0), ",": (-0.3, 0.0), "j": (0.0, 0.5), "l": (0.0, -0.5), "u": (0.4, 0.3), "o": (0.4, -0.3)}


class Teleop:
    def __init__(self, ros, robot):
        self.robot, self.command = robot, (0.0, 0.0)
        self.commands = ros.publisher("/%s/cmd_vel" % robot.name, Twist, depth=1)
        ros.every(PERIOD_S, self.publish)

    def press(self, key):
        self.command = KEYS.get(key, (0.0, 0.0))

    def publish(self):
        message = Twist()
        message.linear.x = self.command[0] * self.robot.speed
        message.angular.z = self.command[1] * self.robot.turn
        self.commands.publish(message)


def main():
    kind, name = sys.argv[1:3]
    ros = middleware.start(kind, name + "_teleop")
    teleop = Teleop(ros, arena.ROBOTS[name])
    if not sys.stdin.isatty():
        ros.spin(teleop.press)
        return
    print(__doc__.split("\n\n")[1], flush=True)
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        ros.spin(teleop.press, by_key=True)
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


if __name__ == "__main__":
    main()
    os._exit(0)
