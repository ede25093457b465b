"""Holds what a soak saw against what must be so; every line says what was found and what the bar is. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

from tests.soak.growth import growth, same_processes
from tests.soak.line import Line
from tests.soak.samples import SLOW_MACHINE, Observed
from tests.soak.speed import SLOWER, SLOWER_SHORT, cpu, speed
from tests.soak.trend import LEAST_SAMPLES

OLDEST_BEAT: Final = 30.0
"""Seconds: a beat comes once a second, a starved machine may be late."""
ALARMS: Final = (
    *("suspected", "slow", "incident.confirmed", "incident.recovered", "worker.failed", "worker.left"),
    *("decision", "restart", "restart.begun", "isolated", "notice.failed", "stopping"),
)
"""Events that nothing in a healthy job gives a reason for. ``cleared`` only follows ``suspected``."""


def judged(seen: Observed) -> list[Line]:
    """Everything that must be so, and whether it is."""
    counted = [sample for sample in seen.samples if sample.at >= seen.warm_up]
    if len(counted) < LEAST_SAMPLES:
        found = f"{len(counted)} samples after the warm-up"
        return [Line("samples", found, f">= {LEAST_SAMPLES}", ok=False)]
    return [
        *same_processes(counted),
        *growth(counted),
        *_beats(seen),
        *_alarms(seen),
        *_captures(seen),
        *_requests(seen),
        *_streams(seen),
        *_notices(seen),
        *speed(counted, SLOWER if seen.is_long else SLOWER_SHORT),
        *cpu(counted),
        *_ending(seen),
    ]


def _beats(seen: Observed) -> Iterator[Line]:
    looks = [look for sample in seen.samples for look in sample.steps.values()]
    wrong = [look for look in looks if not look.is_whole]
    found = f"{len(looks)} looks" if not wrong else f"{len(wrong)} of {len(looks)} looks, e.g. {wrong[0]}"
    yield Line(
        "steps on the page while ranks train", found, "the rank's own count", ok=not wrong and bool(looks)
    )
    lost = [final for final in seen.last_counts if final.own != final.page]
    steps = sum(final.own for final in seen.last_counts)
    found = f"{steps:,} steps of {len(seen.last_counts)} ranks" if not lost else f"{lost}"
    yield Line("steps on the page at the end", found, "the rank's own count", ok=not lost and steps > 0)
    oldest = max((look.beat_age for look in looks), default=math.inf)
    yield Line("oldest beat", f"{oldest:.1f} s", f"<= {OLDEST_BEAT:g} s", ok=oldest <= OLDEST_BEAT)


def _alarms(seen: Observed) -> Iterator[Line]:
    alarms = {name: seen.events[name] for name in ALARMS if seen.events.get(name)}
    yield Line("alarms", _counts(alarms) or "none", "none", ok=not alarms)
    yield Line(
        "told that all ranks alike take longer", f"{seen.events.get(SLOW_MACHINE, 0)} times", "none", ok=True
    )


def _captures(seen: Observed) -> Iterator[Line]:
    captures = seen.captures
    made = sum(captures.verdicts.values())
    others = {name: count for name, count in captures.verdicts.items() if name != "Healthy"}
    found = f"{made} by {captures.how}: {_counts(captures.verdicts) or 'none'}"
    if captures.put_off:
        found += f"; {captures.put_off} put off"
    if captures.failures:
        found += f"; {len(captures.failures)} failed, e.g. {captures.failures[0]}"
    yield Line(
        "captures",
        found,
        "all Healthy",
        ok=0 < made >= captures.put_off and not others and not captures.failures,
    )


def _requests(seen: Observed) -> Iterator[Line]:
    requests = seen.requests
    yield Line(
        "open paths", f"no {', '.join(seen.missing)}" if seen.missing else "all", "all", ok=not seen.missing
    )
    found = f"{requests.sent:,}, {requests.sent / max(requests.seconds, 1e-9):.0f}/s"
    if requests.refused or requests.lost:
        found += f"; {_counts(requests.refused)} {requests.lost} lost"
    answered = sum(requests.statuses.values()) - sum(requests.refused.values())
    yield Line(
        "requests on the open paths",
        found,
        "all 200, none lost",
        ok=answered == requests.sent > 0 and not requests.lost,
    )
    yield Line(
        "their latency", f"p50 {requests.p50 * 1e3:.1f} ms, p99 {requests.p99 * 1e3:.1f} ms", "none", ok=True
    )


def _streams(seen: Observed) -> Iterator[Line]:
    streams = seen.streams
    if streams.opened is None:
        yield Line("event streams", "this agent has none", "none", ok=True)
        return
    found = f"{streams.opened} opened, {streams.events} events"
    if streams.failures:
        found += f"; {len(streams.failures)} failed, e.g. {streams.failures[0]}"
    yield Line(
        "event streams",
        found,
        "none refused",
        ok=streams.opened > 0 and streams.events > 0 and not streams.failures,
    )


def _notices(seen: Observed) -> Iterator[Line]:
    one = seen.notices
    found = f"{one.sent} sent, {one.recorded} recorded, {one.told} told"
    yield Line(
        "messages and their notices", found, "all of them", ok=one.sent == one.recorded == one.told > 0
    )


def _ending(seen: Observed) -> Iterator[Line]:
    ending = seen.ending
    yield Line(
        "exit codes",
        f"{ending.exit_code}, torchrun's {ending.control_code}",
        "0",
        ok=ending.exit_code == ending.control_code == 0,
    )
    yield Line("processes left", "; ".join(ending.left) or "none", "none", ok=not ending.left)
    yield Line("files left", ", ".join(ending.files) or "none", "none", ok=not ending.files)
    yield Line("troubles it told of", "; ".join(ending.said) or "none", "none", ok=not ending.said)


def _counts(found: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(found.items()))
