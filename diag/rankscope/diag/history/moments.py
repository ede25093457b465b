"""What happened to a job, in words and in order of time, over all nodes. Pure.

Within a node the order of its events holds, whatever its wall clock did; between nodes it is that of the wall
clocks at their first events, and of what has passed since.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from rankscope.diag.history.model import Moment
from rankscope.diag.history.runs import AgentLife
from rankscope.diag.model import Decision, Diagnosis
from rankscope.diag.store.events import Event, seconds_between, unix_time

FOLDED: Final = frozenset(
    {"analyzed", "decision", "incident.confirmed", "incident.recovered", "settings.changed", "slow"}
)
"""Of these, what comes again or on several nodes is one moment with a count, unless all is asked for."""
SHOWN: Final = FOLDED | {
    "agent.gone",
    "isolated",
    "job.ended",
    "job.started",
    "notice.failed",
    "stopping",
    "worker.left",
}
"""What is shown without ``--all``; what else an event log has is behind these, or in the tables."""
_GONE: Final = "the agent left no last word: killed, or its host was lost"


def moments_of(
    nodes: Mapping[str, Sequence[AgentLife]],
    diagnoses: Mapping[str, Diagnosis],
    decisions: Mapping[str, Decision],
    *,
    dead: Iterable[str],
    unfold: bool,
) -> tuple[Moment, ...]:
    """All moments of a job.

    Args:
        nodes: the agents of each node, one after the other.
        diagnoses: stored ones by incident: those that no event tells of are moments too; decisions likewise.
        decisions: stored ones by incident.
        dead: nodes whose last agent is known not to run.
        unfold: every event, each for itself.
    """
    gone = frozenset(dead)
    streams = [_of_node(node, lives, is_dead=node in gone) for node, lives in nodes.items()]
    stored = _only_stored([one.moment for stream in streams for one in stream], diagnoses, decisions)
    streams.append([_Placed(unix_time(one.time) or 0.0, (one.type, one.incident), one) for one in stored])
    ordered = list(heapq.merge(*streams, key=lambda placed: placed.at))
    if unfold:
        return tuple(placed.moment for placed in ordered)
    return tuple(_folded(placed for placed in ordered if placed.moment.type in SHOWN))


@dataclass(frozen=True, slots=True)
class _Placed:
    """A moment and its place among those of other nodes.

    Attributes:
        at: the wall clock's time of the node's first event, and what has passed since by the monotonic clock:
            a wall clock that is set back or forward meanwhile moves nothing.
        sameness: what is equal in moments that are shown as one, ``None`` for one that stands for itself.
    """

    at: float
    sameness: object
    moment: Moment


def _of_node(node: str, lives: Sequence[AgentLife], *, is_dead: bool) -> list[_Placed]:
    moments: list[_Placed] = []
    first = lives[0].events[0]
    at, before = unix_time(first.time) or 0.0, first
    for number, life in enumerate(lives):
        for event in life.events:
            at, before = at + seconds_between(before, event), event
            moment = Moment(event.time, node, event.name, text_of(event), event.subject, nodes=(node,))
            moments.append(_Placed(at, _sameness(event, moment), moment))
        if life.ended is None and (number < len(lives) - 1 or is_dead):
            gone = Moment(before.time, node, "agent.gone", _GONE, nodes=(node,))
            moments.append(_Placed(at, None, gone))
    return moments


def _sameness(event: Event, moment: Moment) -> object:
    if moment.type not in FOLDED:
        return None
    if moment.type == "slow":
        return ("slow", *(str(event.data.get(name)) for name in ("verdict", "kind", "culprits")))
    return (moment.type, moment.incident, moment.text)


def _only_stored(
    moments: Iterable[Moment],
    diagnoses: Mapping[str, Diagnosis],
    decisions: Mapping[str, Decision],
) -> list[Moment]:
    """Incidents and decisions that have a file and no event: it was lost, or could not be written."""
    told = {(moment.type, moment.incident) for moment in moments}
    known = {incident for _type, incident in told}
    found = [
        Moment(one.time, ", ".join(one.nodes), "incident.confirmed", _verdict(one), incident)
        for incident, one in diagnoses.items()
        if incident not in known and one.verdict != "Healthy"
    ]
    found += [
        Moment(one.time, "", "decision", f"{one.action}: {one.reason}", incident)
        for incident, one in decisions.items()
        if ("decision", incident) not in told
    ]
    return sorted(found, key=lambda moment: moment.time)


def _verdict(diagnosis: Diagnosis) -> str:
    return f"{diagnosis.verdict} ({diagnosis.confidence} confidence): {diagnosis.summary}"


def _folded(moments: Iterable[_Placed]) -> list[Moment]:
    folded: dict[object, Moment] = {}
    for placed in moments:
        key = placed.sameness if placed.sameness is not None else len(folded)
        first = folded.get(key)
        folded[key] = placed.moment if first is None else _again(first, placed.moment)
    return list(folded.values())


def _again(first: Moment, moment: Moment) -> Moment:
    nodes = first.nodes if moment.node in first.nodes else (*first.nodes, *moment.nodes)
    return msgspec.structs.replace(first, count=first.count + 1, last=moment.time, nodes=nodes)


def text_of(event: Event) -> str:
    """An event in a sentence."""
    words = _WORDS.get(event.name, _fields)
    return words(event.data)


_Data = Mapping[str, object]


def _fields(data: _Data) -> str:
    """An event that has no words here: of a kind that is seldom, or of a version to come."""
    return ", ".join(f"{name} {value}" for name, value in data.items() if value not in (None, "", [], {}))


def _diagnosis(data: _Data) -> str:
    confidence = data.get("confidence")
    sure = f" ({confidence} confidence)" if confidence else ""
    return f"{data.get('verdict', '')}{sure}: {data.get('summary', '')}"


def _recovered(data: _Data) -> str:
    return str(data.get("reason") or f"recovered by itself after {data.get('seconds')} s")


def _decision(data: _Data) -> str:
    return f"{data.get('action', '')}: {data.get('reason', '')}"


def _started(data: _Data) -> str:
    pid = data.get("pid")
    return f"the agent started (pid {pid})" if pid is not None else "the agent started"


def _ended(data: _Data) -> str:
    code = data.get("exit_code")
    return f"{data.get('result', '')}" + (f", exit code {code}" if code is not None else "")


def _failed(data: _Data) -> str:
    first = " (the first)" if data.get("root") is True else ""
    return f"rank {data.get('rank')}{first}: exit code {data.get('exit_code')} {data.get('message') or ''}"


def _silence(data: _Data) -> str:
    seconds = data.get("seconds")
    return f"{data.get('reason', '')}" + (f", {seconds} s without progress" if seconds is not None else "")


def _launched(data: _Data) -> str:
    return f"ranks {data.get('ranks')} of {data.get('world_size')} run"


def _trains(data: _Data) -> str:
    step = data.get("step")
    return "the first progress" + (f", step {step}" if step is not None else "")


def _cycle(data: _Data) -> str:
    return f"cycle {data.get('number')}: {data.get('result')} after {data.get('duration')} s"


def _restart(data: _Data) -> str:
    return f"restart {data.get('restarts')}: {data.get('result') or data.get('reason')}"


def _message(data: _Data) -> str:
    rank = data.get("rank")
    return f"rank {rank}: {data.get('content', '')}" if rank is not None else str(data.get("content", ""))


def _settings(data: _Data) -> str:
    changed = data.get("changed")
    if not isinstance(changed, dict):
        return _fields(data)
    by = f" (by {data['by']})" if data.get("by") else ""
    pairs = [
        f"{name} {one.get('old')} -> {one.get('new')}"
        for name, one in changed.items()
        if isinstance(one, dict)
    ]
    return ", ".join(pairs) + by


_WORDS: Final[Mapping[str, Callable[[_Data], str]]] = {
    "analyzed": _diagnosis,
    "cleared": _silence,
    "cycle.ended": _cycle,
    "cycle.started": _launched,
    "cycle.training": _trains,
    "decision": _decision,
    "incident.confirmed": _diagnosis,
    "incident.recovered": _recovered,
    "job.ended": _ended,
    "job.started": _started,
    "message": _message,
    "restart": _restart,
    "restart.begun": _restart,
    "settings.changed": _settings,
    "slow": _diagnosis,
    "stopping": _silence,
    "suspected": _silence,
    "worker.failed": _failed,
}
