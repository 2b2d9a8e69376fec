# SPDX-License-Identifier: Apache-2.0
"""Tables and figures as the pages write them."""


def table(heads, rows):
    lines = ["| " + " | ".join(map(str, cells)) + " |" for cells in (heads, *rows)]
    lines.insert(1, "|" + "---|" * len(heads))
    return "\n".join(lines)


def figure(value, digits=1):
    """A figure with one digit after the point, or without one from 100 on; a dash if it is missing."""
    if value is None:
        return "–"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.{digits}f}"


def percent(value):
    return f"{value:.0f} %" if value >= 10 or value == 0 else f"{value:.1f} %"


def bold(words):
    return f"**{words}**"


def listed(words):
    """Joins words as a sentence does: `a, b and c`."""
    words = list(words)
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def value_range(values, digits=1, unit=""):
    """The range of values as `1 to 2`, or a single value if both ends look alike."""
    least, most = (f"{end(values):.{digits}f}" for end in (min, max))
    return f"{least}{unit}" if least == most else f"{least} to {most}{unit}"


def number(count):
    """A count with a narrow group separator, as the pages write it: `30 000`."""
    return f"{count:,}".replace(",", " ") if count >= 10_000 else str(count)


def verdict(report, what, unit=None):
    """The judged figure of a bench report."""
    for found in report["verdicts"]:
        if found["what"] == what and unit in (None, found["unit"]):
            return found["found"]
    raise KeyError(f"the report {report.get('case')} has no verdict '{what}'")


def targets(report):
    """Says whether a report reaches its targets."""
    missed = [found for found in report["verdicts"] if not found["reached"]]
    if not missed:
        return "All targets are reached."
    words = (
        f"{target['what']}: {figure(target['found'], 2)} {target['unit']} ({target['target'].strip()})"
        for target in missed
    )
    return f"Missed targets: {'; '.join(words)}."
