# SPDX-License-Identifier: Apache-2.0
"""Simulates the arena in real time: differential drives, their lidars, and collisions.

world.py FOLDER SOCKETS [--seed N] [--empty] [--at ROBOT=X,Y,THETA]: each robot's driver connects to
SOCKETS/ROBOT-wheels.sock (SOCK_SEQPACKET), and they exchange packets of JSON. To the driver:
{"odom": [x, y, theta, v, w], "ns": t} at 50 Hz and {"scan": [ranges], "ns": t} at 10 Hz; a range is null
if the beam hits nothing. Packets that a driver does not read in time are lost. From the driver:
{"drive": [v, w], "number": n}.

A line ROBOT=X,Y,THETA on standard input puts a robot there, where its odometry begins at zero; the
answer is `put`. The program ends with the input.

FOLDER/truth.jsonl gets data that no node reads: true poses at 20 Hz, collisions, and each command's
number at the wheels; its times are CLOCK_MONOTONIC, those of the lines CLOCK_REALTIME.
"""

import argparse
import json
import math
import os
import random
import selectors
import socket
import sys
import time

import pymunk

import arena

STEP_S = 0.01
POSES_HZ = 20.0
BEAMS = 180
NOISE_M = 0.01
# Odometry: standard deviation of each wheel's slip, which changes slowly.
SLIP, SLIP_TIME_S = 0.03, 2.0
# A command has no effect after this time, as in the robots' own firmware.
COMMAND_S = 0.6
MASS_KG = 5.0
MAX_PACKET = 1 << 16
# Packets that wait for a late driver: about a tenth of a second of measurements.
SEND_BUFFER = 8192


def limited(value, limit):
    return max(-limit, min(limit, value))


class Drive:
    """A robot in the physics simulation, and the odometry of its encoders."""

    def __init__(self, space, robot, rng):
        self.robot, self.rng = robot, rng
        self.body = pymunk.Body(MASS_KG, pymunk.moment_for_circle(MASS_KG, 0, robot.radius))
        self.shape = pymunk.Circle(self.body, robot.radius)
        self.shape.friction, self.shape.elasticity = 0.4, 0.0
        self.shape.named = robot.name
        x, y, theta = robot.dock
        self.body.position, self.body.angle = (x, y), theta
        space.add(self.body, self.shape)
        self.command, self.commanded = (0.0, 0.0), -math.inf
        self.v = self.w = 0.0
        self.slips = [0.0, 0.0]
        self.odometry = [x, y, theta]

    def step(self, now):
        """Moves the wheels towards the command, and the body by the wheels."""
        robot = self.robot
        v, w = self.command if now - self.commanded < COMMAND_S else (0.0, 0.0)
        self.v += limited(limited(v, robot.speed) - self.v, robot.acceleration * STEP_S)
        self.w += limited(limited(w, robot.turn) - self.w, robot.turn_acceleration * STEP_S)
        keep = math.exp(-STEP_S / SLIP_TIME_S)
        for wheel in range(2):
            noise = self.rng.gauss(0.0, SLIP * math.sqrt(1 - keep * keep))
            self.slips[wheel] = keep * self.slips[wheel] + noise
        half = robot.track / 2
        left = (self.v - self.w * half) * (1 - self.slips[0])
        right = (self.v + self.w * half) * (1 - self.slips[1])
        speed, angle = (left + right) / 2, self.body.angle
        self.body.velocity = (speed * math.cos(angle), speed * math.sin(angle))
        self.body.angular_velocity = (right - left) / robot.track
        middle = self.odometry[2] + self.w * STEP_S / 2
        self.odometry[0] += self.v * math.cos(middle) * STEP_S
        self.odometry[1] += self.v * math.sin(middle) * STEP_S
        self.odometry[2] += self.w * STEP_S

    def put(self, pose):
        """Moves the robot to a pose; its odometry begins at zero there."""
        x, y, self.body.angle = pose
        self.body.position = x, y
        self.v = self.w = 0.0
        self.odometry = [0.0, 0.0, 0.0]

    def scan(self, space):
        """Returns ranges from straight ahead, counter-clockwise; the robot does not see itself."""
        centre, angle = self.body.position, self.body.angle
        ranges = []
        for beam in range(BEAMS):
            direction = angle + 2 * math.pi * beam / BEAMS
            cos, sin = math.cos(direction), math.sin(direction)
            near, far = self.robot.radius + 1e-3, arena.LIDAR_RANGE_M
            hit = space.segment_query_first(
                (centre.x + cos * near, centre.y + sin * near),
                (centre.x + cos * far, centre.y + sin * far), 0.0, pymunk.ShapeFilter())
            if hit is None:
                ranges.append(None)
            else:
                distance = math.dist(centre, hit.point) + self.rng.gauss(0.0, NOISE_M)
                ranges.append(round(max(distance, 0.05), 3))
        return ranges

    def pose(self):
        return [round(it, 4) for it in (*self.body.position, self.body.angle)]


