# SPDX-License-Identifier: Apache-2.0
"""Reads and writes Tautline's packets, written only from protocol.md: a second implementation,
which shows whether the page and the vectors suffice. Python 3.11 and python3-cryptography.

noise.py has its keys and its handshake, check_vectors.py compares all of it with the vectors, and peer.py
adds a node that connects to real ones.
"""
import hmac
import ipaddress
import math
import struct

from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from noise import Refused, agree, hmac256, mac, open_sealed, public_key, sha256

INITIATION, RESPONSE, COOKIE, BEACON = range(4)
VERDICTS = ["welcome", "name", "twin"]
U32, U64 = 2**32 - 1, 2**64 - 1
TEXT_BYTES = 1024
DEFINITION_BYTES = 1 << 20
ACK_RUNS = 32
MAX_CHANNEL = 2**63 - 1
MAX_BLOCK = 128
MAX_CANDIDATES = 8


def check(fits, field):
    if not fits:
        raise Refused("value", field)


class Reader:
    """Takes fields off the front of bytes."""

    def __init__(self, data):
        self.data = data

    def bytes(self, count):
        if len(self.data) < count:
            raise Refused("truncated")
        taken, self.data = self.data[:count], self.data[count:]
        return taken

    def rest(self):
        return self.bytes(len(self.data))

    def number(self, size, signed=False):
        return int.from_bytes(self.bytes(size), "little", signed=signed)

    def u8(self):
        return self.number(1)

    def u32(self):
        return self.number(4)

    def varint(self, field="", most=U64):
        value = 0
        for place in range(10):
            byte = self.u8()
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                break
        else:
            raise Refused("varint too long", field)
        if value > U64:
            raise Refused("varint too long", field)
        check(value <= most, field)
        return value

    def text(self, field, most=TEXT_BYTES, least=0):
        length = self.varint(field)
        check(least <= length <= most, field)
        try:
            return self.bytes(length).decode()
        except UnicodeDecodeError:
            raise Refused("text", field) from None


def varint(value):
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(data) + bytes([value])


def text(value):
    return varint(len(value.encode())) + value.encode()


# Packets

def parse_packet(data):
    """Returns what can be read without a key: a dict with the "kind" of the packet. Bytes stay bytes."""
    reader = Reader(data)
    first = reader.u8()
    if first & 0x80:
        return parse_session(first, reader)
    if first != 0x54:
        raise Refused("magic")
    second = reader.u8()
    if second >> 4:
        raise Refused("version", str(second >> 4))
    kind = second & 0xF
    check(kind <= BEACON, "kind")
    return [parse_initiation, parse_response, parse_cookie, parse_beacon][kind](reader)


def session_number(reader):
    number = reader.u32()
    check(number, "session")
    return number


def parse_initiation(reader):
    session = session_number(reader)
    # Two keys, two tags, an epoch and a name of at least a byte and its length.
    noise = reader.bytes(max(len(reader.data) - 32, 32 + 48 + 16 + 8 + 2))
    return {"kind": "call", "session": session, "noise": noise, "mac1": reader.bytes(16), "mac2": reader.bytes(16)}


def parse_response(reader):
    session, your_session = session_number(reader), session_number(reader)
    noise = reader.bytes(max(len(reader.data) - 16, 32 + 9 + 16))
    return {"kind": "answer", "session": session, "your_session": your_session, "noise": noise,
            "mac1": reader.bytes(16)}


def parse_cookie(reader):
    return {"kind": "cookie", "your_session": session_number(reader), "nonce": reader.bytes(12),
            "sealed": reader.bytes(32)}


def parse_beacon(reader):
    salt, tags = reader.number(8), []
    while reader.data or not tags:
        tags.append(reader.bytes(8))
    check(len(tags) <= 64, "tags")
    return {"kind": "beacon", "salt": salt, "tags": tags}


def parse_session(first, reader):
    check(not first & 0x10, "kind")
    header = bytes([first]) + reader.data[:8]
    packet = {"kind": "session", "ack_soon": bool(first & 0x40), "relayed": bool(first & 0x20),
              "link": first & 0xF, "session": reader.u32(), "number": reader.u32()}
    if len(reader.data) < 16 + (0 if packet["relayed"] else 4):
        raise Refused("truncated")
    return packet | {"header": header, "sealed": reader.rest()}


