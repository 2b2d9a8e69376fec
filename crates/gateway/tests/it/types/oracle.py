# SPDX-License-Identifier: Apache-2.0
"""What others make of message types: rosbags, and the packages of ROS 2 themselves.

definitions      one JSON line per type: its texts and hashes in ROS 1 and ROS 2
compare          reads (name, ROS 1 bytes, CDR bytes) from standard input, decodes both
                 and says where they differ
frames           reads (name, number of the ROS, message, the same with renamed frames), and says
                 where the second is not what rosbags writes with the prefix "r1/" on each frame
"""
import dataclasses
import glob
import json
import os
import struct
import sys

import numpy
from rosbags.typesys import Stores, get_typestore

ROS1 = get_typestore(Stores.ROS1_NOETIC)
ROS2 = get_typestore(Stores.ROS2_KILTED)


def definitions():
    installed = {}
    for file in glob.glob(os.path.join(sys.prefix, "share/*/msg/*.json")):
        with open(file) as text:
            described = json.load(text)
        own = described["type_hashes"][0]
        installed[own["type_name"]] = own["hash_string"]
    for name in sorted(set(ROS1.types) | set(ROS2.types)):
        if "/msg/" not in name or name.endswith("/msg/Empty_"):
            continue
        line = {"name": name, "installed": installed.get(name)}
        if name in ROS1.types:
            line["ros1"], line["md5"] = ROS1.generate_msgdef(name, ros_version=1)
        if name in ROS2.types:
            line["ros2"] = ROS2.generate_msgdef(name, ros_version=2)[0]
            line["rihs01"] = ROS2.hash_rihs01(name)
        print(json.dumps(line))


def differences(one, two, path):
    """Names that differ only in case are one; ROS 1's header has a number more."""
    if hasattr(one, "__msgtype__"):
        # Constants are attributes too.
        definitions = (ROS1.get_msgdef(one.__msgtype__), ROS2.get_msgdef(two.__msgtype__))
        names = [[field[0] for field in definition.fields] for definition in definitions]
        theirs = {key.lower().replace("_", ""): key for key in names[1]}
        for key in names[0]:
            plain = key.lower().replace("_", "")
            if plain in theirs:
                a, b = getattr(one, key), getattr(two, theirs[plain])
                yield from differences(a, b, f"{path}.{key}")
            elif key not in ("seq", "structure_needs_at_least_one_member"):
                yield f"{path}.{key} is not there"
    elif isinstance(one, list):
        if len(one) != len(two):
            yield f"{path} has {len(one)} and {len(two)} elements"
        for index, (a, b) in enumerate(zip(one, two)):
            yield from differences(a, b, f"{path}[{index}]")
    elif isinstance(one, numpy.ndarray):
        # As below.
        if one.tobytes() != two.tobytes():
            yield f"{path}: {one} and {two}"
    elif isinstance(one, int) and isinstance(two, int):
        # ROS 1's byte is signed, ROS 2's is not.
        if one - two not in (0, -1 << 8):
            yield f"{path}: {one} and {two}"
    elif one != two:
        yield f"{path}: {one!r} and {two!r}"


def with_prefix(value):
    """Adds the prefix to the frames that a message names."""
    if isinstance(value, list):
        return [with_prefix(each) for each in value]
    if not hasattr(value, "__msgtype__"):
        return value
    changed = {}
    for field in dataclasses.fields(value):
        key, found = field.name, getattr(value, field.name)
        if (value.__msgtype__, key) == ("std_msgs/msg/Header", "frame_id") or key == "child_frame_id":
            changed[key] = found and "r1/" + found
        elif field.init:
            changed[key] = with_prefix(found)
    return dataclasses.replace(value, **changed)


def frames():
    count = 0
    while sys.stdin.buffer.peek(1):
        name, ros, before, after = piece().decode(), piece(), piece(), piece()
        if ros == b"1":
            expected = ROS1.serialize_ros1(with_prefix(ROS1.deserialize_ros1(before, name)), name)
        else:
            expected = ROS2.serialize_cdr(with_prefix(ROS2.deserialize_cdr(before, name)), name)
        count += 1
        if bytes(expected) != after:
            print(f"{name} of ROS {ros.decode()}: {after} instead of {bytes(expected)}")
    print(f"{count} messages")


def piece():
    (length,) = struct.unpack("<I", sys.stdin.buffer.read(4))
    return sys.stdin.buffer.read(length)


def compare():
    count = 0
    while sys.stdin.buffer.peek(1):
        name, ros1, cdr = piece().decode(), piece(), piece()
        there = ROS2.deserialize_cdr(cdr, name)
        count += 1
        if name in ROS1.types:
            here = ROS1.deserialize_ros1(ros1, name)
            for difference in differences(here, there, name):
                print(difference)
        # As rosbags itself would have written it.
        if bytes(ROS2.serialize_cdr(there, name)) != cdr:
            print(f"{name}: written again, it is {len(ROS2.serialize_cdr(there, name))} and not {len(cdr)} bytes")
    print(f"{count} messages")


{"definitions": definitions, "compare": compare, "frames": frames}[sys.argv[1]]()
