# SPDX-License-Identifier: Apache-2.0
"""The plant of Tardioli, Parasuraman, Oegren (2018), figures 19 and 20: a series RLC circuit.

plant.py ros1|ros2 NAMESPACE SAMPLES.csv: at each line `go`, begins without voltage or current; every
20 ms publishes the voltage of its capacitor on NAMESPACE/y, for 4 s, and always holds the last voltage
of its source that came on NAMESPACE/u. Standard output: `ready` when NAMESPACE/y has a subscriber, and
`done` after each run. SAMPLES.csv gets run, time since `go` (ns) and voltage.
"""

import os
import sys
import time

import numpy as np

import middleware
from std_msgs.msg import Float64

OHM, HENRY, FARAD = 1.0, 0.1, 0.1
PERIOD_S = 0.02
SAMPLES = 200


class Circuit:
    """Voltage at the capacitor and current, exact for a constant voltage of the source."""

    def __init__(self):
        slopes = np.array([[0.0, 1 / FARAD], [-1 / HENRY, -OHM / HENRY]])
        self.rates, self.modes = np.linalg.eig(slopes)
        self.inverse = np.linalg.inv(self.modes)
        self.state, self.source = np.zeros(2), 0.0

    def advance(self, seconds):
        rest = np.array([self.source, 0.0])
        decay = (self.modes * np.exp(self.rates * seconds)) @ self.inverse
        self.state = (decay @ (self.state - rest)).real + rest


class Plant:
    def __init__(self, ros, namespace):
        self.ros, self.is_ready = ros, False
        self.circuit, self.begun, self.at = None, 0, 0
        self.run, self.left, self.samples = 0, 0, []
        self.voltages = ros.publisher(namespace + "/y", Float64, depth=1)
        ros.subscribe(namespace + "/u", Float64, self.take_source, depth=1)
        ros.every(PERIOD_S, self.sample)

    def hear(self, line):
        if line == "go":
            self.run, self.left = self.run + 1, SAMPLES
            self.circuit, self.begun = Circuit(), time.monotonic_ns()
            self.at = self.begun

    def advance(self):
        now = time.monotonic_ns()
        self.circuit.advance((now - self.at) / 1e9)
        self.at = now

    def take_source(self, message):
        if self.circuit:
            self.advance()
            self.circuit.source = message.data

    def sample(self):
        if not self.is_ready and self.ros.is_heard(self.voltages):
            self.is_ready = True
            print("ready", flush=True)
        if not self.left:
            return
        self.advance()
        volt = float(self.circuit.state[0])
        self.samples.append((self.run, self.at - self.begun, volt))
        self.voltages.publish(Float64(data=volt))
        self.left -= 1
        if not self.left:
            # Late answers of the regulator belong to no run.
            self.circuit = None
            print("done", flush=True)


def main():
    kind, namespace, path = sys.argv[1:4]
    ros = middleware.start(kind, middleware.node_name(namespace, "circuit"))
    plant = Plant(ros, namespace)
    ros.spin(plant.hear)
    with open(path, "w", encoding="utf-8") as file:
        file.write("run,ns,volt\n")
        file.writelines("%d,%d,%.6f\n" % sample for sample in plant.samples)
    print("written", flush=True)


if __name__ == "__main__":
    main()
    os._exit(0)
