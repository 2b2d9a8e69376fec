# SPDX-License-Identifier: Apache-2.0
"""Draws, for each controller, the distribution of bulk and of the laser's delay over all links."""

import gzip
import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend is chosen first)

INK, FAINT = "#2b2b2b", "#d9d9d9"
COLOURS = {"auto": "#0060a8", "fixed": "#2b2b2b", "bbr3": "#d1495b", "cubic": "#e08e0b",
           "copa": "#3a9d5d", "scream2": "#7b4ab0", "gcc": "#8c6d46", "aid": "#6fb7d6",
           "aimd": "#c98bb9", "back-pressure": "#9a9a9a"}


def dress(axes, title, unit):
    axes.set_title(title, fontsize=10, color=INK, loc="left", fontweight="bold")
    axes.set_xlabel(unit, color=INK)
    axes.grid(color=FAINT, linewidth=0.7)
    axes.set_ylim(0, 100)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def main():
    source, picture = sys.argv[1:3]
    with gzip.open(source, "rt", encoding="utf-8") as file:
        links = [link["bulk_percent_and_p99_ms"] for link in json.load(file)]
    share = [100 * (number + 1) / len(links) for number in range(len(links))]
    figure, panels = plt.subplots(1, 2, figsize=(12, 5.5))
    for index, axes in enumerate(panels):
        for name, colour in COLOURS.items():
            values = sorted(link[name][index] for link in links)
            axes.step(values, share, where="post", color=colour, label=name,
                      linewidth=2.4 if name == "auto" else 1.2,
                      linestyle="--" if name == "fixed" else "-")
    dress(panels[0], "Links with at most this bulk (%)", "bulk that arrived, percent of what fits")
    dress(panels[1], "Links with at most this delay (%)", "the laser's p99 in ms (log); 10 000: lost")
    panels[0].set_xlim(0, 110)
    panels[1].set_xscale("log")
    panels[0].legend(frameon=False, loc="upper left", fontsize=9)
    figure.tight_layout()
    # Without a date in it, the same figures give the same file.
    figure.savefig(picture, dpi=110, metadata={"Software": None})


main()
