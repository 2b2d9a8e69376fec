# SPDX-License-Identifier: Apache-2.0
"""Root file systems of Debian releases, and commands in them.

Each root is made once by debootstrap and kept as an archive below target/roots. A test works on a
copy. Commands run in namespaces of their own, so that they leave no mount and no process behind.
"""

import os
import pathlib
import shutil
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parent.parent
CACHE = SOURCE / "target" / "roots"
MIRROR = "http://deb.debian.org/debian"

# $1: the root, $2: the cache of its package manager, $3: the packages to test; then the command.
ENTER = """
set -e
root=$1 archives=$2 packages=$3
shift 3
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --bind "$archives" "$root/var/cache/apt/archives"
mount --bind "$packages" "$root/mnt"
exec chroot "$root" /usr/bin/env -i "$@"
"""

ENVIRONMENT = [
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/root",
    "LC_ALL=C.UTF-8",
    "DEBIAN_FRONTEND=noninteractive",
]


class StepFailed(Exception):
    """A step did not do what it must; the text explains it."""


def ensure(condition, text):
    if not condition:
        raise StepFailed(text)


class Root:
    """A copy of a release's root file system."""

    def __init__(self, release, arch, packages, kind="", extra=()):
        """`extra` are packages that all copies of this `kind` have."""
        self.release = release
        self.arch = arch
        self.packages = packages
        name = "-".join(filter(None, [release, arch, kind]))
        self.archives = CACHE / f"archives-{release}-{arch}"
        (self.archives / "partial").mkdir(parents=True, exist_ok=True)
        self.path = CACHE / f"run-{name}"
        base = base_archive(release, arch)
        if not extra:
            self.unpack(base)
            return
        archive = CACHE / f"{name}.tar.zst"
        if archive.exists():
            self.unpack(archive)
        else:
            print(f"{release} {arch}: installing {' '.join(extra)} (once)", flush=True)
            self.unpack(base)
            self.run("apt-get", "install", "-y", "--no-install-recommends", *extra)
            pack(self.path, archive)

    def unpack(self, archive):
        self.remove()
        self.path.mkdir()
        subprocess.run(["tar", "--zstd", "-C", self.path, "-xf", archive], check=True)
        shutil.copy("/etc/resolv.conf", self.path / "etc/resolv.conf")
        # Services are not started in a root without an init process.
        (self.path / "etc/apt/apt.conf.d/90test").write_text('APT::Sandbox::User "root";\n')
        self.run("apt-get", "update", "-q")

    def remove(self):
        if self.path.exists():
            shutil.rmtree(self.path)

    def command(self, *words, network=None, user=None):
        """Returns the words that run a command in this root, also in a network namespace."""
        enter = ["ip", "netns", "exec", network] if network else []
        enter += ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", ENTER, "enter"]
        enter += [str(self.path), str(self.archives), str(self.packages), *ENVIRONMENT]
        if user:
            enter += ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        return enter + list(words)

    def attempt(self, *words, **options):
        """Runs a command; returns its exit code and its output."""
        done = subprocess.run(self.command(*words, **options), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout

    def run(self, *words, **options):
        """Runs a command that must succeed; returns its output."""
        code, output = self.attempt(*words, **options)
        ensure(code == 0, f"'{' '.join(words)}' failed with {code}:\n{output.strip()[-2000:]}")
        return output

    def files(self):
        """Returns the paths of all files that an installation could leave behind."""
        found = set()
        for folder, folders, names in os.walk(self.path):
            relative = os.path.relpath(folder, self.path)
            folders[:] = [name for name in folders if os.path.join(relative, name).lstrip("./") not in UNCOMPARED]
            found.update(os.path.normpath(os.path.join("/", relative, name)) for name in folders + names)
        return {path for path in found if not path.endswith("-") and path.lstrip("/") not in UNCOMPARED}


# What the package manager and its tools write for themselves.
UNCOMPARED = {
    "proc", "sys", "dev", "tmp", "mnt", "root/.cache", "var/cache", "var/lib/apt", "var/lib/dpkg/lock",
    "var/lib/dpkg/status-old", "var/lib/dpkg/available-old", "var/lib/dpkg/triggers", "var/lib/dpkg/updates",
    "var/lib/dpkg/lock-frontend", "var/lib/dpkg/diversions-old", "var/log/apt", "var/log/dpkg.log",
    "var/log/alternatives.log", "etc/.pwd.lock", "var/log/faillog", "var/log/lastlog", "run/adduser",
}


def base_archive(release, arch):
    """Returns the archive of a release's smallest root; makes it if it is not there."""
    archive = CACHE / f"{release}-{arch}.tar.zst"
    if archive.exists():
        return archive
    print(f"{release} {arch}: debootstrap (once)", flush=True)
    work = CACHE / f"work-{release}-{arch}"
    shutil.rmtree(work, ignore_errors=True)
    work.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["debootstrap", "--variant=minbase", f"--arch={arch}", release, work, MIRROR],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise SystemExit(f"debootstrap {release} {arch} failed:\n{done.stdout[-2000:]}")
    subprocess.run(["chroot", work, "apt-get", "clean"], check=True)
    pack(work, archive)
    shutil.rmtree(work)
    return archive


def pack(folder, archive):
    part = archive.with_suffix(".part")
    exclude = ["--exclude=./var/cache/apt/archives/*", "--exclude=./var/lib/apt/lists/*"]
    subprocess.run(["tar", "--zstd", "-C", folder, *exclude, "-cf", part, "."], check=True)
    part.rename(archive)
