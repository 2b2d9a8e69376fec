# SPDX-License-Identifier: Apache-2.0
"""Draws the parts of a report of the study of real time: realtime.py REPORT START."""

import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend is chosen first)
from markdown import read  # noqa: E402

INK, FAINT, MUTED = "#2b2b2b", "#d9d9d9", "#8a8a8a"
BLUE, RED, GREEN, AMBER = "#0060a8", "#d1495b", "#3f8f5b", "#d98e04"
PAPER = "paper: Park, Delgado, Choi, IEEE Access 2020"


def dress(axes, title):
    axes.set_title(title, fontsize=10, color=INK, loc="left", fontweight="bold")
    axes.grid(color=FAINT, linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def finish(figure, report, picture, top=1.0):
    machine = report["machine"]
    figure.text(
        0.01, 0.005,
        "%s, Linux %s, preemption: %s; %d cores, hypervisor: %s" % (
            report["date"], report["kernel"], machine["preemption"], machine["cores"],
            machine["virtualization"]),
        fontsize=7.5, color=MUTED)
    figure.tight_layout(rect=(0, 0.03, 1, top))
    figure.savefig(picture, dpi=110, metadata={"Software": None})
    plt.close(figure)


def legend_of(panels):
    """Handles and labels of all panels, each label once."""
    found = {}
    for panel in panels:
        for handle, label in zip(*panel.get_legend_handles_labels()):
            found.setdefault(label, handle)
    return list(found.values()), list(found)


def load_word(stressed):
    return "with stress-ng" if stressed else "idle"


def latency(report, picture):
    """The share of cycles later than each latency, of both instruments and schedulers."""
    rows = report["latency"]
    figure, axes = plt.subplots(1, 2, figsize=(13, 5), sharey=True, sharex=True)
    paper = {False: (290, 11), True: (1280, 26)}
    colours = {"FIFO": BLUE, "OTHER": RED}
    for stressed, panel in zip((False, True), axes):
        for row in rows:
            if row["stressed"] != stressed or not row["cycles"]:
                continue
            pairs = sorted((int(us), count) for us, count in row["histogram"].items())
            later, xs, ys = row["cycles"], [], []
            for us, count in pairs:
                xs.append(max(us, 0.7))
                ys.append(later / row["cycles"])
                later -= count
            ours = row["instrument"] == "ours"
            panel.step(xs, ys, where="post", color=colours[row["policy"]],
                       linewidth=2 if ours else 1.2, linestyle="-" if ours else ":",
                       label="SCHED_%s, %s" % (
                           row["policy"], "this lab" if ours else "cyclictest"))
        standard, realtime = paper[stressed]
        for at, word in ((standard, "standard"), (realtime, "PREEMPT_RT")):
            panel.axvline(at, color=MUTED, linewidth=1, linestyle="--")
            panel.text(at * 0.93, 1.5, "paper's max,\n" + word, fontsize=7.5, color=MUTED, ha="right",
                       va="bottom")
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_ylim(top=8)
        panel.set_xlabel("scheduling latency (us)", color=INK)
        dress(panel, "Scheduling latency, " + load_word(stressed))
        if panel.lines:
            panel.legend(frameon=False, fontsize=8.5, loc="lower left")
    axes[0].set_xlim(left=3)
    axes[0].set_ylabel("share of cycles at least this late", color=INK)
    figure.text(0.99, 0.005, PAPER, fontsize=7.5, color=MUTED, ha="right")
    finish(figure, report, picture)


def tasks(report, picture):
    """Largest responses, measured and computed, per release and number of cores."""
    rows = [row for row in report["tasks"] if row["policy"] == "FIFO" and not row["stressed"]]
    shown = [("common", 1), ("staggered", 1), ("common", 2)]
    figure, axes = plt.subplots(1, 3, figsize=(14, 5), sharey=True)
    names = ["3 of 10 ms", "5 of 20 ms", "10 of 40 ms", "15 of 80 ms"]
    published = [3, 5, 21, 50]
    for (release, cores), panel in zip(shown, axes):
        row = next((row for row in rows
                    if (row["release"], row["cores"]) == (release, cores)), None)
        if row is None:
            panel.text(0.5, 0.5, "not measured", ha="center", transform=panel.transAxes)
            continue
        bars = [
            ("measured, from release", row["max_from_release_ms"], BLUE),
            ("schedule, from release", row["scheduled_from_release_ms"], "#9dc3e6"),
            ("measured, from first execution", row["max_from_start_ms"], RED),
            ("paper: worst case stated", published, MUTED),
        ]
        for index, (label, values, colour) in enumerate(bars):
            at = [task + (index - 1.5) * 0.2 for task in range(4)]
            heights = [value or 0 for value in values]
            panel.bar(at, heights, 0.19, color=colour, label=label)
            for x, value in zip(at, heights):
                panel.text(x, value + 0.8, "%.0f" % value, ha="center", fontsize=7, color=INK)
        panel.set_xticks(range(4), names)
        panel.set_xlabel("execution of period", color=INK)
        dress(panel, "%s release, %s" % (
            release.capitalize(), "one core" if cores == 1 else "two cores"))
    axes[0].set_ylabel("largest response (ms), SCHED_FIFO, idle", color=INK)
    axes[0].legend(frameon=False, fontsize=8.5, loc="upper left")
    figure.text(0.99, 0.005, PAPER, fontsize=7.5, color=MUTED, ha="right")
    finish(figure, report, picture)


def periods(report, picture):
    """Largest jitter and its 99th percentile by node, library and scheduler."""
    rows = report["periods"]
    figure, axes = plt.subplots(1, 2, figsize=(14, 5.2), sharey=True)
    shades = {("plain", "FIFO"): "#a6a6a6", ("plain", "OTHER"): "#5c5c5c",
              ("rospy", "FIFO"): "#9dc3e6", ("rospy", "OTHER"): BLUE,
              ("rclpy", "FIFO"): "#f2a9b4", ("rclpy", "OTHER"): RED}
    names = {"plain": "plain loop"}
    for stressed, panel in zip((False, True), axes):
        shown = [row for row in rows if row["stressed"] == stressed]
        width = 0.86 / max(len(shown), 1)
        marked = False
        for index, row in enumerate(shown):
            shift = (index - (len(shown) - 1) / 2) * width
            at = [node + shift for node in range(len(row["nodes"]))]
            library = row["library"]
            panel.bar(at, [node["max_ms"] or 0 for node in row["nodes"]], width * 0.92,
                      color=shades[library, row["policy"]],
                      label="%s, SCHED_%s" % (names.get(library, library), row["policy"]))
            p99 = [node["p99_ms"] or float("nan") for node in row["nodes"]]
            panel.plot(at, p99, linestyle="none", marker="_", markersize=9, color=INK,
                       label=None if marked else "99th percentile")
            marked = True
        for library, marker, label in (("rospy", "v", "paper's max, ROS 1 (standard kernel)"),
                                       ("rclpy", "^", "paper's max, ROS 2 (PREEMPT_RT)")):
            row = next((row for row in shown if row["library"] == library), None)
            if row:
                panel.plot(range(4), [node["paper_max_ms"] for node in row["nodes"]],
                           linestyle="none", marker=marker, color=AMBER, markeredgecolor=INK,
                           markersize=7, label=label)
        panel.set_yscale("log")
        panel.set_xticks(range(4), ["5 ms", "10 ms", "50 ms", "100 ms"])
        panel.set_xlabel("period of the node", color=INK)
        dress(panel, "Largest jitter of a period, " + load_word(stressed))
    axes[0].set_ylabel("ms", color=INK)
    figure.legend(*legend_of(axes), frameon=False, fontsize=8.5, loc="upper center", ncols=5,
                  bbox_to_anchor=(0.5, 1.0))
    figure.text(0.99, 0.005, PAPER, fontsize=7.5, color=MUTED, ha="right")
    finish(figure, report, picture, top=0.9)


SYSTEMS = {"rospy": ("rospy", BLUE, "o"), "rclpy": ("rclpy", RED, "s"),
           "tautline": ("Tautline", GREEN, "^"),
           "tautline-fifo": ("Tautline, SCHED_FIFO", "#8fce9f", "v")}


def systems_of(rows):
    """Name, colour and marker of each system that occurs."""
    found = {row["system"] for row in rows}
    return {system: look for system, look in SYSTEMS.items() if system in found}


def loads_of(rows):
    """The pairs of stress and traffic that occur, in the order of the rows."""
    return list(dict.fromkeys((row["stressed"], row["traffic"]) for row in rows))


def paper_roundtrips(panel, values, traffic, is_rate):
    """Draws the paper's largest round trips. With traffic, the paper states 'over 119 ms' for ROS 1 at
    100 Hz. For ROS 2 it states ranges, whose upper end is drawn; for some cases it states nothing."""
    def slow(value):
        return is_rate and value < 100

    def ros1(value):
        if traffic and is_rate and value > 100:
            return None
        return (50 if slow(value) else 119) if traffic else (0.29 if slow(value) else 40)

    def ros2(value):
        if is_rate and value > 100:
            return 2.7 if traffic else None
        return 0.9

    looks = [(ros1, "D", "paper's max, ROS 1"), (ros2, "*", "paper's max, ROS 2 (PREEMPT_RT)")]
    for peak_of, marker, label in looks:
        peaks = [peak_of(value) for value in values]
        panel.plot(range(len(peaks)), [float("nan") if it is None else it for it in peaks], marker,
                   color=AMBER, markeredgecolor=INK, markersize=5 if marker == "D" else 9,
                   linestyle="none", label=label)
    for at, value in enumerate(values):
        if ros1(value) == 119:
            panel.annotate("over", (at, 119), xytext=(0, 5), textcoords="offset points",
                           fontsize=7.5, color=MUTED, ha="center")


def roundtrip(report, picture):
    """Round trips by size and by rate: median, 99th percentile and largest of each system."""
    rows = report["roundtrip"]
    loads, systems = loads_of(rows), systems_of(rows)
    figure, grid = plt.subplots(len(loads), 2, figsize=(14, 0.6 + 3.3 * len(loads)), sharey=True,
                                squeeze=False)
    sweeps = [("bytes", "size (B) at 100 Hz", lambda row: row["rate_hz"] == 100),
              ("rate_hz", "rate (Hz) of 100 B", lambda row: row["bytes"] == 100)]
    for (stressed, traffic), line in zip(loads, grid):
        for (key, words, within), panel in zip(sweeps, line):
            chosen = [row for row in rows if (row["stressed"], row["traffic"]) ==
                      (stressed, traffic) and within(row)]
            values = sorted({row[key] for row in chosen})
            for index, (system, (name, colour, marker)) in enumerate(systems.items()):
                mine = sorted((row for row in chosen
                               if row["system"] == system and row["max_ms"] is not None),
                              key=lambda row: row[key])
                shift = (index - (len(systems) - 1) / 2) * 0.13
                at = [values.index(row[key]) + shift for row in mine]
                panel.vlines(at, [row["p50_ms"] for row in mine], [row["max_ms"] for row in mine],
                             color=colour, linewidth=1.5)
                panel.plot(at, [row["p50_ms"] for row in mine], marker, color=colour,
                           markersize=6, linestyle="none", label=name)
                panel.plot(at, [row["p99_ms"] for row in mine], "_", color=colour, markersize=10,
                           markeredgewidth=2, linestyle="none")
            if not stressed:
                paper_roundtrips(panel, values, traffic, key == "rate_hz")
            panel.set_yscale("log")
            panel.set_xticks(range(len(values)), [str(value) for value in values])
            panel.set_xlabel(words, color=INK, fontsize=9)
            dress(panel, "%s, %s" % ("With stress-ng" if stressed else "Idle processors",
                                     "beside 30 Mbps of iperf3" if traffic else "no other traffic"))
        line[0].set_ylabel("round trip (ms)", color=INK)
    figure.legend(*legend_of(grid.flat), frameon=False, fontsize=9, loc="upper center", ncols=6)
    figure.text(0.99, 0.005, "marker: median, dash: 99th percentile, top of line: max; " + PAPER,
                fontsize=7.5, color=MUTED, ha="right")
    finish(figure, report, picture, top=1 - 0.35 / figure.get_figheight())


def loss(report, picture):
    """Heat maps of lost messages by size and rate; one per system, link and load."""
    rows = report["loss"]
    kinds = list(dict.fromkeys((row["link"], row["stressed"]) for row in rows))
    systems = systems_of(rows)
    figure, grid = plt.subplots(len(kinds), len(systems), figsize=(14, 1.0 + 2.7 * len(kinds)),
                                squeeze=False)
    sizes = sorted({row["bytes"] for row in rows})
    rates = sorted({row["rate_hz"] for row in rows})
    for (link, stressed), line in zip(kinds, grid):
        for (system, (name, _, _)), panel in zip(systems.items(), line):
            found = {(row["bytes"], row["rate_hz"]): row for row in rows
                     if (row["link"], row["stressed"], row["system"]) == (link, stressed, system)}
            cell = [[found.get((size, rate), {}).get("lost_percent") for rate in rates]
                    for size in sizes]
            numbers = [[float("nan") if it is None else it for it in row] for row in cell]
            panel.imshow(numbers, cmap="OrRd", vmin=0, vmax=100, aspect="auto", origin="lower")
            for y, row in enumerate(cell):
                for x, value in enumerate(row):
                    word = "void" if value is None else "%.0f %%" % value
                    if value is not None and 0 < value < 1:
                        word = "%.1f %%" % value
                    if found.get((sizes[y], rates[x]), {}).get("blocked"):
                        word += "\nblocked"
                    dark = value is not None and value > 60
                    panel.text(x, y, word, ha="center", va="center", fontsize=8.5,
                               color="white" if dark else INK)
            panel.set_xticks(range(len(rates)), [str(rate) for rate in rates])
            panel.set_yticks(range(len(sizes)), ["%d" % size for size in sizes])
            panel.set_title("%s, %s%s" % (name, "radio" if link == "radio" else "wire",
                                          ", stress" if stressed else ""),
                            fontsize=9.5, color=INK, loc="left", fontweight="bold")
            panel.set_xlabel("Hz", color=INK, fontsize=9)
        line[0].set_ylabel("size (B)", color=INK)
    figure.text(0.01, 0.985, "Share of messages lost. " + PAPER + ": none up to 10000 B; 100000 B at "
                "100 and 200 Hz: ROS 1 26 and 37 %, ROS 2 100 and 100 %", fontsize=8.5, color=MUTED,
                va="top")
    finish(figure, report, picture, top=1 - 0.25 / figure.get_figheight())


DRAWN = {"latency": latency, "tasks": tasks, "periods": periods, "roundtrip": roundtrip,
         "loss": loss}


def main():
    source, start = sys.argv[1:3]
    report = read(source)
    for part, draw in DRAWN.items():
        if report.get(part):
            draw(report, start + part + ".png")


main()
