# SPDX-License-Identifier: Apache-2.0
"""Takes orders and sends robots to tables, at the kitchen.

waiter.py ros1|ros2 ROBOT=topic|action ...: an order on /orders is {"id": TEXT, "table": "1" to "6",
"robot": NAME or "any"} in a std_msgs/String. The robot goes to the table, waits there, and returns.
/restaurant/state tells at 2 Hz what is queued and what each robot does. /ROBOT/enable is true at 5 Hz:
a robot that no longer hears it stands. Standard output: `accepted ID`, `served ID ROBOT`,
`refused REASON`, and `home ROBOT`.
"""

import collections
import json
import math
import os
import sys
import time

import arena
import middleware
import transforms
from actionlib_msgs.msg import GoalStatus, GoalStatusArray
from geometry_msgs.msg import PoseStamped, PoseWithCovarianceStamped
from std_msgs.msg import Bool, String

PERIOD_S = 0.2
SERVING_S = 2.0
# A goal is sent again after this time without news of it from the robot.
RESEND_S = 2.0
# A robot that has sent nothing for this time gets no orders that are for any robot.
ABSENT_S = 3.0
# A goal that failed is sent again after this time.
RETRY_S = 3.0
MAX_QUEUED = 100
MAX_KNOWN = 1000
MAX_ID = 64


class TopicGoals:
    """Goals as a ROS 1 robot takes them: move_base_simple/goal, and the status of move_base."""

    def __init__(self, ros, name):
        self.ros, self.goal, self.sent, self.status = ros, None, 0.0, None
        self.goals = ros.publisher("/%s/move_base_simple/goal" % name, PoseStamped, depth=1)
        ros.subscribe("/%s/move_base/status" % name, GoalStatusArray, self.hear, depth=1)

    def hear(self, message):
        for status in message.status_list:
            if self.goal and self.ros.ns_of(status.goal_id.stamp) == self.ros.ns_of(self.goal.header.stamp):
                self.status = status.status

    def send(self, goal):
        self.goal, self.status, self.sent = goal, None, time.monotonic()
        self.goals.publish(goal)

    def outcome(self):
        """Returns true or false when the goal has ended, else None."""
        if self.status is None and time.monotonic() - self.sent > RESEND_S:
            self.sent = time.monotonic()
            self.goals.publish(self.goal)
        if self.status in (None, GoalStatus.ACTIVE):
            return None
        return self.status == GoalStatus.SUCCEEDED


class ActionGoals:
    """Goals as a ROS 2 robot takes them: the action NavigateToPose."""

    def __init__(self, ros, name):
        from nav2_msgs.action import NavigateToPose
        from rclpy.action import ActionClient

        self.type = NavigateToPose
        self.client = ActionClient(ros.node, NavigateToPose, "/%s/navigate_to_pose" % name)
        self.number, self.heard, self.ended, self.goal = 0, 0.0, None, None

    def send(self, goal):
        self.goal, self.ended = goal, None
        self.number += 1
        self.heard = time.monotonic()
        if not self.client.server_is_ready():
            return
        number = self.number
        request = self.type.Goal(pose=goal)
        sent = self.client.send_goal_async(request, feedback_callback=lambda _: self.hear(number))
        sent.add_done_callback(lambda future: self.answered(number, future))

    def hear(self, number):
        if number == self.number:
            self.heard = time.monotonic()

    def answered(self, number, future):
        handle = future.result()
        if number != self.number or not handle or not handle.accepted:
            return
        self.hear(number)
        handle.get_result_async().add_done_callback(lambda it: self.finished(number, it))

    def finished(self, number, future):
        from action_msgs.msg import GoalStatus as Ended

        if number == self.number and future.result() is not None:
            self.ended = future.result().status == Ended.STATUS_SUCCEEDED

    def outcome(self):
        """Returns true or false when the goal has ended, else None."""
        if self.ended is None and time.monotonic() - self.heard > RESEND_S:
            self.send(self.goal)
        return self.ended


