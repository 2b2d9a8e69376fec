# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of rows and takes their reports.

All results go into a copy of the documentation below target/measure, so that the tree stays as committed
until the end. `publish` then carries them over.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading

import pages
import samples
from data import Store
from rows import DOCS, LAB, TRACES

# Exit codes of the laboratory that give figures.
REACHED, MISSED = 0, 3
VOID = 4
# The exit code of a program that make started: make's own is 2, or 0 if the failure is ignored.
OF_MAKE = re.compile(r"^make: (?:\*\*\* )?\[.*\] Error (\d+)", re.MULTILINE)
# A row fails if it takes longer than both OVERTIME times its expected duration and OVERTIME_S seconds.
OVERTIME, OVERTIME_S = 4, 1800


# Time for the output of programs that have ended.
LAST_WORDS_S = 10


def environment():
    """The environment without variables of `make measure`, which would affect a make that a row starts."""
    return {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}


class Failure(Exception):
    """A row gave no figures."""


class Stage:
    """A copy of the documentation that is filled with results."""

    def __init__(self, folder, root):
        self.folder, self.root = pathlib.Path(folder), pathlib.Path(root)
        self.docs = self.folder / "docs"
        self.before = self.folder / "before"
        self.aside = self.folder / "aside"
        self.store = Store(self.docs)

    def prepare(self, resume):
        """Begins with the documentation of the tree, or with an earlier run's results that were not published."""
        if resume and self.aside.is_dir():
            # The run ended without notice during a row.
            self.undo()
        if resume and self.docs.is_dir():
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        for copy in (self.docs, self.before):
            shutil.copytree(self.root / "docs", copy)
        (self.folder / "logs").mkdir()

    def set_aside(self):
        """Keeps the results as they are before a row."""
        shutil.rmtree(self.aside, ignore_errors=True)
        shutil.rmtree(self.folder / "copying", ignore_errors=True)
        shutil.copytree(self.docs, self.folder / "copying")
        (self.folder / "copying").rename(self.aside)

    def undo(self):
        """Restores the results as they were before a row that failed."""
        shutil.rmtree(self.docs, ignore_errors=True)
        self.aside.rename(self.docs)

    def keep(self):
        """Makes the results of a row permanent."""
        shutil.rmtree(self.aside)

    def publish(self):
        """Carries everything that changed into the documentation of the tree."""
        for file in sorted(self.docs.rglob("*")):
            name = file.relative_to(self.docs)
            old, target = self.before / name, self.root / "docs" / name
            if file.is_dir() or (old.is_file() and old.read_bytes() == file.read_bytes()):
                continue
            parts = new_parts(file, old)
            if parts and target.is_file():
                target.write_text(pages.replaced(target.read_text(), parts))
            else:
                shutil.copyfile(file, target)
        for file in self.before.rglob("*"):
            name = file.relative_to(self.before)
            if file.is_file() and not (self.docs / name).exists():
                (self.root / "docs" / name).unlink(missing_ok=True)


def new_parts(page, old_page):
    """The parts of a page that a command has filled: its prose may have been edited since the copy was made."""
    if page.suffix != ".md" or not old_page.is_file():
        return {}
    old = pages.places(old_page.read_text())
    new = pages.places(page.read_text())
    return {name: words.strip() for name, words in new.items() if words != old.get(name)}


