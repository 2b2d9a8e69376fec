#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A small node, written only from protocol.md, on top of decode.py: connects to a real one (or waits
for its handshake), keeps the link up for some seconds, wants whatever is offered, offers one topic of
its own and sends on it. Prints every datagram, decoded, and what happened, as lines of JSON.

It has one link and one peer, repairs only control messages, and keeps its first keys.
"""
import argparse
import base64
import collections
import json
import os
import pathlib
import select
import socket
import sys
import time

import decode as tautline
from noise import Noise, Refused, public_key

PATIENCE = 0.17
INITIATION_LIFE = 5.0
HEARTBEAT = 0.25
LEAST_WINDOW = 8.0
REPAIR_AFTER = 0.3
SEND_EVERY = 0.25
MESSAGE_BYTES = 1 << 21
MESSAGES = 16
REMEMBERED = 1024
REMEMBERED_PACKETS = 8192
CHANNELS = 4096
DATAGRAM = 65536
FLOOD = 64
MOVE_AFTER = 1.0


def micros():
    return time.monotonic_ns() // 1000


def shown(value):
    """Returns a value for JSON, with bytes as hexadecimal text."""
    return value.hex() if isinstance(value, bytes) else [shown(it) for it in value] if isinstance(value, list) else value


class Keys:
    """The result of one handshake."""

    def __init__(self, mine, theirs, sealing, opening, epoch):
        self.mine, self.theirs = mine, theirs
        self.sealing, self.opening, self.epoch = sealing, opening, epoch


class Numbers:
    """Packet numbers that arrived on one of the peer's links."""

    def __init__(self):
        self.largest, self.known, self.arrived = 0, set(), 0

    def expected(self):
        return self.largest + 1

    def note(self, number, arrived):
        if number > self.largest:
            self.largest, self.arrived = number, arrived
        self.known.add(number)
        if len(self.known) > 2 * REMEMBERED_PACKETS:
            self.known = {it for it in self.known if it > self.largest - REMEMBERED_PACKETS}

    def runs(self):
        runs = []
        for number in sorted(self.known, reverse=True):
            if runs and runs[-1][0] == number + 1:
                runs[-1][0] = number
            elif len(runs) == 16:
                break
            else:
                runs.append([number, number])
        return runs


class Messages:
    """Joins pieces of messages: those of channel 0 in their order, others as soon as they are whole."""

    def __init__(self):
        self.parts, self.whole, self.next_control = {}, {}, 1
        self.handed = collections.deque(maxlen=REMEMBERED)

    def take(self, it):
        """The messages that this piece completes: (channel, number, bytes)."""
        place = (it["channel"], it["source"], it["number"])
        if place in self.handed or it["channel"] == 0 and it["number"] < self.next_control:
            return
        data = self.joined(place, it)
        if data is None:
            return
        if it["channel"]:
            self.handed.append(place)
            yield it["channel"], it["number"], data
            return
        if it["number"] - self.next_control >= REMEMBERED:
            raise Refused("value", "number of a control message far ahead")
        self.whole[it["number"]] = data
        while self.next_control in self.whole:
            self.next_control += 1
            yield 0, self.next_control - 1, self.whole.pop(self.next_control - 1)

    def joined(self, place, it):
        piece, fragment = bytes.fromhex(it["payload"]), it["fragment"]
        if fragment is None:
            self.parts.pop(place, None)
            return piece
        if fragment["total"] > MESSAGE_BYTES or len(self.parts) >= MESSAGES and place not in self.parts:
            return None
        data, has = self.parts.setdefault(place, (bytearray(fragment["total"]), set()))
        if len(data) != fragment["total"]:
            return None
        span = range(fragment["offset"], fragment["offset"] + len(piece))
        data[span.start:span.stop] = piece
        has.update(span)
        if len(has) < len(data):
            return None
        del self.parts[place]
        return bytes(data)


