# SPDX-License-Identifier: Apache-2.0
"""Two daemons of the package in two network namespaces, with real ROS programs at both ends."""

import os
import pathlib
import re
import signal
import subprocess
import time

from roots import HERE, SOURCE, ensure

DEADLINE_S = 180
ADDRESSES = {"robot1": "10.77.0.1", "base": "10.77.0.2"}
MASTER = "http://127.0.0.1:11311"
KILTED = SOURCE / "target/ros2/kilted/bin/python"


class Pair:
    """Two namespaces that a cable joins. Everything started in them ends with the pair."""

    def __init__(self):
        self.names = {name: f"tautline-{name}-{os.getpid()}" for name in ADDRESSES}
        self.programs = []

    def __enter__(self):
        for name in self.names.values():
            call("ip", "netns", "add", name)
            call("ip", "-n", name, "link", "set", "lo", "up")
        first, second = self.names.values()
        call("ip", "-n", first, "link", "add", "radio", "type", "veth", "peer", "name", "radio", "netns", second)
        for name, address in ADDRESSES.items():
            call("ip", "-n", self.names[name], "address", "add", f"{address}/24", "dev", "radio")
            call("ip", "-n", self.names[name], "link", "set", "radio", "up")
        return self

    def __exit__(self, *_):
        for program in reversed(self.programs):
            if program.poll() is None:
                os.killpg(program.pid, signal.SIGKILL)
            program.wait()
        for name in self.names.values():
            call("ip", "netns", "delete", name)

    def start(self, words, log):
        with open(log, "w", encoding="utf-8") as output:
            program = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                       start_new_session=True)
        self.programs.append(program)
        return program


def call(*words):
    subprocess.run(words, check=True)


def wait_for(what, condition, log=None):
    give_up = time.monotonic() + DEADLINE_S
    while True:
        result = condition()
        if result:
            return result
        text = pathlib.Path(log).read_text(errors="replace")[-1500:] if log else ""
        ensure(time.monotonic() < give_up, f"not in {DEADLINE_S} s: {what}\n{text}")
        time.sleep(0.2)


def is_listening(network, port):
    words = ["ip", "netns", "exec", network, "ss", "--no-header", "--listening", "--tcp", f"sport = :{port}"]
    return subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout.strip()


def public_key(root, name):
    """Makes a node's key, as the daemon's user; returns the public one."""
    folder = f"/etc/tautline/{name}"
    root.run("rm", "-rf", folder)
    root.run("install", "-d", "-o", "tautline", folder)
    output = root.run("tautline", "keygen", f"{folder}/{name}.key", user="tautline")
    return re.search(r"^public key: (\S+)$", output, re.MULTILINE).group(1)


def write_files(root, ros, accepted=None):
    keys = {name: public_key(root, name) for name in ADDRESSES}
    for name, other in [("robot1", "base"), ("base", "robot1")]:
        lines = [f"name: {name}", *ros, f"control: /etc/tautline/{name}/control.sock", "peers:", f"  {other}:",
                 f"    key: {keys[other]}", f"    address: {ADDRESSES[other]}"]
        if other == "robot1":
            lines += ["    prefix: /robot1"] + ([f"    accept: {{ /chatter: {accepted} }}"] if accepted else [])
        else:
            lines += ["topics: { /chatter: {} }"]
        path = f"/etc/tautline/{name}/robot.yaml"
        (root.path / path.lstrip("/")).write_text("\n".join(lines) + "\n")
        root.run("tautline", "check", path, user="tautline")


def start_daemons(pair, root):
    """Starts both daemons, and returns when each reports that its peer is up."""
    logs = {}
    for name, network in pair.names.items():
        logs[name] = root.path / f"tmp/{name}.log"
        words = root.command("tautline", "run", f"/etc/tautline/{name}/robot.yaml", network=network, user="tautline")
        pair.start(words, logs[name])
    for name, log in logs.items():
        wait_for(f"the peer of {name} is up", lambda log=log: "peer is up" in log.read_text(), log)


def resident_kb(root):
    """Returns the resident memory of each daemon of this root, in kB."""
    sizes = []
    for process in pathlib.Path("/proc").iterdir():
        try:
            if not process.name.isdigit() or os.readlink(process / "root") != str(root.path):
                continue
            words = (process / "cmdline").read_bytes().split(b"\0")
            if b"run" in words and any(word.endswith(b"tautline") for word in words[:3]):
                sizes.append(int(re.search(r"VmRSS:\s+(\d+)", (process / "status").read_text()).group(1)))
        except OSError:
            continue  # It has ended.
    return sizes


def idle_memory(root):
    """Returns the memory that two daemons without ROS use once they are connected."""
    write_files(root, ["ros1: false", "ros2: false"])
    with Pair() as pair:
        start_daemons(pair, root)
        return wait_for("two daemons", lambda: sizes if len(sizes := resident_kb(root)) == 2 else None)


def ros1_topic(root, ros):
    """Publishes in the robot's ROS 1, and reads at the base. `ros` runs a ROS program in a namespace."""
    environment = ["env", f"ROS_MASTER_URI={MASTER}", "ROS_IP=127.0.0.1"]
    write_files(root, [f"ros1: {{ master: '{MASTER}', host: 127.0.0.1 }}"], "std_msgs/String")
    with Pair() as pair:
        for name, network in pair.names.items():
            log = root.path / f"tmp/{name}.master"
            pair.start(ros(network, *environment, "rosmaster", "--core", "-p", "11311"), log)
            wait_for("a ROS 1 master", lambda network=network: is_listening(network, 11311), log)
        start_daemons(pair, root)
        publish = ros(pair.names["robot1"], *environment, "rostopic", "pub", "-r", "5", "/chatter",
                      "std_msgs/String", "data: over the radio")
        pair.start(publish, root.path / "tmp/publish.log")
        echo = ros(pair.names["base"], *environment, "rostopic", "echo", "-n", "1", "/robot1/chatter")
        heard = pair.start(echo, root.path / "tmp/echo.log")
        wait_for("a message of ROS 1", lambda: heard.poll() is not None, root.path / "tmp/base.log")
    text = (root.path / "tmp/echo.log").read_text()
    ensure("over the radio" in text, f"rostopic echo printed: {text}")


def ros2_topic(root):
    """Publishes in ROS 2, and reads at the base. The daemons run in the root, rclpy from PyPI outside it."""
    write_files(root, ["ros1: false", "ros2: { domain: 7, range: localhost }"], "std_msgs/msg/String")
    with Pair() as pair:
        start_daemons(pair, root)

        def rclpy(name, *words):
            environment = ["env", "ROS_DOMAIN_ID=7", "ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST"]
            program = [str(KILTED), str(HERE / "ros2_once.py"), *words]
            return ["ip", "netns", "exec", pair.names[name], *environment, *program]

        pair.start(rclpy("robot1", "publish", "/chatter"), root.path / "tmp/publish.log")
        heard = pair.start(rclpy("base", "echo", "/robot1/chatter"), root.path / "tmp/echo.log")
        wait_for("a message of ROS 2", lambda: heard.poll() is not None, root.path / "tmp/base.log")
    text = (root.path / "tmp/echo.log").read_text()
    ensure("over the radio" in text, f"rclpy printed: {text}")
