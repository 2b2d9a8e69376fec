# SPDX-License-Identifier: Apache-2.0
"""Recovery, reload, cost, floods, and virtual time against real time."""

import statistics

from parts.words import figure, number, table, targets, value_range, verdict

PAGE = "docs/explanation/measurements.md"
# Words of each interruption, its report, and its rows there; in the table, the slower direction counts.
INTERRUPTIONS = (
    ("outage of 5 s, default ARP retry interval", "recovery", ("outage 5-6 s, kernel defaults",)),
    ("outage of 5 s, ARP retry interval of 50 ms", "recovery", ("outage 5-6 s, neighbours asked every 50 ms",)),
    ("outage of 60 s, default ARP retry interval", "recovery-60s-kernel", ("outage 60-61 s, kernel defaults",)),
    ("outage of 60 s, ARP retry interval of 50 ms", "recovery-60s", ("outage 60-61 s, neighbours asked every 50 ms",)),
    (
        "restart of a killed daemon, of base and robot",
        "recovery",
        ("base's daemon killed, from its new socket", "robot's daemon killed, from its new socket"),
    ),
    ("return of a ROS master", "recovery", ("base's master killed 2 s, from its answer",)),
    ("change of address", "recovery", ("robot has another address",)),
    (
        "return of an interface with another address",
        "recovery",
        ("robot's interface 2 s down, other address", "robot's interface deleted 2 s, other address"),
    ),
)


def recovery_s(store, name, whats):
    """The slower direction of each interruption, in seconds."""
    rows = store.read(name)["rows"]
    times = [max(row["median_ms"] for row in rows if row["what"] == what) / 1000 for what in whats]
    words = list(dict.fromkeys(f"{time:.1f}" if time >= 1 else f"{time:.2f}" for time in times))
    return " and ".join(words) + " s"


def recovery(store, _):
    return table(
        ["interruption", "time"], [[words, recovery_s(store, name, whats)] for words, name, whats in INTERRUPTIONS]
    )


def arp(store, _):
    slow, fast = (recovery_s(store, name, whats) for _, name, whats in INTERRUPTIONS[:2])
    return f"{fast}, not {slow}"


def reload(store, _):
    report = store.read("reload")
    names = {"quiet": "no changes", "reloads": f"{len(report['reloads'])} reloads"}
    rows = []
    for phase in report["figures"]:
        delays = f"{phase['ms']['mean']:.2f} / {phase['ms']['p99']:.2f} / {phase['latest_ms']:.1f}"
        rows.append([names[phase["phase"]], number(phase["sent"]), number(phase["lost"]), delays])
    return table(["", "sent", "lost", "mean / p99 / latest ms"], rows)


def reload_targets(store, _):
    return targets(store.read("reload"))


def crypto_us(store):
    """Median times in the order of the bench, since the words of a row may change between measurements."""
    return [row["median_us"] for row in store.read("crypto")["rows"]]


def header(store, _):
    return f"{verdict(store.read('crypto'), 'header of a 1 KB message'):.1f} bytes"


def cost(store, _):
    sealing, opening, _, _, initiator, responder, forged, *_ = crypto_us(store)
    loaded = [judged["cpu_percent"] for judged in store.read("6mbps")["daemons"].values()]
    idle = store.read("idle")["verdicts"]
    idle_cpu = max(judged["found"] for judged in idle if judged["unit"] == "% of a core")
    idle_mb = max(judged["found"] for judged in idle if judged["unit"] == "MB")
    gateway = store.read("ros2-gateway")
    read, written = (verdict(gateway, f"1 KB at 200 Hz, {way}, p50, added") for way in ("read", "written"))
    topics = [
        judged["found"]
        for judged in gateway["verdicts"]
        if "100 topics" in judged["what"] and judged["unit"] == "% of a core"
    ]
    rows = [
        ["overhead of a 1 KB message, with reports, heartbeats and encryption", header(store, None)],
        ["encrypting or decrypting a packet of 1400 bytes", value_range([sealing, opening], 1, " us")],
        ["handshake, at either end", value_range([initiator / 1000, responder / 1000], 2, " ms")],
        ["refusing a forged handshake", value_range([forged], 1, " us")],
        ["daemon under the 6 Mbps load", value_range(loaded, 0, " % of a core")],
        ["idle daemon", f"{idle_cpu:.1f} % of a core, {idle_mb:.0f} MB of memory"],
        ["ROS 2 gateway for a 1 KB message", f"{read:.2f} ms to read it, {written:.2f} ms to write it (median)"],
        ["ROS 2 gateway with 100 topics", value_range(topics, 1, " % of a core")],
    ]
    return table(["operation", "cost"], rows)


