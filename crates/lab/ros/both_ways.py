# SPDX-License-Identifier: Apache-2.0
"""Publishes a scan of 1 KB every 20 ms on one topic and records the messages of another.

Arguments: the published topic, the subscribed topic, and a file. When a message reaches its
callback, the file immediately gets a line sequence,sent_ns,received_ns.
Standard output: `master NS` with the time at which the program saw the master respond. The
program ends when its standard input ends.
"""

import os
import sys
import threading
import time

import rospy

import flows
import ros1

PERIOD_NS = 20_000_000


def note_arrivals(flow, topic, output):
    def receive(message):
        received_ns = time.monotonic_ns()
        output.write("%d,%d,%d\n" % (*flow.read(message), received_ns))

    rospy.Subscriber(topic, flow.message_class, receive, tcp_nodelay=True)


def publish(flow, topic):
    """Publishes on a schedule that does not drift, without end."""
    publisher = rospy.Publisher(topic, flow.message_class, queue_size=1)
    message, first_ns, sequence = flow.empty(), time.monotonic_ns(), 0
    while True:
        now_ns = time.monotonic_ns()
        flow.mark(message, sequence, now_ns)
        publisher.publish(message)
        sequence += 1
        wait_ns = first_ns + sequence * PERIOD_NS - time.monotonic_ns()
        time.sleep(max(wait_ns, 0) / flows.NANOSECONDS)


def main():
    published, received, path = sys.argv[1:]
    flow = flows.Laser(ros1)
    ros1.await_master()
    flows.say("master %d" % time.monotonic_ns())
    rospy.init_node("both_ways", disable_signals=True, disable_rosout=True)
    flows.settle_memory()
    note_arrivals(flow, received, open(path, "w", buffering=1))
    threading.Thread(target=publish, args=(flow, published), daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
    os._exit(0)
