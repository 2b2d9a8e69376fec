# SPDX-License-Identifier: Apache-2.0
"""An rclpy node that a test controls: one JSON order per line in, one JSON report per line out.

The node ends when its standard input ends, so that it does not outlive the test that started it.
"""

import importlib
import json
import os
import sys
import threading
import time
import traceback

import rclpy
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.duration import Duration
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.executors import Executor, MultiThreadedExecutor
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.qos import (
    DurabilityPolicy,
    LivelinessPolicy,
    QoSProfile,
    ReliabilityPolicy,
)
from rclpy.serialization import serialize_message

clients = {}
held = {}
services = {}
advertised = {}
subscribed = {}
out_lock = threading.Lock()


def report(**what):
    with out_lock:
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()


def get_message(name):
    package, kind, own = name.split("/")
    return getattr(importlib.import_module(f"{package}.{kind}"), own)


def fill(message, fields):
    for name, value in fields.items():
        if isinstance(value, dict):
            fill(getattr(message, name), value)
        else:
            setattr(message, name, value)


def profile(best_effort=False, latch=False, depth=10, deadline=None, lifespan=None, lease=None,
            automatic=None):
    qos = QoSProfile(depth=depth)
    if best_effort:
        qos.reliability = ReliabilityPolicy.BEST_EFFORT
    if latch:
        qos.durability = DurabilityPolicy.TRANSIENT_LOCAL
    if deadline:
        qos.deadline = Duration(seconds=deadline)
    if lifespan:
        qos.lifespan = Duration(seconds=lifespan)
    if lease:
        qos.liveliness = LivelinessPolicy.MANUAL_BY_TOPIC
        qos.liveliness_lease_duration = Duration(seconds=lease)
    if automatic:
        qos.liveliness_lease_duration = Duration(seconds=automatic)
    return qos


def advertise(topic, type, qos={}):
    advertised[topic] = node.create_publisher(get_message(type), topic, profile(**qos))
    report(did="advertise", topic=topic)


def send(topic, fields):
    message = advertised[topic].msg_type()
    fill(message, fields)
    advertised[topic].publish(message)
    report(did="send", topic=topic, hex=serialize_message(message).hex())


