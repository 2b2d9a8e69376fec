# SPDX-License-Identifier: Apache-2.0
"""The proportional controller of Tardioli, Parasuraman, Oegren (2018), figures 19 and 20.

regulator.py ros1|ros2 NAMESPACE: answers each voltage of the capacitor on NAMESPACE/y with a
voltage of the source on NAMESPACE/u. Standard output: `ready` when NAMESPACE/u has a subscriber.
"""

import os
import sys

import middleware
from std_msgs.msg import Float64

GAIN, SET_POINT = 1.0, 1.0
LOOK_PERIOD_S = 0.1


def main():
    kind, namespace = sys.argv[1:3]
    ros = middleware.start(kind, middleware.node_name(namespace, "regulator"))
    sources = ros.publisher(namespace + "/u", Float64, depth=1)
    answer = lambda message: sources.publish(Float64(data=GAIN * (SET_POINT - message.data)))
    ros.subscribe(namespace + "/y", Float64, answer, depth=1)
    is_ready = False

    def look():
        nonlocal is_ready
        if not is_ready and ros.is_heard(sources):
            is_ready = True
            print("ready", flush=True)

    ros.every(LOOK_PERIOD_S, look)
    ros.spin()


if __name__ == "__main__":
    main()
    os._exit(0)
