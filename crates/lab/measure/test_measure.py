# SPDX-License-Identifier: Apache-2.0
"""Tests of `make measure`: /usr/bin/python3 -m unittest discover crates/lab/measure"""

import contextlib
import io
import json
import pathlib
import shutil
import sys
import tempfile
import types
import unittest
from unittest import mock

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import machine
import measure
import pages
import runs
from data import NoReport, Store
from rows import ROWS, Row, chosen
from samples import stream

ROOT = pathlib.Path(__file__).resolve().parents[3]
FACTS = {"processor": "p", "cores": 2, "memory_mb": 1, "kernel": "k"}


def bench_row(**more):
    return Row("case", "a case", "#case", "tautline-lab bench case", 1, ("case",), **more)


class Reports(unittest.TestCase):
    def setUp(self):
        self.docs = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.docs / "measured").mkdir()
        self.store = Store(self.docs)

    def test_a_report_keeps_its_form(self):
        forms = [".json", ".json.gz", ".json.xz"] + ([".json.zst"] if shutil.which("zstd") else [])
        for form in forms:
            with self.subTest(form):
                name = f"report{form.count('.')}{form[-2:]}"
                (self.docs / "measured" / f"{name}{form}").touch()
                file = self.store.write(name, '{"figure": 1}')
                self.assertEqual(file.name, f"{name}{form}")
                self.assertEqual(self.store.read(name), {"figure": 1})

    def test_a_missing_and_a_broken_report_are_named(self):
        with self.assertRaisesRegex(NoReport, "no report .*absent.json"):
            self.store.read("absent")
        with self.assertRaisesRegex(ValueError, "the report new is no JSON"):
            self.store.write("new", "laser: 5 ms")
        (self.docs / "measured/old.json.gz").write_bytes(b"not compressed")
        with self.assertRaisesRegex(ValueError, "old.json.gz"):
            self.store.read("old")


