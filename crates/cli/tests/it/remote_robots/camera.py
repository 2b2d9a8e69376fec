# SPDX-License-Identifier: Apache-2.0
"""A node NAME of a robot with the parameter 'rate' and, if it is the camera, the topic /image."""

import json
import sys
import threading

import rclpy
from std_msgs.msg import String

rclpy.init()
node = rclpy.create_node(sys.argv[1])
node.declare_parameter("rate", 10)
if sys.argv[1] == "camera":
    node.create_publisher(String, "/image", 10)
    node.create_timer(0.5, lambda: node.get_logger().warning("focus lost"))
threading.Thread(target=rclpy.spin, args=[node], daemon=True).start()
print(json.dumps({"did": "start"}), flush=True)
# Ends with the test.
sys.stdin.read()
