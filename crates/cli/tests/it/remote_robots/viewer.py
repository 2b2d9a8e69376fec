# SPDX-License-Identifier: Apache-2.0
"""What programs at the base station see of nodes and parameters, upon orders in JSON."""

import json
import sys

import rclpy
from rcl_interfaces.msg import Log, Parameter, ParameterType, ParameterValue
from rcl_interfaces.srv import GetParameters, SetParameters
from std_msgs.msg import String

rclpy.init()
node = rclpy.create_node("viewer")
node.create_subscription(String, "/robot1/image", lambda message: None, 10)
found_logs = []
node.create_subscription(
    Log, "/rosout", lambda log: found_logs.append((log.name, log.msg)), 100
)
# Seconds until a service is taken as absent, and until a call has failed.
APPEARS, ANSWERS = 8, 20


def call(kind, service, request):
    client = node.create_client(kind, service)
    try:
        if not client.wait_for_service(timeout_sec=APPEARS):
            return None
        future = client.call_async(request)
        rclpy.spin_until_future_complete(node, future, timeout_sec=ANSWERS)
        return future.result()
    finally:
        node.destroy_client(client)


def nodes(order):
    names = node.get_node_names_and_namespaces()
    return {"nodes": [f"{space.rstrip('/')}/{name}" for name, space in names]}


def one_node(order):
    place = (order["name"], order["namespace"])
    try:
        return {
            "publishers": node.get_publisher_names_and_types_by_node(*place),
            "services": node.get_service_names_and_types_by_node(*place),
        }
    except rclpy.node.NodeNameNonExistentError:
        return {"publishers": [], "services": []}


def get(order):
    request = GetParameters.Request(names=[order["parameter"]])
    done = call(GetParameters, f"{order['node']}/get_parameters", request)
    return {"value": done and done.values[0].integer_value}


def set_parameter(order):
    value = ParameterValue(type=ParameterType.PARAMETER_INTEGER, integer_value=order["value"])
    request = SetParameters.Request(
        parameters=[Parameter(name=order["parameter"], value=value)]
    )
    done = call(SetParameters, f"{order['node']}/set_parameters", request)
    return {"successful": done and done.results[0].successful}


def logs(order):
    rclpy.spin_once(node, timeout_sec=0.2)
    return {"logs": found_logs}


orders = {"logs": logs, "nodes": nodes, "node": one_node, "get": get, "set": set_parameter}
print(json.dumps({"did": "start"}), flush=True)
for line in sys.stdin:
    order = json.loads(line)
    print(json.dumps({"did": order["do"], **orders[order["do"]](order)}), flush=True)
