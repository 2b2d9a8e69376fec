# SPDX-License-Identifier: Apache-2.0
"""Raw samples of bench cases: each message of each stream, and the files of the daemons.

The report `samples` has all rows that keep them, by the folder below that of the case. A stream has the time of
its first publication, the time from each publication to the next, and for each receiver the delay of each
message until its callback, all in microseconds. A delay is null if the message did not arrive. Sequence numbers
count from 0.
"""

NAME = "samples"
# Files of a run besides its samples. Keys, sockets and output of the load's programs are left out.
KEPT = (".yaml", ".status.json", "tautline-base.log", "tautline-robot.log")
# The receiver where there is one.
SUBSCRIBER = "subscriber"
NS_PER_US = 1000


def csv_rows(file):
    """The rows of a file of samples, without its heads."""
    rows = (line.split(",") for line in file.read_text().splitlines())
    return [row for row in rows if row[-1].isdigit()]


def stream(sent_ns, arrived_ns):
    """One stream: times of publication by sequence number, and for each receiver rows of number and arrival."""
    if not sent_ns:
        return {"first_us": None, "every_us": [], "delay_us": {}}
    times = [sent_ns.get(number) for number in range(max(sent_ns) + 1)]
    if None in times:
        raise ValueError(f"message {times.index(None)} of {len(times)} has no time of publication")
    us = [round(time / NS_PER_US) for time in times]
    found = {"first_us": us[0], "every_us": [later - before for before, later in zip(us, us[1:])], "delay_us": {}}
    for receiver, arrivals in arrived_ns.items():
        delays = found["delay_us"][receiver] = [None] * len(times)
        for number, time in arrivals:
            delay = round((time - times[number]) / NS_PER_US)
            if delays[number] is None:
                delays[number] = delay
            else:
                found.setdefault("again", []).append([receiver, number, delay])
    return found


def between_two(folder):
    """Streams of rospy and rclpy: NAME.sent.csv and NAME.received.csv."""
    streams = {}
    for file in sorted(folder.glob("*.sent.csv")):
        name = file.name.removesuffix(".sent.csv")
        sent = {int(number): int(time) for number, time in csv_rows(file)}
        arrivals = [(int(number), int(time)) for number, _, time in csv_rows(folder / f"{name}.received.csv")]
        streams[name] = stream(sent, {SUBSCRIBER: arrivals})
    return streams


def to_several(folder):
    """Streams of `tautline-lab traffic`: SENDER.sent, and RECEIVER.csv with topic, number and both times."""
    sent, arrived = {}, {}
    for file in sorted(folder.glob("*.sent")):
        for topic, number, time in csv_rows(file):
            sent.setdefault(topic, {})[int(number)] = int(time)
    for file in sorted(folder.glob("*.csv")) if sent else ():
        for topic, number, _, time in csv_rows(file):
            arrived.setdefault(topic, {}).setdefault(file.stem, []).append((int(number), int(time)))
    return {topic: stream(times, arrived.get(topic, {})) for topic, times in sent.items()}


def case_samples(folder):
    """All samples and files below the folder of a case."""
    found = {}
    for inner in [folder, *sorted(path for path in folder.rglob("*") if path.is_dir())]:
        streams = between_two(inner) or to_several(inner)
        if streams:
            files = sorted(file for file in inner.iterdir() if file.is_file() and file.name.endswith(KEPT))
            kept = {file.name: file.read_text() for file in files}
            found[str(inner.relative_to(folder))] = {"streams": streams, "files": kept}
    if not found:
        raise ValueError(f"there are no samples below {folder}")
    return found
