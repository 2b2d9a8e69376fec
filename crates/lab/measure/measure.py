#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the tables of the documentation at one commit, and writes pages and reports.

    make measure                      all rows (about nine hours; nothing else should run)
    make measure ONLY=cost,losses     these rows
    make measure RESUME=1             what is not measured at this commit yet
    crates/lab/measure/measure.py --list            all rows, with their commands and last measurement
    crates/lab/measure/measure.py pages             writes the pages again from the reports
    crates/lab/measure/measure.py pages --check     exit code 1 if a page differs from its report

Exit codes: 0 all rows are measured (a missed target is a result), 1 a row failed or a page differs, 2 the
command line, the tree or the machine does not fit.
"""

import argparse
import datetime
import os
import pathlib
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import machine
import pages
import runs
from data import Store
from rows import ROWS, TRACES, chosen

ROOT = pathlib.Path(__file__).resolve().parents[3]
RECORDED_LINKS = ROOT.parent / "shared/traces"


def say(words):
    print(f"measure: {words}", flush=True)


def refuse(words):
    print(f"measure: {words}", file=sys.stderr)
    return 2


def duration_words(seconds):
    minutes = seconds / 60
    if minutes < 1.5:
        return f"{seconds:.0f} s"
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes // 60:.0f} h {minutes % 60:.0f} min"


def expected_s(row, record):
    """The duration of the last measurement of a row, else what rows.py expects."""
    known = [measurement["rows"][row.name]["duration_s"] for measurement in record if row.name in measurement["rows"]]
    return next((seconds for seconds in known if seconds), row.minutes * 60)


def show_rows(rows, record):
    last = {
        name: pages.overview.commit(measurement) for measurement in reversed(record) for name in measurement["rows"]
    }
    for row in rows:
        print(
            f"{row.name:20} {duration_words(expected_s(row, record)):>11}  {last.get(row.name, 'not recorded'):22} {row.command}"
        )


def pages_command(arguments):
    """Writes the pages, or compares them with the reports."""
    if arguments.check:
        found = list(pages.differences(arguments.root))
        for file, name, words, expected in found:
            print(f"{file}: the part '{name}' is not what the reports say\n  page:    {words}\n  reports: {expected}")
        if found:
            print("measure: `crates/lab/measure/measure.py pages` writes the parts again")
        return 1 if found else 0
    changed, missing = pages.update(arguments.root)
    for file in changed:
        say(f"wrote {file}")
    for name, reason in missing:
        say(f"the part '{name}' stays as it is: {reason}")
    return 0


def unfit(arguments):
    """Returns why the tree is not fit for a measurement, or None."""
    changes = machine.changes(ROOT)
    if changes and not arguments.allow_changes:
        shown = "\n  ".join(changes[:10])
        return f"the tree has uncommitted changes, so that no commit would describe what is measured:\n  {shown}\nCommit them, or measure with --allow-changes; the pages then say so."
    if arguments.lab and not arguments.allow_changes:
        return (
            "the program after --lab may be of another commit: --allow-changes permits this, and the pages then say so."
        )
    return None


def too_busy(arguments):
    busy = machine.busy_percent()
    if busy > machine.MAX_BUSY_PERCENT and not arguments.allow_busy:
        return f"other programs use {busy:.0f} % of the processors (at most {machine.MAX_BUSY_PERCENT} % are allowed): {machine.busiest()}. Wait for them, or measure with --allow-busy."
    return None


class Session:
    """A run of several rows."""

    def __init__(self, arguments, rows):
        self.arguments, self.rows = arguments, rows
        self.changes = bool(machine.changes(ROOT)) or arguments.lab is not None
        self.commit = machine.commit(ROOT)
        self.lab = arguments.lab or ROOT / "target/release/tautline-lab"
        suffix = "-changed" if self.changes else ""
        self.stage = runs.Stage(ROOT / "target/measure" / f"{self.commit}{suffix}", arguments.root)
        self.failures, self.missed, self.measured = [], [], []

    def measurement(self):
        today = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
        return {"commit": self.commit, "changes": self.changes, "date": today, "machine": machine.facts()}

    def moved(self):
        """Why the results are no longer those of the commit, or None."""
        if machine.commit(ROOT) != self.commit:
            return "another commit was checked out meanwhile"
        if machine.changes(ROOT) and not self.changes:
            return "the source was changed meanwhile"
        return None

    def done_already(self, record):
        """Rows that were measured at this commit, without changes."""
        return {
            name
            for measurement in record
            if measurement["commit"] == self.commit and measurement["changes"] == self.changes
            for name in measurement["rows"]
        }

    def plan(self):
        """Says what will run and how long; returns the rows."""
        self.stage.prepare(self.arguments.resume)
        record = self.stage.store.record()
        done = self.done_already(record) if self.arguments.resume else set()
        rows = [row for row in self.rows if row.name not in done]
        times = {row.name: expected_s(row, record) for row in rows}
        total = sum(times.values())
        end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=total)
        changed = ", with changes" if self.changes else ""
        skipped = f"; {len(done)} are measured already" if done else ""
        say(
            f"commit {self.commit}{changed}: {len(rows)} rows, about {duration_words(total)}, until {end:%H:%M} UTC{skipped}"
        )
        for row in rows:
            print(f"  {row.name:20} {duration_words(times[row.name]):>11}  {row.command}")
        recorded = [row.name for row in rows if TRACES in row.command]
        if recorded and not self.arguments.traces.is_dir():
            say(
                f"{', '.join(recorded)} will fail, for want of recorded links: there is no folder {self.arguments.traces}; --traces FOLDER names another"
            )
        return rows, times

    def build(self, rows):
        if (
            not self.arguments.lab
            and subprocess.run(["make", "build"], cwd=ROOT, env=runs.environment(), check=False).returncode
        ):
            raise SystemExit("measure: the build failed; nothing was measured")
        runs.prepare(rows, ROOT)

    def measure(self, rows, times):
        left = sum(times.values())
        for number, row in enumerate(rows, 1):
            say(
                f"[{number}/{len(rows)}] {row.name}: about {duration_words(times[row.name])}, of {duration_words(left)} that remain"
            )
            left -= times[row.name]
            busy, started = machine.busy_percent(), time.monotonic()
            try:
                run = runs.Run(row, self.stage, self.lab, self.arguments.traces, times[row.name])
                reached = run.take(self.moved)
            except (runs.Failure, OSError, ValueError) as reason:
                say(f"{row.name} FAILED: {reason}")
                self.failures.append((row.name, reason))
                continue
            taken = time.monotonic() - started
            self.measured.append(row.name)
            if not reached:
                self.missed.append(row.name)
            record = runs.noted(self.stage.store.record(), ROWS, row, self.measurement(), taken, reached, busy)
            self.stage.store.write_record(record)
            say(f"{row.name}: measured in {duration_words(taken)}{'' if reached else ', a target is missed'}")

    def publish(self):
        """Publishes all results, also those of an earlier run that ended before it published them."""
        self.stage.publish()
        pages.update(self.arguments.root)

    def conclude(self, rows):
        """The last lines: what failed, what missed a target, and what is left."""
        if self.missed:
            say(f"missed targets: {', '.join(self.missed)}; the pages say which")
        for name, reason in self.failures:
            say(f"failed: {name}: {reason}")
        left = [row.name for row in rows if row.name not in self.measured]
        if left:
            say(f"not measured: {', '.join(left)}; `make measure RESUME=1` measures them")
        if self.measured:
            say(
                f"{len(self.measured)} rows are measured; pages and reports are in {self.arguments.root / 'docs'}: read `git diff`, and commit them"
            )
        return 1 if left else 0


def measure_command(arguments):
    rows = chosen(arguments.only)
    reason = unfit(arguments)
    if reason:
        return refuse(reason)
    session = Session(arguments, rows)
    rows, times = session.plan()
    if not rows:
        session.publish()
        return 0
    session.build(rows)
    reason = too_busy(arguments)
    if reason:
        return refuse(reason)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        session.measure(rows, times)
    except KeyboardInterrupt:
        say("interrupted; what was measured is kept")
    finally:
        session.publish()
    return session.conclude(rows)


def parsed():
    parser = argparse.ArgumentParser(
        prog="measure.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "action",
        nargs="?",
        choices=["run", "pages"],
        default="run",
        help="run: measure, the default; pages: write the pages from the reports that are there",
    )
    parser.add_argument(
        "--only", metavar="NAME,...", type=lambda words: words.split(","), default=[], help="measure only these rows"
    )
    parser.add_argument("--resume", action="store_true", help="skip rows that are measured at this commit already")
    parser.add_argument("--list", action="store_true", help="show the rows, their durations, last commits and commands")
    parser.add_argument("--check", action="store_true", help="with pages: compare, and write nothing")
    parser.add_argument("--allow-changes", action="store_true", help="measure a tree with uncommitted changes")
    parser.add_argument(
        "--allow-busy", action="store_true", help="measure although other programs run; the figures will be worse"
    )
    parser.add_argument(
        "--lab",
        metavar="FILE",
        type=pathlib.Path,
        default=os.environ.get("TAUTLINE_LAB"),
        help="the laboratory's program, by default built by `make build`; also the variable TAUTLINE_LAB",
    )
    parser.add_argument(
        "--traces",
        metavar="FOLDER",
        type=pathlib.Path,
        default=RECORDED_LINKS,
        help="recorded links in the format of mahimahi (default: %(default)s)",
    )
    parser.add_argument(
        "--root",
        metavar="FOLDER",
        type=pathlib.Path,
        default=ROOT,
        help="folder whose docs/ and README.md are read and written, by default the source tree",
    )
    return parser.parse_args()


def main():
    arguments = parsed()
    if arguments.list:
        show_rows(chosen(arguments.only), Store(arguments.root / "docs").record())
        return 0
    try:
        return pages_command(arguments) if arguments.action == "pages" else measure_command(arguments)
    except ValueError as error:
        return refuse(str(error))


if __name__ == "__main__":
    sys.exit(main())
