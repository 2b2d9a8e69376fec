# SPDX-License-Identifier: Apache-2.0
"""Draws the capacity of a recorded link, the rate that arrives, and the laser's delay, over time."""

import csv
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend is chosen first)

INK, FAINT, LINK, AUTO, LASER = "#2b2b2b", "#d9d9d9", "#b8b8b8", "#0060a8", "#d1495b"


def dress(axes, title):
    axes.set_title(title, fontsize=10, color=INK, loc="left", fontweight="bold")
    axes.grid(color=FAINT, linewidth=0.7)
    axes.set_xlim(0, 60)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def main():
    source, picture, name = sys.argv[1:4]
    with open(source, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))

    def column(key):
        return [float(row[key] or "nan") for row in rows]

    times = column("s")
    figure, (above, below) = plt.subplots(2, 1, figsize=(11, 6.5), sharex=True)
    above.fill_between(times, column("capacity_mbps"), step="pre", color=LINK, label="capacity")
    above.step(times, column("delivered_mbps"), where="pre", color=AUTO, linewidth=1.3,
               label="arrived with auto")
    dress(above, f"{name}: Mbps")
    above.set_ylim(0, None)
    above.legend(frameon=False, loc="upper right", fontsize=9)
    below.step(times, column("laser_ms"), where="pre", color=LASER, linewidth=1.3)
    dress(below, "Longest delay of a laser's message in each quarter of a second (ms, log; none arrived in gaps)")
    below.set_yscale("log")
    below.set_xlabel("seconds", color=INK)
    figure.tight_layout()
    # Without a date in it, the same figures give the same file.
    figure.savefig(picture, dpi=110, metadata={"Software": None})


main()
