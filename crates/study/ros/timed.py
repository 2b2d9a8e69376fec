# SPDX-License-Identifier: Apache-2.0
"""One end of a flow of std_msgs/String messages whose size and rate change by command.

The sender publishes on /probe. The receiver notes each message, and with --reply publishes it again on
/reply; the sender then notes when the reply arrives.

Standard input of the sender: `cell ID BYTES PERIOD_NS COUNT` publishes COUNT messages; of both:
`settle WAIT_S` waits until nothing has arrived for a while, at most for WAIT_S; `write` writes the
samples and ends the program.
Standard output: `ready`; `first` when the first uncounted message (with --reply, its reply) has
arrived; `done BEHIND_NS IN_PUBLISH_NS` after a cell: the lateness of its last message, and the time
spent inside publish; `settled`; `written`. Samples of the sender are
cell,sequence,sent_ns,replied_ns, the last 0 without a reply; of the receiver
cell,sequence,received_ns. Times are CLOCK_MONOTONIC.
"""

import argparse
import gc
import random
import select
import sys
import os
import time

from std_msgs.msg import String

# The modules ros1 and ros2 are in the laboratory's folder; on another host, they are in this folder.
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lab/ros"))

WARM_UP_PERIOD_S = 0.25
QUIET_S = 0.4
HEAD = 8
"""Characters of cell and sequence at the start of a message."""
COUNTDOWN_NS = 50_000_000


class Ros1:
    def __init__(self, name, queue):
        import rospy

        import ros1

        self.rospy, self.queue = rospy, queue
        ros1.start(name)

    def publisher(self, topic):
        return self.rospy.Publisher(topic, String, queue_size=self.queue)

    def subscribe(self, topic, receive):
        self.rospy.Subscriber(topic, String, receive, tcp_nodelay=True)

    def spin(self):
        pass


class Ros2:
    """Reliable, volatile, keep last: the paper's quality of service."""

    def __init__(self, name, queue):
        import rclpy
        from rclpy.qos import QoSProfile, ReliabilityPolicy

        import ros2

        self.rclpy = rclpy
        ros2.start(name)
        self.node = ros2.node
        self.quality = QoSProfile(depth=queue, reliability=ReliabilityPolicy.RELIABLE)

    def publisher(self, topic):
        return self.node.create_publisher(String, topic, self.quality)

    def subscribe(self, topic, receive):
        self.node.create_subscription(String, topic, receive, self.quality)

    def spin(self):
        import threading

        threading.Thread(target=self.rclpy.spin, args=(self.node,), daemon=True).start()


class End:
    """What both ends share; `arrivals` are (cell, sequence, received_ns)."""

    def __init__(self, ros, reply_to=None):
        self.arrivals = []
        self.reply_to = reply_to
        self.last_ns = 0
        self.is_first = True

    def receive(self, message):
        now_ns = time.monotonic_ns()
        self.last_ns = now_ns
        if self.reply_to is not None:
            self.reply_to.publish(message)
        cell, sequence = int(message.data[:2], 16), int(message.data[2:HEAD], 16)
        if cell:
            self.arrivals.append((cell, sequence, now_ns))
        elif self.is_first:
            self.is_first = False
            say("first")

    def settle(self, wait_s):
        give_up = time.monotonic() + wait_s
        self.last_ns = max(self.last_ns, time.monotonic_ns())
        while time.monotonic() < give_up:
            if time.monotonic_ns() - self.last_ns > QUIET_S * 1e9:
                break
            time.sleep(0.02)
        say("settled")


def say(words):
    print(words, flush=True)


def text(cell, sequence, filler):
    return "%02x%06x" % (cell, sequence) + filler


def publish_cell(publisher, cell, filler, period_ns, count):
    """Publishes on a schedule that does not drift; returns times of sending, and what to say."""
    message, sent, in_publish_ns = String(), [], 0
    first_ns = time.monotonic_ns() + COUNTDOWN_NS
    for sequence in range(count):
        wait_ns = first_ns + sequence * period_ns - time.monotonic_ns()
        if wait_ns > 0:
            time.sleep(wait_ns / 1e9)
        message.data = text(cell, sequence, filler)
        now_ns = time.monotonic_ns()
        try:
            publisher.publish(message)
        except RuntimeError as error:
            # rclpy gives up if its history stays full; for the receiver, the message is lost.
            print("cell %d, message %d: %s" % (cell, sequence, error), file=sys.stderr)
        in_publish_ns += time.monotonic_ns() - now_ns
        sent.append((cell, sequence, now_ns))
    behind_ns = sent[-1][2] - (first_ns + (count - 1) * period_ns)
    return sent, "done %d %d" % (behind_ns, in_publish_ns)


def send(end, publisher):
    noise = random.Random(1)
    warm_up = String(data=text(0, 0, ""))
    while not select.select([sys.stdin], [], [], WARM_UP_PERIOD_S)[0]:
        publisher.publish(warm_up)
    sent = []
    for line in iter(sys.stdin.readline, ""):
        words = line.split()
        if words[0] == "cell":
            cell, size, period_ns, count = (int(word) for word in words[1:])
            filler = noise.randbytes(size // 2).hex()[: size - HEAD].ljust(size - HEAD, "0")
            more, report = publish_cell(publisher, cell, filler, period_ns, count)
            sent.extend(more)
            say(report)
        elif words[0] == "settle":
            end.settle(float(words[1]))
        else:
            break
    replied = {(cell, sequence): at for cell, sequence, at in reversed(end.arrivals)}
    rows = ["%d,%d,%d,%d\n" % (*it, replied.get(it[:2], 0)) for it in sent]
    return "cell,sequence,sent_ns,replied_ns\n", rows


def receive(end):
    for line in iter(sys.stdin.readline, ""):
        words = line.split()
        if words[0] != "settle":
            break
        end.settle(float(words[1]))
    return "cell,sequence,received_ns\n", ["%d,%d,%d\n" % it for it in list(end.arrivals)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ros", choices=["ros1", "ros2"])
    parser.add_argument("role", choices=["sender", "receiver"])
    parser.add_argument("output")
    parser.add_argument("--queue", type=int, required=True)
    parser.add_argument("--reply", action="store_true")
    arguments = parser.parse_args()

    is_sender = arguments.role == "sender"
    ros = {"ros1": Ros1, "ros2": Ros2}[arguments.ros](arguments.role, arguments.queue)
    publishes = is_sender or arguments.reply
    publisher = ros.publisher("/probe" if is_sender else "/reply") if publishes else None
    end = End(ros, None if is_sender else publisher)
    if not is_sender:
        ros.subscribe("/probe", end.receive)
    elif arguments.reply:
        ros.subscribe("/reply", end.receive)
    ros.spin()
    say("ready")
    gc.collect()
    gc.freeze()
    gc.disable()
    header, rows = send(end, publisher) if is_sender else receive(end)
    with open(arguments.output, "w", encoding="utf-8") as file:
        file.write(header)
        file.writelines(rows)
    say("written")


main()
sys.stdout.flush()
os._exit(0)