class Pages(unittest.TestCase):
    def test_the_pages_are_what_the_reports_say(self):
        wrong = [(file.name, name) for file, name, *_ in pages.differences(ROOT)]
        self.assertEqual(wrong, [], "`crates/lab/measure/measure.py pages` writes the parts again")

    def test_a_changed_figure_is_found_and_written_again(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(ROOT / "docs", f"{folder}/docs")
            shutil.copy(ROOT / "README.md", folder)
            store = Store(f"{folder}/docs")
            report = store.read("losses")
            report["laser"][0]["p99_ms"] = 77.0
            store.write("losses", json.dumps(report))
            self.assertEqual([name for _, name, *_ in pages.differences(folder)], ["losses", "losses-missed"])
            pages.update(folder)
            self.assertIn("| 5 % | 77.0 |", (pathlib.Path(folder) / "docs/explanation/measurements.md").read_text())
            self.assertEqual(list(pages.differences(folder)), [])

    def test_each_place_of_a_page_is_filled(self):
        of_commands = {"bottleneck", "networks", "constants"}
        found = {name for page, _ in pages.PARTS.values() for name in pages.places((ROOT / page).read_text())}
        self.assertEqual(found - set(pages.PARTS), of_commands)

    def test_a_part_keeps_its_form(self):
        page = "a <!-- begin x -->old<!-- end x -->.\n<!-- begin y -->\n\nold\n\n<!-- end y -->\n"
        expected = "a <!-- begin x -->1<!-- end x -->.\n<!-- begin y -->\n\n2\n\n<!-- end y -->\n"
        self.assertEqual(pages.replaced(page, {"x": "1", "y": "2", "z": "3"}), expected)
        with self.assertRaisesRegex(ValueError, "would end a comment"):
            pages.replaced(page, {"x": "-->"})

    def test_each_row_leads_to_a_page(self):
        for row in ROWS:
            page, _, anchor = row.place.partition("#")
            file = ROOT / "docs/explanation" / (page or "measurements.md")
            headings = [
                line.lstrip("# ").lower().replace(" ", "-")
                for line in file.read_text().splitlines()
                if line.startswith("#")
            ]
            self.assertTrue(not anchor or anchor in headings, f"{row.name}: no {row.place} in {file}")


class Rows(unittest.TestCase):
    def test_an_unknown_row_is_named_with_the_known_ones(self):
        with self.assertRaisesRegex(SystemExit, "no row 'cots'; there are: 6mbps, .*cost"):
            chosen(["cost", "cots"])

    def test_after_all_rows_one_commit_remains(self):
        old = {"commit": "old", "changes": True, "date": "2026-01-01", "machine": FACTS}
        record = [old | {"rows": {row.name: {} for row in ROWS} | {"study-dds": {}}}]
        for row in ROWS:
            new = {"commit": "new", "changes": False, "date": "2026-01-02", "machine": FACTS}
            record = runs.noted(record, ROWS, row, new, 60.4, True, 3.2)
        self.assertEqual(
            [(measured["commit"], list(measured["rows"])) for measured in record], [("new", [row.name for row in ROWS])]
        )
        self.assertEqual(
            record[0]["rows"]["cost"], {"date": "2026-01-02", "duration_s": 60, "reached": True, "busy_percent": 3}
        )
        words = pages.overview.commits(types.SimpleNamespace(record=lambda: record), None)
        self.assertEqual(
            words,
            "All figures were measured at commit new, on 2026-01-02. The machine: p, 2 processors, 0 GB, Linux k.",
        )


class Runs(unittest.TestCase):
    """With a program in place of the laboratory."""

    def setUp(self):
        self.root = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.root / "docs/measured").mkdir(parents=True)
        (self.root / "docs/measured/case.json").write_text('{"figure": "old"}')
        self.stage = runs.Stage(self.root / "stage", self.root)
        self.stage.prepare(resume=False)
        self.enterContext(contextlib.redirect_stderr(io.StringIO()))

    def take(self, script, row):
        program = self.root / "lab"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return runs.Run(row, self.stage, program, self.root, 1).take()

    WRITES = (
        'case="$4/today/case"; mkdir -p "$case/run-1"; echo \'{"figure": "new"}\' > "$case/report.json"; cd "$case/run-1";'
        "printf 'sequence,sent_ns\\n0,1000\\n1,9000\\n' > laser.sent.csv; touch robot.key; echo name: robot > robot.yaml;"
        "printf 'sequence,sent_ns,received_ns\\n1,9000,14000\\n' > laser.received.csv"
    )

    def test_the_report_and_the_samples_of_a_case_are_kept(self):
        self.assertTrue(self.take(self.WRITES, bench_row(samples=True)))
        self.assertTrue(self.take(self.WRITES, bench_row(samples=True)))
        self.assertEqual(json.loads((self.root / "docs/measured/case.json").read_text()), {"figure": "old"})
        self.stage.publish()
        self.assertEqual(json.loads((self.root / "docs/measured/case.json").read_text()), {"figure": "new"})
        laser = {"first_us": 1, "every_us": [8], "delay_us": {"subscriber": [None, 5]}}
        run = {"streams": {"laser": laser}, "files": {"robot.yaml": "name: robot\n"}}
        self.assertEqual(Store(self.root / "docs").read("samples"), {"case": {"run-1": run}})

    def test_a_missed_target_is_a_result(self):
        self.assertFalse(self.take(self.WRITES + "; exit 3", bench_row()))

    def test_a_failure_leaves_the_old_report(self):
        scripts = {"exit code 1": self.WRITES + "; exit 1", "too busy": self.WRITES + "; exit 4", "0 reports": "true"}
        for words, script in scripts.items():
            with self.subTest(words), self.assertRaisesRegex(runs.Failure, words):
                self.take(script, bench_row())
            self.assertEqual(self.stage.store.read("case"), {"figure": "old"})

    def test_a_command_that_writes_the_documentation_extends_no_older_report(self):
        row = Row("case", "a case", "#case", "tautline-lab validate case --docs docs", 1, ("case",), output="docs")
        self.assertTrue(
            self.take('test ! -e "$4/measured/case.json" && echo \'{"figure": 7}\' > "$4/measured/case.json"', row)
        )
        self.assertEqual(self.stage.store.read("case"), {"figure": 7})
        with self.assertRaisesRegex(runs.Failure, "wrote no report case"):
            self.take('echo part > "$4/page.md"', row)
        self.assertEqual(self.stage.store.read("case"), {"figure": 7})
        self.assertFalse((self.stage.docs / "page.md").exists())

    def test_what_a_program_of_make_exits_with_counts(self):
        row = bench_row()
        with self.assertRaisesRegex(runs.Failure, "exit code 101"):
            self.take(self.WRITES + "; echo 'make: [Makefile:126: study] Error 101 (ignored)' >&2", row)
        for words in (
            "make: [Makefile:126: study] Error 3 (ignored)' >&2",
            "make: *** [Makefile:144: restaurant] Error 3' >&2; exit 2",
        ):
            self.assertFalse(self.take(f"{self.WRITES}; echo '{words}", row))

    def test_parts_of_a_page_are_published_and_its_prose_stays(self):
        page = "prose\n<!-- begin x -->\n\nold\n\n<!-- end x -->\n<!-- begin y -->\n\nsame\n\n<!-- end y -->\n"
        for docs in (self.stage.docs, self.stage.before):
            (docs / "page.md").write_text(page)
        edited = page.replace("prose", "new prose").replace("same", "newer")
        (self.root / "docs/page.md").write_text(edited)
        (self.stage.docs / "page.md").write_text(page.replace("old", "measured"))
        (self.stage.before / "gone.json").touch()
        (self.root / "docs/gone.json").touch()
        self.stage.publish()
        self.assertEqual((self.root / "docs/page.md").read_text(), edited.replace("old", "measured"))
        self.assertFalse((self.root / "docs/gone.json").exists())

    def test_a_resumed_run_has_the_results_of_the_one_before(self):
        self.take(self.WRITES, bench_row())
        self.stage.prepare(resume=True)
        self.assertEqual(self.stage.store.read("case"), {"figure": "new"})
        # It was killed during the next row.
        self.stage.set_aside()
        self.stage.store.remove("case")
        self.stage.prepare(resume=True)
        self.assertEqual(self.stage.store.read("case"), {"figure": "new"})
        self.stage.prepare(resume=False)
        self.assertEqual(self.stage.store.read("case"), {"figure": "old"})


