# SPDX-License-Identifier: Apache-2.0
"""Prints the tables of the study of a DDS as JSON: a list of name, title and Markdown.

Arguments: a report, which may be compressed (.gz) or - for standard input, and the medians of the
paper.
"""

import csv
import json
import statistics
import sys

from markdown import grid, read

SYSTEMS = {
    "rospy": "ROS 1, rospy",
    "roscpp": "ROS 1, roscpp",
    "rclpy-shm": "ROS 2, rclpy, Fast DDS (shared memory)",
    "rclpy-udp": "ROS 2, rclpy, Fast DDS (UDP)",
    "cyclone": "Cyclone DDS, Python",
    "zenoh": "zenoh, Python",
    "tautline-1-1": "Tautline, ROS 1 to ROS 1",
    "tautline-1-2": "Tautline, ROS 1 to ROS 2",
    "tautline-2-1": "Tautline, ROS 2 to ROS 1",
    "tautline-2-2": "Tautline, ROS 2 to ROS 2",
}
PLACES = {"in-process": "in process", "local": "local", "wire": "remote, 100 Mbit/s",
          "unlimited": "remote, no limit"}
QUALITIES = ["reliable", "best effort", "depth 1", "depth 10", "depth 100"]
OUTCOMES = {"fine": "fine", "deadline-missed": "late", "loss": "loss", "halt": "halt",
            "configuration-error": "error", "unsupported": "unsupported"}
DURABILITIES = {"volatile": "volatile", "transient-local": "transient local (ROS 1: latched)"}
# Cases of the paper with their counterparts here.
PAIRINGS = [
    ("ROS 1, local", "1b_ros1_local", "roscpp", "local"),
    ("ROS 1, nodelet", "1c_ros1_nodelet", "roscpp", "in-process"),
    ("ROS 1, remote", "1a_ros1_remote", "roscpp", "wire"),
    ("ROS 2, local (OpenSplice, reliable)", "2b_ros2_local_opensplice_reliable", "rclpy-udp", "local"),
    ("ROS 2, in process", "2c_ros2_intraprocess", "rclpy-shm", "in-process"),
    ("ROS 2, remote (OpenSplice, reliable)", "2a_ros2_remote_opensplice_reliable", "rclpy-udp", "wire"),
    ("ROS 1 to ROS 2, local (Connext, bridge)", "3b_ros1_to_ros2_local_connext_be", "tautline-1-2", "local"),
    ("ROS 1 to ROS 2, remote (Connext, bridge)", "3a_ros1_to_ros2_remote_connext_be", "tautline-1-2", "wire"),
]
# Threads and 10^6 bytes of shared libraries of a node in 2016, from the paper's text.
NODES_OF_2016 = [("2016: ROS 1 node", "5", "2.26"), ("2016: ROS 2 node, Connext", "8", "21.18"),
                 ("2016: ROS 2 node, OpenSplice", "49", "17.95"), ("2016: ROS 2 node, FastRTPS", "5", "5.28")]
SUBSCRIBERS = 5
NONE = "–"


def ms(value):
    """Milliseconds with three significant digits."""
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3}f}"


def size(count):
    """A size as in the paper: 64K is 64 000 bytes."""
    if count >= 1_000_000:
        return f"{count // 1_000_000}M"
    return f"{count // 1000}K" if count >= 1000 else str(count)


def by_size(rows, sizes, show):
    """One row for each system, one column for each size."""
    found = {(row["system"], row["bytes"]): row for row in rows}
    systems = [name for name in SYSTEMS if any(row["system"] == name for row in rows)]
    return grid(["system", *map(size, sizes)],
                [[SYSTEMS[name], *(show(found.get((name, count))) for count in sizes)] for name in systems])


def sizes_of(rows):
    return sorted({row["bytes"] for row in rows})


