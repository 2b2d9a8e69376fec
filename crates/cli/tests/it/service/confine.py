# SPDX-License-Identifier: Apache-2.0
"""Runs a program under what systemd would make of a unit, as far as that can be had without
systemd: its system call filter (with its error number, its address families and its ban of
memory that is written and executed), no capability, no new privileges, /proc of processes alone,
its limits. Run it as root of a user, mount and process namespace.

confine.py UNIT PROGRAM ARGUMENT..."""

import ctypes
import errno
import resource
import seccomp
import socket
import subprocess
import sys

unit, program = sys.argv[1], sys.argv[2:]


def values(key):
    lines = [line.strip() for line in open(unit)]
    return [line.split("=", 1)[1].strip() for line in lines if line.startswith(key + "=")]


def one(key):
    found = values(key)
    assert len(found) == 1, f"{key}= is there {len(found)} times"
    return found[0]


def calls(name):
    """What systemd has in a group, groups within it included."""
    if not name.startswith("@"):
        return {name}
    text = subprocess.run(
        ["systemd-analyze", "syscall-filter", name], check=True, capture_output=True, text=True
    ).stdout
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    names = [line for line in lines if line and not line.startswith("#")]
    return set().union(*(calls(inner) for inner in names))


# systemd adds to each filter the calls that are needed to start a program (@default). A list of denied
# calls (~) removes only the calls that it names.
allowed = calls("@default")
for words in values("SystemCallFilter"):
    wanted = set().union(*(calls(word) for word in words.lstrip("~").split()))
    allowed = allowed - wanted if words.startswith("~") else allowed | wanted
denied = seccomp.ERRNO(getattr(errno, one("SystemCallErrorNumber")))
rules = seccomp.SyscallFilter(denied)
families = [getattr(socket, name) for name in one("RestrictAddressFamilies").split()]
assert one("MemoryDenyWriteExecute") == "yes"
WRITE, EXECUTE = 2, 4
for name in sorted(allowed):
    try:
        if name == "socket":
            for family in families:
                rules.add_rule(seccomp.ALLOW, name, seccomp.Arg(0, seccomp.EQ, int(family)))
        elif name == "mmap":
            both = WRITE | EXECUTE
            for protection in (0, WRITE, EXECUTE):
                masked = seccomp.Arg(2, seccomp.MASKED_EQ, both, protection)
                rules.add_rule(seccomp.ALLOW, name, masked)
        elif name in ("mprotect", "pkey_mprotect"):
            rules.add_rule(seccomp.ALLOW, name, seccomp.Arg(2, seccomp.MASKED_EQ, EXECUTE, 0))
        else:
            rules.add_rule(seccomp.ALLOW, name)
    except (RuntimeError, OSError, ValueError):
        pass  # of another architecture
assert one("ProcSubset") == "pid"
mount = ["mount", "-t", "proc", "-o", "subset=pid,hidepid=invisible", "proc", "/proc"]
subprocess.run(mount, check=True)
limits = {"LimitCORE": resource.RLIMIT_CORE, "LimitNOFILE": resource.RLIMIT_NOFILE}
for key, limit in limits.items():
    most = resource.getrlimit(limit)[1]
    value = int(one(key)) if most == resource.RLIM_INFINITY else min(int(one(key)), most)
    resource.setrlimit(limit, (value, value))
assert one("CapabilityBoundingSet") == "" and one("AmbientCapabilities") == ""
assert one("NoNewPrivileges") == "yes"
libc = ctypes.CDLL(None, use_errno=True)
PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP, LAST_CAPABILITY = 38, 24, 40
for capability in range(LAST_CAPABILITY + 1):
    assert libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0
assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
rules.load()
# The filter holds: a call that it leaves out fails.
libc.sched_setscheduler(0, 0, ctypes.byref(ctypes.c_int(0)))
assert ctypes.get_errno() == errno.EPERM, "sched_setscheduler is not filtered"
subprocess.os.execv(program[0], program)
