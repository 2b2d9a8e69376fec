# SPDX-License-Identifier: Apache-2.0
"""An rclpy node of the parity suite: orders and events of leash.py. Argument: name of the node."""

import array
import importlib
import os
import sys
import threading
import time
import traceback

import rclpy
from rclpy.action import ActionClient, ActionServer, CancelResponse
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.duration import Duration
from rclpy.executors import Executor, MultiThreadedExecutor
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.signals import SignalHandlerOptions

import leash

# Longest wait of a client for its server, and for an answer; seconds.
SERVICE_PATIENCE_S = 10
ANSWER_PATIENCE_S = 6
# Time between two feedbacks of an action, seconds.
FEEDBACK_PERIOD_S = 0.1

publishers = {}
subscribers = {}
services = {}
actions = {}
clients = {}
numbers = {}


def interface(name, kind):
    package, own = name.split("/")
    return getattr(importlib.import_module("%s.%s" % (package, kind)), own)


def element_of(kind):
    """The type of the entries of a list and their number if it is fixed; None for other types."""
    if kind.startswith("sequence<"):
        return kind[len("sequence<"):-1].split(",")[0].strip(), None
    if kind.endswith("]") and "[" in kind:
        base, _, length = kind.rpartition("[")
        return base, int(length[:-1])
    return None


def filled(kind, publisher, number, size):
    """A value of a type of ROS 2."""
    element = element_of(kind)
    if element:
        base, length = element
        if base in ("uint8", "octet", "byte"):
            data = leash.octets(publisher, number, length or size)
            return [bytes([each]) for each in data] if base != "uint8" else array.array("B", data)
        count = leash.LIST_LENGTH if length is None else length
        return [filled(base, publisher, number, size) for _ in range(count)]
    if kind.startswith(("string", "wstring")):
        return leash.text(publisher, number, 0 if "<" in kind else size)
    if kind in ("octet", "byte"):
        return bytes([number % 100])
    if "/" not in kind:
        return leash.number_of(kind, number)
    cls = interface(kind, "msg")
    if kind in ("builtin_interfaces/Time", "builtin_interfaces/Duration"):
        return cls(sec=number % 100, nanosec=500000000)
    return message_of(cls, publisher, number, size)


def message_of(cls, publisher, number, size):
    message = cls()
    for name, kind in cls.get_fields_and_field_types().items():
        setattr(message, name, filled(kind, publisher, number, size))
    return message


def leaves_of(value):
    """Leaves of a message in the order of its fields."""
    if hasattr(value, "get_fields_and_field_types"):
        return [leaf for name in value.get_fields_and_field_types() for leaf in leaves_of(getattr(value, name))]
    if isinstance(value, (str, bool, int, float)):
        return [value]
    entries = leash.sequence(value)
    return [entries] if isinstance(entries, bytes) else [leaf for each in entries for leaf in leaves_of(each)]


def profile(latched, reliable, depth, lifespan_ms):
    qos = QoSProfile(depth=depth)
    if latched:
        qos.durability = DurabilityPolicy.TRANSIENT_LOCAL
    if not reliable:
        qos.reliability = ReliabilityPolicy.BEST_EFFORT
    if lifespan_ms:
        qos.lifespan = Duration(nanoseconds=lifespan_ms * 1000000)
    return qos


def advertise(id, topic, type, latched=False, reliable=True, depth=10, lifespan_ms=None):
    qos = profile(latched, reliable, depth, lifespan_ms)
    publishers[id] = node.create_publisher(interface(type, "msg"), topic, qos)


def publish(id, count=1, gap_ms=0, size=0):
    for turn in range(count):
        if turn:
            time.sleep(gap_ms / 1000.0)
        number = numbers[id] = numbers.get(id, 0) + 1
        message = message_of(publishers[id].msg_type, id, number, size)
        leash.report("sent", publisher=id, n=number, sum=leash.checksum(leaves_of(message)))
        publishers[id].publish(message)


def unadvertise(id):
    node.destroy_publisher(publishers.pop(id))


def subscribe(id, topic, type, latched=False, reliable=True, depth=10, classes=None):
    """Subscribes. With `classes`, makes one subscription for each class of publishers: together they
    accept every publisher as it is, as a ROS 1 subscriber does."""
    cls = interface(type, "msg")

    def receiver(ending):
        def receive(message):
            leaves = leaves_of(message)
            publisher, number = leash.origin(leaves)
            if ending is None or publisher.endswith(ending):
                leash.report("got", subscriber=id, publisher=publisher, n=number, sum=leash.checksum(leaves))
        return receive

    if classes is None:
        wanted = [(None, profile(latched, reliable, depth, None))]
    else:
        wanted = [(each, profile(each in "Ll", each in "LV", depth, None)) for each in classes]
    subscribers[id] = [node.create_subscription(cls, topic, receiver(ending), qos) for ending, qos in wanted]


