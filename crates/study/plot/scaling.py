# SPDX-License-Identifier: Apache-2.0
"""Draws the experiments of the study of scaling beside the thesis's own points.

Arguments: report.json, the folder of the thesis's summaries, and the start of the pictures' names.
An experiment without rows gets no picture; each picture that was made is printed, one a line.
"""

import csv
import math
import os
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend is chosen first)
from markdown import read  # noqa: E402
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter  # noqa: E402

INK, FAINT, THESIS = "#2b2b2b", "#d9d9d9", "#8a8a8a"
COLOURS = {
    "rospy": "#d1495b", "rospy_nodelay": "#e8a0a8", "roscpp": "#5b3f8c", "roscpp_nodelay": "#a994cf",
    "rclpy": "#2e8b57", "zenoh": "#b8860b", "tautline": "#0060a8", "tautline_roscpp": "#5fa8d3",
}
SHADES = ["#0060a8", "#2e8b57", "#b8860b", "#d1495b", "#5b3f8c", "#5fa8d3", "#8a5a2b", "#2b2b2b"]
SOURCE = " Thesis: I. Jordan, 2017, %s, on Raspberry Pi 3B."
OF_THESIS = {"frequency": SOURCE % "exp. 3", "cpu": SOURCE % "exp. 3", "radio": SOURCE % "exp. 6",
             "recorded": SOURCE % "exp. 5", "vertical": SOURCE % "exp. 7"}


def plain(value, _position):
    return "%g" % value


def dress(axes, title, x_label, y_label="mean round trip, ms"):
    axes.set_title(title, fontsize=11, color=INK, loc="left", fontweight="bold")
    axes.set_xlabel(x_label, color=INK)
    axes.set_ylabel(y_label, color=INK)
    axes.grid(color=FAINT, linewidth=0.7)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def logarithmic(axes, x=True):
    """Makes both axes logarithmic, or only the vertical one; the vertical axis shows at least a decade."""
    if x:
        axes.set_xscale("log")
        label(axes.xaxis)
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    if high / low < 30:
        middle_of_axis = (low * high) ** 0.5
        axes.set_ylim(middle_of_axis / 6, middle_of_axis * 6)
    label(axes.yaxis)


def label(axis):
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if span(axis) < 2.5 else (1,)))
    axis.set_major_formatter(FuncFormatter(plain))
    axis.set_minor_formatter(NullFormatter())


def span(axis):
    """Returns the decades of an axis."""
    low, high = axis.get_view_interval()
    return math.log10(high / low)


def middle(values):
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def is_sustained(row):
    return row["sustained"] and not row["void"]


def is_held(row):
    return is_sustained(row) and row["p95_periods"] is not None and row["p95_periods"] <= 1


def curve(rows, x, y, good=is_sustained):
    """Returns the points of a curve: for each x the median, and whether most repetitions are good."""
    points = {}
    for row in rows:
        value = y(row)
        if value is not None:
            points.setdefault(row[x], []).append((value, good(row)))
    at = sorted(points)
    return (at, [middle([value for value, _ in points[it]]) for it in at],
            [middle([good for _, good in points[it]]) for it in at])


def draw(axes, points, colour, label, style="-", marker="o"):
    """Draws a curve; a load that was not sustained has an empty marker."""
    x, y, good = points
    if not x:
        return
    axes.plot(x, y, style, color=colour, linewidth=1.8, label=label)
    for at, value, sustained in zip(x, y, good):
        axes.plot([at], [value], marker, color=colour, markersize=6,
                  fillstyle="full" if sustained else "none", markeredgewidth=1.4)


def mean(row):
    return row["rtt_ms"] and row["rtt_ms"]["mean"]


def single(folder, ending):
    """Returns frequencies and means of a set of the thesis's runs with one pair."""
    with open(os.path.join(folder, "sheepzez_single_pair_summary.csv"), encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["set"].endswith(ending)]
    points = sorted((float(row["freq"]), float(row["mean_thesis"])) for row in rows)
    return [x for x, _ in points], [y for _, y in points]


def vertical_of_thesis(folder):
    """Returns, by frequency, senders and means of the thesis's experiment 7."""
    with open(os.path.join(folder, "sheepzez_vertical_scaling_summary.csv"), encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if "experiment_7" in row["exp"]]
    curves = {}
    for row in rows:
        point = int(row["senders"]), float(row["mean_thesis"])
        curves.setdefault(float(row["freq"]), []).append(point)
    return {hz: list(zip(*sorted(points))) for hz, points in curves.items()}


