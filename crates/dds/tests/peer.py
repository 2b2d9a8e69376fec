# SPDX-License-Identifier: Apache-2.0
"""A real rclpy node: publishes on /chatter, counts what comes back on /echo, and joins
/latched late. Prints one JSON line when it has all it waits for, or at its deadline."""
import json
import sys
import time

import rclpy
from rclpy.qos import DurabilityPolicy, QoSProfile
from std_msgs.msg import String

WANTED = 20
deadline = time.time() + float(sys.argv[1])
rclpy.init()
node = rclpy.create_node("peer")
echoed, latched = [], []
publisher = node.create_publisher(String, "/chatter", 10)
node.create_subscription(String, "/echo", lambda message: echoed.append(message.data), 10)
late = QoSProfile(depth=10, durability=DurabilityPolicy.TRANSIENT_LOCAL)
node.create_subscription(String, "/latched", lambda message: latched.append(message.data), late)


def publish():
    # Lengths with every remainder modulo four, and some longer than a datagram.
    number = publish.count = publish.count + 1
    publisher.publish(String(data=f"{number} " + "x" * (number % 4 if number % 5 else 100_000)))


publish.count = 0
node.create_timer(0.1, publish)
while (len(echoed) < WANTED or len(latched) < 3) and time.time() < deadline:
    rclpy.spin_once(node, timeout_sec=0.1)
writers = node.get_publishers_info_by_topic("/echo")
sound = all(len(data) in (100_000 + len(data.split()[0]) + 1, len(data.split()[0]) + 1 + int(data.split()[0]) % 4) for data in echoed)
print(json.dumps({
    "echoed": len(echoed),
    "sound": sound,
    "latched": latched,
    "types": [writer.topic_type for writer in writers],
    "hashes": [str(writer.topic_type_hash) for writer in writers],
}))
