# SPDX-License-Identifier: Apache-2.0
"""Receives one flow and notes when each counted message reached its callback.

Standard input: `expect COUNT WAIT_S` ends the run when the last of COUNT
messages has come or after that time; the raw samples are then written.
Standard output: `ready`, `size BYTES` and `first` when the first uncounted message
has arrived intact, `done`, and `written`; the samples are
sequence,sent_ns,received_ns.
"""

import os
import sys
import threading
import time

import flows


class Receiver:
    """Collects (sequence, sent_ns, received_ns) in the order of arrival."""

    def __init__(self, ros, flow):
        self.ros = ros
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
        size = len(self.ros.serialized(message))
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
    arguments = flows.parser_of(__doc__).parse_args()

    ros, flow = flows.start(arguments, "subscriber")
    receiver = Receiver(ros, flow)
    ros.subscribe(flow, receiver.receive, arguments)
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