def full_number(low, expected):
    """Of all numbers with these low 32 bits, returns the one nearest to the expected number."""
    near = expected & ~U32 | low
    return min((n for n in (near - 2**32, near, near + 2**32) if n >= 0), key=lambda n: abs(n - expected))


def session_nonce(link, number):
    return struct.pack("<B3xQ", link, number)


def open_session(packet, key, number):
    """Returns the clock (None through a relay) and the bytes of the frames. `number` is the whole number."""
    plain = Reader(open_sealed(key, session_nonce(packet["link"], number), packet["sealed"], packet["header"]))
    clock = None if packet["relayed"] else plain.u32()
    return clock, plain.rest()


def seal_session(key, session, link, number, clock, frames, ack_soon=False):
    first = 0x80 | ack_soon << 6 | (clock is None) << 5 | link
    header = struct.pack("<BII", first, session, number & U32)
    plain = (b"" if clock is None else struct.pack("<I", clock)) + frames
    return header + ChaCha20Poly1305(key).encrypt(session_nonce(link, number), plain, header)


# Handshakes and beacons

def emit_greeting(epoch, name):
    return struct.pack("<Q", epoch) + text(name)


def parse_greeting(data):
    reader = Reader(data)
    return {"epoch": reader.number(8), "name": reader.text("name", most=63, least=1)}


def parse_verdict(data):
    reader = Reader(data)
    epoch, verdict = reader.number(8), reader.u8()
    check(verdict < len(VERDICTS), "verdict")
    return {"epoch": epoch, "verdict": VERDICTS[verdict]}


def mac_key(public):
    return sha256(b"tautline mac", public)


def emit_initiation(session, noise, responder, cookie=None):
    packet = struct.pack("<BBI", 0x54, INITIATION, session) + noise
    packet += mac(mac_key(responder), packet)
    return packet + (mac(cookie, packet) if cookie else bytes(16))


def emit_response(session, your_session, noise, initiator):
    packet = struct.pack("<BBII", 0x54, RESPONSE, session, your_session) + noise
    return packet + mac(mac_key(initiator), packet)


def cookie_key(responder, mac1):
    return sha256(sha256(b"tautline cookie", responder), mac1)


def emit_cookie(your_session, nonce, cookie, responder, mac1):
    sealed = ChaCha20Poly1305(cookie_key(responder, mac1)).encrypt(nonce, cookie, b"")
    return struct.pack("<BBI", 0x54, COOKIE, your_session) + nonce + sealed


def open_cookie(packet, responder, mac1):
    return open_sealed(cookie_key(responder, mac1), packet["nonce"], packet["sealed"], b"")


def mac1_holds(data, public):
    """Whether MAC1 of an initiation or response is correct for the receiver with this public key."""
    end = len(data) - (32 if data[1] & 0xF == INITIATION else 16)
    return hmac.compare_digest(mac(mac_key(public), data[:end]), data[end:end + 16])


def beacon_tag(secret, public, sender, salt):
    key = sha256(b"tautline shared secret", agree(secret, public))
    return hmac256(key, b"tautline beacon", struct.pack("<Q", salt), sender)[:8]


def emit_beacon(secret, salt, peers):
    tags = [beacon_tag(secret, peer, public_key(secret), salt) for peer in peers]
    return struct.pack("<BBQ", 0x54, BEACON, salt) + b"".join(tags)


# Frames

def parse_frames(data):
    """Frames as the vectors write them."""
    reader, frames = Reader(data), []
    while reader.data:
        kind, length = reader.u8(), reader.varint("length", U32)
        body = Reader(reader.bytes(length))
        parse = {1: parse_data, 2: parse_ack, 3: lambda _: "ping", 4: lambda _: "goodbye",
                 5: lambda it: {"challenge": str(it.number(8))}, 6: lambda it: {"echo": str(it.number(8))},
                 7: parse_clock, 8: parse_relay, 9: parse_held, 10: parse_parity,
                 11: lambda it: {"observe": parse_address(it)}, 12: lambda it: {"observed": parse_address(it)},
                 13: parse_candidates}.get(kind, lambda _: {"unknown": kind})
        frames.append(parse(body))
    return frames