class Sessions(unittest.TestCase):
    """The whole command, in a small repository, with a program in place of the laboratory."""

    def setUp(self):
        self.root = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        shutil.copytree(ROOT / "docs", self.root / "docs")
        shutil.copy(ROOT / "README.md", self.root)
        (self.root / ".gitignore").write_text("target/\n")
        name = ("-c", "user.name=test", "-c", "user.email=test@localhost")
        for command in (("init", "-q"), ("add", "."), (*name, "commit", "-qm", "all")):
            machine.git(self.root, *command)
        report = Store(ROOT / "docs").file_of("idle").read_text().replace("11.964416", "29.5")
        self.lab = self.root / "target/release/tautline-lab"
        self.lab.parent.mkdir(parents=True)
        self.lab.write_text(
            f'#!/bin/sh\nmkdir -p "$4/now/idle"; cat > "$4/now/idle/report.json" <<end\n{report}\nend\n'
        )
        self.lab.chmod(0o755)
        self.enterContext(mock.patch.object(measure, "ROOT", self.root))
        self.enterContext(mock.patch.object(machine, "busy_percent", lambda: 3.0))
        self.enterContext(mock.patch.object(measure.Session, "build", lambda *_: None))

    def run_measure(self, *options):
        said = io.StringIO()
        with mock.patch.object(sys, "argv", ["measure.py", "--root", str(self.root), *options]):
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                code = measure.main()
        return code, said.getvalue()

    def test_a_row_is_measured_recorded_and_published_once(self):
        code, said = self.run_measure("--only", "idle")
        self.assertEqual(code, 0, said)
        self.assertIn("[1/1] idle: about 60 s", said)
        first = Store(self.root / "docs").record()[0]
        self.assertEqual((first["commit"], first["changes"]), (machine.commit(self.root), False))
        self.assertEqual(list(first["rows"]), ["idle"])
        page = (self.root / "docs/explanation/measurements.md").read_text()
        self.assertIn("| idle daemon | 0.1 % of a core, 30 MB of memory |", page)
        self.assertIn(f"| {first['commit']} | {first['date']} |", page)
        # The changed documentation is no change of what is measured.
        code, said = self.run_measure("--only", "idle", "--resume")
        self.assertEqual(code, 0, said)
        self.assertIn("0 rows", said)

    def test_what_was_measured_before_a_power_failure_is_published_by_the_next_run(self):
        with mock.patch.object(measure.Session, "publish", lambda _: None):
            self.run_measure("--only", "idle")
        self.assertEqual(machine.git(self.root, "status", "--porcelain"), "")
        code, said = self.run_measure("--only", "idle", "--resume")
        self.assertEqual(code, 0, said)
        self.assertIn("0 rows", said)
        self.assertIn("30 MB of memory |", (self.root / "docs/explanation/measurements.md").read_text())

    def test_a_failure_is_named_at_the_end(self):
        self.lab.write_text("#!/bin/sh\nexit 1\n")
        code, said = self.run_measure("--only", "idle")
        self.assertEqual(code, 1)
        self.assertRegex(said, r"failed: idle: exit code 1: see .*idle.log")
        self.assertIn("not measured: idle;", said)
        self.assertEqual(machine.git(self.root, "status", "--porcelain"), "")

    def test_changes_and_a_busy_machine_are_refused(self):
        (self.root / "source.rs").write_text("fn main() {}")
        code, said = self.run_measure("--only", "idle")
        self.assertEqual(code, 2)
        self.assertIn("source.rs", said)
        (self.root / "source.rs").unlink()
        with mock.patch.object(machine, "busy_percent", lambda: 80.0):
            code, said = self.run_measure("--only", "idle")
        self.assertEqual(code, 2)
        self.assertIn("other programs use 80 % of the processors", said)

    def test_a_row_does_not_count_if_the_source_changes_meanwhile(self):
        self.lab.write_text(self.lab.read_text() + f"touch {self.root}/source.rs\n")
        code, said = self.run_measure("--only", "idle")
        self.assertEqual(code, 1)
        self.assertIn("idle: the source was changed meanwhile", said)


