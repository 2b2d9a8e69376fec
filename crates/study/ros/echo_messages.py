# SPDX-License-Identifier: Apache-2.0
"""The messages that senders and echoers exchange: their contents, and the place of their number.

A message carries only its sequence number; the sender notes the time of sending. rospy overwrites
header.seq and ROS 2 has none, therefore frame_id holds the number, in 15 characters.
"""

import array
import random
import sys

try:
    from sensor_msgs.msg import Image, LaserScan
    from std_msgs.msg import String
except ImportError:  # zenoh's Python has no ROS messages, and sends texts only.
    class String:
        data = ""

DIGITS = 15
# Bytes of the length before the text of a std_msgs/String in ROS 1.
TEXT_HEAD = 4
# Beams of a PR2's scan. With the 15 characters of its number, the scan has 4227 bytes in ROS 1.
SCAN_BEAMS = 1040
IMAGE_WIDTH, IMAGE_HEIGHT = 640, 480


class Text:
    """A String of a given number of bytes."""

    message_class = String

    def __init__(self, size):
        self.filling = "x" * (size - TEXT_HEAD - DIGITS)
        self.message = String()

    def numbered(self, sequence):
        self.message.data = "%0*d%s" % (DIGITS, sequence, self.filling)
        return self.message

    def number(self, message):
        return int(message.data[:DIGITS])


class WithHeader:
    """A message with a header; messages of a recording follow each other in turn."""

    def __init__(self, messages):
        self.messages = messages
        self.message_class = type(messages[0])

    def numbered(self, sequence):
        message = self.messages[sequence % len(self.messages)]
        message.header.frame_id = "%0*d" % (DIGITS, sequence)
        return message

    def number(self, message):
        return int(message.header.frame_id)


def scan():
    """A scan whose ranges do not compress."""
    noise = random.Random(1)
    ranges = [noise.uniform(0.1, 30.0) for _ in range(SCAN_BEAMS)]
    return LaserScan(range_min=0.1, range_max=30.0, ranges=ranges)


def image():
    """A raw image of a camera with a Bayer pattern, 308 KB."""
    pixels = random.Random(1).randbytes(IMAGE_WIDTH * IMAGE_HEIGHT)
    # rclpy takes an array.array without checking each byte; rospy takes a bytes object.
    data = array.array("B", pixels) if hasattr(Image, "get_fields_and_field_types") else pixels
    return Image(height=IMAGE_HEIGHT, width=IMAGE_WIDTH, encoding="bayer_grbg8",
                 step=IMAGE_WIDTH, data=data)


def messages_of(kind, size, bag, topic):
    """Returns the messages of a kind, which are sent in turn."""
    if kind == "text":
        return Text(size)
    if kind == "recorded":
        import recorded

        return WithHeader(recorded.messages(bag, topic))
    return WithHeader([{"scan": scan, "image": image}[kind]()])


def refuse(text):
    """Ends the program with an error in its log."""
    print(text, file=sys.stderr, flush=True)
    sys.exit(1)
