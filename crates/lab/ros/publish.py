# SPDX-License-Identifier: Apache-2.0
"""Publishes one flow on a schedule that does not drift.

Standard input: `start T0_NS COUNT` begins the counted messages at that time of
CLOCK_MONOTONIC; `write` writes the raw samples and ends the program.
Standard output: `ready`, then `done` after the last message, then `written`; the
samples are sequence,sent_ns.
Until `start`, an occasional uncounted message shows that the path works.
"""

import os
import select
import sys
import time

import flows

WARM_UP_PERIOD_S = 0.25


def warm_up(flow, publisher):
    """Publishes uncounted messages until a line arrives; returns its words."""
    message = flow.empty()
    while not select.select([sys.stdin], [], [], WARM_UP_PERIOD_S)[0]:
        flow.mark(message, flows.WARM_UP, time.monotonic_ns())
        publisher.publish(message)
    return sys.stdin.readline().split()


def publish_counted(flow, publisher, first_ns, period_ns, count):
    """Publishes `count` messages on schedule; returns the time at which each was sent."""
    message = flow.empty()
    sent = []
    for sequence in range(count):
        wait_ns = first_ns + sequence * period_ns - time.monotonic_ns()
        if wait_ns > 0:
            time.sleep(wait_ns / flows.NANOSECONDS)
        now_ns = time.monotonic_ns()
        flow.mark(message, sequence, now_ns)
        publisher.publish(message)
        sent.append(now_ns)
    return sent


def main():
    parser = flows.parser_of(__doc__)
    parser.add_argument("--period-us", type=int, required=True)
    arguments = parser.parse_args()

    ros, flow = flows.start(arguments, "publisher")
    publisher = ros.publisher(flow, arguments)
    flows.say("ready")
    words = warm_up(flow, publisher)
    if not words:
        return
    _, first_ns, count = words
    flows.settle_memory()
    sent = publish_counted(
        flow, publisher, int(first_ns), arguments.period_us * 1000, int(count)
    )
    flows.say("done")
    sys.stdin.readline()
    with open(arguments.output, "w") as output:
        output.write("sequence,sent_ns\n")
        output.writelines("%d,%d\n" % sample for sample in enumerate(sent))
    flows.say("written")


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)
