#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs the packages of target/packages/out in clean root file systems, and uses them.

    packages.py [--arch arm64] [--roots bookworm-amd64,bookworm-arm64] [--steps install,upgrade] [--keep]

It needs root, debootstrap, and qemu-user-static for other architectures (`make packages-test`
installs them). It prints one line for each step, and a table; its exit code is 1 if a step fails.
"""

import argparse
import hashlib
import pathlib
import re
import subprocess
import sys
import time

import booted
import container
import exchange
from roots import CACHE, SOURCE, Root, StepFailed, ensure

OUT = SOURCE / "target/packages/out"
OLD_VERSION = "0.0.9"
ROS1 = ["python3-rostopic", "python3-rosmaster", "python3-std-msgs"]
# Debian 11 has the glibc of Ubuntu 20.04. 'arm64' runs in qemu-user.
ROOTS = ["bullseye-amd64", "bookworm-amd64", "trixie-amd64", "bookworm-arm64"]
LARGEST_PACKAGE_MB = 15
LARGEST_MEMORY_MB = 15
WANTS = "etc/systemd/system/multi-user.target.wants"


class Bench:
    """What the steps of one root share."""

    def __init__(self, name):
        self.release, self.arch = name.split("-")
        self.is_foreign = self.arch != host_architecture()
        self.root = Root(self.release, self.arch, OUT.parent)
        self.before = self.root.files()
        self.packages_before = self.installed_packages()
        self.notes = []

    def install(self, package):
        return self.root.run("apt-get", "install", "-y", "--no-install-recommends", f"/mnt/{package}")

    def installed_packages(self):
        return set(self.root.run("dpkg-query", "-W", "-f=${binary:Package}\n").split())

    def files_of_dependencies(self):
        """Returns the files of packages that were installed together with ours, and remain."""
        files = set()
        for name in self.installed_packages() - self.packages_before:
            files.update(self.root.run("dpkg-query", "-L", name).splitlines())
            info = (self.root.path / "var/lib/dpkg/info").glob(f"{name}.*")
            files.update("/" + str(path.relative_to(self.root.path)) for path in info)
        return files

    def content(self, path):
        return (self.root.path / path.lstrip("/")).read_text()


def host_architecture():
    return subprocess.run(["dpkg", "--print-architecture"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def version():
    return re.search(r'^version = "(.*)"', (SOURCE / "Cargo.toml").read_text(), re.MULTILINE).group(1)


def package(name, arch):
    return f"out/{name}_{version()}_{arch}.deb"


def old_package(arch):
    """Makes the package of a lower version from the one that is tested; returns its name."""
    folder = OUT.parent / f"old-{arch}"
    deb = f"old/tautline_{OLD_VERSION}_{arch}.deb"
    (OUT.parent / "old").mkdir(exist_ok=True)
    subprocess.run(["rm", "-rf", folder], check=True)
    subprocess.run(["dpkg-deb", "-R", OUT.parent / package("tautline", arch), folder], check=True)
    control = folder / "DEBIAN/control"
    control.write_text(re.sub(r"^Version: .*$", f"Version: {OLD_VERSION}", control.read_text(), flags=re.MULTILINE))
    build = ["dpkg-deb", "--root-owner-group", "-Zxz", "-z0", "-b", folder, OUT.parent / deb]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    return deb


def ensure_installed(bench):
    """Checks user, folder and unit, as every installation must leave them."""
    root = bench.root
    state = root.run("dpkg-query", "-W", "-f=${db:Status-Abbrev} ${Version}", "tautline")
    ensure(state.split() == ["ii", version()], f"dpkg says: {state}")
    folder = root.run("stat", "-c", "%U:%G %a", "/etc/tautline").strip()
    ensure(folder == "root:tautline 750", f"/etc/tautline is {folder}")
    account = root.run("getent", "passwd", "tautline").strip()
    ensure(account.endswith(":/nonexistent:/usr/sbin/nologin"), f"the user is {account}")
    ensure((root.path / WANTS / "tautline.service").is_symlink(), "the unit is not enabled")
    timers = [path for path in root.path.glob("etc/systemd/system/*/tautline-again.timer")]
    ensure(not timers, f"the timer is enabled: {timers}")


# The steps. Each gets the bench of its root, and raises StepFailed with what is wrong.


def install(bench):
    """apt installs the package and what it needs, without systemd"""
    bench.install(package("tautline", bench.arch))
    ensure_installed(bench)
    ensure(not (bench.root.path / "run/systemd/system").exists(), "systemd runs in the root")
    for path in ["usr/share/man/man1/tautline-run.1.gz", "usr/share/man/man5/robot.yaml.5.gz",
                 "usr/share/doc/tautline/how-to/pair.md", "usr/share/doc/tautline/reference/audit.md",
                 "usr/share/bash-completion/completions/tautline",
                 "usr/share/zsh/vendor-completions/_tautline", "usr/share/fish/vendor_completions.d/tautline.fish",
                 "usr/share/tautline/robot.schema.json", "usr/share/tautline/relay.schema.json",
                 "usr/lib/systemd/system/tautline@.service"]:
        # Roots without documentation still have it: dpkg's exclusions are those of container images.
        ensure((bench.root.path / path).is_file(), f"/{path} is missing")


def use(bench):
    """--version, init, keygen and check, and the examples are valid"""
    root = bench.root
    said = root.run("tautline", "--version").strip()
    ensure(said == f"tautline {version()}", f"--version prints {said}")
    root.run("tautline", "init", "/tmp/robot.yaml")
    root.run("tautline", "keygen", "/tmp/robot1.key")
    root.run("tautline", "check", "/tmp/robot.yaml")
    for example in ["robot.yaml", "ros1.yaml", "ros2.yaml"]:
        root.run("tautline", "check", f"/usr/share/doc/tautline/examples/{example}")


def old_key(bench):
    """a file with a key that no longer exists gets a clear sentence"""
    (bench.root.path / "tmp/old.yaml").write_text("name: robot1\nbandwith: 6Mbps\n")
    code, said = bench.root.attempt("tautline", "check", "/tmp/old.yaml")
    ensure(code == 1 and "/tmp/old.yaml:2:" in said and "'bandwith'" in said, f"exit code {code}: {said}")


def upgrade(bench):
    """an upgrade keeps the files of /etc/tautline byte for byte, and a disabled unit stays disabled"""
    root = bench.root
    root.run("dpkg", "--purge", "tautline")
    bench.install(old_package(bench.arch))
    text = "name: robot1\n# mine\nros1: false\n"
    (root.path / "etc/tautline/robot.yaml").write_text(text)
    root.run("tautline", "keygen", "/etc/tautline/robot1.key")
    before = fingerprints(root)
    bench.install(package("tautline", bench.arch))
    ensure_installed(bench)
    ensure(fingerprints(root) == before, f"before {before}, after {fingerprints(root)}")
    root.run("tautline", "check", "/etc/tautline/robot.yaml", user="tautline")
    (root.path / WANTS / "tautline.service").unlink()
    root.run("apt-get", "install", "-y", "--reinstall", f"/mnt/{package('tautline', bench.arch)}")
    ensure(not (root.path / WANTS / "tautline.service").exists(), "the upgrade enabled a disabled unit")


def fingerprints(root):
    files = sorted((root.path / "etc/tautline").iterdir())
    return [(path.name, hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_uid, path.stat().st_mode)
            for path in files]


def relay(bench):
    """the package of the relay enables its unit, and leaves nothing behind"""
    root = bench.root
    before = root.files()
    bench.install(package("tautline-relay", "all"))
    ensure((root.path / WANTS / "tautline-relay.service").is_symlink(), "the unit is not enabled")
    ensure((root.path / "usr/share/doc/tautline-relay/examples/relay.yaml").is_file(), "no example")
    (root.path / "etc/tautline/relay.yaml").write_text("name: relay\n")
    root.run("dpkg", "--purge", "tautline-relay")
    left = sorted(root.files() - before)
    ensure(not left, f"left behind: {left}")


def interrupted(bench):
    """an installation that is killed at any command is completed by dpkg --configure"""
    root = bench.root
    for victim in ["usr/sbin/adduser", "usr/bin/install", "usr/bin/mv", "usr/bin/deb-systemd-helper"]:
        root.run("dpkg", "--purge", "tautline")
        root.run("dpkg", "--unpack", f"/mnt/{package('tautline', bench.arch)}")
        program = root.path / victim
        hidden = program.with_name(program.name + ".hidden")
        # Kills the script that calls it.
        program.rename(hidden)
        program.write_text("#!/bin/sh\nkill -KILL $PPID\n")
        program.chmod(0o755)
        code, _ = root.attempt("dpkg", "--configure", "tautline")
        program.unlink()
        hidden.rename(program)
        ensure(code != 0, f"the installation did not call {victim}")
        root.run("dpkg", "--configure", "-a")
        ensure_installed(bench)


def remove(bench):
    """removal keeps the file and the key; the program and the unit go"""
    root = bench.root
    (root.path / "etc/tautline/robot.yaml").write_text("name: robot1\n")
    root.run("apt-get", "remove", "-y", "tautline")
    ensure(bench.content("/etc/tautline/robot.yaml") == "name: robot1\n", "the file has changed")
    for path in ["usr/bin/tautline", "usr/lib/systemd/system/tautline.service"]:
        ensure(not (root.path / path).exists(), f"/{path} is left")


def purge(bench):
    """purge leaves no file, user or unit, and keeps what is not the package's"""
    root = bench.root
    bench.install(package("tautline", bench.arch))
    for folder in ["var/lib/tautline", "var/log/tautline"]:
        root.run("install", "-d", "-o", "tautline", f"/{folder}")
        (root.path / folder / "robot1.state").write_text("")
    (root.path / "etc/tautline-not-ours").write_text("")
    # As for a user who runs `tautline status` without sudo.
    root.run("usermod", "-a", "-G", "tautline", "nobody")
    root.run("apt-get", "purge", "-y", "tautline")
    root.run("apt-get", "autoremove", "--purge", "-y")
    for database in ["passwd", "group", "shadow"]:
        ensure("tautline" not in bench.content(f"/etc/{database}"), f"/etc/{database} still has the user")
    ensure("tautline" not in bench.installed_packages(), "the package is still there")
    left = sorted(root.files() - bench.before - bench.files_of_dependencies())
    ensure(left == ["/etc/tautline-not-ours"], f"left behind: {left}")