class Samples(unittest.TestCase):
    def test_the_samples_that_are_kept_give_the_figures_of_the_reports(self):
        store = Store(ROOT / "docs")
        report, kept = store.read("6mbps"), store.read("samples")["6mbps"]
        for transport, flows in report["transports"].items():
            for name, flow in flows.items():
                delays = kept[f"run-{report['quoted_run']}/{transport}"]["streams"][name]["delay_us"]["subscriber"]
                arrived = [delay for delay in delays if delay is not None]
                self.assertEqual((len(delays), len(arrived)), (flow["sent"], flow["received"]))
                self.assertAlmostEqual(max(arrived) / 1000, flow["delay_ms"]["max"], places=2)

    def test_repeated_and_unpublished_messages(self):
        found = stream({0: 1000, 1: 3000}, {"peer1": [(1, 4000), (1, 8000)], "peer2": []})
        self.assertEqual(found["delay_us"], {"peer1": [None, 1], "peer2": [None, None]})
        self.assertEqual(found["again"], [["peer1", 1, 5]])
        with self.assertRaisesRegex(ValueError, "message 1 of 3 has no time"):
            stream({0: 0, 2: 0}, {})


class Durations(unittest.TestCase):
    def test_the_last_known_duration_is_expected(self):
        row = bench_row()
        record = [{"rows": {"case": {"duration_s": None}}}, {"rows": {"case": {"duration_s": 90}}}]
        self.assertEqual(measure.expected_s(row, record), 90)
        self.assertEqual(measure.expected_s(row, []), 60)
        self.assertEqual(
            [measure.duration_words(seconds) for seconds in (60, 600, 9000)], ["60 s", "10 min", "2 h 30 min"]
        )


if __name__ == "__main__":
    unittest.main()