def parse_message(body):
    """The fields of a data frame, which relay and parity frames have as well."""
    channel, number, flags = body.varint("channel", MAX_CHANNEL), body.varint("number"), body.u8()
    check(number and not flags & ~15, "number or flags")
    age = body.varint("age", U32)
    source = body.varint("source", U32) if flags & 2 else 0
    fragment = None
    if flags & 1:
        total, offset = body.varint("total", U32), body.varint("offset", U32)
        fragment = {"total": total, "offset": offset}
    place = {"place": parse_place(channel, body)} if flags & 8 else {}
    check(not fragment or body.data and offset + len(body.data) <= total, "offset")
    return {"channel": channel, "number": number, "source": source, "encoded": bool(flags & 4),
            "age_us": age * 100, "fragment": fragment, "payload": body.rest().hex()} | place


def parse_place(channel, body):
    block, index = body.varint("block"), body.u8()
    check(channel and block and index < MAX_BLOCK, "block")
    return {"block": block, "index": index, "since_us": body.varint("since", U32) * 100}


def parse_data(body):
    return {"data": parse_message(body)}


def parse_ack(body):
    link, largest, delay = body.u8(), body.varint("largest"), body.varint("delay", U32)
    waited, least = body.varint("waited", U32), body.varint("least waited", U32)
    capable, marked = body.varint("capable"), body.varint("marked")
    end, runs = largest, []
    while not runs or body.data:
        check(len(runs) < ACK_RUNS, "ranges")
        if runs:
            # At least one number is missing between two runs.
            end = runs[-1][0] - 2 - body.varint("gap")
            check(end >= 0, "gap")
        start = end - body.varint("range")
        check(start >= 0, "range")
        runs.append([start, end])
    return {"ack": {"link": link, "delay_us": delay, "waited_us": waited, "least_waited_us": least,
                    "capable": capable, "marked": marked, "ranges": runs}}


def parse_clock(body):
    flags = body.u8()
    least = body.u32() if flags & 1 else None
    wall = str(body.number(8, signed=True)) if flags & 2 else None
    return {"clock": {"least_us": least, "wall_us": wall}}


def parse_relay_payload(data):
    reader = Reader(data)
    flags, life = reader.u8(), reader.u8()
    check(not flags & ~0x3F, "relay flags")
    sender = reader.bytes(3).hex() if flags & 16 else None
    receiver = reader.bytes(3).hex() if flags & 32 else None
    life_ms = math.ceil(2 ** ((life - 1) / 8)) if life else None
    return {"hops": flags & 0xF, "life_ms": life_ms, "from": sender, "to": receiver, "packet": reader.rest().hex()}


def parse_relay(body):
    message = parse_message(body)
    check(message["channel"] < 256, "priority")
    check(message["source"] == 0, "source")
    check("place" not in message, "block")
    relay = {"priority": message["channel"], "number": message["number"], "age_us": message["age_us"]}
    if message["fragment"]:
        # The relay header begins the whole message: it is read when all pieces are there.
        return {"relay": relay | {"fragment": message["fragment"], "payload": message["payload"]}}
    try:
        return {"relay": relay | parse_relay_payload(bytes.fromhex(message["payload"]))}
    except Refused as refused:
        # Only this message is ignored; the packet is valid.
        return {"relay": relay | {"refused": str(refused), "payload": message["payload"]}}


def parse_parity(body):
    message = parse_message(body)
    check(message["channel"] and message["source"] == 0, "channel")
    check("place" not in message, "block")
    parity = {"channel": message["channel"], "number": message["number"], "age_us": message["age_us"]}
    if message["fragment"]:
        return {"parity": parity | {"fragment": message["fragment"], "payload": message["payload"]}}
    try:
        return {"parity": parity | parse_parity_payload(bytes.fromhex(message["payload"]))}
    except Refused as refused:
        return {"parity": parity | {"refused": str(refused), "payload": message["payload"]}}


def parse_parity_payload(data):
    reader = Reader(data)
    block, sources, index = reader.varint("block"), reader.u8(), reader.u8()
    check(block and 0 < sources <= MAX_BLOCK, "block")
    return {"block": block, "sources": sources, "index": index, "symbol": reader.rest().hex()}