class Peer:
    def __init__(self, options):
        self.name, self.options = options.name, options
        self.secret = read_key(options.key)
        self.public = public_key(self.secret)
        self.peer_key = base64.b64decode(options.peer_key, validate=True)
        self.to = options.peer
        self.move_at = None
        self.listen(options.listen)
        self.epoch = int.from_bytes(os.urandom(8), "little")
        self.cookie, self.initiation, self.keys, self.kept, self.session_epoch = None, None, [], [], None
        self.next_initiation = self.next_ping = self.next_send = 0.0
        self.begin_session()

    def listen(self, address):
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_DGRAM)
        self.socket.bind(address)

    def begin_session(self):
        self.sent, self.controls, self.pending, self.messages = 0, 0, {}, Messages()
        self.numbers, self.clocks, self.to_ack = {}, {}, {}
        self.offers, self.wanted, self.data = {}, False, 0

    def say(self, event, **fields):
        print(json.dumps({"at": round(time.monotonic() - self.started, 6), "event": event, **fields}), flush=True)

    def run(self):
        self.started = time.monotonic()
        self.say("listens", address=list(self.socket.getsockname()[:2]), key=base64.b64encode(self.public).decode())
        end = self.started + self.options.seconds
        while (now := time.monotonic()) < end:
            self.due(now)
            if select.select([self.socket], [], [], 0.01)[0]:
                self.got(*self.socket.recvfrom(DATAGRAM))
            self.acknowledge()
        if self.keys:
            self.send(["goodbye"])

    # Timers

    def due(self, now):
        if not self.keys:
            if not self.options.wait and now >= self.next_initiation:
                self.next_initiation = now + PATIENCE
                self.initiate(now)
            return
        late = [number for number, (_, at) in self.pending.items() if now - at > REPAIR_AFTER]
        for number in late:
            frames, _ = self.pending.pop(number)
            self.send(frames, repaired=True)
        if self.move_at is not None and now >= self.move_at:
            self.move_at = None
            self.socket.close()
            self.listen((self.options.listen[0], 0))
            self.say("moved", address=list(self.socket.getsockname()[:2]))
        if now >= self.next_ping:
            self.next_ping = now + HEARTBEAT
            self.send(["ping", self.clock_frame()])
        if self.wanted and now >= self.next_send:
            self.next_send = now + SEND_EVERY
            self.data += 1
            self.send([data_frame(1, self.data, self.options.payload)])

    def flood(self):
        """Uses up the initiations that the peer reads without a cookie: only their MAC1 is correct."""
        with socket.socket(self.socket.family, socket.SOCK_DGRAM) as other:
            for _ in range(FLOOD):
                other.sendto(tautline.emit_initiation(1, os.urandom(len(self.initiation["first"])), self.peer_key), self.to)

    def initiate(self, now):
        if self.initiation is None or now - self.initiation["made"] > INITIATION_LIFE:
            noise = Noise(self.secret, os.urandom(32), self.peer_key)
            first = noise.initiation(self.peer_key, tautline.emit_greeting(self.epoch, self.name))
            self.initiation = {"noise": noise, "first": first, "session": self.draw_session(), "made": now}
        if self.options.flood and self.cookie is None:
            self.flood()
        data = tautline.emit_initiation(self.initiation["session"], self.initiation["first"], self.peer_key, self.cookie)
        self.initiation["mac1"] = data[-32:-16]
        self.write(data, self.to)

    def draw_session(self):
        used = {keys.mine for keys in self.keys + self.kept} | {0}
        while (number := int.from_bytes(os.urandom(4), "little")) in used:
            pass
        return number

    # Sending

    def write(self, data, to):
        self.record("sent", to, data, tautline.parse_packet(data))
        self.socket.sendto(data, to)

    def record(self, way, address, data, packet, **more):
        fields = {name: shown(value) for name, value in packet.items() if name not in ("header", "sealed")}
        self.say(way, address=list(address[:2]), hex=data.hex(), packet=fields, **more)

    def send(self, frames, to=None, repaired=False):
        self.sent += 1
        keys, clock = self.keys[-1], micros() & tautline.U32
        data = tautline.seal_session(keys.sealing, keys.theirs, 0, self.sent, clock, tautline.emit_frames(frames), True)
        to = to or self.to
        self.record("sent", to, data, tautline.parse_packet(data), clock=clock, frames=frames, repaired=repaired)
        self.socket.sendto(data, to)
        if any("data" in frame and frame["data"]["channel"] == 0 for frame in frames):
            self.pending[self.sent] = (frames, time.monotonic())

    def control(self, control):
        self.controls += 1
        payload = tautline.emit_control(control)
        self.say("tells", control=control)
        self.send([data_frame(0, self.controls, payload)])

    def clock_frame(self):
        clock = micros()
        least = None
        if self.clocks:
            # Differences are modulo 2^32: the least one is the furthest behind the others.
            values = list(self.clocks.values())
            least = min(values, key=lambda it: (it - values[0] + 2**31) & tautline.U32)
        wall = time.time_ns() // 1000 - (micros() - clock)
        return {"clock": {"least_us": least, "wall_us": str(wall)}}

    def acknowledge(self):
        for link in list(self.to_ack):
            del self.to_ack[link]
            numbers = self.numbers[link]
            ack = {"link": link, "delay_us": micros() - numbers.arrived, "waited_us": 0, "least_waited_us": 0,
                   "capable": 0, "marked": 0,
                   "ranges": numbers.runs()}
            self.send([{"ack": ack}])

    # Receiving

    def got(self, data, source):
        try:
            packet = tautline.parse_packet(data)
            if packet["kind"] == "session":
                return self.got_session(data, packet, source)
            self.record("got", source, data, packet)
            take = {"answer": self.got_response, "cookie": self.got_cookie, "call": self.got_initiation}
            take.get(packet["kind"], lambda *_: None)(data, packet, source)
        except Refused as refused:
            self.say("refused", address=list(source[:2]), hex=data.hex(), error=str(refused))

    def got_cookie(self, _data, packet, _source):
        if not self.initiation or packet["your_session"] != self.initiation["session"]:
            raise Refused("value", "no such call")
        self.cookie = tautline.open_cookie(packet, self.peer_key, self.initiation["mac1"])
        self.say("cookie", cookie=self.cookie.hex())
        self.initiate(time.monotonic())

    def got_response(self, data, packet, source):
        if not self.initiation or packet["your_session"] != self.initiation["session"]:
            raise Refused("value", "no such call")
        if not tautline.mac1_holds(data, self.public):
            raise Refused("mac1")
        if self.options.flood and self.cookie is None:
            # Our initiation was read before the flood had used up the limit.
            return
        verdict = tautline.parse_verdict(self.initiation["noise"].read_response(packet["noise"]))
        self.say("answered", **verdict)
        initiation, self.initiation = self.initiation, None
        if verdict["verdict"] != "welcome":
            self.next_initiation = time.monotonic() + INITIATION_LIFE
            return
        sealing, opening = initiation["noise"].split()
        self.use(Keys(initiation["session"], packet["session"], sealing, opening, verdict["epoch"]))

    def got_initiation(self, data, packet, source):
        if not tautline.mac1_holds(data, self.public):
            raise Refused("mac1")
        noise = Noise(self.secret, os.urandom(32), self.public)
        initiator, payload = noise.read_initiation(packet["noise"])
        greeting = tautline.parse_greeting(payload)
        self.say("called", key=base64.b64encode(initiator).decode(), **greeting)
        if initiator != self.peer_key:
            raise Refused("value", "no peer's key")
        session = self.draw_session()
        response = noise.response(self.epoch.to_bytes(8, "little") + b"\0")
        opening, sealing = noise.split()
        self.kept = self.kept[-3:] + [Keys(session, packet["session"], sealing, opening, greeting["epoch"])]
        self.write(tautline.emit_response(session, packet["session"], response, initiator), source)

    def use(self, keys):
        """Begins a session if the epoch is new; otherwise continues the session under these keys."""
        self.keys = self.keys[-2:] + [keys]
        self.say("keys", mine=keys.mine, theirs=keys.theirs, epoch=keys.epoch)
        if keys.epoch != self.session_epoch:
            self.keys, self.session_epoch = [keys], keys.epoch
            self.move_at = time.monotonic() + MOVE_AFTER if self.options.move else None
            self.begin_session()
            self.control({"offer": self.options.offer})
        self.send(["ping", self.clock_frame()])

    def got_session(self, data, packet, source):
        arrived = micros()
        found = [keys for keys in self.keys + self.kept if keys.mine == packet["session"]]
        if not found:
            raise Refused("value", "session")
        [keys] = found
        new = keys in self.kept and keys.epoch != self.session_epoch
        numbers = Numbers() if new else self.numbers.setdefault(packet["link"], Numbers())
        number = tautline.full_number(packet["number"], numbers.expected())
        clock, plain = tautline.open_session(packet, keys.opening, number)
        frames = tautline.parse_frames(plain)
        self.record("got", source, data, packet, clock=clock, frames=frames, number=number)
        if keys in self.kept:
            self.kept.remove(keys)
            self.to = source
            self.use(keys)
            numbers = self.numbers.setdefault(packet["link"], Numbers())
        if number in numbers.known or number + REMEMBERED_PACKETS <= numbers.largest:
            return self.say("duplicate", number=number)
        numbers.note(number, arrived)
        if clock is not None:
            self.clocks = {at: it for at, it in self.clocks.items() if arrived - at < LEAST_WINDOW * 1e6}
            self.clocks[arrived] = (arrived - clock) & tautline.U32
        for frame in frames:
            self.got_frame(frame, packet["link"], source)
            if frame == "goodbye":
                return

    def got_frame(self, frame, link, source):
        kind, it = (frame, None) if isinstance(frame, str) else next(iter(frame.items()))
        if kind in ("data", "ping", "relay"):
            self.to_ack[link] = True
        if kind == "goodbye":
            self.epoch, self.session_epoch = int.from_bytes(os.urandom(8), "little"), None
            self.initiation, self.keys, self.kept = None, [], []
            return self.begin_session()
        if kind == "challenge":
            self.send([{"echo": it}], to=source)
        if kind == "ack":
            sent = [number for number in self.pending if any(a <= number <= b for a, b in it["ranges"])]
            for number in sent:
                del self.pending[number]
        # Presence messages concern late joiners only.
        if kind == "data" and it["source"] != PRESENCE:
            for channel, number, data in self.messages.take(it):
                self.got_message(channel, number, data)

    def got_message(self, channel, number, data):
        if channel:
            return self.say("message", channel=channel, topic=self.offers.get(channel, {}).get("name"), number=number,
                            payload=data.hex())
        try:
            control = tautline.parse_control(data)
        except Refused as refused:
            return self.say("refused", control=data.hex(), error=str(refused))
        self.say("told", control=control)
        kind, it = next(iter(control.items()))
        if kind == "offer" and len(self.offers) < CHANNELS:
            self.offers[it["channel"]] = it
            self.control({"get_definition": {"channel": it["channel"]}})
            self.control({"want": {"channel": it["channel"], "wanted": True}})
        elif kind == "want" and it["channel"] == 1:
            self.wanted = it["wanted"]
        elif kind == "get_definition":
            self.control({"definition": {"channel": it["channel"], "text": self.options.definition}})


