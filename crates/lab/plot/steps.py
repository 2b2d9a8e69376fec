# SPDX-License-Identifier: Apache-2.0
"""Draws how a sender's rate and the queue before the slow link follow a step, over time."""

import csv
import gzip
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend is chosen first)

INK, FAINT, LINK = "#2b2b2b", "#d9d9d9", "#8a8a8a"
COLOURS = {"auto": "#0060a8", "back-pressure": "#d1495b"}
# When the rate changes, and to what (Mbps).
LINK_S, LINK_MBPS = [0, 4, 8, 12, 16], [24, 3, 24, 3, 3]


def dress(axes, title):
    axes.set_title(title, fontsize=10, color=INK, loc="left", fontweight="bold")
    axes.grid(color=FAINT, linewidth=0.7)
    axes.set_xlim(0, 16)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def main():
    source, picture = sys.argv[1:3]
    with gzip.open(source, "rt", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    ways = list(dict.fromkeys(row["way"] for row in rows))
    figure, grid = plt.subplots(2, len(ways), figsize=(13, 6.5), squeeze=False, sharex=True)
    for column, way in enumerate(ways):
        above, below = grid[0][column], grid[1][column]
        above.step(LINK_S, LINK_MBPS, where="post", color=LINK, linewidth=3, alpha=0.5,
                   label="the link")
        for controller, colour in COLOURS.items():
            chosen = [row for row in rows if row["way"] == way and row["controller"] == controller]
            times = [float(row["s"]) for row in chosen]
            if any(row["mbps"] for row in chosen):
                rates = [float(row["mbps"] or "nan") for row in chosen]
                above.plot(times, rates, color=colour, linewidth=1.2, label=controller)
            waiting = [int(row["waiting"]) for row in chosen]
            below.plot(times, waiting, color=colour, linewidth=1.2, label=controller)
        dress(above, f"Slow link {way}: rate let go (Mbps)")
        dress(below, "Packets waiting before it (log)")
        above.set_ylim(0, 40)
        if way == "local":
            above.text(8, 28, "auto leaves it to local back-pressure", color=COLOURS["auto"],
                       ha="center", fontsize=9)
        below.set_yscale("symlog", linthresh=1)
        below.set_ylim(0, 400)
        below.set_xlabel("seconds", color=INK)
        above.legend(frameon=False, loc="upper right", fontsize=9)
        below.legend(frameon=False, loc="upper right", fontsize=9)
    figure.tight_layout()
    # Without a date in it, the same figures give the same file.
    figure.savefig(picture, dpi=110, metadata={"Software": None})


main()