def units(bench):
    """this release's systemd verifies the units"""
    root = bench.root
    bench.install(package("tautline", bench.arch))
    bench.install(package("tautline-relay", "all"))
    root.run("apt-get", "install", "-y", "--no-install-recommends", "systemd")
    names = ["tautline.service", "tautline-again.timer", "tautline-relay.service"]
    code, said = root.attempt("systemd-analyze", "verify", "--man=no", *[f"/usr/lib/systemd/system/{name}" for name in names])
    ours = "\n".join(line for line in said.splitlines() if "tautline" in line)
    ensure(code == 0 and not ours, f"systemd-analyze verify, exit code {code}:\n{said}")


def boot(bench):
    """with systemd running: nothing fails without a file; start, upgrade, a crash, a wrong file, a reboot, purge"""
    if bench.is_foreign:
        return "systemd does not run under qemu-user"
    root = Root(bench.release, bench.arch, OUT.parent, kind="boot", extra=booted.PACKAGES)
    debs = [old_package(bench.arch), package("tautline", bench.arch), package("tautline-relay", "all")]
    try:
        used = booted.play(root, *[f"/mnt/{deb}" for deb in debs])
    finally:
        root.remove()
    bench.notes.append(f"idle daemon under systemd {used / 1024:.1f} MB resident")
    return None


