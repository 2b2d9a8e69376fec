# SPDX-License-Identifier: Apache-2.0
"""Relays, several links and lossy links."""

from parts.words import bold, figure, table, targets, value_range

PAGE = "docs/explanation/measurements.md"
LINKS_GUIDE = "docs/how-to/links.md"
RELAYED = ("plain_udp", "pounds_gap", "tautline_over_ip", "relays")
SYSTEMS = {
    "fixed": "RCom, fixed at the rates of the radios",
    "aid": "RCom, AID",
    "aimd": "RCom, AIMD",
    "weighted": "Tautline, `weighted`",
    "best": "Tautline, `best`",
    "stripe": "Tautline, `stripe`",
}


def chain(store, hops, way):
    return next(found for found in store.read("rates")["chains"] if (found["hops"], found["way"]) == (hops, way))


def relays(store, _):
    def cell(hops, way):
        found = chain(store, hops, way)
        images = found["image"]["arrived_percent"]
        words = f"{found['laser']['delay_ms']['p99']:.1f} ms"
        return words if images == 100 else f"{words}, {images:.1f} % of the images"

    paths = {2: "two hops", 3: "three hops, hidden stations"}
    rows = [[words, *(cell(hops, way) for way in RELAYED)] for hops, words in paths.items()]
    heads = [
        "path",
        "plain UDP",
        "Tautline over plain IP, with Pound's gap",
        "Tautline over plain IP",
        "Tautline relays",
    ]
    return table(heads, rows)


def relays_gain(store, _):
    def change(hops):
        p99 = [chain(store, hops, way)["laser"]["delay_ms"]["p99"] for way in ("tautline_over_ip", "relays")]
        percent = 100 * (1 - p99[1] / p99[0])
        return f"{abs(percent):.0f} % {'shorter' if percent >= 0 else 'longer'}"

    return (
        f"With relays, the p99 is {change(2)} over two hops than over plain IP. Over three hops, where stations "
        f"two hops apart are hidden from each other, it is {change(3)}."
    )


def failing(store, _):
    def pair(delays):
        return f"{delays['p50']:.1f} / {delays['p99']:.1f}"

    rows = []
    for flow in store.read("links")["figures"]:
        during = flow["during_ms"]
        back = "–" if flow["back_s"] is None else f"{flow['back_s']:.2f} s"
        rows.append(
            [
                flow["failure"],
                flow["flow"],
                f"{flow['lost']} of {flow['sent']}",
                pair(flow["before_ms"]),
                f"{pair(during)} / {during['max']:.1f}",
                f"{flow['gap_ms']:.1f}",
                back,
            ]
        )
    heads = [
        "first link",
        "topic",
        "lost of sent",
        "over two links, p50 / p99 ms",
        "while it fails, p50 / p99 / latest ms",
        "longest gap ms",
        "over both again",
    ]
    return table(heads, rows)


def failing_targets(store, _):
    report = store.read("links")
    laser = next(flow for flow in report["figures"] if (flow["failure"], flow["flow"]) == ("blocked", "laser"))
    held = laser["delayed"]
    words = {0: "no message", 1: "one message"}.get(held, f"{held} messages")
    late = f", which arrives by another link after {laser['during_ms']['max']:.0f} ms" if held == 1 else ""
    return f"{targets(report)} The driver of the blocked link holds {words} of the laser{late}."


def rcom(store, _):
    rows = []
    for system in store.read("links-virtual")["rcom"]:
        if system["offered_hz"] == 200:
            rows.append(
                [
                    SYSTEMS[system["system"]],
                    f"{system['images_per_s']:.1f}",
                    f"{system['packets_per_image']:.1f}",
                    f"{100 * system['of_goodput']:.1f}",
                ]
            )
    return table(["offered at 200 Hz", "images/s", "packets per image", "% of the goodput of the radios"], rows)


def rcom_slower(store, _):
    found = [system["images_per_s"] for system in store.read("links-virtual")["rcom"] if system["offered_hz"] == 50]
    return f"At 50 Hz, each system carries {value_range(found)} images per second."


