# SPDX-License-Identifier: Apache-2.0
"""A program on Cyclone DDS under orders, as ../agent.py: one JSON order per line in, one JSON
report per line out. It uses ROS 2's names and types, and tells no type hashes.

It ends when its input does, so that none outlives the test that started it.
"""

import json
import os
import sys
import threading
import time
from dataclasses import dataclass

from cyclonedds.core import Policy, Qos
from cyclonedds.domain import DomainParticipant
from cyclonedds.idl import IdlStruct
from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from cyclonedds.util import duration

LETTERS = "abcdefghijklmnopqrstuvw"
advertised = {}
subscribed = {}
out_lock = threading.Lock()
# Held while samples are taken: what is deleted meanwhile cannot be read.
entities = threading.Lock()


@dataclass
class String_(IdlStruct, typename="std_msgs::msg::dds_::String_"):
    data: str


def report(**what):
    with out_lock:
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()


def text(size):
    return (LETTERS * (size // len(LETTERS) + 1))[:size]


def profile(best_effort=False, latch=False, depth=10):
    wait = duration(seconds=10)
    policies = [
        Policy.Reliability.BestEffort if best_effort else Policy.Reliability.Reliable(wait),
        Policy.History.KeepLast(depth),
        Policy.DataRepresentation(use_cdrv0_representation=True),
    ]
    if latch:
        policies += [
            Policy.Durability.TransientLocal,
            # In Cyclone DDS, this policy keeps the messages for late joiners.
            Policy.DurabilityService(0, Policy.History.KeepLast(depth), -1, -1, -1),
        ]
    return Qos(*policies)


def topic_of(name):
    return Topic(participant, "rt" + name, String_)


def advertise(topic, type, qos={}):
    advertised[topic] = DataWriter(participant, topic_of(topic), profile(**qos))
    report(did="advertise", topic=topic)


def send_large(topic, size):
    advertised[topic].write(String_(text(size)))
    report(did="send_large", topic=topic)


def unadvertise(topic):
    del advertised[topic]
    report(did="unadvertise", topic=topic)


def subscribe(topic, type, qos={}, brief=False):
    with entities:
        subscribed[topic] = DataReader(participant, topic_of(topic), profile(**qos))
    report(did="subscribe", topic=topic)


def unsubscribe(topic):
    with entities:
        del subscribed[topic]
    report(did="unsubscribe", topic=topic)


def take():
    while True:
        with entities:
            taken = [(topic, reader.take(16)) for topic, reader in subscribed.items()]
        for topic, messages in taken:
            # Other samples tell that a writer has gone.
            for message in (it for it in messages if isinstance(it, String_)):
                size = len(message.data)
                report(got=topic, size=size, sound=message.data == text(size))
        time.sleep(0.01)


def leave():
    with entities:
        participant.__del__()
        report(did="leave")
        os._exit(0)


participant = DomainParticipant(int(os.environ.get("ROS_DOMAIN_ID", "0")))
threading.Thread(target=take, daemon=True).start()
report(did="start", pid=os.getpid())
for line in sys.stdin:
    order = json.loads(line)
    globals()[order.pop("do")](**order)
# Ends without a goodbye, as in a crash. The order "leave" ends it with one.
os._exit(0)
