# SPDX-License-Identifier: Apache-2.0
"""A real rclpy node: calls /switch three times and serves /theirs until it was called with
true and then false.
Prints what /switch answered."""
import json
import sys
import time

import rclpy
from std_srvs.srv import SetBool

deadline = time.time() + float(sys.argv[1])
rclpy.init()
node = rclpy.create_node("peer")
served = []


def serve(request, response):
    served.append(request.data)
    response.success, response.message = True, f"got {request.data}"
    return response


node.create_service(SetBool, "/theirs", serve)
client = node.create_client(SetBool, "/switch")
while not client.service_is_ready() and time.time() < deadline:
    rclpy.spin_once(node, timeout_sec=0.1)
answers = []
for data in (False, True, False):
    call = client.call_async(SetBool.Request(data=data))
    while not call.done() and time.time() < deadline:
        rclpy.spin_once(node, timeout_sec=0.1)
    answers.append(call.result().message if call.done() else None)
while served[-2:] != [True, False] and time.time() < deadline:
    rclpy.spin_once(node, timeout_sec=0.1)
# The last answer has yet to be sent.
time.sleep(1)
print(json.dumps(answers))
