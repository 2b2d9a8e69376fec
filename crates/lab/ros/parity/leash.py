# SPDX-License-Identifier: Apache-2.0
"""What the agents of both ROS share: orders as JSON lines, events as JSON lines, and messages of any
type that carry their publisher and number in every text field.

An agent ends when its standard input ends, so that it does not outlive the program that started it.
"""

import json
import os
import sys
import threading
import time
import zlib

# Entries of a list without a fixed length; bytes of a byte list unless the order says otherwise.
LIST_LENGTH = 2
BYTE_LIST_LENGTH = 32

_lock = threading.Lock()
# Standard output is for events only: the log of rospy goes to standard error.
_events = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def report(event, **fields):
    """Prints one event with its time, seconds of the clock that all processes share."""
    fields = dict(event=event, t=time.monotonic(), **fields)
    line = json.dumps(fields) + "\n"
    with _lock:
        _events.write(line)
        _events.flush()


def obey(orders):
    """Carries out orders from standard input; `orders` has a function for each."""
    report("ready")
    for line in sys.stdin:
        order = json.loads(line)
        kind = order.pop("do")
        try:
            orders[kind](**order)
        except Exception as error:  # noqa: BLE001 - the player decides what a refusal means
            report("trouble", order=kind, error="%s: %s" % (type(error).__name__, error))
        report("done")
    # Exits without cleaning up, as in a crash.
    os._exit(0)


def tag(publisher, number):
    return "%s:%d" % (publisher, number)


def text(publisher, number, size):
    """A message's text: its tag, filled up to `size`."""
    return tag(publisher, number).ljust(size, ".")


def number_of(kind, number):
    """A value of a numeric type that both ROS carry exactly."""
    if kind in ("bool", "boolean"):
        return number % 2 == 0
    if kind.startswith("float") or kind == "double":
        return number % 1000 + 0.5
    return number % 100


def octets(publisher, number, size):
    pattern = bytes((zlib.crc32(tag(publisher, number).encode()) >> shift) & 255 for shift in (0, 8, 16, 24))
    length = size or BYTE_LIST_LENGTH
    return (pattern * (length // 4 + 1))[:length]


def checksum(leaves):
    """A sum over the leaves of a message, equal in ROS 1 and ROS 2."""
    total = 0
    for leaf in leaves:
        if not isinstance(leaf, (bytes, bytearray)):
            leaf = repr(leaf).encode()
        total = zlib.crc32(leaf, total)
    return total


def origin(leaves):
    """Publisher and number in the first text among the leaves."""
    first = next(leaf for leaf in leaves if isinstance(leaf, str) and ":" in leaf)
    publisher, number = first.rstrip(".").split(":")
    return publisher, int(number)


def sequence(value):
    """The entries of any list, bytes as they are."""
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if hasattr(value, "typecode") and value.typecode == "B":
        return value.tobytes()
    if hasattr(value, "tolist"):
        return value.tolist()
    return list(value)
