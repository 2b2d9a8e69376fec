# SPDX-License-Identifier: Apache-2.0
"""Receives one flow and notes when each counted message reached its callback.

Standard input: `expect COUNT WAIT_S` ends the run when the last of COUNT
messages has come or after that time; the raw samples are then written.
Standard output: `ready`, `size BYTES` and `first` when the first uncounted message
has come through whole, `done`, and `written`.
"""

import argparse
import os
import sys
import threading
import time

import rospy

import flows


class Receiver:
    """Collects (sequence, sent_ns, received_ns) in the order of arrival."""

    def __init__(self, flow):
        self.flow = flow
        self.samples = []
        self.warm = False
        self.expected = None
        self.complete = threading.Event()

    def receive(self, message):
        received_ns = time.monotonic_ns()
        sequence, sent_ns = self.flow.read(message)
        if sequence == flows.WARM_UP:
            self.report_first(message)
            return
        self.samples.append((sequence, sent_ns, received_ns))
        if self.is_complete():
            self.complete.set()

    def report_first(self, message):
        if self.warm:
            return
        self.warm = True
        if not self.flow.is_intact(message):
            print("the first %s differs from what was sent" % self.flow.topic, file=sys.stderr)
            os._exit(1)
        size = len(flows.serialized(message))
        flows.settle_memory()
        flows.say("size %d" % size)
        flows.say("first")

    def is_complete(self):
        return self.expected is not None and len(self.samples) >= self.expected

    def wait(self, count, wait_s):
        self.expected = count
        if not self.is_complete():
            self.complete.wait(wait_s)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("flow", choices=flows.FLOWS)
    parser.add_argument("output", help="file of raw samples: sequence,sent_ns,received_ns")
    parser.add_argument("--nodelay", action="store_true", help="ask for TCP_NODELAY")
    arguments = parser.parse_args()

    flow = flows.FLOWS[arguments.flow]()
    receiver = Receiver(flow)
    flows.await_master()
    rospy.init_node("%s_subscriber" % arguments.flow, disable_signals=True, disable_rosout=True)
    rospy.Subscriber(
        flow.topic, flow.message_class, receiver.receive, tcp_nodelay=arguments.nodelay
    )
    flows.say("ready")
    words = sys.stdin.readline().split()
    if not words:
        return
    _, count, wait_s = words
    receiver.wait(int(count), float(wait_s))
    flows.say("done")
    with open(arguments.output, "w") as output:
        output.write("sequence,sent_ns,received_ns\n")
        output.writelines("%d,%d,%d\n" % sample for sample in list(receiver.samples))
    flows.say("written")


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)
