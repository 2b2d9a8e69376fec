# SPDX-License-Identifier: Apache-2.0
"""What `make measure` measures, in this order: one row for each command."""

import dataclasses

# Words of a command that are replaced when it runs.
LAB, DOCS, TRACES = "tautline-lab", "docs", "TRACES"

ROS2 = ("crates/lab/ros2.sh", "kilted")


@dataclasses.dataclass(frozen=True)
class Row:
    """One command, and where its figures are."""

    name: str
    # Words for the list of figures.
    title: str
    # Place of the figures, relative to docs/explanation.
    place: str
    command: str
    # Expected duration in minutes, until a measurement is recorded.
    minutes: float
    # Names of the reports in docs/measured.
    reports: tuple = ()
    # Where the report is after the command: "folder" of a bench case, "stdout", or "docs" if the command
    # writes the documentation itself (with `--docs`).
    output: str = "folder"
    encrypted: str = "yes"
    # Whether the raw samples of the case are kept.
    samples: bool = False
    # Pictures of the case that the documentation shows, in docs.
    pictures: tuple = ()
    # Commands that must have succeeded before.
    prepare: tuple = ()
    # Rows whose figures this one contains since they were measured.
    replaces: tuple = ()

    @property
    def case(self):
        """Name of the bench case."""
        return self.command.split()[2]


def bench(name, title, place, minutes, options="", **more):
    more.setdefault("reports", (name,))
    case = more.pop("case", name)
    return Row(name, title, place, f"{LAB} bench {case} {options}".strip(), minutes, **more)


def validate(name, title, place, minutes, options="", **more):
    subject = more.pop("subject", name)
    more.setdefault("reports", (name,))
    more.setdefault("encrypted", "–")
    return Row(name, title, place, f"{LAB} validate {subject} {options}".strip(), minutes, **more)


SLOW, RADIO, LINKS = "#ros-1-over-a-slow-link", "#ros-1-over-a-half-duplex-radio", "#several-links"
UNKNOWN = "unknown-links.md"
STUDIES = ("study-realtime", "study-dds", "study-scaling")

ROWS = (
    bench("6mbps", "6 Mbps", SLOW, 1.5, "--seconds 20", samples=True, pictures=("explanation/delays.png",)),
    bench("6mbps-rate", "6 Mbps, rate set", SLOW, 1.5, "--seconds 20", samples=True),
    bench("3mbps", "3 Mbps", SLOW, 1, "--seconds 20", samples=True),
    bench("3mbps-rate", "3 Mbps, rate set", SLOW, 1, "--seconds 20", samples=True),
    bench("6mbps-loss", "6 Mbps, 5 % loss", SLOW, 1, "--seconds 20", samples=True),
    bench("6mbps-radio", "802.11 channel", RADIO, 2, "--seconds 20", samples=True),
    bench(
        "ros2-6mbps",
        "ROS 2, 6 Mbps",
        "#ros-2-over-a-slow-link",
        5,
        "--ros 2 --runs 3 --seconds 20",
        case="6mbps",
        samples=True,
        prepare=(ROS2,),
    ),
    bench(
        "ros2-3mbps",
        "ROS 2, 3 Mbps",
        "#ros-2-over-a-slow-link",
        3,
        "--ros 2 --runs 2 --seconds 20",
        case="3mbps",
        samples=True,
        prepare=(ROS2,),
    ),
    bench("ros2-gateway", "ROS 2 gateway", "#cost", 8, "--ros 2", prepare=(ROS2,)),
    bench("five-peers", "five peers", "#five-peers", 2, samples=True),
    bench("links", "several links", LINKS, 3, samples=True),
    bench("recovery", "recovery", "#recovery", 25),
    bench(
        "recovery-60s",
        "recovery after 60 s",
        "#recovery",
        5,
        "--outage 60 --runs 3 --interruption outage",
        case="recovery",
    ),
    bench(
        "recovery-60s-kernel",
        "recovery after 60 s, kernel's ARP",
        "#recovery",
        5,
        "--outage 60 --runs 3 --interruption outage-kernel",
        case="recovery",
    ),
    bench("reload", "reload", "#reload", 2),
    bench("crypto", "encryption, header", "#cost", 2),
    bench("idle", "idle daemon", "#cost", 1),
    bench("flood", "floods", "#floods", 4),
    bench("attack", "hostile peer", "threat-model.md#measured", 46),
    bench("bottleneck", "far bottlenecks", "#far-bottlenecks", 10, "--docs docs", output="docs"),
    validate("cost", "protocol", "#cost", 1, "--json", output="stdout", encrypted="yes"),
    validate("speed", "speed of virtual time", "#virtual-and-real-time", 1, "--json", output="stdout"),
    validate("air", "virtual and real time", "#virtual-and-real-time", 14, "--json", output="stdout"),
    validate("tcp", "kernel's TCP", "tcp.md", 35, "--docs docs", output="docs", encrypted="yes"),
    validate("losses", "lossy links", "#lossy-links", 1, "--json", output="stdout", encrypted="20 % loss: no"),
    validate(
        "links-virtual",
        "several links, virtual time",
        LINKS,
        1,
        "--json --docs docs",
        subject="links",
        reports=("links-virtual", "links-series"),
        output="stdout",
    ),
    validate("rates", "rates, relays", "rates.md", 4, "--docs docs", output="docs"),
    validate("constants", "constants of rate control", "rate-control.md", 10, "--docs docs", output="docs"),
    validate("unknown", "links drawn from seeds", UNKNOWN, 15, "--seeds 180 --docs docs", output="docs"),
    validate("traces", "cellular links", UNKNOWN, 1, f"--traces {TRACES} --docs docs", output="docs"),
    validate("networks", "networks", "../how-to/networks.md", 1, f"--traces {TRACES} --docs docs", output="docs"),
    validate("plans", "planner", "../decisions/0048-worst-cases-from-airtime.md", 4, "--docs docs", output="docs"),
    validate("dcf", "radio model", "dcf.md", 1, "--docs docs", output="docs", reports=()),
    Row(
        "restaurant",
        "restaurant",
        "restaurant.md",
        "make restaurant ORDERS=50 ROBOTS=1+2,1+1,2+2 TRANSPORTS=tautline,plain"
        " CONDITIONS=idle,stress,cameras,interference,hidden-station,everything PAGES=docs",
        180,
        ("restaurant",),
        output="docs",
        replaces=("restaurant: path", "restaurant: regulation", "restaurant: orders, faults, periods"),
    ),
    Row(
        "studies",
        "studies of real time, DDS and scaling",
        "study-dds.md",
        "make study STUDY=full PAGES=docs",
        95,
        STUDIES,
        output="docs",
        replaces=STUDIES,
    ),
)


def chosen(names):
    """The rows with these names, in their order here; all without names."""
    known = {row.name for row in ROWS}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"measure: no row '{unknown[0]}'; there are: {', '.join(row.name for row in ROWS)}")
    return [row for row in ROWS if not names or row.name in names]
