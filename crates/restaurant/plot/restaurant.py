# SPDX-License-Identifier: Apache-2.0
"""Draws the restaurant.

restaurant.py film TRUTH.jsonl OUT.gif [--from S] [--seconds S]: the arena from above, four times as
fast as it was.
restaurant.py paths DRIVES.json OUT.png: the Bezier path and the drives along it, one panel per
condition.
restaurant.py steps REPORT.json OUT.png: the control loop's steps, one panel per condition.
"""

import argparse
import json
import math
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend is chosen first)
from matplotlib.animation import FuncAnimation, PillowWriter  # noqa: E402
from matplotlib.patches import Circle, Rectangle  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "ros" / "restaurant"))
import arena  # noqa: E402

COLOURS = {"kobuki": "#0060a8", "tetra": "#d1495b"}
INK, FAINT, TABLE, KITCHEN = "#2b2b2b", "#d9d9d9", "#d6c3a5", "#eef4ec"
FRAMES_PER_S, SPEED_UP = 8, 4
TRAIL_S = 4.0
PLANT_PERIOD_S = 0.02
SYSTEMS = {
    ("tautline", "local"): ("controller on the robot", FAINT, 5.0),
    ("tautline", "kitchen"): ("kitchen, Tautline", "#0060a8", 1.8),
    ("plain", "kitchen"): ("kitchen, plain ROS", "#d1495b", 1.5),
}


def records(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.endswith("\n")]


def draw_arena(axes):
    axes.set_aspect("equal")
    axes.set_xlim(-0.1, arena.WIDTH + 0.1)
    axes.set_ylim(-0.1, arena.LENGTH + 0.1)
    axes.axis("off")
    axes.add_patch(Rectangle((0, 0), arena.WIDTH, 1.2, color=KITCHEN))
    axes.add_patch(Rectangle((0, 0), arena.WIDTH, arena.LENGTH, fill=False, color=INK, linewidth=2))
    axes.text(arena.WIDTH / 2, 0.18, "kitchen", ha="center", color=INK)
    for name, (x, y) in arena.TABLES.items():
        half = arena.TABLE_SIDE / 2
        axes.add_patch(Rectangle((x - half, y - half), 2 * half, 2 * half, color=TABLE))
        axes.text(x, y, name, ha="center", va="center", color=INK)


class Film:
    """The robots at successive times."""

    def __init__(self, axes, poses):
        self.poses = poses
        self.bodies, self.noses, self.trails = {}, {}, {}
        for name, robot in arena.ROBOTS.items():
            colour = COLOURS[name]
            self.trails[name] = axes.plot([], [], color=colour, alpha=0.35, linewidth=3)[0]
            self.bodies[name] = axes.add_patch(Circle((0, 0), robot.radius, color=colour))
            self.noses[name] = axes.plot([], [], color="white", linewidth=2)[0]

    def show(self, index):
        now = self.poses[index][0]
        past = [poses for at, poses in self.poses[:index + 1] if now - at <= TRAIL_S]
        for name, robot in arena.ROBOTS.items():
            x, y, theta = self.poses[index][1][name]
            self.bodies[name].center = (x, y)
            tip = (x + robot.radius * math.cos(theta), y + robot.radius * math.sin(theta))
            self.noses[name].set_data([x, tip[0]], [y, tip[1]])
            self.trails[name].set_data([it[name][0] for it in past], [it[name][1] for it in past])
        return []


def film(arguments):
    all_poses = [(it["ns"] / 1e9, it["poses"]) for it in records(arguments.truth) if "poses" in it]
    begin = all_poses[0][0] + arguments.begin
    end = begin + arguments.seconds
    step, due, poses = SPEED_UP / FRAMES_PER_S, begin, []
    for at, pose in all_poses:
        if due <= at <= end:
            poses.append((at, pose))
            due = at + step - 0.01
    figure, axes = plt.subplots(figsize=(2.6, 6.2))
    figure.subplots_adjust(0, 0, 1, 1)
    draw_arena(axes)
    shown = Film(axes, poses)
    animation = FuncAnimation(figure, shown.show, frames=len(poses))
    animation.save(arguments.out, writer=PillowWriter(fps=FRAMES_PER_S), dpi=80)


def paths(arguments):
    with open(arguments.drives, encoding="utf-8") as file:
        drives = json.load(file)
    conditions = list(dict.fromkeys(it["condition"] for it in drives["drives"]))
    figure, panels = plt.subplots(1, len(conditions), figsize=(2.6 * len(conditions), 4.4), sharey=True,
                                  squeeze=False)
    for axes, condition in zip(panels[0], conditions):
        for drive in drives["drives"]:
            system = SYSTEMS.get((drive["transport"], drive["controller"]))
            if drive["condition"] != condition or system is None:
                continue
            label, colour, width = system
            axes.plot([it[0] for it in drive["poses"]], [it[1] for it in drive["poses"]],
                      color=colour, linewidth=width, label=label)
        axes.plot([it[0] for it in drives["path"]], [it[1] for it in drives["path"]], color=INK,
                  linewidth=0.8, linestyle=(0, (4, 3)), label="path")
        axes.set_title(condition.replace("-", " "), fontsize=10)
        axes.set_aspect("equal")
        # Drives that lead far away from the path are cut off.
        axes.set_xlim(-0.4, 2.4)
        axes.set_ylim(-0.3, 3.3)
        axes.set_xlabel("x, m")
    panels[0][0].set_ylabel("y, m")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=len(labels), frameon=False)
    figure.subplots_adjust(bottom=0.2)
    figure.savefig(arguments.out, dpi=130)


def steps(arguments):
    with open(arguments.report, encoding="utf-8") as file:
        report = json.load(file)
    team = next((it["team"] for it in report["regulation"] if it["transport"] == "plain"),
                report["regulation"][0]["team"])
    runs = [it for it in report["regulation"] if it["team"] == team]
    conditions = list(dict.fromkeys(it["condition"] for it in runs))
    figure, panels = plt.subplots(1, len(conditions), figsize=(3.6 * len(conditions), 3.4), sharey=True,
                                  squeeze=False)
    for axes, condition in zip(panels[0], conditions):
        for run in runs:
            system = SYSTEMS.get((run["transport"], run["controller"]))
            if run["condition"] != condition or system is None:
                continue
            label, colour, width = system
            for number, volts in enumerate(run["volts"]):
                times = [PLANT_PERIOD_S * at for at in range(len(volts))]
                axes.plot(times, volts, color=colour, linewidth=width, alpha=0.8,
                          label=None if number else label)
        axes.set_title(condition, fontsize=10)
        axes.set_xlabel("s")
        axes.set_xlim(0, 2)
        axes.grid(color=FAINT, linewidth=0.5)
    panels[0][0].set_ylabel("capacitor, V")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=len(labels), frameon=False)
    figure.subplots_adjust(bottom=0.26)
    figure.savefig(arguments.out, dpi=130)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("film")
    command.add_argument("truth", type=pathlib.Path)
    command.add_argument("out", type=pathlib.Path)
    command.add_argument("--from", dest="begin", type=float, default=0.0)
    command.add_argument("--seconds", type=float, default=60.0)
    command.set_defaults(run=film)
    command = commands.add_parser("paths")
    command.add_argument("drives", type=pathlib.Path)
    command.add_argument("out", type=pathlib.Path)
    command.set_defaults(run=paths)
    command = commands.add_parser("steps")
    command.add_argument("report", type=pathlib.Path)
    command.add_argument("out", type=pathlib.Path)
    command.set_defaults(run=steps)
    arguments = parser.parse_args()
    arguments.run(arguments)


main()