class Robot:
    """The present task of one robot."""

    def __init__(self, ros, name, goals):
        self.ros, self.about = ros, arena.ROBOTS[name]
        self.goals = goals(ros, name)
        self.enables = ros.publisher("/%s/enable" % name, Bool, depth=1)
        ros.subscribe("/%s/amcl_pose" % name, PoseWithCovarianceStamped, self.hear, depth=1)
        self.state, self.order, self.since, self.heard = "free", None, 0.0, -math.inf

    @property
    def name(self):
        return self.about.name

    def hear(self, _):
        self.heard = time.monotonic()

    def is_present(self):
        return time.monotonic() - self.heard < ABSENT_S

    def go(self, state, pose):
        goal = PoseStamped()
        goal.header.stamp, goal.header.frame_id = self.ros.stamp(), "map"
        transforms.set_pose(goal.pose, *pose)
        self.state, self.since = state, time.monotonic()
        self.goals.send(goal)

    def destination(self):
        return self.about.dock if self.state == "returning" else arena.serving_pose(self.order["table"])

    def follow(self):
        """Continues the robot's task; returns an event, or None."""
        if self.state == "failed":
            if time.monotonic() - self.since > RETRY_S:
                self.go(self.retry, self.where)
        elif self.state in ("going", "returning"):
            return self.arrive(self.goals.outcome())
        elif self.state == "serving" and time.monotonic() - self.since > SERVING_S:
            served, self.order = self.order, None
            self.go("returning", self.about.dock)
            return "served %s %s" % (served["id"], self.name)
        return None

    def arrive(self, outcome):
        if outcome is None:
            return None
        if not outcome:
            self.retry, self.where = self.state, self.destination()
            self.state, self.since = "failed", time.monotonic()
            return None
        if self.state == "going":
            self.state, self.since = "serving", time.monotonic()
            return None
        self.state = "free"
        return "home %s" % self.name


class Waiter:
    def __init__(self, ros, robots):
        self.ros, self.robots = ros, robots
        self.queue, self.served, self.ticks = collections.deque(), 0, 0
        # Orders that were taken already: a page may repeat an order.
        self.known = collections.deque(maxlen=MAX_KNOWN)
        self.states = ros.publisher("/restaurant/state", String, depth=1)
        ros.subscribe("/orders", String, self.take, depth=MAX_QUEUED)
        ros.every(PERIOD_S, self.tick)

    def take(self, message):
        problem = self.problem(message.data)
        if problem:
            say("refused " + problem)
            return
        order = json.loads(message.data)
        if order["id"] in self.known:
            return
        self.known.append(order["id"])
        self.queue.append({key: order[key] for key in ("id", "table", "robot")})
        say("accepted " + order["id"])

    def problem(self, text):
        """Returns what is wrong with an order, or None. Anybody at the kitchen can send one."""
        try:
            order = json.loads(text)
            number, table, robot = order["id"], order["table"], order["robot"]
        except (ValueError, KeyError, TypeError):
            return "an order is {\"id\": .., \"table\": .., \"robot\": ..}"
        if not isinstance(number, str) or not number.isprintable() or not 0 < len(number) <= MAX_ID:
            return "the id is 1 to %d printable characters" % MAX_ID
        if table not in arena.TABLES:
            return "no table %r; there are %s" % (table, ", ".join(arena.TABLES))
        if robot not in ["any", *self.robots]:
            return "no robot %r; there are %s, or any" % (robot, ", ".join(self.robots))
        if len(self.queue) >= MAX_QUEUED:
            return "%d orders are queued already" % MAX_QUEUED
        return None

    def tick(self):
        self.ticks += 1
        for robot in self.robots.values():
            robot.enables.publish(Bool(data=True))
            event = robot.follow()
            if event:
                self.served += event.startswith("served")
                say(event)
            if robot.state == "free":
                self.dispatch(robot)
        if self.ticks % 3 == 0:
            self.publish()

    def dispatch(self, robot):
        """Sends a robot to the first order that it may take; no table is served by two at once."""
        busy = {it.order["table"] for it in self.robots.values() if it.order}
        for order in self.queue:
            wanted = order["robot"] == robot.name or order["robot"] == "any" and robot.is_present()
            if wanted and order["table"] not in busy:
                self.queue.remove(order)
                robot.order = order
                robot.go("going", arena.serving_pose(order["table"]))
                return

    def publish(self):
        robots = {name: {"state": it.state, "order": it.order, "present": it.is_present()}
                  for name, it in self.robots.items()}
        state = {"served": self.served, "queue": list(self.queue), "robots": robots}
        self.states.publish(String(data=json.dumps(state)))


def say(words):
    print(words, flush=True)


def main():
    kind, *robots = sys.argv[1:]
    ros = middleware.start(kind, "waiter")
    goals = {"topic": TopicGoals, "action": ActionGoals}
    named = dict(it.split("=") for it in robots)
    Waiter(ros, {name: Robot(ros, name, goals[way]) for name, way in named.items()})
    ros.spin()


if __name__ == "__main__":
    main()
    os._exit(0)