def unsubscribe(id):
    for each in subscribers.pop(id):
        node.destroy_subscription(each)


def matched():
    counts = {id: each.get_subscription_count() for id, each in publishers.items()}
    for id, each in subscribers.items():
        counts[id] = sum(part.get_publisher_count() for part in each)
    leash.report("matched", counts=counts)


def serve(id, service, **_):
    def answer(request, response):
        call = request.camera_info.distortion_model
        leash.report("served", server=id, call=call)
        response.success, response.status_message = True, "%s %s" % (id, call)
        return response

    cls = interface("sensor_msgs/SetCameraInfo", "srv")
    services[id] = node.create_service(cls, service, answer, callback_group=ReentrantCallbackGroup())


def unserve(id):
    if id in actions:
        actions.pop(id).destroy()
    else:
        node.destroy_service(services.pop(id))


def call(id, service, **_):
    cls = interface("sensor_msgs/SetCameraInfo", "srv")
    client = node.create_client(cls, service, callback_group=ReentrantCallbackGroup())

    def run():
        if not client.wait_for_service(SERVICE_PATIENCE_S):
            return leash.report("answer", call=id, error="no server")
        request = cls.Request()
        request.camera_info.distortion_model = id
        answered = threading.Event()
        future = client.call_async(request)
        future.add_done_callback(lambda _: answered.set())
        if answered.wait(ANSWER_PATIENCE_S):
            leash.report("answer", call=id, text=future.result().status_message)
        else:
            leash.report("answer", call=id, error="no answer")
        node.destroy_client(client)

    threading.Thread(target=run, daemon=True).start()


def serve_action(id, action):
    cls = interface("test_msgs/Fibonacci", "action")

    def execute(goal):
        result = cls.Result(sequence=[])
        leash.report("executed", server=id, order=goal.request.order)
        for step in range(goal.request.order % 100):
            if goal.is_cancel_requested:
                goal.canceled()
                return result
            result.sequence.append(step)
            goal.publish_feedback(cls.Feedback(sequence=result.sequence))
            time.sleep(FEEDBACK_PERIOD_S)
        goal.succeed()
        return result

    actions[id] = ActionServer(
        node, cls, action, execute, callback_group=ReentrantCallbackGroup(),
        cancel_callback=lambda _: CancelResponse.ACCEPT,
    )


def goal(id, action, order, cancel_after=None):
    """Sends a goal; cancels it after `cancel_after` feedbacks."""
    cls = interface("test_msgs/Fibonacci", "action")
    if action not in clients:
        clients[action] = ActionClient(node, cls, action, callback_group=ReentrantCallbackGroup())
    feedbacks = []
    enough = threading.Event()

    def feedback(message):
        length = len(message.feedback.sequence)
        leash.report("feedback", goal=id, length=length)
        feedbacks.append(length)
        if cancel_after is not None and len(feedbacks) >= cancel_after:
            enough.set()

    def wait(future, patience):
        event = threading.Event()
        future.add_done_callback(lambda _: event.set())
        return event.wait(patience)

    def run():
        client = clients[action]
        if not client.wait_for_server(SERVICE_PATIENCE_S):
            return leash.report("result", goal=id, error="no server")
        accepted = client.send_goal_async(cls.Goal(order=order), feedback_callback=feedback)
        if not wait(accepted, ANSWER_PATIENCE_S):
            return leash.report("result", goal=id, error="no answer to the goal")
        if not accepted.result().accepted:
            return leash.report("result", goal=id, error="rejected")
        outcome = accepted.result().get_result_async()
        if cancel_after is not None and enough.wait(ANSWER_PATIENCE_S):
            accepted.result().cancel_goal_async()
        if not wait(outcome, ANSWER_PATIENCE_S):
            return leash.report("result", goal=id, error="no result")
        leash.report("result", goal=id, status=outcome.result().status, length=len(outcome.result().result.sequence))

    threading.Thread(target=run, daemon=True).start()


def spin():
    # If another thread creates or destroys an endpoint meanwhile, rclpy may raise an
    # exception (AttributeError for an action client that is half created) or wait for ever.
    while rclpy.ok() and not leaving.is_set():
        try:
            executor.spin_once(timeout_sec=0.2)
        except Exception:
            traceback.print_exc()


def leave():
    # A node is not destroyed while it spins, and others would not learn of its end.
    leaving.set()
    Executor.shutdown(executor, timeout_sec=1)
    spinning.join(timeout=1)
    node.destroy_node()
    rclpy.shutdown()
    leash.report("done")
    os._exit(0)


rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
node = rclpy.create_node(sys.argv[1], enable_rosout=False, start_parameter_services=False)
executor = MultiThreadedExecutor(num_threads=8)
executor.add_node(node)
leaving = threading.Event()
spinning = threading.Thread(target=spin, daemon=True)
spinning.start()
leash.obey(globals())