def text(size):
    """Returns a text of this size in which a misplaced piece is visible."""
    letters = "abcdefghijklmnopqrstuvw"
    return (letters * (size // len(letters) + 1))[:size]


def send_large(topic, size):
    advertised[topic].publish(advertised[topic].msg_type(data=text(size)))
    report(did="send_large", topic=topic)


def assert_alive(topic):
    advertised[topic].assert_liveliness()
    report(did="assert_alive")


def unadvertise(topic):
    node.destroy_publisher(advertised.pop(topic))
    report(did="unadvertise", topic=topic)


def fields_of(value):
    """Converts a message to values that JSON has."""
    if isinstance(value, bytes):
        return value[0]
    if isinstance(value, (list, tuple)):
        return [fields_of(each) for each in value]
    if hasattr(value, "tolist"):
        return value.tolist()
    if not hasattr(value, "get_fields_and_field_types"):
        return value
    return {name: fields_of(getattr(value, name)) for name in value.get_fields_and_field_types()}


def subscribe(topic, type, qos={}, brief=False, fields=False):
    cls = get_message(type)

    def got(message):
        if brief:
            size = len(message.data)
            report(got=topic, size=size, sound=message.data == text(size))
        elif fields:
            report(got=topic, fields=fields_of(message))
        else:
            report(got=topic, hex=serialize_message(message).hex())

    def incompatible(event):
        report(incompatible=topic, policy=str(event.last_policy_kind))

    def alive(event):
        report(alive=event.alive_count, not_alive=event.not_alive_count, topic=topic)

    events = SubscriptionEventCallbacks(incompatible_qos=incompatible, liveliness=alive)
    subscribed[topic] = node.create_subscription(
        cls, topic, got, profile(**qos), event_callbacks=events
    )
    report(did="subscribe", topic=topic)


def unsubscribe(topic):
    node.destroy_subscription(subscribed.pop(topic))
    report(did="unsubscribe", topic=topic)


def serve(service, type, fields={}, hold=False, echo=False):
    """Serves a service with these fields as answer. With `hold`, requests wait for the order `release`."""
    def answer(request, response):
        hex = serialize_message(request).hex()
        report(served=service, hex=hex)
        if hold:
            held.setdefault(hex, threading.Event()).wait()
        fill(response, fields)
        if echo:
            response.status_message = request.camera_info.distortion_model
        return response

    services[service] = node.create_service(
        get_message(type), service, answer, callback_group=ReentrantCallbackGroup()
    )
    report(did="serve", service=service)


def release(hex):
    held.setdefault(hex, threading.Event()).set()
    report(did="release")


def unserve(service):
    node.destroy_service(services.pop(service))
    report(did="unserve", service=service)


def call(service, type, fields, id):
    cls = get_message(type)
    if service not in clients:
        clients[service] = node.create_client(cls, service)
    if not clients[service].wait_for_service(30):
        return report(did="call", found=False)
    request = cls.Request()
    fill(request, fields)
    report(did="call", found=True, hex=serialize_message(request).hex())
    clients[service].call_async(request).add_done_callback(
        lambda done: report(answered=id, hex=serialize_message(done.result()).hex())
    )


def rush(services, type):
    """Calls each service by a separate client, as soon as the client has found the server."""
    for service in services:
        client = clients[service] = node.create_client(get_message(type), service)
        while not client.service_is_ready():
            pass
        begun = time.monotonic()
        client.call_async(client.srv_type.Request()).add_done_callback(
            lambda _, service=service, begun=begun: report(
                rushed=service, seconds=time.monotonic() - begun
            )
        )
    report(did="rush")


def service_graph(name):
    try:
        all = dict(node.get_service_names_and_types_by_node(name, "/"))
    except rclpy_implementation.NodeNameNonExistentError:
        all = {}
    report(did="service_graph", services=all)


def graph(topic):
    """Reports the endpoints of a topic and all nodes, as a ROS installation shows them."""
    def told(endpoint):
        return {
            "node": endpoint.node_namespace.rstrip("/") + "/" + endpoint.node_name,
            "type": endpoint.topic_type,
            "hash": str(endpoint.topic_type_hash),
            "reliable": endpoint.qos_profile.reliability == ReliabilityPolicy.RELIABLE,
            "latch": endpoint.qos_profile.durability == DurabilityPolicy.TRANSIENT_LOCAL,
            "deadline": endpoint.qos_profile.deadline.nanoseconds,
            "lifespan": endpoint.qos_profile.lifespan.nanoseconds,
            "lease": endpoint.qos_profile.liveliness_lease_duration.nanoseconds,
        }

    report(
        did="graph",
        nodes=[
            namespace.rstrip("/") + "/" + name
            for name, namespace in node.get_node_names_and_namespaces()
        ],
        publishers=[told(each) for each in node.get_publishers_info_by_topic(topic)],
        subscribers=[told(each) for each in node.get_subscriptions_info_by_topic(topic)],
    )


def counts(topic, service, type):
    """Reports how many endpoints of other nodes this node's publishers and clients see."""
    if service not in clients:
        clients[service] = node.create_client(get_message(type), service)
    report(
        did="counts",
        subscriptions=advertised[topic].get_subscription_count(),
        publishers=node.count_publishers(topic),
        ready=clients[service].service_is_ready(),
        nodes=sorted(node.get_node_names()),
    )


def spin():
    # If another thread creates or destroys an endpoint meanwhile, rclpy may raise an
    # exception (AttributeError for an action client that is half created) or wait for ever.
    while rclpy.ok() and not leaving.is_set():
        try:
            executor.spin_once(timeout_sec=0.2)
        except Exception:
            traceback.print_exc()


def leave():
    # A node is not destroyed while it spins, and others would not learn of its end. A callback may
    # wait for ever, so its thread is not waited for.
    leaving.set()
    Executor.shutdown(executor, timeout_sec=1)
    spinning.join(timeout=1)
    node.destroy_node()
    rclpy.shutdown()
    report(did="leave")
    os._exit(0)


rclpy.init()
node = rclpy.create_node(sys.argv[1])
executor = MultiThreadedExecutor(num_threads=8)
executor.add_node(node)
leaving = threading.Event()
spinning = threading.Thread(target=spin, daemon=True)
spinning.start()
report(did="start", pid=os.getpid())
for line in sys.stdin:
    order = json.loads(line)
    globals()[order.pop("do")](**order)
# Exits without a goodbye, as in a crash; the order `leave` ends the node cleanly.
os._exit(0)
