# SPDX-License-Identifier: Apache-2.0
"""Cyclone DDS by its Python package, with the topic of a ROS 2 publisher."""

import time
from dataclasses import dataclass

from cyclonedds.core import Listener, Policy, Qos
from cyclonedds.domain import DomainParticipant
from cyclonedds.idl import IdlStruct
from cyclonedds.idl._machinery import BytesMachine
from cyclonedds.idl.types import sequence, uint8, uint32
from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from cyclonedds.util import duration

TOPIC = "rt/stream"
BLOCKING_S = 10
"""Longest time for which a writer that keeps all messages blocks."""


@dataclass
class Dimension(IdlStruct, typename="std_msgs::msg::dds_::MultiArrayDimension_"):
    label: str
    size: uint32
    stride: uint32


@dataclass
class Layout(IdlStruct, typename="std_msgs::msg::dds_::MultiArrayLayout_"):
    dim: sequence[Dimension]
    data_offset: uint32


@dataclass
class UInt8MultiArray(IdlStruct, typename="std_msgs::msg::dds_::UInt8MultiArray_"):
    layout: Layout
    data: sequence[uint8]


def take_bytes_as_bytes():
    """Replaces the codec of `data` by the package's own codec for bytes, which has the same encoding.

    The package decodes a sequence of numbers one by one, which takes 150 ms for 4 MB.
    """
    machinery = UInt8MultiArray.__idl__
    machinery.populate()
    for machine in (machinery.v1_machine, machinery.v2_machine):
        machine.members_machines["data"] = BytesMachine()


class Client(Listener):
    """A participant with one topic."""

    def __init__(self, arguments):
        super().__init__()
        self.arguments = arguments
        self.timed = arguments.timed
        self.missed_deadlines = 0
        self.serialize_ns = 0
        self.arrival = 0, 0
        take_bytes_as_bytes()
        self.participant = DomainParticipant()
        self.topic = Topic(self.participant, TOPIC, UInt8MultiArray)
        if self.timed:
            self.time_parts()

    def time_parts(self):
        serialize, deserialize = UInt8MultiArray.serialize, UInt8MultiArray.deserialize

        def serialize_timed(message, *more, **named):
            begin_ns = time.monotonic_ns()
            serialized = serialize(message, *more, **named)
            self.serialize_ns = time.monotonic_ns() - begin_ns
            return serialized

        def deserialize_timed(*more, **named):
            begin_ns = time.monotonic_ns()
            message = deserialize(*more, **named)
            self.arrival = begin_ns, time.monotonic_ns() - begin_ns
            return message

        UInt8MultiArray.serialize = serialize_timed
        UInt8MultiArray.deserialize = staticmethod(deserialize_timed)

    def quality(self):
        wanted = self.arguments
        policies = [
            Policy.Reliability.BestEffort if wanted.best_effort
            else Policy.Reliability.Reliable(duration(seconds=BLOCKING_S)),
            Policy.Durability.TransientLocal if wanted.transient_local
            else Policy.Durability.Volatile,
            Policy.History.KeepLast(wanted.depth) if wanted.depth else Policy.History.KeepAll,
            Policy.DataRepresentation(use_cdrv0_representation=True),
        ]
        if wanted.transient_local:
            policies.append(self.kept_for_late_joiners())
        if wanted.deadline_ms:
            policies.append(Policy.Deadline(duration(milliseconds=wanted.deadline_ms)))
        return Qos(*policies)

    def kept_for_late_joiners(self):
        """Returns the policy that ROS 2 sets: late joiners get as many messages as the history has."""
        depth = self.arguments.depth
        history = Policy.History.KeepLast(depth) if depth else Policy.History.KeepAll
        return Policy.DurabilityService(duration(), history, -1, -1, -1)

    def advertise(self):
        self.writer = DataWriter(self.participant, self.topic, qos=self.quality())
        self.publish = self.writer.write

    def message(self, size):
        return UInt8MultiArray(Layout([], 0), bytearray(size))

    def data(self, message):
        return message.data

    def subscribe(self, receive):
        self.receive = receive
        self.reader = DataReader(
            self.participant, self.topic, qos=self.quality(), listener=self)

    def on_data_available(self, reader):
        for message in reader.take(N=100):
            if isinstance(message, UInt8MultiArray):
                self.receive(message.data)

    def on_requested_deadline_missed(self, reader, status):
        self.missed_deadlines += status.total_count_change