def median(row):
    """The median, and the outcome unless it is fine."""
    if row is None:
        return NONE
    outcome, delays = OUTCOMES[row["outcome"]], row["delay_ms"]
    if delays is None:
        return outcome
    if outcome == "loss":
        outcome = f"{row['planned'] - row['received']} of {row['planned']} lost"
    return ms(delays["median"]) + ("" if outcome == "fine" else f" ({outcome})")


def quartiles(row):
    delays = row and row["delay_ms"]
    if not delays:
        return NONE
    return f"{ms(delays['lower_quartile'])}–{ms(delays['upper_quartile'])}, p99 {ms(delays['p99'])}"


def against_paper(rows, medians):
    sizes = [256, 1000, 64_000, 256_000, 1_000_000, 4_000_000]
    with open(medians, encoding="utf-8") as file:
        theirs = {row["case"]: row for row in csv.DictReader(line for line in file if line[0] != "#")}
    ours = {(row["system"], row["place"], row["bytes"]): row["delay_ms"] for row in rows}

    def figure(case, system, place, count):
        paper, here = theirs[case][size(count)], ours.get((system, place, count))
        if not paper:
            return NONE
        return ms(float(paper)) + (f" (x {here['median'] / float(paper):.2f})" if here else "")
    return grid(["case of 2016", "here", *map(size, sizes)],
                [[title, f"{SYSTEMS[system]}, {PLACES[place]}", *(figure(case, system, place, it) for it in sizes)]
                 for title, case, system, place in PAIRINGS])


def spans(rows):
    """`fine to 512K, late 1M to 4M`."""
    if not rows:
        return NONE
    groups = []
    for count, outcome in sorted((row["bytes"], OUTCOMES[row["outcome"]]) for row in rows):
        if groups and groups[-1][0] == outcome:
            groups[-1][2] = count
        else:
            groups.append([outcome, count, count])
    if len(groups) == 1:
        return groups[0][0]

    def words(number, outcome, first, last):
        if first == last:
            return f"{outcome} at {size(first)}"
        return f"{outcome} to {size(last)}" if number == 0 else f"{outcome} {size(first)} to {size(last)}"
    return ", ".join(words(number, *group) for number, group in enumerate(groups))


def outcomes(rows):
    systems = [name for name in SYSTEMS if any(row["system"] == name for row in rows)]
    return grid(["system", *PLACES.values()],
                [[SYSTEMS[name], *(spans([row for row in rows if (row["system"], row["place"]) == (name, place)])
                                   for place in PLACES)] for name in systems])


def added(rows):
    def line(row):
        def middle(figure):
            return statistics.median(figure(hops) for hops in row["rounds"])

        def hop(number):
            change = middle(lambda it: it[number]["median"] - it[0]["median"])
            percent = middle(lambda it: 100 * (it[number]["median"] / it[0]["median"] - 1))
            return [ms(medians[number]), f"{change:+.3f} ms ({percent:+.1f} %)"]
        medians = [middle(lambda it, number=number: it[number]["median"]) for number in range(3)]
        library = "roscpp" if row["ros"] == 1 else "Cyclone DDS"
        return [f"ROS {row['ros']}, {library}", size(row["bytes"]), ms(medians[0]), *hop(1), *hop(2),
                ms(medians[1] + medians[2])]
    return grid(["hop", "bytes", "direct", "gateway reads", "added", "gateway writes", "added", "in and out"],
                map(line, rows))


def qos(rows):
    sizes, lines = sizes_of(rows), []
    for system in SYSTEMS:
        for quality in QUALITIES:
            own = {row["bytes"]: row for row in rows if (row["system"], row["quality"]) == (system, quality)}
            if own:
                missed = sum(row["deadline_events"] or 0 for row in own.values())
                received = sum(row["received"] for row in own.values())
                lines.append([SYSTEMS[system], quality, *(median(own.get(it)) for it in sizes),
                              f"{missed} in {received} messages"])
    return grid(["system", "QoS", *map(size, sizes), "missed deadlines"], lines)


