# SPDX-License-Identifier: Apache-2.0
"""Poses in the plane as messages, and transforms on /tf and /tf_static."""

import math

from geometry_msgs.msg import Pose, TransformStamped
from tf2_msgs.msg import TFMessage


def turned(theta):
    """An angle in [-pi, pi)."""
    return (theta + math.pi) % (2 * math.pi) - math.pi


def set_pose(pose, x, y, theta):
    """Sets a geometry_msgs/Pose."""
    pose.position.x, pose.position.y = float(x), float(y)
    pose.orientation.z, pose.orientation.w = math.sin(theta / 2), math.cos(theta / 2)


def pose(x, y, theta):
    """Returns a geometry_msgs/Pose."""
    made = Pose()
    set_pose(made, x, y, theta)
    return made


def of_pose(message):
    """Returns x, y and theta of a geometry_msgs/Pose."""
    return message.position.x, message.position.y, angle(message.orientation)


def angle(orientation):
    """Returns the angle of a rotation about z."""
    return 2 * math.atan2(orientation.z, orientation.w)


def of_transform(message):
    """Returns x, y and theta of a geometry_msgs/Transform."""
    return message.translation.x, message.translation.y, angle(message.rotation)


def compose(first, second):
    """Returns the pose `second`, which is given relative to `first`, in the frame of `first`."""
    x, y, theta = first
    cos, sin = math.cos(theta), math.sin(theta)
    return (x + cos * second[0] - sin * second[1], y + sin * second[0] + cos * second[1],
            turned(theta + second[2]))


def inverse(of):
    """Returns the inverse of a pose."""
    x, y, theta = of
    cos, sin = math.cos(theta), math.sin(theta)
    return (-cos * x - sin * y, sin * x - cos * y, -theta)


class Broadcaster:
    """Publishes transforms of one node."""

    def __init__(self, ros):
        self.ros = ros
        self.moving = ros.publisher("/tf", TFMessage)
        self.fixed = ros.publisher("/tf_static", TFMessage, depth=1, latched=True)

    def send(self, header, child, pose_of_child):
        self.moving.publish(TFMessage(transforms=[transform(header, child, pose_of_child)]))

    def send_static(self, parent, child, pose_of_child):
        made = transform(None, child, pose_of_child)
        made.header.stamp, made.header.frame_id = self.ros.stamp(), parent
        self.fixed.publish(TFMessage(transforms=[made]))


def transform(header, child, pose_of_child):
    made = TransformStamped(child_frame_id=child)
    if header is not None:
        made.header.stamp, made.header.frame_id = header.stamp, header.frame_id
    made.transform.translation.x = pose_of_child.position.x
    made.transform.translation.y = pose_of_child.position.y
    made.transform.rotation = pose_of_child.orientation
    return made
