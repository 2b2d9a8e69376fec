# SPDX-License-Identifier: Apache-2.0
"""Draws what each link carries over time: a row per link, a column per quantity."""

import gzip
import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend is chosen first)

INK, FAINT = "#2b2b2b", "#d9d9d9"
COLOURS = {"fixed": "#8a8a8a", "aid": "#d1495b", "stripe": "#0060a8"}
COLUMNS = ["Gap between packets (ms)", "Throughput (Mbps)", "Acknowledged / attempted",
           "Round trip (ms)"]


def dress(axes, end):
    axes.grid(color=FAINT, linewidth=0.7)
    axes.set_xlim(0, end)
    axes.tick_params(labelsize=8, colors=INK)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def known(values):
    return [float("nan") if value is None else value for value in values]


def draw(row, series):
    gap, throughput, ratio, rtt = row
    colour, times = COLOURS[series["system"]], series["s"]
    line = dict(color=colour, linewidth=1.2)
    gap.plot(times, known(series["gap_ms"]), label=series["words"], **line)
    throughput.plot(times, series["attempted_mbps"], linestyle=":", **line)
    throughput.plot(times, series["acknowledged_mbps"], **line)
    ratio.plot(times, known(series["ratio"]), **line)
    rtt.plot(times, known(series["rtt_ms"]), **line)


def main():
    source, picture = sys.argv[1:3]
    with gzip.open(source, "rt", encoding="utf-8") as file:
        everything = json.load(file)
    links = list(dict.fromkeys(series["link_mbps"] for series in everything))
    figure, grid = plt.subplots(len(links), len(COLUMNS), figsize=(13, 7.5), squeeze=False,
                                sharex=True)
    for row, link in zip(grid, links):
        chosen = [series for series in everything if series["link_mbps"] == link]
        for series in chosen:
            draw(row, series)
        for axes in row:
            dress(axes, max(chosen[0]["s"]))
            axes.set_ylim(bottom=0)
        row[2].set_ylim(0, 1.1)
        row[0].set_ylabel(f"link of {link:g} Mbps", color=INK, fontsize=10, fontweight="bold")
    for axes, title in zip(grid[0], COLUMNS):
        axes.set_title(title, fontsize=10, color=INK, loc="left", fontweight="bold")
    for axes in grid[-1]:
        axes.set_xlabel("seconds", color=INK, fontsize=9)
    handles, labels = grid[0][0].get_legend_handles_labels()
    for style, words in ((":", "attempted"), ("-", "acknowledged")):
        handles.append(plt.Line2D([], [], color=INK, linestyle=style, linewidth=1.2))
        labels.append(words)
    figure.legend(handles, labels, frameon=False, loc="lower center", ncols=len(labels), fontsize=9)
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    # Without a date in it, the same figures give the same file.
    figure.savefig(picture, dpi=110, metadata={"Software": None})


main()
