# SPDX-License-Identifier: Apache-2.0
"""Senders and echoers of the study of scaling: a sender publishes numbered messages, each echoer
publishes them again at once, and the sender notes when it sent and received each number.

Sender N publishes /out/KIND/sN; echoer M answers on /back/KIND/sN_eM. A process has one sender or echoer, or
several if several numbers are given. The other ends are given as numbers, or as `own`: each sender and
echoer then has the other end with its own number.

Standard input of a sender: `start DELAY_NS SECONDS PERIOD_NS`, `drain SECONDS`. Standard output:
`ready`; `first` when a message has come back from each echoer; `done`; `drained`; `written`. The
samples are sequence,echoer,sent_ns,received_ns; received_ns is 0 if the echo did not come back.
An echoer says `ready` and ends when its standard input ends.
"""

import argparse
import functools
import os
import select
import sys
import threading
import time

import echo_ends
import echo_messages

WARM_UP_PERIOD_S = 0.1
# Number of warm-up messages, which no counted message has.
WARM_UP = 10 ** 14


def say(text):
    print(text, flush=True)


def out(kind, sender):
    return "/out/%s/s%d" % (kind, sender)


def back(kind, sender, echoer):
    return "/back/%s/s%d_e%d" % (kind, sender, echoer)


class Sender:
    """Publishes /out_N and collects what comes back."""

    def __init__(self, library, contents, number, echoers):
        self.contents = contents
        self.echoers = echoers
        self.warm = set()
        self.sent = []
        self.received = {echoer: {} for echoer in echoers}
        for echoer in echoers:
            receive = functools.partial(self.receive, echoer)
            library.subscribe(back(contents.kind, number, echoer), contents.message_class, receive)
        self.publisher = library.publisher(out(contents.kind, number), contents.message_class)

    def receive(self, echoer, message):
        now_ns = time.monotonic_ns()
        sequence = self.contents.number(message)
        if sequence == WARM_UP:
            self.warm.add(echoer)
        else:
            self.received[echoer].setdefault(sequence, now_ns)

    def is_warm(self):
        return len(self.warm) == len(self.echoers)

    def publish(self, sequence):
        message = self.contents.numbered(sequence)
        now_ns = time.monotonic_ns()
        self.publisher.publish(message)
        return now_ns

    def send_all(self, first_ns, end_ns, period_ns):
        """Publishes on a schedule that does not drift; late messages follow at once."""
        due_ns = first_ns
        while due_ns < end_ns and time.monotonic_ns() < end_ns:
            echo_ends.sleep_until(due_ns)
            self.sent.append(self.publish(len(self.sent)))
            due_ns += period_ns

    def is_complete(self):
        return all(len(echoes) >= len(self.sent) for echoes in self.received.values())

    def write(self, file):
        with open(file, "w") as output:
            output.write("sequence,echoer,sent_ns,received_ns\n")
            for echoer, echoes in self.received.items():
                for sequence, sent_ns in enumerate(self.sent):
                    row = sequence, echoer, sent_ns, echoes.get(sequence, 0)
                    output.write("%d,%d,%d,%d\n" % row)


def await_words():
    """Returns the words of the next line; ends the program at the end of the input."""
    words = sys.stdin.readline().split()
    if not words:
        os._exit(0)
    return words


def warm_up(senders):
    """Publishes uncounted messages until one has come back from each echoer."""
    while not all(sender.is_warm() for sender in senders):
        for sender in senders:
            if not sender.is_warm():
                sender.publish(WARM_UP)
        if select.select([sys.stdin], [], [], WARM_UP_PERIOD_S)[0] and not sys.stdin.readline():
            os._exit(0)


def run_senders(senders, numbers, folder):
    warm_up(senders)
    echo_ends.settle_memory()
    say("first")
    _, delay_ns, seconds, period_ns = await_words()
    first_ns = time.monotonic_ns() + int(delay_ns)
    end_ns = first_ns + int(float(seconds) * 1e9)
    schedule = first_ns, end_ns, int(period_ns)
    threads = [threading.Thread(target=it.send_all, args=schedule) for it in senders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    say("done")
    _, patience_s = await_words()
    give_up = time.monotonic() + float(patience_s)
    while time.monotonic() < give_up and not all(it.is_complete() for it in senders):
        time.sleep(0.02)
    say("drained")
    for number, sender in zip(numbers, senders):
        sender.write(os.path.join(folder, "sender-%d.csv" % number))
    say("written")


def echo(library, contents, sender, number):
    """Answers one sender: each message is published again, unchanged."""
    # The publisher is created first, since the first message may arrive at once.
    topic, message_class = back(contents.kind, sender, number), contents.message_class
    publisher = library.publisher(topic, message_class)
    library.subscribe(out(contents.kind, sender), message_class, publisher.publish)


def numbers_of(text):
    return [int(number) for number in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=["sender", "echoer"])
    parser.add_argument("client", choices=echo_ends.LIBRARIES)
    parser.add_argument("numbers", type=numbers_of, help="numbers of these senders or echoers")
    parser.add_argument("others", help="numbers of their counterparts, or own")
    parser.add_argument("folder", help="folder of the raw samples")
    parser.add_argument("--kind", choices=["text", "scan", "image", "recorded"], default="text")
    parser.add_argument("--bytes", type=int, default=64, help="size of a text in ROS 1")
    parser.add_argument("--bag", default="", help="recording")
    parser.add_argument("--topic", default="", help="topic of the recording")
    parser.add_argument("--nodelay", action="store_true", help="rospy: subscribe with TCP_NODELAY")
    parser.add_argument("--listen", action="append", default=[], help="zenoh: endpoint")
    parser.add_argument("--connect", action="append", default=[], help="zenoh: endpoint")
    arguments = parser.parse_args()

    def contents():
        made = echo_messages.messages_of(
            arguments.kind, arguments.bytes, arguments.bag, arguments.topic)
        made.kind = arguments.kind
        return made

    def others_of(number):
        return [number] if arguments.others == "own" else numbers_of(arguments.others)

    name = "%s_%d" % (arguments.role, arguments.numbers[0])
    library = echo_ends.LIBRARIES[arguments.client](name, arguments)
    if arguments.role == "echoer":
        echoed = contents()
        for number in arguments.numbers:
            for sender in others_of(number):
                echo(library, echoed, sender, number)
        echo_ends.settle_memory()
        library.spin()
        say("ready")
        sys.stdin.read()
        return
    senders = [Sender(library, contents(), it, others_of(it)) for it in arguments.numbers]
    library.spin()
    say("ready")
    run_senders(senders, arguments.numbers, arguments.folder)
    # Leaves the topics only when standard input ends, so that all programs of a run end together.
    sys.stdin.read()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)
