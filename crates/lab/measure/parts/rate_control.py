# SPDX-License-Identifier: Apache-2.0
"""What rate control reaches at single points, for the pages that explain it."""

from parts.words import figure, value_range

PAGE = "docs/explanation/rate-control.md"
OVERVIEW = "docs/explanation/how-it-works.md"


def cells(store, controller, mbps, queue_kb=300):
    """Cells of `validate rates` without bursts of losses, by the loss in percent."""
    found = {}
    for cell in store.read("rates")["cells"]:
        key = (cell["controller"], cell["mbps"], cell["queue_kb"], cell["bursts"])
        if key == (controller, mbps, queue_kb, False):
            found[cell["loss_percent"]] = cell
    return found


def p99(store, controller, mbps=6):
    return f"{figure(cells(store, controller, mbps)[0]['laser_p99_ms'])} ms"


def measured_rate(store, _):
    return f"the p99 delay of laser scans is {p99(store, 'auto')}. With back-pressure alone it is {p99(store, 'back-pressure')}"


def cost_of_measuring(store, _):
    return f"has a p99 of {p99(store, 'auto')}, compared with {p99(store, 'fixed')}"


def fast_link(store, _):
    real = {
        row["loss_percent"]: row
        for row in store.read("tcp")["losses"]
        if (row["sender"], row["mbps"]) == ("tautline", 54)
    }
    lossless = real.pop(0)
    losses = value_range([row["goodput_percent"] for row in real.values()], 0, " %")
    virtual = value_range([cell["goodput_percent"] for cell in cells(store, "auto", 54).values()], 0, " %")
    return (
        f"{lossless['goodput_percent']:.0f} % of a far link of 54 Mbps is used, and a laser's p99 is "
        f"{figure(lossless['laser_p99_ms'])} ms; with losses of single packets, {losses} is used. In virtual time, "
        f"{virtual} is used, and the p99 without losses is {p99(store, 'auto', 54)}"
    )


PARTS = {
    "measured-rate": (OVERVIEW, measured_rate),
    "cost-of-measuring": (PAGE, cost_of_measuring),
    "fast-link": (PAGE, fast_link),
}