class Run:
    """One row's command."""

    def __init__(self, row, stage, lab, traces, expected_s):
        self.row, self.stage, self.lab, self.traces, self.expected_s = row, stage, lab, traces, expected_s
        self.results = stage.folder / "results" / row.name
        self.log = stage.folder / "logs" / f"{row.name}.log"

    def words(self):
        """The command to run: its program, folders and options."""
        words = {
            LAB: str(self.lab),
            DOCS: str(self.stage.docs),
            f"PAGES={DOCS}": f"PAGES={self.stage.docs}",
            TRACES: str(self.traces),
        }
        command = [words.get(word, word) for word in self.row.command.split()]
        if self.row.output == "folder":
            command += ["--output", str(self.results)]
        return command

    def take(self, moved=lambda: None):
        """Measures the row; returns whether its targets are reached. `moved` returns why results do not count."""
        if TRACES in self.row.command and not self.traces.is_dir():
            raise Failure(f"there is no folder {self.traces} of recorded links: --traces FOLDER names one")
        shutil.rmtree(self.results, ignore_errors=True)
        self.results.mkdir(parents=True)
        self.stage.set_aside()
        try:
            if self.row.output == "docs":
                # The command would extend them: parts of another commit must not remain.
                for name in self.row.reports:
                    self.stage.store.remove(name)
            code, output = self.execute()
            if moved():
                raise Failure(moved())
            if code not in (REACHED, MISSED):
                reason = (
                    "the machine was too busy, or the link deviates from its known figures"
                    if code == VOID
                    else f"exit code {code}"
                )
                raise Failure(f"{reason}: see {self.log}")
            self.keep(output)
        except BaseException:
            self.stage.undo()
            raise
        self.replace()
        self.stage.keep()
        return code == REACHED

    def execute(self):
        """Runs the command; its standard error is shown, its standard output goes to the log."""
        limit = max(OVERTIME * self.expected_s, OVERTIME_S)
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        lines = {"text": True, "errors": "replace", "bufsize": 1}
        errors, output = [], []
        with (
            open(self.log, "w") as log,
            subprocess.Popen(
                self.words(), cwd=self.stage.root, env=environment(), start_new_session=True, **pipes, **lines
            ) as process,
        ):
            readers = [
                threading.Thread(target=copy, args=(process.stderr, errors, (log, sys.stderr)), daemon=True),
                threading.Thread(target=copy, args=(process.stdout, output, (log,)), daemon=True),
            ]
            for reader in readers:
                reader.start()
            try:
                code = process.wait(timeout=limit)
            except subprocess.TimeoutExpired:
                raise Failure(f"stopped after {limit / 60:.0f} minutes: see {self.log}") from None
            finally:
                end(process)
                for reader in readers:
                    reader.join(timeout=LAST_WORDS_S)
        of_make = [int(found) for found in OF_MAKE.findall("".join(errors))]
        return max(of_make or [code], key=severity), "".join(output)

    def keep(self, output):
        """Puts reports, pictures and raw samples into the stage."""
        row, store = self.row, self.stage.store
        if row.output == "stdout":
            store.write(row.reports[0], output)
        elif row.output == "folder":
            folder = self.case_folder()
            store.write(row.reports[0], (folder / "report.json").read_text())
            for picture in row.pictures:
                shutil.copyfile(folder / pathlib.Path(picture).name, self.stage.docs / picture)
            if row.samples:
                keep_samples(store, row.name, folder)
        absent = [name for name in row.reports if store.file_of(name) is None]
        if absent:
            raise Failure(f"the command wrote no report {absent[0]}: see {self.log}")

    def case_folder(self):
        found = list(self.results.glob(f"*/{self.row.case}/report.json"))
        if len(found) != 1:
            raise Failure(f"{len(found)} reports in {self.results}, not one: see {self.log}")
        return found[0].parent

    def replace(self):
        """Removes reports whose figures this row now has."""
        for name in self.row.replaces:
            if name not in self.row.reports:
                self.stage.store.remove(name)


def severity(code):
    """The order of exit codes: a success, a missed target, a void result, a failure."""
    return {REACHED: 0, MISSED: 1, VOID: 2}.get(code, 3)


def copy(source, kept, shown):
    for line in source:
        kept.append(line)
        for file in shown:
            file.write(line)
            file.flush()


def end(process):
    """Ends all programs of the command that still run."""
    for how, seconds in ((signal.SIGINT, 10), (signal.SIGTERM, 5), (signal.SIGKILL, 5)):
        if process.poll() is not None and how != signal.SIGKILL:
            continue
        try:
            os.killpg(process.pid, how)
            process.wait(timeout=seconds)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def keep_samples(store, name, folder):
    """Replaces the samples of a row."""
    rows = store.read(samples.NAME) if store.file_of(samples.NAME) else {}
    rows[name] = samples.case_samples(folder)
    store.write(samples.NAME, json.dumps(rows, separators=(",", ":"), sort_keys=True), form=".json.xz")


def prepare(rows, root):
    """Runs what the rows need first, each command once."""
    for command in dict.fromkeys(command for row in rows for command in row.prepare):
        if subprocess.run(command, cwd=root, env=environment(), check=False).returncode:
            raise SystemExit(f"measure: {' '.join(command)} failed; nothing was measured")


def noted(record, rows, row, measurement, duration_s, reached, busy_percent):
    """The record with a new measurement of a row. Older measurements lose that row."""
    gone = {row.name, *row.replaces}
    record = [
        older | {"rows": {name: kept for name, kept in older["rows"].items() if name not in gone}} for older in record
    ]
    key = ("commit", "changes", "machine")
    mine = next((older for older in record if all(older[part] == measurement[part] for part in key)), None)
    if mine is None:
        mine = measurement | {"rows": {}}
        record.insert(0, mine)
    mine["date"] = measurement["date"]
    mine["rows"][row.name] = {
        "date": measurement["date"],
        "duration_s": round(duration_s),
        "reached": reached,
        "busy_percent": round(busy_percent),
    }
    order = [known.name for known in rows]
    mine["rows"] = dict(sorted(mine["rows"].items(), key=lambda entry: order.index(entry[0])))
    return [kept for kept in record if kept["rows"]]