def ros1(bench):
    """a topic of ROS 1 crosses two daemons in two network namespaces"""
    if bench.is_foreign:
        # The daemons run in qemu; ROS 1 is this computer's.
        bench.install(package("tautline", bench.arch))
        exchange.ros1_topic(bench.root, lambda network, *words: ["ip", "netns", "exec", network, *words])
        return
    root = Root(bench.release, bench.arch, OUT.parent, kind="ros", extra=ROS1)
    try:
        root.run("apt-get", "install", "-y", f"/mnt/{package('tautline', bench.arch)}")
        exchange.ros1_topic(root, lambda network, *words: root.command(*words, network=network))
    finally:
        root.remove()


def ros2(bench):
    """a topic of ROS 2 crosses them, with rclpy from PyPI at both ends"""
    bench.install(package("tautline", bench.arch))
    exchange.ros2_topic(bench.root)


def memory(bench):
    """the memory of an idle, connected daemon"""
    bench.install(package("tautline", bench.arch))
    sizes = exchange.idle_memory(bench.root)
    bench.notes.append(f"idle daemon {max(sizes) / 1024:.1f} MB resident" + (" with qemu's own" if bench.is_foreign else ""))
    ensure(bench.is_foreign or max(sizes) < LARGEST_MEMORY_MB * 1024, f"resident: {sizes} kB")