def parse_held(body):
    receiver, held = body.bytes(3).hex(), body.varint("bytes")
    return {"held": {"to": receiver, "bytes": held, "from": body.bytes(3).hex() if body.data else None}}


def parse_address(body):
    ip, port = ipaddress.IPv6Address(body.bytes(16)), body.number(2)
    return f"{ip.ipv4_mapped}:{port}" if ip.ipv4_mapped else f"[{ip}]:{port}"


def parse_candidates(body):
    flags, addresses = body.u8(), []
    while body.data:
        check(len(addresses) < MAX_CANDIDATES, "candidates")
        addresses.append(parse_address(body))
    check(addresses, "candidates")
    return {"candidates": {"answer": bool(flags & 1), "addresses": addresses}}


def emit_address(text):
    host, port = text.rsplit(":", 1)
    ip = ipaddress.ip_address(host.strip("[]"))
    mapped = b"\0" * 10 + b"\xff\xff" if ip.version == 4 else b""
    return mapped + ip.packed + struct.pack("<H", int(port))


def emit_candidates(it):
    return bytes([it["answer"]]) + b"".join(map(emit_address, it["addresses"]))


def emit_frames(frames):
    return b"".join(emit_frame(frame) for frame in frames)


def emit_frame(frame):
    name, it = (frame, None) if isinstance(frame, str) else next(iter(frame.items()))
    kind = ["data", "ack", "ping", "goodbye", "challenge", "echo", "clock", "relay", "held",
            "parity", "observe", "observed", "candidates"].index(name) + 1
    body = {"data": emit_message, "ack": emit_ack, "clock": emit_clock, "relay": emit_relay, "parity": emit_parity,
            "challenge": emit_token, "echo": emit_token,
            "observe": emit_address, "observed": emit_address, "candidates": emit_candidates,
            "held": lambda it: bytes.fromhex(it["to"]) + varint(it["bytes"]) + bytes.fromhex(it["from"] or "")}.get(name, lambda _: b"")(it)
    return bytes([kind]) + varint(len(body)) + body


def emit_token(token):
    return struct.pack("<Q", int(token))


