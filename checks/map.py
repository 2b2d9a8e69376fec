#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the files which ARCHITECTURE.md names exist.

A path begins with a crate, or is relative to src/ of the crate, or to a folder, that was named before it
in the same row.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CRATES = ROOT / "crates"
PATH = re.compile(r"`(crates/\w+|[\w./-]+(?:\.\w+|/))`")


def places(path, bases):
    """Where a path of a row may be, the likeliest first."""
    yield ROOT / path
    yield CRATES / path
    crate, _, rest = path.partition("/")
    yield CRATES / crate / "src" / rest
    for base in reversed(bases):
        yield base / path


def unknown_paths(row):
    bases = []
    for path in PATH.findall(row):
        found = next((place for place in places(path, bases) if place.exists()), None)
        if found is None:
            yield path
            continue
        folder = found if found.is_dir() else found.parent
        bases += [folder / "src", *(near for near in [folder, *folder.parents] if ROOT in near.parents)]


def main():
    lines = (ROOT / "ARCHITECTURE.md").read_text().split("\n")
    rows = [(number, line) for number, line in enumerate(lines, 1) if line.startswith("|")]
    problems = [f"ARCHITECTURE.md:{number}: no file {path}" for number, row in rows for path in unknown_paths(row)]
    print("\n".join(problems) or "map: all files of ARCHITECTURE.md exist")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
