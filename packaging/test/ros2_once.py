# SPDX-License-Identifier: Apache-2.0
"""`publish TOPIC` publishes a string five times a second; `echo TOPIC` prints the first and ends."""

import sys

import rclpy
from std_msgs.msg import String


def main():
    action, topic = sys.argv[1:3]
    rclpy.init()
    node = rclpy.create_node(f"test_{action}")
    if action == "publish":
        publisher = node.create_publisher(String, topic, 10)
        node.create_timer(0.2, lambda: publisher.publish(String(data="over the radio")))
        rclpy.spin(node)
    heard = []
    node.create_subscription(String, topic, heard.append, 10)
    while not heard:
        rclpy.spin_once(node, timeout_sec=1.0)
    print(heard[0].data)


if __name__ == "__main__":
    main()
