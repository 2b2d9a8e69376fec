# SPDX-License-Identifier: Apache-2.0
"""Draws how long messages took: one panel per topic, one curve per transport.

A curve shows the share of all sent messages that arrived within a delay. If
messages were lost, it ends below 100 %.
"""

import argparse
import csv
import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend is chosen first)
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter  # noqa: E402

# Name, title, and the right end of the figures beside the curves (0 is left, 1 is right).
TOPICS = [
    ("command", "Velocity command", 0.97),
    ("laser", "Laser scan", 0.97),
    ("image", "Camera image", 0.78),
]
TRANSPORTS = [
    ("tautline", "Tautline", "#0060a8", "-", 2.6),
    ("tcpros", "plain ROS 1 (TCPROS)", "#d1495b", "-", 1.8),
    ("tcpros_nodelay", "plain ROS 1 with TCP_NODELAY", "#e8a33d", "-", 1.8),
    ("ros2_reliable", "plain ROS 2, reliable (Fast DDS)", "#d1495b", "-", 1.8),
    ("ros2_best_effort", "plain ROS 2, best effort", "#e8a33d", "-", 1.8),
]
INK, FAINT = "#2b2b2b", "#d9d9d9"
P99_LABEL_TOP, P99_LABEL_STEP = 0.185, 0.07


def rows(file):
    with open(file, newline="") as samples:
        return list(csv.DictReader(samples))


def delays_ms(folder, topic):
    """Sorted delays of the messages that arrived, and the number of messages sent."""
    sent = len(rows(folder / (topic + ".sent.csv")))
    first = {}
    for row in rows(folder / (topic + ".received.csv")):
        delay = (int(row["received_ns"]) - int(row["sent_ns"])) / 1e6
        first.setdefault(row["sequence"], delay)
    return sorted(first.values()), sent


def draw_curve(axes, delays, sent, colour, style, width):
    shares = [100 * (index + 1) / sent for index in range(len(delays))]
    axes.step(delays, shares, where="post", color=colour, linestyle=style, linewidth=width, zorder=3)


def p99(delays):
    """Nearest rank, as in report.json."""
    return delays[max(-(-len(delays) * 99 // 100), 1) - 1]


def draw_panel(axes, raw, topic, title, labels_end):
    """Draws one topic."""
    axes.set_title(title, fontsize=12, color=INK, loc="left", fontweight="bold")
    line = P99_LABEL_TOP
    for name, _, colour, style, width in TRANSPORTS:
        if not (raw / name).is_dir():
            continue
        delays, sent = delays_ms(raw / name, topic)
        draw_curve(axes, delays, sent, colour, style, width)
        text = "99 %% within %s ms" % number(p99(delays)) if delays else "nothing received"
        axes.text(
            labels_end, line, text, transform=axes.transAxes, ha="right", fontsize=9.5,
            color=colour, fontweight="bold",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5}, zorder=4,
        )
        line -= P99_LABEL_STEP


def number(value):
    return "%.1f" % value if value < 10 else "%.0f" % value


def dress(axes):
    axes.set_xscale("log")
    axes.set_ylim(0, 101.5)
    axes.set_xlabel("delay from publish to callback, ms (log)", color=INK)
    axes.xaxis.set_major_locator(LogLocator(base=10))
    axes.xaxis.set_minor_locator(LogLocator(base=10, subs=range(2, 10)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: "%g" % value))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(True, color=FAINT, linewidth=0.6)
    axes.grid(True, which="minor", axis="x", color=FAINT, linewidth=0.25)
    axes.tick_params(colors=INK, labelsize=9)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def legend(figure, raw):
    shown = [entry for entry in TRANSPORTS if (raw / entry[0]).is_dir()]
    handles = [
        plt.Line2D([], [], color=colour, linestyle=style, linewidth=width)
        for _, _, colour, style, width in shown
    ]
    labels = [label for _, label, _, _, _ in shown]
    figure.legend(
        handles, labels, loc="lower center", ncol=len(shown), frameon=False, fontsize=11
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("raw", type=pathlib.Path)
    parser.add_argument("picture", type=pathlib.Path)
    parser.add_argument("--title", required=True)
    parser.add_argument("--subtitle", default="")
    arguments = parser.parse_args()

    figure, panels = plt.subplots(1, len(TOPICS), figsize=(13, 4.9), sharex=True, sharey=True)
    for axes, topic in zip(panels, TOPICS):
        draw_panel(axes, arguments.raw, *topic)
        dress(axes)
    panels[0].set_ylabel("messages arrived, % of those sent", color=INK)
    figure.suptitle(arguments.title, x=0.055, y=0.97, ha="left", fontsize=14, color=INK)
    figure.text(0.055, 0.885, arguments.subtitle, fontsize=10, color="#666666")
    legend(figure, arguments.raw)
    figure.subplots_adjust(left=0.055, right=0.985, top=0.80, bottom=0.22, wspace=0.07)
    figure.savefig(arguments.picture, dpi=130)


if __name__ == "__main__":
    main()