# Of `tautline-lab validate cost`.
MOST_RELATIVE = 1.15


def protocol(store, _):
    rows = []
    for costs in store.read("cost"):
        case, _, policy = costs["case"].partition(", ")
        words = f"{case}, `{policy}`" if policy else case
        relative = "1" if costs["relative"] == 1 else f"{costs['relative']:.2f}"
        rows.append([words, f"{costs['us_per_packet']:.2f}", relative])
    return table(["case", "us per packet", "relative"], rows)


def protocol_target(store, _):
    relative = max(costs["relative"] for costs in store.read("cost"))
    word = "Missed" if relative > MOST_RELATIVE else "Reached"
    return f"{word} target: a packet over two links is to cost at most {MOST_RELATIVE} times as much as over one."


def second_link(store, _):
    best, stripe = ((costs["relative"] - 1) * 100 for costs in store.read("cost")[1:])
    return f"{best:.0f} % higher, striped {stripe:.0f} %"


FORGED = {
    "garbage": "garbage",
    "calls": "initiations by a sender that knows the public key",
    "replays": "replays of a genuine initiation",
}


def flood(store, _):
    report = store.read("flood")
    phases = {victim: {} for victim in ("quiet", "base", "robot")}
    for phase in report["phases"]:
        kind, _, victim = phase["phase"].partition(" to ")
        phases[victim or "quiet"].setdefault(kind, []).append(phase)
    quiet = phases["quiet"]["quiet"]
    meetings = {phase["phase"]: max(phase["seconds"]) for phase in report["meetings"]}

    def sessions(attack):
        return " / ".join(f"{meetings[f'{who} restarts, {attack}']:.2f}" for who in ("robot", "base")) + " s"

    def share(found, daemons):
        return value_range([phase["cpu_percent"][daemon] for phase in found for daemon in daemons], 1)

    p99 = statistics.median_low(phase["laser"]["delay_ms"]["p99"] for phase in quiet)
    rows = [["none", f"1 ({p99:.1f} ms)", share(quiet, (0, 1)), "–", sessions("quiet")]]
    for kind, words in FORGED.items():
        times = " / ".join(f"{verdict(report, f'{kind} to {victim}: laser p99'):.2f}" for victim in ("base", "robot"))
        # Daemons are in the order robot, base.
        attacked = [
            phase["cpu_percent"][number]
            for number, victim in enumerate(("robot", "base"))
            for phase in phases[victim][kind]
        ]
        answers = phases["base"][kind][0]["flood"]
        per_s, bytes_percent = answers["answers_per_s"], answers["answered_bytes_percent"]
        rows.append(
            [
                words,
                times,
                value_range(attacked, 0),
                f"{per_s:.0f} / {bytes_percent:.{0 if bytes_percent < 0.05 else 1}f} %",
                sessions(f"{kind} to base"),
            ]
        )
    heads = [
        "forged packets",
        "laser p99 relative to the baseline, attack on base / robot",
        "daemon, % of a core",
        "responses: per s / share of the bytes that arrived",
        "time to a session after a restart of robot / base",
    ]
    return table(heads, rows)