def first(rows):
    return grid(["system", "durability", "lost in each start", "first arrival, ms"],
                [[SYSTEMS[row["system"]], DURABILITIES[row["durability"]],
                  f"{', '.join(map(str, row['lost']))} of {row['published']}",
                  ", ".join(map(ms, row["until_first_ms"])) or NONE] for row in rows])


def breakdown(rows):
    parts = ["serialize", "middleware", "deserialize", "rest"]

    def line(row):
        own = [ms(row["parts"][part + "_ms"]) if row["parts"] else NONE for part in parts]
        whole = ms(row["delay_ms"]["median"]) if row["delay_ms"] else OUTCOMES[row["outcome"]]
        return [SYSTEMS[row["system"]], size(row["bytes"]), *own, whole]
    return grid(["system", "bytes", *parts, "whole delay"], map(line, rows))


def fairness(rows):
    def line(row):
        medians = row["medians_ms"]
        cells = ([ms(it) for it in medians] + [NONE] * SUBSCRIBERS)[:SUBSCRIBERS]
        ratio = f"{medians[-1] / medians[0]:.2f}" if medians else NONE
        return [SYSTEMS[row["system"]], *cells, ratio, row["lost"]]
    return grid(["system", *range(1, SUBSCRIBERS + 1), "last over first", "lost"], map(line, rows))


def throughput(rows):
    return grid(["system", "place", "bytes", "MB/s", "arrived"],
                [[SYSTEMS[row["system"]], PLACES[row["place"]], size(row["bytes"]),
                  f"{statistics.median(row['megabytes_per_s']):.2f}" if row["megabytes_per_s"] else NONE,
                  f"{row['received']} of {row['published']}"] for row in rows])


def footprint(rows):
    keys = ["library_bytes", "resident_bytes", "proportional_bytes"]
    ours = [[row["program"], row["threads"], row["libraries"], *(f"{row[key] / 1e6:.1f}" for key in keys)]
            for row in rows]
    theirs = [[program, threads, NONE, libraries, NONE, NONE] for program, threads, libraries in NODES_OF_2016]
    return grid(["program", "threads", "shared libraries", "their files, MB", "resident, MB", "proportional, MB"],
                ours + theirs)


def failures(rows):
    if not rows:
        return "No system failed.\n"
    # The end of a log would break the table; the report has all of it.
    return grid(["part", "system", "place", "error"],
                [[row["part"], SYSTEMS[row["system"]], PLACES[row["place"]], row["error"].split("\n")[0]]
                 for row in rows])


def tables(report, medians):
    latency = report.get("latency", [])
    for place, title in PLACES.items():
        rows = [row for row in latency if row["place"] == place]
        if rows:
            yield f"latency {place}", f"{title}: median delay in ms by bytes of a message", \
                by_size(rows, sizes_of(rows), median)
    if latency:
        local = [row for row in latency if row["place"] == "local"]
        yield "spread", "local: quartiles and p99 of the delay, ms", \
            by_size(local, [1000, 64_000, 1_000_000, 4_000_000], quartiles)
        yield "paper", "medians of 2016 in ms, and ours over theirs", against_paper(latency, medians)
        yield "outcomes", "sizes by outcome", outcomes(latency)
    parts = [
        (added, "one gateway and a direct local hop, medians in ms"),
        (qos, "local: median delay in ms by QoS, and missed deadlines"),
        (first, "first messages lost when the publisher starts at once, and time to the first"),
        (breakdown, "local: medians of the parts of the delay, ms"),
        (fairness, "five subscribers, 1 MB: median delay of each in ms, fastest first"),
        (throughput, "throughput, 10^6 bytes per second that arrive"),
        (footprint, "idle programs"),
    ]
    for part, title in parts:
        if report.get(part.__name__):
            yield part.__name__, title, part(report[part.__name__])
    # Without failures, this empties the table of an earlier run in the docs.
    yield "failures", "systems that failed in these parts", failures(report["failures"])


if __name__ == "__main__":
    print(json.dumps([dict(zip(("name", "title", "markdown"), table))
                      for table in tables(read(sys.argv[1]), sys.argv[2])]))
