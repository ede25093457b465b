"""The cycles of a node, and what its time outside of them went into. Pure.

A cycle that ended says so itself. One that did not, because its agent was killed, or runs, is closed with
what its events tell: the same stages, by the same clock, up to the last of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from rankscope.diag.history.lenient import read_leniently
from rankscope.diag.history.model import OUTSIDE, Cause
from rankscope.diag.history.runs import AgentLife
from rankscope.diag.history.stages import CycleClock
from rankscope.diag.store.events import Event, iso_time, seconds_between, unix_time
from rankscope.diag.store.launches import STAGES, Cycle

CUT_OFF: Final = "cut off"
RUNNING: Final = "running"
NOT_KNOWN: Final = "not known"
_LONGEST: Final = 1e9
"""Seconds; no cycle lasts thirty years."""
_STOPPING: Final = frozenset({"restart", "isolate", "fail"})


@dataclass(slots=True)
class NodeTime:
    """Where the time of one node went.

    Attributes:
        cycles: in order.
        milliseconds: by cause; they add up to the node's wall time.
        warnings: what could not be read.
    """

    cycles: list[Cycle] = field(default_factory=list[Cycle])
    milliseconds: dict[Cause, int] = field(default_factory=lambda: dict.fromkeys((*STAGES, *OUTSIDE), 0))
    warnings: list[str] = field(default_factory=list[str])

    @property
    def wall_ms(self) -> int:
        """The node's wall time."""
        return sum(self.milliseconds.values())


def time_of(
    node: str, lives: Sequence[AgentLife], *, now: Event | None = None, dead: bool = False
) -> NodeTime:
    """The cycles of a node's agents, and the time between.

    Args:
        node: its name.
        lives: its agents, one after the other; each has an event at least.
        now: this moment, if the last of them runs.
        dead: whether the last of them is known not to run.
    """
    found = NodeTime()
    for number, life in enumerate(lives):
        is_last = number == len(lives) - 1
        end = now if is_last and now is not None else life.events[-1]
        if life.ended is not None:
            result = str(life.ended.data.get("result") or NOT_KNOWN)
        elif is_last and now is not None:
            result = RUNNING
        else:
            result = NOT_KNOWN if is_last and not dead else CUT_OFF
        cycles = _cycles_of(node, life, end, result, found.warnings)
        _add(found, cycles, wall_ms=_ms(seconds_between(life.events[0], end)))
        if not is_last:
            gap = _ms(seconds_between(end, lives[number + 1].events[0]))
            found.milliseconds["agent_gone" if life.ended is None else "not_running"] += gap
    return found


def _add(found: NodeTime, cycles: Sequence[Cycle], *, wall_ms: int) -> None:
    """Count the cycles of one agent, and what is left of its time as the agent's own."""
    in_cycles = 0
    for cycle in cycles:
        for stage, spent in zip(STAGES, _times(cycle), strict=True):
            found.milliseconds[stage] += spent
            in_cycles += spent
    # An event is written a moment after what it tells of: the rest may be a millisecond short, never more.
    found.milliseconds["agent"] += max(0, wall_ms - in_cycles)
    found.cycles += cycles


def _cycles_of(node: str, life: AgentLife, end: Event, result: str, warnings: list[str]) -> list[Cycle]:
    cycles: list[Cycle] = []
    under_way: list[Event] = []
    for event in life.events:
        name = event.name
        if name == "cycle.ended":
            cycle, missing = read_leniently(event.data, Cycle)
            if missing:
                warnings.append(
                    f"node {node}: cycle {cycle.number} is of another version or damaged: "
                    f"{', '.join(missing)} not known"
                )
            cycles.append(_checked(cycle))
            under_way = []
        elif name == "cycle.started":
            if under_way:
                cycles.append(_closed(node, under_way, event, "restarted", cycles, less=_before(event)))
            under_way = [event]
        elif under_way:
            under_way.append(event)
    if under_way:
        cycles.append(_closed(node, under_way, end, result, cycles))
    return cycles


