# SPDX-License-Identifier: Apache-2.0
"""Serves and calls services on Cyclone DDS as rmw_cyclonedds does, for which there is no wheel: requests
and responses begin with the numbers of the client and of the request. Orders and reports have the form
of agent.py's. The second argument, if present, is the user data of all endpoints."""

import json
import os
import random
import sys
import threading
import time
from dataclasses import dataclass

from cyclonedds.core import Policy, Qos
from cyclonedds.domain import DomainParticipant
from cyclonedds.idl import IdlStruct, annotations as annotate
from cyclonedds.idl.types import int64, uint64
from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from cyclonedds.util import duration

participant = DomainParticipant(0)
me = random.getrandbits(64)
out_lock = threading.Lock()
kept = []
clients = {}
mark = (Policy.Userdata(sys.argv[2].encode()),) if len(sys.argv) > 2 else ()
qos = Qos(
    *mark,
    Policy.Reliability.Reliable(duration(seconds=10)),
    Policy.History.KeepLast(10),
    Policy.DataRepresentation(use_cdrv0_representation=True),
)


def report(**what):
    with out_lock:
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()


def types(dds_type):
    """A request with a Boolean, a response with a Boolean and a text."""
    @dataclass
    class Request(IdlStruct, typename=dds_type + "_Request_"):
        client: uint64
        number: int64
        data: bool

    @dataclass
    class Response(IdlStruct, typename=dds_type + "_Response_"):
        client: uint64
        number: int64
        success: bool
        message: str

    return Request, Response


def endpoints(service, dds_type):
    request, response = types(dds_type)
    name = service.lstrip("/")
    return (
        Topic(participant, f"rq/{name}Request", request, qos=qos),
        Topic(participant, f"rr/{name}Reply", response, qos=qos),
        request,
        response,
    )


def serve(service, dds_type):
    requests, replies, _, Response = endpoints(service, dds_type)
    reader, writer = DataReader(participant, requests, qos=qos), DataWriter(participant, replies, qos=qos)

    def loop():
        while True:
            for got in reader.take(N=10):
                report(served=service, data=got.data)
                writer.write(Response(got.client, got.number, got.data, f"cyclone {got.data}"))
            time.sleep(0.01)

    threading.Thread(target=loop, daemon=True).start()
    report(did="serve", service=service)


def call(service, dds_type, data, id):
    if service not in clients:
        requests, replies, Request, _ = endpoints(service, dds_type)
        clients[service] = (
            DataWriter(participant, requests, qos=qos),
            DataReader(participant, replies, qos=qos),
            Request,
        )
    writer, reader, Request = clients[service]
    while not (writer.get_matched_subscriptions() and reader.get_matched_publications()):
        time.sleep(0.01)
    writer.write(Request(me, id, data))
    report(did="call", guid=writer.guid.hex)
    while True:
        for got in reader.take(N=10):
            if (got.client, got.number) == (me, id):
                return report(answered=id, success=got.success, message=got.message)
        time.sleep(0.01)


def odd(topic, dds_type, keyed=False, xcdr2=False, reads=False):
    """Creates an endpoint that ROS 2 itself would not create: of a type with a key, or in XCDR2."""
    @dataclass
    class Odd(IdlStruct, typename=dds_type):
        id: int64
        if keyed:
            annotate.key("id")

    own = Policy.DataRepresentation(use_cdrv0_representation=True)
    representation = Policy.DataRepresentation(
        use_cdrv0_representation=not xcdr2, use_xcdrv2_representation=xcdr2
    )
    policies = Qos(*(policy for policy in qos if policy != own), representation)
    found = Topic(participant, "rt" + topic, Odd, qos=policies)
    kept.append((DataReader if reads else DataWriter)(participant, found, qos=policies))
    report(did="odd", topic=topic)


def leave_all():
    kept.clear()
    report(did="leave_all")


report(did="start", pid=os.getpid())
for line in sys.stdin:
    order = json.loads(line)
    globals()[order.pop("do")](**order)
os._exit(0)
