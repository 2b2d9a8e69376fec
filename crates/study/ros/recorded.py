# SPDX-License-Identifier: Apache-2.0
"""Messages of one topic of a recording: a rosbag file for rospy, an MCAP file for rclpy."""

import importlib
import itertools
import os
import pathlib

from echo_messages import refuse

# Messages that are replayed in turn; a recording may be long.
MAX_MESSAGES = 200


def messages(bag, topic):
    """Returns up to `MAX_MESSAGES` messages of `topic`, as this ROS has them."""
    if not os.path.isfile(bag):
        refuse("--bag: no file %s" % bag)
    found = of_rosbag(bag, topic) if bag.endswith(".bag") else of_mcap(bag, topic)
    if not hasattr(found[0], "header"):
        refuse("--bag: %s in %s has no header, in which the number of a message could be; "
               "choose a topic of sensor_msgs or another stamped type" % (topic, bag))
    return found


def of_rosbag(bag, topic):
    try:
        import rosbag
    except ImportError:
        refuse("--bag: %s is a ROS 1 recording, which rospy replays (package python3-rosbag); "
               "rclpy replays an MCAP file" % bag)
    with rosbag.Bag(bag) as recording:
        there = recording.get_type_and_topic_info().topics
        if topic not in there:
            refuse("--bag: no topic %s in %s; it has %s" % (topic, bag, ", ".join(sorted(there))))
        rows = itertools.islice(recording.read_messages(topics=[topic], raw=True), MAX_MESSAGES)
        return [parse_ros1(raw) for _, raw, _ in rows]


def parse_ros1(raw):
    """Parses a message into the installed class, which publishers need."""
    import roslib.message

    kind, serialized, sum_of_type = raw[0], raw[1], raw[2]
    message_class = roslib.message.get_message_class(kind)
    if message_class is None:
        refuse("--bag: no Python class of %s (Debian: python3-%s)"
               % (kind, kind.split("/")[0].replace("_", "-")))
    if message_class._md5sum != sum_of_type:
        refuse("--bag: %s of the recording differs from the installed one" % kind)
    message = message_class()
    message.deserialize(serialized)
    return message


def of_mcap(bag, topic):
    try:
        from rclpy.serialization import deserialize_message
        from rosbags.rosbag2.storage_mcap import McapReader
    except ImportError as error:
        refuse("--bag: %s is no .bag file, and what replays MCAP, rclpy with rosbags, is not in this "
               "Python (%s); crates/lab/ros2.sh kilted installs both" % (bag, error))
    recording = McapReader(pathlib.Path(bag))
    recording.open()
    try:
        connections = [it for it in recording.connections if it.topic == topic]
        if not connections:
            topics = sorted({it.topic for it in recording.connections})
            refuse("--bag: no topic %s in %s; it has %s" % (topic, bag, ", ".join(topics)))
        message_class = class_of(connections[0].msgtype)
        rows = itertools.islice(recording.messages(connections), MAX_MESSAGES)
        return [deserialize_message(bytes(raw), message_class) for _, _, raw in rows]
    finally:
        recording.close()


def class_of(kind):
    """Returns the installed class of a type such as sensor_msgs/msg/LaserScan."""
    package, _, name = kind.split("/")
    try:
        return getattr(importlib.import_module(package + ".msg"), name)
    except (ImportError, AttributeError):
        refuse("--bag: no Python class of %s in the installed ROS 2" % kind)
