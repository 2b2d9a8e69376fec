#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Servers and clients of actionlib under orders: one JSON object per line, each answered by one.

The server /one/fib preempts a goal for a new one, as SimpleActionServer does; /one/picky rejects
goals with a negative order. Goals of order 13 are aborted.
"""
import json
import sys
import threading
import time

import actionlib
import genpy.dynamic
import rospy
from actionlib_msgs.msg import GoalStatus

BAR = "=" * 80
HEADER = "uint32 seq\ntime stamp\nstring frame_id\n"
GOAL_ID = "time stamp\nstring id\n"
STATUS = "\n".join(["GoalID goal_id", "uint8 status"] + ["uint8 %s=%d" % (name, number) for number, name in enumerate(
    "PENDING ACTIVE PREEMPTED SUCCEEDED ABORTED REJECTED PREEMPTING RECALLING RECALLED LOST".split())]
    + ["string text", ""])
# As genaction makes them of Fibonacci.action.
TYPES = {
    "test_msgs/FibonacciActionGoal": "Header header\nactionlib_msgs/GoalID goal_id\nFibonacciGoal goal\n",
    "test_msgs/FibonacciActionResult":
        "Header header\nactionlib_msgs/GoalStatus status\nFibonacciResult result\n",
    "test_msgs/FibonacciActionFeedback":
        "Header header\nactionlib_msgs/GoalStatus status\nFibonacciFeedback feedback\n",
    "test_msgs/FibonacciGoal": "int32 order\n",
    "test_msgs/FibonacciResult": "int32[] sequence\n",
    "test_msgs/FibonacciFeedback": "int32[] sequence\n",
    "std_msgs/Header": HEADER,
    "actionlib_msgs/GoalID": GOAL_ID,
    "actionlib_msgs/GoalStatus": STATUS,
}
ACTION = ("FibonacciActionGoal action_goal\nFibonacciActionResult action_result\n"
          "FibonacciActionFeedback action_feedback\n")
ACTION += "".join("%s\nMSG: %s\n%s" % (BAR, name, text) for name, text in TYPES.items())
CLASSES = genpy.dynamic.generate_dynamic("test_msgs/FibonacciAction", ACTION)
Action, Goal = CLASSES["test_msgs/FibonacciAction"], CLASSES["test_msgs/FibonacciGoal"]
Result, Feedback = CLASSES["test_msgs/FibonacciResult"], CLASSES["test_msgs/FibonacciFeedback"]
NAMES = {number: name for name, number in vars(GoalStatus).items() if name.isupper()}


class SetBool:
    """The service std_srvs/SetBool, whose package may not be installed."""
    _type, _md5sum = "std_srvs/SetBool", "09fb03525b03e7ea1fd3992bafd87e16"
    _request_class = genpy.dynamic.generate_dynamic("std_srvs/SetBoolRequest", "bool data\n")[
        "std_srvs/SetBoolRequest"]
    _response_class = genpy.dynamic.generate_dynamic("std_srvs/SetBoolResponse", "bool success\nstring message\n")[
        "std_srvs/SetBoolResponse"]


LOCK = threading.Lock()


def report(**fields):
    with LOCK:
        print(json.dumps(fields), flush=True)


def serve(name):
    def execute(goal):
        report(executes=name, order=goal.order)
        sequence = []
        for number in range(goal.order):
            if server.is_preempt_requested():
                return server.set_preempted(Result(sequence=sequence))
            sequence.append(number)
            server.publish_feedback(Feedback(sequence=sequence))
            time.sleep(0.05)
        if goal.order == 13:
            return server.set_aborted(Result(sequence=sequence))
        server.set_succeeded(Result(sequence=sequence))

    server = actionlib.SimpleActionServer(name, Action, execute, auto_start=False)
    server.start()
    return server


def serve_picky(name):
    def on_goal(handle):
        if handle.get_goal().order < 0:
            return handle.set_rejected(Result(), "a negative order")
        handle.set_accepted()
        handle.set_succeeded(Result(sequence=[1]))

    server = actionlib.ActionServer(name, Action, on_goal, lambda handle: None, auto_start=False)
    server.start()
    return server


def call(name):
    rospy.wait_for_service(name, 30)

    def work():
        try:
            rospy.ServiceProxy(name, SetBool)(True)
        except rospy.ServiceException:
            report(failed=name)

    threading.Thread(target=work, daemon=True).start()


class Client:
    """A client of one action; reports feedback and the end of each goal by its number."""

    def __init__(self, name):
        self.client, self.name = actionlib.ActionClient(name, Action), name
        self.handles = {}

    def wait(self):
        return self.client.wait_for_server(rospy.Duration(30))

    def send(self, number, order):
        def changed(handle):
            status = handle.get_goal_status()
            if handle.get_comm_state() == actionlib.CommState.DONE:
                result = handle.get_result()
                report(ended=number, status=NAMES[handle.get_terminal_state()],
                       sequence=list(result.sequence) if result else None)
            else:
                report(changed=number, status=NAMES[status])

        def fed_back(_, feedback):
            report(feedback=number, sequence=list(feedback.sequence))

        self.handles[number] = self.client.send_goal(Goal(order=order), changed, fed_back)

    def cancel(self, number):
        if number is None:
            self.client.cancel_all_goals()
        else:
            self.handles[number].cancel()


def main():
    rospy.init_node("one", disable_signals=True)
    servers, clients = [], {}
    report(did="start")
    for line in sys.stdin:
        order = json.loads(line)
        done, extra = order["do"], {}
        if done == "serve":
            servers += [serve("/one/fib"), serve_picky("/one/picky")]
        elif done == "client":
            clients[order["name"]] = Client(order["name"])
            extra["found"] = clients[order["name"]].wait()
        elif done == "send":
            clients[order["name"]].send(order["goal"], order["order"])
        elif done == "cancel":
            clients[order["name"]].cancel(order["goal"])
        elif done == "call":
            call(order["name"])
        report(did=done, **extra)
        if done == "leave":
            break
    rospy.signal_shutdown("")


main()
