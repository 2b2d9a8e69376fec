# SPDX-License-Identifier: Apache-2.0
"""Describes the machine and the source tree, and checks whether they are fit for a measurement."""

import os
import pathlib
import platform
import shutil
import subprocess
import time

# Share of all processors that other programs may use before a measurement.
MAX_BUSY_PERCENT = 15
BUSY_SAMPLE_S = 5
# Changes there do not change what is measured.
PROSE = (":(exclude)docs", ":(exclude)README.md")


def entry(path, key):
    for line in pathlib.Path(path).read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return None


def facts():
    """Processor, memory and kernel."""
    return {
        "processor": entry("/proc/cpuinfo", "model name") or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mb": int(entry("/proc/meminfo", "MemTotal").split()[0]) * 1024 // 10**6,
        "kernel": platform.release(),
    }


def git(root, *arguments):
    return subprocess.run(
        ["git", "-C", str(root), *arguments], check=True, text=True, stdout=subprocess.PIPE
    ).stdout.rstrip("\n")


def commit(root):
    return git(root, "rev-parse", "--short=7", "HEAD")


def changes(root):
    """Uncommitted changes outside the documentation, as `git status` shows them."""
    return git(root, "status", "--porcelain", "--", ".", *PROSE).splitlines()


def ticks():
    """Busy and total time of all processors; see proc_stat(5). Time that the host takes away is busy."""
    fields = [int(field) for field in pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(fields) - fields[3] - fields[4], sum(fields)


def busy_percent(seconds=BUSY_SAMPLE_S):
    before = ticks()
    time.sleep(seconds)
    busy, total = (after - first for after, first in zip(ticks(), before))
    return 100 * busy / max(total, 1)


def busiest():
    """The programs that use most processor time now."""
    if not shutil.which("top"):
        return "`top` would show them"
    listed = subprocess.run(["top", "-b", "-n2", "-d1", "-w120"], text=True, stdout=subprocess.PIPE, check=False).stdout
    rows = listed.rpartition("PID USER")[2].splitlines()[1:4]
    return ", ".join(
        f"{fields[11]} ({fields[8]} %, pid {fields[0]})" for row in rows if len(fields := row.split()) > 11
    )