def emit_message(it):
    fragment = it["fragment"]
    place = it.get("place")
    flags = bool(fragment) | bool(it["source"]) << 1 | it["encoded"] << 2 | bool(place) << 3
    body = varint(it["channel"]) + varint(it["number"]) + bytes([flags]) + varint(it["age_us"] // 100)
    if it["source"]:
        body += varint(it["source"])
    if fragment:
        body += varint(fragment["total"]) + varint(fragment["offset"])
    if place:
        body += varint(place["block"]) + bytes([place["index"]]) + varint(place["since_us"] // 100)
    return body + bytes.fromhex(it["payload"])


def emit_ack(it):
    runs = it["ranges"]
    body = bytes([it["link"]]) + varint(runs[0][1]) + varint(it["delay_us"])
    body += varint(it["waited_us"]) + varint(it["least_waited_us"])
    body += varint(it["capable"]) + varint(it["marked"])
    body += varint(runs[0][1] - runs[0][0])
    for (later, _), (start, end) in zip(runs, runs[1:]):
        body += varint(later - end - 2) + varint(end - start)
    return body


def emit_clock(it):
    least, wall = it["least_us"], it["wall_us"]
    body = bytes([(least is not None) | (wall is not None) << 1])
    body += b"" if least is None else struct.pack("<I", least)
    return body + (b"" if wall is None else struct.pack("<q", int(wall)))


def emit_relay(it):
    life = 0 if it["life_ms"] is None else math.floor(1 + 8 * math.log2(it["life_ms"]))
    payload = bytes([it["hops"] | bool(it["from"]) << 4 | bool(it["to"]) << 5, life])
    payload += bytes.fromhex((it["from"] or "") + (it["to"] or "") + it["packet"])
    return emit_message({"channel": it["priority"], "number": it["number"], "age_us": it["age_us"], "source": 0,
                         "encoded": False, "fragment": None, "payload": payload.hex()})


def emit_parity(it):
    payload = varint(it["block"]) + bytes([it["sources"], it["index"]]) + bytes.fromhex(it["symbol"])
    return emit_message({"channel": it["channel"], "number": it["number"], "age_us": it["age_us"], "source": 0,
                         "encoded": False, "fragment": None, "payload": payload.hex()})


# Channel 0

# Roles by flag of an offer. The first flag that is set counts; without one, the role is a topic.
ROLES = {8: "answers", 16: "calls", 0: "topic"}
OFFER_FLAGS = {"transient_local": 1, "reliable": 2, "manual_liveliness": 4}
ORDER_SENT, ORDER_NEWEST, PUBLISHERS = 32, 64, 128
# A bit of the field Classes.
NOT_ALIVE = 128
ORDER_WAIT_MS, MAX_ORDER_WAIT_MS = 200, 1000


def parse_control(data):
    """A message of channel 0, as the vectors write it."""
    reader = Reader(data)
    kind = reader.u8()
    if not 1 <= kind <= 6:
        return {"unknown": kind}
    channel = reader.varint("channel", MAX_CHANNEL)
    check(channel, "channel")
    if kind == 1:
        return {"offer": parse_offer(reader, channel)}
    if kind == 3:
        return {"want": {"channel": channel, "wanted": bool(reader.u8())}}
    if kind == 5:
        return {"definition": {"channel": channel, "text": reader.text("definition", DEFINITION_BYTES)}}
    if kind == 6:
        return {"refuse": {"channel": channel, "reason": reader.text("reason")}}
    return {{2: "withdraw", 4: "get_definition"}[kind]: {"channel": channel}}


def parse_offer(reader, channel):
    offer = {"channel": channel, "priority": reader.u8(), "keep_last": reader.varint("keep_last", U32) or 1,
             "lifespan_ms": reader.varint("lifespan", U32) or None}
    flags = reader.u8()
    offer |= {name: bool(flags & bit) for name, bit in OFFER_FLAGS.items()}
    offer["role"] = next(role for bit, role in ROLES.items() if flags & bit == bit)
    offer |= {name: reader.text(name) for name in ("name", "type", "hash")}
    more = bool(reader.data)
    offer["depth"] = reader.varint("depth", U32) or 1 if more else 1
    for name in ("deadline", "lease"):
        offer[f"{name}_ms"] = (reader.varint(name, U32) or None) if more else None
    offer["order"] = parse_order(reader, flags)
    if flags & PUBLISHERS and reader.data:
        classes, keeping = reader.u8(), reader.u8()
        offer |= {"not_alive": True} if classes & NOT_ALIVE else {}
        offer |= {"classes": classes & ~NOT_ALIVE, "keeping": keeping} if classes or keeping else {}
    return offer


def parse_order(reader, flags):
    if not flags & ORDER_SENT:
        return "newest" if flags & ORDER_NEWEST else "arrival"
    wait = reader.varint("order wait", U32) if reader.data else 0
    return {"sent_wait_ms": min(wait or ORDER_WAIT_MS, MAX_ORDER_WAIT_MS)}


def emit_control(control):
    name, it = next(iter(control.items()))
    kind = ["offer", "withdraw", "want", "get_definition", "definition", "refuse"].index(name) + 1
    rest = {"offer": emit_offer, "want": lambda it: bytes([it["wanted"]]), "definition": lambda it: text(it["text"]),
            "refuse": lambda it: text(it["reason"])}.get(name, lambda _: b"")(it)
    return bytes([kind]) + varint(it["channel"]) + rest


def emit_offer(it):
    flags = sum(bit for name, bit in OFFER_FLAGS.items() if it[name])
    flags |= next(bit for bit, role in ROLES.items() if role == it["role"])
    is_sent = isinstance(it["order"], dict)
    flags |= ORDER_SENT if is_sent else {"arrival": 0, "newest": ORDER_NEWEST}[it["order"]]
    publishers = [it["classes"] | NOT_ALIVE * it.get("not_alive", False), it["keeping"]] if "classes" in it else []
    flags |= PUBLISHERS if publishers else 0
    return (bytes([it["priority"]]) + varint(it["keep_last"]) + varint(it["lifespan_ms"] or 0) + bytes([flags])
            + text(it["name"]) + text(it["type"]) + text(it["hash"])
            + varint(it["depth"]) + varint(it["deadline_ms"] or 0) + varint(it["lease_ms"] or 0)
            + (varint(it["order"]["sent_wait_ms"]) if is_sent else b"") + bytes(publishers))
