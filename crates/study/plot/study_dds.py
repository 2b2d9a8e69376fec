# SPDX-License-Identifier: Apache-2.0
"""Draws the DDS study like the plots of the paper, with the paper's medians faint beside ours.

Arguments: report.json, the medians of 2016, and the folder of the pictures. A part without results
has no picture.
"""

import csv
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend is chosen first)
from markdown import read  # noqa: E402
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter  # noqa: E402

INK, FAINT, PAPER = "#2b2b2b", "#d9d9d9", "#9a9a9a"
SOURCE = "grey: medians of 2016, read off the plots of Maruyama, Kato, Azumi, EMSOFT 2016"
# Title, colour, line, marker.
SYSTEMS = {
    "rospy": ("ROS 1, rospy", "#d1495b", "-", "o"),
    "roscpp": ("ROS 1, roscpp", "#8c2f39", "-", "s"),
    "rclpy-shm": ("ROS 2, rclpy, Fast DDS (shared memory)", "#e8a33d", "--", "^"),
    "rclpy-udp": ("ROS 2, rclpy, Fast DDS (UDP)", "#e8a33d", "-", "v"),
    "cyclone": ("Cyclone DDS, Python", "#5a8f29", "-", "D"),
    "zenoh": ("zenoh, Python", "#7b4fa3", "-", "P"),
    "tautline-1-1": ("Tautline, ROS 1 to ROS 1", "#0060a8", "-", "o"),
    "tautline-1-2": ("Tautline, ROS 1 to ROS 2", "#0060a8", "--", "^"),
    "tautline-2-1": ("Tautline, ROS 2 to ROS 1", "#3fa7d6", "--", "v"),
    "tautline-2-2": ("Tautline, ROS 2 to ROS 2", "#3fa7d6", "-", "D"),
}
PLACES = {
    "in-process": ("In one process", ["1c_ros1_nodelet", "2c_ros2_intraprocess"]),
    "local": ("Two processes of one computer", [
        "1b_ros1_local", "2b_ros2_local_opensplice_reliable", "3b_ros1_to_ros2_local_connext_be"]),
    "wire": ("Two computers, 100 Mbit/s", [
        "1a_ros1_remote", "2a_ros2_remote_opensplice_reliable",
        "3a_ros1_to_ros2_remote_connext_be"]),
    "unlimited": ("Two computers, cable without limit", []),
}
PAPER_NAMES = {
    "1a_ros1_remote": "ROS 1", "1b_ros1_local": "ROS 1", "1c_ros1_nodelet": "ROS 1 nodelet",
    "2a_ros2_remote_opensplice_reliable": "ROS 2 OpenSplice",
    "2b_ros2_local_opensplice_reliable": "ROS 2 OpenSplice", "2c_ros2_intraprocess": "ROS 2",
    "3a_ros1_to_ros2_remote_connext_be": "ROS 1→2 Connext",
    "3b_ros1_to_ros2_local_connext_be": "ROS 1→2 Connext",
}


def size(value, _=None):
    if value >= 1e6:
        return "%gM" % (value / 1e6)
    return "%gK" % (value / 1e3) if value >= 1e3 else "%g" % value


def medians_of_2016(path):
    """Returns {case: [(bytes, ms)]}."""
    with open(path, newline="") as file:
        rows = [row for row in csv.reader(file) if row and not row[0].startswith("#")]
    factor = {"K": 1000, "M": 1000000}
    sizes = [int(name.rstrip("KM")) * factor.get(name[-1], 1) for name in rows[0][1:]]
    return {row[0]: [(at, float(ms)) for at, ms in zip(sizes, row[1:]) if ms] for row in rows[1:]}


def dress(axes, title):
    axes.set_title(title, fontsize=12, color=INK, loc="left", fontweight="bold")
    axes.grid(True, color=FAINT, linewidth=0.6)
    axes.tick_params(colors=INK, labelsize=9)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def dress_sizes(axes):
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("bytes of a message", color=INK)
    axes.xaxis.set_major_formatter(FuncFormatter(size))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xticks([256, 1000, 4000, 16000, 64000, 256000, 1e6, 4e6])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: "%g" % value))