def empty_means(figure, name):
    failed = "not held" if name == "tautline" else "not sustained, or the run is void"
    figure.text(0.01, 0.008, "Empty marker: %s.%s" % (failed, OF_THESIS.get(name, "")),
                ha="left", fontsize=8.5, color=THESIS)


def systems_of(rows):
    return [system for system in COLOURS if any(row["system"] == system for row in rows)]


def frequency(rows, folder):
    figure, axes = plt.subplots(figsize=(9, 5.5))
    for system in systems_of(rows):
        own = [row for row in rows if row["system"] == system]
        draw(axes, curve(own, "frequency_hz", mean), COLOURS[system], system)
    x, y = single(folder, "experiment_3_cpu/100_clockspeed")
    axes.plot(x, y, "s", color=THESIS, markersize=6, label="thesis, exp. 3, rospy, Ethernet")
    logarithmic(axes)
    dress(axes, "One sender and one echoer, small messages", "messages per second")
    axes.legend(frameon=False, fontsize=9, ncol=2)
    return figure


def cpu(rows, folder):
    figure, (own, theirs) = plt.subplots(1, 2, figsize=(11, 4.8))
    shares = sorted({row["cpu_share_percent"] for row in rows}, reverse=True)
    for colour, share in zip(SHADES, shares):
        of = [row for row in rows if row["cpu_share_percent"] == share]
        draw(own, curve(of, "frequency_hz", mean), colour, "%d %% of a core" % share)
    for colour, share in zip(SHADES, (100, 75, 50)):
        x, y = single(folder, "experiment_3_cpu/%d_clockspeed" % share)
        theirs.plot(x, y, "s-", color=colour, linewidth=1.8, label="%d %% of the clock" % share)
    for axes, title in ((own, "This machine, rospy"), (theirs, "Thesis, exp. 3")):
        logarithmic(axes)
        dress(axes, title, "messages per second")
        axes.legend(frameon=False, fontsize=9)
    theirs.xaxis.set_major_locator(FixedLocator([200, 400, 800, 1600]))
    theirs.xaxis.set_minor_locator(FixedLocator([]))
    return figure


def radio(rows, folder):
    links = [it for it in ("wired", "token_bucket", "radio") if any(r["link"] == it for r in rows)]
    titles = {"wired": "Wire", "token_bucket": "Token bucket, 6 Mbps each way",
              "radio": "Modelled 802.11, 6 Mbps, half duplex"}
    thesis = {"wired": ("experiment_6_real_wifi/wired/sensor", "thesis, exp. 6, Ethernet"),
              "radio": ("experiment_6_real_wifi/wifi/sensor", "thesis, exp. 6, 2.4 GHz 802.11n")}
    figure, grid = plt.subplots(1, len(links), figsize=(4.6 * len(links), 4.8), sharey=True, squeeze=False)
    for axes, link in zip(grid[0], links):
        on = [row for row in rows if row["link"] == link]
        for system in systems_of(on):
            own = [row for row in on if row["system"] == system]
            draw(axes, curve(own, "frequency_hz", mean), COLOURS[system], system)
        if link in thesis:
            x, y = single(folder, thesis[link][0])
            axes.plot(x, y, "s", color=THESIS, markersize=5, label=thesis[link][1])
        dress(axes, titles[link], "scans (4.2 KB) per second")
        axes.legend(frameon=False, fontsize=9)
    # The panels share their vertical axis, which all curves determine.
    for axes in grid[0]:
        logarithmic(axes)
    return figure


def recorded(rows, folder):
    titles = {"scan": "LaserScan, 4.2 KB", "image": "Image, 308 KB", "recorded": "Your recording"}
    kinds = [kind for kind in titles if any(row["contents"] == kind for row in rows)]
    thesis = {"scan": "experiment_5_real_cpu/cpu100/sensor", "image": "experiment_5_real_cpu/cpu100/video"}
    figure, grid = plt.subplots(1, len(kinds), figsize=(max(7, 5.5 * len(kinds)), 4.8), squeeze=False)
    for axes, kind in zip(grid[0], kinds):
        of = [row for row in rows if row["contents"] == kind]
        for system in systems_of(of):
            own = [row for row in of if row["system"] == system]
            draw(axes, curve(own, "frequency_hz", mean), COLOURS[system], system)
        if kind in thesis:
            x, y = single(folder, thesis[kind])
            axes.plot(x, y, "s", color=THESIS, markersize=5, label="thesis, exp. 5, rospy")
        logarithmic(axes)
        dress(axes, titles[kind], "messages per second")
        axes.legend(frameon=False, fontsize=9)
    return figure