def containerfile(bench):
    """the steps of the Containerfile"""
    if bench.release != "bookworm":
        return "its base is bookworm"
    root = Root(bench.release, bench.arch, OUT.parent)
    try:
        container.build(root, SOURCE / "packaging/Containerfile", OUT)
    finally:
        root.remove()
    return None


# `units` installs systemd, and is therefore the last one that uses the clean root.
STEPS = [install, use, old_key, upgrade, relay, interrupted, remove, purge, memory, ros1, ros2, units, boot,
         containerfile]


def run_steps(bench, steps):
    """Runs the steps in one root; returns the result of each by name."""
    results = {}
    for step in steps:
        begin = time.monotonic()
        try:
            skipped = step(bench)
            result, more = ("-", skipped) if skipped else ("pass", step.__doc__)
        except StepFailed as failure:
            result, more = "FAIL", str(failure)
        results[step.__name__] = result
        print(f"{bench.release} {bench.arch}: {step.__name__}: {result} ({time.monotonic() - begin:.0f} s): {more}",
              flush=True)
    return results


def lint(arch):
    """Runs lintian on the packages; returns what it says."""
    debs = [OUT.parent / package("tautline", arch), OUT.parent / package("tautline-relay", "all"),
            OUT.parent / package("tautline-dbgsym", arch)]
    words = ["lintian", "--allow-root", "--fail-on", "error,warning", *debs]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    sizes = [f"{deb.name} {deb.stat().st_size / 1e6:.1f} MB" for deb in debs]
    print(f"{arch}: {', '.join(sizes)}\n{arch}: lintian: {done.stdout.strip() or 'nothing'}", flush=True)
    small = debs[0].stat().st_size < LARGEST_PACKAGE_MB * 1e6
    return "pass" if done.returncode == 0 and small else "FAIL"


def table(results):
    columns = ["lintian"] + [step.__name__ for step in STEPS]
    columns = [column for column in columns if any(column in row for row in results.values())]
    width = max(len(name) for name in results)
    lines = [" ".join([" " * width] + columns)]
    for name, row in results.items():
        lines.append(" ".join([name.ljust(width)] + [row.get(column, "").ljust(len(column)) for column in columns]))
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description="tests the packages in clean root file systems")
    parser.add_argument("--roots", help="of " + ", ".join(ROOTS))
    parser.add_argument("--arch", help="all roots of this architecture")
    parser.add_argument("--steps", help="of " + ", ".join(step.__name__ for step in STEPS))
    parser.add_argument("--keep", action="store_true", help="keep the roots below target/roots")
    arguments = parser.parse_args()
    wanted = arguments.steps.split(",") if arguments.steps else [step.__name__ for step in STEPS]
    steps = [step for step in STEPS if step.__name__ in wanted]
    CACHE.mkdir(parents=True, exist_ok=True)
    results, notes = {}, []
    roots = [name for name in ROOTS if name.endswith(arguments.arch or "")]
    for name in arguments.roots.split(",") if arguments.roots else roots:
        bench = Bench(name)
        row = {"lintian": lint(bench.arch)} if not any(n.endswith(bench.arch) for n in results) else {}
        results[name] = row | run_steps(bench, steps)
        notes += [f"{name}: {note}" for note in bench.notes]
        if not arguments.keep:
            bench.root.remove()
    print("\n".join(["", table(results), "", *notes]))
    sys.exit(any("FAIL" in row.values() for row in results.values()))


if __name__ == "__main__":
    main()
