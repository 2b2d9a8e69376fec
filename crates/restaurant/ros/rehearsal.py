# SPDX-License-Identifier: Apache-2.0
"""Rehearses the service in virtual time, about ten times as fast as it happens: rehearsal.py SEED ORDERS

The nodes of both robots and the waiter run in this process, with the simulated arena, and their topics
arrive at once. So it shows what the robots do by themselves; the network, and the action of ROS 2, are
in `tautline-restaurant` only. Standard output: the events, then a line of JSON with `served`,
`seconds` and `collisions`; the exit code is 1 if a robot is stuck.
"""

import heapq
import itertools
import json
import os
import pathlib
import random
import sys
import tempfile
import time

# pymunk, for the Python of ROS 1.
LIBRARIES = pathlib.Path(__file__).parents[3] / "target/restaurant/lib/python3.11/site-packages"
sys.path.append(str(LIBRARIES))

# If nothing happens for this time, a robot is stuck; seconds.
SILENCE_S = 90.0


class Clock:
    """The time of all nodes, which use `time` only."""

    def __init__(self):
        self.now = 0.0
        time.monotonic = time.time = lambda: self.now
        time.monotonic_ns = time.time_ns = lambda: round(self.now * 1e9)


CLOCK = Clock()

# These modules now take the time from the clock above.
import rospy  # noqa: E402

import arena  # noqa: E402
import controller  # noqa: E402
import driver  # noqa: E402
import guests  # noqa: E402
import localisation  # noqa: E402
import map_server  # noqa: E402
import navigator  # noqa: E402
import waiter  # noqa: E402
import world  # noqa: E402


class Ros:
    """The interface of `middleware` for all nodes together, without a network."""

    def __init__(self):
        self.receivers, self.latched = {}, {}
        self.timers, self.number = [], itertools.count()

    def publisher(self, topic, _message_class, depth=10, latched=False):
        del depth
        return Publisher(self, topic, latched)

    @staticmethod
    def is_heard(_publisher):
        return True

    def subscribe(self, topic, _message_class, receive, depth=10, latched=False):
        del depth, latched
        self.receivers.setdefault(topic, []).append(receive)
        if topic in self.latched:
            receive(self.latched[topic])

    def every(self, period_s, call):
        number = next(self.number)
        # Real nodes do not start at the same time.
        phase = period_s * (number % 7) / 7
        heapq.heappush(self.timers, (CLOCK.now + phase, number, period_s, call))

    def run_timers(self, until):
        while self.timers and self.timers[0][0] <= until:
            due, number, period_s, call = heapq.heappop(self.timers)
            CLOCK.now = max(CLOCK.now, due)
            heapq.heappush(self.timers, (due + period_s, number, period_s, call))
            call()
        CLOCK.now = until

    @staticmethod
    def stamp():
        return rospy.Time.from_sec(CLOCK.now)

    @staticmethod
    def stamp_of(ns):
        return rospy.Time(ns // 1_000_000_000, ns % 1_000_000_000)

    @staticmethod
    def ns_of(stamp):
        return stamp.secs * 1_000_000_000 + stamp.nsecs


class Publisher:
    def __init__(self, ros, topic, latched):
        self.ros, self.topic, self.latched = ros, topic, latched

    def publish(self, message):
        if self.latched:
            self.ros.latched[self.topic] = message
        for receive in self.ros.receivers.get(self.topic, []):
            receive(message)


class Sockets:
    """The sockets of the arena: each driver is in this process."""

    def __init__(self, _folder, _names, take_command, _take_place):
        self.take_command, self.drivers = take_command, {}

    def link(self, name):
        """Returns what a driver sends to."""
        return Link(lambda said: self.take_command(name, said))

    def is_connected(self, name):
        return name in self.drivers

    def send(self, name, record):
        if name in self.drivers:
            record["ns"] = time.time_ns()
            self.drivers[name].take(record)


class Link:
    def __init__(self, take):
        self.take = take

    def send(self, data):
        self.take(json.loads(data))


class Rehearsal:
    def __init__(self, folder, seed, orders):
        ros, self.orders, self.events = Ros(), orders, []
        world.Sockets = Sockets
        self.world = world.World(folder, folder, seed, arena.TABLES, {})
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "map.yaml")
        for name, robot in arena.ROBOTS.items():
            self.world.sockets.drivers[name] = driver.Driver(ros, robot, self.world.sockets.link(name))
            map_server.serve(ros, name, path)
            for node in (localisation.Localisation, navigator.Navigator, controller.Controller):
                node(ros, robot)
        waiter.say = self.hear
        self.robots = {name: waiter.Robot(ros, name, waiter.TopicGoals) for name in arena.ROBOTS}
        waiter.Waiter(ros, self.robots)
        guests.Guests(ros, "guests", [table + ":any" for table in tables(seed, orders)])
        self.ros = ros

    def hear(self, words):
        print("%.1f s: %s" % (CLOCK.now, words), flush=True)
        self.events.append((CLOCK.now, words))

    def run(self):
        """Returns how many orders were served; fewer than all if nothing happened any more."""
        for step in itertools.count():
            self.world.step(step)
            self.ros.run_timers((step + 1) * world.STEP_S)
            served = sum(words.startswith("served") for _, words in self.events)
            if served == self.orders and all(it.state == "free" for it in self.robots.values()):
                return served
            last = self.events[-1][0] if self.events else 0.0
            if CLOCK.now - last > SILENCE_S:
                return served


def tables(seed, orders):
    """Returns the tables of the orders: all of them in turns, each turn shuffled."""
    rng = random.Random(seed)
    turns = (rng.sample(list(arena.TABLES), len(arena.TABLES)) for _ in itertools.count())
    return list(itertools.islice(itertools.chain.from_iterable(turns), orders))


def collisions(folder):
    with open(os.path.join(folder, "truth.jsonl"), encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    return [it["collision"] for it in records if "collision" in it]


def main():
    seed, orders = (int(it) for it in sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        served = Rehearsal(folder, seed, orders).run()
        touched = collisions(folder)
    print(json.dumps({"served": served, "seconds": round(CLOCK.now), "collisions": touched}))
    return 0 if served == orders else 1


if __name__ == "__main__":
    sys.exit(main())
