# SPDX-License-Identifier: Apache-2.0
"""Which commands give the figures, and which commit and machine they were measured on."""

from rows import ROWS, TRACES

from parts.words import table

PAGE = "docs/explanation/measurements.md"
GUIDE = "docs/how-to/networks.md"
# Parts of rows that were measured separately before `make measure` existed.
SEPARATE = {
    "study-realtime": "study of real time",
    "study-dds": "study of DDS",
    "study-scaling": "study of scaling",
}


def figures(store, pages):
    rows = []
    for row in ROWS:
        reports = [pages.link(store, name, PAGE) for name in row.reports if store.file_of(name)]
        command = row.command.replace(f" --traces {TRACES}", "")
        rows.append([f"[{row.title}]({row.place})", f"`{command}`", ", ".join(reports) or "–", row.encrypted])
    return table(["figures", "command", "report", "encrypted"], rows)


def machine(facts):
    """Words for a machine. Older reports do not name the processor and the memory."""
    known = [
        facts["processor"],
        facts["cores"] and f"{facts['cores']} processors",
        facts["memory_mb"] and f"{facts['memory_mb'] / 1000:.0f} GB",
        facts["kernel"] and f"Linux {facts['kernel']}",
    ]
    if not (facts["processor"] or facts["kernel"]):
        return "–"
    return ", ".join(filter(None, known))


def commit(measurement):
    return measurement["commit"] + (", with changes" if measurement["changes"] else "")


def commits(store, _):
    record = store.record()
    titles = {row.name: row.title for row in ROWS} | SEPARATE
    measured = {name for measurement in record for name in measurement["rows"]}
    if len(record) == 1 and measured >= {row.name for row in ROWS}:
        only = record[0]
        return f"All figures were measured at commit {commit(only)}, on {only['date']}. The machine: {machine(only['machine'])}."
    rows = []
    for measurement in record:
        names = [titles.get(name, name) for name in measurement["rows"]]
        rows.append([commit(measurement), measurement["date"], machine(measurement["machine"]), "; ".join(names)])
    words = (
        "The figures are from several commits. `make measure` measures all of them again at one commit; the last "
        "measurement of each row is this one:"
    )
    missing = [row.title for row in ROWS if not measured & {row.name, *row.replaces}]
    if missing:
        words = f"{words[:-1]} (not recorded: {'; '.join(missing)}):"
    return words + "\n\n" + table(["commit", "date", "machine", "figures"], rows)


def networks(store, pages):
    return pages.link(store, "networks", GUIDE)


PARTS = {"commits": (PAGE, commits), "figures": (PAGE, figures), "networks-report": (GUIDE, networks)}
