# SPDX-License-Identifier: Apache-2.0
"""Draws throughput and collisions against the number of stations: model and reference."""

import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend is chosen first)

INK, FAINT, MODEL, REFERENCE = "#2b2b2b", "#d9d9d9", "#0060a8", "#d1495b"


def draw_panel(axes, points, of, title):
    stations = [point["stations"] for point in points]
    axes.plot(stations, [point["reference_" + of] for point in points], "o", color=REFERENCE,
              markersize=9, fillstyle="none", markeredgewidth=1.6, label="reference")
    key = "throughput_mbps" if of == "mbps" else of
    axes.plot(stations, [point[key] for point in points], "-", color=MODEL, linewidth=2,
              label="tautline-medium")
    axes.set_title(title, fontsize=11, color=INK, loc="left", fontweight="bold")
    axes.set_xlabel("stations that always have a frame to send", color=INK)
    axes.set_ylim(0, axes.get_ylim()[1] * 1.05)
    axes.grid(color=FAINT, linewidth=0.7)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False)


def main():
    points, picture = json.loads(sys.argv[1]), sys.argv[2]
    rates = sorted({point["phy_mbps"] for point in points})
    figure, grid = plt.subplots(2, len(rates), figsize=(10, 6.5), squeeze=False)
    for column, rate in enumerate(rates):
        chosen = [point for point in points if point["phy_mbps"] == rate]
        draw_panel(grid[0][column], chosen, "mbps", f"Throughput at {rate} Mbps (Mbps of IP)")
        draw_panel(grid[1][column], chosen, "collision_probability",
                   f"Attempts that collide at {rate} Mbps")
    figure.tight_layout()
    # Without a date in it, the same figures give the same file.
    figure.savefig(picture, dpi=110, metadata={"Software": None})


main()
