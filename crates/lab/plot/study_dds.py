# SPDX-License-Identifier: Apache-2.0
"""Draws the DDS study like the plots of the paper, with the paper's medians faint beside ours.

Arguments: report.json, the medians of 2016, and the folder of the pictures. A part without results
has no picture.
"""

import csv
import json
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend is chosen first)
from matplotlib.ticker import FuncFormatter, NullFormatter  # noqa: E402

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
                      xytext=(4, 0), textcoords="offset points", va="center", zorder=1,
                      annotation_clip=False)


def draw_system(axes, cells, system):
    """Draws medians; a size with another outcome than fine has an open marker."""
    title, colour, line, marker = SYSTEMS[system]
    points = sorted((cell["bytes"], cell["delay_ms"]["median"], cell["outcome"])
                    for cell in cells if cell["delay_ms"])
    if not points:
        return
    axes.plot([it[0] for it in points], [it[1] for it in points], line, color=colour,
              linewidth=1.7, label=title, zorder=3)
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


def main():
    report_file, medians, folder = map(pathlib.Path, sys.argv[1:])
    report = json.loads(report_file.read_text())
    paper = medians_of_2016(medians)
    draw_latency(report, paper, folder)


main()
