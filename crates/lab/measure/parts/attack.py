# SPDX-License-Identifier: Apache-2.0
"""A hostile peer with a valid key, for the threat model."""

from parts.words import figure, value_range

PAGE = "docs/explanation/threat-model.md"
RIGHTS = {"default": "default rights", "generous": "all rights"}
MOST_TIMES = 1.5


class Attack:
    """The report of the bench: judged phases, and their verdicts."""

    def __init__(self, report):
        self.verdicts = report["verdicts"]
        self.quiet = {(phase["rights"], phase["flow"]): phase["median_ms"] for phase in report["quiet"]}
        self.phases = [phase for phase in report["phases"] if phase["judged"] and phase["kind"]]
        self.kinds = {phase["kind"] for phase in self.phases}
        self.late_over_ms = report["machine_late_over_ms"]
        self.left_after_s = report["left_after_s"]

    def reached(self, what):
        """Rights and kinds of the phases that reach a target."""
        found = (judged["what"].partition(": ") for judged in self.verdicts if judged["reached"])
        return {phase for phase, _, words in found if words == what}

    def missed(self, what):
        """The phases that miss a target, each with whether the machine was in time."""
        reached = self.reached(what)
        for phase in self.phases:
            if f"{phase['rights']} rights, {phase['kind']}" not in reached:
                yield phase, phase["machine_late_ms"]["p99"] <= self.late_over_ms

    def in_time(self):
        return [phase for phase in self.phases if phase["machine_late_ms"]["p99"] <= self.late_over_ms]

    def baseline(self, flow):
        default, generous = (f"{self.quiet[rights, flow]:.1f}" for rights in RIGHTS)
        return f"{default} and {generous} ms"


def grown_mb(phase, key):
    bytes_now = phase["toll"]["peak_bytes"] if key == "peak" else phase["after_bytes"]
    return (bytes_now - phase["idle_bytes"]) / 1e6


def survival(attack):
    count = len(attack.phases)
    died = sum(phase["died"] is not None for phase in attack.phases)
    crashes = "No daemon crashed." if not died else f"A daemon crashed in {died} phases."
    whole = attack.reached("laser received") & attack.reached("command received")
    if len(whole) == count:
        return f"- {crashes} All laser scans and all commands arrived in all {count} phases."
    return f"- {crashes} All laser scans and all commands arrived in {len(whole)} of {count} phases."


def laser(attack):
    count, missed = len(attack.phases), list(attack.missed("laser p99"))
    words = (
        f"- The target for the laser is a p99 of at most {MOST_TIMES} times the baseline without attack "
        f"({attack.baseline('laser')}). It was met in {count - len(missed)} of {count} phases."
    )
    in_time = sum(in_time for _, in_time in missed)
    words += f" The machine was in time in {len(attack.in_time())} phases, " + (
        "all of which met it." if in_time == 0 else f"{in_time} of which missed it."
    )
    late = [phase["machine_late_ms"]["p99"] for phase, in_time in missed if not in_time]
    if late:
        words += f" In the other phases that missed it, the machine was late by {value_range(late, 0)} ms."
    return words


def commands(attack):
    count, missed = len(attack.phases), list(attack.missed("command p99"))
    words = (
        f"- The p99 of the commands (baseline {attack.baseline('command')}) stayed within {MOST_TIMES} times the "
        f"baseline in {count - len(missed)} of {count} phases."
    )
    judged = sorted(
        (phase["flows"]["command"]["delay_ms"]["p99"], number)
        for number, (phase, in_time) in enumerate(missed)
        if in_time
    )
    if len(judged) > 1:
        worst = missed[judged[-1][1]][0]
        words += (
            f" In the other phases in which the machine was in time, it was {value_range([p99 for p99, _ in judged[:-1]])} ms, "
            f"and {judged[-1][0]:.1f} ms (median {worst['flows']['command']['delay_ms']['p50']:.1f} ms) in the phase "
            f"`{worst['kind']}` with {RIGHTS[worst['rights']]}."
        )
    return words


def memory(attack):
    peak = max(attack.phases, key=lambda phase: grown_mb(phase, "peak"))
    left = max(attack.phases, key=lambda phase: grown_mb(phase, "left"))
    others = max(grown_mb(phase, "left") for phase in attack.phases if phase["kind"] != left["kind"])
    listed = {phase["kind"] for phase in attack.phases if phase["left"]}
    words = (
        f"- Memory grew by at most {grown_mb(peak, 'peak'):.0f} MB (`{peak['kind']}`). {attack.left_after_s:.0f} s after the attacker had "
        f"disappeared without a goodbye, the daemon still held {grown_mb(left, 'left'):.0f} MB in the case "
        f"`{left['kind']}`, and at most {figure(others, 0)} MB in all other cases."
    )
    if listed:
        kinds_listed = f"{len(listed)} kind" + ("s" if len(listed) > 1 else "")
        words += f" Topics that the peer had offered were still listed after {kinds_listed}."
    return words


def measured(store, _):
    attack = Attack(store.read("attack"))
    return "\n".join(part(attack) for part in (survival, laser, commands, memory))


def kinds(store, _):
    attack = Attack(store.read("attack"))
    return f"in {len(attack.kinds)} kinds"


def phases(store, _):
    return f"{len(Attack(store.read('attack')).phases)} phases"


def report(store, pages):
    return pages.link(store, "attack", PAGE)


PARTS = {
    "attack": (PAGE, measured),
    "attack-kinds": (PAGE, kinds),
    "attack-phases": (PAGE, phases),
    "attack-report": (PAGE, report),
}
