# SPDX-License-Identifier: Apache-2.0
"""Servers and clients of ROS 2 actions under orders: one JSON object per line, each answered by one.

The server /two/fib rejects goals with a negative order, and aborts those of order 13. The service
/two/slow does not answer.
"""
import json
import sys
import threading
import time
import traceback

import rclpy
from rclpy.action import ActionClient, ActionServer, CancelResponse, GoalResponse
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.executors import MultiThreadedExecutor
from std_srvs.srv import SetBool
from test_msgs.action import Fibonacci

NAMES = ["UNKNOWN", "ACCEPTED", "EXECUTING", "CANCELING", "SUCCEEDED", "CANCELED", "ABORTED"]
LOCK = threading.Lock()


def report(**fields):
    with LOCK:
        print(json.dumps(fields), flush=True)


def serve(node, name):
    def execute(handle):
        report(executes=name, order=handle.request.order)
        sequence, result = [], Fibonacci.Result()
        for number in range(handle.request.order):
            if handle.is_cancel_requested:
                handle.canceled()
                result.sequence = sequence
                return result
            sequence.append(number)
            handle.publish_feedback(Fibonacci.Feedback(sequence=sequence))
            time.sleep(0.05)
        result.sequence = sequence
        if handle.request.order == 13:
            handle.abort()
        else:
            handle.succeed()
        report(finished=handle.request.order)
        return result

    def on_goal(request):
        return GoalResponse.REJECT if request.order < 0 else GoalResponse.ACCEPT

    return ActionServer(node, Fibonacci, name, execute, goal_callback=on_goal,
                        cancel_callback=lambda _: CancelResponse.ACCEPT,
                        callback_group=ReentrantCallbackGroup())


def serve_slowly(node):
    def called(_, response):
        report(called="/two/slow")
        time.sleep(600)
        return response

    return node.create_service(SetBool, "/two/slow", called, callback_group=ReentrantCallbackGroup())


class Client:
    """A client of one action; reports feedback and the end of each goal by its number."""

    def __init__(self, node, name):
        self.client = ActionClient(node, Fibonacci, name, callback_group=ReentrantCallbackGroup())
        self.handles = {}

    def send(self, number, order):
        def fed_back(message):
            report(feedback=number, sequence=list(message.feedback.sequence))

        def responded(future):
            handle = self.handles[number] = future.result()
            report(changed=number, accepted=handle.accepted)
            if handle.accepted:
                handle.get_result_async().add_done_callback(ended)

        def ended(future):
            result = future.result()
            report(ended=number, status=NAMES[result.status], sequence=list(result.result.sequence))

        goal = Fibonacci.Goal(order=order)
        self.client.send_goal_async(goal, feedback_callback=fed_back).add_done_callback(responded)

    def cancel(self, number):
        def canceled(future):
            response = future.result()
            report(canceled=number, code=response.return_code, goals=len(response.goals_canceling))

        self.handles[number].cancel_goal_async().add_done_callback(canceled)


def spin(executor):
    # If another thread creates or destroys an endpoint meanwhile, rclpy may raise (also an
    # AttributeError, of an action client half made) or wait for ever.
    while rclpy.ok():
        try:
            executor.spin_once(timeout_sec=0.2)
        except Exception:
            traceback.print_exc()


def main():
    rclpy.init()
    node = rclpy.create_node("two")
    executor = MultiThreadedExecutor(4)
    executor.add_node(node)
    threading.Thread(target=spin, args=(executor,), daemon=True).start()
    servers, clients = [], {}
    slow = serve_slowly(node)  # noqa: F841
    report(did="start")
    for line in sys.stdin:
        order = json.loads(line)
        done, extra = order["do"], {}
        if done == "serve":
            servers.append(serve(node, "/two/fib"))
        elif done == "client":
            if order["name"] in clients:
                clients.pop(order["name"]).client.destroy()
            clients[order["name"]] = Client(node, order["name"])
            extra["found"] = clients[order["name"]].client.wait_for_server(30)
        elif done == "send":
            clients[order["name"]].send(order["goal"], order["order"])
        elif done == "cancel":
            clients[order["name"]].cancel(order["goal"])
        elif done == "ready":
            extra["ready"] = clients[order["name"]].client.server_is_ready()
        elif done == "unserve":
            servers.pop().destroy()
        report(did=done, **extra)
        if done == "leave":
            break


main()
