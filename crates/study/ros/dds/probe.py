# SPDX-License-Identifier: Apache-2.0
"""A publisher, a subscriber, or both in one process, of the DDS study.

Arguments: the client library, the role, a prefix of files, and options. Each message is an array of
bytes that begins with its number and the time at which it was published: two little-endian 64-bit
numbers, as in `tautline-lab dds-end`. Times are CLOCK_MONOTONIC nanoseconds, which all programs of
this machine share.

Standard input, one command per line:
`batch FIRST SIZE COUNT PERIOD_US START_NS LIMIT_S` publishes COUNT messages numbered from FIRST;
`batch-done SENT` follows, with fewer messages if publishing took longer than the limit.
`await FIRST COUNT PATIENCE_S` waits for COUNT messages numbered from FIRST, until that many have
arrived or none has for that time; `received NUMBER DEADLINES` follows, with the missed deadlines
that the middleware has counted between the first and the last message of the batch.
`write` writes the samples to PREFIX.sent.csv and PREFIX.received.csv; `written` follows.
Standard output also has `ready NS` and, with `--warm`, `first` when the first message has arrived.
The program ends when its standard input ends.
"""

import argparse
import gc
import importlib
import os
import select
import struct
import sys
import threading
import time

STAMP = struct.Struct("<QQ")
WARM_UP = 999_999_999_999
"""Number of messages that only show that the path works, as in `flows.py`."""
WARM_UP_PERIOD_S = 0.05
BATCH = 1_000_000
"""Numbers of a batch are FIRST to FIRST + BATCH - 1."""
NANOSECONDS = 1_000_000_000


def say(word):
    print(word, flush=True)


class Sender:
    """Publishes batches on a schedule that does not drift."""

    def __init__(self, client):
        self.client = client
        self.sent = []
        self.parts = []
        client.advertise()

    def warm_up(self):
        """Publishes uncounted messages until a command arrives."""
        message = self.client.message(256)
        while not select.select([sys.stdin], [], [], WARM_UP_PERIOD_S)[0]:
            STAMP.pack_into(self.client.data(message), 0, WARM_UP, time.monotonic_ns())
            self.client.publish(message)

    def batch(self, first, size, count, period_us, start_ns, limit_s):
        message = self.client.message(size)
        data, publish = self.client.data(message), self.client.publish
        give_up = start_ns + count * period_us * 1000 + int(limit_s * NANOSECONDS)
        for index in range(count):
            wait_ns = start_ns + index * period_us * 1000 - time.monotonic_ns()
            if wait_ns > 0:
                time.sleep(wait_ns / NANOSECONDS)
            now_ns = time.monotonic_ns()
            if now_ns > give_up:
                return index
            STAMP.pack_into(data, 0, first + index, now_ns)
            publish(message)
            self.sent.append((first + index, now_ns))
            if self.client.timed:
                done_ns = time.monotonic_ns()
                self.parts.append((first + index, self.client.serialize_ns, done_ns - now_ns))
        return count

    def write(self, prefix):
        write(prefix + ".sent.csv", "sequence,sent_ns", self.sent)
        if self.client.timed:
            write(prefix + ".sent-parts.csv", "sequence,serialize_ns,publish_ns", self.parts)


