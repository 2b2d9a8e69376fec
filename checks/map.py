#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the files which ARCHITECTURE.md names exist and have the items named in parentheses after
them, and that the changes of its first table of tasks touch at most four files.

A path begins with a crate, or is relative to src/ of the crate, or to a folder, that was named before it
in the same row.
"""

import itertools
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CRATES = ROOT / "crates"
PATH = re.compile(r"`(crates/\w+|[\w./-]+(?:\.\w+|/))`(?: \(`(\w+)`)?")
SMALL_CHANGES = "| change | at most four files |"
MAX_FILES = 4


def places(path, bases):
    """Where a path of a row may be, the likeliest first."""
    yield ROOT / path
    yield CRATES / path
    crate, _, rest = path.partition("/")
    yield CRATES / crate / "src" / rest
    for base in reversed(bases):
        yield base / path


def faults_of(row):
    bases = []
    for path, item in PATH.findall(row):
        found = next((place for place in places(path, bases) if place.exists()), None)
        if found is None:
            yield f"no file {path}"
            continue
        if item and found.is_file() and not re.search(rf"\b{item}\b", found.read_text()):
            yield f"no {item} in {path}"
        folder = found if found.is_dir() else found.parent
        bases += [folder / "src", *(near for near in [folder, *folder.parents] if ROOT in near.parents)]


def main():
    lines = (ROOT / "ARCHITECTURE.md").read_text().split("\n")
    rows = [(number, line) for number, line in enumerate(lines, 1) if line.startswith("|")]
    problems = [f"ARCHITECTURE.md:{number}: {fault}" for number, row in rows for fault in faults_of(row)]
    start = next((at for at, line in enumerate(lines) if line.startswith(SMALL_CHANGES)), None)
    if start is None:
        problems.append(f"ARCHITECTURE.md: no table with '{SMALL_CHANGES}'")
        start = len(lines)
    for row in itertools.takewhile(lambda line: line.startswith("|"), lines[start:]):
        _, task, files, *_ = row.split("|")
        if len(PATH.findall(files)) > MAX_FILES:
            problems.append(f"ARCHITECTURE.md: {task.strip()} touches more than {MAX_FILES} files")
    print("\n".join(problems) or "map: all files of ARCHITECTURE.md exist")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
