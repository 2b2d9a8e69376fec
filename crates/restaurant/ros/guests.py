# SPDX-License-Identifier: Apache-2.0
"""Guests who order as the web page does. guests.py ros1|ros2 PREFIX TABLE:ROBOT ...

Publishes the orders on /orders, one after another; ROBOT may be `any`. The first has the id PREFIX-1. An
order is published again until the waiter's state shows it.
"""

import collections
import json
import os
import sys
import time

import middleware
from std_msgs.msg import String

# Largest number of orders that wait at once: guests do not all come together.
WAITING = 6
REPEAT_S = 3.0


class Guests:
    def __init__(self, ros, prefix, orders):
        self.left = collections.deque(orders)
        self.prefix, self.number, self.pending, self.at = prefix, 0, None, 0.0
        self.orders = ros.publisher("/orders", String)
        ros.subscribe("/restaurant/state", String, self.hear, depth=1)

    def hear(self, message):
        state = json.loads(message.data)
        known = [it["id"] for it in state["queue"]]
        known += [it["order"]["id"] for it in state["robots"].values() if it["order"]]
        if self.pending and self.pending["id"] in known:
            self.pending = None
        if self.pending is None and self.left and len(state["queue"]) < WAITING:
            self.number += 1
            table, robot = self.left.popleft().split(":")
            self.pending = {"id": "%s-%d" % (self.prefix, self.number), "table": table, "robot": robot}
            self.order()
        elif self.pending and time.monotonic() - self.at > REPEAT_S:
            self.order()

    def order(self):
        self.at = time.monotonic()
        self.orders.publish(String(data=json.dumps(self.pending)))


def main():
    kind, prefix, *orders = sys.argv[1:]
    ros = middleware.start(kind, prefix + "_guests")
    Guests(ros, prefix, orders)
    ros.spin()


if __name__ == "__main__":
    main()
    os._exit(0)