class Receiver:
    """Notes when each message reached its callback."""

    def __init__(self, client):
        self.client = client
        self.samples = []
        self.parts = []
        self.is_announced = False
        self.warm = False
        self.last_ns = 0
        self.batch = -1
        self.missed_deadlines = 0
        self.news = threading.Condition()
        client.subscribe(self.receive)

    def receive(self, data):
        received_ns = time.monotonic_ns()
        sequence, sent_ns = STAMP.unpack_from(data)
        if sequence == WARM_UP:
            # `first` must follow `ready`: before `ready`, leave it to the next message.
            if self.is_announced and not self.warm:
                self.warm = True
                say("first")
            return
        self.count_deadlines(sequence // BATCH)
        self.samples.append((sequence, sent_ns, received_ns))
        if self.client.timed:
            arrived_ns, deserialize_ns = self.client.arrival
            self.parts.append((sequence, arrived_ns, deserialize_ns))
        with self.news:
            self.last_ns = received_ns
            self.news.notify()

    def count_deadlines(self, batch):
        """Counts missed deadlines between the first and the last message of a batch, not earlier ones."""
        if batch != self.batch:
            self.batch, self.client.missed_deadlines = batch, 0
        self.missed_deadlines = self.client.missed_deadlines

    def wait(self, first, count, patience_s):
        """Waits until a batch is complete or no more messages come; returns the number of its messages."""
        patience_ns = int(patience_s * NANOSECONDS)
        seen, at, begin_ns = set(), 0, time.monotonic_ns()
        with self.news:
            while True:
                for sequence, _, _ in self.samples[at:]:
                    if first <= sequence < first + BATCH:
                        seen.add(sequence)
                at = len(self.samples)
                idle_ns = time.monotonic_ns() - max(self.last_ns, begin_ns)
                if len(seen) >= count or idle_ns >= patience_ns:
                    return len(seen)
                self.news.wait((patience_ns - idle_ns) / NANOSECONDS)

    def write(self, prefix):
        write(prefix + ".received.csv", "sequence,sent_ns,received_ns", self.samples)
        if self.client.timed:
            write(prefix + ".received-parts.csv", "sequence,arrived_ns,deserialize_ns", self.parts)


def write(path, title, rows):
    with open(path, "w") as output:
        output.write(title + "\n")
        output.writelines(",".join(map(str, row)) + "\n" for row in list(rows))


def obey(line, sender, receiver, prefix):
    words = line.split()
    if words[0] == "batch":
        first, size, count, period_us, start_ns = map(int, words[1:6])
        limit_s = float(words[6])
        say("batch-done %d" % sender.batch(first, size, count, period_us, start_ns, limit_s))
    elif words[0] == "await":
        received = receiver.wait(int(words[1]), int(words[2]), float(words[3]))
        say("received %d %d" % (received, receiver.missed_deadlines))
    elif words[0] == "write":
        for end in (sender, receiver):
            if end:
                end.write(prefix)
        say("written")
    else:
        sys.exit("probe: '%s'; allowed: batch, await, write" % words[0])


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("client", choices=["rospy", "rclpy", "cyclone", "zenoh"])
    parser.add_argument("role", choices=["publish", "subscribe", "both"])
    parser.add_argument("prefix", help="of the files of samples")
    parser.add_argument("--warm", action="store_true", help="publish until the first command")
    parser.add_argument("--timed", action="store_true", help="note the parts of the time")
    parser.add_argument("--best-effort", action="store_true", help="DDS: instead of reliable")
    parser.add_argument("--transient-local", action="store_true",
                        help="DDS: instead of volatile; ROS 1: latched")
    parser.add_argument("--depth", type=int, default=10,
                        help="DDS: keep last; ROS 1: the publisher's queue_size; 0 keeps all, "
                             "and a ROS 1 publisher then waits for its subscribers")
    parser.add_argument("--deadline-ms", type=int, default=0, help="DDS: 0 is none")
    parser.add_argument("--listen", help="zenoh: endpoint of the subscriber")
    parser.add_argument("--connect", help="zenoh: endpoint to connect to")
    parser.add_argument("--no-shared-memory", action="store_true", help="zenoh: TCP alone")
    return parser.parse_args()


def main():
    arguments = parse()
    client = importlib.import_module("with_" + arguments.client).Client(arguments)
    receiver = Receiver(client) if arguments.role != "publish" else None
    sender = Sender(client) if arguments.role != "subscribe" else None
    gc.collect()
    gc.freeze()
    gc.disable()
    say("ready %d" % time.monotonic_ns())
    if receiver:
        receiver.is_announced = True
    if arguments.warm and sender:
        sender.warm_up()
    for line in iter(sys.stdin.readline, ""):
        obey(line, sender, receiver, arguments.prefix)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)