def pairs(store, _):
    def cell(delays):
        return f"{delays['p50']:.1f} / {delays['p99']:.1f}"

    rows = [[case["case"], cell(case["one"]), cell(case["two"])] for case in store.read("links-virtual")["pairs"]]
    return table(["case", "one link, p50 / p99 ms", "two links, p50 / p99 ms"], rows)


def losses(store, _):
    rows = []
    for link in store.read("losses")["laser"]:
        loss = f"{link['loss_percent']} %" + (" in bursts of five" if link["bursts"] else "")
        limit = "–" if link["target_ms"] is None else f"{link['target_ms']:.0f}"
        arrived = f"{link['arrived_percent']:.2f} / {link['arrived_without_percent']:.2f}"
        rows.append(
            [
                loss,
                f"{link['p99_ms']:.1f}",
                f"{link['p99_without_ms']:.1f}",
                limit,
                arrived,
                f"{link['bulk_percent']:.1f}",
            ]
        )
    return table(["loss", "p99 ms", "without", "at most", "laser arrived %, with / without", "bulk %"], rows)


def losses_missed(store, _):
    judged = [link for link in store.read("losses")["laser"] if link["target_ms"] is not None]
    missed = [f"{link['loss_percent']} %" for link in judged if link["p99_ms"] > link["target_ms"]]
    return f"Missed targets: the p99 at {', '.join(missed)} loss." if missed else "All targets are reached."


def large(store, _):
    rows = [
        [
            messages["bytes"],
            f"{messages['loss_percent']} %",
            f"{messages['arrived_percent']:.2f}",
            f"{messages['p99_ms']:.0f}",
        ]
        for messages in store.read("losses")["large"]
    ]
    return table(["bytes", "loss", "arrived %", "p99 ms"], rows)


def long_delay(store, _):
    rows = []
    for link in store.read("losses")["long"]:
        parity, judged = link["parity_percent"], is_judged(link)
        cells = [f"{link['every_ms']} ms", "–" if parity is None else f"{parity} %", "yes" if link["repair"] else "no"]
        arrived, p99 = f"{link['arrived_percent']:.2f}", f"{link['p99_ms']:.0f}"
        overhead = f"{link['overhead_percent']:.0f} %" if link["overhead_percent"] else "0"
        if judged:
            arrived, p99, overhead = map(bold, (arrived, p99, overhead))
        rows.append([*cells, arrived, f"{link['median_ms']:.0f}", p99, overhead])
    return table(["every", "parity", "repair", "arrived %", "median ms", "p99 ms", "overhead"], rows)


def is_judged(link):
    return (link["every_ms"], link["parity_percent"], link["repair"]) == (20, 60, False)


def parity_target(store, _):
    link = next(filter(is_judged, store.read("losses")["long"]))
    reached = link["arrived_percent"] >= 99.9 and link["overhead_percent"] <= 65
    return f"The target, 99.9 % with at most 65 % overhead, applies to the third line and is {'reached' if reached else 'missed'}."


def parity_gain(store, _):
    rows = [link for link in store.read("losses")["long"] if link["every_ms"] == 20]
    with_parity = next(filter(is_judged, rows))
    repaired = next(link for link in rows if link["parity_percent"] is None and link["repair"])
    return f"{with_parity['p99_ms']:.0f} ms instead of {repaired['p99_ms']:.0f} ms"


def heavy_loss(store, _):
    link = next(link for link in store.read("losses")["laser"] if link["loss_percent"] == 20 and not link["bursts"])
    return f"{figure(link['p99_ms'], 0)} ms"


PARTS = {
    "relays": (PAGE, relays),
    "relays-gain": (PAGE, relays_gain),
    "links": (PAGE, failing),
    "links-targets": (PAGE, failing_targets),
    "rcom": (PAGE, rcom),
    "rcom-50hz": (PAGE, rcom_slower),
    "links-virtual": (PAGE, pairs),
    "losses": (PAGE, losses),
    "losses-missed": (PAGE, losses_missed),
    "losses-large": (PAGE, large),
    "losses-long": (PAGE, long_delay),
    "parity-target": (PAGE, parity_target),
    "parity-gain": (LINKS_GUIDE, parity_gain),
    "heavy-loss": ("README.md", heavy_loss),
}
