# SPDX-License-Identifier: Apache-2.0
"""zenoh by its Python package: peers that connect by TCP, without scouting.

By default, zenoh passes large messages of one computer through shared memory.
"""

import json

import zenoh

KEY = "stream"


class Client:
    """A session with one key."""

    missed_deadlines = 0
    timed = False

    def __init__(self, arguments):
        config = zenoh.Config()
        config.insert_json5("scouting/multicast/enabled", "false")
        config.insert_json5("scouting/gossip/enabled", "false")
        config.insert_json5("listen/endpoints", json.dumps(as_list(arguments.listen)))
        config.insert_json5("connect/endpoints", json.dumps(as_list(arguments.connect)))
        if arguments.no_shared_memory:
            config.insert_json5("transport/shared_memory/enabled", "false")
        self.session = zenoh.open(config)
        self.best_effort = arguments.best_effort

    def advertise(self):
        drop, block = zenoh.CongestionControl.DROP, zenoh.CongestionControl.BLOCK
        self.publisher = self.session.declare_publisher(
            KEY, congestion_control=drop if self.best_effort else block)

    def publish(self, message):
        self.publisher.put(bytes(message))

    def message(self, size):
        return bytearray(size)

    def data(self, message):
        return message

    def subscribe(self, receive):
        self.subscriber = self.session.declare_subscriber(
            KEY, lambda sample: receive(sample.payload.to_bytes()))


def as_list(endpoint):
    return [endpoint] if endpoint else []