# The source of presence messages.
PRESENCE = 255


def data_frame(channel, number, payload):
    return {"data": {"channel": channel, "number": number, "source": 0, "encoded": False, "age_us": 0,
                     "fragment": None, "payload": payload.hex()}}


def read_key(path):
    lines = [line.strip() for line in pathlib.Path(path).read_text().splitlines()]
    [line] = [line for line in lines if line and not line.startswith("#")]
    label, _, key = line.partition(":")
    if label != "tautline-secret-key":
        sys.exit(f"{path}: '{label}' where 'tautline-secret-key' belongs")
    return base64.b64decode(key.strip(), validate=True)


def address(text):
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", required=True, help="of this node")
    parser.add_argument("--key", required=True, help="file of its secret key, made by tautline keygen")
    parser.add_argument("--listen", type=address, default=("127.0.0.1", 0), metavar="HOST:PORT")
    parser.add_argument("--peer", type=address, required=True, metavar="HOST:PORT")
    parser.add_argument("--peer-key", required=True, help="the peer's public key, base64")
    parser.add_argument("--wait", action="store_true", help="to be called, instead of calling")
    parser.add_argument("--flood", action="store_true", help="other calls first, so that ours needs a cookie")
    parser.add_argument("--move", action="store_true", help="to another port, a second after the session began")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--topic", default="/spoken", help="what is offered")
    parser.add_argument("--type", default="std_msgs/String")
    parser.add_argument("--hash", default="992ce8a1687cec8c8bd883ec73ca41d1")
    parser.add_argument("--definition", default="string data\n")
    parser.add_argument("--payload", type=bytes.fromhex, default="0500000068656c6c6f", metavar="HEX", help="its message")
    options = parser.parse_args()
    options.offer = {"channel": 1, "name": options.topic, "type": options.type, "hash": options.hash, "priority": 128,
                     "keep_last": 10, "lifespan_ms": None, "transient_local": False, "reliable": True,
                     "manual_liveliness": False, "depth": 10, "deadline_ms": None, "lease_ms": None, "role": "topic",
                     "order": "arrival"}
    return options


if __name__ == "__main__":
    Peer(parse_options()).run()
