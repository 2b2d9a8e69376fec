# SPDX-License-Identifier: Apache-2.0
"""A root with systemd running in it, in a container of systemd-nspawn without a network."""

import os
import pathlib
import subprocess
import time

from roots import ENVIRONMENT, ensure

DEADLINE_S = 180
PACKAGES = ["systemd", "systemd-sysv", "dbus", "adduser"]
UNIT = "tautline.service"
FILE = 'name: robot1\nros1: false\nros2: false\nlisten: "127.0.0.1:18470"\n'


class Booted:
    """Boots the root; it is shut down at the end."""

    def __init__(self, root):
        self.root = root
        self.container = None
        self.init = None

    def __enter__(self):
        log = self.root.path.with_suffix(".boot")
        words = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--private-network", "--boot",
                 "--console=read-only", f"--directory={self.root.path}", f"--bind-ro={self.root.packages}:/mnt"]
        with open(log, "w", encoding="utf-8") as output:
            # Since 257, systemd boots only with the unified cgroup hierarchy: this selects it.
            environment = {**os.environ, "UNIFIED_CGROUP_HIERARCHY": "yes"}
            self.container = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, env=environment,
                                              stderr=subprocess.STDOUT)
        self.init = self.wait("systemd has booted", self.booted_init, log)
        return self

    def __exit__(self, *_):
        try:
            self.attempt("systemctl", "poweroff")
            self.container.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.container.kill()
            self.container.wait()

    def booted_init(self):
        """Returns the process ID of systemd in the container, after it has started everything."""
        ensure(self.container.poll() is None, f"the container ended; see {self.root.path.with_suffix('.boot')}")
        children = pathlib.Path(f"/proc/{self.container.pid}/task/{self.container.pid}/children").read_text().split()
        if not children:
            return None
        self.init = children[0]
        _, state = self.attempt("systemctl", "is-system-running")
        return self.init if state.strip() in ("running", "degraded") else None

    def wait(self, what, condition, log=None):
        give_up = time.monotonic() + DEADLINE_S
        while not (result := condition()):
            more = log.read_text(errors="replace")[-1500:] if log else self.attempt("journalctl", "-n", "30")[1]
            ensure(time.monotonic() < give_up, f"not in {DEADLINE_S} s: {what}\n{more}")
            time.sleep(0.2)
        return result

    def attempt(self, *words):
        enter = ["nsenter", f"--target={self.init}", "--all", "env", "-i", *ENVIRONMENT, *words]
        done = subprocess.run(enter, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                              text=True, errors="replace", cwd="/")
        return done.returncode, done.stdout

    def run(self, *words):
        code, output = self.attempt(*words)
        ensure(code == 0, f"'{' '.join(words)}' failed with {code}:\n{output.strip()[-2000:]}")
        return output.strip()

    def state(self, unit):
        return self.attempt("systemctl", "is-active", unit)[1].strip()

    def main_process(self):
        return self.run("systemctl", "show", "--property=MainPID", "--value", UNIT)

    def ensure_nothing_failed(self):
        failed = self.run("systemctl", "list-units", "--failed", "--no-legend", "--plain")
        ensure(not failed, f"failed units: {failed}")


def install(system, *debs):
    system.run("apt-get", "install", "-y", "--no-install-recommends", *debs)


def ensure_waiting(system, unit):
    """Without its file, a unit is enabled and waits, and has not failed."""
    system.ensure_nothing_failed()
    ensure(system.run("systemctl", "is-enabled", unit) == "enabled", f"{unit} is not enabled")
    ensure(system.state(unit) == "inactive", f"{unit} is {system.state(unit)} without a file")


def start(system):
    (system.root.path / "etc/tautline/robot.yaml").write_text(FILE)
    system.run("tautline", "keygen", "/etc/tautline/robot1.key")
    system.run("tautline", "check", "/etc/tautline/robot.yaml")
    system.run("systemctl", "start", UNIT)
    ensure("robot1" in system.run("tautline", "status"), "status does not reach the daemon")
    system.run("systemctl", "reload", UNIT)
    ensure(system.state(UNIT) == "active", f"after the reload, the unit is {system.state(UNIT)}")


def upgrade(system, new, relay):
    before = system.main_process()
    install(system, new, relay)
    ensure_waiting(system, "tautline-relay.service")
    ensure(system.state(UNIT) == "active", f"after the upgrade, the unit is {system.state(UNIT)}")
    ensure(system.main_process() != before, "the upgrade did not restart the daemon")
    ensure((system.root.path / "etc/tautline/robot.yaml").read_text() == FILE, "the upgrade changed the file")


def recover(system):
    """systemd restarts a killed daemon; after a mistake in the file, only the timer starts it again."""
    before = system.main_process()
    system.run("sh", "-c", f"kill -KILL {before}")
    system.wait("the daemon is back", lambda: system.main_process() not in (before, "0"))
    system.wait("the unit is active", lambda: system.state(UNIT) == "active")
    (system.root.path / "etc/tautline/robot.yaml").write_text("nonsense: 1\n")
    code, _ = system.attempt("systemctl", "restart", UNIT)
    ensure(code != 0 and system.state(UNIT) == "failed", f"with a wrong file, the unit is {system.state(UNIT)}")
    ensure(system.state("tautline-again.timer") == "active", "the timer has not started")
    (system.root.path / "etc/tautline/robot.yaml").write_text(FILE)
    system.run("systemctl", "restart", UNIT)


def memory_kb(system):
    status = system.run("cat", f"/proc/{system.main_process()}/status")
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1])


def purge(system):
    process = system.main_process()
    system.run("apt-get", "purge", "-y", "tautline")
    code, _ = system.attempt("test", "-e", f"/proc/{process}")
    ensure(code != 0, "the daemon still runs")
    system.ensure_nothing_failed()
    _, known = system.attempt("systemctl", "list-unit-files", "--no-legend", "tautline*")
    ensure(not known.strip(), f"systemd still knows {known}")


def play(root, old, new, relay):
    """Goes through the life of an installation; returns the resident memory of the daemon in kB."""
    with Booted(root) as system:
        system.ensure_nothing_failed()
        install(system, old)
        ensure_waiting(system, UNIT)
        start(system)
        upgrade(system, new, relay)
        recover(system)
    with Booted(root) as system:
        ensure(system.state(UNIT) == "active", f"after a reboot, the unit is {system.state(UNIT)}")
        system.ensure_nothing_failed()
        used = memory_kb(system)
        purge(system)
    return used