def _checked(cycle: Cycle) -> Cycle:
    """A cycle whose stages add up to its duration: where a damaged record does not, the stages hold."""
    times = _times(cycle)
    seconds = {stage: spent / 1000 for stage, spent in zip(STAGES, times, strict=True)}
    return msgspec.structs.replace(cycle, duration=sum(times) / 1000, **seconds)


def _told(node: str, started: Event) -> Cycle:
    """What a ``cycle.started`` tells of its cycle."""
    return read_leniently({"number": 0, "node": node, "began": "", **started.data}, Cycle)[0]


def _before(started: Event) -> float:
    """Seconds of a cycle before its ``cycle.started``."""
    told = _told("", started)
    return (_ms(told.rendezvous) + _ms(told.start)) / 1000


def _closed(
    node: str,
    events: Sequence[Event],
    end: Event,
    result: str,
    before: Sequence[Cycle],
    *,
    less: float = 0.0,
) -> Cycle:
    """The cycle that these events tell of, ``cycle.started`` first.

    Args:
        node: its node.
        events: all of the cycle.
        end: the last that is known of it, or the start of the workers of the next one.
        result: what came of it.
        before: the cycles before it.
        less: seconds before ``end`` that belong to the next cycle.
    """
    started = events[0]
    told = _told(node, started)
    clock = CycleClock()
    clock.enter("rendezvous", -_before(started))
    clock.enter("start", -_ms(told.start) / 1000)
    clock.enter("first_step", 0.0)
    for event in events[1:]:
        _tell(clock, event, seconds_between(started, event))
        told = _learnt(told, event)
    span = clock.end(seconds_between(started, end) - less)
    if span is None:
        return told
    ended = None if result == RUNNING else _earlier(end, less)
    return msgspec.structs.replace(
        told,
        number=told.number or (before[-1].number + 1 if before else 1),
        began=told.began or _earlier(started, _before(started)),
        ended=ended,
        duration=span.duration,
        result=result,
        **span.seconds,
    )


def _tell(clock: CycleClock, event: Event, at: float) -> None:
    """What an event says of the stage."""
    match event.name:
        case "cycle.training":
            clock.progressed(at)
        case "suspected":
            clock.enter("hang_unnoticed", at - _seconds(event))
            clock.enter("collection", at)
        case "cleared":
            clock.cleared()
        case "incident.confirmed":
            clock.enter("analysis", at)
        case "incident.recovered" if "seconds" in event.data:  # of a hang
            clock.recovered(at)
        case "worker.failed":
            clock.enter("analysis", at)
        case "stopping" | "restart.begun":
            clock.enter("stopping", at)
        case "decision" if str(event.data.get("action")) in _STOPPING:
            clock.enter("stopping", at)
        case _:
            pass


def _learnt(cycle: Cycle, event: Event) -> Cycle:
    """What an event says of how the cycle ended, and how far it came."""
    data = event.data
    if event.name == "cycle.training":
        steps, step = data.get("steps"), data.get("step")
        return msgspec.structs.replace(
            cycle,
            steps=steps if isinstance(steps, int) else cycle.steps,
            step=step if isinstance(step, int) else cycle.step,
        )
    is_end = event.name == "stopping" or (event.name == "decision" and str(data.get("action")) in _STOPPING)
    if is_end and not cycle.reason:
        return msgspec.structs.replace(cycle, reason=str(data.get("reason", "")), incident=event.subject)
    return cycle


def _seconds(event: Event) -> float:
    value = event.data.get("seconds")
    return float(value) if isinstance(value, (int, float)) and 0 <= value < float("inf") else 0.0


def _earlier(event: Event, seconds: float) -> str:
    at = unix_time(event.time)
    try:
        return event.time if at is None else iso_time(at - seconds)
    except (ValueError, OverflowError, OSError):  # no such year
        return event.time


def _ms(seconds: float) -> int:
    return round(seconds * 1000) if 0 <= seconds < _LONGEST else 0


def _times(cycle: Cycle) -> list[int]:
    """Milliseconds in each stage; what no cycle can have counts as none."""
    values: list[float] = [getattr(cycle, stage) for stage in STAGES]
    return [_ms(value) for value in values]
