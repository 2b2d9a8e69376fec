# SPDX-License-Identifier: Apache-2.0
"""Two robots over a slow link: Tautline and plain ROS."""

from parts.words import bold, figure, percent, table, verdict

PAGE = "docs/explanation/measurements.md"
OVER = {
    "tautline": "Tautline",
    "tcpros": "ROS 1 TCPROS",
    "tcpros_nodelay": "ROS 1 TCP_NODELAY",
    "ros2_reliable": "ROS 2 reliable",
    "ros2_best_effort": "ROS 2 best effort",
}
# The report of each link, and its words.
ROS1 = {
    "6mbps": "6 Mbps (`make demo`)",
    "6mbps-rate": "6 Mbps, `rate: 6Mbps` set",
    "3mbps": "3 Mbps (more offered than fits)",
    "3mbps-rate": "3 Mbps, `rate: 3Mbps` set",
    "6mbps-loss": "6 Mbps, 5 % loss",
}
ROS2 = {"ros2-6mbps": "6 Mbps", "ros2-3mbps": "3 Mbps (more offered than fits)"}
CARRIED = "image bytes carried of the rate left"


def delay(flow, which):
    """A figure of the delays, or None if nothing arrived."""
    return flow["delay_ms"] and flow["delay_ms"][which]


def mean_and_p99(flow):
    return f"{figure(delay(flow, 'mean'))} / {bold(figure(delay(flow, 'p99')))}"


def laser_cells(flows):
    laser = flows["laser"]
    return [percent(laser["mdr_percent"]), mean_and_p99(laser), figure(laser["gap_ms"] and laser["gap_ms"]["std"])]


def image_cells(flows):
    return [figure(delay(flows["image"], "mean")), percent(flows["image"]["mdr_percent"])]


def comparison(store, links, with_share=False):
    rows = []
    for name, words in links.items():
        report = store.read(name)
        for transport, flows in report["transports"].items():
            cells = [words, OVER[transport], *laser_cells(flows), bold(figure(delay(flows["command"], "p99")))]
            cells += image_cells(flows)
            if with_share and transport == "tautline" and flows["image"]["mdr_percent"] < 100:
                cells[-1] += f" ({verdict(report, CARRIED):.1f} % of the capacity that the other topics leave)"
            rows.append(cells)
            words = ""
    heads = [
        "link",
        "over",
        "laser arrived",
        "laser mean / p99 ms",
        "laser gap std ms",
        "command p99 ms",
        "image mean ms",
        "images arrived",
    ]
    return table(heads, rows)


def ros1(store, _):
    return comparison(store, ROS1)


def oldest_image(store, _):
    images = (store.read(name)["transports"]["tautline"]["image"] for name in ("3mbps", "3mbps-rate"))
    return f"the oldest delivered image was {max(image['delay_ms']['max'] for image in images):.0f} ms old"


def radio(store, _):
    rows = []
    for transport, flows in store.read("6mbps-radio")["transports"].items():
        rows.append([OVER[transport], *laser_cells(flows), mean_and_p99(flows["command"]), *image_cells(flows)])
    heads = [
        "6 Mbps 802.11, half duplex (model)",
        "laser arrived",
        "laser mean / p99 ms",
        "laser gap std ms",
        "command mean / p99 ms",
        "image mean ms",
        "images arrived",
    ]
    return table(heads, rows)


def ros2(store, _):
    return comparison(store, ROS2, with_share=True)


def five_peers(store, _):
    figures = store.read("five-peers")["figures"]
    phases = {phase: [peer for peer in figures if peer["phase"] == phase] for phase in ("connected", "unplugged")}
    p99 = {phase: max(peer["laser_ms"]["p99"] for peer in found) for phase, found in phases.items()}
    lost = sum(peer["laser_sent"] - peer["laser_received"] for peer in phases["unplugged"])
    fate = "no scan to them is lost" if lost == 0 else f"{lost} scans to them are lost"
    return (
        f"The p99 from daemon to daemon is at most {p99['connected']:.1f} ms to every peer. If one peer is "
        f"unplugged midway, the p99 to the other four is at most {p99['unplugged']:.1f} ms, and {fate}."
    )


def readme(store, _):
    transports = store.read("6mbps")["transports"]
    topics = {
        "laser scan, alongside camera images": "laser",
        "velocity command, in the other direction": "command",
        "camera image": "image",
    }
    rows = []
    for words, flow in topics.items():
        ours, *others = (f"{figure(delay(flows[flow], 'p99'))} ms" for flows in transports.values())
        rows.append([words, ours if flow == "image" else bold(ours), *others])
    heads = ["99th percentile of the delay, 6 Mbps link", "Tautline", "ROS 1 (TCPROS)", "ROS 1, TCP_NODELAY"]
    return table(heads, rows)


PARTS = {
    "ros1": (PAGE, ros1),
    "oldest-image": (PAGE, oldest_image),
    "radio": (PAGE, radio),
    "ros2": (PAGE, ros2),
    "five-peers": (PAGE, five_peers),
    "6mbps": ("README.md", readme),
}
