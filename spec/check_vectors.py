#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Compares decode.py with the vectors, in both directions where a packet can be written again.

    check_vectors.py --vectors FOLDER    compares all files of vectors/, and prints the differences

The vectors name a handshake initiation `call`, its response `answer`, the initiator `caller` and the
responder `called`.
"""
import argparse
import json
import pathlib
import struct
import sys

from decode import (
    Reader, U32, VERDICTS, beacon_tag, emit_beacon, emit_control, emit_cookie, emit_frames,
    emit_greeting, emit_initiation, emit_message, emit_response, full_number, mac1_holds,
    open_cookie, open_session, parse_control, parse_frames, parse_greeting, parse_message,
    parse_packet, parse_verdict, seal_session,
)
from noise import Noise, Refused, public_key


def both_ways(vector, parse, emit):
    """Yields pairs that must be equal, of bytes that are read and of bytes that are written again."""
    data = bytes.fromhex(vector["hex"])
    yield parse(data), vector["meaning"]
    if not vector.get("only_parse"):
        yield emit(vector["meaning"]).hex(), vector["hex"]


def check_sealed(vector):
    meaning, packet = vector["meaning"], parse_packet(bytes.fromhex(vector["hex"]))
    key = bytes.fromhex(meaning["key"])
    clock, frames = open_session(packet, key, meaning["number"])
    yield packet["number"], meaning["number"] & U32
    yield (clock, frames.hex()), (meaning["micros"], meaning["frames"])
    for field in ("ack_soon", "link", "session"):
        yield packet[field], meaning[field]
    yield packet["relayed"], meaning["micros"] is None
    again = seal_session(key, meaning["session"], meaning["link"], meaning["number"], clock, frames, meaning["ack_soon"])
    yield again.hex(), vector["hex"]


def check_beacon(vector):
    meaning, packet = vector["meaning"], parse_packet(bytes.fromhex(vector["hex"]))
    sender, peers = bytes.fromhex(meaning["sender"]), [bytes.fromhex(peer) for peer in meaning["peers"]]
    yield str(packet["salt"]), meaning["salt"]
    # The tags for which the peers look.
    tags = [beacon_tag(peer, public_key(sender), public_key(sender), packet["salt"]) for peer in peers]
    yield [tag.hex() for tag in packet["tags"]], [tag.hex() for tag in tags]
    again = emit_beacon(sender, packet["salt"], [public_key(peer) for peer in peers])
    yield again.hex(), vector["hex"]


def check_handshake(vector):
    initiator, responder = vector["caller"], vector["called"]
    one, other = (bytes.fromhex(side["secret"]) for side in (initiator, responder))
    here, there = public_key(one), public_key(other)
    yield (here.hex(), there.hex()), (vector["caller_public"], vector["called_public"])
    initiating = Noise(one, bytes.fromhex(initiator["ephemeral"]), there)
    noise = initiating.initiation(there, emit_greeting(int(initiator["epoch"]), initiator["name"]))
    first = emit_initiation(initiator["session"], noise, there)
    yield first.hex(), vector["first_call"]
    cookie = None
    if vector["cookie"]:
        cookie, nonce = (bytes.fromhex(vector["cookie"][name]) for name in ("value", "nonce"))
        mac1 = parse_packet(first)["mac1"]
        packet = emit_cookie(initiator["session"], nonce, cookie, there, mac1)
        yield packet.hex(), vector["cookie_packet"]
        yield open_cookie(parse_packet(bytes.fromhex(vector["cookie_packet"])), there, mac1), cookie
    yield emit_initiation(initiator["session"], noise, there, cookie).hex(), vector["call"]
    initiation = parse_packet(bytes.fromhex(vector["call"]))
    yield mac1_holds(bytes.fromhex(vector["call"]), there), True
    responding = Noise(other, bytes.fromhex(responder["ephemeral"]), there)
    key, payload = responding.read_initiation(initiation["noise"])
    yield (key, parse_greeting(payload)), (here, {"epoch": int(initiator["epoch"]), "name": initiator["name"]})
    noise = responding.response(struct.pack("<QB", int(responder["epoch"]), responder["verdict"]))
    yield emit_response(responder["session"], initiation["session"], noise, here).hex(), vector["answer"]
    response = parse_packet(bytes.fromhex(vector["answer"]))
    yield mac1_holds(bytes.fromhex(vector["answer"]), here), True
    verdict = parse_verdict(initiating.read_response(response["noise"]))
    yield verdict, {"epoch": int(responder["epoch"]), "verdict": VERDICTS[responder["verdict"]]}
    for side in (initiating, responding):
        yield [key.hex() for key in side.split()], [vector["caller_to_called"], vector["called_to_caller"]]


def check_block(vector):
    """Reads the frames. The erasure code itself (RFC 6330) is not implemented a second time."""
    for index, frame in enumerate(vector["frames"]):
        message = parse_message(Reader(bytes.fromhex(frame)))
        yield message["place"]["index"], index
        yield emit_message(message).hex(), frame
    longest = max(len(frame) for frame in vector["frames"]) // 2 + 2
    for symbol in vector["parity"]:
        yield len(symbol) // 2, longest


def check_invalid(vector):
    parse = {"packet": parse_packet, "greeting": parse_greeting, "frames": parse_frames, "control": parse_control}
    try:
        yield parse[vector["of"]](bytes.fromhex(vector["hex"])), "refused"
    except Refused as refused:
        yield refused.error, vector["error"]


CHECKS = {
    "fec": ("blocks", check_block),
    "frames": ("frames", lambda vector: both_ways(vector, parse_frames, emit_frames)),
    "control": ("controls", lambda vector: both_ways(vector, parse_control, emit_control)),
    "sealed": ("packets", check_sealed),
    "handshake": ("handshakes", check_handshake),
    "invalid": ("invalid", check_invalid),
    "packet_numbers": ("numbers", lambda vector: [(full_number(vector["low"], vector["expected"]), vector["full"])]),
    "beacon": ("beacons", check_beacon),
}


def check_vectors(folder):
    """Prints the differences, and returns whether there are none. An unknown file is a difference."""
    wrong = checked = 0
    found = {path.stem for path in pathlib.Path(folder).glob("*.json")}
    for file in sorted(found ^ CHECKS.keys()):
        wrong += 1
        print(f"{file}.json: {'not known here' if file in found else 'missing'}")
    for file in sorted(found & CHECKS.keys()):
        key, run = CHECKS[file]
        for vector in json.loads((pathlib.Path(folder) / f"{file}.json").read_text())[key]:
            checked += 1
            try:
                differing = [pair for pair in run(vector) if pair[0] != pair[1]]
            except Refused as refused:
                differing = [(f"refused, {refused}", "taken")]
            for got, expected in differing:
                wrong += 1
                print(f"{file}.json, {vector['name']!r}: {got}\n    instead of {expected}")
    print(f"{checked} vectors read, {wrong} differences")
    return checked > 0 and not wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", metavar="FOLDER", required=True)
    sys.exit(not check_vectors(parser.parse_args().vectors))