class World:
    """The physics, in real time."""

    def __init__(self, folder, sockets, seed, tables, places):
        self.space = pymunk.Space()
        self.space.iterations = 20
        static = self.space.static_body
        for begin, end in arena.walls():
            self.add_obstacle(pymunk.Segment(static, begin, end, 0.01), "wall")
        for table in tables:
            self.add_obstacle(pymunk.Poly(static, arena.table_corners(table)), "table " + table)
        rng = random.Random(seed)
        self.drives = {name: Drive(self.space, robot, random.Random(rng.random()))
                       for name, robot in arena.ROBOTS.items()}
        for name, pose in places.items():
            self.drives[name].put(pose)
        self.space.on_collision(None, None, begin=self.collide)
        path = os.path.join(folder, "truth.jsonl")
        self.truth = open(path, "w", buffering=1, encoding="utf-8")
        self.sockets = Sockets(sockets, self.drives, self.take_command, self.take_place)

    def add_obstacle(self, shape, name):
        shape.friction, shape.named = 0.6, name
        self.space.add(shape)

    def collide(self, arbiter, _space, _data):
        self.note({"collision": sorted(shape.named for shape in arbiter.shapes)})

    def note(self, record):
        record["ns"] = time.monotonic_ns()
        self.truth.write(json.dumps(record) + "\n")

    def take_command(self, name, said):
        v, w = said["drive"]
        drive = self.drives[name]
        drive.command, drive.commanded = (float(v), float(w)), time.monotonic()
        if said["number"]:
            self.note({"command": said["number"], "robot": name})

    def take_place(self, line):
        name, pose = place(line)
        self.drives[name].put(pose)
        self.note({"put": name})
        print("put", flush=True)

    def run(self):
        """Runs until standard input ends."""
        start, step = time.monotonic(), 0
        self.note({"begin": {name: drive.pose() for name, drive in self.drives.items()}})
        print("ready", flush=True)
        while True:
            self.step(step)
            step += 1
            while (left := start + step * STEP_S - time.monotonic()) > 0:
                if not self.sockets.serve(left):
                    return

    def step(self, step):
        now = time.monotonic()
        for drive in self.drives.values():
            drive.step(now)
        self.space.step(STEP_S)
        scan_every = round(1 / STEP_S / arena.SCAN_HZ)
        for offset, (name, drive) in enumerate(self.drives.items()):
            if step % round(1 / STEP_S / arena.ODOMETRY_HZ) == 0:
                self.sockets.send(name, {"odom": [*drive.odometry, drive.v, drive.w]})
            is_due = step % scan_every == offset * scan_every // len(self.drives)
            if is_due and self.sockets.is_connected(name):
                self.sockets.send(name, {"scan": drive.scan(self.space)})
        if step % round(1 / STEP_S / POSES_HZ) == 0:
            self.note({"poses": {name: drive.pose() for name, drive in self.drives.items()},
                       "odometry": {name: [round(it, 4) for it in drive.odometry]
                                    for name, drive in self.drives.items()}})


class Sockets:
    """The sockets of the drivers, in a folder, and standard input.

    `take_command(name, record)` is called for each packet of a driver, `take_place(line)` for each line
    of standard input.
    """

    def __init__(self, folder, names, take_command, take_place):
        self.take_command, self.take_place = take_command, take_place
        self.selector = selectors.DefaultSelector()
        self.selector.register(sys.stdin, selectors.EVENT_READ, ("input", None, None))
        # The part of the next line of standard input that has arrived.
        self.heard = b""
        self.clients = {}
        for name in names:
            self.listen(os.path.join(folder, name + "-wheels.sock"), name)

    def listen(self, path, name):
        server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.path.exists(path):
            os.unlink(path)
        server.bind(path)
        server.listen(1)
        self.selector.register(server, selectors.EVENT_READ, ("server", name, server))

    def is_connected(self, name):
        return name in self.clients

    def serve(self, timeout):
        """Handles what drivers do, for at most `timeout`; returns false at the end of the input."""
        for key, _ in self.selector.select(timeout):
            kind, name, server = key.data
            if kind == "input":
                data = os.read(sys.stdin.fileno(), MAX_PACKET)
                if not data:
                    return False
                *lines, self.heard = (self.heard + data).split(b"\n")
                for line in lines:
                    self.take_place(line.decode())
            elif kind == "server":
                self.drop(name)
                client, _ = server.accept()
                client.setblocking(False)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
                self.clients[name] = client
                self.selector.register(client, selectors.EVENT_READ, ("client", name, None))
            elif kind == "client":
                self.read(name)
        return True

    def drop(self, name):
        if name in self.clients:
            client = self.clients.pop(name)
            self.selector.unregister(client)
            client.close()

    def read(self, name):
        if name not in self.clients:
            return
        try:
            data = self.clients[name].recv(MAX_PACKET)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self.take_command(name, json.loads(data))
        else:
            self.drop(name)

    def send(self, name, record):
        if name not in self.clients:
            return
        record["ns"] = time.time_ns()
        try:
            self.clients[name].send(json.dumps(record).encode())
        except BlockingIOError:
            pass
        except OSError:
            self.drop(name)


def place(text):
    name, _, pose = text.partition("=")
    x, y, theta = (float(it) for it in pose.split(","))
    return name, (x, y, theta)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("sockets")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--empty", action="store_true", help="without tables")
    parser.add_argument("--at", type=place, action="append", default=[], help="ROBOT=X,Y,THETA")
    arguments = parser.parse_args()
    tables = [] if arguments.empty else arena.TABLES
    World(arguments.folder, arguments.sockets, arguments.seed, tables, dict(arguments.at)).run()


if __name__ == "__main__":
    main()
