# SPDX-License-Identifier: Apache-2.0
"""A rospy node that a test controls: one JSON order per line in, one JSON report per line out.

The node ends when its standard input ends, so that it does not outlive the test that started it.
"""

import io
import json
import os
import socket
import sys
import threading
import xmlrpc.client

import genpy
import genpy.dynamic
import rosgraph
import roslib.message
import rospy

services = {}
held = {}
advertised = {}
subscribed = {}
out_lock = threading.Lock()


def report(**what):
    with out_lock:
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()


def hex_of(message):
    if isinstance(message, rospy.AnyMsg):
        return message._buff.hex()
    buffer = io.BytesIO()
    message.serialize(buffer)
    return buffer.getvalue().hex()


def class_of(name):
    return rospy.AnyMsg if name == "*" else roslib.message.get_message_class(name)


def advertise(topic, type, latch=False):
    cls = class_of(type)
    advertised[topic] = rospy.Publisher(topic, cls, latch=latch, queue_size=1000)
    report(did="advertise", topic=topic, md5=cls._md5sum, definition=cls._full_text)


def send(topic, fields, count=1, hz=None):
    message = advertised[topic].data_class()
    genpy.message.fill_message_args(message, [fields])
    rate = rospy.Rate(hz) if hz else None
    for _ in range(count):
        advertised[topic].publish(message)
        if rate:
            rate.sleep()
    report(did="send", topic=topic, hex=hex_of(message))


def send_large(topic, size):
    advertised[topic].publish(advertised[topic].data_class("x" * size))
    report(did="send_large", topic=topic)


def unadvertise(topic):
    advertised.pop(topic).unregister()
    report(did="unadvertise", topic=topic)


def fields_of(value):
    """Converts a message to values that JSON has."""
    if isinstance(value, bytes):
        return list(value)
    if isinstance(value, list):
        return [fields_of(each) for each in value]
    if not hasattr(value, "__slots__"):
        return value
    return {name: fields_of(getattr(value, name)) for name in value.__slots__}


def decoded(message):
    """Decodes a message by the definition that its connection sent; checks the md5 of the definition."""
    if not isinstance(message, rospy.AnyMsg):
        return message
    header = message._connection_header
    made = genpy.dynamic.generate_dynamic(header["type"], header["message_definition"])
    cls = made[header["type"]]
    assert cls._md5sum == header["md5sum"], (cls._md5sum, header)
    return cls().deserialize(message._buff)


def subscribe(topic, type, brief=False, fields=False):
    def got(message):
        if brief:
            report(got=topic, size=len(hex_of(message)) // 2)
        elif fields:
            report(got=topic, fields=fields_of(decoded(message)))
        else:
            report(got=topic, hex=hex_of(message), header=message._connection_header)

    subscribed[topic] = rospy.Subscriber(topic, class_of(type), got)
    report(did="subscribe", topic=topic)


def unsubscribe(topic):
    subscribed.pop(topic).unregister()
    report(did="unsubscribe", topic=topic)


def serve(service, type, fields={}, hold=False, echo=False, fail=None):
    """Serves a service with these fields as answer. With `hold`, requests wait for the order `release`."""
    cls = roslib.message.get_service_class(type)

    def answer(request):
        hex = hex_of(request)
        report(served=service, hex=hex)
        if hold:
            held.setdefault(hex, threading.Event()).wait()
        if fail:
            raise RuntimeError(fail)
        if echo:
            return cls._response_class(True, request.camera_info.distortion_model)
        response = cls._response_class()
        genpy.message.fill_message_args(response, [fields])
        return response

    services[service] = rospy.Service(service, cls, answer)
    report(did="serve", service=service, md5=cls._md5sum)


def release(hex):
    held.setdefault(hex, threading.Event()).set()
    report(did="release")


def unserve(service):
    services.pop(service).shutdown()
    report(did="unserve", service=service)


def call_service(service, type, fields, id, times=1):
    """Calls a service `times` times; several calls share one connection."""
    cls = roslib.message.get_service_class(type)
    rospy.wait_for_service(service, 30)
    request = cls._request_class()
    genpy.message.fill_message_args(request, [fields])
    proxy = rospy.ServiceProxy(service, cls, persistent=times > 1)

    def run():
        for time in range(times):
            try:
                report(answered=id + time, hex=hex_of(proxy(request)))
            except Exception as error:
                report(answered=id + time, error=str(error))

    threading.Thread(target=run, daemon=True).start()
    report(did="call_service", hex=hex_of(request))


def connections(topic):
    report(did="connections", topic=topic, count=advertised[topic].get_num_connections())


def nodelay(topic):
    """Reports whether each connection of a topic published here has TCP_NODELAY."""
    sockets = []
    for connection in advertised[topic].impl.connections:
        inner = getattr(connection, "_connection", connection)
        option = inner.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        sockets.append(bool(option))
    report(did="nodelay", topic=topic, nodelay=sockets)


def registered(node):
    """Reports the topics and services that the master lists for a node."""
    state = rosgraph.Master("/agent").getSystemState()
    published, read, served = [
        sorted(name for name, nodes in part if node in nodes) for part in state
    ]
    report(did="registered", node=node, published=published, subscribed=read, services=served)


def call(node, method, params):
    """Calls the slave API of a node."""
    uri = rosgraph.Master("/agent").lookupNode(node)
    try:
        answer = getattr(xmlrpc.client.ServerProxy(uri), method)(*params)
    except xmlrpc.client.Fault as fault:
        answer = {"fault": fault.faultString}
    report(did="call", method=method, answer=answer, uri=uri)


def master(method, params):
    """Calls the master; a value that JSON lacks is reported as text."""
    answer = getattr(xmlrpc.client.ServerProxy(os.environ["ROS_MASTER_URI"]), method)(
        "/agent", *params
    )
    report(did="master", answer=json.loads(json.dumps(answer, default=str)))


def set_binary(name):
    """Sets a parameter to a value that JSON lacks."""
    rospy.set_param(name, xmlrpc.client.Binary(b"local"))
    report(did="set_binary")


def where(service):
    """Reports the address of a service according to the master."""
    try:
        uri = rosgraph.Master("/agent").lookupService(service)
    except rosgraph.MasterException:
        uri = None
    report(did="where", uri=uri)


def main():
    rospy.init_node(sys.argv[1].lstrip("/"), disable_signals=True)
    report(did="start", pid=os.getpid())
    for line in sys.stdin:
        order = json.loads(line)
        globals()[order.pop("do")](**order)
    # Exits without unregistering, as in a crash; the order `leave` ends the node cleanly.
    os._exit(0)


def leave():
    rospy.signal_shutdown("told to leave")
    report(did="leave")
    os._exit(0)


main()