def dress_delays(axes):
    """A logarithmic axis that also has ticks if the delays are within one decade."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: "%g" % value))
    axes.yaxis.set_minor_formatter(NullFormatter())


def save(figure, folder, name):
    # Without a date in it, the same figures give the same file.
    figure.savefig(folder / ("study-dds-%s.png" % name), dpi=110, metadata={"Software": None})
    plt.close(figure)


def draw_paper(axes, paper, cases):
    """Draws the medians of 2016; lines that end close together share a label."""
    ends = []
    for case in cases:
        points = paper[case]
        axes.plot(*zip(*points), color=PAPER, linewidth=1.2, alpha=0.8, zorder=1)
        ends.append((points[-1][1], points[-1][0], PAPER_NAMES[case]))
    labels = []
    for ms, at, name in sorted(ends):
        if labels and ms < 1.25 * labels[-1][0] and at == labels[-1][1]:
            labels[-1][2].append(name)
        else:
            labels.append((ms, at, [name]))
    for ms, at, names in labels:
        axes.annotate("2016: " + ",\n".join(names), (at, ms), color="#707070", fontsize=7.5,
                      xytext=(7, 0), textcoords="offset points", va="center", zorder=4,
                      annotation_clip=False,
                      bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5})


def draw_system(axes, cells, system):
    """Draws medians; a size with another outcome than fine has an open marker."""
    title, colour, line, marker = SYSTEMS[system]
    points = sorted((cell["bytes"], cell["delay_ms"]["median"], cell["outcome"])
                    for cell in cells if cell["delay_ms"])
    if not points:
        return
    axes.plot([it[0] for it in points], [it[1] for it in points], line, color=colour,
              linewidth=1.7, zorder=3)
    # For the legend: line and marker in one.
    axes.plot([], [], line, marker=marker, color=colour, linewidth=1.7, markersize=5, label=title)
    for fine in (True, False):
        chosen = [it for it in points if (it[2] == "fine") == fine]
        axes.plot([it[0] for it in chosen], [it[1] for it in chosen], marker, color=colour,
                  markersize=5, fillstyle="full" if fine else "none", zorder=3)


def draw_latency(report, paper, folder):
    cells = report.get("latency", [])
    places = [it for it in PLACES if any(c["place"] == it and c["delay_ms"] for c in cells)]
    if not places:
        return
    rows = -(-len(places) // 2)
    figure, grid = plt.subplots(rows, min(2, len(places)), figsize=(13.5, 5.2 * rows + 0.9),
                                squeeze=False)
    for axes, place in zip(grid.flat, places):
        title, cases = PLACES[place]
        draw_paper(axes, paper, cases)
        for system in SYSTEMS:
            draw_system(axes, [it for it in cells if (it["place"], it["system"]) == (place, system)],
                        system)
        dress(axes, title)
        dress_sizes(axes)
        axes.set_ylabel("median delay, publish to callback, ms", color=INK)
    for axes in list(grid.flat)[len(places):]:
        axes.axis("off")
    legend(figure, grid.flat)
    figure.text(0.01, 0.008, SOURCE + ". Open marker: late, loss or halt.", fontsize=8.5,
                color="#606060")
    space = 0.9 / (5.2 * rows + 0.9)
    figure.tight_layout(rect=(0, space, 0.985, 1), w_pad=4)
    save(figure, folder, "latency")


def legend(figure, panels):
    """One legend below all panels, in the order of SYSTEMS."""
    found = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels()):
            found.setdefault(label, handle)
    labels = [entry[0] for entry in SYSTEMS.values() if entry[0] in found]
    height = figure.get_size_inches()[1]
    figure.legend([found[it] for it in labels], labels, loc="lower center", ncol=4,
                  frameon=False, fontsize=9.5, bbox_to_anchor=(0.5, 0.22 / height))


def bars(axes, rows, unit):
    """Draws horizontal bars of (title, value, colour) from top to bottom, each with its value."""
    values = [value for _, value, _ in rows]
    axes.barh(range(len(rows)), values, color=[colour for _, _, colour in rows], height=0.68,
              zorder=2)
    for at, value in enumerate(values):
        axes.annotate(" %.3g" % value, (value, at), va="center", fontsize=8.5, color=INK)
    axes.set_yticks(range(len(rows)), [title for title, _, _ in rows])
    axes.invert_yaxis()
    axes.set_xlabel(unit, color=INK)
    axes.margins(x=0.16)


def draw_added(report, paper, folder):
    rows = report.get("added", [])
    if not rows:
        return
    figure, grid = plt.subplots(1, len({row["bytes"] for row in rows}), figsize=(12, 3.8),
                                squeeze=False)
    for axes, bytes_ in zip(grid.flat, sorted({row["bytes"] for row in rows})):
        drawn = []
        for row in (row for row in rows if row["bytes"] == bytes_):
            for hop, name in enumerate(["direct", "gateway reads", "gateway writes"]):
                medians = sorted(it[hop]["median"] for it in row["rounds"])
                colour = "#9a9a9a" if hop == 0 else "#0060a8"
                drawn.append(("ROS %d, %s" % (row["ros"], name), medians[len(medians) // 2],
                              colour))
        bars(axes, drawn, "median delay, ms")
        dress(axes, "A local hop, %s bytes" % size(bytes_))
    figure.tight_layout(w_pad=3)
    save(figure, folder, "added")


QUALITIES = {"reliable": "#0060a8", "best effort": "#e8a33d", "depth 1": "#b7d3e6",
             "depth 10": "#7fb0d2", "depth 100": "#4a8ab8"}


def draw_qos(report, paper, folder):
    cells = report.get("qos", [])
    systems = [it for it in SYSTEMS if any(cell["system"] == it for cell in cells)]
    if not systems:
        return
    sizes = sorted({cell["bytes"] for cell in cells})
    figure, grid = plt.subplots(1, len(systems), figsize=(max(7, 5.4 * len(systems)), 4.6),
                                squeeze=False, sharey=True)
    width = 0.8 / len(QUALITIES)
    for axes, system in zip(grid.flat, systems):
        for turn, (quality, colour) in enumerate(QUALITIES.items()):
            for at, bytes_ in enumerate(sizes):
                place = at - 0.4 + (turn + 0.5) * width
                found = [cell for cell in cells if (cell["system"], cell["quality"],
                                                    cell["bytes"]) == (system, quality, bytes_)]
                draw_quality(axes, found, place, width, colour)
            axes.bar([0], [0], color=colour, label=quality)
        axes.set_xticks(range(len(sizes)), [size(it) for it in sizes])
        dress_delays(axes)
        axes.set_xlabel("bytes of a message", color=INK)
        dress(axes, SYSTEMS[system][0])
    grid[0][0].set_ylabel("median and quartiles of the delay, ms", color=INK)
    figure.legend(*grid[0][0].get_legend_handles_labels(), loc="lower center", ncol=5,
                  frameon=False, fontsize=9.5)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    save(figure, folder, "qos")


def draw_quality(axes, found, place, width, colour):
    for cell in found:
        delay = cell["delay_ms"]
        if not delay:
            axes.annotate("none arrived", (place, 0.02), xycoords=("data", "axes fraction"),
                          rotation=90, ha="center", va="bottom", fontsize=8, color="#c0392b")
            continue
        median = delay["median"]
        error = [[median - delay["lower_quartile"]], [delay["upper_quartile"] - median]]
        axes.bar([place], [median], width * 0.92, color=colour, yerr=error, ecolor="#606060",
                 error_kw={"linewidth": 0.9}, zorder=2)
        if cell["outcome"] != "fine":
            axes.annotate("*", (place, delay["upper_quartile"]), ha="center", fontsize=12,
                          color="#c0392b")


def draw_fairness(report, paper, folder):
    rows = [row for row in report.get("fairness", []) if row["medians_ms"]]
    if not rows:
        return
    figure, axes = plt.subplots(figsize=(9.5, 5))
    for row in rows:
        title, colour, line, marker = SYSTEMS[row["system"]]
        medians = row["medians_ms"]
        axes.plot(range(1, len(medians) + 1), medians, line, marker=marker, color=colour,
                  linewidth=1.6, markersize=5,
                  label="%s: last %.2f x first" % (title, medians[-1] / medians[0]))
    dress_delays(axes)
    axes.set_xticks(range(1, 6))
    axes.set_xlabel("subscriber, fastest first (2016, ROS 1: the fifth needed about twice the "
                    "time of the first)", color=INK)
    axes.set_ylabel("median delay, ms", color=INK)
    dress(axes, "Five subscribers of one publisher, %s" % size(rows[0]["bytes"]))
    axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.01, 1))
    figure.tight_layout()
    save(figure, folder, "fairness")


PARTS = [("serialize_ms", "serialize", "#e8a33d"), ("middleware_ms", "middleware", "#0060a8"),
         ("deserialize_ms", "deserialize", "#d1495b"), ("rest_ms", "rest, to the callback",
                                                        "#b0b0b0")]


def draw_breakdown(report, paper, folder):
    cells = [cell for cell in report.get("breakdown", []) if cell.get("parts")]
    sizes = sorted({cell["bytes"] for cell in cells})
    if not sizes:
        return
    figure, grid = plt.subplots(1, len(sizes), figsize=(3.6 + 3.9 * len(sizes), 4.2),
                                squeeze=False, sharey=True)
    systems = [it for it in SYSTEMS if any(cell["system"] == it for cell in cells)]
    for axes, bytes_ in zip(grid.flat, sizes):
        for cell in (cell for cell in cells if cell["bytes"] == bytes_):
            left = 0
            for key, _, colour in PARTS:
                value = max(0, cell["parts"][key])
                axes.barh([systems.index(cell["system"])], [value], 0.68, left=left,
                          color=colour, zorder=2)
                left += value
        axes.set_xlabel("ms", color=INK)
        dress(axes, "%s bytes" % size(bytes_))
    grid[0][0].set_yticks(range(len(systems)), [SYSTEMS[it][0] for it in systems])
    grid[0][0].invert_yaxis()
    handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for _, _, colour in PARTS]
    figure.legend(handles, [name for _, name, _ in PARTS], loc="lower center", ncol=4,
                  frameon=False, fontsize=9.5)
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    save(figure, folder, "breakdown")


def draw_footprint(report, paper, folder):
    rows = report.get("footprint", [])
    if not rows:
        return
    panels = [("threads", "threads", 1), ("library_bytes", "files of shared libraries, MB", 1e6),
              ("proportional_bytes", "proportional memory, MB", 1e6)]
    figure, grid = plt.subplots(1, 3, figsize=(14, 4.4), sharey=True)
    for axes, (key, unit, factor) in zip(grid, panels):
        drawn = [(row["program"], row[key] / factor,
                  "#0060a8" if row["program"].startswith("daemon") else "#8fa3b0")
                 for row in rows]
        bars(axes, drawn, unit)
        dress(axes, unit.split(",")[0].capitalize())
    # A shared axis is inverted once for each panel.
    grid[0].set_ylim(len(rows) - 0.5, -0.5)
    figure.tight_layout(w_pad=2)
    save(figure, folder, "footprint")


def main():
    report = read(sys.argv[1])
    medians, folder = map(pathlib.Path, sys.argv[2:])
    paper = medians_of_2016(medians)
    for draw in (draw_latency, draw_added, draw_qos, draw_fairness, draw_breakdown,
                 draw_footprint):
        draw(report, paper, folder)


main()
