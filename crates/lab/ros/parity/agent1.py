# SPDX-License-Identifier: Apache-2.0
"""A rospy node of the parity suite: orders and events of leash.py. Argument: name of the node."""

import os
import sys
import threading
import time

import genmsg.msgs
import genpy
import genpy.dynamic
import roslib.message
import rospy

import leash

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import ros1  # noqa: E402 - of the folder above

# Longest wait of a client for its service, seconds.
SERVICE_PATIENCE_S = 10
# A type that no package has.
OWN = "parity_msgs/Own"
OWN_DEFINITION = "string tag\nint32[] numbers\nuint8[] data\nEntry[] entries\n" + "=" * 80 + \
    "\nMSG: parity_msgs/Entry\nfloat64 value\ntime when\nstring note\n"

publishers = {}
subscribers = {}
services = {}
numbers = {}
own = {}


def class_of(name):
    if name == OWN:
        if not own:
            own.update(genpy.dynamic.generate_dynamic(OWN, OWN_DEFINITION))
        return own[OWN]
    return roslib.message.get_message_class(name)


def filled(kind, publisher, number, size):
    """A value of a type of ROS 1."""
    base, is_list, length = genmsg.msgs.parse_type(kind)
    if is_list:
        if base in ("uint8", "char"):
            return leash.octets(publisher, number, length or size)
        count = leash.LIST_LENGTH if length is None else length
        return [filled(base, publisher, number, size) for _ in range(count)]
    if base == "string":
        return leash.text(publisher, number, size)
    if base == "time":
        return genpy.Time(number % 100, 500000000)
    if base == "duration":
        return genpy.Duration(number % 100, 500000000)
    if genmsg.msgs.is_builtin(base):
        return leash.number_of(base, number)
    return message_of(own.get(base) or class_of(base), publisher, number, size)


def message_of(cls, publisher, number, size):
    message = cls()
    for slot, kind in zip(cls.__slots__, cls._slot_types):
        setattr(message, slot, filled(kind, publisher, number, size))
    return message


def leaves_of(value):
    """Leaves of a message in the order of its fields, without fields that only ROS 1 has."""
    if isinstance(value, genpy.rostime.TVal):
        return [value.secs, value.nsecs]
    if hasattr(value, "_slot_types"):
        slots = value.__slots__
        if value._type == "std_msgs/Header":
            slots = [slot for slot in slots if slot != "seq"]
        return [leaf for slot in slots for leaf in leaves_of(getattr(value, slot))]
    if isinstance(value, (str, bool, int, float)):
        return [value]
    entries = leash.sequence(value)
    return [entries] if isinstance(entries, bytes) else [leaf for each in entries for leaf in leaves_of(each)]


def advertise(id, topic, type, latched=False, **_):
    cls = class_of(type)
    publishers[id] = rospy.Publisher(topic, cls, latch=latched, queue_size=1000)


def publish(id, count=1, gap_ms=0, size=0):
    for turn in range(count):
        if turn:
            time.sleep(gap_ms / 1000.0)
        number = numbers[id] = numbers.get(id, 0) + 1
        message = message_of(publishers[id].data_class, id, number, size)
        if getattr(message, "_has_header", False):
            # Tautline computes the age of a latched message from this stamp.
            message.header.stamp = rospy.Time.from_sec(time.time())
        leash.report("sent", publisher=id, n=number, sum=leash.checksum(leaves_of(message)))
        publishers[id].publish(message)


def unadvertise(id):
    publishers.pop(id).unregister()


def subscribe(id, topic, type, **_):
    def receive(message):
        leaves = leaves_of(message)
        publisher, number = leash.origin(leaves)
        leash.report("got", subscriber=id, publisher=publisher, n=number, sum=leash.checksum(leaves))

    subscribers[id] = rospy.Subscriber(topic, class_of(type), receive)


def unsubscribe(id):
    subscribers.pop(id).unregister()


def matched():
    counts = {id: each.get_num_connections() for id, each in list(publishers.items()) + list(subscribers.items())}
    leash.report("matched", counts=counts)


def serve(id, service, **_):
    cls = roslib.message.get_service_class("sensor_msgs/SetCameraInfo")

    def answer(request):
        call = request.camera_info.distortion_model
        leash.report("served", server=id, call=call)
        return cls._response_class(True, "%s %s" % (id, call))

    services[id] = rospy.Service(service, cls, answer)


def unserve(id):
    services.pop(id).shutdown()


def call(id, service, **_):
    cls = roslib.message.get_service_class("sensor_msgs/SetCameraInfo")

    def run():
        try:
            rospy.wait_for_service(service, SERVICE_PATIENCE_S)
            request = cls._request_class()
            request.camera_info.distortion_model = id
            answer = rospy.ServiceProxy(service, cls)(request)
            leash.report("answer", call=id, text=answer.status_message)
        except Exception as error:  # noqa: BLE001 - rospy's errors have no common base
            leash.report("answer", call=id, error=str(error))

    threading.Thread(target=run, daemon=True).start()


def leave():
    rospy.signal_shutdown("ordered")
    leash.report("done")
    os._exit(0)


ros1.await_master()
rospy.init_node(sys.argv[1], disable_signals=True, disable_rosout=True)
leash.obey(globals())
