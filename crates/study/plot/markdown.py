# SPDX-License-Identifier: Apache-2.0
"""Reports, and tables in Markdown."""

import gzip
import json
import sys


def read(report):
    """Reads a report from a file, which may be compressed (.gz), or from standard input (-)."""
    if report == "-":
        return json.load(sys.stdin)
    with (gzip.open if report.endswith(".gz") else open)(report, "rt", encoding="utf-8") as file:
        return json.load(file)


def grid(titles, rows):
    """A table of titles and rows of cells."""
    lines = [titles, ["---"] * len(list(titles)), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" if line[0] != "---" else "|" + "---|" * len(line) + "\n"
                   for line in lines)
