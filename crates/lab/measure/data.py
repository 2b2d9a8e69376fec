# SPDX-License-Identifier: Apache-2.0
"""Reports below docs/measured. All reading and writing of them is here.

A report is `NAME.json`, or compressed as `NAME.json.gz`, `NAME.json.xz` or `NAME.json.zst`. A report gets the form
of the one that it replaces.
"""

import gzip
import json
import lzma
import pathlib
import shutil
import subprocess

FORMS = (".json", ".json.gz", ".json.xz", ".json.zst")
# Which commit and machine measured each row.
RECORD = "measured"


class NoReport(Exception):
    """A table needs a report that does not exist."""


class Store:
    """The reports of one documentation folder."""

    def __init__(self, docs):
        self.folder = pathlib.Path(docs) / "measured"

    def file_of(self, name):
        """The file of a report, in whichever form it exists; None without one."""
        files = (self.folder / f"{name}{form}" for form in FORMS)
        return next((file for file in files if file.is_file()), None)

    def read(self, name):
        file = self.file_of(name)
        if file is None:
            raise NoReport(f"there is no report {self.folder / name}.json, compressed or not")
        try:
            return json.loads(decompressed(file))
        except (ValueError, OSError, EOFError, lzma.LZMAError) as error:
            raise ValueError(f"{file}: {error}") from error

    def write(self, name, report, form=".json"):
        """Writes a report, which must be JSON. A new file gets the form `form`."""
        try:
            json.loads(report)
        except ValueError as error:
            raise ValueError(f"the report {name} is no JSON: {error}") from error
        file = self.file_of(name) or self.folder / f"{name}{form}"
        file.write_bytes(compressed(file, report.encode()))
        return file

    def remove(self, name):
        file = self.file_of(name)
        if file:
            file.unlink()

    def record(self):
        """The record of measurements: commit, date, machine and rows of each, the newest first."""
        return self.read(RECORD)["measurements"] if self.file_of(RECORD) else []

    def write_record(self, measurements):
        self.write(RECORD, json.dumps({"measurements": measurements}, indent=1, ensure_ascii=False) + "\n")


def zstd(*options, data):
    """Python's standard library has Zstandard from 3.14 on only; the program is in Debian's `zstd`."""
    if not shutil.which("zstd"):
        raise OSError("the program `zstd` is missing: apt-get install zstd")
    return subprocess.run(["zstd", "-q", "-c", *options], input=data, stdout=subprocess.PIPE, check=True).stdout


def decompressed(file):
    data = file.read_bytes()
    if file.suffix == ".gz":
        return gzip.decompress(data)
    if file.suffix == ".xz":
        return lzma.decompress(data)
    return zstd("-d", data=data) if file.suffix == ".zst" else data


def compressed(file, data):
    """Compresses a report in the form of the file's name; the same report always gives the same bytes."""
    if file.suffix == ".gz":
        return gzip.compress(data, mtime=0)
    if file.suffix == ".xz":
        return lzma.compress(data, preset=9)
    return zstd("-19", data=data) if file.suffix == ".zst" else data