def vertical(rows, folder):
    titles = {"wired": "roscpp, wire", "radio": "roscpp, modelled 802.11, 6 Mbps", "hosts": "roscpp, your hosts"}
    links = [link for link in titles if any(row["link"] == link for row in rows)]
    figure, grid = plt.subplots(1, len(links) + 1, figsize=(4.6 * (len(links) + 1), 4.8), sharey=True)
    thesis = vertical_of_thesis(folder)
    frequencies = sorted(set(thesis) | {row["frequency_hz"] for row in rows})
    colours = dict(zip(frequencies, SHADES))
    for axes, link in zip(grid, links):
        for hz in frequencies:
            of = [row for row in rows if row["link"] == link and row["frequency_hz"] == hz]
            draw(axes, curve(of, "senders", mean), colours[hz], "%g Hz" % hz)
        dress(axes, titles[link], "senders, each with an echoer")
    for hz, (senders, means) in sorted(thesis.items()):
        grid[-1].plot(senders, means, "s-", color=colours[hz], linewidth=1.8, label="%g Hz" % hz)
    dress(grid[-1], "Thesis, exp. 7, rospy, 802.11n", "senders, each with an echoer")
    for axes in grid:
        logarithmic(axes)
        axes.xaxis.set_major_locator(FixedLocator([1, 2, 4, 8, 16, 32, 64, 128]))
        axes.xaxis.set_minor_locator(FixedLocator([]))
        axes.legend(frameon=False, fontsize=9)
    return figure


def horizontal(rows, _folder):
    frequencies = sorted({row["frequency_hz"] for row in rows})
    figure, grid = plt.subplots(1, len(frequencies), figsize=(4.4 * len(frequencies), 4.6),
                                sharey=True, squeeze=False)
    nodes = sorted({2 * row["senders"] // row["hosts"] for row in rows})
    for axes, hz in zip(grid[0], frequencies):
        for colour, count in zip(SHADES, nodes):
            of = [row for row in rows if row["frequency_hz"] == hz
                  and 2 * row["senders"] // row["hosts"] == count]
            draw(axes, curve(of, "hosts", mean), colour, "%d a host" % count)
        axes.set_xticks(sorted({row["hosts"] for row in rows}))
        dress(axes, "%g Hz" % hz, "hosts, every sender to every echoer")
        axes.legend(frameon=False, fontsize=9, title="nodes")
    for axes in grid[0]:
        logarithmic(axes, x=False)
    return figure


def tautline(rows, _folder):
    titles = {"robots": "Robots: a scan and a command each", "text": "Small messages, 64 B at 50 Hz",
              "scan": "Scans alone, 4.2 KB at 10 Hz"}
    kinds = [kind for kind in titles if any(row["contents"] == kind for row in rows)]
    figure, grid = plt.subplots(1, len(kinds), figsize=(max(7, 5 * len(kinds)), 4.8), sharey=True,
                                squeeze=False)
    for axes, kind in zip(grid[0], kinds):
        of = [row for row in rows if row["contents"] == kind]
        for system in systems_of(of):
            own = [row for row in of if row["system"] == system]
            draw(axes, curve(own, "offered_per_s", lambda row: row["p95_periods"], is_held),
                 COLOURS[system], system)
        axes.axhline(1, color=INK, linewidth=1, linestyle="--")
        axes.text(0.99, 1.06, "one period", transform=axes.get_yaxis_transform(), ha="right",
                  fontsize=9, color=INK)
        dress(axes, titles[kind], "messages per second, all senders",
              "95th percentile of round trips, in periods")
        axes.legend(frameon=False, fontsize=9)
    for axes in grid[0]:
        logarithmic(axes, x=False)
    return figure


PICTURES = {"frequency": frequency, "cpu": cpu, "radio": radio, "recorded": recorded,
            "vertical": vertical, "horizontal": horizontal, "tautline": tautline}


def save(figure, start, name):
    figure.tight_layout(rect=(0, 0.045, 1, 1))
    # Without a date in it, the same figures give the same file.
    figure.savefig("%s%s.png" % (start, name), dpi=110, metadata={"Software": None})
    plt.close(figure)


def main():
    report, folder, start = sys.argv[1:4]
    figures = read(report)
    for name, picture in PICTURES.items():
        of = [row for row in figures.get("rows", []) if row["experiment"] == name]
        if of:
            figure = picture(of, folder)
            empty_means(figure, name)
            save(figure, start, name)


main()