def air(store, _):
    def cell(flow, key, digits):
        return f"{flow['sim'][key]:.{digits}f} / {flow['air'][key]:.{digits}f}"

    rows = []
    for flow in store.read("air")["flows"]:
        name = "ping and echo" if flow["flow"] == "ping" else flow["flow"]
        rows.append(
            [
                name,
                f"{flow['sim']['messages']} / {flow['air']['messages']}",
                cell(flow, "delivered_percent", 1),
                cell(flow, "mean_ms", 2),
                cell(flow, "p99_ms", 2),
            ]
        )
    return table(["flow", "messages", "delivered %", "mean ms", "p99 ms"], rows)


def air_lateness(store, _):
    report = store.read("air")
    counted, discarded = report["emulator"], report["discarded"]
    p50, p99 = (value_range([run[key] for run in counted], 0) for key in ("late_p50_us", "late_p99_us"))
    cpu = value_range([run["cpu_percent"] for run in counted], 1)
    late = f" ({value_range([run['late_p99_us'] / 1000 for run in discarded], 1)} ms)" if discarded else ""
    return (
        f"In the {len(counted)} runs that counted, the median lateness of frames was {p50} us, and the p99 was "
        f"{p99} us. The emulator used {cpu} % of a core. Discarded runs: {len(discarded)}{late}."
    )


SPEEDS = {
    "fleet-25": "25 robots x 10 flows of 1 KB at 10 Hz, 54 Mbps",
    "fleet-50": "50 robots",
    "fleet-100": "100 robots",
}


def speed(store, _):
    rows = []
    for scenario in store.read("speed"):
        rows.append(
            [
                SPEEDS.get(scenario["scenario"], scenario["scenario"]),
                f"{scenario['simulated_s']:.0f}",
                figure(scenario["taken_s"], 2),
                f"{scenario['times_real_time']:.0f}",
                number(scenario["messages"]),
                f"{scenario['us_per_message']:.0f}",
            ]
        )
    return table(["scenario", "simulated s", "processor s", "times real time", "messages", "us per message"], rows)


def speed_range(store, _):
    first, *_, last = (f"{scenario['times_real_time']:.0f}" for scenario in store.read("speed"))
    return f"between {last} times as fast as real time (100 robots) and {first} times as fast (pound-1hop)"


# Scans of the laser in the counted seconds of a run.
TCP_SCANS = 500


def tcp(store, _):
    """What Tautline gets alongside a download, for the limits of the README."""
    report = store.read("tcp")
    by = {cc: [pair for pair in report["beside"] if pair["congestion"] == cc] for cc in ("cubic", "bbr")}
    share = {cc: value_range([pair["tautline_percent"] for pair in found], 0) for cc, found in by.items()}
    p99 = {cc: value_range([pair["laser_p99_ms"] for pair in found], 0) for cc, found in by.items()}
    lost = value_range([100 * pair["laser_lost"] / (TCP_SCANS * report["runs"]) for pair in by["cubic"]], 0)
    runs = "one run" if report["runs"] == 1 else f"the median of {report['runs']} runs"
    return (
        f"gets {share['cubic']} % of the link if TCP uses Cubic, and {share['bbr']} % if it uses BBR. (Each figure is from "
        f"{runs}; other runs differ.) Its messages suffer the same queueing delay as the download: the p99 of a "
        f"laser is {p99['cubic']} ms with Cubic, {p99['bbr']} ms with BBR. With Cubic, {lost} % of the laser scans are lost"
    )


PARTS = {
    "recovery": (PAGE, recovery),
    "arp": ("docs/how-to/wifi.md", arp),
    "reload": (PAGE, reload),
    "reload-targets": (PAGE, reload_targets),
    "cost": (PAGE, cost),
    "header": ("docs/explanation/how-it-works.md", header),
    "protocol": (PAGE, protocol),
    "protocol-target": (PAGE, protocol_target),
    "second-link": ("README.md", second_link),
    "flood": (PAGE, flood),
    "air": (PAGE, air),
    "air-lateness": (PAGE, air_lateness),
    "speed": (PAGE, speed),
    "speed-range": ("docs/explanation/radio-model.md", speed_range),
    "tcp": ("README.md", tcp),
}
